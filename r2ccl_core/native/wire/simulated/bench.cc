// The scenarios by their names: four hosts with three NICs of 2 Gbit/s, each sending to the next.
#include "wire/simulated/bench.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/clock.h"

namespace r2ccl::simulated {
namespace {

constexpr int64_t kBeginsNs = 10 * kMillisecond;
constexpr int64_t kForGoodNs = 3'600'000 * kMillisecond;

Scenario Group(uint64_t bytes, size_t count, uint64_t ahead, int connections = 1) {
  Scenario made;
  made.hosts = 4;
  made.rails = 3;
  made.bytes_per_ns = 0.25;
  made.segment_bytes = 8192;
  made.program_polls = true;
  made.params.inline_bytes = 12288;
  made.params.io_threads = made.params.stripes = 1;
  for (int i = 0; i < made.hosts * connections; ++i) {
    Flow flow;
    flow.from = i % made.hosts;
    flow.to = (i + 1) % made.hosts;
    flow.sizes.assign(count, bytes);
    flow.ahead = ahead;
    made.flows.push_back(std::move(flow));
  }
  return made;
}

Scenario Large() { return Group(1 << 20, 24, 4); }

Scenario With(Scenario scenario, const std::vector<TroubleEvent>& troubles) {
  scenario.troubles = troubles;
  return scenario;
}

TroubleEvent One(Trouble kind, double amount = 0, int host = 0, int rail = 0, int64_t lasts_ns = kForGoodNs) {
  return {.kind = kind, .host = host, .rail = rail, .at_ns = kBeginsNs, .lasts_ns = lasts_ns, .amount = amount};
}

Scenario Unequal() {
  Scenario made = Large();
  for (int host = 0; host < made.hosts; ++host) {
    made.troubles.push_back({Trouble::kSlow, host, 1, 0, kForGoodNs, 0.4});
    made.troubles.push_back({Trouble::kSlow, host, 2, 0, kForGoodNs, 0.7});
  }
  return made;
}

Scenario Flapping() {
  Scenario made = Large();
  for (int64_t at_ms = 10; at_ms < 600; at_ms += 60) {
    made.troubles.push_back({Trouble::kLinkDown, 0, 0, at_ms * kMillisecond, 15 * kMillisecond, 0});
  }
  return made;
}

// What a competing flow of so much of its rate leaves of every NIC. Of such a group: 1 MiB over three NICs of 200
// Mbit/s.
Scenario Competing(double share) {
  Scenario made = Group(1 << 20, 24, 4);
  made.bytes_per_ns = 0.025;
  made.segment_bytes = 1448;
  for (int host = 0; host < made.hosts; ++host) {
    for (int rail = 0; rail < made.rails; ++rail) {
      made.troubles.push_back({Trouble::kCongestion, host, rail, 0, kForGoodNs, share});
    }
  }
  return made;
}

}  // namespace

std::vector<NamedScenario> BenchScenarios() {
  return {
      {"healthy_large", Large()},
      {"healthy_medium", Group(64 * 1024, 200, 8)},
      {"healthy_small", Group(1024, 2000, 8)},
      {"ping_small", Group(8, 400, 1)},
      {"many_connections", Group(256 * 1024, 12, 4, 8)},
      {"unequal_nics", Unequal()},
      {"link_lost", With(Large(), {One(Trouble::kLinkDown)})},
      {"black_hole", With(Large(), {One(Trouble::kBlackHole)})},
      {"black_hole_small", With(Group(1024, 2000, 8), {One(Trouble::kBlackHole)})},
      {"black_hole_many", With(Group(256 * 1024, 12, 4, 8), {One(Trouble::kBlackHole)})},
      {"one_way", With(Large(), {One(Trouble::kBlackOut)})},
      {"large_packets_lost", With(Large(), {One(Trouble::kLargeOnly)})},
      {"at_a_tenth", With(Large(), {One(Trouble::kSlow, 0.1)})},
      {"at_a_hundredth", With(Large(), {One(Trouble::kSlow, 0.01)})},
      {"lossy_1_percent", With(Large(), {One(Trouble::kLoss, 0.01)})},
      {"lossy_20_percent", With(Large(), {One(Trouble::kLoss, 0.2)})},
      {"delayed_60_ms", With(Large(), {One(Trouble::kDelay, 60)})},
      {"other_rails", With(Large(), {One(Trouble::kLinkDown), One(Trouble::kLinkDown, 0, 1, 1)})},
      {"two_of_three_lost", With(Large(), {One(Trouble::kLinkDown), One(Trouble::kBlackHole, 0, 0, 1)})},
      {"back_after_50_ms", With(Large(), {One(Trouble::kBlackHole, 0, 0, 0, 50 * kMillisecond)})},
      {"flapping", Flapping()},
      {"half_is_somebody_elses", With(Large(), {One(Trouble::kCongestion, 0.5)})},
      {"all_is_somebody_elses", Competing(0.95)},
  };
}

double MedianMs(const Scenario& scenario, int repeats, std::string* wrong) {
  std::vector<double> took;
  for (int i = 0; i < repeats; ++i) {
    Scenario one = scenario;
    one.seed = static_cast<uint64_t>(i) + 1;
    Outcome outcome = RunScenario(one);
    if (!outcome.wrong.empty()) *wrong = outcome.wrong;
    took.push_back(static_cast<double>(outcome.virtual_ns) / 1e6);
  }
  std::sort(took.begin(), took.end());
  return took[took.size() / 2];
}

}  // namespace r2ccl::simulated
