// PathState: the life of one path, as a table. Pure, so that every transition is tested.
//
//              dial            connected        greeted       held back     released      lost
//   down       connecting      -                up (1)        -             -             down
//   connecting -               greeting         -             -             -             down
//   greeting   -               -                up            held          -             down
//   held       -               -                -             -             up            down
//   up         -               -                up (2)        -             -             down
//
// (1) on the receiving end a stream arrives already greeted.
// (2) the sender came back with a newer epoch before this end noticed the loss.
// "-" cannot happen in a correct program and is refused.
//
// Held is the sending end's alone: the stream is open and takes control frames, but no data (see damping.h).
#ifndef R2CCL_FAILOVER_PATH_STATE_H_
#define R2CCL_FAILOVER_PATH_STATE_H_

#include <cstdint>
#include <optional>

namespace r2ccl {

enum class PathState : uint8_t { kDown, kConnecting, kGreeting, kHeld, kUp };
enum class PathEvent : uint8_t { kDial, kConnected, kGreeted, kHeldBack, kReleased, kLost };

constexpr std::optional<PathState> NextState(PathState state, PathEvent event) {
  auto from = [state](PathState expected, PathState next) {
    return state == expected ? std::optional(next) : std::nullopt;
  };
  switch (event) {
    case PathEvent::kLost:
      return PathState::kDown;
    case PathEvent::kDial:
      return from(PathState::kDown, PathState::kConnecting);
    case PathEvent::kConnected:
      return from(PathState::kConnecting, PathState::kGreeting);
    case PathEvent::kGreeted:
      if (state == PathState::kConnecting || state == PathState::kHeld) return std::nullopt;
      return PathState::kUp;
    case PathEvent::kHeldBack:
      return from(PathState::kGreeting, PathState::kHeld);
    case PathEvent::kReleased:
      return from(PathState::kHeld, PathState::kUp);
  }
  return std::nullopt;
}

// Whether frames go over the path.
constexpr bool IsOpen(PathState state) { return state == PathState::kUp || state == PathState::kHeld; }

constexpr const char* ToString(PathState state) {
  switch (state) {
    case PathState::kDown:
      return "down";
    case PathState::kConnecting:
      return "connecting";
    case PathState::kGreeting:
      return "greeting";
    case PathState::kHeld:
      return "held";
    case PathState::kUp:
      return "up";
  }
  return "?";
}

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_PATH_STATE_H_
