// Running and shrinking scenarios, and the rules of every run.
#include "wire/simulated/explore.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <utility>

#include "wire/simulated/flow_program.h"
#include "wire/simulated/process.h"
#include "wire/simulated/ring_program.h"
#include "wire/simulated/world.h"

namespace r2ccl::simulated {
namespace {

constexpr int64_t kSettleNs = 4000 * kMillisecond;  // after the last trouble and the give-up limit
constexpr uint64_t kCarriedBytes = 8 * 1024;
constexpr int64_t kExtendNs = 20 * kMillisecond;

// One history.
class Play {
 public:
  explicit Play(const Scenario& scenario)
      : scenario_(scenario), world_(scenario.seed, scenario.hosts, scenario.rails), begin_ns_(world_.Now()) {
    world_.segment_bytes = scenario.segment_bytes;
    world_.answer_bytes = scenario.answer_bytes;
    world_.message_bytes = scenario.message_bytes;
    world_.routes = scenario.routes;
    for (int host = 0; host < scenario.hosts; ++host) {
      for (int rail = 0; rail < scenario.rails; ++rail) {
        world_.port(host, rail).bytes_per_ns = scenario.bytes_per_ns;
        world_.port(host, rail).bucket_bytes = scenario.bucket_bytes;
      }
      processes_.push_back(std::make_unique<Process>(&world_, host, scenario.params, scenario.program_polls));
    }
    for (size_t i = 0; i < scenario.flows.size(); ++i) {
      const Flow& flow = scenario.flows[i];
      programs_.push_back(std::make_unique<FlowProgram>(scenario_, i, &world_, &process(flow.from), &process(flow.to)));
    }
    if (scenario.ring.calls > 0) {
      std::vector<Process*> all;
      for (const auto& process : processes_) all.push_back(process.get());
      programs_.push_back(std::make_unique<RingProgram>(scenario_, &world_, all));
    }
    for (int host = 0; host < scenario.hosts; ++host) {
      process(host).SetProgram([this, host] { RunPrograms(host); });
    }
    for (const TroubleEvent& event : scenario.troubles) Plan(event);
  }

  Outcome Run(bool with_log) {
    int64_t give_up_ns = scenario_.params.give_up_ms * kMillisecond;
    int64_t limit_ns = begin_ns_ + kTroubleEndsNs + give_up_ns + kSettleNs;
    auto over = [this] { return ++looks_ % 16 == 0 && (!Wrong().empty() || IsOver()); };
    world_.RunUntil(limit_ns, over);
    Outcome outcome;
    outcome.virtual_ns = world_.Now() - begin_ns_;
    outcome.wrong = Wrong();
    if (outcome.wrong.empty()) outcome.wrong = CheckEnds();
    if (outcome.wrong.empty()) outcome.wrong = CheckLosses();
    if (outcome.wrong.empty()) outcome.wrong = CheckRecovery();
    if (outcome.wrong.empty()) outcome.wrong = CheckCarries();
    if (outcome.wrong.empty()) outcome.wrong = CloseAndCheck();
    Tally(&outcome, with_log);
    return outcome;
  }

  Outcome Watch(int64_t from_ns, size_t calls, int64_t until_ns, bool with_log) {
    auto over = [this, from_ns, calls] {
      if (++looks_ % 256 != 0) return false;
      const auto& all = programs_[0]->calls();
      return !Wrong().empty() || (all.size() >= calls && all[all.size() - calls].began_ns > begin_ns_ + from_ns);
    };
    world_.RunUntil(begin_ns_ + until_ns, over);
    Outcome outcome;
    outcome.wrong = Wrong();
    Tally(&outcome, with_log);
    return outcome;
  }

  ~Play() { world_.Forget(); }

  // The times, from the beginning, at which something happens until all is done.
  std::vector<int64_t> Moments() {
    std::vector<int64_t> moments;
    world_.KeepMoments(&moments);
    world_.RunUntil(begin_ns_ + kTroubleEndsNs, [this] { return IsOver(); });
    for (int64_t& moment : moments) moment -= begin_ns_;
    return moments;
  }

 private:
  Process& process(int host) { return *processes_[static_cast<size_t>(host)]; }
  bool IsDoomed(int host) const {
    return std::any_of(scenario_.troubles.begin(), scenario_.troubles.end(), [host](const TroubleEvent& event) {
      return event.host == host && (event.kind == Trouble::kKill || event.kind == Trouble::kPowerOff);
    });
  }

