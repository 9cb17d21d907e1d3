// Reading the streams of a connection, frame by frame.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "failover/comm.h"

namespace r2ccl {
namespace {

constexpr size_t kReadBudget = 4 << 20;  // bytes of one path before others get their turn
constexpr size_t kScratchBytes = 65536;
constexpr size_t kStageBytes = 8192 + 4 * kHeaderBytes;  // NCCL's low-latency message of 4 KiB, and some frames
constexpr size_t kPeekedBytes = 128;  // of a frame's body; of larger ones the kernel acknowledges every other anyway
constexpr int kManyReads = 6;         // taken: time to drop them when there is nothing to do
constexpr int kMostReads = 9;         // a stream that begins sends ten segments, and then waits for word of them
constexpr int64_t kTakenNs = kMillisecond;  // the peer's kernel sends the last of several again after two

}  // namespace

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

}  // namespace r2ccl
