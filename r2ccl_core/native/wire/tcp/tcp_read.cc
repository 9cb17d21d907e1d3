// Reading a TCP stream, frame by frame.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "wire/tcp/tcp_stream.h"

namespace r2ccl {
namespace {

constexpr size_t kReadBudget = 4 << 20;  // bytes of one stream before others get their turn
constexpr size_t kScratchBytes = 65536;
constexpr size_t kStageBytes = 8192 + 4 * kHeaderBytes;  // NCCL's low-latency message of 4 KiB, and some frames
constexpr size_t kPeekedBytes = 128;  // of a frame's body; of larger ones the kernel acknowledges every other anyway
constexpr int kManyReads = 6;         // taken: time to drop them when there is nothing to do
constexpr int kMostReads = 9;         // a stream that begins sends ten segments, and then waits for word of them

}  // namespace

void TcpStream::Lose(ssize_t received) {
  owner_->OnStreamLost(
      path_, received == 0 ? "the peer closed the stream" : std::string("socket error: ") + std::strerror(errno));
}

// Several small frames with one call of the kernel, at the price of a copy. False when there is no more to read.
//
// Who empties the kernel's queue has it send an acknowledgement for nearly every message, which takes longer than all
// the rest. So small frames are taken while they still lie there, and leave it together.
bool TcpStream::ReadSmall() {
  char stage[kStageBytes];
  bool peek = peeks_ && polled_ && reader_.body_bytes() <= kPeekedBytes;
  if (!peek) DropTaken();
  ssize_t received = recv(fd_.get(), stage, sizeof stage, MSG_DONTWAIT | (peek ? MSG_PEEK : 0));
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (taken_reads_ >= kManyReads) DropTaken();
    return false;
  }
  if (received <= 0) {
    Lose(received);
    return false;
  }
  owner_->OnHeard(path_);
  auto bytes = static_cast<size_t>(received);
  if (peek) {
    if (taken_bytes_ == 0) taken_ns_ = NowNs();
    taken_bytes_ += bytes;
  }
  Status status = reader_.Feed(stage, bytes);
  if (poll_id_ == 0) return false;
  if (peek && ++taken_reads_ >= kMostReads) DropTaken();
  if (!status.ok()) owner_->OnStreamLost(path_, status.message());
  return poll_id_ != 0 && bytes == sizeof stage;
}

void TcpStream::DropTaken() {
  char nowhere[kStageBytes];
  taken_reads_ = 0;
  while (taken_bytes_ > 0) {
    size_t bytes = std::min(taken_bytes_, sizeof nowhere);
    ssize_t dropped = recv(fd_.get(), nowhere, bytes, MSG_DONTWAIT | MSG_TRUNC);
    if (dropped < 0 && errno == EINTR) continue;
    if (dropped <= 0) return;  // a broken stream, as the next read finds
    taken_bytes_ -= static_cast<size_t>(dropped);
  }
}

// What is left unread makes the kernel reset a stream that is closed, and a reset may overtake the farewell. Words are
// little; whoever is in the middle of more is not waited for.
void TcpStream::DropUnread() {
  char nowhere[kStageBytes];
  DropTaken();
  for (int i = 0; i < kManyReads && fd_.valid(); ++i) {
    if (recv(fd_.get(), nowhere, sizeof nowhere, MSG_DONTWAIT | MSG_TRUNC) <= 0) return;
  }
}

void TcpStream::Release(int64_t now_ns, int64_t age_ns) {
  if (taken_bytes_ > 0 && now_ns - taken_ns_ > age_ns) DropTaken();
}

void TcpStream::Read() {
  thread_local std::vector<char> scratch(kScratchBytes);
  auto self = shared_from_this();  // the owner may let go of it
  size_t budget = kReadBudget;
  while (poll_id_ != 0 && budget > 0) {
    if (owner_->ExpectsSmall() && reader_.body_left() < kStageBytes) {
      if (!ReadSmall()) return;
      budget -= std::min(budget, kStageBytes);
      continue;
    }
    DropTaken();
    iovec parts[2];
    size_t wanted = 0;
    int count = reader_.Places(parts, scratch.data(), scratch.size(), &wanted);
    ssize_t received = readv(fd_.get(), parts, count);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (received <= 0) return Lose(received);
    owner_->OnHeard(path_);
    auto bytes = static_cast<size_t>(received);
    budget -= std::min(budget, bytes);
    Status status = reader_.Filled(bytes);
    if (!status.ok() && poll_id_ != 0) owner_->OnStreamLost(path_, status.message());
    if (bytes < wanted) return;  // there was no more
  }
}

}  // namespace r2ccl
