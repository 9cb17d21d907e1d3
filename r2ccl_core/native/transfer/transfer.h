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

// Bytes of a region here, and the same number of one at the peer.
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

  // Once it is not pending, this engine no longer touches its memory, nor does the peer's if the peer lives. When a
  // write is done, it is in the peer's memory. Any thread.
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
  uint64_t pieces_ = 0;  // held by the transport
  uint64_t bytes_ = 0;   // of a read: that have arrived
  uint64_t wanted_bytes_ = 0;
  uint64_t next_range_ = 0;  // of a read: the place of its next piece
  uint64_t next_offset_ = 0;
  bool begun_ = false;     // it was announced to the peer, or will be next
  bool sent_ = false;      // of a write: everything was sent
  bool answered_ = false;  // the peer has sent its last message about it
  bool cancelled_ = false;
  Status problem_;
  Status status_;  // written before the state
  std::atomic<State> state_{kPending};
};

}  // namespace r2ccl::transfer

#endif  // R2CCL_TRANSFER_TRANSFER_H_
