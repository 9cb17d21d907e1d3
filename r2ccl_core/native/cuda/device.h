// Device: what a run needs from a GPU besides NCCL, so that the issue order can be tested without a GPU.
#ifndef R2CCL_CUDA_DEVICE_H_
#define R2CCL_CUDA_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/nccl.h"

namespace r2ccl::cuda {

// out = own (op) in, element by element; without `in`, out = own. Out may be own.
struct Reduction {
  void* out;
  const void* own;
  const void* in;
  size_t count;
};

// How two ranks of one host reach each other.
enum class Joint : uint32_t {
  kJoined,   // by NVLink, or on one GPU side by side
  kApart,    // otherwise, or nobody can tell
  kByTurns,  // on one GPU, one after the other: without the Multi-Process Service
};

struct EventHandle;
using Event = EventHandle*;  // cudaEvent_t

// Everything returns whether it succeeded, and may be called while a graph is captured.
class Device {
 public:
  virtual ~Device() = default;
  virtual bool Allocate(size_t bytes, void** memory) = 0;
  virtual void Free(void* memory) = 0;
  virtual bool AllocateHost(size_t bytes, void** memory) = 0;  // page-locked
  virtual void FreeHost(void* memory) = 0;
  virtual bool MakeStream(Stream* stream) = 0;
  virtual void DropStream(Stream stream) = 0;
  virtual bool MakeEvent(Event* event) = 0;
  virtual void DropEvent(Event event) = 0;
  virtual bool Record(Event event, Stream stream) = 0;
  virtual bool WaitFor(Stream stream, Event event) = 0;
  virtual bool Wait(Event event) = 0;  // on the host
  virtual bool Wait(Stream stream) = 0;
  // Work that has nothing to do with the graph that this thread may be capturing: CUDA would refuse some of its calls.
  virtual int Uncaptured(const std::function<int()>& work) = 0;
  // The number of the graph that the stream is captured into, 0 for none; nothing where that cannot be told.
  virtual std::optional<uint64_t> GraphOf(Stream stream) = 0;
  virtual bool Copy(void* to, const void* from, size_t bytes, Stream stream) = 0;  // host or device memory
  // Keeps `what` for as long as the graph that the stream is captured into may be launched. It is let go on a thread
  // where CUDA must not be called.
  virtual bool KeepForGraph(Stream stream, std::shared_ptr<const void> what) = 0;
  // Makes `device` the calling thread's; returns the one before, negative where that failed.
  virtual int Use(int device) = 0;
  virtual uint64_t Identity() = 0;  // the same for two processes on one GPU
  virtual Joint JointWith(uint64_t identity) = 0;
  // out = in / ranks, of a floating type; out may be in.
  virtual bool Divide(void* out, const void* in, size_t count, int ranks, Type type, Stream stream) = 0;
  // Of ranges that do not overlap, at once.
  virtual bool Reduce(const std::vector<Reduction>& reductions, Type type, Op op, Stream stream) = 0;
};

// The current CUDA device.
Device& CudaDevice();

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_DEVICE_H_
