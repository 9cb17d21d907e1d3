// Nic: one network interface with its IPv4 address, and the pairing of two hosts' NICs into paths.
#ifndef R2CCL_NET_NIC_H_
#define R2CCL_NET_NIC_H_

#include <netinet/in.h>

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace r2ccl {

// An interface's index as it is now, 0 while unknown. All copies change together, so that whoever dials from a NIC that
// was made again, or whose address moved, follows it. Thread-safe.
class LiveIndex {
 public:
  LiveIndex(int index = 0) : index_(std::make_shared<std::atomic<int>>(index)) {}  // NOLINT: an index is meant
  int get() const { return index_->load(std::memory_order_relaxed); }
  void Set(int index) const { index_->store(index, std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<int>> index_;
};

struct Nic {
  std::string name;     // of its interface when it was found, such as eth0; what people call it from then on
  LiveIndex ifindex{};  // of the interface that has the address, see NicTable
  in_addr address{};    // network order
  int prefix_length = 32;
  std::string device{};  // its place on PCI, as /sys names it; empty for a virtual NIC
  int numa = -1;         // the domain of its memory; -1: unknown
};

// How far one NIC is from another on the host: through how many bridges, and farther than any of these in another NUMA
// domain. A GPU's own NIC is the nearest to it, so what is near to that is near to the GPU. 0 where it is not known.
int Distance(const Nic& a, const Nic& b);

// Looks up `name` holding `address` among this process's interfaces. An interface that is down is found too.
Status FindNic(const std::string& name, const std::string& address, Nic* nic);

// A NIC that is not a data NIC unless it is named, and why: "has the default route" or "is marked as management".
struct LeftOut {
  std::string name;
  std::string why;
};

// The interfaces that `filter` selects, as NCCL_SOCKET_IFNAME does: a comma list of name prefixes, "^" in front
// excludes them, "=" in front asks for exact names. Without a filter: all that have an IPv4 address and are
// neither loopback nor a container bridge, without those of the management network where others are left.
// An interface counts even when its link is down. Ordered by name.
Status DiscoverNics(const std::string& filter, std::vector<Nic>* nics, std::vector<LeftOut>* left_out = nullptr);

// Whether the alias of an interface (`ip link set NAME alias TEXT`) marks it as management: its first word is
// "management".
bool IsManagement(const std::string& alias);

// Takes the NICs of the management network from `nics` and returns them: first those that are marked, then those of the
// default route, but neither kind if no NIC would be left. `routes` is the kernel's table as /proc/net/route has it.
std::vector<LeftOut> LeaveOutManagement(const std::set<std::string>& marked, std::istream& routes,
                                        std::vector<Nic>* nics);

std::string ToString(in_addr address);

// Which local NIC talks to which remote address: equal subnets first (a rail), the rest by position.
// Each NIC and each address is used at most once; the result is ordered by local NIC.
std::vector<std::pair<int, int>> PairNics(const std::vector<Nic>& local, const std::vector<in_addr>& remote);

}  // namespace r2ccl

#endif  // R2CCL_NET_NIC_H_