  void Tally(Outcome* outcome, bool with_log) {
    outcome->events = world_.events();
    outcome->dropped_share = world_.MostDropped();
    for (const auto& program : programs_) {
      outcome->messages += program->received();
      for (CallRecord call : program->calls()) {
        outcome->calls.push_back({call.began_ns - begin_ns_, call.ended_ns - begin_ns_});
      }
    }
    for (int host = 0; host < scenario_.hosts; ++host) {
      Environment& environment = process(host).environment();
      outcome->replayed_chunks += environment.replayed_chunks.load();
      outcome->trial_chunks += environment.trial_chunks.load();
      outcome->duplicate_chunks += environment.duplicate_chunks.load();
      outcome->lost_paths += Count(host, "path_down");
      outcome->held_paths += Count(host, "path_held");
      outcome->sent_bytes += process(host).question_bytes();
      for (int rail = 0; rail < scenario_.rails; ++rail) {
        const NicTraffic& counters = environment.counters[static_cast<size_t>(rail)];
        outcome->sent_bytes += counters.sent_bytes.load();
        outcome->rdma_bytes += counters.rdma_sent_bytes.load();
        outcome->written_bytes += counters.rdma_written_bytes.load();
      }
      if (with_log) outcome->log += LogOf(host);
    }
  }

  void RunPrograms(int host) {
    auto& arrived = process(host).arrived();
    for (; !arrived.empty(); arrived.pop_front()) {
      std::any_of(programs_.begin(), programs_.end(),
                  [&](const auto& program) { return program->Take(host, arrived.front()); });
    }
    for (const auto& program : programs_) program->Run(host);
  }

  void Plan(const TroubleEvent& event) {
    world_.Wait(event.at_ns, [this, event] { Set(event, true); });
    if (event.kind == Trouble::kKill || event.kind == Trouble::kPowerOff || event.kind == Trouble::kCongestion) return;
    world_.Wait(event.at_ns + event.lasts_ns, [this, event] { Set(event, false); });
  }

  void Congest(const TroubleEvent& event) {
    constexpr double kPacketBytes = 9000;
    Competitor other{.to = (event.host + 1) % scenario_.hosts, .bytes = kPacketBytes};
    other.pause_ns = static_cast<int64_t>(kPacketBytes / (event.amount * scenario_.bytes_per_ns));
    other.until_ns = world_.Now() + event.lasts_ns;
    world_.Compete(event.host, event.rail, other);
  }

  void Set(const TroubleEvent& event, bool on) {
    Port& port = world_.port(event.host, event.rail);
    auto delay_ns = static_cast<int64_t>(event.amount * kMillisecond);
    switch (event.kind) {
      case Trouble::kLinkDown:
        return world_.SetLink(event.host, event.rail, !on);
      case Trouble::kBlackHole:
        port.out.black = port.in.black = on;
        return;
      case Trouble::kBlackOut:
        port.out.black = on;
        return;
      case Trouble::kBlackIn:
        port.in.black = on;
        return;
      case Trouble::kLargeOnly:
        port.out.larger_than = on ? 1000 : 0;
        return;
      case Trouble::kLoss:
        port.out.loss = on ? event.amount : 0;
        return;
      case Trouble::kBursts:
        port.in.burst = on ? event.amount : 0;
        return;
      case Trouble::kDuplicates:
        port.out.duplicate = on ? event.amount : 0;
        return;
      case Trouble::kDelay:
        port.out.delay_ns = on ? delay_ns : 0;
        return;
      case Trouble::kReordering:
        port.in.jitter_ns = on ? delay_ns : 0;
        return;
      case Trouble::kSlow:
        port.out.rate = on ? event.amount : 1;
        return;
      case Trouble::kCorruption:
        port.out.corrupt = on ? event.amount : 0;
        return;
      case Trouble::kCongestion:
        return Congest(event);
      case Trouble::kPause:
        return on ? process(event.host).Pause() : process(event.host).Resume();
      case Trouble::kKill:
        return process(event.host).Kill();
      case Trouble::kPowerOff:
        return process(event.host).PowerOff();
      case Trouble::kRdmaDropped:
        port.out.rdma_black = port.in.rdma_black = on;
        return;
      case Trouble::kRdmaLate:
        port.out.rdma_delay_ns = on ? delay_ns : 0;
        return;
      case Trouble::kRdmaCompletions:
        port.completions = on ? event.amount : 0;
        return;
      case Trouble::kRdmaGone:
        return process(event.host).SetRdmaGone(event.rail, on);
      case Trouble::kCount:
        return;
    }
  }

  std::string Wrong() const {
    if (!world_.broken().empty()) return world_.broken();
    for (const auto& program : programs_) {
      if (!program->wrong().empty()) return program->wrong();
    }
    return "";
  }

