// The explorer itself: that one seed makes one history, and that it sees what it is there to see.
#include "wire/simulated/explore.h"

#include <gtest/gtest.h>

namespace r2ccl::simulated {
namespace {

Scenario TwoHosts() {
  Scenario scenario;
  scenario.seed = 7;
  scenario.rails = 2;
  scenario.params.chunk_bytes = scenario.params.min_chunk_bytes = 4096;
  scenario.params.window_bytes = 65536;
  scenario.params.give_up_ms = 500;
  scenario.params.io_threads = scenario.params.stripes = 1;
  scenario.params.inline_bytes = 12288;
  scenario.flows = {{.from = 0, .to = 1, .sizes = std::vector<uint64_t>(20, 50'000), .ahead = 2},
                    {.from = 1, .to = 0, .sizes = {0, 1, 4096, 100'000}}};
  return scenario;
}

TroubleEvent Lasting(Trouble kind, int rail, double amount = 0) {
  return {.kind = kind, .host = 0, .rail = rail, .at_ns = 2'000'000, .lasts_ns = int64_t{1} << 50, .amount = amount};
}

TEST(Explore, OneSeedMakesOneHistory) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Outcome first = RunScenario(Draw(seed)), second = RunScenario(Draw(seed));
    EXPECT_EQ(first.wrong, "") << Describe(Draw(seed));
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_EQ(first.virtual_ns, second.virtual_ns) << "seed " << seed;
    EXPECT_EQ(first.replayed_chunks, second.replayed_chunks) << "seed " << seed;
  }
}

TEST(Explore, HealthyHostsLoseNothing) {
  Outcome outcome = RunScenario(TwoHosts());
  EXPECT_EQ(outcome.wrong, "");
  EXPECT_EQ(outcome.messages, 24u);
  EXPECT_EQ(outcome.lost_paths, 0u);
  EXPECT_EQ(outcome.replayed_chunks, 0u);
}

// Its kernel takes what comes, and its time to say so.
TEST(Explore, APausedProgramIsNoReasonToSendAnythingTwice) {
  for (int64_t at_ms = 1; at_ms <= 12; ++at_ms) {
    for (int host : {0, 1}) {
      Scenario scenario = TwoHosts();
      scenario.params.give_up_ms = 5000;
      scenario.troubles = {
          {.kind = Trouble::kPause, .host = host, .at_ns = at_ms * 1'000'000, .lasts_ns = 300'000'000}};
      Outcome outcome = RunScenario(scenario, true);
      EXPECT_EQ(outcome.wrong, "") << "host " << host << " paused after " << at_ms << " ms\n" << outcome.log;
      EXPECT_EQ(outcome.replayed_chunks, 0u) << "host " << host << " paused after " << at_ms << " ms\n" << outcome.log;
    }
  }
}

TEST(Explore, ALostRailIsReplacedByTheOther) {
  for (Trouble kind :
       {Trouble::kLinkDown, Trouble::kBlackHole, Trouble::kBlackOut, Trouble::kBlackIn, Trouble::kLargeOnly}) {
    Scenario scenario = TwoHosts();
    scenario.troubles = {Lasting(kind, 0)};
    Outcome outcome = RunScenario(scenario);
    EXPECT_EQ(outcome.wrong, "") << ToString(kind);
    EXPECT_EQ(outcome.messages, 24u) << ToString(kind);
    EXPECT_GT(outcome.lost_paths + outcome.replayed_chunks, 0u) << ToString(kind);  // it may be done before the verdict
  }
}

TEST(Explore, BytesThatAreChangedOnTheirWayAreSeen) {
  Scenario scenario = TwoHosts();
  scenario.troubles = {Lasting(Trouble::kCorruption, 0, 0.2), Lasting(Trouble::kCorruption, 1, 0.2)};
  EXPECT_NE(RunScenario(scenario).wrong, "") << "no sum protects them";
  scenario.params.checksum = 1;
  EXPECT_EQ(RunScenario(scenario).wrong.find("is wrong near byte"), std::string::npos) << "the sums do";
}

TEST(Explore, MessagesThatCannotArriveAreSeen) {
  Scenario scenario = TwoHosts();
  scenario.troubles = {Lasting(Trouble::kBlackHole, 0), Lasting(Trouble::kBlackHole, 1)};
  EXPECT_NE(RunScenario(scenario).wrong, "") << "nothing is left that could carry them";
}

TEST(Explore, AProcessThatEndsIsNoticed) {
  for (Trouble kind : {Trouble::kKill, Trouble::kPowerOff}) {
    Scenario scenario = TwoHosts();
    scenario.troubles = {Lasting(kind, 0)};
    EXPECT_EQ(RunScenario(scenario).wrong, "") << ToString(kind);
  }
}

TEST(Explore, WhatShrinksStillBreaks) {
  Scenario scenario = TwoHosts();
  scenario.troubles = {Lasting(Trouble::kBlackHole, 0), Lasting(Trouble::kDelay, 0, 1),
                       Lasting(Trouble::kBlackHole, 1)};
  Scenario least = Shrink(scenario);
  EXPECT_NE(RunScenario(least).wrong, "");
  EXPECT_EQ(least.troubles.size(), 2u) << Describe(least);
  EXPECT_EQ(least.flows.size(), 1u);
  EXPECT_LT(least.flows[0].sizes.size(), scenario.flows[0].sizes.size()) << Describe(least);
}

}  // namespace
}  // namespace r2ccl::simulated
