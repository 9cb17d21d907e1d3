// Transfer: one write or read that a program has started.
#ifndef R2CCL_TRANSFER_TRANSFER_H_
#define R2CCL_TRANSFER_TRANSFER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace r2ccl::transfer {

enum class Direction { kWrite, kRead };

// Bytes of a region here and as many of one there.
struct Range {
  uint64_t local_key = 0;
  uint64_t local_offset = 0;
  uint64_t remote_key = 0;
  uint64_t remote_offset = 0;
  uint64_t bytes = 0;
};

class Peer;

class Transfer {
 public:
  enum State { kPending, kDone, kCancelled, kFailed };

  // Once it is not pending, nothing of this engine touches its memory, and nothing of the peer's where the peer lives.
  // A write that is done is in the peer's memory. Any thread.
  State state() const { return state_.load(std::memory_order_acquire); }
  // Why it failed. REQUIRES that it is not pending.
  const Status& status() const { return status_; }

 private:
  friend class Engine;
  friend class Peer;

  Direction direction_ = Direction::kWrite;
  uint64_t operation_ = 0;
  std::vector<Range> ranges_;
  bool has_notification_ = false;
  std::string notification_;
  // Guarded by the engine's mutex.
  std::weak_ptr<Peer> peer_;
  uint64_t pieces_ = 0;  // that the transport has
  uint64_t bytes_ = 0;   // that have arrived, of a read
  uint64_t wanted_bytes_ = 0;
  uint64_t next_range_ = 0;  // of a read: where its next piece belongs
  uint64_t next_offset_ = 0;
  bool begun_ = false;     // the peer was told of it, or will be next
  bool sent_ = false;      // of a write: all that it will
  bool answered_ = false;  // the peer has nothing more to say about it
  bool cancelled_ = false;
  Status problem_;
  Status status_;  // written before the state
  std::atomic<State> state_{kPending};
};

}  // namespace r2ccl::transfer

#endif  // R2CCL_TRANSFER_TRANSFER_H_