  bool IsOver() const {
    return std::all_of(programs_.begin(), programs_.end(), [](const auto& program) { return program->IsOver(); });
  }

  std::string CheckEnds() {
    std::vector<bool> doomed;
    for (int host = 0; host < scenario_.hosts; ++host) doomed.push_back(IsDoomed(host));
    for (const auto& program : programs_) {
      std::string rule = program->CheckEnd(doomed);
      if (!rule.empty()) return rule;
    }
    return "";
  }

  size_t Count(int host, const std::string& kind) {
    auto events = process(host).environment().log.Snapshot(1 << 20);
    return static_cast<size_t>(
        std::count_if(events.begin(), events.end(), [&kind](const auto& event) { return event.kind == kind; }));
  }

  // But for flows of others, and programs that do not look; not for so long that a greeting is dialled again.
  bool NothingIsWrong() const {
    std::vector<int64_t> paused_ns(static_cast<size_t>(scenario_.hosts));
    for (const TroubleEvent& event : scenario_.troubles) {
      if (event.kind == Trouble::kPause) paused_ns[static_cast<size_t>(event.host)] += event.lasts_ns;
      if (event.kind != Trouble::kPause && event.kind != Trouble::kCongestion) return false;
      // What RDMA's packets lose to others' is sent again after 34 ms, whole windows of it.
      if (event.kind == Trouble::kCongestion && scenario_.params.transport != "tcp") return false;
      // Known: a connection that keeps to a home NIC that is fuller than others takes it for sick (seeds 10285, 10638).
      if (event.kind == Trouble::kCongestion && HasHomes()) return false;
      if (event.kind == Trouble::kCongestion && Congested(event) > 1) return false;
    }
    int64_t most_ns = *std::max_element(paused_ns.begin(), paused_ns.end());
    return most_ns < scenario_.params.connect_ms * kMillisecond / 2;
  }

  // What others ask of the same NIC meanwhile, as a share of its rate: with more than all of it packets are dropped.
  double Congested(const TroubleEvent& one) const {
    double share = 0;
    for (const TroubleEvent& event : scenario_.troubles) {
      bool meets = event.at_ns < one.at_ns + one.lasts_ns && one.at_ns < event.at_ns + event.lasts_ns;
      bool same = event.kind == Trouble::kCongestion && event.host == one.host && event.rail == one.rail;
      if (same && meets) share += event.amount;
    }
    return share;
  }

  bool HasHomes() const {
    return std::any_of(scenario_.flows.begin(), scenario_.flows.end(), [](const Flow& flow) { return flow.by_nccl; });
  }

  std::string CheckLosses() {
    for (int host = 0; host < scenario_.hosts && scenario_.params.mode == 0; ++host) {
      if (Count(host, "path_down") > Count(host, "failed")) return "fail-stop went on after the loss of a path";
    }
    // A farewell that finds no room is none, and the end of its stream a loss. Copies on trial are allowed: a
    // process that did not run can put a healthy NIC in doubt, and they end the doubt. What the full queue of a NIC to
    // which several hosts send has dropped is rightly sent again (seed 51000189589).
    bool farewells = scenario_.answer_bytes >= 65536;
    if (!NothingIsWrong() || !farewells) return "";
    for (int host = 0; host < scenario_.hosts; ++host) {
      if (Count(host, "path_down") > 0) return "a path was given up though nothing was wrong";
      bool again = process(host).environment().replayed_chunks > 0 && world_.MostDropped() == 0;
      if (again) return "chunks were sent twice though nothing was wrong";
      if (Count(host, "path_held") > 0) return "a path was held though nothing was wrong";
    }
    return "";
  }

  // All that is not well any more was healed a while ago.
  std::string CheckRecovery() {
    if (!scenario_.ends_well()) return "";
    auto all_up = [this] {
      std::vector<NicHealth> health(static_cast<size_t>(scenario_.rails));
      for (const auto& program : programs_) program->AddHealth(&health);
      return std::none_of(health.begin(), health.end(), [](const NicHealth& nic) { return nic.down > 0; });
    };
    int64_t limit_ns = std::max(world_.Now(), begin_ns_ + kTroubleEndsNs) + kRecoveryNs;
    bool recovered = world_.RunUntil(limit_ns, [&] { return ++looks_ % 256 == 0 && all_up(); });
    return recovered || all_up() ? "" : "a path does not carry data again though all was healed";
  }

