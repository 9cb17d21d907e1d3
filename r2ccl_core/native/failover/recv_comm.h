// RecvComm: the receiving end. Puts each chunk into the posted buffer exactly once, whichever path it comes by and
// however often, and tells the sender what has arrived.
//
// Invariants (with mutex_ held):
//   1. A chunk is missing, arriving over one path, or done. Only the path named as arriving writes to its place. A copy
//      that comes meanwhile is read aside and put there when it is complete, if the first is not done by then; the rest
//      of the first is read into nowhere. So is a copy of a chunk that is done.
//   2. A request completes when all chunks of its message are done; nothing writes to its buffer afterwards.
//   3. Memory for messages without a posted receive is bounded, see MayBeEarly; a sender that exceeds the bound breaks
//      the protocol.
#ifndef R2CCL_FAILOVER_RECV_COMM_H_
#define R2CCL_FAILOVER_RECV_COMM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "failover/comm.h"
#include "failover/protocol.h"

namespace r2ccl {

// Of a message's chunks. Most messages have one.
class ChunkStates {
 public:
  void Reset(size_t count) {
    count_ = count;
    only_ = ChunkState::kMissing;
    if (count > 1) many_.assign(count, ChunkState::kMissing);
  }
  size_t size() const { return count_; }
  ChunkState& operator[](size_t index) { return count_ == 1 ? only_ : many_[index]; }

 private:
  size_t count_ = 0;
  ChunkState only_ = ChunkState::kMissing;
  std::vector<ChunkState> many_;
};

class RecvComm final : public Comm {
 public:
  RecvComm(Environment* environment, Wire* wire, const Secret& secret, const Frame& hello);

  uint64_t connection() const { return connection_; }

  // Takes over a stream whose HELLO was accepted, and starts it. Refuses an epoch that is not newer than the path's
  // own. If the connection is over, tells the sender so, and how many of its messages arrived. `on_trial`: the path
  // must be tested before it may carry data.
  Status Attach(int path, uint32_t epoch, int nic, in_addr remote, std::shared_ptr<Stream> stream,
                bool on_trial = false);

  // Receives the next message into `data`; it may be shorter than `capacity`, which Test reports. If somebody watches
  // `data` and uses its content before the request completes, nothing is put there before its checksum, if it has one,
  // was verified.
  Status Irecv(void* data, uint64_t capacity, Request** request, bool watched = false);

  // From now on `Tell` is called soon after each message was taken, so that the sending end, where it can go on
  // meanwhile, hears of the message and of the next receive together.
  void ExpectTell() { tells_late_.store(true); }
  void Tell();

  // The number of the first message that is not delivered yet; whoever has read it sees the marks of all before it.
  uint64_t oldest() const { return oldest_.load(); }
  // The number of the first message that carried a mark; kNoMessage until then.
  uint64_t marked() const { return marked_.load(); }

 private:
  struct Message {
    uint64_t number = 0;
    char* data = nullptr;  // nullptr until a receive is posted
    uint64_t capacity = 0;
    Request* request = nullptr;
    bool watched = false;
    std::unique_ptr<char[]> stash;  // holds an eager or watched message until it is complete
    bool started = false;           // size is known
    uint64_t size = 0;
    uint32_t tag = 0;
    uint32_t chunk_bytes = 1;
    uint32_t done = 0;
    ChunkStates chunks;
    bool complete() const { return started && done == chunks.size(); }
  };
  // The receiving state of paths_[i].
  struct Incoming {
    uint64_t chunks = 0;            // arrived in this epoch, duplicates included
    bool arriving = false;          // path.frame is a chunk that is being written to its place
    std::unique_ptr<char[]> aside;  // of path.frame, a copy of a chunk that another path is in the middle of
  };

