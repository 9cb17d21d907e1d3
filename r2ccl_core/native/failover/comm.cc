// The life of the paths of a connection, what is said about them, and how it ends; of both ends.
#include "failover/comm.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <tuple>
#include <utility>

namespace r2ccl {
namespace {

constexpr size_t kMostControlBytes = 65536;  // that wait for a stream

}  // namespace

Comm::Comm(Environment* environment, Wire* wire) : environment_(environment), wire_(wire), last_tick_ns_(Now()) {}

Status Comm::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void Comm::AddHealth(std::vector<NicHealth>* health) const {
  MutexLock lock(mutex_);
  if (closed_) return;
  auto is_open = [](const Path& path) { return path.nic >= 0 && path.state == PathState::kUp; };
  bool cut_off = std::none_of(paths_.begin(), paths_.end(), is_open);
  for (const Path& path : paths_) {
    if (path.nic < 0) continue;
    NicHealth& tally = (*health)[static_cast<size_t>(path.nic)];
    bool on_probation = path.state == PathState::kUp && IsOnProbation(path);
    ++(path.state == PathState::kUp && !on_probation ? tally.up : tally.down);
    if (cut_off) ++tally.cut_off;
    if (path.state == PathState::kHeld || on_probation) ++tally.held;
    if (path.is_absent) ++tally.never_up;
  }
}

void Comm::AddPeer(std::map<PeerKey, PeerReport>* peers) const {
  MutexLock lock(mutex_);
  if (closed_) return;
  auto known = std::find_if(paths_.begin(), paths_.end(), [](const Path& path) { return path.nic >= 0; });
  if (known == paths_.end()) return;
  PeerReport& tally = (*peers)[{Direction(), r2ccl::ToString(known->remote)}];
  ++tally.connections;
  if (!failure_.ok()) ++tally.failed;
  for (const Path& path : paths_) {
    bool on_probation = path.state == PathState::kUp && IsOnProbation(path);
    ++(path.state == PathState::kUp && !on_probation ? tally.paths_up : tally.paths_down);
    if (path.state == PathState::kHeld || on_probation) ++tally.paths_held;
  }
}

void Comm::Close() {
  MutexLock lock(mutex_);
  if (closed_ || linger_until_ns_ != 0) return;
  Status closed(Code::kInvalidArgument, "the connection is closed");
  {
    MutexLock inbox_lock(inbox_mutex_);
    if (inbox_failure_.ok()) inbox_failure_ = closed;
  }
  EmptyInbox();  // what still waits there may owe more than a copy
  if (failure_.ok() && OwesOnlyCopies()) {
    linger_until_ns_ = Now() + kLingerNs;
    self_ = shared_from_this();
    StopPolling();
    return;
  }
  End(closed);
  closed_ = true;
}

bool Comm::lingers() const {
  MutexLock lock(mutex_);
  return linger_until_ns_ != 0 && !closed_;
}

void Comm::EndLinger(int64_t now_ns) {
  if (failure_.ok() && HasPending() && now_ns < linger_until_ns_) return;
  End({Code::kInvalidArgument, "the connection is closed"});
  closed_ = true;
  self_.reset();  // the caller holds another
}

void Comm::End(Status status) {
  if (!failure_.ok() || closed_) return;
  failure_ = std::move(status);
  ended_.store(true);
  HangUp();
  FailRequests();
  {
    MutexLock lock(inbox_mutex_);
    inbox_failure_ = failure_;
  }
  EmptyInbox();
  environment_->notifier->Notify();
}

void Comm::OnThrow(const std::string& reason) noexcept {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      MutexLock lock(mutex_);
      return Fail({Code::kSystem, "the connection ends, as its state is not known after an exception: " + reason});
    } catch (const std::exception&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // memory may come back
    }
  }
  std::terminate();  // what the requests have to say cannot be said
}

// Says farewell on every stream that can take it, so that the peer need not find out by itself. So can one whose
// greeting has not been answered yet: to the peer the path may be up.
void Comm::HangUp() {
  for (Path& path : paths_) {
    if (std::shared_ptr<Stream> stream = std::move(path.stream)) stream->HangUp(Farewell());
    path.state = PathState::kDown;
  }
}

void Comm::Log(const char* kind, const Path& path, const std::string& detail, const char* cause) {
  environment_->log.Add(kind, path.nic < 0 ? "" : nic(path).name, r2ccl::ToString(path.remote), detail, cause);
}

void Comm::Advance(Path& path, PathEvent event) {
  if (auto next = NextState(path.state, event)) path.state = *next;
}