  // A NIC that is well again is not only up: of what its host sends from then on it carries a part. In one history of
  // eight. Late acknowledgements of what was sent before say nothing of it (seed 110000425736).
  std::string CheckCarries() {
    if (!scenario_.ends_well() || scenario_.seed % 8 != 0) return "";
    int64_t healed_ns = std::max(world_.Now(), begin_ns_ + kTroubleEndsNs);
    world_.RunUntil(healed_ns);
    auto before = Acknowledged();
    std::vector<bool> sends(before.size());
    while (true) {
      bool more = false;
      for (const auto& program : programs_) {
        int host = program->Extend();
        if (host < 0) continue;
        sends[static_cast<size_t>(host)] = more = true;
      }
      if (!more && IsOver()) return "";  // all have closed
      int64_t pause_ends_ns = world_.Now() + kExtendNs;
      world_.RunUntil(healed_ns + kRecoveryNs, [&] { return ++looks_ % 16 == 0 && (!Wrong().empty() || IsOver()); });
      int idle = FirstIdle(sends, before);
      if (!Wrong().empty() || (more && idle < 0)) return Wrong();
      if (world_.Now() >= healed_ns + kRecoveryNs) {
        if (idle < 0) return "";
        return "a NIC of host" + std::to_string(idle) + " carries nothing though all was healed";
      }
      world_.RunUntil(pause_ends_ns);
    }
  }
  // Bytes of messages by host and rail.
  std::vector<std::vector<uint64_t>> Acknowledged() const {
    std::vector<std::vector<uint64_t>> all;
    for (const auto& process : processes_) {
      all.emplace_back();
      for (int rail = 0; rail < scenario_.rails; ++rail) {
        all.back().push_back(process->environment().counters[static_cast<size_t>(rail)].acknowledged_bytes.load());
      }
    }
    return all;
  }
  // The first of the hosts that `sends` names that sent nothing to speak of by one of its NICs since then; -1: none.
  int FirstIdle(const std::vector<bool>& sends, const std::vector<std::vector<uint64_t>>& before) const {
    auto now = Acknowledged();
    for (size_t host = 0; host < now.size(); ++host) {
      if (!sends[host]) continue;
      for (size_t rail = 0; rail < now[host].size(); ++rail) {
        if (now[host][rail] - before[host][rail] < kCarriedBytes) return static_cast<int>(host);
      }
    }
    return -1;
  }

  std::string CloseAndCheck() {
    for (int host = 0; host < scenario_.hosts; ++host) process(host).SetProgram(nullptr);
    for (const auto& program : programs_) program->CheckNoneWaits();
    if (!Wrong().empty()) return Wrong();
    for (const auto& program : programs_) program->Close();
    for (const auto& process : processes_) process->connections().DropAbandoned(0);
    world_.RunUntil(world_.Now() + 3000 * kMillisecond, [this] { return ++looks_ % 16 == 0 && NothingIsLeft(); });
    for (const auto& program : programs_) program->CheckKept();
    if (!Wrong().empty()) return Wrong();
    // A kernel goes on telling a peer that it cannot reach.
    bool all_hear = std::none_of(scenario_.troubles.begin(), scenario_.troubles.end(),
                                 [](const TroubleEvent& event) { return event.kind == Trouble::kPowerOff; });
    for (int host = 0; host < scenario_.hosts && all_hear; ++host) {
      if (process(host).runs() && process(host).sockets() > 0) {
        return "host" + std::to_string(host) + " has " + std::to_string(process(host).sockets()) +
               " sockets left after all was closed";
      }
      RdmaDevice* rdma = process(host).rdma();
      if (process(host).runs() && rdma != nullptr && rdma->queues() > 0) {
        return "host" + std::to_string(host) + " has " + std::to_string(rdma->queues()) +
               " queue pairs left after all was closed";
      }
    }
    return "";
  }

  // Nothing more can happen to anybody.
  bool NothingIsLeft() const {
    return world_.only_waits() && std::all_of(processes_.begin(), processes_.end(),
                                              [](const auto& process) { return process->has_nothing(); });
  }

  std::string LogOf(int host) {
    std::ostringstream text;
    for (const auto& event : process(host).environment().log.Snapshot(1 << 20)) {
      text << "  host" << host << " " << event.kind << " " << event.nic << " " << event.peer << " " << event.detail
           << "\n";
    }
    return text.str();
  }

