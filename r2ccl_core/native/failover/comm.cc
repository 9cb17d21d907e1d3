// The shared half of both ends: reading frames, retiring paths, detecting silence, failing.
#include "failover/comm.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/clock.h"

namespace r2ccl {
namespace {

constexpr size_t kReadBudget = 4 << 20;  // bytes of one path before others get their turn
constexpr size_t kScratchBytes = 65536;
constexpr size_t kStageBytes = 8192 + 4 * kHeaderBytes;  // NCCL's low-latency message of 4 KiB, and some frames
constexpr size_t kPeekedBytes = 128;  // of a frame's body; of larger ones the kernel acknowledges every other anyway
constexpr int kManyReads = 6;         // taken: time to drop them when there is nothing to do
constexpr int kMostReads = 9;         // a stream that begins sends ten segments, and then waits for word of them
constexpr int64_t kTakenNs = kMillisecond;  // the peer's kernel sends the last of several again after two
constexpr int64_t kAsleepNs = 60 * kMillisecond;
constexpr size_t kMostControlBytes = 65536;  // that wait for a stream
constexpr int64_t kGoneNs = 1000 * kMillisecond;

}  // namespace

Comm::Comm(Environment* environment, Poller* poller) : environment_(environment), poller_(poller) {}

Request* Comm::NewRequest() {
  if (free_requests_.empty()) {
    requests_.push_back(std::make_unique<Request>());
    free_requests_.push_back(requests_.back().get());
  }
  Request* request = free_requests_.back();
  free_requests_.pop_back();
  request->owner = this;
  request->size = 0;
  request->state.store(Request::kPending, std::memory_order_relaxed);
  return request;
}

void Comm::Complete(Request* request, Request::State state) {
  request->state.store(state, std::memory_order_release);
  environment_->notifier->Notify();
}

// Who has the mutex, and nothing waits before him, needs no inbox.
Status Comm::Submit(Order order, Request** request) {
  std::unique_lock own(mutex_, std::defer_lock);
  bool mine = inline_.load(std::memory_order_relaxed) && own.try_lock();
  bool at_once = mine, may_wait = false;
  {
    std::lock_guard lock(inbox_mutex_);
    if (!inbox_failure_.ok()) return inbox_failure_;
    order.request = *request = NewRequest();
    at_once = at_once && inbox_.empty();
    if (!at_once) inbox_.push_back(order);
    has_orders_.store(!at_once, std::memory_order_relaxed);
    may_wait = orders_wait_;
  }
  if (at_once) {
    Put(order);
    if (failure_.ok()) OnTaken();
  }
  if (mine) {
    EmptyInbox();
    Hush();
  } else if (!may_wait && !kicked_.exchange(true)) {
    poller_->Kick(shared_from_this());
  }
  return {};
}

void Comm::LetOrdersWait(bool wait) {
  if (wait == orders_wait_) return;
  {
    std::lock_guard lock(inbox_mutex_);
    orders_wait_ = wait;
  }
  if (!wait) EmptyInbox();  // nobody is kicked for those that are there
}

void Comm::Put(const Order& order) {
  if (failure_.ok()) {
    Take(order);
  } else {
    Complete(order.request, Request::kFailed);
  }
}

void Comm::EmptyInbox() {
  if (!has_orders_.load(std::memory_order_relaxed)) return;
  std::vector<Order> orders = std::move(taken_);
  {
    std::lock_guard lock(inbox_mutex_);
    orders.swap(inbox_);
    has_orders_.store(false, std::memory_order_relaxed);
  }
  for (const Order& order : orders) Put(order);
  if (failure_.ok()) OnTaken();
  orders.clear();
  taken_ = std::move(orders);
}

void Comm::OnKick() {
  kicked_.exchange(false);  // sees the orders of whom this kick serves, too
  std::lock_guard lock(mutex_);
  if (!inline_.load(std::memory_order_relaxed)) UnmuteAll();
  EmptyInbox();
}

Status Comm::Test(Request* request, bool* done, uint64_t* size, uint32_t* tag) {
  *done = false;
  Request::State state = request->state.load(std::memory_order_acquire);
  if (state == Request::kPending && inline_.load(std::memory_order_relaxed) && mutex_.try_lock()) {
    std::lock_guard lock(mutex_, std::adopt_lock);
    Poll();
    state = request->state.load(std::memory_order_acquire);
  }
  if (state == Request::kPending) return {};
  *done = state == Request::kDone;
  if (size != nullptr) *size = request->size;
  if (tag != nullptr) *tag = request->tag;
  std::lock_guard lock(inbox_mutex_);
  free_requests_.push_back(request);
  return *done ? Status() : inbox_failure_;
}

// What the poller's thread does when streams are readable, without waiting for it to wake.
void Comm::Poll() {
  EmptyInbox();
  if (environment_->program_polls && ++polls_ % kPollAllEvery != 0) {
    ReadOpen(paths_[static_cast<size_t>(hot_)]);
  } else {
    for (Path& path : paths_) ReadOpen(path);
    DropOld();
  }
  Hush();
}

void Comm::ReadOpen(Path& path) {
  if (!IsOpen(path.state) || !failure_.ok()) return;
  Read(path);
  if (failure_.ok()) OnReadDone(path);
}

void Comm::ReadHot() {
  Path& hot = paths_[static_cast<size_t>(hot_)];
  if (hot.muted && IsOpen(hot.state)) Read(hot);
}

// Before the peer's kernel believes it lost.
void Comm::DropOld() {
  for (Path& path : paths_) {
    if (path.taken_bytes > 0 && NowNs() - path.taken_ns > kTakenNs) DropTaken(path);
  }
}

// The program is about to look again, and ticks look in any case.
void Comm::Hush() {
  if (!environment_->program_polls || !failure_.ok() || !inline_.load(std::memory_order_relaxed)) return;
  polled_ = true;
  Path& hot = paths_[static_cast<size_t>(hot_)];
  if (hot.muted && hushed_ == hot_) return;
  if (hushed_ != hot_) SetMuted(paths_[static_cast<size_t>(hushed_)], false);
  hushed_ = hot_;
  SetMuted(hot, IsOpen(hot.state));
}

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
  path.obstacle.clear();
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

void Comm::Lose(Path& path, ssize_t received) {
  Retire(path, received == 0 ? "the peer closed the stream" : std::string("socket error: ") + std::strerror(errno),
         true);
}

// Takes `bytes` of the stream that were read already.
Status Comm::Feed(Path& path, const char* data, size_t bytes) {
  uint64_t id = path.poll_id;
  Status status;
  while (bytes > 0 && status.ok() && path.poll_id == id) {
    size_t count;
    if (path.in_body) {
      count = std::min(bytes, path.body_left);
      if (path.body != nullptr) {
        std::memcpy(path.body, data, count);
        path.body += count;
      }
      path.body_left -= count;
      if (path.frame.type == FrameType::kData) counters(path).received_bytes += count;
      if (path.body_left == 0) status = FinishBody(path);
    } else {
      count = std::min(bytes, kHeaderBytes - path.header_bytes);
      std::memcpy(path.header + path.header_bytes, data, count);
      path.header_bytes += count;
      if (path.header_bytes == kHeaderBytes) status = TakeHeader(path);
    }
    data += count;
    bytes -= count;
  }
  return status;
}

// Several small frames with one call of the kernel, at the price of a copy. False when there is no more to read.
//
// Who empties the kernel's queue has it send an acknowledgement for nearly every message, which takes longer than all
// the rest. So small frames are taken while they still lie there, and leave it together.
bool Comm::ReadSmall(Path& path) {
  char stage[kStageBytes];
  bool peek = path.peeks && path.muted && path.frame.body_bytes <= kPeekedBytes;
  if (!peek) DropTaken(path);
  ssize_t received = recv(path.fd.get(), stage, sizeof stage, MSG_DONTWAIT | (peek ? MSG_PEEK : 0));
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (path.taken_reads >= kManyReads) DropTaken(path);
    return false;
  }
  if (received <= 0) {
    Lose(path, received);
    return false;
  }
  path.heard = true;
  hot_ = path.index;
  auto bytes = static_cast<size_t>(received);
  if (peek) {
    if (path.taken_bytes == 0) path.taken_ns = NowNs();
    path.taken_bytes += bytes;
  }
  uint64_t id = path.poll_id;
  Status status = Feed(path, stage, bytes);
  if (path.poll_id != id) return false;
  if (peek && ++path.taken_reads >= kMostReads) DropTaken(path);
  if (!status.ok()) Retire(path, status.message(), true);
  return path.poll_id == id && bytes == sizeof stage;
}

