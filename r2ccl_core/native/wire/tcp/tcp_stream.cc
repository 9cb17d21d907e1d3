// The life of a TCP stream, and what it sends. Reading is in tcp_read.cc.
#include "wire/tcp/tcp_stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace r2ccl {
namespace {

// What keeps a registered stream and its owner alive.
struct Kept {
  std::shared_ptr<TcpStream> stream;
  std::shared_ptr<StreamOwner> owner;
};

}  // namespace

TcpStream::TcpStream(Poller* poller, StreamOwner* owner, int path, NicTraffic* traffic, Fd fd, bool peeks)
    : poller_(poller),
      owner_(owner),
      path_(path),
      traffic_(traffic),
      fd_(std::move(fd)),
      may_peek_(peeks),
      reader_(owner, path, traffic) {}

TcpStream::~TcpStream() { Unregister(); }

void TcpStream::Register(uint32_t events, std::shared_ptr<StreamOwner> owner) {
  wants_write_ = (events & EPOLLOUT) != 0;
  peeks_ = may_peek_ && KeepPeeks(fd_.get());
  auto kept = std::make_shared<Kept>(Kept{shared_from_this(), std::move(owner)});
  poll_id_ = poller_->Add(fd_.get(), events, path_, std::shared_ptr<Pollable>(kept, this));
}

void TcpStream::Unregister() {
  reader_.Stop();
  if (poll_id_ != 0) poller_->Remove(std::exchange(poll_id_, 0));
}

void TcpStream::AwaitConnection(std::shared_ptr<StreamOwner> owner) {
  dialling_ = true;
  Register(EPOLLOUT, std::move(owner));
}

void TcpStream::KeepAlive() { EnableKeepAlive(fd_.get()); }

void TcpStream::Start() { Register(EPOLLIN, std::move(held_)); }

void TcpStream::Watch() {
  if (poll_id_ == 0) return;
  uint32_t events = 0;
  if (!polled_) events |= EPOLLIN;
  if (wants_write_) events |= EPOLLOUT;
  poller_->Modify(poll_id_, events);
}

void TcpStream::SetWantsWrite(bool wants) {
  if (wants_write_ == wants || poll_id_ == 0) return;
  wants_write_ = wants;
  Watch();
}

void TcpStream::SetPolled(bool polled) {
  if (polled_ == polled || poll_id_ == 0) return;
  if (!polled) DropTaken();
  polled_ = polled;
  Watch();
}

void TcpStream::OnEvents(uint64_t id, int, uint32_t events) {
  MutexLock lock(owner_->stream_mutex());
  if (!owner_->OnWake() || id != poll_id_) return;  // an event that was fetched before the stream was cut
  if (dialling_) {
    owner_->OnRoom();
    return;
  }
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
    Read();
    owner_->OnReadDone(path_);
  }
  if ((events & EPOLLOUT) != 0 && poll_id_ == id) {
    SetWantsWrite(false);
    owner_->OnRoom();
  }
}

void TcpStream::OnUnwatched(uint64_t id, int, const std::string& reason) {
  MutexLock lock(owner_->stream_mutex());
  if (!owner_->OnWake() || id != poll_id_) return;
  if (dialling_) {
    owner_->OnNotConnected(path_, reason, false);
  } else {
    owner_->OnStreamLost(path_, reason);
  }
  owner_->OnRoom();  // what it carried goes by others
}

void TcpStream::FinishDial() {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    owner_->OnNotConnected(path_, std::strerror(error), error == ECONNREFUSED);
    return;
  }
  sockaddr_in peer{};
  length = sizeof peer;
  if (getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&peer), &length) != 0) return;  // not connected yet
  dialling_ = false;
  SetWantsWrite(false);
  owner_->OnConnected(path_);
}

bool TcpStream::Flush() {
  if (dialling_) {
    auto self = shared_from_this();  // the owner may let go of it
    FinishDial();
    return false;
  }
  if (wants_write_ || !fd_.valid()) return false;
  if (sending_ && !ContinueFrame()) return false;
  return FlushControl();
}

