// The NCCL functions that we call, in our own declarations, looked up in the program at run time.
#ifndef R2CCL_CUDA_NCCL_H_
#define R2CCL_CUDA_NCCL_H_

#include <cstddef>

namespace r2ccl::cuda {

using Comm = void*;
using Stream = void*;  // cudaStream_t

// Results that we make ourselves; the others are passed on.
constexpr int kNcclSuccess = 0;
constexpr int kNcclCudaError = 1;
constexpr int kNcclSystemError = 2;
constexpr int kNcclInProgress = 7;  // of a communicator that does not block

// ncclDataType_t
enum class Type : int { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16 };
constexpr int kTypes = 10;
// ncclRedOp_t; what follows (operations of the user's) we leave to NCCL, and averages of integers.
enum class Op : int { kSum, kProduct, kMax, kMin };
constexpr int kOps = 4;
constexpr int kAverage = 4;

constexpr bool IsFloating(Type type) { return type >= Type::kFloat16; }

constexpr size_t TypeBytes(Type type) {
  constexpr size_t kBytes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[static_cast<int>(type)];
}

struct Nccl {
  int (*all_reduce)(const void*, void*, size_t, int, int, Comm, Stream) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int, Comm, Stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int, int, Comm, Stream) = nullptr;
  int (*send)(const void*, size_t, int, int, Comm, Stream) = nullptr;
  int (*recv)(void*, size_t, int, int, Comm, Stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*comm_count)(Comm, int*) = nullptr;
  int (*comm_rank)(Comm, int*) = nullptr;
  int (*comm_device)(Comm, int*) = nullptr;
  int (*comm_split)(Comm, int, int, Comm*, void*) = nullptr;
  int (*comm_destroy)(Comm) = nullptr;
  int (*comm_abort)(Comm) = nullptr;
  int (*comm_async_error)(Comm, int*) = nullptr;
  int (*group_simulate_end)(void*) = nullptr;
};

// The NCCL behind ours: the next definition of each symbol, or that of the libnccl.so.2 that is loaded. Its functions
// are null where there is none (all of them, or those that an old NCCL lacks).
const Nccl& RealNccl();

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_NCCL_H_