void Comm::DropTaken(Path& path) {
  char nowhere[kStageBytes];
  path.taken_reads = 0;
  while (path.taken_bytes > 0) {
    size_t bytes = std::min(path.taken_bytes, sizeof nowhere);
    ssize_t dropped = recv(path.fd.get(), nowhere, bytes, MSG_DONTWAIT | MSG_TRUNC);
    if (dropped < 0 && errno == EINTR) continue;
    if (dropped <= 0) return;  // a broken stream, as the next read finds
    path.taken_bytes -= static_cast<size_t>(dropped);
  }
}

void Comm::Read(Path& path) {
  thread_local std::vector<char> scratch(kScratchBytes);
  size_t budget = kReadBudget;
  uint64_t id = path.poll_id;
  while (path.poll_id == id && budget > 0) {
    bool small = !GetsData() || inline_.load(std::memory_order_relaxed);
    if (small && (!path.in_body || path.body_left < kStageBytes)) {
      if (!ReadSmall(path)) return;
      budget -= std::min(budget, kStageBytes);
      continue;
    }
    DropTaken(path);
    iovec parts[2];
    int count = 0;
    size_t body_wanted = 0;
    if (path.in_body) {
      body_wanted = path.body == nullptr ? std::min(path.body_left, scratch.size()) : path.body_left;
      parts[count++] = {path.body == nullptr ? scratch.data() : path.body, body_wanted};
    }
    bool header_too = !path.in_body || body_wanted == path.body_left;
    if (header_too) parts[count++] = {path.header + path.header_bytes, kHeaderBytes - path.header_bytes};
    ssize_t received = readv(path.fd.get(), parts, count);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (received <= 0) {
      Lose(path, received);
      return;
    }
    path.heard = true;
    hot_ = path.index;
    auto bytes = static_cast<size_t>(received);
    size_t wanted = body_wanted + (header_too ? kHeaderBytes - path.header_bytes : 0);
    budget -= std::min(budget, bytes);
    size_t body_bytes = std::min(bytes, body_wanted);
    path.header_bytes += bytes - body_bytes;
    if (path.in_body) {
      if (path.body != nullptr) path.body += body_bytes;
      path.body_left -= body_bytes;
      if (path.frame.type == FrameType::kData) counters(path).received_bytes += body_bytes;
    }
    Status status;
    if (path.in_body && path.body_left == 0) status = FinishBody(path);
    if (status.ok() && path.poll_id == id && !path.in_body && path.header_bytes == kHeaderBytes) {
      status = TakeHeader(path);
    }
    if (!status.ok() && path.poll_id == id) Retire(path, status.message(), true);
    if (bytes < wanted) return;  // there was no more
  }
}

