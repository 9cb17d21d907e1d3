// CUDA's runtime and the reduction kernel behind Device.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "cuda/device.h"

namespace r2ccl::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocks = 32;  // per reduction: far more than a network brings in
constexpr int kDivideBlocks = 256;
constexpr int kItems = 64;  // reductions per launch; they travel as its parameters

struct Batch {
  Reduction items[kItems];
};

// What a type is computed in.
template <typename T>
struct Wide {
  using type = T;
};
template <>
struct Wide<__half> {
  using type = float;
};
template <>
struct Wide<__nv_bfloat16> {
  using type = float;
};

template <Op kOp, typename W>
__device__ W Combine(W a, W b) {
  if constexpr (kOp == Op::kSum) return a + b;
  if constexpr (kOp == Op::kProduct) return a * b;
  if constexpr (std::is_floating_point_v<W>) return kOp == Op::kMax ? fmax(a, b) : fmin(a, b);  // no NaN, as NCCL
  if constexpr (kOp == Op::kMax) return a > b ? a : b;
  return a < b ? a : b;
}

template <typename T, Op kOp>
__global__ void ReduceKernel(Batch batch) {
  using W = typename Wide<T>::type;
  const Reduction& item = batch.items[blockIdx.y];
  T* out = static_cast<T*>(item.out);
  const T* own = static_cast<const T*>(item.own);
  const T* in = static_cast<const T*>(item.in);
  size_t stride = size_t{gridDim.x} * blockDim.x;
  size_t first = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (in == nullptr) {
    for (size_t i = first; i < item.count; i += stride) out[i] = own[i];
    return;
  }
#pragma unroll 4
  for (size_t i = first; i < item.count; i += stride) {
    out[i] = static_cast<T>(Combine<kOp, W>(static_cast<W>(own[i]), static_cast<W>(in[i])));
  }
}

template <typename T>
void Launch(const Batch& batch, dim3 grid, Op op, cudaStream_t stream) {
  switch (op) {
    case Op::kSum:
      return ReduceKernel<T, Op::kSum><<<grid, kThreads, 0, stream>>>(batch);
    case Op::kProduct:
      return ReduceKernel<T, Op::kProduct><<<grid, kThreads, 0, stream>>>(batch);
    case Op::kMax:
      return ReduceKernel<T, Op::kMax><<<grid, kThreads, 0, stream>>>(batch);
    case Op::kMin:
      return ReduceKernel<T, Op::kMin><<<grid, kThreads, 0, stream>>>(batch);
  }
}

template <typename T>
__global__ void DivideKernel(T* out, const T* in, size_t count, double factor) {
  using W = typename Wide<T>::type;
  size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    out[i] = static_cast<T>(static_cast<W>(in[i]) * static_cast<W>(factor));
  }
}

template <typename T>
void LaunchDivide(void* out, const void* in, size_t count, int ranks, cudaStream_t stream) {
  DivideKernel<T>
      <<<kDivideBlocks, kThreads, 0, stream>>>(static_cast<T*>(out), static_cast<const T*>(in), count, 1.0 / ranks);
}

// What NVIDIA's management library says of two GPUs, also of those that this process does not see as a CUDA device.
// Our own declarations of what it exports.
class Nvml {
 public:
  Nvml() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (library_ == nullptr) return;
    auto init = reinterpret_cast<int (*)()>(dlsym(library_, "nvmlInit_v2"));
    find_ = reinterpret_cast<Find>(dlsym(library_, "nvmlDeviceGetHandleByPciBusId_v2"));
    status_ = reinterpret_cast<Status>(dlsym(library_, "nvmlDeviceGetP2PStatus"));
    if (init == nullptr || find_ == nullptr || status_ == nullptr || init() != 0) library_ = nullptr;
  }

  bool JoinedByNvlink(uint64_t one, uint64_t other) const {
    constexpr int kNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
    void* devices[2] = {};
    int status = -1;
    return library_ != nullptr && find_(Name(one).c_str(), &devices[0]) == 0 &&
           find_(Name(other).c_str(), &devices[1]) == 0 && status_(devices[0], devices[1], kNvlink, &status) == 0 &&
           status == 0;
  }

 private:
  using Find = int (*)(const char*, void**);
  using Status = int (*)(void*, void*, int, int*);

  static std::string Name(uint64_t identity) {
    char name[32];
    std::snprintf(name, sizeof(name), "%08x:%02x:%02x.0", static_cast<unsigned>(identity >> 32),
                  static_cast<unsigned>(identity >> 16) & 0xFF, static_cast<unsigned>(identity) & 0xFF);
    return name;
  }

  void* library_ = nullptr;
  Find find_ = nullptr;
  Status status_ = nullptr;
};

