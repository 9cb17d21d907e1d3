// Damping: how long a path is held after which losses; and a real path that comes and goes.
#include "failover/damping.h"

#include <gtest/gtest.h>

#include "pair.h"

namespace r2ccl {
namespace {

constexpr int64_t kMs = kMillisecond;

TEST(Damping, GrowsWithRecentLossesAndIsForgotten) {
  Params params;  // half-life 4 s, suppressed from 2000 on, reused at 750
  FlapDamper flaps;
  int64_t now_ns = 0;
  flaps.Lose(params, now_ns);
  EXPECT_FALSE(flaps.Holds(params, now_ns)) << "the first loss";
  flaps.Lose(params, now_ns += 1000 * kMs);
  EXPECT_FALSE(flaps.Holds(params, now_ns)) << "the second, 1841";
  flaps.Lose(params, now_ns += 1000 * kMs);
  EXPECT_TRUE(flaps.Holds(params, now_ns)) << "the third, 2548";
  int64_t third_ms = flaps.HoldMs(params, now_ns);
  EXPECT_NEAR(static_cast<double>(third_ms), 4000 * std::log2(2548.0 / 750), 5);
  flaps.Lose(params, now_ns += 1000 * kMs);
  EXPECT_GT(flaps.HoldMs(params, now_ns), third_ms + 1000) << "a further one lengthens it";
  int64_t left_ms = flaps.HoldMs(params, now_ns);
  EXPECT_TRUE(flaps.Holds(params, now_ns + (left_ms - 10) * kMs)) << "below the suppress limit, not yet at the other";
  EXPECT_FALSE(flaps.Holds(params, now_ns + (left_ms + 10) * kMs));
  flaps.Lose(params, now_ns += 60'000 * kMs);
  EXPECT_FALSE(flaps.Holds(params, now_ns)) << "long after";
}

TEST(Damping, NeverLongerThanTheLimitAndNotAtAllWhenOff) {
  Params params;
  params.flap_max_ms = 5000;
  FlapDamper flaps;
  for (int i = 0; i < 1000; ++i) flaps.Lose(params, i * kMs);
  EXPECT_LE(flaps.HoldMs(params, 1000 * kMs), 5000);
  EXPECT_GT(flaps.HoldMs(params, 1000 * kMs), 4900);
  params.flap_half_life_ms = 0;
  FlapDamper off;
  for (int i = 0; i < 1000; ++i) off.Lose(params, i * kMs);
  EXPECT_FALSE(off.Holds(params, 1000 * kMs));
}

TrafficOptions Some() {
  TrafficOptions options;
  options.sizes.assign(4, 1 << 20);
  return options;
}

class Damped : public testing::TestWithParam<int> {
 protected:
  static Params Faded(int64_t half_life_ms) {
    Params params = PatientParams(GetParam());
    params.flap_half_life_ms = half_life_ms;
    return params;
  }
  // Nothing fades while a test lasts.
  static Params Unforgiving() {
    Params params = Faded(600000);
    params.flap_max_ms = 600000;
    return params;
  }
  // Whether the path is up, and was told so last: the loss of one that is still tested is no news.
  static bool IsTold(Pair& pair, int path) {
    std::string peer = "127.0.3." + std::to_string(path + 1), last;
    for (const Event& event : pair.sender->environment().log.Snapshot()) {
      if (event.peer == peer && event.kind.starts_with("path_")) last = event.kind;
    }
    return (last == "path_up" || last == "path_returned") && pair.sender->Health()[static_cast<size_t>(path)].up == 1;
  }
  void Flap(Pair& pair, int path) {
    auto open = [&] {
      NicHealth health = pair.sender->Health()[static_cast<size_t>(path)];
      return health.up + health.held == 1;
    };
    ASSERT_TRUE(Until([&] { return IsTold(pair, path); })) << "after its tests";
    size_t lost = CountEvents(*pair.sender, "path_down");
    pair.relay->Reset(path);
    ASSERT_TRUE(Until([&] { return CountEvents(*pair.sender, "path_down") > lost; }));
    ASSERT_TRUE(Until(open));
  }
  static uint64_t Sent(Pair& pair, int nic) { return pair.sender->environment().counters[nic].sent_bytes.load(); }
};
INSTANTIATE_TEST_SUITE_P(Damping, Damped, testing::Values(1, 2));

TEST_P(Damped, APathThatComesAndGoesStandsReadyAndCarriesNothing) {
  Pair pair(Unforgiving());
  ASSERT_EQ(pair.Open().message(), "");
  Flap(pair, 1);
  ASSERT_TRUE(Until([&] { return pair.sender->Health()[1].up == 1; })) << "after its tests, where it has any";
  ASSERT_FALSE(AnyEvent(*pair.sender, "path_held", "lost too often")) << "the first time";
  for (int i = 0; i < 2; ++i) Flap(pair, 1);
  ASSERT_TRUE(Until([&] { return pair.sender->Health()[1].held == 1; }));
  uint64_t before = Sent(pair, 1);
  ASSERT_EQ(Traffic(*pair.send, *pair.recv, Some()).Run(), "");
  EXPECT_EQ(Sent(pair, 1), before);
  if (GetParam() != 2) {  // there also for its tests
    EXPECT_EQ(CountEvents(*pair.sender, "path_held"), 1u);
  }
  EXPECT_TRUE(AnyEvent(*pair.sender, "path_held", "lost too often"));
  for (const Event& event : pair.sender->environment().log.Snapshot()) {
    if (event.detail.starts_with("lost too often")) {
      EXPECT_EQ(event.cause, "flapping");
    }
  }
}

TEST_P(Damped, AHeldPathComesBackByItself) {
  Pair pair(Faded(GetParam() == 2 ? 1000 : 200));  // there each return takes longer, for its tests
  ASSERT_EQ(pair.Open().message(), "");
  // On a busy machine a flap may take so long that the one before is forgotten.
  for (int i = 0; i < 100 && !AnyEvent(*pair.sender, "path_held", "lost too often"); ++i) Flap(pair, 1);
  ASSERT_TRUE(Until([&] { return pair.PathsUp() == 3; }));
  EXPECT_TRUE(AnyEvent(*pair.sender, "path_returned", "stayed up long enough"));
  uint64_t before = Sent(pair, 1);
  ASSERT_EQ(Traffic(*pair.send, *pair.recv, Some()).Run(), "");
  EXPECT_GT(Sent(pair, 1), before);
}

TEST_P(Damped, TheLastPathIsNeverHeld) {
  Pair pair(Unforgiving(), 2);
  ASSERT_EQ(pair.Open().message(), "");
  for (int i = 0; i < 3; ++i) Flap(pair, 1);
  ASSERT_TRUE(Until([&] { return pair.sender->Health()[1].held == 1; }));
  pair.relay->Set(0, Cable::kRefused);
  ASSERT_TRUE(Until([&] { return pair.sender->Health()[1].up == 1; }));
  EXPECT_TRUE(AnyEvent(*pair.sender, "path_returned", "no other NIC is left"));
  ASSERT_EQ(Traffic(*pair.send, *pair.recv, Some()).Run(), "");
  for (int i = 0; i < 2; ++i) Flap(pair, 1);
  ASSERT_EQ(Traffic(*pair.send, *pair.recv, Some()).Run(), "") << "nor when it comes back alone";
}

}  // namespace
}  // namespace r2ccl