void TcpStream::Say(const std::string& frames) {
  control_ += frames;
  end_ += frames.size();
  if (!sending_) FlushControl();
}

bool TcpStream::FlushControl() {
  while (control_sent_ < control_.size()) {
    ssize_t sent =
        send(fd_.get(), control_.data() + control_sent_, control_.size() - control_sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      // A real error shows itself to the reader as well, which tells of it in one place.
      SetWantsWrite(true);
      return false;
    }
    control_sent_ += static_cast<size_t>(sent);
  }
  control_.clear();
  control_sent_ = 0;
  return true;
}

void TcpStream::Send(const Frame& frame, const char* body) {
  EncodeFrame(frame, out_header_);
  out_body_ = body;
  out_bytes_ = kHeaderBytes + frame.body_bytes;
  end_ += out_bytes_;
  out_sent_ = 0;
  sending_ = true;
  ContinueFrame();
}

bool TcpStream::ContinueFrame() {
  while (out_sent_ < out_bytes_) {
    iovec parts[2];
    size_t count = 0;
    if (out_sent_ < kHeaderBytes) parts[count++] = {out_header_ + out_sent_, kHeaderBytes - out_sent_};
    size_t body_sent = out_sent_ > kHeaderBytes ? out_sent_ - kHeaderBytes : 0;
    size_t body_left = out_bytes_ - kHeaderBytes - body_sent;
    if (body_left > 0) parts[count++] = {const_cast<char*>(out_body_) + body_sent, body_left};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      SetWantsWrite(true);  // as in FlushControl
      return false;
    }
    out_sent_ += static_cast<size_t>(sent);
    traffic_->sent_bytes += static_cast<uint64_t>(sent);
  }
  sending_ = false;
  kept_body_.reset();
  return true;
}

void TcpStream::KeepBody() {
  if (!sending_ || kept_body_ != nullptr) return;
  size_t sent = out_sent_ > kHeaderBytes ? out_sent_ - kHeaderBytes : 0;
  size_t bytes = out_bytes_ - kHeaderBytes;
  kept_body_ = std::make_unique_for_overwrite<char[]>(bytes);
  std::memcpy(kept_body_.get() + sent, out_body_ + sent, bytes - sent);
  out_body_ = kept_body_.get();
}

bool TcpStream::ReadProgress(Progress* progress) {
  TcpProgress tcp;
  if (!fd_.valid() || !r2ccl::ReadProgress(fd_.get(), &tcp)) return false;
  if (tcp.unanswered == 0 && tcp.unsent_bytes > 0) PushUnsent(fd_.get());
  *progress = tcp;
  return true;
}

void TcpStream::Cut() {
  Unregister();
  ResetConnection(&fd_);
  polled_ = dialling_ = sending_ = false;
  kept_body_.reset();
  control_.clear();
  control_sent_ = 0;
}

void TcpStream::HangUp(const std::string& farewell) {
  DropUnread();
  bool told = false;
  if (!dialling_ && !sending_ && fd_.valid()) {
    control_ += farewell;
    told = FlushControl();
  }
  if (!told) return Cut();
  Unregister();
  fd_.Reset();
}

Status TcpWire::Dial(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic, NicTraffic* traffic,
                     in_addr remote, uint16_t port, std::shared_ptr<Stream>* stream) {
  Fd fd;
  Status status = StartConnect(nic, remote, port, &fd);
  if (!status.ok()) return status;
  auto made =
      std::make_shared<TcpStream>(poller_, owner.get(), path, traffic, std::move(fd), environment_->program_polls);
  *stream = made;
  made->AwaitConnection(owner);
  return {};
}

std::shared_ptr<Stream> TcpWire::Adopt(const std::shared_ptr<StreamOwner>& owner, int path, const Nic&,
                                       NicTraffic* traffic, in_addr, Fd fd) {
  auto made =
      std::make_shared<TcpStream>(poller_, owner.get(), path, traffic, std::move(fd), environment_->program_polls);
  made->SetOwner(owner);
  return made;
}

}  // namespace r2ccl