void LaunchTyped(const Batch& batch, dim3 grid, Type type, Op op, cudaStream_t stream) {
  switch (type) {
    case Type::kInt8:
      return Launch<int8_t>(batch, grid, op, stream);
    case Type::kUint8:
      return Launch<uint8_t>(batch, grid, op, stream);
    case Type::kInt32:
      return Launch<int32_t>(batch, grid, op, stream);
    case Type::kUint32:
      return Launch<uint32_t>(batch, grid, op, stream);
    case Type::kInt64:
      return Launch<int64_t>(batch, grid, op, stream);
    case Type::kUint64:
      return Launch<uint64_t>(batch, grid, op, stream);
    case Type::kFloat16:
      return Launch<__half>(batch, grid, op, stream);
    case Type::kFloat32:
      return Launch<float>(batch, grid, op, stream);
    case Type::kFloat64:
      return Launch<double>(batch, grid, op, stream);
    case Type::kBfloat16:
      return Launch<__nv_bfloat16>(batch, grid, op, stream);
  }
}

// Whether the Multi-Process Service runs kernels of several processes side by side: as CUDA says, or its daemon's pipe.
bool IsShared() {
  int device = 0;
  int shared = 0;
  bool known = cudaGetDevice(&device) == cudaSuccess &&
               cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, device) == cudaSuccess;
  if (known && shared != 0) return true;
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::string control = std::string(folder == nullptr ? "/tmp/nvidia-mps" : folder) + "/control";
  return access(control.c_str(), F_OK) == 0;
}

