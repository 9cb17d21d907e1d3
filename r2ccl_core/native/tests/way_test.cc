// Way: in virtual time, how long a way that was late carries nothing, and how many tests it is given.
#include "failover/way.h"

#include <random>
#include <utility>

#include "gtest/gtest.h"

namespace r2ccl {
namespace {

constexpr int64_t kTickNs = 5 * kMillisecond;

// One connection's ticks: a test that is due is made and, a tick later, judged. So is a trial, if it has `chunks`.
class Simulated {
 public:
  explicit Simulated(bool chunks = false, bool fast = true) : chunks_(chunks), fast_(fast) {}
  void Late() { probation_.Begin(now_ns_); }
  void Slow() { probation_.Begin(now_ns_, 3 * kMillisecond); }
  bool Excuse() { return probation_.Excuse(); }
  // `clean`: whether a test comes back clean. Returns how many were made.
  template <typename Clean>
  int Run(int64_t duration_ns, Clean clean) {
    int tests = 0;
    for (int64_t end_ns = now_ns_ + duration_ns; now_ns_ < end_ns; now_ns_ += kTickNs) {
      if (sent_ns_ != 0) clean() ? void(probation_.Pass(sent_ns_, now_ns_)) : probation_.Miss();
      sent_ns_ = 0;
      if (std::exchange(tried_, false)) fast_ ? void(probation_.Prove(now_ns_)) : probation_.Miss();
      if (chunks_ && probation_.TakeTrial(now_ns_)) {
        tried_ = true;
        ++trials_;
      }
      if (!probation_.TakeTest(now_ns_)) continue;
      sent_ns_ = now_ns_;
      ++tests;
    }
    return tests;
  }
  // For how long it stays on probation while all tests are clean.
  int64_t UntilTrusted() {
    int64_t begin_ns = now_ns_;
    while (on()) Run(kTickNs, [] { return true; });
    return now_ns_ - begin_ns;
  }
  bool on() const { return probation_.on(); }
  int trials() const { return trials_; }
  Probation& probation() { return probation_; }