  Status OnHeader(Path& path) override REQUIRES(mutex_);
  Status OnBody(Path& path, const std::vector<uint8_t>& control) override REQUIRES(mutex_);
  void AfterRead(Path& path) override REQUIRES(mutex_);
  void OnWritable() override REQUIRES(mutex_);
  void OnLost(Path& path) override REQUIRES(mutex_);
  void OnTick(int64_t now_ns) override REQUIRES(mutex_);
  void OnSuspect(Path&) override REQUIRES(mutex_) { SendAck(nullptr); }  // an acknowledgement may be stuck in it
  bool HasPending() const override REQUIRES(mutex_);
  bool OwesOnlyCopies() const override { return false; }
  int64_t QuietLimitNs() const override REQUIRES(mutex_) { return HasPending() ? kQuietPendingNs : INT64_MAX; }
  void FailRequests() override REQUIRES(mutex_);
  // Every CLOSE carries the last acknowledgement: another stream's CLOSE may overtake the one that carried it.
  std::string Farewell() const override REQUIRES(mutex_) { return EncodeState(true) + EncodeClose(first_); }

  const char* Direction() const override { return "receive"; }
  bool GetsData() const override { return true; }
  uint16_t PeerPort() const override { return sender_port_; }
  void Take(const Order& order) override REQUIRES(mutex_);
  void OnTaken() override REQUIRES(mutex_) { Announce(); }
  Status TakeData(Path& path) REQUIRES(mutex_);
  Status Begin(Message& message, const Frame& frame) REQUIRES(mutex_);
  Status Locate(const Frame& frame, Message** message) REQUIRES(mutex_);
  bool PutInPlace(Path& path) REQUIRES(mutex_);
  void SendNowhere(const Frame& frame) REQUIRES(mutex_);
  void Deliver(Message& message) REQUIRES(mutex_);
  void Announce() REQUIRES(mutex_);
  void CountLazy(const Frame& frame) REQUIRES(mutex_);
  void TellSoon() REQUIRES(mutex_);
  bool HasNews() const REQUIRES(mutex_) { return lazy_chunks_ > 0 || untold_since_ns_ != 0 || posted_ != announced_; }
  bool TellsLate() const { return environment_->program_polls || tells_late_.load(std::memory_order_relaxed); }
  bool ExpectsMore(uint64_t number) const REQUIRES(mutex_) { return posted_ > number + 1; }
  void SendAck(Path* preferred) REQUIRES(mutex_);
  std::string EncodeState(bool farewell = false) const REQUIRES(mutex_);

  void OnOwnLinkBack(Path& path) override REQUIRES(mutex_);
  void Knock(int64_t now_ns) REQUIRES(mutex_);
  void TakeAnswer(int path, uint32_t epoch, Answer answer, const Frame* said);

  const Secret secret_;
  const uint64_t connection_;
  const uint16_t sender_port_;  // the sending process's listening port, to ask whether it lives; 0: unknown
  std::vector<Incoming> incoming_ GUARDED_BY(mutex_);
  std::deque<Message> messages_ GUARDED_BY(mutex_);  // from first_ on, contiguous
  uint64_t first_ GUARDED_BY(mutex_) = 0;            // number of messages_.front()
  std::atomic<uint64_t> oldest_{0};                  // the same, for all threads
  std::atomic<uint64_t> marked_{kNoMessage};
  std::atomic<bool> tells_late_{false};
  uint64_t posted_ GUARDED_BY(mutex_) = 0;  // receives posted so far
  bool ack_due_ GUARDED_BY(mutex_) = false;
  // Delayed acknowledgements, of chunks whose sender can wait and of receives posted while early messages arrive.
  // Copied chunks: delay for up to this many. Others: delay for a few, and only while the program polls, so that it
  // returns here.
  static constexpr uint64_t kLazyMessages = 32;
  static constexpr uint64_t kLazyBytes = 32 * 1024;
  static constexpr uint64_t kLazyPatient = 2;
  static constexpr uint64_t kLazyBulk = 4;  // of a message with more chunks to come
  static constexpr int64_t kUntoldNs = 200'000;
  bool relaxed_ GUARDED_BY(mutex_) = false;  // the last message was early
  bool asked_ GUARDED_BY(mutex_) = false;    // the sending end waits for a receive that was not announced
  uint64_t lazy_chunks_ GUARDED_BY(mutex_) = 0;
  uint64_t lazy_bytes_ GUARDED_BY(mutex_) = 0;
  uint64_t announced_ GUARDED_BY(mutex_) = 0;       // receives that the last acknowledgement announced
  int64_t untold_since_ns_ GUARDED_BY(mutex_) = 0;  // 0 unless the sending end must be told something soon
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_RECV_COMM_H_
