// The tick of a connection, which finds out what is silent, lost, or gone for good.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "failover/comm.h"

namespace r2ccl {
namespace {

constexpr int64_t kAsleepNs = 60 * kMillisecond;
constexpr int64_t kLimitInAbsences = 4;  // a shorter one than that share of the limit changes nothing
constexpr int64_t kGoneNs = 1000 * kMillisecond;

}  // namespace

// How long ago something came by another NIC of this process; 0 where it has no other.
int64_t Comm::SinceOtherNicNs(const Path& path, int64_t now_ns) const {
  size_t nics = environment_->nics.size();
  int64_t last_ns = nics == 1 ? now_ns : 0;
  for (size_t i = 0; i < nics; ++i) {
    if (static_cast<int>(i) != path.nic) last_ns = std::max(last_ns, environment_->nic_states[i].proven_ns.load());
  }
  return now_ns - last_ns;
}

void Comm::CheckStall(Path& path, int64_t now_ns, int64_t since_tick_ns) {
  Progress progress;
  if (!path.stream->ReadProgress(&progress)) return;
  bool advanced = progress.bytes_acked != path.acked_bytes;
  if (path.heard || advanced) path.heard_ns = now_ns;
  path.heard = false;
  path.round_trip_ns = progress.rtt_ns;
  path.usual_ns = LongestUsualNs(progress);
  const Params& params = environment_->params;
  int64_t limit_ns = StallLimitNs(params, std::max(path.usual_ns, nic_state(path).usual_ns.load()));
  bool was_asleep = since_tick_ns > std::max(kAsleepNs, limit_ns / kLimitInAbsences);
  NoteHeld(path, progress);
  WatchWay(path, progress, now_ns);
  if (std::exchange(path.delivered, progress.delivered) != progress.delivered || advanced) {
    path.proven_ns = now_ns;
    nic_state(path).proven_ns.store(now_ns, std::memory_order_relaxed);
    path.seen_ns = 0;
  }
  NotePassed(path, progress, now_ns);
  if (progress.unanswered == 0 || advanced || was_asleep) {
    path.acked_bytes = progress.bytes_acked;
    path.progress_ns = now_ns;
    path.suspect = false;
    path.seen_ns = 0;
    path.resent_before = progress.resent;
    path.loss.Sample(progress, now_ns);
    if (progress.unanswered == 0) CheckQuiet(path, progress, now_ns);
    return;
  }
  bool lossy = path.loss.lossy();
  path.seen_ns += SeenNs(since_tick_ns, SinceOtherNicNs(path, now_ns));
  Silence silence{now_ns - path.progress_ns, now_ns - SilentSinceNs(path), path.seen_ns};
  if (silence.any_ns > limit_ns / 3) {
    Target peer{path.remote, PeerPort()};
    silence.any_ns =
        std::min(silence.any_ns, now_ns - environment_->witness->AskedAnswerNs(path.nic, peer, limit_ns / 2));
  }
  if (IsDead(params, progress, limit_ns, lossy, IsOnProbation(path), silence)) {
    std::string silent_ms = std::to_string(silence.in_order_ns / kMillisecond);
    Retire(path, "stalled: no acknowledgement for " + silent_ms + " ms", true);
    return;
  }
  // The other paths of its NIC are doubted from then on. Not sooner: a full queue alone is silent for 20 ms.
  if (silence.any_ns > limit_ns / 2) DoubtNic(path, now_ns);
  AskSuspect(path, progress, now_ns);
}

// One place in the stream after another is marked, and its NIC is told once the peer's kernel has what is before it.
void Comm::NotePassed(Path& path, const Progress& progress, int64_t now_ns) {
  if (path.mark.end != 0 && progress.bytes_acked >= path.mark.end) {
    nic_state(path).NotePassed(path.mark.sent_ns);
    path.mark.end = 0;
  }
  if (path.mark.end == 0 && path.stream->end() > progress.bytes_acked) path.mark = {path.stream->end(), now_ns};
}

// While the own NIC drains, and nothing that was sent later has passed it by any stream, what is missing may still be
// in its queue: a silence begins after that.
int64_t Comm::SilentSinceNs(Path& path) {
  int64_t since_ns = std::max(path.progress_ns, path.proven_ns);
  const NicState& nic = nic_state(path);
  if (nic.passed_ns.load(std::memory_order_relaxed) < since_ns - kLongestTickNs) {
    path.queued_until_ns = nic.proven_ns.load(std::memory_order_relaxed);
  }
  return std::max(since_ns, path.queued_until_ns);
}

// A window that is full of what the peer's kernel does not have is no word of the peer's program.
void Comm::NoteHeld(Path& path, const Progress& progress) {
  int64_t more_ns = progress.held_ns - std::exchange(path.told_held_ns, progress.held_ns);
  if (progress.unanswered == 0 || progress.bytes_acked != path.acked_bytes) path.no_room_ns += more_ns;
}

// A single lost packet with nothing behind it is reported by the peer's kernel only when something comes behind it.
void Comm::AskSuspect(Path& path, const Progress& progress, int64_t now_ns) {
  int64_t patience_ns = SuspectAfterNs(progress);
  bool was_suspect = std::exchange(path.suspect, now_ns - path.progress_ns > patience_ns);
  // The kernel repeats the last packet of a peer, too, whose program does not look.
  Elsewhere elsewhere = LookElsewhere(path);
  bool resent = environment_->params.mode == 2 && path.suspect && progress.resent != path.resent_before &&
                !elsewhere.lossy && now_ns - path.progress_ns > LateAfterNs(elsewhere.usual_ns);
  if (resent && WayWorksUntilNs(path, now_ns) == 0 && PeerSpoke(path, path.progress_ns + patience_ns, now_ns)) {
    std::string silent_ms = std::to_string((now_ns - path.progress_ns) / kMillisecond);
    BeginProbation(path, now_ns, "silent for " + silent_ms + " ms, and packets were sent again");
  }
  if (path.suspect && !was_suspect) OnSuspect(path);
  if (path.suspect && now_ns - path.asked_ns >= patience_ns) Ping(path, now_ns);
}

bool Comm::Ping(Path& path, int64_t now_ns, uint64_t kind) {
  if (path.stream->unsaid_bytes() > 0 || path.stream->sending()) return false;
  path.asked_ns = now_ns;
  path.stream->Say(EncodeControl(FrameType::kPing, 0, 0, kind));
  return true;
}

// A path that loses everything while nothing is under way would never be noticed: a PING provokes an answer of
// the other end's kernel, or a reset when that end has given the path up. One that is doubted is asked at once.
// A device may also have taken the word that this end waits for, be it only that tests are over, and lost it: the next
// word of the peer's program shows the gap, so it is asked for one.
void Comm::CheckQuiet(Path& path, const Progress& progress, int64_t now_ns) {
  bool doubted = NicIsDoubted(path) && path.asked_ns < nic_state(path).doubt_ns;
  if (!doubted && now_ns - path.heard_ns < QuietLimitNs()) return;
  uint64_t kind = progress.loses_unseen && (path.tested || HasPending()) ? kAsks : 0;
  if (Ping(path, now_ns, kind)) path.heard_ns = now_ns;
}

// Whether the peer's process ended: its host says so on some path, and no other path leaves hope. Where every path
// says so that is at once, else after a second, in which a NIC that is silent may come back.
bool Comm::PeerIsGone(int64_t now_ns) {
  bool any_refused = false;
  bool all_refused = true;
  bool hope = false;
  for (const Path& path : paths_) {
    if (path.nic < 0) continue;  // never came up on this end
    bool refused = path.outlook == Outlook::kRefused;
    any_refused |= refused;
    all_refused &= refused;
    hope |= path.outlook == Outlook::kOpen && !path.link_down;
  }
  if (!any_refused || hope) {
    gone_since_ns_ = 0;
    return false;
  }
  if (gone_since_ns_ == 0) gone_since_ns_ = now_ns;
  return all_refused || now_ns - gone_since_ns_ > kGoneNs;
}

std::string Comm::Obstacle() const {
  for (const Path& path : paths_) {
    bool asks = path.obstacle.empty() && path.stream != nullptr;
    std::string obstacle = asks ? path.stream->obstacle() : path.obstacle;
    if (!obstacle.empty()) return "; this host said: " + obstacle;
  }
  return "";
}

void Comm::CheckGiveUp(int64_t now_ns) {
  const Params& params = environment_->params;
  if (no_path_since_ns_ == 0 || peer_closed_) return;
  if (PeerIsGone(now_ns)) {
    Fail({Code::kPeerLost, "the peer at " + r2ccl::ToString(paths_.front().remote) + " ended: nobody listens there"});
  } else if (now_ns - no_path_since_ns_ > params.give_up_ms * kMillisecond) {
    Fail({Code::kPeerLost, "no path to " + r2ccl::ToString(paths_.front().remote) + " for " +
                               std::to_string(params.give_up_ms) + " ms (R2CC_FAILOVER_GIVE_UP_MS)" + Obstacle()});
  }
}

int64_t Comm::Tick(int64_t now_ns) {
  MutexLock lock(mutex_);
  look_ns_ = kNever;
  EmptyInbox();
  if (linger_until_ns_ != 0 && !closed_) EndLinger(now_ns);
  if (fate_ != nullptr && fate_->sealed() && linger_until_ns_ == 0) {
    End(fate_->failure());
  }
  if (closed_ || !failure_.ok()) return kNever;
  for (Path& path : paths_) {
    if (path.stream == nullptr || !path.stream->polled()) continue;
    ReadOpen(path);
    if (path.stream != nullptr) path.stream->Release(now_ns, -1);
  }
  if (!failure_.ok()) return kNever;
  if (!std::exchange(polled_, false)) StopPolling();
  // A process that was stopped or starved must not take its own absence for the network's.
  int64_t since_tick_ns = now_ns - std::exchange(last_tick_ns_, now_ns);
  absent_ns_ += std::max<int64_t>(0, since_tick_ns - kLongestTickNs);
  for (Path& path : paths_) {
    if (IsOpen(path.state)) CheckStall(path, now_ns, since_tick_ns);
    if (!failure_.ok()) return kNever;
  }
  OnTick(now_ns);
  CheckGiveUp(now_ns);
  return look_ns_;
}

}  // namespace r2ccl
