// RcPipe: bytes over one queue pair, in numbered messages that are copied out of one registered ring and into another;
// and writes, which go from the program's memory into the other end's.
//
// A message is sent only when the receiver has a slot for it. Each message says how many slots its sender has given
// back since the queue began; where nothing else is to be said, half a ring of them is told by a message of its own.
// Two slots are kept for such messages, so they never wait for each other.
//
// Of messages nothing that a user sees is ever a target of the network: what comes late lands in the ring, if the queue
// is not fenced, and nowhere if it is. Of writes it is (verbs_write.cc).
#ifndef R2CCL_WIRE_VERBS_RC_PIPE_H_
#define R2CCL_WIRE_VERBS_RC_PIPE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/progress.h"
#include "wire/verbs/rc_queue.h"

namespace r2ccl {

enum class RcKind : uint32_t {
  kTest = 1,  // to be answered by an echo
  kEcho,
  kBytes,  // of frames
  kSlots,  // nothing but the number of slots given back
  // Of writes.
  kAsk,
  kGrant,
  kLanded,
};

// Not thread-safe.
class RcPipe {
 public:
  // Of a message, in front of what it carries.
  struct Header {
    uint64_t number;
    uint64_t returned;  // slots
    uint32_t bytes;     // that follow
    RcKind kind;
  };
  // Behind what it carries: the sum of its header. One that was changed on its way could pass for a message of another
  // kind and be dropped. And a device that tells an old completion again may do so while the slot's next message has
  // only begun to come: the sum at its end is another one's then.
  static constexpr size_t kTailBytes = sizeof(uint32_t);
  static constexpr uint32_t kKeptSlots = 2;

  RcPipe(std::unique_ptr<RcQueue> queue, const RcShape& shape) : queue_(std::move(queue)), shape_(shape) {}

  // Before the other end may connect.
  Status Prepare();
  Status Connect(const RcAddress& peer, int64_t now_ns);
  RcQueue& queue() { return *queue_; }

  // Where the next message's bytes are to be written, and how many it can have; nullptr where it has to wait.
  char* Room(size_t* most, int64_t now_ns);
  // Sends what was written there. It stands for `counted` of the stream's bytes, those of the kind kBytes for all.
  Status Send(RcKind kind, size_t bytes, int64_t now_ns, size_t counted = 0);
  // Sends what Room() gave no place for.
  Status ReturnSlots(int64_t now_ns);
  // Whether this end has waited for a word, or for slots, for so long that a device may have lost a completion: then
  // the ends should compare how many messages one has sent, which the other's device has, and how many the other has
  // received. True once in 250 ms.
  bool WantsCount(int64_t now_ns);
  // Of messages.
  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t received() const { return received_; }

  // How many bytes a write may have now; 0: it has to wait.
  size_t WriteRoom() const { return writes_ - written_ < shape_.writes ? kMostWriteBytes : 0; }
  Status Write(uint64_t from, size_t bytes, uint32_t local_key, uint64_t address, uint32_t remote_key, int64_t now_ns);
  // Whether some have no completion yet: the memory is still read.
  bool is_writing() const { return writes_ != written_; }
  // Whether this end waits for a word of the other end's, as if there were no room.
  void SetWaits(bool waits, int64_t now_ns) {
    waits_ = waits;
    NoteHeld(now_ns);
  }

  // Takes what is done. An error: the queue is lost. Is called with each tick: a process that comes later was stopped
  // or starved, and does not count that as time that answers took.
  Status Reap(int64_t now_ns);
  // The oldest message that has come and was not dropped; nullptr where there is none.
  struct Arrival {
    RcKind kind;
    const char* data;
    size_t bytes;
  };
  const Arrival* front() const { return arrivals_.empty() ? nullptr : &arrivals_.front(); }
  // Its slot is free again.
  Status DropFront();

  bool all_acknowledged() const { return flights_.empty(); }
  // The most that a message carries.
  size_t most_bytes() const { return most_bytes_; }
  // Of the stream, that the other end's device has.
  uint64_t acknowledged_bytes() const { return acknowledged_bytes_; }
  void AddProgress(Progress* progress, int64_t now_ns) const;

 private:
  // The pieces of writes are those of messages, so that the progress of large ones shows as soon.
  static constexpr size_t kMostWriteBytes = 32768;

  struct Flight {
    uint64_t id;
    int64_t sent_ns;
    int64_t absent_ns;  // absent_ns_ at that time
    size_t bytes;       // that count
  };

  Status TakeSent(const RcDone& done, int64_t now_ns);
  Status TakeReceived(const RcDone& done, int64_t now_ns);
  bool lacks_slots() const { return sent_ - peer_returned_ >= peer_slots_ - kKeptSlots; }
  void NoteHeld(int64_t now_ns);
  void NoteLook(int64_t now_ns);

  const std::unique_ptr<RcQueue> queue_;
  const RcShape shape_;
  uint32_t peer_slots_ = 0;
  size_t most_bytes_ = 0;
  uint32_t packet_bytes_ = 0;

  // Messages sent, those that the other end's device has, and slots that the other end has given back.
  uint64_t sent_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t peer_returned_ = 0;
  uint64_t acknowledged_bytes_ = 0;
  // Begun, and done.
  uint64_t writes_ = 0;
  uint64_t written_ = 0;
  std::deque<Flight> flights_;  // of both, in their order
  bool waits_ = false;

  // Messages received, dropped, and what of that was told.
  uint64_t received_ = 0;
  uint64_t dropped_ = 0;
  uint64_t told_ = 0;
  std::deque<Arrival> arrivals_;
  std::vector<RcDone> done_;  // empty; keeps its memory

  int64_t progress_ns_ = 0;
  int64_t counted_ns_ = 0;  // see WantsCount
  int64_t looked_ns_ = 0;   // when this end last sent something, or looked for what is done
  int64_t absent_ns_ = 0;   // for how long, all in all, it came too late
  int64_t rtt_ns_ = 0;
  int64_t rtt_variance_ns_ = 0;
  int64_t shortest_rtt_ns_ = 0;
  int64_t held_since_ns_ = 0;  // 0 unless the other end has no slot for us
  int64_t held_ns_ = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_RC_PIPE_H_
