// Runner: issues one rank's rounds on its own communicator and stream, round after round.
//
// A run that is captured into a graph has a stream and memory that belong to the graph: launches of it and other runs
// may be under way at once, and NCCL orders only its own operations among them.
//
// If hosts have several GPUs, the vector is first reduced and scattered inside each host; each GPU runs the rounds with
// its part, together with the GPUs in the same place on other hosts; and the parts are gathered inside the host. This
// is done segment after segment, on two streams: inside the hosts on the program's, the rounds on ours. A round waits
// for the segments that it touches, and a segment is gathered after the last round that touches it.
//
// The ranks of a host have one program, so all issue these calls in the same order, and rounds have one order on all
// hosts. So this ends even where a device begins everything in the order of issue (CUDA_DEVICE_MAX_CONNECTIONS=1).
// There a round waits for what was issued before it, which is why segments are reduced only a little ahead.
#ifndef R2CCL_CUDA_RUNNER_H_
#define R2CCL_CUDA_RUNNER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/buffers.h"
#include "cuda/device.h"
#include "cuda/gate.h"
#include "cuda/layout.h"
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
  Runner(const Nccl& nccl, Device& device, Gate& gate) : nccl_(nccl), device_(device), gate_(gate), buffers_(device) {}
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Splits a communicator from `parent` and connects all pairs of hosts on it, and one of the ranks of each host: all
  // ranks must call it. Nothing may be under way on `parent`. An NCCL result.
  int Open(Comm parent, const Seat& seat);
  // An AllReduce of `count` elements on `stream`, as ncclAllReduce does it on `parent`. `count` is at least the entry's
  // chunks for each GPU of a host. `graph` is the number of the graph that the stream is captured into, or 0.
  int Run(const Entry& entry, const void* input, void* output, size_t count, Type type, Op op, Comm parent,
          Stream stream, uint64_t graph);
  // Aborts the communicators, from any thread, when the gate is shut.
  void Abort();

 private:
  // What runs need one after another: those outside of graphs, or those of one graph.
  struct Workspace {
    Stream stream = nullptr;
    std::vector<Event> begin;                       // of each segment's rounds
    Event done = nullptr;                           // of the last round so far
    std::shared_ptr<const Buffers::Buffer> bounce;  // none before the first run
    uint64_t graph = 0;
  };
  // Of the run in progress.
  struct Job {
    const Entry* entry;
    const Layout* layout;
    const char* input;
    char* output;
    Type type;
    Op op;
    Workspace* in;
  };

  class Group;

  bool Make(Workspace* workspace);
  Workspace* Find(uint64_t graph);
  int Connect();
  int OpenInner(Comm parent);
  int RunSegments(const Job& job, Stream stream);
  int BeginSegment(const Job& job, Stream stream, size_t segment);
  int EndSegments(const Job& job, Stream stream, size_t from, size_t until);
  int ReduceSegment(const Job& job, Stream stream, size_t segment);
  int GatherSegment(const Job& job, Stream stream, size_t segment);
  int RunRound(const Job& job, const Group& group);
  bool Reserve(const Job& job, Stream stream);
  bool Pack(const Job& job, const Group& group);
  int Transfer(const Job& job, const Group& group);
  bool Finish(const Job& job, const Group& group);
  static size_t Bytes(const Job& job, const Operation& op);
  static char* Result(const Job& job, const Operation& op);     // the place of its range in the result
  static const char* Own(const Job& job, const Operation& op);  // the rank's own value of it

  const Nccl& nccl_;
  Device& device_;
  Gate& gate_;
  Seat seat_;
  std::atomic<Comm> outer_ = nullptr;  // of the ranks in this place on every host
  std::atomic<Comm> inner_ = nullptr;  // of the ranks of this host; none where it has one
  Buffers buffers_;
  Workspace ungraphed_;
  std::vector<std::unique_ptr<Workspace>> graphed_;
  std::vector<std::shared_ptr<const Buffers::Buffer>> outgrown_;  // an earlier run may still use them
};

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_RUNNER_H_
