// The explorer itself: that one seed makes one history, and that it sees what it is there to see.
#include "wire/simulated/explore.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "wire/simulated/rdma_device.h"

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

// Its host answers at once that nobody listens: three ticks of 5 ms at most, and round trips.
TEST(Explore, AProcessThatIsKilledIsMissedWithinTwentyMilliseconds) {
  Scenario scenario = TwoHosts();
  scenario.flows[0].sizes = scenario.flows[1].sizes = std::vector<uint64_t>(500, 50'000);
  for (int64_t at_ms = 60; at_ms < 80; ++at_ms) {
    scenario.troubles = {{.kind = Trouble::kKill, .at_ns = at_ms * kMillisecond}};
    Outcome outcome = RunScenario(scenario, true);
    EXPECT_EQ(outcome.wrong, "");
    EXPECT_GT(outcome.virtual_ns, at_ms * kMillisecond) << "it was in the middle of its work";
    EXPECT_LT(outcome.virtual_ns, (at_ms + 20) * kMillisecond) << outcome.log;
  }
}

Scenario ByRdma(const std::string& transport) {
  Scenario scenario = TwoHosts();
  scenario.params.transport = transport;
  scenario.params.give_up_ms = 5000;
  // Beyond the time in which it goes over, and until a silent path is given up.
  scenario.flows[0].sizes = std::vector<uint64_t>(250, 20'000);
  scenario.flows[0].pause_ns = 1'000'000;
  return scenario;
}

TEST(Explore, RdmaCarriesWhatTcpBegan) {
  for (const char* transport : {"auto", "verbs"}) {
    Outcome outcome = RunScenario(ByRdma(transport), true);
    EXPECT_EQ(outcome.wrong, "") << transport << "\n" << outcome.log;
    EXPECT_EQ(outcome.messages, 254u);
    EXPECT_EQ(outcome.lost_paths, 0u) << transport << "\n" << outcome.log;
    EXPECT_GT(outcome.rdma_bytes, 2'000'000u) << transport;
  }
}

TEST(Explore, RdmaThatBreaksInAnyWayLosesNothing) {
  for (const char* transport : {"auto", "verbs"}) {
    for (auto [kind, amount] : {std::pair{Trouble::kRdmaDropped, 0.0},
                                {Trouble::kRdmaLate, 300.0},
                                {Trouble::kRdmaCompletions, 0.5},
                                {Trouble::kRdmaGone, 0.0},
                                {Trouble::kLinkDown, 0.0},
                                {Trouble::kBlackIn, 0.0}}) {
      Scenario scenario = ByRdma(transport);
      scenario.troubles = {{.kind = kind, .at_ns = 20'000'000, .lasts_ns = 400'000'000, .amount = amount}};
      Outcome outcome = RunScenario(scenario, true);
      EXPECT_EQ(outcome.wrong, "") << transport << " " << ToString(kind) << "\n" << outcome.log;
      EXPECT_EQ(outcome.messages, 254u) << transport << " " << ToString(kind);
      EXPECT_GT(outcome.lost_paths, 0u) << transport << " " << ToString(kind) << ": it was met";
    }
  }
}

Scenario ByWrites(const std::string& transport) {
  Scenario scenario = ByRdma(transport);
  scenario.params.zero_copy_bytes = 1000;
  scenario.params.eager_bytes = scenario.params.buffered_bytes = 0;  // each finds its receive
  for (Flow& flow : scenario.flows) flow.registers_sends = flow.registers_receives = true;
  return scenario;
}

TEST(Explore, RegisteredMemoryIsWrittenToWithoutACopy) {
  for (const char* transport : {"auto", "verbs"}) {
    Outcome outcome = RunScenario(ByWrites(transport), true);
    EXPECT_EQ(outcome.wrong, "") << transport << "\n" << outcome.log;
    EXPECT_EQ(outcome.lost_paths, 0u) << transport << "\n" << outcome.log;
    EXPECT_GT(outcome.written_bytes, outcome.rdma_bytes * 8 / 10) << transport;
  }
  Scenario copied = ByWrites("verbs");
  copied.flows[0].registers_receives = copied.flows[1].registers_sends = false;
  EXPECT_EQ(RunScenario(copied).written_bytes, 0u);
}

TEST(Explore, WritesThatBreakInAnyWayLoseNothing) {
  for (auto [kind, amount] : {std::pair{Trouble::kRdmaDropped, 0.0},
                              {Trouble::kRdmaLate, 300.0},
                              {Trouble::kRdmaCompletions, 0.5},
                              {Trouble::kRdmaGone, 0.0},
                              {Trouble::kLinkDown, 0.0},
                              {Trouble::kBlackIn, 0.0}}) {
    for (int64_t at_ns = 20'000'000; at_ns < 22'000'000; at_ns += 100'000) {
      Scenario scenario = ByWrites("verbs");
      scenario.troubles = {{.kind = kind, .at_ns = at_ns, .lasts_ns = 400'000'000, .amount = amount}};
      Outcome outcome = RunScenario(scenario, true);
      EXPECT_EQ(outcome.wrong, "") << ToString(kind) << " at " << at_ns << "\n" << outcome.log;
      EXPECT_EQ(outcome.messages, 254u) << ToString(kind);
    }
  }
}

// What was sent over a queue pair that is given up meanwhile comes when its ring is gone.
class LateMessage {
 public:
  LateMessage() {
    world_.SetReceiver(0, &hosts_[0]);
    world_.SetReceiver(1, &hosts_[1]);
    for (int host : {0, 1}) {
      EXPECT_TRUE(hosts_[host].device.Make(world_.port(host, 0).nic, shape_, 7, {}, &queues_[host]).ok());
    }
    EXPECT_TRUE(queues_[0]->Connect(queues_[1]->address()).ok());
    EXPECT_TRUE(queues_[1]->Connect(queues_[0]->address()).ok());
    EXPECT_TRUE(queues_[1]->PostReceive(1, 0).ok());
    world_.port(0, 0).out.rdma_delay_ns = 300'000'000;
    EXPECT_TRUE(queues_[0]->PostSend(1, 0, 256).ok());
  }
  // The sending end gives its own up in any case.
  std::string GiveUp(bool fence) {
    EXPECT_TRUE(queues_[0]->Fence().ok());
    queues_[0].reset();
    if (fence) {
      EXPECT_TRUE(queues_[1]->Fence().ok());
    }
    queues_[1].reset();
    world_.RunUntil(world_.Now() + 1'000'000'000);
    return world_.broken();
  }

 private:
  struct Host final : Receiver {
    Host(World* world, int host) : device(world, host, [](int) {}) {}
    void Take(const Packet& packet, int nic) override { device.Take(packet, nic); }
    void OnLink(int, bool) override {}
    RdmaDevice device;
  };
  World world_{1, 2, 1};
  Host hosts_[2] = {{&world_, 0}, {&world_, 1}};
  const RcShape shape_{4, 512, 4, 512};
  std::unique_ptr<RcQueue> queues_[2];
};

TEST(Explore, ALateMessageLandsUnlessItsQueueWasFenced) {
  EXPECT_EQ(LateMessage().GiveUp(true), "");
  EXPECT_EQ(LateMessage().GiveUp(false), "a late message landed in memory that was given back");
}

// The ghost: the transfer has ended over the other rail, the program has its buffer back and uses it, and then the
// write of the first rail comes.
class LateWrite {
 public:
  LateWrite() {
    for (int host : {0, 1}) {
      world_.SetReceiver(host, &hosts_[host]);
      EXPECT_TRUE(hosts_[host].device.Make(world_.port(host, 0).nic, shape_, 7, {}, &queues_[host]).ok());
      hosts_[host].device.AddMemory(memory_[host].data(), memory_[host].size());
    }
    EXPECT_TRUE(queues_[0]->Connect(queues_[1]->address()).ok());
    EXPECT_TRUE(queues_[1]->Connect(queues_[0]->address()).ok());
    world_.port(0, 0).out.rdma_delay_ns = 300'000'000;
    RcKeys from, to;
    EXPECT_TRUE(queues_[0]->Find(memory_[0].data(), kBytes, &from));
    EXPECT_TRUE(queues_[1]->Find(memory_[1].data(), kBytes, &to));
    EXPECT_TRUE(queues_[0]
                    ->PostWrite(1, memory_[0].data(), kBytes, from.local,
                                reinterpret_cast<uintptr_t>(memory_[1].data()), to.remote)
                    .ok());
  }
  // The sending end gives its own up in any case. Whether the receiving program's bytes are what it left there.
  bool IsIntact(bool fence) {
    EXPECT_TRUE(queues_[0]->Fence().ok());
    queues_[0].reset();
    if (fence) {
      EXPECT_TRUE(queues_[1]->Fence().ok());
    }
    std::fill(memory_[1].begin(), memory_[1].end(), 's');
    world_.RunUntil(world_.Now() + 1'000'000'000);
    EXPECT_EQ(world_.broken(), "");
    bool intact = std::all_of(memory_[1].begin(), memory_[1].end(), [](char byte) { return byte == 's'; });
    EXPECT_TRUE(queues_[1]->Fence().ok());
    return intact;
  }
  // The same where the memory is deregistered.
  std::string GiveBack() {
    hosts_[1].device.DropMemory(memory_[1].data(), kBytes);
    world_.RunUntil(world_.Now() + 1'000'000'000);
    EXPECT_TRUE(queues_[0]->Fence().ok());
    EXPECT_TRUE(queues_[1]->Fence().ok());
    return world_.broken();
  }

 private:
  struct Host final : Receiver {
    Host(World* world, int host) : device(world, host, [](int) {}) {}
    void Take(const Packet& packet, int nic) override { device.Take(packet, nic); }
    void OnLink(int, bool) override {}
    RdmaDevice device;
  };
  static constexpr size_t kBytes = 65536;
  World world_{1, 2, 1};
  Host hosts_[2] = {{&world_, 0}, {&world_, 1}};
  const RcShape shape_{4, 512, 4, 512, 4};
  std::vector<char> memory_[2] = {std::vector<char>(kBytes, 'x'), std::vector<char>(kBytes, '-')};
  std::unique_ptr<RcQueue> queues_[2];
};

TEST(Explore, ALateWriteDestroysABufferUnlessTheReceivingQueueWasFenced) {
  EXPECT_TRUE(LateWrite().IsIntact(true));
  EXPECT_FALSE(LateWrite().IsIntact(false)) << "that the sending end has destroyed its own does not help";
  EXPECT_EQ(LateWrite().GiveBack(), "a late write lands in a buffer whose receive is over");
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