void Comm::MarkUp(Path& path, bool hold) {
  Advance(path, hold ? PathEvent::kHeldBack : PathEvent::kGreeted);
  path.progress_ns = Now();
  path.up_since_ns = path.progress_ns;
  path.loss = {};
  path.usual_ns = 0;
  path.held_ns = absent_ns_;
  path.no_room_ns = path.told_held_ns = 0;
  path.suspect = false;
  path.resent_before = 0;
  path.acked_bytes = 0;
  path.delivered = 0;
  path.proven_ns = path.progress_ns;
  path.mark = {};
  path.queued_until_ns = 0;
  path.heard_ns = path.progress_ns;
  path.backoff_ns = 0;
  path.outlook = Outlook::kOpen;
  no_path_since_ns_ = 0;
  if (hold) {
    Log("path_held", path,
        "lost too often lately: carries nothing until it has stayed up for " +
            std::to_string(path.flaps.HoldMs(environment_->params, path.progress_ns)) + " ms",
        "flapping");
    path.told_up = true;
  } else if (!IsOnProbation(path)) {
    TellUp(path);
  }
  path.was_up = true;
  path.obstacle.clear();
  path.is_absent = false;
  environment_->locator->TakeReturn(path.nic, path.remote);
}

Comm::Path* Comm::AnyUp() {
  auto rank = [this](const Path& path) {
    bool doubted = path.suspect || IsDoubted(path);
    return std::tuple(path.stream->unsaid_bytes() > 0, doubted, path.state == PathState::kHeld, path.up_since_ns);
  };
  Path* best = nullptr;
  for (Path& path : paths_) {
    if (IsOpen(path.state) && (best == nullptr || rank(path) < rank(*best))) best = &path;
  }
  return best;
}

// Nothing of the stream can land after this.
void Comm::Cut(Path& path) {
  if (std::shared_ptr<Stream> stream = std::move(path.stream)) stream->Cut();
  path.test = {};
  path.late = path.tested = path.owes_word = false;
  Advance(path, PathEvent::kLost);
}

void Comm::TellPeer(const Path& about, uint32_t epoch, Cause cause) {
  std::string hint =
      EncodeControl(FrameType::kPathDown, static_cast<uint16_t>(about.index), epoch, static_cast<uint64_t>(cause));
  if (environment_->params.mode != 0) {
    if (Path* other = AnyUp()) other->stream->Say(hint);
    return;
  }
  // This end is about to hang up everywhere: whichever stream the peer reads first names the NIC that was lost.
  for (Path& other : paths_) {
    if (IsOpen(other.state)) other.stream->Say(hint);
  }
}

void Comm::Suspect(const Path& path, uint32_t epoch, bool own_link_down, bool peer_link_down) {
  if (path.nic < 0) return;
  environment_->locator->Suspect({weak_from_this(),
                                  static_cast<uint16_t>(path.index),
                                  epoch,
                                  path.nic,
                                  {path.remote, PeerPort()},
                                  own_link_down,
                                  peer_link_down});
}

void Comm::Retire(Path& path, const std::string& reason, bool tell_peer, Cause cause) {
  bool was_up = IsOpen(path.state);
  uint32_t epoch = path.epoch;
  Cut(path);
  if (peer_closed_) return;  // it has said farewell, so the end of its streams is no loss
  int64_t now_ns = Now();
  const Params& params = environment_->params;
  path.backoff_ns = path.backoff_ns == 0 ? params.probe_ms * kMillisecond
                                         : std::min(path.backoff_ns * 2, params.probe_max_ms * kMillisecond);
  path.dial_ns = now_ns + path.backoff_ns;
  if (!was_up) {
    OnLost(path);
    return;
  }
  // One that was open only to be tested carried nothing: it was not taken back too soon, and its end is no news.
  bool is_news = std::exchange(path.told_up, false);
  if (is_news) path.flaps.Lose(params, now_ns);
  if (cause != Cause::kOwnLink) {  // who lost a link tells every connection itself
    if (is_news) nic_state(path).doubt_ns = now_ns;
    BeginProbation(path, now_ns, "lost");
  }
  if (is_news) Log("path_down", path, reason);
  if (tell_peer) TellPeer(path, epoch, cause);
  if (params.mode == 0) {
    Fail({Code::kPeerLost, "NIC " + nic(path).name + " (" + r2ccl::ToString(nic(path).address) + " to " +
                               r2ccl::ToString(path.remote) + ") was lost: " + reason +
                               "; R2CC_MODE=0 stops at the first failure"});
    return;
  }
  bool link_down = cause == Cause::kOwnLink;
  if (is_news && (tell_peer || link_down)) Suspect(path, epoch, tell_peer && link_down, !tell_peer);
  if (AnyUp() == nullptr && no_path_since_ns_ == 0) {
    no_path_since_ns_ = now_ns;
    if (now_ns - path.up_since_ns >= params.probe_ms * kMillisecond) RedialAll(now_ns);
  }
  OnLost(path);
}

// Nothing is left, so nothing is gained by a pause: where the peer has ended its host says so at once.
void Comm::RedialAll(int64_t now_ns) {
  for (Path& path : paths_) {
    if (path.state != PathState::kDown) continue;
    path.backoff_ns = 0;
    path.dial_ns = now_ns;
  }
}

