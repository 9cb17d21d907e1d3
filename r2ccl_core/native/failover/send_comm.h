// SendComm: the sending end. Cuts messages into chunks, distributes them over the paths, keeps each chunk until it is
// acknowledged, and moves the chunks of a lost path to the others.
//
// Invariants (with mutex_ held):
//   1. A chunk of an unfinished message is in exactly one place: a queue, one path's in-flight list, or
//      acknowledged. A late chunk, or one that is a trial as well, is in two of them, or three, until the first of its
//      copies is acknowledged: then none is left in a queue, and the rest of a frame that is being written is sent from
//      a copy.
//   2. A path's in-flight list is in the order of its stream, so an acknowledged count identifies its front.
//   3. A message's request completes when its last chunk is acknowledged, and not before: until then the user's buffer
//      is needed for a replay. A small message that may be sent at once is copied, and its request completes then.
//      Nobody waits for its acknowledgement, so it counts neither for windows nor as a sample of a NIC's drain rate.
#ifndef R2CCL_FAILOVER_SEND_COMM_H_
#define R2CCL_FAILOVER_SEND_COMM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "failover/comm.h"
#include "failover/own_share.h"
#include "failover/placement.h"
#include "failover/protocol.h"
#include "failover/split.h"
#include "net/handle.h"

namespace r2ccl {

constexpr int kNoHome = -1;

class SendComm final : public Comm {
 public:
  SendComm(Environment* environment, Wire* wire, const Handle& handle, int home, uint64_t connection);
  ~SendComm() override { CountAsSender(false); }

  uint64_t connection() const { return connection_; }
  const Secret& secret() const { return handle_.secret; }

  // Begins to connect every path. Call after the object is owned by a shared_ptr; a second call does nothing.
  void Start();

  // Ready: at least one path is up and every other one was tried; in fail-stop mode all are up.
  Status Ready(bool* ready);

  // Sends `size` bytes at `data`, which stay untouched until Test reports completion. The receiving end tells of the
  // first message that is `marked`, and its Test of every one's `tag`, at most kMostTag. `shares`: how a planned
  // schedule divides the connection over the NICs; nullptr: the NICs' loads decide. `announced`: the peer knows of it
  // and posts its receive about when it comes, so a large one need not wait for that.
  Status Isend(const void* data, uint64_t size, Request** request, bool marked = false, uint32_t tag = 0,
               NicShares shares = nullptr, bool announced = false);

  // Whether the home NIC has lately drained what makes a fast one (R2CC_FAST_MBIT_S).
  bool home_is_fast() const {
    double peak = home_ == nullptr ? 0 : nic_state(*home_).peak_bytes_per_ns.load(std::memory_order_relaxed);
    return peak >= FastBytesPerNs(environment_->params);
  }

 private:
  // Of a chunk that went over another path as well, since its own was late or the other one is on trial.
  struct Copies {
    int alive = 2;  // in queues and in flight
    bool acknowledged = false;
  };
  struct Chunk {
    uint64_t message;
    uint64_t offset;
    uint32_t length;
    uint32_t queue;
    bool buffered;
    int64_t sent_ns;
    // Of the stream that it was put into: where it ends there, when it is late, and what Path::held_ns was.
    uint64_t end = 0;
    int64_t due_ns = 0;
    int64_t held_ns = 0;
    bool trial = false;              // goes over this path to see what that drains, and over another one as well
    std::shared_ptr<Copies> copies;  // shared by all of it, nullptr unless there were several
    uint64_t weight() const { return buffered ? 0 : length; }
  };
  struct Message {
    uint64_t number;
    const char* data;
    uint64_t size;
    uint32_t chunk_bytes;
    uint32_t chunks;
    uint32_t acknowledged;
    Request* request;
    bool marked;
    uint32_t tag;
    std::unique_ptr<char[]> copy;
    NicShares shares = nullptr;
    bool announced = false;
  };
  // The sending state of paths_[i].
  struct Outgoing {
    std::deque<Chunk> in_flight;
    uint64_t in_flight_bytes = 0;
    uint64_t last_bytes = 0;           // of the message of which something was last put on it
    uint64_t acknowledged_chunks = 0;  // in this epoch
    bool tried = false;
    size_t partner = 0;  // the peer's NIC that its own NIC is paired with, an index into Handle::addresses
    size_t turn = 0;     // dials since a path to a partner was up
    // Drain rate, measured while the path is busy.
    double bytes_per_ns = 0;
    int64_t min_round_trip_ns = 0;
    int64_t sample_start_ns = 0;
    uint64_t sample_bytes = 0;
  };

