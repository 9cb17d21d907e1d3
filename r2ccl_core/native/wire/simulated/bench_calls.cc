// Groups that call AllReduce without end, and what they lose.
#include "wire/simulated/bench_calls.h"

#include <algorithm>

#include "base/clock.h"

namespace r2ccl::simulated {
namespace {

constexpr int64_t kToTheEndNs = 3'600'000 * kMillisecond;
constexpr int64_t kCostBeginsNs = 15 * kMillisecond;
constexpr int64_t kCostEndsNs = 1000 * kMillisecond;  // after the failure, at the latest
constexpr size_t kCallsAfter = 6;
constexpr int64_t kEachForNs = 200 * kMillisecond;
constexpr int64_t kEachAfterNs = 500 * kMillisecond;  // the one before
constexpr int64_t kSickBeginsNs = 200 * kMillisecond;
constexpr int64_t kFoundNs = 150 * kMillisecond;
constexpr int64_t kSickForNs = 1000 * kMillisecond;
constexpr int64_t kSickBeforeNs = 400 * kMillisecond;
constexpr int64_t kReturnNs = 300 * kMillisecond;
constexpr int64_t kWellForNs = 800 * kMillisecond;
constexpr int64_t kWellSmallNs = 2000 * kMillisecond;
constexpr int64_t kSlowBeginsNs = 1000 * kMillisecond;
constexpr int64_t kSlowForNs = 6000 * kMillisecond;
constexpr int64_t kLoadForNs = 2000 * kMillisecond;
constexpr double kBytesOfCall = 1 << 20;

// Without the state of a standard engine, which would be seeded for three numbers.
uint64_t Mixed(uint64_t seed, uint64_t which) {
  uint64_t word = (seed * 4 + which) * 0x9e3779b97f4a7c15u;
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
  return word ^ word >> 27;
}

Scenario Ring(uint64_t seed, int hosts, int rails, double bytes_per_ns, size_t bytes = 1 << 20) {
  Scenario made;
  made.seed = seed;
  made.hosts = hosts;
  made.rails = rails;
  made.bytes_per_ns = bytes_per_ns;
  made.segment_bytes = 8192;
  made.program_polls = true;
  made.params.inline_bytes = 12288;
  made.params.io_threads = made.params.stripes = 1;
  made.ring.calls = INT64_MAX;
  made.ring.elements = static_cast<int64_t>(bytes / 4);
  made.ring.lanes = 4;
  made.ring.sums = made.ring.homes = true;
  return made;
}

TroubleEvent OfANic(const NamedTrouble& trouble, uint64_t seed, const Scenario& group, int64_t begins_ns,
                    int64_t spread_ns) {
  TroubleEvent event{.kind = trouble.kind, .lasts_ns = kToTheEndNs, .amount = trouble.amount};
  event.host = static_cast<int>(Mixed(seed, 1) % static_cast<uint64_t>(group.hosts));
  event.rail = static_cast<int>(Mixed(seed, 2) % static_cast<uint64_t>(group.rails));
  event.at_ns = begins_ns + static_cast<int64_t>(Mixed(seed, 3) % static_cast<uint64_t>(spread_ns));
  return event;
}

double TookMs(const CallRecord& call) { return static_cast<double>(call.ended_ns - call.began_ns) / kMillisecond; }

// Calls per second in that time.
double CallsIn(const Outcome& outcome, int64_t begin_ns, int64_t end_ns) {
  double calls = 0;
  for (const CallRecord& call : outcome.calls) {
    int64_t inside_ns = std::min(end_ns, call.ended_ns) - std::max(begin_ns, call.began_ns);
    calls += std::max(0.0, static_cast<double>(inside_ns)) / static_cast<double>(call.ended_ns - call.began_ns);
  }
  return calls / static_cast<double>(end_ns - begin_ns) * 1e9;
}

double CallsBetween(const Scenario& scenario, int64_t begin_ns, int64_t end_ns, std::string* wrong) {
  Outcome outcome = WatchScenario(scenario, end_ns, 1, end_ns + kMillisecond * 2000);
  if (!outcome.wrong.empty()) *wrong = outcome.wrong;
  return CallsIn(outcome, begin_ns, end_ns);
}

// By how much the longest of the calls that some of the time from `from_ns` to `to_ns` belongs to took longer than
// those before `first_ns`.
double LongestBeyondMs(const Outcome& outcome, int64_t first_ns, int64_t from_ns, int64_t to_ns, std::string* wrong) {
  std::vector<double> before;
  double longest = 0;
  for (const CallRecord& call : outcome.calls) {
    if (call.ended_ns <= first_ns) before.push_back(TookMs(call));
    if (call.ended_ns > from_ns && call.began_ns < to_ns) longest = std::max(longest, TookMs(call));
  }
  if (before.empty() || longest == 0) {
    *wrong = "no call ended";
    return 0;
  }
  std::sort(before.begin(), before.end());
  return longest - before[before.size() / 2];
}

}  // namespace

Scenario CallsWith(const NamedTrouble& trouble, int hosts, uint64_t seed) {
  Scenario made = Ring(seed, hosts, 4, 0.5);
  if (hosts == 2) {
    made.ring.lanes = 8;
    made.bucket_bytes = 1e6;
  }
  made.program_polls = Mixed(seed, 0) % 4 != 0;
  made.troubles = {OfANic(trouble, seed, made, kCostBeginsNs, 10 * kMillisecond)};
  return made;
}

std::vector<CallGroup> CallGroups() {
  return {{"", 1 << 20, 2, 0.025},
          {"64KiB_", 64 << 10, 3, 0.0625},
          {"256KiB_", 256 << 10, 3, 0.0625},
          {"8MiB_", 8 << 20, 3, 0.0625}};
}

Scenario CallsOf(const CallGroup& group, const NamedTrouble& trouble, uint64_t seed) {
  Scenario made = Ring(seed, 3, group.rails, group.bytes_per_ns, group.bytes);
  made.segment_bytes = 1448;       // of which test packets say little about the rate
  made.bucket_bytes = 128 * 1024;  // nor does a single chunk
  made.troubles = {OfANic(trouble, seed, made, kSickBeginsNs, 50 * kMillisecond)};
  return made;
}

std::vector<CallGroup> HealthyGroups() {
  return {{"64KiB_2x100_", 64 << 10, 2, 0.0125},   {"64KiB_2x200_", 64 << 10, 2, 0.025},
          {"64KiB_3x100_", 64 << 10, 3, 0.0125},   {"64KiB_3x500_", 64 << 10, 3, 0.0625},
          {"64KiB_4x100_", 64 << 10, 4, 0.0125},   {"256KiB_2x200_", 256 << 10, 2, 0.025},
          {"256KiB_2x500_", 256 << 10, 2, 0.0625}, {"256KiB_3x100_", 256 << 10, 3, 0.0125}};
}

double CallsWhileWell(const CallGroup& group, const NamedTrouble& trouble, uint64_t seed, std::string* wrong) {
  Scenario scenario = CallsOf(group, trouble, seed);
  if (seed % 2 != 0) scenario.bucket_bytes = 0;
  scenario.troubles[0].at_ns = kSickBeginsNs;
  int64_t begin_ns = kSickBeginsNs + kFoundNs;
  return CallsBetween(scenario, begin_ns, begin_ns + kWellSmallNs, wrong);
}

std::vector<NamedTrouble> Failures() {
  return {{"link_down", Trouble::kLinkDown},
          {"black_hole", Trouble::kBlackHole},
          {"black_hole_out", Trouble::kBlackOut},
          {"black_hole_in", Trouble::kBlackIn},
          {"large_packets_lost", Trouble::kLargeOnly}};
}

double CostMs(const NamedTrouble& failure, int hosts, uint64_t seed, std::string* wrong) {
  Scenario scenario = CallsWith(failure, hosts, seed);
  int64_t at_ns = scenario.troubles[0].at_ns;
  Outcome outcome = WatchScenario(scenario, at_ns, kCallsAfter, at_ns + kCostEndsNs);
  if (!outcome.wrong.empty()) *wrong = outcome.wrong;
  return LongestBeyondMs(outcome, at_ns, at_ns, INT64_MAX, wrong);
}

std::vector<double> CostsInARowMs(int hosts, const NamedTrouble& failure, uint64_t seed, std::string* wrong) {
  Scenario scenario = CallsWith(failure, hosts, seed);
  scenario.params.flap_suppress = 1'000'000;
  scenario.troubles.clear();
  for (int i = 0; i < kInARow; ++i) {
    int64_t begins_ns = kCostBeginsNs + i * kEachAfterNs;
    uint64_t each = seed * kInARow + static_cast<uint64_t>(i);
    TroubleEvent event = OfANic(failure, each, scenario, begins_ns, 10 * kMillisecond);
    event.lasts_ns = kEachForNs;
    scenario.troubles.push_back(event);
  }
  int64_t first_ns = scenario.troubles.front().at_ns;
  int64_t end_ns = scenario.troubles.back().at_ns + kEachForNs;
  Outcome outcome = WatchScenario(scenario, end_ns, kCallsAfter, end_ns + kCostEndsNs);
  if (!outcome.wrong.empty()) *wrong = outcome.wrong;
  std::vector<double> costs;
  for (const TroubleEvent& event : scenario.troubles) {
    costs.push_back(LongestBeyondMs(outcome, first_ns, event.at_ns, event.at_ns + kEachForNs, wrong));
  }
  return costs;
}

std::vector<NamedTrouble> Sicknesses() {
  return {{"dead", Trouble::kLinkDown},
          {"black_hole", Trouble::kBlackHole},
          {"black_hole_out", Trouble::kBlackOut},
          {"black_hole_in", Trouble::kBlackIn},
          {"large_packets_lost", Trouble::kLargeOnly},
          {"lossy_1_percent", Trouble::kLoss, 0.01},
          {"lossy_20_percent", Trouble::kLoss, 0.2},
          {"lossy_50_percent", Trouble::kLoss, 0.5},
          {"bursts_1_percent", Trouble::kBursts, 0.01},
          {"bursts_3_percent", Trouble::kBursts, 0.03},
          {"at_a_half", Trouble::kSlow, 0.5},
          {"at_a_tenth", Trouble::kSlow, 0.1},
          {"at_a_hundredth", Trouble::kSlow, 0.01},
          {"delayed_10_ms", Trouble::kDelay, 10},
          {"delayed_60_ms", Trouble::kDelay, 60},
          {"reordered_10_ms", Trouble::kReordering, 10}};
}

double CallsPerSecond(const CallGroup& group, const NamedTrouble& sickness, uint64_t seed, std::string* wrong) {
  Scenario scenario = CallsOf(group, sickness, seed);
  int64_t begin_ns = scenario.troubles[0].at_ns + kFoundNs;
  return CallsBetween(scenario, begin_ns, begin_ns + kSickForNs, wrong);
}

std::vector<NamedTrouble> Repaired() {
  return {{"healthy", Trouble::kSlow, 1},
          {"dead", Trouble::kLinkDown},
          {"black_hole", Trouble::kBlackHole},
          {"lossy_20_percent", Trouble::kLoss, 0.2},
          {"lossy_50_percent", Trouble::kLoss, 0.5},
          {"bursts_1_percent", Trouble::kBursts, 0.01},
          {"at_a_tenth", Trouble::kSlow, 0.1}};
}

double CallsAfterRepair(const NamedTrouble& sickness, uint64_t seed, std::string* wrong) {
  Scenario scenario = CallsOf(CallGroups().front(), sickness, seed);
  TroubleEvent& trouble = scenario.troubles[0];
  trouble.lasts_ns = kSickBeforeNs;
  int64_t begin_ns = trouble.at_ns + kSickBeforeNs + kReturnNs;
  return CallsBetween(scenario, begin_ns, begin_ns + kWellForNs, wrong);
}

SlowShare ShareOfSlow(int mbit, uint64_t seed, std::string* wrong) {
  constexpr int kHosts = 3;
  constexpr int kRails = 3;
  constexpr double kPayload = 1448.0 / (1448 + 64);
  Scenario scenario = Ring(seed, kHosts, kRails, mbit / 8e3);
  scenario.segment_bytes = 1448;
  scenario.bucket_bytes = seed % 2 == 0 ? 128 * 1024 : 0;
  int64_t end_ns = kSlowBeginsNs + kSlowForNs;
  Outcome outcome = WatchScenario(scenario, end_ns, 1, end_ns + kMillisecond * 2000);
  if (!outcome.wrong.empty()) *wrong = outcome.wrong;
  double carried = kBytesOfCall * 2 * (kHosts - 1) / kHosts;
  double most = mbit * 1e6 / 8 * kPayload * kRails / carried;
  return {CallsIn(outcome, kSlowBeginsNs, end_ns) / most, outcome.lost_paths, outcome.replayed_chunks};
}

std::vector<int> SlowRates() { return {5, 10, 20, 40, 100}; }

std::vector<Load> Loads() {
  return {{"healthy"},           {"healthy_homes", false, false, true}, {"others", true},
          {"busy", false, true}, {"others_and_busy", true, true},       {"others_homes", true, false, true}};
}

Alarms AlarmsUnder(const Load& load, uint64_t seed, std::string* wrong) {
  constexpr double kOthers = 0.95;
  constexpr uint64_t kNeverExtended = 8;  // see CheckCarries in explore.cc
  int hosts = 2 + static_cast<int>(Mixed(seed, 0) % 3);
  int rails = 2 + static_cast<int>(Mixed(seed, 1) % 3);
  Scenario scenario = Ring(seed * kNeverExtended + 1, hosts, rails, Mixed(seed, 2) % 2 == 0 ? 0.025 : 0.0625);
  if (Mixed(seed, 3) % 2 == 0) scenario.segment_bytes = 1448;
  scenario.bucket_bytes = seed % 2 == 0 ? 128 * 1024 : 0;
  scenario.program_polls = seed % 3 != 0;
  scenario.ring.homes = load.homes;
  double sent_by_call = kBytesOfCall * 2 * (hosts - 1);  // by all hosts
  double left = scenario.bytes_per_ns * (load.others ? 1 - kOthers : 1) * rails * hosts;
  scenario.ring.calls = 1 + static_cast<int64_t>(static_cast<double>(kLoadForNs) * left / sent_by_call);
  // None, but with it the rules for histories without any do not end what is to be counted.
  scenario.troubles = {{Trouble::kSlow, 0, 0, 0, kToTheEndNs, 1}};
  for (int host = 0; host < hosts; ++host) {
    for (int rail = 0; rail < rails && load.others; ++rail) {
      scenario.troubles.push_back({Trouble::kCongestion, host, rail, 0, kToTheEndNs, kOthers});
    }
    auto draw_ns = [seed, host, drawn = uint64_t{0}](int64_t least_ns, int64_t most_ns) mutable {
      uint64_t chance = Mixed(Mixed(seed, static_cast<uint64_t>(host)), ++drawn);
      return least_ns + static_cast<int64_t>(chance % static_cast<uint64_t>(most_ns - least_ns));
    };
    for (int64_t at_ns = draw_ns(0, kMillisecond * 60); at_ns < kLoadForNs && load.busy;) {
      int64_t lasts_ns = draw_ns(kMillisecond, kMillisecond * 20);
      scenario.troubles.push_back({Trouble::kPause, host, 0, at_ns, lasts_ns, 0});
      at_ns += lasts_ns + draw_ns(kMillisecond, kMillisecond * 60);
    }
  }
  Outcome outcome = RunScenario(scenario);
  if (!outcome.wrong.empty()) *wrong = load.name + ", seed " + std::to_string(seed) + ": " + outcome.wrong;
  Alarms alarms;
  alarms.seconds = static_cast<double>(outcome.virtual_ns) / 1e9;
  alarms.lost_paths = outcome.lost_paths;
  alarms.held_paths = outcome.held_paths;
  alarms.replayed_chunks = outcome.replayed_chunks;
  alarms.trial_chunks = outcome.trial_chunks;
  alarms.needed_bytes = static_cast<uint64_t>(sent_by_call) * static_cast<uint64_t>(scenario.ring.calls);
  alarms.sent_bytes = outcome.sent_bytes;
  return alarms;
}

}  // namespace r2ccl::simulated
