// Slots, numbers and acknowledgements.
#include "wire/verbs/rc_pipe.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "failover/stall.h"

namespace r2ccl {
namespace {

// Of a request's number.
constexpr uint64_t kReceive = uint64_t{1} << 63;
constexpr uint64_t kWrite = uint64_t{1} << 62;
constexpr int64_t kRetransmitNs = 34'000'000;  // of a queue pair with the usual time-out
constexpr int64_t kCountsNs = 250'000'000;     // as often as a path whose messages wait is asked

Status Broken(const std::string& what) { return {Code::kProtocol, "RDMA: " + what}; }

}  // namespace

Status RcPipe::Prepare() {
  Status status;
  for (uint32_t slot = 0; slot < shape_.receive_slots && status.ok(); ++slot) {
    status = queue_->PostReceive(kReceive | slot, slot);
  }
  queue_->Arm();
  return status;
}

Status RcPipe::Connect(const RcAddress& peer, int64_t now_ns) {
  peer_slots_ = peer.receive_slots;
  most_bytes_ = std::min(shape_.send_bytes, peer.receive_bytes) - sizeof(Header) - kTailBytes;
  packet_bytes_ = 128u << std::min(peer.mtu, queue_->address().mtu);
  progress_ns_ = looked_ns_ = now_ns;
  return queue_->Connect(peer);
}

void RcPipe::NoteLook(int64_t now_ns) {
  absent_ns_ += std::max<int64_t>(0, now_ns - std::exchange(looked_ns_, now_ns) - kLongestTickNs);
}

void RcPipe::NoteHeld(int64_t now_ns) {
  bool held = waits_ || lacks_slots();
  if (held && held_since_ns_ == 0) held_since_ns_ = now_ns;
  if (!held && held_since_ns_ != 0) held_ns_ += now_ns - std::exchange(held_since_ns_, 0);
}

char* RcPipe::Room(size_t* most, int64_t now_ns) {
  NoteHeld(now_ns);
  if (lacks_slots() || sent_ - acknowledged_ >= shape_.send_slots) return nullptr;
  *most = most_bytes_;
  return queue_->send_slot(static_cast<uint32_t>(sent_ % shape_.send_slots)) + sizeof(Header);
}

Status RcPipe::Send(RcKind kind, size_t bytes, int64_t now_ns, size_t counted) {
  auto slot = static_cast<uint32_t>(sent_ % shape_.send_slots);
  Header header{sent_, dropped_, static_cast<uint32_t>(bytes), kind};
  char* place = queue_->send_slot(slot);
  std::memcpy(place, &header, sizeof header);
  uint32_t sum = Crc32c(&header, sizeof header);
  std::memcpy(place + sizeof header + bytes, &sum, kTailBytes);
  NoteLook(now_ns);
  if (all_acknowledged()) progress_ns_ = now_ns;
  flights_.push_back({sent_, now_ns, absent_ns_, kind == RcKind::kBytes ? bytes : counted});
  told_ = dropped_;
  return queue_->PostSend(sent_++, slot, static_cast<uint32_t>(sizeof header + bytes + kTailBytes));
}

Status RcPipe::Write(uint64_t from, size_t bytes, uint32_t local_key, uint64_t address, uint32_t remote_key,
                     int64_t now_ns) {
  NoteLook(now_ns);
  if (all_acknowledged()) progress_ns_ = now_ns;
  uint64_t id = kWrite | writes_++;
  flights_.push_back({id, now_ns, absent_ns_, bytes});
  return queue_->PostWrite(id, from, static_cast<uint32_t>(bytes), local_key, address, remote_key);
}

Status RcPipe::ReturnSlots(int64_t now_ns) {
  bool can = sent_ - acknowledged_ < shape_.send_slots && sent_ - peer_returned_ < peer_slots_;
  if (dropped_ - told_ < shape_.receive_slots / 2 || !can) return {};
  return Send(RcKind::kSlots, 0, now_ns);
}

bool RcPipe::WantsCount(int64_t now_ns) {
  bool waits = (waits_ || lacks_slots()) && all_acknowledged();
  if (!waits || now_ns - std::max(progress_ns_, counted_ns_) < kCountsNs) return false;
  counted_ns_ = now_ns;
  return true;
}

Status RcPipe::Reap(int64_t now_ns) {
  NoteLook(now_ns);
  Status status = queue_->Poll(&done_);
  for (const RcDone& done : done_) {
    if (!status.ok()) break;
    status = (done.id & kReceive) != 0 ? TakeReceived(done, now_ns) : TakeSent(done, now_ns);
  }
  done_.clear();
  return status;
}

// Completions come in order, one for each message and write, and are not taken on trust.
Status RcPipe::TakeSent(const RcDone& done, int64_t now_ns) {
  if (!done.error.empty()) return {Code::kPeerLost, "RDMA: a send failed: " + done.error};
  if (flights_.empty() || done.id != flights_.front().id) {
    return Broken("request " + std::to_string(done.id) + " is done where " +
                  (flights_.empty() ? "none" : std::to_string(flights_.front().id)) + " was due");
  }
  int64_t rtt_ns = now_ns - flights_.front().sent_ns - (absent_ns_ - flights_.front().absent_ns);
  if (rtt_ns_ == 0) {
    rtt_ns_ = rtt_ns;
    rtt_variance_ns_ = rtt_ns / 2;
  }
  rtt_variance_ns_ += (std::abs(rtt_ns - rtt_ns_) - rtt_variance_ns_) / 4;
  rtt_ns_ += (rtt_ns - rtt_ns_) / 8;
  shortest_rtt_ns_ = shortest_rtt_ns_ == 0 ? rtt_ns : std::min(shortest_rtt_ns_, rtt_ns);
  acknowledged_bytes_ += flights_.front().bytes;
  flights_.pop_front();
  ++((done.id & kWrite) != 0 ? written_ : acknowledged_);
  progress_ns_ = now_ns;
  return {};
}

Status RcPipe::TakeReceived(const RcDone& done, int64_t now_ns) {
  if (!done.error.empty()) return {Code::kPeerLost, "RDMA: a receive failed: " + done.error};
  auto slot = static_cast<uint32_t>(received_ % shape_.receive_slots);
  if ((done.id & ~kReceive) != slot) return Broken("a message came in another slot than was due");
  Header header;
  if (done.bytes < sizeof header + kTailBytes) return Broken("a message without a header");
  const char* data = queue_->receive_slot(slot);
  std::memcpy(&header, data, sizeof header);
  uint32_t sum = 0;
  std::memcpy(&sum, data + done.bytes - kTailBytes, kTailBytes);
  if (sum != Crc32c(&header, sizeof header)) return Broken("a message was changed on its way, or half of it came");
  if (header.number != received_) {
    return Broken("message " + std::to_string(header.number) + " came where " + std::to_string(received_) + " was due");
  }
  if (header.bytes != done.bytes - sizeof header - kTailBytes) return Broken("a message of another length");
  if (header.returned < peer_returned_ || header.returned > sent_) return Broken("impossible slots are given back");
  ++received_;
  peer_returned_ = header.returned;
  NoteHeld(now_ns);
  arrivals_.push_back({header.kind, data + sizeof header, header.bytes});
  return {};
}

Status RcPipe::DropFront() {
  auto slot = static_cast<uint32_t>(dropped_++ % shape_.receive_slots);
  arrivals_.pop_front();
  return queue_->PostReceive(kReceive | slot, slot);
}

void RcPipe::AddProgress(Progress* progress, int64_t now_ns) const {
  progress->delivered += static_cast<uint32_t>(acknowledged_ + written_);
  progress->unanswered += static_cast<uint32_t>(flights_.size());
  progress->segments += static_cast<uint32_t>(sent_ + writes_);
  progress->rtt_ns = rtt_ns_;
  progress->rtt_by_kernel = false;
  progress->loses_unseen = true;
  progress->rtt_variance_ns = rtt_variance_ns_;
  progress->shortest_rtt_ns = shortest_rtt_ns_;
  progress->timeout_ns = kRetransmitNs;
  progress->held_ns += held_ns_ + (held_since_ns_ == 0 ? 0 : now_ns - held_since_ns_);
  progress->since_ack_ns = now_ns - progress_ns_;
  progress->packet_bytes = packet_bytes_;
}

}  // namespace r2ccl