  void OnConnected(int path) override REQUIRES(mutex_);
  void OnNotConnected(int path, const std::string& reason, bool refused) override REQUIRES(mutex_);
  Status OnHeader(Path& path) override;
  Status OnBody(Path& path, const std::vector<uint8_t>& control) override REQUIRES(mutex_);
  void AfterRead(Path& path) override REQUIRES(mutex_);
  void OnWritable() override REQUIRES(mutex_);
  void OnLost(Path& path) override REQUIRES(mutex_);
  void OnTick(int64_t now_ns) override REQUIRES(mutex_);
  void OnProgress(Path& path, const Progress& progress, int64_t now_ns) override REQUIRES(mutex_);
  bool HasPending() const override REQUIRES(mutex_) { return !messages_.empty(); }
  bool OwesOnlyCopies() const override REQUIRES(mutex_);
  int64_t QuietLimitNs() const override REQUIRES(mutex_) { return HasPending() ? kQuietPendingNs : kQuietIdleNs; }
  void FailRequests() override REQUIRES(mutex_);
  void OnOwnLinkBack(Path&) override {}  // the next tick dials
  void OnPeerLinkBack(Path& path) override REQUIRES(mutex_);
  std::string Farewell() const override { return EncodeClose(0); }
  const char* Direction() const override { return "send"; }
  bool GetsData() const override { return false; }
  uint16_t PeerPort() const override { return handle_.port; }

  void Take(const Order& order) override REQUIRES(mutex_);
  void OnTaken() override REQUIRES(mutex_);
  void Finish(Request* request, Request::State state);
  static bool CarriesData(const Path& path);
  bool HoldsBack(Path& path) REQUIRES(mutex_);
  void ReleaseHeld(int64_t now_ns) REQUIRES(mutex_);
  void Release(Path& path, const char* why);
  int64_t DialPatienceNs(const Path& path) const;
  void Dial(Path& path, int64_t now_ns) REQUIRES(mutex_);
  void Aim(Path& path, size_t turn) REQUIRES(mutex_);
  bool IsDetour(const Path& path) const REQUIRES(mutex_);
  bool AnyDirect() const REQUIRES(mutex_);
  void EndDetours(int64_t now_ns) REQUIRES(mutex_);
  uint32_t ChunkBytes(uint64_t size) REQUIRES(mutex_);
  uint64_t LargestChunk() const REQUIRES(mutex_);
  uint64_t FittingChunk(const Path& path) const;
  void CountAsSender(bool counts) REQUIRES(mutex_);
  void CountSmallOn(int nic) REQUIRES(mutex_);
  void CutMessages() REQUIRES(mutex_);
  uint64_t CopiedBytes() const;
  void Buffer(Message& message);
  void AskForReceive(uint64_t number) REQUIRES(mutex_);
  bool GoesEarly(const Message& message) const REQUIRES(mutex_);
  bool IsEarly(const Message& message) const REQUIRES(mutex_);
  bool IsPatient(const Chunk& chunk, const Path& path) REQUIRES(mutex_);
  void Pump() REQUIRES(mutex_);
  bool SendOne(Path& path, int64_t now_ns) REQUIRES(mutex_);
  void PutOn(Path& path, Chunk chunk, int64_t now_ns) REQUIRES(mutex_);
  void TryWays(const Path& carrier, int64_t now_ns) REQUIRES(mutex_);
  bool WantsTrial(const Path& path, int64_t now_ns) const REQUIRES(mutex_);
  bool TakeTrial(const Path& path, int64_t now_ns);
  static bool IsOnTrial(const Path& path, int64_t now_ns);
  void NoteQueue(Path& path) const;
  void CheckSlow(Path& path, const Progress& progress, int64_t now_ns) REQUIRES(mutex_);
  void ExcuseSlow(Path& path, int64_t answer_ns, int64_t now_ns) REQUIRES(mutex_);
  std::deque<Chunk>* QueueFor(const Path& path) REQUIRES(mutex_);
  bool Serves(const Path& path, uint32_t queue) const REQUIRES(mutex_);
  int DistanceBetween(const Path& one, const Path& other) const;
  bool CanTake(const Path& path) REQUIRES(mutex_);
  bool IsSettled(int64_t now_ns) REQUIRES(mutex_);
  const std::vector<PathLoad>& Look() REQUIRES(mutex_);  // into loads_
  int NextPath() REQUIRES(mutex_);
  double ShareOf(const Path& path) const REQUIRES(mutex_);
  void FollowShares(const NicShares& shares) REQUIRES(mutex_);
  Waiting FirstWaiting() const REQUIRES(mutex_);
  bool IsConfined() const REQUIRES(mutex_);
  int home() const { return home_ == nullptr ? kNoPath : home_->index; }
  uint64_t LeastWindow(const Path& path) const;
  uint64_t WindowBytes(const Path& path) const REQUIRES(mutex_);
  int64_t LateAfter(const Path& path) const REQUIRES(mutex_);
  int64_t OverdueNs(Path& path, const Chunk& chunk, int64_t now_ns) REQUIRES(mutex_);
  void LookAt(int64_t time_ns, int64_t now_ns) REQUIRES(mutex_);
  void LookForAnswer(int64_t due_ns, int64_t now_ns) REQUIRES(mutex_);
  // Returns how many chunks that were.
  uint64_t SendAgain(Path& path, uint64_t acked_bytes) REQUIRES(mutex_);
  void DropCopies(const Chunk& chunk) REQUIRES(mutex_);
  bool IsTheLast(Chunk& chunk);
  static bool GoesAlone(const Chunk& chunk);
  void ApplyAck(Path& path, uint64_t chunks) REQUIRES(mutex_);
  void Acknowledge(const Chunk& chunk) REQUIRES(mutex_);
  Status PeerClosed(uint64_t messages) REQUIRES(mutex_);
  void NoteTrial(NicState& nic, double bytes_per_ns) const;
  void MeasureRate(Outgoing& out, uint64_t bytes, int64_t now_ns);
  Message& message(uint64_t number) REQUIRES(mutex_) { return messages_[number - messages_.front().number]; }
  Outgoing& outgoing(const Path& path) REQUIRES(mutex_) { return outgoing_[static_cast<size_t>(path.index)]; }
  const Outgoing& outgoing(const Path& path) const REQUIRES(mutex_) {
    return outgoing_[static_cast<size_t>(path.index)];
  }

