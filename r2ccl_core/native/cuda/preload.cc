// libr2ccl-preload.so: stands before NCCL's AllReduce in a program that knows nothing of it (LD_PRELOAD). No exception
// leaves what it exports.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "cuda/device.h"
#include "cuda/nccl.h"
#include "cuda/nics.h"
#include "cuda/takeover.h"

namespace {

using r2ccl::Guard;
using r2ccl::cuda::Call;
using r2ccl::cuda::Comm;
using r2ccl::cuda::kNcclSystemError;
using r2ccl::cuda::RealNccl;
using r2ccl::cuda::Stream;
using r2ccl::cuda::Takeover;

thread_local int group_depth = 0;
thread_local std::vector<Call> waiting;  // until the group ends

// Whose NICs this rank has. R2CC_HOSTID where it is set; else what NCCL takes a host to be: NCCL_HOSTID where that is
// set, else the machine and the network namespace.
uint64_t HostHash() {
  std::string name;
  for (const char* variable : {"NCCL_HOSTID", "R2CC_HOSTID"}) {
    if (const char* id = std::getenv(variable); id != nullptr && *id != '\0') name = id;
  }
  if (name.empty()) {
    std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
    char place[64] = {};
    if (readlink("/proc/self/ns/net", place, sizeof(place) - 1) > 0) name += place;
  }
  return std::hash<std::string>{}(name);
}

void Say(const std::string& text, bool mistake) {
  static const bool wanted = [] {
    const char* debug = std::getenv("NCCL_DEBUG");
    return debug != nullptr && (std::strcmp(debug, "INFO") == 0 || std::strcmp(debug, "TRACE") == 0);
  }();
  if (wanted || mistake) std::fprintf(stderr, "r2ccl-preload: %s\n", text.c_str());
}

Takeover& TheTakeover() {
  // Never destroyed: threads may still call while the process ends.
  static Takeover* const takeover = new Takeover(RealNccl(), r2ccl::cuda::CudaDevice(), r2ccl::cuda::ReadSettings(),
                                                 HostHash(), r2ccl::cuda::OwnNics, Say);
  return *takeover;
}

}  // namespace

#define R2CCL_EXPORT extern "C" __attribute__((visibility("default")))

R2CCL_EXPORT int ncclAllReduce(const void* input, void* output, size_t count, int type, int op, Comm comm,
                               Stream stream) {
  return Guard(kNcclSystemError, [&] {
    if (RealNccl().all_reduce == nullptr) return kNcclSystemError;
    Call call = {input, output, count, type, op, comm, stream};
    if (group_depth > 0 && TheTakeover().Waits(call)) {
      waiting.push_back(call);
      return r2ccl::cuda::kNcclSuccess;
    }
    return group_depth > 0 ? RealNccl().all_reduce(input, output, count, type, op, comm, stream)
                           : TheTakeover().AllReduce(call);
  });
}

R2CCL_EXPORT int ncclGroupStart() {
  if (RealNccl().group_start == nullptr) return kNcclSystemError;
  int result = RealNccl().group_start();
  if (result == r2ccl::cuda::kNcclSuccess) ++group_depth;
  return result;
}

R2CCL_EXPORT int ncclGroupEnd() {
  if (RealNccl().group_end == nullptr) return kNcclSystemError;
  if (group_depth > 0) --group_depth;
  int result = RealNccl().group_end();
  if (group_depth > 0 || waiting.empty()) return result;
  return Guard(kNcclSystemError, [&] {
    std::vector<Call> calls = std::exchange(waiting, {});
    return result == r2ccl::cuda::kNcclSuccess ? TheTakeover().RunGroup(calls) : result;
  });
}

// Ends a group that is only estimated; nothing of it runs.
R2CCL_EXPORT int ncclGroupSimulateEnd(void* estimate) {
  if (RealNccl().group_simulate_end == nullptr) return kNcclSystemError;
  if (group_depth > 0) --group_depth;
  if (group_depth == 0) waiting.clear();
  return RealNccl().group_simulate_end(estimate);
}

// Whatever becomes of what is ours, NCCL ends the communicator.
R2CCL_EXPORT int ncclCommDestroy(Comm comm) {
  if (RealNccl().comm_destroy == nullptr) return kNcclSystemError;
  Guard(0, [&] {
    TheTakeover().Forget(comm);
    return 0;
  });
  return RealNccl().comm_destroy(comm);
}

R2CCL_EXPORT int ncclCommAbort(Comm comm) {
  if (RealNccl().comm_abort == nullptr) return kNcclSystemError;
  auto until_aborted = Guard(std::shared_ptr<void>(), [&] { return TheTakeover().Abort(comm); });
  return RealNccl().comm_abort(comm);
}

// What ran last on the communicator: "nccl" or the name of an algorithm.
R2CCL_EXPORT const char* r2cclChoice(Comm comm) {
  return Guard("nccl", [&] { return TheTakeover().Choice(comm); });
}

// Says how many NICs this process has and has left, instead of the plugin; negative: the plugin says so again.
R2CCL_EXPORT void r2cclSetNicsLeft(int total, int left) {
  Guard(0, [&] {
    r2ccl::cuda::SetNics({total, left});
    return 0;
  });
}