void Comm::TakePathDown(const Frame& frame) {
  if (frame.path >= paths_.size()) return;
  Path& path = paths_[frame.path];
  if (frame.a == static_cast<uint64_t>(Cause::kLinkIsBack)) {
    if (!IsOpen(path.state)) OnPeerLinkBack(path);
    return;
  }
  if (frame.a == static_cast<uint64_t>(Cause::kNeverUp)) return TakeAbsent(path, frame);
  if (frame.a == static_cast<uint64_t>(Cause::kLate)) {
    if (path.nic >= 0 && IsOpen(path.state) && path.epoch == frame.epoch) DoubtNic(path, Now());
    return;
  }
  bool link_down = frame.a == static_cast<uint64_t>(Cause::kOwnLink);
  if (IsOpen(path.state)) {
    if (path.epoch != frame.epoch) return;
    Retire(path, kPeerHint, false, link_down ? Cause::kOwnLink : Cause::kUnknown);
  } else if (link_down && frame.epoch <= path.epoch) {
    Suspect(path, frame.epoch, false, true);  // an acknowledgement said so first, but not why
  }
}

Status Comm::TakeShared(Path& path, const std::vector<uint8_t>& control) {
  const Frame& frame = path.frame;
  if (frame.type == FrameType::kPathDown) TakePathDown(frame);
  if (frame.type == FrameType::kProbed) environment_->locator->TakeProbed(frame.a, frame.b, frame.c);
  if (frame.type != FrameType::kProbe && frame.type != FrameType::kVerdict) return {};
  if (frame.path >= paths_.size() || paths_[frame.path].nic < 0) return {};
  const Path& about = paths_[frame.path];
  if (frame.type == FrameType::kProbe) {
    environment_->locator->TakeProbe({weak_from_this(), frame.path, frame.a, about.nic, about.remote,
                                      DecodeTargets(control.data(), frame.body_bytes)});
  } else if (frame.epoch <= about.epoch && frame.a <= static_cast<uint64_t>(Verdict::kWorks)) {
    environment_->locator->TakeVerdict(about.nic, about.remote, static_cast<Verdict>(frame.a), !IsOpen(about.state));
  }
  return {};
}

bool Comm::Say(const std::string& frames) {
  MutexLock lock(mutex_);
  Path* path = closed_ || !failure_.ok() ? nullptr : AnyUp();
  if (path == nullptr || path->stream->unsaid_bytes() > kMostControlBytes) return false;
  path->stream->Say(frames);
  return true;
}

bool Comm::ThirdOn(int nic, Third* third) {
  MutexLock lock(mutex_);
  if (closed_ || !failure_.ok()) return false;
  for (const Path& path : paths_) {
    if (path.nic != nic) continue;
    *third = {shared_from_this(), static_cast<uint16_t>(path.index), {path.remote, PeerPort()}, path.was_up};
    return true;
  }
  return false;
}

void Comm::Fail(Status status) {
  if (!failure_.ok() || closed_) return;
  environment_->log.Add("failed", "", "", status.message());
  if (fate_ != nullptr) fate_->Seal(status);
  End(std::move(status));
}

void Comm::ShareFate(std::shared_ptr<Fate> fate) {
  MutexLock lock(mutex_);
  fate_ = std::move(fate);
  if (!failure_.ok()) fate_->Seal(failure_);
}

bool Comm::OnWake() {
  EmptyInbox();
  return !closed_ && failure_.ok();
}

void Comm::OnConnected(int) {}

void Comm::OnNotConnected(int index, const std::string& reason, bool refused) {
  Path& path = paths_[static_cast<size_t>(index)];
  path.outlook = refused ? Outlook::kRefused : Outlook::kSilent;
  Retire(path, reason, false);
}

void Comm::OnHeard(int path) {
  paths_[static_cast<size_t>(path)].heard = true;
  hot_ = path;
}

Status Comm::OnFrameBegins(int index, const Frame& frame, char** body) {
  Path& path = paths_[static_cast<size_t>(index)];
  path.frame = frame;
  path.body = nullptr;
  Status status = OnHeader(path);
  *body = path.body;
  return status;
}

Status Comm::OnFrameEnds(int path, const std::vector<uint8_t>& control) {
  word_ns_ = Now();
  return OnBody(paths_[static_cast<size_t>(path)], control);
}

void Comm::OnReadDone(int path) {
  if (failure_.ok()) AfterRead(paths_[static_cast<size_t>(path)]);
}

void Comm::OnStreamLost(int path, const std::string& reason) {
  Retire(paths_[static_cast<size_t>(path)], reason, true);
}

void Comm::OnNic(const NicChange& change) {
  MutexLock lock(mutex_);
  if (closed_ || !failure_.ok()) return;
  bool concerned = false;
  for (Path& path : paths_) {
    if (path.nic != change.nic) continue;
    concerned = true;
    path.link_down = !change.running;
    path.obstacle = change.running ? "" : nic(path).name + ": " + change.why;
    if (change.lost && path.state != PathState::kDown) Retire(path, "link down: " + change.why, true, Cause::kOwnLink);
    if (!failure_.ok()) return;
    if (change.running && path.state == PathState::kDown) {
      path.dial_ns = 0;
      path.backoff_ns = 0;
      OnOwnLinkBack(path);
    }
  }
  if (!concerned) return;
  AfterRead(paths_.front());
  OnWritable();
}

}  // namespace r2ccl
