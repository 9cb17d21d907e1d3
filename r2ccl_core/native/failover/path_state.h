// PathState: the life of one path, as a table. Pure, so that every transition is tested.
//
//              dial            connected        greeted       lost
//   down       connecting      -                up (1)        down
//   connecting -               greeting         -             down
//   greeting   -               -                up            down
//   up         -               -                up (2)        down
//
// (1) on the receiving end a stream arrives already greeted.
// (2) the sender came back with a newer epoch before this end noticed the loss.
// "-" cannot happen in a correct program and is refused.
#ifndef R2CCL_FAILOVER_PATH_STATE_H_
#define R2CCL_FAILOVER_PATH_STATE_H_

#include <optional>

namespace r2ccl {

enum class PathState { kDown, kConnecting, kGreeting, kUp };
enum class PathEvent { kDial, kConnected, kGreeted, kLost };

constexpr std::optional<PathState> NextState(PathState state, PathEvent event) {
  switch (event) {
    case PathEvent::kLost:
      return PathState::kDown;
    case PathEvent::kDial:
      return state == PathState::kDown ? std::optional(PathState::kConnecting) : std::nullopt;
    case PathEvent::kConnected:
      return state == PathState::kConnecting ? std::optional(PathState::kGreeting) : std::nullopt;
    case PathEvent::kGreeted:
      return state != PathState::kConnecting ? std::optional(PathState::kUp) : std::nullopt;
  }
  return std::nullopt;
}

constexpr const char* ToString(PathState state) {
  switch (state) {
    case PathState::kDown:
      return "down";
    case PathState::kConnecting:
      return "connecting";
    case PathState::kGreeting:
      return "greeting";
    case PathState::kUp:
      return "up";
  }
  return "?";
}

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_PATH_STATE_H_