  const Scenario scenario_;
  World world_;
  const int64_t begin_ns_;
  uint64_t looks_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace

Outcome RunScenario(const Scenario& scenario, bool with_log) { return Play(scenario).Run(with_log); }

Outcome WatchScenario(const Scenario& scenario, int64_t from_ns, size_t calls, int64_t until_ns, bool with_log) {
  return Play(scenario).Watch(from_ns, calls, until_ns, with_log);
}

std::vector<Scenario> SmallScenarios() {
  Scenario small;
  small.seed = 1;
  small.rails = 2;
  small.bytes_per_ns = 0.25;
  Params& params = small.params;
  params.chunk_bytes = params.min_chunk_bytes = 4096;
  params.window_bytes = 65536;
  params.eager_bytes = params.buffered_bytes = 0;
  params.inline_bytes = 12288;
  params.connect_ms = 300;
  params.give_up_ms = 5000;
  params.locate_ms = 0;
  params.io_threads = params.stripes = 1;
  params.zero_copy_bytes = 0;
  small.flows = {{.from = 0, .to = 1, .sizes = {10'000, 300, 5000}, .ahead = 2}};
  std::vector<Scenario> all(8, small);
  all[0].params.mode = 0;
  all[1].params.mode = 1;
  all[2].program_polls = true;
  all[3].params.eager_bytes = 65536;
  all[3].params.buffered_bytes = 16384;
  all[3].flows[0].closes_early = true;
  all[4].params.checksum = 1;
  all[4].params.flap_suppress = 1000;
  all[4].params.flap_half_life_ms = 300;
  all[4].params.flap_max_ms = 600;
  all[5].params.transport = "verbs";
  all[6].params.transport = "auto";
  all[6].flows[0].pause_ns = kMillisecond;  // so that the last go by RDMA
  all[7].params.transport = "verbs";
  all[7].params.zero_copy_bytes = 4096;
  all[7].flows[0].registers_sends = all[7].flows[0].registers_receives = true;
  return all;
}

std::vector<TroubleEvent> EveryTrouble(const Scenario& scenario, int64_t from_ns, bool of_processes) {
  std::vector<TroubleEvent> all;
  for (int64_t moment : Play(scenario).Moments()) {
    if (moment < from_ns) continue;
    for (int host = 0; host < scenario.hosts; ++host) {
      for (int rail = 0; rail < scenario.rails; ++rail) {
        for (Trouble kind : {Trouble::kLinkDown, Trouble::kBlackHole, Trouble::kBlackOut, Trouble::kBlackIn}) {
          for (int64_t lasts_ms : {2, 300}) all.push_back({kind, host, rail, moment, lasts_ms * kMillisecond, 0});
        }
        if (scenario.params.transport != "tcp") {
          all.push_back({Trouble::kRdmaDropped, host, rail, moment, 300 * kMillisecond, 0});
          all.push_back({Trouble::kRdmaLate, host, rail, moment, 2 * kMillisecond, 250});
          all.push_back({Trouble::kRdmaCompletions, host, rail, moment, 2 * kMillisecond, 1});
          all.push_back({Trouble::kRdmaGone, host, rail, moment, 20 * kMillisecond, 0});
        }
      }
      if (!of_processes) continue;
      for (Trouble kind : {Trouble::kPause, Trouble::kKill, Trouble::kPowerOff}) {
        all.push_back({kind, host, 0, moment, 100 * kMillisecond, 0});
      }
    }
  }
  return all;
}

Scenario Shrink(const Scenario& scenario) {
  Scenario least = scenario;
  auto try_it = [&least](Scenario smaller) {
    if (RunScenario(smaller).wrong.empty()) return false;
    least = std::move(smaller);
    return true;
  };
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < least.troubles.size(); ++i) {
      Scenario smaller = least;
      smaller.troubles.erase(smaller.troubles.begin() + static_cast<ptrdiff_t>(i));
      if (try_it(std::move(smaller))) again = true;
    }
    if (least.ring.calls > 1) {
      Scenario smaller = least;
      --smaller.ring.calls;
      if (try_it(std::move(smaller))) again = true;
    }
    for (size_t i = 0; i < least.flows.size() && least.flows.size() > 1; ++i) {
      Scenario smaller = least;
      smaller.flows.erase(smaller.flows.begin() + static_cast<ptrdiff_t>(i));
      if (try_it(std::move(smaller))) again = true;
    }
    for (size_t i = 0; i < least.flows.size(); ++i) {
      for (size_t k = 0; k < least.flows[i].sizes.size() && least.flows[i].sizes.size() > 1; ++k) {
        Scenario smaller = least;
        auto& sizes = smaller.flows[i].sizes;
        sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(k));
        if (try_it(std::move(smaller))) again = true;
      }
    }
  }
  return least;
}

}  // namespace r2ccl::simulated
