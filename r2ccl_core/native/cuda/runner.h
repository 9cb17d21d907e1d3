// Runner: issues one rank's rounds on its own communicators and streams, round after round.
//
// Every rank issues its groups in the order of (round, pipe). So whatever a group does on the host (NCCL connects to a
// new peer there) waits only for groups that cannot be blocked.
//
// If hosts have several GPUs, the vector is first reduced and scattered inside each host; each GPU runs the rounds with
// its part, together with the GPUs in the same place on other hosts; and the parts are gathered inside the host.
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

// Where a rank is: its host, its place among the ranks of that, and how many there are of both.
struct Seat {
  int host = 0;
  int place = 0;
  int hosts = 0;
  int gpus = 0;
};

// Used by one thread at a time, but for Abort. What it issued must be done when it is destroyed; it owns its
// communicators.
class Runner {
 public:
  Runner(const Nccl& nccl, Device& device, Gate& gate, size_t pipes)
      : nccl_(nccl), device_(device), gate_(gate), pipes_(pipes) {}
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Splits a communicator for each pipe from `parent` and connects all pairs of hosts on each, and one of the ranks of
  // each host: all ranks must call it. Nothing may be under way on `parent`. An NCCL result.
  int Open(Comm parent, const Seat& seat);
  // An AllReduce of `count` elements on `stream`, as ncclAllReduce does it on `parent`. `count` is at least the entry's
  // chunks for each GPU of a host.
  int Run(const Entry& entry, const void* input, void* output, size_t count, Type type, Op op, Comm parent,
          Stream stream);
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
  int OpenInner(Comm parent);
  int RunRounds(const Job& job, Stream stream);
  int RunHosts(const Job& whole, Comm parent, Stream stream);
  bool Reserve(const Job& job);
  int IssueGroup(const Job& job, const Operation* begin, const Operation* end);
  bool ReduceGroup(const Job& job, const Operation* begin, const Operation* end);
  static size_t Offset(const Job& job, int32_t chunk);
  static size_t Bytes(const Job& job, const Operation& op);
  static size_t BounceBytes(const Job& job, const Operation* begin, const Operation* end);

  const Nccl& nccl_;
  Device& device_;
  Gate& gate_;
  Seat seat_;
  std::vector<Pipe> pipes_;
  std::atomic<Comm> inner_ = nullptr;  // of the ranks of this host; none where it has one
  Event begin_ = nullptr;
  std::vector<void*> outgrown_;  // bounce buffers that an earlier run may still use
};

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_RUNNER_H_
