// Drawing scenarios, and telling of them.
#include <algorithm>
#include <iterator>
#include <random>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "wire/simulated/explore.h"

namespace r2ccl::simulated {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t Below(uint64_t limit) { return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random_); }
  int64_t Between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  bool OneIn(uint64_t count) { return Below(count) == 0; }
  template <typename T>
  T Of(std::initializer_list<T> choices) {
    return *(choices.begin() + static_cast<ptrdiff_t>(Below(choices.size())));
  }

 private:
  std::mt19937_64 random_;
};

uint64_t DrawSize(Dice& dice) {
  switch (dice.Below(6)) {
    case 0:
      return dice.Below(9);
    case 1:
      return dice.Below(1024);
    case 2:
      return 4096 * dice.Below(5);
    case 3:
      return dice.Below(dice.OneIn(4) ? 120'000 : 20'000);
    default:
      return dice.Below(10'000);
  }
}

TroubleEvent DrawTrouble(Dice& dice, const Scenario& scenario) {
  TroubleEvent event;
  bool ends_a_process = dice.OneIn(40);
  event.kind = ends_a_process ? dice.Of({Trouble::kKill, Trouble::kPowerOff})
                              : static_cast<Trouble>(dice.Below(static_cast<uint64_t>(Trouble::kKill)));
  event.host = static_cast<int>(dice.Below(static_cast<uint64_t>(scenario.hosts)));
  event.rail = static_cast<int>(dice.Below(static_cast<uint64_t>(scenario.rails)));
  event.at_ns = dice.Between(0, dice.Of({10, 40, 300}) * kMillisecond);
  event.lasts_ns =
      std::min(dice.Of({1, 20, 200, 600}) * dice.Between(kMillisecond / 2, kMillisecond), kTroubleEndsNs - event.at_ns);
  switch (event.kind) {
    case Trouble::kLoss:
      event.amount = 0.01 * static_cast<double>(dice.Of({1, 5, 20, 50, 90}));
      break;
    case Trouble::kBursts:
      event.amount = 0.01 * static_cast<double>(dice.Of({1, 3}));
      break;
    case Trouble::kDuplicates:
      event.amount = 0.3;
      break;
    case Trouble::kDelay:
    case Trouble::kReordering:
      event.amount = static_cast<double>(dice.Of({1, 10, 60, 300}));  // ms
      break;
    case Trouble::kSlow:
      event.amount = dice.Of({0.5, 0.1, 0.01});
      break;
    case Trouble::kCongestion:
      event.amount = dice.Of({0.5, 0.95});
      break;
    case Trouble::kCorruption:
      event.amount = scenario.params.checksum != 0 ? 0.05 : 0;
      break;
    default:
      break;
  }
  return event;
}

// Where nothing tries a NIC that has been slow (SendComm::TryWays), its known rate has to grow by itself: one history
// in 128 has such a NIC (DrawLoad), and writes by RDMA.
bool IsUntried(const Scenario& scenario) { return scenario.seed % 128 == 24 && scenario.rails > 1; }

// Of most of them some go straight from memory to memory.
void DrawWrites(Scenario* scenario) {
  Dice dice(scenario->seed ^ 0x5752'4954);
  if (dice.OneIn(4) && !IsUntried(*scenario)) return;
  Params& params = scenario->params;
  params.zero_copy_bytes = dice.Of<int64_t>({1, 2000, 8000});
  bool large = dice.OneIn(3);  // several writes each
  if (large) {
    params.chunk_bytes = 131072;
    params.min_chunk_bytes = dice.Of<int64_t>({4096, 65536});
    if (params.zero_copy_bytes == 2000) params.zero_copy_bytes = Params().zero_copy_bytes;
  }
  for (Flow& flow : scenario->flows) {
    flow.registers_sends = !dice.OneIn(4);
    flow.registers_receives = !dice.OneIn(4);
    for (uint64_t i = dice.Below(large ? 3 : 1); i > 0; --i) flow.sizes.push_back(dice.Below(200'000));
  }
}

// Of one history in four some bytes go by RDMA; where it breaks down, TCP is there, but for where it is not wanted.
void DrawRdma(Scenario* scenario) {
  Dice dice(scenario->seed ^ 0x5244'4d41);
  if (!dice.OneIn(4) && !IsUntried(*scenario)) return;
  scenario->params.transport = dice.OneIn(4) ? "verbs" : "auto";
  // Each stream is tried by full messages, whatever it carries: mostly short ones, of which a ring has as many.
  scenario->message_bytes = dice.OneIn(8) ? 32768 : dice.Of<uint32_t>({4096, 8192});
  if (dice.OneIn(2)) {  // enough for a ring to come round
    Flow& flow = scenario->flows[dice.Below(scenario->flows.size())];
    for (int i = 0; i < 30; ++i) flow.sizes.push_back(dice.Below(8000));
  }
  DrawWrites(scenario);
  if (dice.OneIn(3)) return;
  for (uint64_t i = 1 + dice.Below(4); i > 0; --i) {
    TroubleEvent event = DrawTrouble(dice, *scenario);
    event.kind = dice.Of({Trouble::kRdmaDropped, Trouble::kRdmaLate, Trouble::kRdmaCompletions, Trouble::kRdmaGone});
    event.amount = 0;
    if (event.kind == Trouble::kRdmaLate) event.amount = static_cast<double>(dice.Of({1, 30, 120, 300, 600}));  // ms
    if (event.kind == Trouble::kRdmaCompletions) event.amount = dice.Of({0.005, 0.02, 0.1, 0.5});
    scenario->troubles.push_back(event);
    if (event.kind != Trouble::kRdmaLate || dice.OneIn(2)) continue;
    // What is late finds other queue pairs: the link goes and comes back meanwhile.
    int64_t later_ns = event.at_ns + dice.Between(0, 20) * kMillisecond;
    scenario->troubles.push_back({Trouble::kLinkDown, event.host, event.rail, later_ns, 2 * kMillisecond, 0});
  }
}

Scenario DrawFlows(uint64_t seed, int hosts, int rails) {
  Dice dice(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.hosts = static_cast<int>(dice.Between(2, dice.OneIn(8) ? 8 : 4));
  scenario.rails = static_cast<int>(dice.Between(1, dice.OneIn(8) ? 8 : 3));
  if (hosts > 0) scenario.hosts = hosts;
  if (rails > 0) scenario.rails = rails;
  scenario.bytes_per_ns = dice.Of({0.02, 0.0625, 0.25});
  scenario.segment_bytes = dice.Of<size_t>({1448, 4096, 8192});
  if (dice.OneIn(8)) scenario.answer_bytes = dice.Of<size_t>({64, 200});
  scenario.program_polls = dice.OneIn(2);
  Params& params = scenario.params;
  params.mode = dice.OneIn(8) ? 0 : (dice.OneIn(4) ? 1 : 2);
  params.chunk_bytes = dice.Of<int64_t>({4096, 8192, 16384});
  params.min_chunk_bytes = dice.Of<int64_t>({1024, 4096});
  params.window_bytes = dice.Of<int64_t>({65536, 262144});
  params.eager_bytes = dice.Of<int64_t>({0, 4096, 65536});
  params.eager_messages = dice.Of<int64_t>({1, 8, 64});
  params.buffered_bytes = dice.Of<int64_t>({0, 1024, 16384});
  params.inline_bytes = dice.Of<int64_t>({12288, 262144});
  params.connect_ms = 300;
  params.give_up_ms = 5000;
  params.locate_ms = dice.Of<int64_t>({0, 100});
  if (dice.OneIn(3)) {
    params.flap_suppress = 1000;
    params.flap_half_life_ms = 300;
    params.flap_max_ms = 600;
  }
  params.checksum = dice.OneIn(4) ? 1 : 0;
  params.io_threads = params.stripes = 1;
  params.zero_copy_bytes = 0;  // but see DrawWrites
  auto flows = static_cast<size_t>(dice.Between(scenario.hosts, scenario.hosts + 3));
  for (size_t i = 0; i < flows; ++i) {
    Flow flow;
    flow.from = static_cast<int>(i) % scenario.hosts;
    flow.to =
        (flow.from + 1 +
         static_cast<int>(
             i < static_cast<size_t>(scenario.hosts) ? 0 : dice.Below(static_cast<uint64_t>(scenario.hosts - 1)))) %
        scenario.hosts;
    auto count = static_cast<size_t>(dice.Between(2, dice.OneIn(8) ? 14 : 6));
    for (size_t k = 0; k < count; ++k) flow.sizes.push_back(DrawSize(dice));
    flow.pause_ns = dice.OneIn(2) ? dice.Between(kMillisecond, 40 * kMillisecond) : 0;
    flow.ahead = 1 + dice.Below(6);
    flow.late_receives = dice.OneIn(3);
    flow.closes_early = dice.OneIn(4);
    flow.leaves_after = dice.OneIn(8) ? 1 + dice.Below(count) : 0;
    scenario.flows.push_back(std::move(flow));
  }
  if (dice.OneIn(10)) {  // programs that do not look, and nothing else
    for (uint64_t i = 1 + dice.Below(4); i > 0; --i) {
      TroubleEvent event = DrawTrouble(dice, scenario);
      event.kind = Trouble::kPause;
      scenario.troubles.push_back(event);
    }
    return scenario;
  }
  if (dice.OneIn(10)) {  // everywhere, and nothing else
    for (int host = 0; host < scenario.hosts; ++host) {
      for (int rail = 0; rail < scenario.rails; ++rail) {
        scenario.troubles.push_back({Trouble::kCongestion, host, rail, 0, kTroubleEndsNs, dice.Of({0.5, 0.9, 0.95})});
      }
    }
    return scenario;
  }
  uint64_t troubles = dice.OneIn(5) ? 0 : 1 + dice.Below(6);
  for (uint64_t i = 0; i < troubles; ++i) scenario.troubles.push_back(DrawTrouble(dice, scenario));
  return scenario;
}

// One history in 32 sends more than a NIC's window, and one of its NICs is slow for a while: the rate that is measured
// then has to grow again. Of such seeds all check that a NIC which recovered carries data (CheckCarries in explore.cc).
void DrawLoad(Scenario* scenario) {
  if ((scenario->seed % 32 != 8 || scenario->rails < 2) && !IsUntried(*scenario)) return;
  Dice dice(scenario->seed ^ 0x4c4f'4144);
  for (Flow& flow : scenario->flows) {
    flow.sizes.clear();
    for (uint64_t i = 4 + dice.Below(4); i > 0; --i) flow.sizes.push_back(50'000 + dice.Below(250'000));
    flow.ahead = 2 + dice.Below(6);
    flow.pause_ns = 0;
    flow.late_receives = flow.closes_early = false;
    flow.leaves_after = 0;
  }
  TroubleEvent slow = DrawTrouble(dice, *scenario);
  slow.kind = Trouble::kSlow;
  slow.amount = dice.Of({0.1, 0.01});
  slow.lasts_ns = dice.Between(200, 600) * kMillisecond;
  scenario->troubles.push_back(slow);
}

// One history in eight is a group that computes, one in sixteen sends as NCCL does.
void DrawPrograms(Scenario* scenario) {
  Dice dice(scenario->seed ^ 0x5249'4e47);
  if (dice.OneIn(8)) {
    RingRun& ring = scenario->ring;
    ring.calls = dice.Between(1, 3);
    ring.lanes = dice.Between(1, 2);
    ring.slices = dice.Between(1, 3);
    ring.elements = dice.Between(0, dice.Of({100, 3000, 6000}));
    ring.in_place = dice.OneIn(2);
    ring.abreast = dice.OneIn(2);
    ring.registers = scenario->params.zero_copy_bytes > 0;
    if (ring.in_place) ring.shifts = dice.Between(0, 2);
    scenario->flows.clear();
    return;
  }
  if (!dice.OneIn(15)) return;
  Params& params = scenario->params;
  params.stripes = dice.Between(1, 3);
  params.fast_mbit_s = dice.Of<int64_t>({10, 100});
  for (Flow& flow : scenario->flows) {
    flow.by_nccl = true;
    flow.home = static_cast<int>(dice.Below(static_cast<uint64_t>(scenario->rails)));
    flow.ahead = dice.Of<uint64_t>({4, 32, 100});
    flow.pause_ns = 0;
    flow.leaves_after = 0;
    if (!dice.OneIn(2)) continue;  // enough to spread
    flow.sizes.resize(4);
    // By a long one the NIC's rate is known while most receives are still to be posted.
    if (dice.OneIn(2)) flow.sizes[dice.Below(4)] = 100'000 + dice.Below(200'000);
    while (flow.sizes.size() < 120) flow.sizes.push_back(dice.Below(dice.OneIn(8) ? 40'000 : 5000));
  }
}

// In one history in eight planned schedules divide what flows send over the NICs; some NICs get nothing.
void DrawShares(Scenario* scenario) {
  Dice dice(scenario->seed ^ 0x5348'4152);
  if (!dice.OneIn(8)) return;
  for (Flow& flow : scenario->flows) {
    if (flow.by_nccl || dice.OneIn(4)) continue;
    for (int rail = 0; rail < scenario->rails; ++rail) flow.shares.push_back(dice.Of({0.0, 0.1, 0.3, 0.5, 1.0}));
  }
}

}  // namespace

const char* ToString(Trouble trouble) {
  static const char* const kNames[] = {
      "link_down",  "black_hole", "black_out",    "black_in",  "large_only",       "loss",       "bursts",
      "duplicates", "delay",      "reordering",   "slow",      "corruption",       "congestion", "pause",
      "kill",       "power_off",  "rdma_dropped", "rdma_late", "rdma_completions", "rdma_gone"};
  static_assert(std::size(kNames) == static_cast<size_t>(Trouble::kCount));
  return kNames[static_cast<size_t>(trouble)];
}

Scenario Draw(uint64_t seed, int hosts, int rails) {
  Scenario scenario = DrawFlows(seed, hosts, rails);
  DrawLoad(&scenario);
  DrawRdma(&scenario);
  DrawPrograms(&scenario);
  DrawShares(&scenario);
  scenario.routes = Dice(scenario.seed ^ 0x524f'5554).OneIn(3);
  return scenario;
}

bool Scenario::ends_well() const {
  // Test packets of full size are late where a kernel takes little at a time.
  return params.mode != 0 && answer_bytes >= 65536 && params.flap_max_ms < kRecoveryNs / kMillisecond &&
         std::none_of(
             troubles.begin(), troubles.end(),
             [](const TroubleEvent& event) {
               return event.kind == Trouble::kKill || event.kind == Trouble::kPowerOff;
             });
}

std::string Describe(const Scenario& scenario) {
  const Params& params = scenario.params;
  std::ostringstream text;
  text << "seed " << scenario.seed << ": " << scenario.hosts << " hosts x " << scenario.rails << " rails of "
       << scenario.bytes_per_ns * 8 << " Gbit/s, packets of " << scenario.segment_bytes << ", answers of "
       << scenario.answer_bytes << ", by " << params.transport << ", mode " << params.mode << ", "
       << (scenario.program_polls ? "polling" : "waiting") << (scenario.routes ? ", routes between rails" : "")
       << ", chunk " << params.chunk_bytes << "/" << params.min_chunk_bytes << ", window " << params.window_bytes
       << ", eager " << params.eager_bytes << " x " << params.eager_messages << ", buffered " << params.buffered_bytes
       << ", inline " << params.inline_bytes << ", checksum " << params.checksum << ", zero copy from "
       << params.zero_copy_bytes << ", held at most " << params.flap_max_ms << " ms\n";
  for (const Flow& flow : scenario.flows) {
    text << "  host" << flow.from << " > host" << flow.to << ": " << flow.sizes.size() << " messages, " << flow.ahead
         << " ahead, pause " << static_cast<double>(flow.pause_ns) / kMillisecond << " ms"
         << (flow.by_nccl ? ", by NCCL, home eth" + std::to_string(flow.home) : "")
         << (flow.late_receives ? ", late receives" : "") << (flow.closes_early ? ", closes early" : "")
         << (flow.registers_sends ? ", registers sends" : "") << (flow.registers_receives ? ", registers receives" : "")
         << (flow.leaves_after > 0 ? ", the receiver leaves after " + std::to_string(flow.leaves_after) : "")
         << (flow.shares.empty() ? "" : ", shares of NICs");
    for (double share : flow.shares) text << " " << share;
    text << "; bytes";
    for (uint64_t size : flow.sizes) text << " " << size;
    text << "\n";
  }
  const RingRun& ring = scenario.ring;
  if (ring.calls > 0) {
    text << "  all hosts: " << ring.calls << " AllReduces of " << ring.elements << " elements around a ring, "
         << ring.lanes << " lanes" << (ring.abreast ? " abreast" : "") << ", " << ring.slices << " slices"
         << (ring.in_place ? ", in place" : "")
         << (ring.shifts > 0 ? ", shifted " + std::to_string(ring.shifts) + " times" : "")
         << (ring.registers ? ", registers memory" : "") << "\n";
  }
  for (const TroubleEvent& event : scenario.troubles) {
    text << "  at " << static_cast<double>(event.at_ns) / kMillisecond << " ms: " << ToString(event.kind) << " host"
         << event.host << " eth" << event.rail << " for " << static_cast<double>(event.lasts_ns) / kMillisecond
         << " ms, " << event.amount << "\n";
  }
  return text.str();
}

}  // namespace r2ccl::simulated
