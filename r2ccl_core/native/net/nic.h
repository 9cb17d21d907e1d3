// Nic: one network interface with its IPv4 address, and the pairing of two hosts' NICs into paths.
#ifndef R2CCL_NET_NIC_H_
#define R2CCL_NET_NIC_H_

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace r2ccl {

struct Nic {
  std::string name;   // interface, such as eth0
  int ifindex = 0;    // 0 when unknown
  in_addr address{};  // network order
  int prefix_length = 32;
};

// Looks up `name` holding `address` among this process's interfaces. An interface that is down is found too.
Status FindNic(const std::string& name, const std::string& address, Nic* nic);

// The interfaces that `filter` selects, as NCCL_SOCKET_IFNAME does: a comma list of name prefixes, "^" in front
// excludes them, "=" in front asks for exact names. Without a filter: all that have an IPv4 address and are
// neither loopback nor a container bridge. An interface counts even when its link is down. Ordered by name.
Status DiscoverNics(const std::string& filter, std::vector<Nic>* nics);

std::string ToString(in_addr address);

// Which local NIC talks to which remote address: equal subnets first (a rail), the rest by position.
// Each NIC and each address is used at most once; the result is ordered by local NIC.
std::vector<std::pair<int, int>> PairNics(const std::vector<Nic>& local, const std::vector<in_addr>& remote);

}  // namespace r2ccl

#endif  // R2CCL_NET_NIC_H_
