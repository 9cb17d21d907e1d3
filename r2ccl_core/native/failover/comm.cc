// The life of the paths of a connection, what is said about them, and how it ends; of both ends.
#include "failover/comm.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/clock.h"

namespace r2ccl {
namespace {

constexpr size_t kMostControlBytes = 65536;  // that wait for a stream

}  // namespace

Comm::Comm(Environment* environment, Poller* poller) : environment_(environment), poller_(poller) {}

Status Comm::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Comm::AddHealth(std::vector<NicHealth>* health) const {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  for (const Path& path : paths_) {
    if (path.nic < 0) continue;
    NicHealth& tally = (*health)[static_cast<size_t>(path.nic)];
    ++(path.state == PathState::kUp ? tally.up : tally.down);
    if (path.state == PathState::kHeld) ++tally.held;
  }
}

void Comm::AddPeer(std::map<PeerKey, PeerReport>* peers) const {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  auto known = std::find_if(paths_.begin(), paths_.end(), [](const Path& path) { return path.nic >= 0; });
  if (known == paths_.end()) return;
  PeerReport& tally = (*peers)[{Direction(), r2ccl::ToString(known->remote)}];
  ++tally.connections;
  if (!failure_.ok()) ++tally.failed;
  for (const Path& path : paths_) {
    ++(path.state == PathState::kUp ? tally.paths_up : tally.paths_down);
    if (path.state == PathState::kHeld) ++tally.paths_held;
  }
}

void Comm::Close() {
  std::lock_guard lock(mutex_);
  if (closed_ || linger_until_ns_ != 0) return;
  Status closed(Code::kInvalidArgument, "the connection is closed");
  if (failure_.ok() && OwesOnlyCopies()) {
    linger_until_ns_ = NowNs() + kLingerNs;
    self_ = shared_from_this();
    UnmuteAll();
    std::lock_guard inbox_lock(inbox_mutex_);
    inbox_failure_ = closed;
    return;
  }
  End(closed);
  closed_ = true;
}

bool Comm::lingers() const {
  std::lock_guard lock(mutex_);
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
    std::lock_guard lock(inbox_mutex_);
    inbox_failure_ = failure_;
  }
  EmptyInbox();
  environment_->notifier->Notify();
}

// Says farewell on every stream that can take it, so that the peer need not find out by itself; a stream that
// stands in mid-frame or is full is reset.
void Comm::HangUp() {
  for (Path& path : paths_) {
    bool told = false;
    DropTaken(path);  // or the kernel would reset the stream
    if (IsOpen(path.state) && AtFrameBoundary(path)) {
      path.control += Farewell();
      told = FlushControl(path);
    }
    if (path.poll_id != 0) poller_->Remove(path.poll_id);
    path.poll_id = 0;
    path.state = PathState::kDown;
    if (told) {
      path.fd.Reset();
    } else {
      ResetConnection(&path.fd);
    }
  }
}

void Comm::Log(const char* kind, const Path& path, const std::string& detail) {
  environment_->log.Add(kind, path.nic < 0 ? "" : nic(path).name, r2ccl::ToString(path.remote), detail);
}

void Comm::Advance(Path& path, PathEvent event) {
  if (auto next = NextState(path.state, event)) path.state = *next;
}

void Comm::Register(Path& path, uint32_t events) {
  path.wants_write = (events & EPOLLOUT) != 0;
  path.muted = false;
  path.peeks = environment_->program_polls && KeepPeeks(path.fd.get());
  path.poll_id = poller_->Add(path.fd.get(), events, path.index, shared_from_this());
}

void Comm::Watch(Path& path) {
  uint32_t events = 0;
  if (!path.muted) events |= EPOLLIN;
  if (path.wants_write) events |= EPOLLOUT;
  poller_->Modify(path.poll_id, events);
}

void Comm::SetWantsWrite(Path& path, bool wants) {
  if (path.wants_write == wants || path.poll_id == 0) return;
  path.wants_write = wants;
  Watch(path);
}

void Comm::SetMuted(Path& path, bool muted) {
  if (path.muted == muted || path.poll_id == 0) return;
  if (!muted) DropTaken(path);
  path.muted = muted;
  Watch(path);
}

