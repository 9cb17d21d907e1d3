// What the paths of a connection learn of their ways, and how a way that is on probation is tested.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "failover/comm.h"

namespace r2ccl {
namespace {

constexpr int64_t kLatelyNs = 1000 * kMillisecond;

}  // namespace

void Comm::KnowWay(Path& path) { path.way = environment_->ways.Find(path.nic, path.remote.s_addr); }

bool Comm::IsTrusted(const Path& path) const {
  return path.state == PathState::kUp && !path.suspect && !IsDoubted(path);
}

bool Comm::BeginProbation(Path& path, int64_t now_ns, const std::string& why, int64_t slow_ns, bool loses) {
  if (environment_->params.mode != 2 || path.way == nullptr) return false;
  bool other = std::any_of(paths_.begin(), paths_.end(),
                           [&](const Path& candidate) { return &candidate != &path && IsTrusted(candidate); });
  if (!other) return false;
  path.way->With([=](Probation& probation) {
    probation.Begin(now_ns, slow_ns, loses);
    return true;
  });
  TellProbation(path, why);
  return true;
}

void Comm::TellProbation(Path& path, const std::string& why) {
  int64_t needed_ns =
      path.way->With([](Probation& probation) { return probation.TakeNews() ? probation.needed_ns() : int64_t{-1}; });
  if (needed_ns < 0) return;
  path.told_held = true;
  std::string until = needed_ns == 0
                          ? "one test of packets of full size has come back clean"
                          : "test packets have come back clean for " + std::to_string(needed_ns / kMillisecond) + " ms";
  Log("path_held", path, why + ": carries nothing until " + until, "probation");
}

// Whether another of the own NICs has as much to do as shows what it drains, or had lately.
bool Comm::OthersShowDrains(const Path& path, int64_t now_ns) const {
  for (size_t i = 0; i < environment_->nics.size(); ++i) {
    const NicState& nic = environment_->nic_states[i];
    if (&nic == &nic_state(path)) continue;
    if (nic.HasQueue() || now_ns - nic.queued_ns.load(std::memory_order_relaxed) < kLatelyNs) return true;
  }
  return false;
}

// Bulk bears losses: more is on the way, which shows at once what is missing. A path that reorders packets seems to
// lose them, so its answers have to be faster than now as well, or as fast as others'. What was lost before the end of
// a probation says nothing after it, of whichever connection that began it.
void Comm::CheckLosses(Path& path, const Progress& progress, int64_t now_ns) {
  bool on = path.way->on_probation();
  if (std::exchange(path.was_on_probation, on) && !on) path.loss.Forget();
  bool may_begin = path.state == PathState::kUp && !on;
  if (!may_begin || !path.loss.lossy() || OthersShowDrains(path, now_ns)) return;
  Elsewhere elsewhere = LookElsewhere(path);
  if (!elsewhere.any || elsewhere.lossy) return;
  int64_t slow_ns = std::max(progress.rtt_ns, SlowFromNs(elsewhere.answer_ns));
  BeginProbation(path, now_ns, "packets are lost, elsewhere they are not", slow_ns, true);
}

double Comm::MostCarried() const {
  double most = 0;
  for (size_t i = 0; i < environment_->nics.size(); ++i) {
    most = std::max(most, environment_->nic_states[i].carried_bytes_per_ns.load(std::memory_order_relaxed));
  }
  return most;
}

double Comm::BestNicRate() const {
  double best = 0;
  for (size_t i = 0; i < environment_->nics.size(); ++i) {
    const NicState& nic = environment_->nic_states[i];
    best = std::max({best, nic.drain_bytes_per_ns.load(std::memory_order_relaxed),
                     nic.peak_bytes_per_ns.load(std::memory_order_relaxed) / 2});
  }
  return best;
}

// By the best of the own NICs: what is known of one may be what it drains since it is sick. One that is never full does
// not show what it drains, but drained this lately.
double Comm::BestKnownRate() const {
  double best = 0;
  for (size_t i = 0; i < environment_->nics.size(); ++i) {
    const NicState& nic = environment_->nic_states[i];
    double known = nic.drain_bytes_per_ns.load(std::memory_order_relaxed);
    best = std::max(best, known > 0 ? known : nic.peak_bytes_per_ns.load(std::memory_order_relaxed));
  }
  return best;
}

int64_t Comm::WayWorksUntilNs(const Path& path, int64_t now_ns) const {
  return path.way == nullptr ? 0 : path.way->WorksUntilNs(BestKnownRate(), path.round_trip_ns, now_ns);
}

Elsewhere Comm::LookElsewhere(const Path& path) const {
  Elsewhere elsewhere;
  for (const Path& other : paths_) {
    if (&other == &path || !IsTrusted(other)) continue;
    elsewhere.Add(other.usual_ns, other.way == nullptr ? 0 : other.way->answer_ns(), other.loss.lossy());
  }
  return elsewhere;
}

int64_t Comm::IdleElsewhereNs(const Path& path) const {
  int64_t least_ns = INT64_MAX;
  for (const Path& other : paths_) {
    if (&other == &path || other.state != PathState::kUp || other.usual_ns == 0) continue;
    double drain = nic_state(other).drain_bytes_per_ns.load(std::memory_order_relaxed);
    auto queued = static_cast<double>(nic_state(other).in_flight_bytes.load(std::memory_order_relaxed));
    least_ns = std::min(least_ns, other.usual_ns - (drain > 0 ? static_cast<int64_t>(queued / drain) : 0));
  }
  return least_ns == INT64_MAX ? 0 : std::max<int64_t>(0, least_ns);
}

bool Comm::IsStillSlow(const Path& path, const Progress& progress) const {
  if (progress.rtt_ns >= path.way->slow_ns()) return true;
  if (!progress.rtt_by_kernel) return false;
  double rate = BestKnownRate();
  int64_t best_ns = INT64_MAX;
  for (const Path& other : paths_) {
    if (&other == &path || !IsTrusted(other) || other.way == nullptr || other.way->answer_ns() == 0) continue;
    best_ns = std::min(best_ns, UnexplainedNs(other.way->answer_ns(), other.queued_bytes, rate));
  }
  if (best_ns == INT64_MAX) return false;
  return IsSlow(UnexplainedNs(progress.rtt_ns, path.queued_bytes, rate), std::max<int64_t>(1, best_ns));
}

void Comm::WatchWay(Path& path, const Progress& progress, int64_t now_ns) {
  if (progress.shortest_rtt_ns > 0) path.shortest_rtt_ns = progress.shortest_rtt_ns;
  if (path.way != nullptr && progress.bytes_acked > path.acked_bytes) {
    path.way->Add(progress.bytes_acked - path.acked_bytes, now_ns - progress.since_ack_ns, now_ns);
  }
  OnProgress(path, progress, now_ns);
  path.held_ns = HeldNs(path);
  if (environment_->params.mode != 2 || path.way == nullptr) return;
  CheckLosses(path, progress, now_ns);
  bool news = !path.told_up || path.told_held;
  if (news && path.state == PathState::kUp && !IsOnProbation(path)) TellUp(path);
  if (path.test.end != 0) JudgeTest(path, progress, now_ns);
  if (path.test.end != 0 || path.stream->unsaid_bytes() > 0 || path.stream->sending()) return;
  if (!path.way->on_probation()) {
    if (path.owes_word && Ping(path, now_ns)) path.owes_word = false;
  } else if (path.way->With([now_ns](Probation& probation) { return probation.TakeTest(now_ns); })) {
    Test(path, progress, now_ns);
  }
}

// Each packet by a call of its own, so that the kernel does not join what is to be lost or not one by one.
void Comm::Test(Path& path, const Progress& progress, int64_t now_ns) {
  path.owes_word = true;
  path.test = {.resent = progress.resent, .sent_ns = now_ns};
  std::string ping = EncodeTestPing(progress.packet_bytes);
  for (int i = 0; i < kTestPackets; ++i) path.stream->Say(ping);
  path.test.end = path.stream->end();
}

// The time in which the test under way has to arrive.
int64_t Comm::TestLimitNs(const Path& path, const Progress& progress, const Elsewhere& elsewhere) const {
  int64_t rtt_ns = path.shortest_rtt_ns;
  for (const Path& other : paths_) {
    if (IsOpen(other.state) && other.shortest_rtt_ns > 0) rtt_ns = std::min(rtt_ns, other.shortest_rtt_ns);
  }
  double best = BestNicRate();
  int64_t slow_ns = path.way->slow_ns();
  if (path.test.trial_bytes > 0 && slow_ns == 0 && best > 0) {
    auto bytes_ns = static_cast<int64_t>(static_cast<double>(path.test.trial_bytes) / best);
    return TrialLimitNs(bytes_ns + std::max(rtt_ns, IdleElsewhereNs(path)));
  }
  double bytes = static_cast<double>(kTestPackets) * progress.packet_bytes;
  // On slow NICs the packets themselves take long, and where peers test the same NIC at the same time, twice as long.
  if (path.test.trial_bytes == 0 && slow_ns > 0) {
    return TrialLimitNs(std::max(slow_ns / 4, DrainNs(bytes, best, MostCarried())));
  }
  // The others are full since this one carries nothing. What was late again has to be as fast as they would be idle.
  if (path.way->grave()) {
    return std::max(LateAfterNs(rtt_ns, bytes, best, MostCarried()), LateAfterNs(IdleElsewhereNs(path)));
  }
  return std::max(LateAfterNs(rtt_ns, bytes, nic_state(path).drain_bytes_per_ns.load()),
                  LateAfterNs(elsewhere.usual_ns));
}

void Comm::JudgeTest(Path& path, const Progress& progress, int64_t now_ns) {
  Elsewhere elsewhere = LookElsewhere(path);
  int64_t limit_ns = TestLimitNs(path, progress, elsewhere);
  bool came = progress.bytes_acked >= path.test.end;
  bool trial = path.test.trial_bytes > 0;
  // It may have come long before anybody looked.
  int64_t took_ns = now_ns - path.test.sent_ns - (came ? progress.since_ack_ns : 0);
  bool of_slow = path.way->slow_ns() > 0;
  bool full = progress.bytes_acked > path.acked_bytes + 2 * progress.packet_bytes;
  bool as_slow = trial && of_slow && full && IsStillSlow(path, progress);
  bool lost = as_slow || took_ns > limit_ns || (progress.resent > path.test.resent && !elsewhere.lossy);
  if (lost && !path.test.missed && !PeerSpoke(path, path.test.sent_ns + limit_ns - kAskAheadNs, now_ns)) {
    if (came) path.test.end = 0;  // it says nothing of the way
    return;
  }
  if (lost && !path.test.missed) {
    path.test.missed = true;
    path.way->With([](Probation& probation) {
      probation.Miss();
      return true;
    });
    std::string took = took_ns > limit_ns ? "test packets took " + std::to_string(took_ns / kMillisecond) + " ms"
                       : as_slow          ? "answers still take " + std::to_string(progress.rtt_ns / 1000) + " us"
                                          : "a test packet was lost";
    TellProbation(path, took);
  }
  bool goes_on = trial && !path.test.missed && path.test.trial_bytes < kTrialBytes &&
                 now_ns < path.test.began_ns + Probation::kTrialNs;
  if (!came || goes_on) return;
  path.test.end = 0;
  if (path.test.missed) return;
  int64_t sent_ns = path.test.sent_ns;
  bool over = path.way->With(
      [=](Probation& probation) { return trial ? probation.Prove(now_ns) : probation.Pass(sent_ns, now_ns); });
  if (over) AfterRead(path);
}

bool Comm::PeerSpoke(const Path& about, int64_t since_ns, int64_t now_ns) {
  return word_ns_ >= since_ns || !AskPeer(about, now_ns);
}

bool Comm::AskPeer(const Path& about, int64_t now_ns) {
  bool asks = now_ns - asked_word_ns_ >= kAskAheadNs;
  bool others = false;
  if (asks) ++question_;
  for (Path& other : paths_) {
    if (&other == &about || !IsOpen(other.state)) continue;
    others = true;
    if (!asks || other.stream->unsaid_bytes() > 0) continue;
    other.stream->Say(EncodeControl(FrameType::kPing, 0, 0, kAsks + (question_ << kQuestionAt)));
    asked_word_ns_ = now_ns;
    asked_about_ = about.index;
  }
  return others;
}

void Comm::TakePing(Path& path) {
  uint64_t question = path.frame.a >> kQuestionAt;
  uint64_t kind = path.frame.a - (question << kQuestionAt);
  if (kind == kAsks) path.stream->Say(EncodeControl(FrameType::kPing, 0, 0, kAnswers + (question << kQuestionAt)));
  if (kind != kAnswers || question != question_ || answered_ns_ >= asked_word_ns_) return;
  answered_ns_ = Now();
  answer_took_ns_ = answered_ns_ - asked_word_ns_;
}

void Comm::TellUp(Path& path) {
  path.told_up = true;
  path.told_held = false;
  Log(std::exchange(path.ever_told, true) ? "path_returned" : "path_up", path, "epoch " + std::to_string(path.epoch));
}

}  // namespace r2ccl