 private:
  const bool chunks_;
  const bool fast_;
  bool tried_ = false;
  int trials_ = 0;
  Probation probation_;
  int64_t now_ns_ = 1'000'000'000'000;
  int64_t sent_ns_ = 0;
};

constexpr auto kClean = [] { return true; };
constexpr auto kLost = [] { return false; };

TEST(Probation, AFalseAlarmCostsMilliseconds) {
  Simulated way;
  EXPECT_FALSE(way.on());
  way.Late();
  EXPECT_TRUE(way.on());
  EXPECT_LE(way.UntilTrusted(), 2 * kTickNs);
  way.Run(60'000 * kMillisecond, kClean);
  way.Late();
  EXPECT_LE(way.UntilTrusted(), 2 * kTickNs) << "nobody remembers the first";
}

constexpr double kDrain = 0.5;  // bytes a nanosecond: 4 Gbit/s

// Carries `share` of what the NIC drains for 200 ms; whether it works then.
bool WorksAt(double share) {
  Carried carried;
  int64_t now_ns = 1'000'000'000'000;
  for (int tick = 0; tick < 40; ++tick, now_ns += kTickNs) {
    carried.Add(static_cast<uint64_t>(share * kDrain * static_cast<double>(kTickNs)), now_ns, now_ns);
  }
  return carried.WorksUntilNs(kDrain, kMillisecond, now_ns) > 0;
}

TEST(Carried, AWayThatThreeSendersShareWorksAndASickOneDoesNot) {
  EXPECT_TRUE(WorksAt(1));
  EXPECT_TRUE(WorksAt(1.0 / 3));
  EXPECT_FALSE(WorksAt(0.01));
  EXPECT_FALSE(WorksAt(0));
}

TEST(Carried, WhatFallsSilentDoesNotWorkAndNobodyKnowsWhatAnUnknownNicCarries) {
  Carried carried;
  int64_t now_ns = 1'000'000'000'000;
  int64_t acked_ns = 0;
  for (int tick = 0; tick < 40; ++tick, now_ns += kTickNs) {
    acked_ns = now_ns - kTickNs / 2;
    carried.Add(5'000'000, acked_ns, now_ns);
  }
  EXPECT_EQ(carried.WorksUntilNs(kDrain, kMillisecond, now_ns), acked_ns + 2 * kTickNs) << "before anything is late";
  EXPECT_EQ(carried.WorksUntilNs(kDrain, kMillisecond, acked_ns + 2 * kTickNs), 0);
  EXPECT_EQ(carried.WorksUntilNs(0, kMillisecond, now_ns), 0);
  EXPECT_EQ(carried.WorksUntilNs(kDrain, 30 * kMillisecond, now_ns + 2 * kTickNs), acked_ns + 30 * kMillisecond)
      << "answers take as long there";
}

TEST(Probation, WhoIsLateAgainAndAgainHasToBeCleanForLongerButNotForEver) {
  Simulated way;
  int64_t last_ns = 0;
  for (int i = 0; i < 10; ++i) {
    way.Late();
    int64_t took_ns = way.UntilTrusted();
    EXPECT_GE(took_ns, last_ns) << i;
    EXPECT_LE(took_ns, 700 * kMillisecond) << i;
    last_ns = took_ns;
    way.Run(30 * kMillisecond, kClean);
  }
  EXPECT_GE(last_ns, 600 * kMillisecond);
}

TEST(Probation, AfterItIsWellItIsTrustedWithinASecond) {
  for (int sick_ms : {100, 1000, 60000}) {
    Simulated way;
    for (int i = 0; i < 5; ++i) {
      way.Late();
      way.UntilTrusted();
    }
    way.Late();
    way.Run(sick_ms * kMillisecond, kLost);
    EXPECT_TRUE(way.on());
    EXPECT_LE(way.UntilTrusted(), 800 * kMillisecond) << sick_ms;
  }
}

TEST(Probation, ASlowWayThatPassesAllTestsStaysAsItFailsEachTrial) {
  Simulated way(true, false);
  way.Late();
  way.UntilTrusted();
  EXPECT_EQ(way.trials(), 0) << "the first time a clean test is enough";
  way.Late();
  way.Run(10'000 * kMillisecond, kClean);
  EXPECT_TRUE(way.on());
  EXPECT_GE(way.trials(), 10) << "or its recovery would go unnoticed";
}

TEST(Probation, ATrialEndsARepeatedOneAndWithoutAChunkItEndsAllTheSame) {
  for (bool chunks : {true, false}) {
    Simulated way(chunks);
    way.Late();
    way.UntilTrusted();
    way.Late();
    EXPECT_LE(way.UntilTrusted(), 200 * kMillisecond);
    EXPECT_EQ(way.trials(), chunks ? 1 : 0);
  }
}

TEST(Probation, OneForSlownessNeedsATrialTheFirstTime) {
  Simulated well(true);
  well.Slow();
  EXPECT_EQ(well.probation().slow_ns(), 3 * kMillisecond);
  EXPECT_FALSE(well.probation().grave()) << "it may be excused at once";
  int64_t took_ns = well.UntilTrusted();
  EXPECT_GE(took_ns, 25 * kMillisecond);
  EXPECT_LE(took_ns, 200 * kMillisecond);
  EXPECT_EQ(well.trials(), 1);
  EXPECT_EQ(well.probation().slow_ns(), 0);
  Simulated still_slow(true, false);
  still_slow.Slow();
  still_slow.Run(5'000 * kMillisecond, kClean);
  EXPECT_TRUE(still_slow.on());
  EXPECT_TRUE(still_slow.probation().grave());
}

TEST(Probation, OnlyOneForSlownessIsExcusedAndNothingIsRememberedOfIt) {
  Simulated way(true);
  way.Slow();
  EXPECT_TRUE(way.Excuse());
  EXPECT_FALSE(way.on());
  EXPECT_FALSE(way.Excuse());
  way.Late();
  EXPECT_EQ(way.probation().needed_ns(), 0) << "as for the first time";
  EXPECT_FALSE(way.Excuse());
  EXPECT_TRUE(way.on());
}

// Load makes the others lose packets too.
TEST(Probation, OneForLossesIsNotExcused) {
  Probation probation;
  probation.Begin(1, 3 * kMillisecond, true);
  EXPECT_EQ(probation.slow_ns(), 3 * kMillisecond);
  EXPECT_EQ(probation.excusable_ns(), 0);
  EXPECT_FALSE(probation.Excuse());
  EXPECT_TRUE(probation.on());
}

TEST(Probation, AFirstOneOfWhichATestFailedNeedsATrialToo) {
  Simulated way(true);
  way.Late();
  way.Run(2 * kTickNs, kLost);
  EXPECT_LE(way.UntilTrusted(), 200 * kMillisecond);
  EXPECT_EQ(way.trials(), 1);
  Simulated slow(true, false);
  slow.Late();
  slow.Run(2 * kTickNs, kLost);
  slow.Run(5'000 * kMillisecond, kClean);
  EXPECT_TRUE(slow.on());
}

// Losses in bursts are found sooner, and a healed pair is back sooner.
TEST(Probation, CleanTestsFollowEachOtherFasterThanThoseThatFail) {
  auto tests_in = [](auto clean) {
    Simulated way;
    for (int i = 0; i < 4; ++i) {
      way.Late();
      way.UntilTrusted();
    }
    way.Late();
    return way.Run(400 * kMillisecond, clean);
  };
  EXPECT_GE(tests_in(kClean), 35);
  EXPECT_LE(tests_in(kLost), 7);
}

// The connection that took it ends.
TEST(Probation, ATrialThatNobodyReportsIsNotAwaitedForEver) {
  Simulated way;
  way.Late();
  way.UntilTrusted();
  way.Late();
  while (!way.probation().wants_trial()) way.Run(kTickNs, kClean);
  EXPECT_TRUE(way.probation().TakeTrial(1'000'000'000'000));
  EXPECT_FALSE(way.probation().TakeTrial(1'000'000'000'000)) << "one at a time";
  EXPECT_LE(way.UntilTrusted(), 700 * kMillisecond);
}

TEST(Probation, AWayThatStaysSickCarriesNothingAndIsTestedTenTimesASecond) {
  Simulated way;
  way.Late();
  int tests = way.Run(60'000 * kMillisecond, kLost);
  EXPECT_TRUE(way.on());
  EXPECT_LE(tests, 660);
  EXPECT_GE(tests, 540);
}

// However many connections ask: 64 packets of test in 25 ms at most.
TEST(Probation, AllConnectionsShareTheTests) {
  Probation probation;
  probation.Begin(1);
  int tests = 0;
  for (int64_t now_ns = 1; now_ns <= 1000 * kMillisecond; now_ns += kTickNs) {
    for (int connection = 0; connection < 50; ++connection) tests += probation.TakeTest(now_ns) ? 1 : 0;
  }
  EXPECT_LE(tests, 41);
}

// What part of a minute a way carries data that loses each packet with some probability, where the first chunk after
// its return is always late.
TEST(Probation, AWayThatLosesPacketsIsSeldomTakenBack) {
  std::mt19937 random(7);
  auto lossy = [&random](double share) {
    return [&random, share] {
      for (int i = 0; i < kTestPackets; ++i) {
        if (std::uniform_real_distribution<>(0, 1)(random) < share) return false;
      }
      return true;
    };
  };
  for (double share : {0.05, 0.2, 0.5}) {
    Simulated way;
    way.Late();
    int returns = 0;
    for (int i = 0; i < 60'000 / 5; ++i) {
      way.Run(kTickNs, lossy(share));
      if (way.on()) continue;
      ++returns;
      way.Late();
    }
    EXPECT_LE(returns, 6) << share;
  }
}

TEST(Probation, IsToldOnceAndOnlyWhereItIsGrave) {
  Simulated way;
  way.Late();
  EXPECT_FALSE(way.probation().TakeNews());
  way.Run(50 * kMillisecond, kLost);
  EXPECT_TRUE(way.probation().TakeNews());
  EXPECT_FALSE(way.probation().TakeNews());
  way.UntilTrusted();
  EXPECT_FALSE(way.probation().grave());
  way.Late();
  EXPECT_TRUE(way.probation().TakeNews()) << "so soon again";
}

TEST(Probation, TestsOfOneThatIsOverSayNothing) {
  Probation probation;
  EXPECT_FALSE(probation.Pass(1, 2));
  probation.Miss();
  EXPECT_FALSE(probation.on());
  EXPECT_FALSE(probation.TakeTest(3));
}

TEST(Way, WhatIsUsualIsNotLate) {
  EXPECT_EQ(LateAfterNs(0, 0, 1), 22 * kMillisecond);
  EXPECT_EQ(LateAfterNs(5 * kMillisecond, 1e6, 0.1), 52 * kMillisecond) << "twice the round trip and the queue";
  EXPECT_GE(LateAfterNs(0, 0, 0), 60 * kMillisecond) << "nothing is known of the NIC";
  EXPECT_EQ(LateAfterNs(0, 1e6, 0, 1e-3), 62 * kMillisecond) << "it drained little lately, as it had little to do";
  EXPECT_EQ(LateAfterNs(0, 1e6, 0, 0.1), 42 * kMillisecond) << "it drains that at least";
}

TEST(Way, WhatIsSilentIsLateSoonerIfSomethingPassedJustBefore) {
  int64_t sent_ns = 1'000'000'000'000;
  EXPECT_EQ(SoonerNs(sent_ns, sent_ns, 0), 12 * kMillisecond);
  EXPECT_EQ(SoonerNs(sent_ns, sent_ns - kMillisecond / 2, 0), 8 * kMillisecond);
  EXPECT_EQ(SoonerNs(sent_ns, sent_ns - 2 * kMillisecond, 0), 0) << "a queue may have filled meanwhile";
  EXPECT_EQ(SoonerNs(sent_ns, sent_ns, 12 * kMillisecond), 0) << "the queue was long already";
  EXPECT_EQ(SoonerNs(sent_ns, 0, 0), 0) << "nothing ever passed";
  EXPECT_EQ(SoonerNs(sent_ns, sent_ns + 1, 0), 0) << "what was sent later has arrived: it is not silent";
}

TEST(Way, ATrialIsForNicsThatAreHalfAsFastAsTheBest) {
  for (int64_t best_ns : {int64_t{100'000}, 5 * kMillisecond, 50 * kMillisecond}) {
    EXPECT_LE(2 * best_ns, TrialLimitNs(best_ns));
  }
  EXPECT_LT(TrialLimitNs(5 * kMillisecond), 10 * 5 * kMillisecond) << "a tenth of the rate is too slow";
}

TEST(Way, IsSlowBesideTheBestOfTheOthers) {
  EXPECT_TRUE(IsSlow(2 * kMillisecond, kMillisecond / 10));
  EXPECT_FALSE(IsSlow(2 * kMillisecond, kMillisecond));
  EXPECT_FALSE(IsSlow(kMillisecond / 4, 10'000)) << "a busy processor explains that";
  EXPECT_FALSE(IsSlow(500 * kMillisecond, 0)) << "nobody knows how long others take";
}

TEST(Way, WhatTheOwnQueueExplainsIsNotSlow) {
  EXPECT_EQ(UnexplainedNs(3 * kMillisecond, 1e5, 0.05), kMillisecond) << "of two milliseconds' work";
  EXPECT_EQ(UnexplainedNs(kMillisecond, 1e5, 0.05), 0);
  EXPECT_EQ(UnexplainedNs(kMillisecond, 1e5, 0), 0) << "no rate is known";
  EXPECT_EQ(UnexplainedNs(kMillisecond, 0, 0), kMillisecond) << "what is copied counts for no queue";
}

TEST(Lasting, IsForSoLongMoreThanHalfOfTheTimeInWhichItIsNot) {
  constexpr int64_t kTickNs = 5 * kMillisecond;
  auto ticks = [](auto is, int64_t answer_ns, int64_t pause_ns) {
    Lasting lasting(60 * kMillisecond);
    for (int tick = 1; tick <= 1000; ++tick) {
      if (lasting.Note(is(tick), answer_ns, tick * pause_ns)) return tick;
    }
    return 0;
  };
  EXPECT_EQ(ticks([](int) { return true; }, kMillisecond, kTickNs), 12);
  EXPECT_EQ(ticks([](int tick) { return tick % 3 == 0; }, kMillisecond, kTickNs), 0);
  EXPECT_GT(ticks([](int tick) { return tick % 2 == 0; }, kMillisecond, kTickNs), 12);
  EXPECT_EQ(ticks([](int) { return true; }, kMillisecond, 200 * kMillisecond), 12) << "an answer says little";
  EXPECT_EQ(ticks([](int) { return true; }, 60 * kMillisecond, 200 * kMillisecond), 1) << "if it does not take long";
}

TEST(Excused, CoversTwiceAsMuchAndForgets) {
  Excused excused;
  EXPECT_FALSE(excused.Covers(1, kMillisecond));
  excused.Note(2 * kMillisecond, 1000 * kMillisecond);
  EXPECT_TRUE(excused.Covers(4 * kMillisecond, 1001 * kMillisecond));
  EXPECT_FALSE(excused.Covers(4 * kMillisecond + 1, 1001 * kMillisecond));
  EXPECT_FALSE(excused.Covers(4 * kMillisecond, 20'000 * kMillisecond));
  EXPECT_FALSE(excused.Covers(1, INT64_MAX / 2));
}

TEST(Way, OneThatHasJustComeUpSaysNothingOfHowFastTheOthersAre) {
  Elsewhere elsewhere;
  EXPECT_FALSE(elsewhere.lossy) << "there is no other";
  elsewhere.Add(3 * kMillisecond, 2 * kMillisecond, false);
  elsewhere.Add(0, 0, true);
  elsewhere.Add(5 * kMillisecond, kMillisecond, true);
  EXPECT_EQ(elsewhere.usual_ns, 3 * kMillisecond);
  EXPECT_EQ(elsewhere.answer_ns, kMillisecond);
  EXPECT_FALSE(elsewhere.lossy) << "one of them is well";
  Elsewhere new_first;
  new_first.Add(0, 0, false);
  new_first.Add(4 * kMillisecond, kMillisecond, true);
  EXPECT_EQ(new_first.usual_ns, 4 * kMillisecond);
  EXPECT_FALSE(new_first.lossy) << "one of them is well";
}

TEST(Way, IsTheSameForAllWhoAsk) {
  Ways ways;
  EXPECT_EQ(ways.Find(0, 1), ways.Find(0, 1));
  EXPECT_NE(ways.Find(0, 1), ways.Find(1, 1));
  EXPECT_NE(ways.Find(0, 1), ways.Find(0, 2));
  ways.Find(0, 1)->With([](Probation& probation) {
    probation.Begin(1);
    return 0;
  });
  EXPECT_TRUE(ways.Find(0, 1)->on_probation());
  EXPECT_FALSE(ways.Find(0, 2)->on_probation());
}

}  // namespace
}  // namespace r2ccl
