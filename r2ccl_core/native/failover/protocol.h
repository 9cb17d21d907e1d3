// Protocol: the few decisions on which it hangs that each byte lands once. Pure: the two ends call them, and so does
// the model that tests/model_test.cc explores exhaustively.
//
//   a chunk at the receiving end
//              begins on a path            ends on its path   its path is lost
//   missing    arriving                    -                  -
//   arriving   the rival path is retired,  done               missing
//              then as missing
//   done       read into nowhere           -                  -
#ifndef R2CCL_FAILOVER_PROTOCOL_H_
#define R2CCL_FAILOVER_PROTOCOL_H_

#include <cstdint>

#include "failover/path_state.h"

namespace r2ccl {

enum class ChunkState : uint8_t { kMissing, kArriving, kDone };

// What to do with a chunk that begins to come in.
enum class Placement : uint8_t {
  kWrite,
  kRetireRival,  // another path is in the middle of it, which proves that the sender gave that path up: cut it, then
                 // write
  kDiscard,
};

constexpr Placement PlaceChunk(ChunkState state) {
  if (state == ChunkState::kDone) return Placement::kDiscard;
  return state == ChunkState::kArriving ? Placement::kRetireRival : Placement::kWrite;
}

// Whether a stream that says HELLO with `hello_epoch` replaces what the receiving end has of that path.
constexpr bool IsNewerStream(uint32_t path_epoch, uint32_t hello_epoch) { return hello_epoch > path_epoch; }

// Whether an acknowledgement about `acked_epoch` says anything about the stream that the sending end has now.
constexpr bool ConcernsStream(PathState state, uint32_t path_epoch, uint32_t acked_epoch) {
  return IsOpen(state) && path_epoch == acked_epoch;
}

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_PROTOCOL_H_
