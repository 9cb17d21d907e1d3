// When silence means death: the limits as a table, and what counts as loss.
#include "failover/stall.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr int64_t kMs = kMillisecond;

Progress Made(int64_t rtt_ms, int64_t variance_ms, int64_t timeout_ms) {
  Progress progress;
  progress.rtt_ns = rtt_ms * kMs;
  progress.rtt_variance_ns = variance_ms * kMs;
  progress.timeout_ns = timeout_ms * kMs;
  return progress;
}

// Each limit in milliseconds: one more is too long.
TEST(Stall, LimitsAsATable) {
  struct Case {
    const char* what;
    int64_t mode, stall_ms;
    Progress progress;
    bool lossy, on_probation;
    int64_t any_ms, in_order_ms;
  };
  const Case kCases[] = {
      {"a clean path", 2, 0, Made(1, 0, 51), false, false, 80, 408},
      {"a long way", 2, 0, Made(100, 10, 300), false, false, 280, 1000},
      {"acknowledgements put off", 2, 0, Made(12, 6, 62), false, false, 80, 496},
      {"losses", 2, 0, Made(1, 0, 51), true, false, 160, 408},
      {"an older kernel", 2, 0, Made(1, 0, 201), true, false, 160, 1000},
      {"losses on a longer way", 2, 0, Made(600, 0, 1800), true, false, 2400, 2400},
      {"the user's own limit", 2, 33, Made(100, 10, 300), true, false, 33, 33},
      {"losses of test packets", 2, 0, Made(1, 0, 51), true, true, 160, 1632},
      {"losses of test packets to an older kernel", 2, 0, Made(1, 0, 201), true, true, 160, 4000},
      {"fail-stop is patient", 0, 0, Made(1, 0, 51), false, false, 2000, 4000},
  };
  for (const Case& c : kCases) {
    Params params;
    params.mode = c.mode;
    params.stall_ms = c.stall_ms;
    auto dead = [&](int64_t in_order_ms, int64_t any_ms) {
      return IsDead(params, c.progress, StallLimitNs(params, LongestUsualNs(c.progress)), c.lossy, c.on_probation,
                    {in_order_ms * kMs, any_ms * kMs});
    };
    EXPECT_FALSE(dead(c.any_ms, c.any_ms)) << c.what;
    EXPECT_TRUE(dead(c.any_ms + 1, c.any_ms + 1)) << c.what;
    EXPECT_FALSE(dead(c.in_order_ms, 1)) << c.what;
    EXPECT_TRUE(dead(c.in_order_ms + 1, 1)) << c.what << ": what is missing never gets through";
  }
}

// A machine whose kernel was kept from reading packets heard nothing by any NIC.
TEST(Stall, ASilenceOfAllNicsIsGivenTwiceTheTime) {
  auto dead = [](int64_t any_ms, int64_t seen_ms) {
    return IsDead({}, Made(1, 0, 51), StallLimitNs({}, 1 * kMs), false, false,
                  {any_ms * kMs, any_ms * kMs, seen_ms * kMs});
  };
  EXPECT_TRUE(dead(81, 41)) << "others heard";
  EXPECT_FALSE(dead(81, 40));
  EXPECT_FALSE(dead(160, 0));
  EXPECT_TRUE(dead(161, 0)) << "all may be dead";
}

TEST(Stall, TimeCountsAsSeenWhileSomethingComesByAnotherNic) {
  EXPECT_EQ(SeenNs(5 * kMs, 0), 5 * kMs);
  EXPECT_EQ(SeenNs(5 * kMs, 20 * kMs), 5 * kMs);
  EXPECT_EQ(SeenNs(5 * kMs, 21 * kMs), 0);
  EXPECT_EQ(SeenNs(50 * kMs, 0), 10 * kMs) << "this process was kept from looking";
}

TEST(Stall, IsSuspectedLongBefore) {
  EXPECT_EQ(SuspectAfterNs(Made(1, 0, 50)), 15 * kMs);
  EXPECT_EQ(SuspectAfterNs(Made(20, 5, 50)), 40 * kMs);
}

class Meter : public testing::Test {
 protected:
  void Send(uint32_t segments, uint32_t resent) {
    progress.segments += segments;
    progress.resent += resent;
    meter.Sample(progress, now_ns += 5 * kMs);
  }
  Progress progress;
  LossMeter meter;
  int64_t now_ns = 1000 * kMs;
};

TEST_F(Meter, OneInAHundredIsLossAndOneInAThousandIsNot) {
  for (int i = 0; i < 100; ++i) Send(1000, 1);
  EXPECT_FALSE(meter.lossy());
  for (int i = 0; i < 100; ++i) Send(1000, 10);
  EXPECT_TRUE(meter.lossy());
}

TEST_F(Meter, OneSegmentIsNoLossAndAllIsForgottenInTime) {
  Send(10, 1);
  EXPECT_FALSE(meter.lossy());
  Send(10, 1);
  EXPECT_TRUE(meter.lossy());
  for (int i = 0; i < 4000; ++i) Send(1, 0);
  EXPECT_FALSE(meter.lossy());
}

TEST_F(Meter, ALongHealthyPastHidesNoLossForLong) {
  for (int i = 0; i < 2000; ++i) Send(10, 0);
  for (int i = 0; i < 40; ++i) Send(10, i % 5 == 0 ? 1 : 0);
  EXPECT_TRUE(meter.lossy()) << "a fifth of a second later";
  meter.Forget();
  EXPECT_FALSE(meter.lossy());
}

TEST_F(Meter, WhatThePeerHadAlreadyIsNoLoss) {
  Send(10, 2);
  EXPECT_TRUE(meter.lossy());
  Send(10, static_cast<uint32_t>(-2));  // its word of that came
  EXPECT_FALSE(meter.lossy());
  Send(10, 2);
  EXPECT_TRUE(meter.lossy()) << "no credit for later";
}

}  // namespace
}  // namespace r2ccl
