// Params: every environment variable of the core, with its default, limits and meaning.
#ifndef R2CCL_BASE_PARAMS_H_
#define R2CCL_BASE_PARAMS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace r2ccl {

// field, environment variable, default, smallest, largest, meaning
#define R2CCL_PARAMS(X)                                                                                                \
  X(mode, "R2CC_MODE", 2, 0, 2,                                                                                        \
    "0 fail-stop as NCCL is, 1 hot repair: one back-up NIC takes over, 2 Balance over all NICs")                       \
  X(chunk_bytes, "R2CC_CHUNK_BYTES", 131072, 4096, 67108864,                                                           \
    "largest piece of a message that travels on one NIC; on a NIC with a high drain rate up to R2CC_WINDOW_BYTES "     \
    "/ 8")                                                                                                             \
  X(min_chunk_bytes, "R2CC_MIN_CHUNK_BYTES", 16384, 1024, 67108864,                                                    \
    "messages are not cut into smaller pieces than this")                                                              \
  X(window_bytes, "R2CC_WINDOW_BYTES", 4194304, 65536, 1073741824, "most unacknowledged bytes on one NIC")             \
  X(eager_bytes, "R2CC_EAGER_BYTES", 1048576, 0, 16777216,                                                             \
    "messages up to this size do not wait for a posted receive (eager sends): eight of the largest, or more "          \
    "smaller ones; above R2CC_CHUNK_BYTES only on a fast NIC, see R2CC_FAST_MBIT_S, or of a transfer that writes")     \
  X(eager_messages, "R2CC_EAGER_MESSAGES", 64, 0, 4096, "most eager messages ahead of the posted receives")            \
  X(buffered_bytes, "R2CC_BUFFERED_BYTES", 16384, 0, 1048576,                                                          \
    "eager messages up to this size are copied, so that their sends are done at once; under NCCL over TCP up to "      \
    "32 KiB of a connection that is used alone, unless 0")                                                             \
  X(inline_bytes, "R2CC_INLINE_BYTES", 0, 0, 1073741824,                                                               \
    "most bytes in flight that the program's own thread moves for a connection; an I/O thread moves more, except, "    \
    "under NCCL, messages of up to 32 KiB of a connection that is used alone; 0: 12 KiB, or 256 KiB for transfers "    \
    "and with fewer than eight processors, where programs that poll keep I/O threads waiting")                         \
  X(transfer_spin_us, "R2CC_TRANSFER_SPIN_US", 0, 0, 1000000,                                                          \
    "how long the I/O threads at both ends of transfers that follow each other as closely look for the next before "   \
    "they sleep; 0: 200, or 1 with fewer than four processors, where they would take the program's")                   \
  X(stall_ms, "R2CC_FAILOVER_TIMEOUT_MS", 0, 0, 600000,                                                                \
    "silence after which a NIC with data in flight is given up; 0 adapts to the round trip (mode 0: 2 s or more)")     \
  X(stall_min_ms, "R2CC_STALL_MIN_MS", 80, 5, 600000, "lower limit of the adaptive stall timer")                       \
  X(give_up_ms, "R2CC_FAILOVER_GIVE_UP_MS", 10000, 1, 86400000,                                                        \
    "how long a connection may have no path at all before it fails; also how long the host of a CPU-runtime rank "     \
    "may be unreachable over every NIC, management included, before the group ends (4000 or more)")                    \
  X(probe_ms, "R2CC_PROBE_MS", 50, 1, 600000,                                                                          \
    "first pause before a lost NIC is probed; doubles up to R2CC_PROBE_MAX_MS")                                        \
  X(probe_max_ms, "R2CC_PROBE_MAX_MS", 200, 1, 600000, "longest pause between probes of a lost NIC")                   \
  X(connect_ms, "R2CC_CONNECT_TIMEOUT_MS", 1000, 1, 600000, "longest wait for one NIC's connection to be made")        \
  X(locate_ms, "R2CC_LOCATE_MS", 300, 0, 60000,                                                                        \
    "how long the probes that locate a fault wait for an answer; 0: no probes")                                        \
  X(flap_half_life_ms, "R2CC_FLAP_HALF_LIFE_MS", 4000, 0, 86400000,                                                    \
    "time in which the penalty for losses of a NIC's path halves; 0: no path is ever held back")                       \
  X(flap_suppress, "R2CC_FLAP_SUPPRESS", 2000, 1000, 1000000,                                                          \
    "penalty (1000 for each loss) at which a returning path is held back")                                             \
  X(flap_reuse, "R2CC_FLAP_REUSE", 750, 1, 1000000, "penalty below which a path that is held back carries data again") \
  X(flap_max_ms, "R2CC_FLAP_MAX_MS", 60000, 0, 86400000, "longest time for which a path is held back")                 \
  X(io_threads, "R2CC_IO_THREADS", 0, 0, 64,                                                                           \
    "threads that move bytes; each connection belongs to one of them; 0: one for every two processors of a rank, "     \
    "at most 16")                                                                                                      \
  X(stripes, "R2CC_STRIPES", 0, 0, 16,                                                                                 \
    "connections of ours, each with its own thread, that together carry one NCCL connection: on a fast NIC its "       \
    "messages take turns once it sends large ones; the receiving host's value counts; 0: 2, or 1 with fewer than "     \
    "eight processors")                                                                                                \
  X(fast_mbit_s, "R2CC_FAST_MBIT_S", 12000, 0, 10000000,                                                               \
    "drain rate over some 10 ms from which a NIC counts as fast; 0: all are; fast NICs use stripes "                   \
    "(R2CC_STRIPES), larger eager messages (R2CC_EAGER_BYTES) and larger pieces (R2CC_CHUNK_BYTES)")                   \
  X(checksum, "R2CC_CHECKSUM", 0, 0, 1,                                                                                \
    "1: every piece of a message carries its CRC32C, which is checked before the piece counts; a corrupted piece "     \
    "is sent again")                                                                                                   \
  X(zero_copy_bytes, "R2CC_ZERO_COPY_BYTES", 65536, 0, 67108864,                                                       \
    "over RDMA, pieces of messages of this size or larger go straight from one program's memory into the other's, "    \
    "if both programs registered it, at the price of a round trip each; 0, at either end: none; not tried on "         \
    "hardware yet")                                                                                                    \
  X(gdr, "R2CC_GDR", 0, 0, 1,                                                                                          \
    "1: the net plugin takes NCCL's GPU memory directly (GPUDirect RDMA) where RDMA may be used and GDRCopy is "       \
    "installed; R2CC_ZERO_COPY_BYTES is 16384 at most then, and not 0; not tried on hardware")                         \
  X(status_ms, "R2CC_STATUS_MS", 1000, 50, 3600000,                                                                    \
    "pause between two versions of the status file while nothing happens to a NIC")

