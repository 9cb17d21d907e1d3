// Protocol: the few decisions that exactly-once delivery depends on. Pure.
//
//   a chunk at the receiving end
//              begins on a path            ends on its path   its path is lost
//   missing    arriving                    -                  -
//   arriving   read aside                  done               missing
//   done       read into nowhere           -                  -
//
// A copy that was read aside and ends while the chunk is not done is put in its place; a path that is in the middle of
// writing there is first made to read the rest into nowhere. So at most one path writes to a place, and a frame that
// ended whole always leaves its chunk done: it may be counted, whichever path brought the chunk.
#ifndef R2CCL_FAILOVER_PROTOCOL_H_
#define R2CCL_FAILOVER_PROTOCOL_H_

#include <cstdint>

#include "failover/path_state.h"

namespace r2ccl {

enum class ChunkState : uint8_t { kMissing, kArriving, kDone };

// What to do with a chunk that begins to arrive.
enum class Placement : uint8_t {
  kWrite,
  kAside,  // another path is in the middle of it, and may be stuck: read it into separate memory
  kDiscard,
};

constexpr Placement PlaceChunk(ChunkState state) {
  if (state == ChunkState::kDone) return Placement::kDiscard;
  return state == ChunkState::kArriving ? Placement::kAside : Placement::kWrite;
}

// Whether a stream whose HELLO has `hello_epoch` replaces the receiving end's stream of that path.
constexpr bool IsNewerStream(uint32_t path_epoch, uint32_t hello_epoch) { return hello_epoch > path_epoch; }

// Whether an acknowledgement for `acked_epoch` applies to the sending end's present stream.
constexpr bool ConcernsStream(PathState state, uint32_t path_epoch, uint32_t acked_epoch) {
  return IsOpen(state) && path_epoch == acked_epoch;
}

// What may be sent before its receive is posted (eager sends). Both ends obey it: the sending end uses the smaller of
// both ends' limits and the number of receives that it knows to be posted, which is never more than the actual number.
struct EarlyLimits {
  uint64_t bytes = 0;     // of a message
  uint64_t messages = 0;  // ahead of the posted receives
};

constexpr uint64_t kEarlyLargest = 8;  // number of largest messages that may be ahead; more smaller ones

// Whether message `number`, without a posted receive, may be sent; the first `posted` messages have one. This depends
// on no other message: k messages are ahead only if the last of them is at most 1/k of the total allowed for the
// largest. So all together hold at most 8 * (1 + 1/9 + 1/10 + ...) times the largest, 25 with 64 messages.
constexpr bool MayBeEarly(const EarlyLimits& limits, uint64_t number, uint64_t posted, uint64_t size) {
  uint64_t before = number - posted;
  return size <= limits.bytes && before < limits.messages && size * (before + 1) <= kEarlyLargest * limits.bytes;
}

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_PROTOCOL_H_
