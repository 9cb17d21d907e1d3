// Every transition of a path's life, against the table in failover/path_state.h written out again.
#include "failover/path_state.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

using S = PathState;
using E = PathEvent;

struct PathCase {
  S from;
  E event;
  std::optional<S> to;
};

constexpr PathCase kTable[] = {
    {S::kDown, E::kDial, S::kConnecting},
    {S::kDown, E::kConnected, {}},
    {S::kDown, E::kGreeted, S::kUp},
    {S::kDown, E::kHeldBack, {}},
    {S::kDown, E::kReleased, {}},
    {S::kDown, E::kLost, S::kDown},
    {S::kConnecting, E::kDial, {}},
    {S::kConnecting, E::kConnected, S::kGreeting},
    {S::kConnecting, E::kGreeted, {}},
    {S::kConnecting, E::kHeldBack, {}},
    {S::kConnecting, E::kReleased, {}},
    {S::kConnecting, E::kLost, S::kDown},
    {S::kGreeting, E::kDial, {}},
    {S::kGreeting, E::kConnected, {}},
    {S::kGreeting, E::kGreeted, S::kUp},
    {S::kGreeting, E::kHeldBack, S::kHeld},
    {S::kGreeting, E::kReleased, {}},
    {S::kGreeting, E::kLost, S::kDown},
    {S::kHeld, E::kDial, {}},
    {S::kHeld, E::kConnected, {}},
    {S::kHeld, E::kGreeted, {}},
    {S::kHeld, E::kHeldBack, {}},
    {S::kHeld, E::kReleased, S::kUp},
    {S::kHeld, E::kLost, S::kDown},
    {S::kUp, E::kDial, {}},
    {S::kUp, E::kConnected, {}},
    {S::kUp, E::kGreeted, S::kUp},
    {S::kUp, E::kHeldBack, {}},
    {S::kUp, E::kReleased, {}},
    {S::kUp, E::kLost, S::kDown},
};

TEST(PathState, EveryTransition) {
  static_assert(std::size(kTable) == 5 * 6, "every state with every event");
  for (const PathCase& c : kTable) {
    EXPECT_EQ(NextState(c.from, c.event), c.to) << ToString(c.from) << ", event " << static_cast<int>(c.event);
  }
}

TEST(PathState, EveryStateHasItsName) {
  EXPECT_STREQ(ToString(S::kDown), "down");
  EXPECT_STREQ(ToString(S::kConnecting), "connecting");
  EXPECT_STREQ(ToString(S::kGreeting), "greeting");
  EXPECT_STREQ(ToString(S::kHeld), "held");
  EXPECT_STREQ(ToString(S::kUp), "up");
}

}  // namespace
}  // namespace r2ccl