// field, environment variable, default, meaning
#define R2CCL_TEXT_PARAMS(X)                                                                                        \
  X(transport, "R2CC_TRANSPORT", "tcp",                                                                             \
    "what carries the bytes of a NIC: `tcp`; `auto`: RDMA (verbs) if both ends have an active port with the NIC's " \
    "address, TCP otherwise or when RDMA fails; `verbs`: nothing but RDMA; RDMA was not tried on hardware yet")     \
  X(status_dir, "R2CC_STATUS_DIR", "", "folder in which the process keeps a file about its NICs; unset: no file")

// environment variable, who reads it, meaning: variables that the transport does not read
#define R2CCL_OTHER_PARAMS(X)                                                                                        \
  X("R2CC_SOCKET_IFNAME", "both",                                                                                    \
    "NICs to use, in the form of `NCCL_SOCKET_IFNAME`, which it overrides: a comma-separated list of prefixes; "     \
    "`=` in front asks for exact names, `^` excludes; by default every NIC with an IPv4 address except loopback "    \
    "and the bridges of containers and virtual machines, and, if others remain, except the NIC of the default "      \
    "route and every NIC whose alias begins with the word `management` (`ip link set eno1 alias management`); "      \
    "the CPU runtime also accepts a list of name@address")                                                           \
  X("R2CCL_CORE_LIB", "`plugin_path()`",                                                                             \
    "the directory that holds `libnccl-net-r2ccl.so`, instead of the installed one")                                 \
  X("R2CC_RANK", "`r2ccl-perf`, `from_env()`",                                                                       \
    "this process's rank; with `-g N` a process has N ranks, and this counts processes")                             \
  X("R2CC_SIZE", "`r2ccl-perf`, `from_env()`", "number of ranks, or with `-g N` of processes")                       \
  X("R2CC_ROOT", "the CPU runtime", "host:port where rank 0 listens for the others")                                 \
  X("R2CC_SECRET", "the CPU runtime",                                                                                \
    "keeps strangers out of the rendezvous at `R2CC_ROOT`, and out of the streams that are made again later")        \
  X("R2CC_ALGO", "the CPU runtime",                                                                                  \
    "the schedule: `ring` (default), `auto` (the planner's choice), or another from the table below")                \
  X("R2CC_AR_MIN_BYTES", "both",                                                                                     \
    "smaller vectors stay with the ring: the CPU runtime's (16 MiB), or NCCL's with the preloaded library (4 MiB; "  \
    "there it must be a number of bytes)")                                                                           \
  X("R2CC_TREE_BYTES", "the CPU runtime",                                                                            \
    "vectors up to this size take a tree, which has fewer messages in a row, where others take the ring (8 KiB; 0: " \
    "none do)")                                                                                                      \
  X("R2CC_OPERATIONS", "the CPU runtime",                                                                            \
    "about how many AllReduces are still to come, the same on every rank; with `R2CC_ALGO=auto` a schedule that is " \
    "slightly better than the ring is used if that repays the switch")                                               \
  X("R2CC_AR_STAGE2_CHUNKS", "the CPU runtime", "pipeline depth of R2CC-AllReduce, 1 to 16 (4)")                     \
  X("R2CC_SLICE_BYTES", "the CPU runtime", "size of the slices in pipelined schedules (256 KiB)")                    \
  X("R2CC_SCHEDULES", "the preloaded library",                                                                       \
    "the file that `python -m r2ccl_core.gpu` wrote; without it the library takes over nothing")                     \
  X("R2CC_AGREE_EVERY", "the preloaded library", "AllReduces between two agreements on the NICs that are left (4)")  \
  X("R2CC_HOSTID", "the preloaded library",                                                                          \
    "a name for the host whose NICs a rank shares, if it differs from what NCCL considers a host: `NCCL_HOSTID`, "   \
    "else the machine and its network namespace")

