// Frames into a simulated socket, and out of it.
#include "wire/simulated/socket_stream.h"

#include <cstring>
#include <utility>

namespace r2ccl::simulated {

SocketStream::~SocketStream() {
  std::erase(process_->streams(), this);
  if (!open_) return;
  socket_->SetUser(nullptr);
  socket_->Finish();  // as a kernel's, with the last descriptor
}

void SocketStream::AwaitConnection(std::shared_ptr<StreamOwner> owner) {
  Keep(std::move(owner));
  dialling_ = wants_write_ = true;
  socket_->SetUser(this);
  socket_->Connect();
}

void SocketStream::Start() {
  Keep(std::move(owner_to_be_));
  socket_->SetUser(this);
  OnChange();
}

void SocketStream::Keep(std::shared_ptr<StreamOwner> owner) {
  kept_ = shared_from_this();
  kept_owner_ = std::move(owner);
}

void SocketStream::LetGo() {
  auto self = std::move(kept_);
  auto owner = std::move(kept_owner_);
}

// As epoll, level-triggered: whoever has read and written all there is is not woken.
void SocketStream::OnChange() {
  if (woken_ || !open_ || !HasEvent()) return;
  woken_ = true;
  process_->Soon([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->Wake();
  });
}

bool SocketStream::HasEvent() const {
  if (dialling_) return socket_->state() != Socket::State::kOpening;
  return socket_->readable() > 0 || socket_->reached_end() || socket_->state() != Socket::State::kOpen ||
         (wants_write_ && socket_->has_room());
}

void SocketStream::Wake() {
  woken_ = false;
  auto owner = kept_owner_;
  if (owner == nullptr || !open_) return;
  MutexLock lock(owner->stream_mutex());
  if (!owner->OnWake() || !open_) return;
  if (dialling_) {
    if (HasEvent()) owner->OnRoom();
    return;
  }
  bool arrived = socket_->readable() > 0 || socket_->reached_end() || socket_->state() != Socket::State::kOpen;
  if (arrived && polled_ && socket_->state() == Socket::State::kOpen) {
    process_->RunProgramSoon();
  } else if (arrived) {
    Poll();
    owner->OnReadDone(path_);
  }
  if (open_ && wants_write_ && socket_->has_room()) {
    wants_write_ = false;
    owner->OnRoom();
  }
}

void SocketStream::Say(const std::string& frames) {
  control_.Append(frames);
  end_ += frames.size();
  if (!sending_) FlushControl();
}

bool SocketStream::FlushControl() {
  while (!control_.empty()) {
    size_t taken = socket_->Write(control_.From(0).data(), control_.size());
    if (taken == 0) {
      wants_write_ = true;
      return false;
    }
    control_.Drop(taken);
  }
  return true;
}

void SocketStream::Send(const Frame& frame, const char* body) {
  EncodeFrame(frame, header_);
  body_ = body;
  body_bytes_ = frame.body_bytes;
  end_ += kHeaderBytes + body_bytes_;
  sent_ = 0;
  sending_ = true;
  ContinueFrame();
}

bool SocketStream::ContinueFrame() {
  while (sent_ < kHeaderBytes + body_bytes_) {
    bool in_header = sent_ < kHeaderBytes;
    const char* from = in_header ? reinterpret_cast<const char*>(header_) + sent_ : body_ + (sent_ - kHeaderBytes);
    size_t left = in_header ? kHeaderBytes - sent_ : kHeaderBytes + body_bytes_ - sent_;
    size_t taken = socket_->Write(from, left);
    if (taken == 0) {
      wants_write_ = true;
      return false;
    }
    sent_ += taken;
    traffic_->sent_bytes += taken;
  }
  sending_ = false;
  return true;
}

void SocketStream::KeepBody() {
  if (!sending_ || body_ == kept_body_.data()) return;
  size_t sent = sent_ > kHeaderBytes ? sent_ - kHeaderBytes : 0;
  kept_body_.assign(body_bytes_, '\0');
  std::memcpy(kept_body_.data() + sent, body_ + sent, body_bytes_ - sent);
  body_ = kept_body_.data();
}

bool SocketStream::Flush() {
  if (!open_) return false;
  if (dialling_) {
    if (socket_->state() == Socket::State::kOpening) return false;
    auto self = shared_from_this();
    if (socket_->state() != Socket::State::kOpen) {
      bool refused = socket_->state() == Socket::State::kRefused;
      owner_->OnNotConnected(path_, refused ? "refused" : "reset", refused);
      return false;
    }
    dialling_ = wants_write_ = false;
    owner_->OnConnected(path_);
    return false;
  }
  if (wants_write_) return false;
  if (sending_ && !ContinueFrame()) return false;
  return FlushControl();
}

void SocketStream::Poll() {
  auto self = shared_from_this();
  char stage[8192];
  while (open_ && socket_->readable() > 0) {
    // As TcpStream: small frames by a copy, large bodies where they belong.
    bool small = owner_->ExpectsSmall() && reader_.body_left() < sizeof stage;
    size_t bytes = small ? socket_->Read(stage, sizeof stage) : ReadInPlace(stage, sizeof stage);
    owner_->OnHeard(path_);
    Status status = small ? reader_.Feed(stage, bytes) : reader_.Filled(bytes);
    if (!status.ok() && open_) return owner_->OnStreamLost(path_, status.message());
  }
  if (!open_) return;
  if (socket_->state() != Socket::State::kOpen) {
    owner_->OnStreamLost(path_, "socket error: reset");
  } else if (socket_->reached_end()) {
    owner_->OnStreamLost(path_, "the peer closed the stream");
  }
}

size_t SocketStream::ReadInPlace(char* scratch, size_t scratch_bytes) {
  iovec parts[2];
  size_t wanted = 0;
  int count = reader_.Places(parts, scratch, scratch_bytes, &wanted);
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += socket_->Read(static_cast<char*>(parts[i].iov_base), parts[i].iov_len);
  return bytes;
}

void SocketStream::SetPolled(bool polled) {
  if (polled_ == polled) return;
  polled_ = polled;
  if (!polled) OnChange();
}

void SocketStream::Cut() {
  if (!std::exchange(open_, false)) return;
  reader_.Stop();
  socket_->SetUser(nullptr);
  socket_->Reset();
  sending_ = polled_ = dialling_ = false;
  control_.Clear();
  LetGo();
}

void SocketStream::HangUp(const std::string& farewell) {
  if (dialling_ || sending_ || !open_) return Cut();
  control_.Append(farewell);
  if (!FlushControl()) return Cut();
  open_ = false;
  reader_.Stop();
  char unread[8192];
  while (socket_->Read(unread, sizeof unread) > 0) {
  }
  socket_->Finish();
  LetGo();
}

}  // namespace r2ccl::simulated
