// The look-up of NCCL's functions.
#include "cuda/nccl.h"

#include <dlfcn.h>

namespace r2ccl::cuda {
namespace {

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr && library != nullptr) found = dlsym(library, name);
  *function = reinterpret_cast<Function>(found);
}

Nccl Load() {
  // Preloaded, we stand before NCCL and the next definition is NCCL's; loaded later, we do not.
  void* library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen("libnccl.so.2", RTLD_LAZY);
  Nccl nccl;
  Find(library, "ncclAllReduce", &nccl.all_reduce);
  Find(library, "ncclAllGather", &nccl.all_gather);
  Find(library, "ncclReduceScatter", &nccl.reduce_scatter);
  Find(library, "ncclSend", &nccl.send);
  Find(library, "ncclRecv", &nccl.recv);
  Find(library, "ncclGroupStart", &nccl.group_start);
  Find(library, "ncclGroupEnd", &nccl.group_end);
  Find(library, "ncclCommCount", &nccl.comm_count);
  Find(library, "ncclCommUserRank", &nccl.comm_rank);
  Find(library, "ncclCommCuDevice", &nccl.comm_device);
  Find(library, "ncclCommSplit", &nccl.comm_split);
  Find(library, "ncclCommDestroy", &nccl.comm_destroy);
  Find(library, "ncclCommAbort", &nccl.comm_abort);
  Find(library, "ncclCommGetAsyncError", &nccl.comm_async_error);
  Find(library, "ncclGroupSimulateEnd", &nccl.group_simulate_end);
  return nccl;
}

}  // namespace

const Nccl& RealNccl() {
  static const Nccl nccl = Load();
  return nccl;
}

}  // namespace r2ccl::cuda
