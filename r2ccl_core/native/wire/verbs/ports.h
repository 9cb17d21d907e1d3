// Which port of which RDMA device carries a NIC's address, according to the kernel's files; and the user's RDMA
// variables.
#ifndef R2CCL_WIRE_VERBS_PORTS_H_
#define R2CCL_WIRE_VERBS_PORTS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/nic.h"

namespace r2ccl {

using GidBytes = std::array<uint8_t, 16>;

// What the variables say that users of NCCL know; each means what it means there.
struct VerbsSettings {
  bool disabled = false;  // NCCL_IB_DISABLE
  std::string devices;    // NCCL_IB_HCA: a list of prefixes with an optional :port, "=" exact names, "^" excludes
  int gid_index = -1;     // NCCL_IB_GID_INDEX; -1: the RoCE v2 GID of the NIC's address
  int traffic_class = 0;  // NCCL_IB_TC
  int service_level = 0;  // NCCL_IB_SL
  int pkey_index = 0;     // NCCL_IB_PKEY: of the port's table of partition keys
  int timeout = 13;       // NCCL_IB_TIMEOUT: the queue pair waits 4.096 us * 2^timeout for an answer
  int retries = 6;        // NCCL_IB_RETRY_CNT, at most 6: Soft-RoCE takes 7 as no limit

  // A value that is no number, or out of range, is refused by name.
  static Status Read(VerbsSettings* settings);
};

// The variables of NCCL's about RDMA that are set in `environment`, ended by nullptr, and change nothing here.
std::vector<std::string> IgnoredVariables(const char* const* environment, bool gpu_memory = false);

struct RcPort {
  std::string device;  // such as mlx5_0
  int port = 1;
  int gid_index = 0;
  GidBytes gid{};
  bool infiniband = false;  // its link layer; else Ethernet
};

inline constexpr char kSysfs[] = "/sys/class";

// Whether this host has RDMA devices. `sysfs` is kSysfs but in tests.
bool HasRdma(const std::string& sysfs);

// An error says what is missing, and what to do about it.
Status FindPort(const std::string& sysfs, const Nic& nic, const VerbsSettings& settings, RcPort* port);

// Whether that GID is still where it was found.
bool StillThere(const std::string& sysfs, const RcPort& port);

// Whether NCCL_IB_HCA's value lets a port be used.
bool Selects(const std::string& filter, const std::string& device, int port);

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_PORTS_H_
