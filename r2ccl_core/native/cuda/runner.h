// Runner: issues one rank's rounds on communicators and streams of its own, round after round.
//
// Every rank issues its groups in the order of (round, pipe), so that also what a group does on the host (NCCL connects
// to a new peer there) waits only for groups that nobody can be stuck before.
#ifndef R2CCL_CUDA_RUNNER_H_
#define R2CCL_CUDA_RUNNER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/device.h"
#include "cuda/gate.h"
#include "cuda/nccl.h"
#include "cuda/table.h"

namespace r2ccl::cuda {

// Used by one thread at a time, but for Abort. What it issued must be done when it is destroyed; it owns its
// communicators.
class Runner {
 public:
  Runner(const Nccl& nccl, Device& device, Gate& gate, int rank, int ranks, size_t pipes)
      : nccl_(nccl), device_(device), gate_(gate), rank_(rank), ranks_(ranks), pipes_(pipes) {}
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Splits a communicator for each pipe from `parent` and connects all pairs of ranks on each: all ranks must call it.
  // Nothing may be under way on `parent`. An NCCL result.
  int Open(Comm parent);
  // An AllReduce of `count` elements on `stream`, as ncclAllReduce does it. `count` is at least the entry's chunks.
  int Run(const Entry& entry, const void* input, void* output, size_t count, Type type, Op op, Stream stream);
  // Aborts the communicators, from any thread, when the gate is shut.
  void Abort();

 private:
  struct Pipe {
    std::atomic<Comm> comm = nullptr;
    Stream stream = nullptr;
    Event done = nullptr;
    char* bounce = nullptr;
    size_t bounce_bytes = 0;
  };
  // Of the run in progress.
  struct Job {
    const Entry* entry;
    const char* input;
    char* output;
    size_t count;
    Type type;
    Op op;
  };

  int Connect(Pipe& pipe);
  bool Reserve(const Job& job);
  int IssueGroup(const Job& job, const Operation* begin, const Operation* end);
  bool ReduceGroup(const Job& job, const Operation* begin, const Operation* end);
  static size_t Offset(const Job& job, int32_t chunk);
  static size_t Bytes(const Job& job, const Operation& op);
  static size_t BounceBytes(const Job& job, const Operation* begin, const Operation* end);

  const Nccl& nccl_;
  Device& device_;
  Gate& gate_;
  const int rank_;
  const int ranks_;
  std::vector<Pipe> pipes_;
  Event begin_ = nullptr;
  std::vector<void*> outgrown_;  // bounce buffers that an earlier run may still use
};

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_RUNNER_H_