Status Comm::TakeHeader(Path& path) {
  path.header_bytes = 0;
  Status status = DecodeFrame(path.header, &path.frame);
  if (!status.ok()) return status;
  path.body_left = path.frame.body_bytes;
  path.body = nullptr;
  path.in_body = true;
  if (BuffersBody(path)) {
    path.control_body.resize(path.body_left);
    path.body = reinterpret_cast<char*>(path.control_body.data());
  }
  status = OnHeader(path);
  if (!status.ok() || !path.in_body) return status;
  return path.body_left == 0 ? FinishBody(path) : Status();
}

Status Comm::FinishBody(Path& path) {
  path.in_body = false;
  if (BuffersBody(path)) {
    Status status = CheckBody(path.frame, path.control_body.data());
    if (!status.ok()) return status;
  }
  return OnBody(path);
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

void Comm::CheckStall(Path& path, int64_t now_ns, bool was_asleep) {
  TcpProgress progress;
  if (!ReadProgress(path.fd.get(), &progress)) return;
  bool advanced = progress.bytes_acked != path.acked_bytes;
  if (path.heard || advanced) path.heard_ns = now_ns;
  path.heard = false;
  if (progress.unanswered == 0 && progress.unsent_bytes > 0) PushUnsent(path.fd.get());
  path.round_trip_ns = progress.rtt_ns;
  if (std::exchange(path.delivered, progress.delivered) != progress.delivered || advanced) path.proven_ns = now_ns;
  if (progress.unanswered == 0 || advanced || was_asleep) {
    path.acked_bytes = progress.bytes_acked;
    path.progress_ns = now_ns;
    path.suspect = false;
    path.loss.Sample(progress, now_ns);
    if (progress.unanswered == 0) CheckQuiet(path, now_ns);
    return;
  }
  const Params& params = environment_->params;
  bool lossy = path.loss.lossy();
  Silence silence{now_ns - path.progress_ns, now_ns - std::max(path.progress_ns, path.proven_ns)};
  int64_t limit_ns = StallLimitNs(params, progress);
  if (silence.any_ns > limit_ns / 3) {
    Target peer{path.remote, PeerPort()};
    silence.any_ns =
        std::min(silence.any_ns, now_ns - environment_->witness->AskedAnswerNs(path.nic, peer, limit_ns / 2));
  }
  if (IsDead(params, progress, lossy, silence)) {
    std::string silent_ms = std::to_string(silence.in_order_ns / kMillisecond);
    Retire(path, "stalled: no acknowledgement for " + silent_ms + " ms", true);
    return;
  }
  // The other paths of its NIC are doubted from then on. Not sooner: a full queue alone is silent for 20 ms.
  if (!IsDoubted(path) && silence.any_ns > limit_ns / 2) counters(path).doubt_ns = now_ns;
  AskSuspect(path, progress, now_ns);
}

// A single lost packet with nothing behind it is reported by the peer's kernel only when something comes behind it.
void Comm::AskSuspect(Path& path, const TcpProgress& progress, int64_t now_ns) {
  int64_t patience_ns = SuspectAfterNs(progress);
  path.suspect = now_ns - path.progress_ns > patience_ns;
  if (path.suspect && now_ns - path.asked_ns >= patience_ns) Ping(path, now_ns);
}

bool Comm::Ping(Path& path, int64_t now_ns) {
  if (!path.control.empty() || !AtFrameBoundary(path)) return false;
  path.asked_ns = now_ns;
  SendControl(path, EncodeControl(FrameType::kPing));
  return true;
}

// A path that loses everything while nothing is under way would never be noticed: a PING provokes an answer of
// the other end's kernel, or a reset when that end has given the path up. One that is doubted is asked at once.
void Comm::CheckQuiet(Path& path, int64_t now_ns) {
  bool doubted = IsDoubted(path) && path.asked_ns < counters(path).doubt_ns;
  if (!doubted && now_ns - path.heard_ns < QuietLimitNs()) return;
  if (Ping(path, now_ns)) path.heard_ns = now_ns;
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
    if (!path.obstacle.empty()) return "; this host said: " + path.obstacle;
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

void Comm::Tick(int64_t now_ns) {
  std::lock_guard lock(mutex_);
  EmptyInbox();
  if (linger_until_ns_ != 0 && !closed_) EndLinger(now_ns);
  if (fate_ != nullptr && fate_->load() && linger_until_ns_ == 0) {
    End({Code::kPeerLost, "another connection of the same group failed"});
  }
  if (closed_ || !failure_.ok()) return;
  for (Path& path : paths_) {
    if (!path.muted) continue;
    ReadOpen(path);
    DropTaken(path);
  }
  if (!failure_.ok()) return;
  if (!std::exchange(polled_, false)) UnmuteAll();
  // A process that was stopped or starved must not take its own absence for the network's.
  bool was_asleep = last_tick_ns_ != 0 && now_ns - last_tick_ns_ > kAsleepNs;
  last_tick_ns_ = now_ns;
  for (Path& path : paths_) {
    if (IsOpen(path.state)) CheckStall(path, now_ns, was_asleep);
    if (!failure_.ok()) return;
  }
  OnTick(now_ns);
  CheckGiveUp(now_ns);
}

}  // namespace r2ccl