void Comm::UnmuteAll() {
  for (Path& path : paths_) SetMuted(path, false);
}

void Comm::MarkUp(Path& path, bool hold) {
  Advance(path, hold ? PathEvent::kHeldBack : PathEvent::kGreeted);
  path.progress_ns = NowNs();
  path.up_since_ns = path.progress_ns;
  path.loss = {};
  path.suspect = false;
  path.acked_bytes = 0;
  path.delivered = 0;
  path.proven_ns = path.progress_ns;
  path.heard_ns = path.progress_ns;
  path.backoff_ns = 0;
  path.outlook = Outlook::kOpen;
  path.header_bytes = 0;
  path.in_body = false;
  no_path_since_ns_ = 0;
  if (hold) {
    Log("path_held", path,
        "lost too often lately: carries nothing until it has stayed up for " +
            std::to_string(path.flaps.HoldMs(environment_->params, path.progress_ns)) + " ms");
  } else {
    Log(path.was_up ? "path_returned" : "path_up", path, "epoch " + std::to_string(path.epoch));
  }
  path.was_up = true;
  environment_->locator->TakeReturn(path.nic, path.remote);
}

Comm::Path* Comm::AnyUp() {
  auto rank = [this](const Path& path) {
    bool doubted = path.suspect || IsDoubted(path);
    return std::tuple(!path.control.empty(), doubted, path.state == PathState::kHeld, path.up_since_ns);
  };
  Path* best = nullptr;
  for (Path& path : paths_) {
    if (IsOpen(path.state) && (best == nullptr || rank(path) < rank(*best))) best = &path;
  }
  return best;
}

// Nothing of the stream can land after this.
void Comm::Cut(Path& path) {
  if (path.poll_id != 0) poller_->Remove(path.poll_id);
  path.poll_id = 0;
  ResetConnection(&path.fd);
  Advance(path, PathEvent::kLost);
  path.muted = false;
  path.control.clear();
  path.control_sent = 0;
  path.header_bytes = 0;
  path.in_body = false;
  path.taken_bytes = 0;
}