// While it lives, calls of this thread that CUDA refuses during a capture (it cannot know that they have nothing to do
// with the graph) are done at once.
class CaptureAside {
 public:
  CaptureAside() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~CaptureAside() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  CaptureAside(const CaptureAside&) = delete;
  CaptureAside& operator=(const CaptureAside&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class RealDevice final : public Device {
 public:
  bool Allocate(size_t bytes, void** memory) override {
    CaptureAside aside;
    return cudaMalloc(memory, bytes) == cudaSuccess;
  }
  void Free(void* memory) override { cudaFree(memory); }
  bool MakeStream(Stream* stream) override {
    CaptureAside aside;
    int least = 0;
    int greatest = 0;  // transfers and small reductions come before the program's own kernels
    if (cudaDeviceGetStreamPriorityRange(&least, &greatest) != cudaSuccess) return false;
    auto* made = reinterpret_cast<cudaStream_t*>(stream);
    return cudaStreamCreateWithPriority(made, cudaStreamNonBlocking, greatest) == cudaSuccess;
  }
  void DropStream(Stream stream) override { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }
  bool MakeEvent(Event* event) override {
    return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDisableTiming) == cudaSuccess;
  }
  void DropEvent(Event event) override { cudaEventDestroy(reinterpret_cast<cudaEvent_t>(event)); }
  bool Record(Event event, Stream stream) override {
    return cudaEventRecord(reinterpret_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)) == cudaSuccess;
  }
  bool WaitFor(Stream stream, Event event) override {
    return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), reinterpret_cast<cudaEvent_t>(event), 0) ==
           cudaSuccess;
  }
  bool AllocateHost(size_t bytes, void** memory) override { return cudaMallocHost(memory, bytes) == cudaSuccess; }
  void FreeHost(void* memory) override { cudaFreeHost(memory); }
  bool Wait(Event event) override {
    CaptureAside aside;
    return cudaEventSynchronize(reinterpret_cast<cudaEvent_t>(event)) == cudaSuccess;
  }
  bool Wait(Stream stream) override { return cudaStreamSynchronize(static_cast<cudaStream_t>(stream)) == cudaSuccess; }
  int Uncaptured(const std::function<int()>& work) override {
    CaptureAside aside;
    return work();
  }
  std::optional<uint64_t> GraphOf(Stream stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long number = 0;  // NOLINT(google-runtime-int): CUDA's
    // The legacy stream cannot be asked while another one captures.
    if (cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream), &status, &number) != cudaSuccess) {
      cudaGetLastError();
      return std::nullopt;
    }
    return status == cudaStreamCaptureStatusNone ? 0 : number;
  }
  bool KeepForGraph(Stream stream, std::shared_ptr<const void> what) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
    if (cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream), &status, nullptr, &graph) != cudaSuccess) {
      return false;
    }
    using Held = std::shared_ptr<const void>;
    auto let_go = [](void* held) { delete static_cast<Held*>(held); };
    auto held = std::make_unique<Held>(std::move(what));
    cudaUserObject_t object = nullptr;
    if (cudaUserObjectCreate(&object, held.get(), let_go, 1, cudaUserObjectNoDestructorSync) != cudaSuccess) {
      return false;
    }
    held.release();  // the object's from now on
    if (cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove) == cudaSuccess) return true;
    cudaUserObjectRelease(object, 1);
    return false;
  }
  int Use(int device) override {
    int before = 0;
    bool used = cudaGetDevice(&before) == cudaSuccess && (before == device || cudaSetDevice(device) == cudaSuccess);
    return used ? before : -1;
  }
  bool Copy(void* to, const void* from, size_t bytes, Stream stream) override {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)) == cudaSuccess;
  }
  // Domain, bus and device on PCI.
  uint64_t Identity() override {
    int device = 0;
    int domain = 0;
    int bus = 0;
    int number = 0;
    bool known = cudaGetDevice(&device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&domain, cudaDevAttrPciDomainId, device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&bus, cudaDevAttrPciBusId, device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&number, cudaDevAttrPciDeviceId, device) == cudaSuccess;
    if (!known) return 0;
    return uint64_t{static_cast<uint32_t>(domain)} << 32 | uint64_t{static_cast<uint32_t>(bus)} << 16 |
           static_cast<uint32_t>(number);
  }
  Joint JointWith(uint64_t identity) override {
    uint64_t own = Identity();
    if (identity == own) {
      return IsShared() ? Joint::kJoined : Joint::kByTurns;
    }
    static const Nvml nvml;
    return nvml.JoinedByNvlink(own, identity) ? Joint::kJoined : Joint::kApart;
  }
  bool Divide(void* out, const void* in, size_t count, int ranks, Type type, Stream stream) override {
    auto on = static_cast<cudaStream_t>(stream);
    switch (type) {
      case Type::kFloat16:
        LaunchDivide<__half>(out, in, count, ranks, on);
        break;
      case Type::kFloat32:
        LaunchDivide<float>(out, in, count, ranks, on);
        break;
      case Type::kFloat64:
        LaunchDivide<double>(out, in, count, ranks, on);
        break;
      case Type::kBfloat16:
        LaunchDivide<__nv_bfloat16>(out, in, count, ranks, on);
        break;
      default:
        return false;
    }
    return cudaGetLastError() == cudaSuccess;
  }
  bool Reduce(const std::vector<Reduction>& reductions, Type type, Op op, Stream stream) override {
    for (size_t start = 0; start < reductions.size(); start += kItems) {
      Batch batch = {};
      size_t count = std::min<size_t>(kItems, reductions.size() - start);
      size_t longest = 1;
      for (size_t i = 0; i < count; ++i) {
        batch.items[i] = reductions[start + i];
        longest = std::max(longest, batch.items[i].count);
      }
      size_t blocks = std::min<size_t>(kBlocks, (longest + kThreads - 1) / kThreads);
      dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
      LaunchTyped(batch, grid, type, op, static_cast<cudaStream_t>(stream));
    }
    return cudaGetLastError() == cudaSuccess;
  }
};

}  // namespace

Device& CudaDevice() {
  static RealDevice device;
  return device;
}

}  // namespace r2ccl::cuda
