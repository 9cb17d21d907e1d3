// StepMachine: one rank's program of a schedule on host memory, over the fault-tolerant transport. No thread, no clock:
// the time is an argument, and whoever drives it (executor.h, or the simulator) decides when it looks again.
//
// Lanes advance side by side in each look; the connections move the bytes meanwhile, so a reduction overlaps the
// transfers of the steps around it. Receives are posted ahead of their turn: a receive that
// replaces goes straight to its place in the result once nothing earlier still needs that place, one that
// reduces goes to a bounce buffer.
//
// A rank that gets no further posts the next kSlots receives of every connection, to bounce buffers where their places
// are not free. So a schedule that `verify` has proved with so many slots a connection cannot deadlock: what its proof
// calls a message in a slot is acknowledged here without the receiver getting any further, and nothing but
// acknowledgements is waited for.
//
// Streams do not share a NIC fairly, above all fresh ones. Lanes that the schedule has advance abreast wait for each
// other here: one that is far ahead of the last one takes no step. A rank that gets no further lets go
// of that, so the proof stands.
#ifndef R2CCL_COLLECTIVE_STEP_MACHINE_H_
#define R2CCL_COLLECTIVE_STEP_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/memory_registry.h"
#include "base/status.h"
#include "collective/operation.h"
#include "failover/recv_comm.h"
#include "failover/send_comm.h"

namespace r2ccl {

struct Step {
  int64_t recv = -1;  // index of a RecvComm, or -1
  int64_t send = -1;  // index of a SendComm, or -1
  int64_t begin = 0;  // element range
  int64_t end = 0;
  int64_t flags = 0;
  int64_t barrier = -1;  // last earlier step of the lane that touches an overlapping range, or -1

  static constexpr int64_t kReduce = 1;         // combine what comes in with the rank's own value
  static constexpr int64_t kOwnIsInput = 2;     // the own value is still in the input
  static constexpr int64_t kSendFromInput = 4;  // what is sent is still in the input
};

// Not thread-safe. After an error all its connections are closed (the caller's buffers are the caller's again)
// and it refuses to run.
class StepMachine {
 public:
  // What a look at all lanes came to.
  struct Look {
    bool finished = false;  // every step is done and every send is acknowledged: the buffers are the caller's again
    bool progress = false;  // it is worth to look again at once
    int64_t wait_ns = 0;    // else when something may have happened, and after so long in any case
  };

  // `abreast` has the number of each lane's group, or is empty: every lane by itself. `destinations` has the rank at
  // the other end of each sender, `sources` that of each receiver. `registry` is told of bounce buffers, unless it is
  // nullptr. `shares` has those of each sender (see SendComm::Isend), or is empty.
  StepMachine(std::vector<std::vector<Step>> lanes, const std::vector<int64_t>& abreast,
              std::vector<std::shared_ptr<SendComm>> senders, std::vector<std::shared_ptr<RecvComm>> receivers,
              std::vector<int64_t> destinations, std::vector<int64_t> sources,
              std::shared_ptr<MemoryRegistry> registry = nullptr, std::vector<NicShares> shares = {});

  // Refuses steps that name connections or ranges that do not exist, and a connection used by two lanes.
  Status Validate(int64_t elements) const;

  // Begins to compute `output` from `input` (as many elements each as `operation` has; the same pointer for in place).
  Status Begin(const void* input, void* output, const Operation& operation);
  // Goes on. A peer that runs another operation is an error. REQUIRES: Begin, and neither an end nor an error since.
  Status Advance(int64_t now_ns, Look* look);
  // What was begun is not to be finished: the same as after an error.
  void Break();

 private:
  static constexpr int64_t kAlone = -1;  // of no group

  struct Outstanding {
    size_t step;
    int64_t connection;
    Request* request;
  };
  // Memory that is registered as long as it exists.
  class Bounce {
   public:
    Bounce(std::shared_ptr<MemoryRegistry> registry, size_t bytes)
        : registry_(std::move(registry)), bytes_(bytes), data_(std::make_unique_for_overwrite<char[]>(bytes)) {
      if (registry_ != nullptr) registry_->AddMemory(data_.get(), bytes_);
    }
    Bounce(Bounce&&) = default;
    ~Bounce() {
      if (registry_ != nullptr) registry_->DropMemory(data_.get(), bytes_);
    }
    char* get() const { return data_.get(); }

   private:
    std::shared_ptr<MemoryRegistry> registry_;  // nullptr also after a move
    size_t bytes_;
    std::unique_ptr<char[]> data_;
  };
  struct Posted {
    Request* request;
    char* bounce;  // where it goes first; nullptr: straight to its place
  };
  // What one connection brings to a lane.
  struct Inlet {
    std::vector<size_t> steps;  // that receive from it
    size_t posted = 0;          // of them
    std::deque<Posted> waiting;
  };
  struct Lane {
    Lane() = default;
    Lane(Lane&&) = default;  // a vector of lanes moves them
    std::vector<Step> steps;
    std::map<int64_t, Inlet> inlets;  // by connection
    int64_t largest = 0;              // elements of a receive
    size_t bounce_bytes = 0;
    std::vector<Bounce> bounces;
    std::vector<char*> free_bounces;
    size_t done = 0;  // steps that ran
    std::deque<Outstanding> sends;
    int64_t group = kAlone;

    double Done() const { return steps.empty() ? 1 : static_cast<double>(done) / static_cast<double>(steps.size()); }
  };

  void Reset(Lane& lane, size_t element_bytes);
  Status AdvanceLanes(Look* look);
  void LookForLast();
  bool MustWait(const Lane& lane);
  int64_t PatienceNs(int64_t busy_ns) const;
  Status PostReceives(Lane& lane, bool stuck, bool* progress);
  Status PostNext(Lane& lane, int64_t connection, Inlet& inlet, bool stuck, bool* posted);
  Status RunSteps(Lane& lane, bool* progress);
  Status ReapSends(Lane& lane, bool* progress);
  bool PlaceIsFree(const Lane& lane, const Step& step) const;
  Status CheckMessage(int64_t connection, uint64_t size, uint64_t expected, uint32_t tag) const;
  void Apply(const Step& step, const char* bounce);
  char* TakeBounce(Lane& lane) const;

  static constexpr size_t kSlots = 4;    // r2ccl_core.model.schedule.SLOTS
  static constexpr size_t kAhead = 16;   // steps whose receives are posted ahead in any case
  static constexpr size_t kBounces = 8;  // bounce buffers that a lane uses for those that reduce

  std::vector<Lane> lanes_;
  std::vector<std::shared_ptr<SendComm>> senders_;
  std::vector<std::shared_ptr<RecvComm>> receivers_;
  const std::vector<int64_t> destinations_;
  const std::vector<int64_t> sources_;
  const std::shared_ptr<MemoryRegistry> registry_;
  const std::vector<NicShares> shares_;
  bool broken_ = false;
  bool held_back_ = false;          // something that a rank which waits longer would do
  bool abreast_ = false;            // lanes that are ahead wait
  std::map<int64_t, double> last_;  // by group: the part of its steps that the last lane has done

  // The run in progress.
  const char* input_ = nullptr;
  char* output_ = nullptr;
  Operation operation_;
  uint32_t tag_ = 0;
  int64_t element_bytes_ = 0;
  bool stuck_ = false;
  bool progressed_ = true;   // with the last look
  int64_t start_ns_ = 0;     // 0 before the first one
  int64_t progress_ns_ = 0;  // the end of the last one that came to something
};

}  // namespace r2ccl

#endif  // R2CCL_COLLECTIVE_STEP_MACHINE_H_