// The values in force. Plain data, set once before the transport starts.
struct Params {
#define R2CCL_FIELD(field, name, value, low, high, meaning) int64_t field = value;
  R2CCL_PARAMS(R2CCL_FIELD)
#undef R2CCL_FIELD
#define R2CCL_FIELD(field, name, value, meaning) std::string field = value;
  R2CCL_TEXT_PARAMS(R2CCL_FIELD)
#undef R2CCL_FIELD
};

// Reads the environment, then applies `overrides` (by variable name). Refuses by name a value that is not a whole
// number or is out of range, and an unknown name in `overrides`.
Status ReadParams(const std::map<std::string, std::string>& overrides, Params* params);

// The names in `environment` (terminated by nullptr) that begin with R2CC_ and that nobody reads.
std::vector<std::string> UnknownVariables(const char* const* environment);

// R2CC_FAST_MBIT_S in bytes per ns.
inline double FastBytesPerNs(const Params& params) { return static_cast<double>(params.fast_mbit_s) / 8e3; }

// `params` with every 0 that means "by the number of processors" replaced by what suits this number.
Params Fitting(Params params, unsigned processors);

// The number of ranks that the launcher put on this host, from the environment of torchrun, mpirun or Slurm; 1 if none
// of them says it.
unsigned RanksOnHost();
// The processors of one of `ranks` ranks. `allowed`: those on which this process may run; if they are not all of the
// machine's, the launcher has distributed them already.
unsigned ProcessorsOfRank(unsigned allowed, unsigned of_machine, unsigned ranks);

}  // namespace r2ccl

#endif  // R2CCL_BASE_PARAMS_H_