  const Handle handle_;
  const uint64_t connection_;
  Path* home_ = nullptr;        // the path over the home NIC, if there is one
  std::vector<int> from_home_;  // each path's NIC
  std::vector<Outgoing> outgoing_ GUARDED_BY(mutex_);
  std::vector<PathLoad> loads_ GUARDED_BY(mutex_);  // as they were when the last chunk was placed
  NicShares shares_ GUARDED_BY(mutex_);             // of the message whose chunk was placed last
  Split split_ GUARDED_BY(mutex_);                  // of them
  int64_t settled_ns_ GUARDED_BY(mutex_) = 0;       // when its home was last found to be the best path; 0: it was not
  std::vector<std::deque<Chunk>> queues_ GUARDED_BY(mutex_);  // one shared queue in Balance, one per path otherwise
  uint64_t waiting_chunks_ GUARDED_BY(mutex_) = 0;            // in all queues
  uint64_t waiting_bytes_ GUARDED_BY(mutex_) = 0;
  std::deque<Message> messages_ GUARDED_BY(mutex_);  // unfinished, in order; finished ones leave from the front
  uint64_t next_message_ GUARDED_BY(mutex_) = 0;
  uint64_t next_cut_ GUARDED_BY(mutex_) = 0;  // first message not yet in the queues
  uint64_t next_queue_ GUARDED_BY(mutex_) = 0;
  uint64_t posted_ GUARDED_BY(mutex_) = 0;       // receives the peer has posted
  EarlyLimits early_ GUARDED_BY(mutex_);         // nothing until the peer's are known
  bool was_early_ GUARDED_BY(mutex_) = false;    // the last chunk's message
  uint64_t asked_until_ GUARDED_BY(mutex_) = 0;  // messages for whose receives the peer was asked
  bool counts_ GUARDED_BY(mutex_) = false;       // among environment_->senders
  int small_nic_ GUARDED_BY(mutex_) = -1;        // among whose small_senders it counts; -1: none's
  int idle_ticks_ GUARDED_BY(mutex_) = 0;        // since the last message
  bool ready_ GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> pending_bytes_{0};  // of sends that are not done
  OwnShare own_share_;
  int64_t started_ns_ GUARDED_BY(mutex_) = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_SEND_COMM_H_