void Comm::TellPeer(const Path& about, uint32_t epoch, Cause cause) {
  std::string hint =
      EncodeControl(FrameType::kPathDown, static_cast<uint16_t>(about.index), epoch, static_cast<uint64_t>(cause));
  if (environment_->params.mode != 0) {
    if (Path* other = AnyUp()) SendControl(*other, hint);
    return;
  }
  // This end is about to hang up everywhere: whichever stream the peer reads first names the NIC that was lost.
  for (Path& other : paths_) {
    if (IsOpen(other.state)) SendControl(other, hint);
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
  int64_t now_ns = NowNs();
  const Params& params = environment_->params;
  path.backoff_ns = path.backoff_ns == 0 ? params.probe_ms * kMillisecond
                                         : std::min(path.backoff_ns * 2, params.probe_max_ms * kMillisecond);
  path.dial_ns = now_ns + path.backoff_ns;
  if (!was_up) {
    OnLost(path);
    return;
  }
  path.flaps.Lose(params, now_ns);
  if (cause != Cause::kOwnLink) counters(path).doubt_ns = now_ns;  // who lost a link tells every connection itself
  Log("path_down", path, reason);
  if (tell_peer) TellPeer(path, epoch, cause);
  if (params.mode == 0) {
    Fail({Code::kPeerLost, "NIC " + nic(path).name + " (" + r2ccl::ToString(nic(path).address) + " to " +
                               r2ccl::ToString(path.remote) + ") was lost: " + reason +
                               "; R2CC_MODE=0 stops at the first failure"});
    return;
  }
  bool link_down = cause == Cause::kOwnLink;
  if (tell_peer || link_down) Suspect(path, epoch, tell_peer && link_down, !tell_peer);
  if (AnyUp() == nullptr && no_path_since_ns_ == 0) no_path_since_ns_ = now_ns;
  OnLost(path);
}

void Comm::TakePathDown(const Frame& frame) {
  if (frame.path >= paths_.size()) return;
  Path& path = paths_[frame.path];
  if (frame.a == static_cast<uint64_t>(Cause::kLinkIsBack)) {
    if (!IsOpen(path.state)) OnPeerLinkBack(path);
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

Status Comm::TakeShared(Path& path) {
  const Frame& frame = path.frame;
  if (frame.type == FrameType::kPathDown) TakePathDown(frame);
  if (frame.type == FrameType::kProbed) environment_->locator->TakeProbed(frame.a, frame.b, frame.c);
  if (frame.type != FrameType::kProbe && frame.type != FrameType::kVerdict) return {};
  if (frame.path >= paths_.size() || paths_[frame.path].nic < 0) return {};
  const Path& about = paths_[frame.path];
  if (frame.type == FrameType::kProbe) {
    environment_->locator->TakeProbe({weak_from_this(), frame.path, frame.a, about.nic, about.remote,
                                      DecodeTargets(path.control_body.data(), frame.body_bytes)});
  } else if (frame.epoch <= about.epoch && frame.a <= static_cast<uint64_t>(Verdict::kWorks)) {
    environment_->locator->TakeVerdict(about.nic, about.remote, static_cast<Verdict>(frame.a), !IsOpen(about.state));
  }
  return {};
}

bool Comm::Say(const std::string& frames) {
  std::lock_guard lock(mutex_);
  Path* path = closed_ || !failure_.ok() ? nullptr : AnyUp();
  if (path == nullptr || path->control.size() > kMostControlBytes) return false;
  SendControl(*path, frames);
  return true;
}

bool Comm::ThirdOn(int nic, Third* third) {
  std::lock_guard lock(mutex_);
  if (closed_ || !failure_.ok()) return false;
  for (const Path& path : paths_) {
    if (path.nic != nic || !path.was_up) continue;
    *third = {shared_from_this(), static_cast<uint16_t>(path.index), {path.remote, PeerPort()}};
    return true;
  }
  return false;
}

void Comm::Fail(Status status) {
  if (!failure_.ok() || closed_) return;
  environment_->log.Add("failed", "", "", status.message());
  if (fate_ != nullptr) fate_->store(true);
  End(std::move(status));
}

void Comm::ShareFate(std::shared_ptr<std::atomic<bool>> failed) {
  std::lock_guard lock(mutex_);
  fate_ = std::move(failed);
  if (!failure_.ok()) fate_->store(true);
}

void Comm::SendControl(Path& path, const std::string& bytes) {
  path.control += bytes;
  if (AtFrameBoundary(path)) FlushControl(path);
}

bool Comm::FlushControl(Path& path) {
  while (path.control_sent < path.control.size()) {
    ssize_t sent = send(path.fd.get(), path.control.data() + path.control_sent, path.control.size() - path.control_sent,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      // A real error shows itself to the reader as well, which retires the path in one place.
      SetWantsWrite(path, true);
      return false;
    }
    path.control_sent += static_cast<size_t>(sent);
  }
  path.control.clear();
  path.control_sent = 0;
  return true;
}

void Comm::OnEvents(uint64_t id, int tag, uint32_t events) {
  std::lock_guard lock(mutex_);
  EmptyInbox();
  if (closed_ || !failure_.ok()) return;
  Path& path = paths_[static_cast<size_t>(tag)];
  if (path.poll_id != id) return;  // fetched before the path was retired
  if (path.state == PathState::kConnecting) {
    OnWritable();
    return;
  }
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
    Read(path);
    if (!failure_.ok()) return;
    OnReadDone(path);
  }
  if ((events & EPOLLOUT) != 0 && path.poll_id == id) {
    SetWantsWrite(path, false);
    OnWritable();
  }
}

void Comm::OnLink(int ifindex, bool running) {
  std::lock_guard lock(mutex_);
  if (closed_ || !failure_.ok()) return;
  for (Path& path : paths_) {
    if (path.nic < 0 || nic(path).ifindex != ifindex) continue;
    path.link_down = !running;
    if (!running && path.state != PathState::kDown) Retire(path, "link down", true, Cause::kOwnLink);
    if (!failure_.ok()) return;
    if (running && path.state == PathState::kDown) {
      path.dial_ns = 0;
      path.backoff_ns = 0;
      OnOwnLinkBack(path);
    }
  }
  OnReadDone(paths_.front());
  OnWritable();
}

}  // namespace r2ccl
