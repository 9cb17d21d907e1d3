// Sending, sending again, and putting in order.
#include "wire/simulated/socket.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace r2ccl::simulated {
namespace {

constexpr uint64_t kUnsentBytes = 16 * 1024;  // as TCP_NOTSENT_LOWAT
constexpr uint64_t kInBytes = 256 * 1024;
constexpr int64_t kFirstTimeoutNs = 1000 * kMillisecond;
constexpr int64_t kLeastTimeoutNs = 200 * kMillisecond;
constexpr int64_t kMostTimeoutNs = 120'000 * kMillisecond;
constexpr uint64_t kReordered = 3;  // packets
constexpr int64_t kFullQueueNs = kMillisecond;
constexpr int64_t kLeastProbeNs = 8 * kMillisecond;
constexpr int64_t kKeepAliveNs = 1000 * kMillisecond;
constexpr int64_t kLatestWordNs = 40 * kMillisecond;  // as Linux puts an acknowledgement off

}  // namespace

void Socket::Connect() {
  PacketPointer hello = world_->NewPacket();
  hello->kind = Packet::Kind::kSyn;
  hello->from = AddressOf(host_, rail_).s_addr;
  hello->to = remote_;
  hello->stream = number_;
  world_->Send(host_, rail_, std::move(hello));
  world_->Wait(kFirstTimeoutNs << tries_++, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self != nullptr && self->state_ == State::kOpening && self->tries_ < 6) self->Connect();
  });
}

void Socket::Accept() {
  if (state_ == State::kOpening) state_ = State::kOpen;
  most_out_ = world_->answer_bytes;
  PacketPointer answer = Segment(0);
  answer->kind = Packet::Kind::kSynAck;
  world_->Send(host_, rail_, std::move(answer));
}

uint64_t Socket::window() const { return kInBytes - std::min<uint64_t>(kInBytes, in_.size()); }

bool Socket::has_room() const {
  uint64_t unsent = unacked_ + out_.size() - next_;
  return state_ == State::kOpen && !closing_ && unsent < kUnsentBytes && out_.size() < most_out_;
}

size_t Socket::Write(const char* data, size_t bytes) {
  if (!has_room()) return 0;
  uint64_t unsent = unacked_ + out_.size() - next_;
  size_t count = std::min(
      {bytes, most_out_ - out_.size(), std::max<size_t>(segment_bytes(), static_cast<size_t>(kUnsentBytes - unsent))});
  out_.Append({data, count});
  SendWaiting();
  return count;
}

size_t Socket::Read(char* to, size_t most) {
  size_t count = std::min(most, in_.size());
  std::memcpy(to, in_.From(0).data(), count);
  bool was_full = window() < segment_bytes();
  in_.Drop(count);
  bool has_news = owes_word_ || (was_full && window() >= segment_bytes());
  if (has_news && state_ == State::kOpen) SendWord();
  return count;
}

bool Socket::ReadProgress(Progress* progress) const {
  if (state_ != State::kOpen) return false;
  progress->bytes_acked = unacked_;
  progress->delivered = delivered_;
  progress->unanswered = static_cast<uint32_t>((most_sent_ - unacked_ + segment_bytes() - 1) / segment_bytes()) +
                         static_cast<uint32_t>(probes_);
  progress->rtt_ns = rtt_ns_;
  progress->rtt_by_kernel = true;
  progress->rtt_variance_ns = rtt_variance_ns_;
  progress->timeout_ns = std::max(kLeastTimeoutNs, rtt_ns_ + 4 * rtt_variance_ns_);
  progress->shortest_rtt_ns = shortest_rtt_ns_;
  progress->held_ns = held_ns_ + (held_since_ns_ == 0 ? 0 : world_->Now() - held_since_ns_);
  progress->since_ack_ns = world_->Now() - word_ns_;
  progress->packet_bytes = static_cast<uint32_t>(segment_bytes());
  progress->segments = segments_;
  progress->resent = resent_ - std::min(resent_, told_again_);
  return true;
}

PacketPointer Socket::Segment(uint64_t first) const {
  PacketPointer packet = world_->NewPacket();
  packet->from = AddressOf(host_, rail_).s_addr;
  packet->to = remote_;
  packet->stream = number_;
  packet->first = first;
  packet->expected = expected_;
  packet->window = window();
  packet->taken = taken_;
  packet->again = again_;
  for (const auto& [place, bytes] : ahead_) {
    if (!packet->ahead.empty() && packet->ahead.back().second >= place) {
      packet->ahead.back().second = std::max<uint64_t>(packet->ahead.back().second, place + bytes.size());
    } else {
      packet->ahead.emplace_back(place, place + bytes.size());
    }
  }
  return packet;
}

void Socket::SendWord() {
  owes_word_ = false;
  world_->Send(host_, rail_, Segment(next_));
}

// A program that has not read what came before gives no reason to hurry.
void Socket::SendWordSoon() {
  if (std::exchange(owes_word_, true)) return;
  world_->Wait(kLatestWordNs, [weak = weak_from_this(), number = ++words_] {
    auto self = weak.lock();
    if (self != nullptr && self->owes_word_ && self->words_ == number && self->state_ == State::kOpen) self->SendWord();
  });
}

// False where the own NIC's queue has no room: a kernel does not count that as sent, and tries again.
bool Socket::SendSegment(uint64_t first, size_t bytes, bool again) {
  PacketPointer packet = Segment(first);
  packet->bytes = out_.From(first - unacked_).substr(0, bytes);
  packet->demands = true;
  packet->last = closing_ && first + bytes == unacked_ + out_.size();
  if (!world_->Send(host_, rail_, std::move(packet))) {
    SendLater();
    return false;
  }
  ++segments_;
  resent_ += again ? 1 : 0;
  if (!again && timed_ == 0) {
    timed_ = first + bytes;
    timed_ns_ = world_->Now();
  }
  return true;
}

void Socket::SendLater() {
  if (std::exchange(waits_for_nic_, true)) return;
  world_->Wait(kFullQueueNs, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self == nullptr) return;
    self->waits_for_nic_ = false;
    self->SendMissing();
    self->SendWaiting();
    if (self->most_sent_ > self->unacked_) self->ArmTimer();
  });
}

void Socket::SendWaiting() {
  if (state_ != State::kOpen) return;
  uint64_t end = unacked_ + out_.size();
  uint64_t limit = unacked_ + std::min<uint64_t>(peer_window_, static_cast<uint64_t>(congestion_) * segment_bytes());
  while ((next_ = SkipAhead(next_)) < std::min(end, limit)) {
    auto bytes = static_cast<size_t>(std::min<uint64_t>(segment_bytes(), std::min(end, limit) - next_));
    if (!SendSegment(next_, bytes, next_ < most_sent_)) break;
    next_ += bytes;
    most_sent_ = std::max(most_sent_, next_);
  }
  NoteHeld();
  if (closing_ && next_ == end && !ended_acked_ && out_.empty() && !timer_armed_) SendSegment(next_, 0, false);
  if (!timer_armed_ && (most_sent_ > unacked_ || !out_.empty() || (closing_ && !ended_acked_))) ArmTimer();
}

// The first place from there on that the other end may lack.
uint64_t Socket::SkipAhead(uint64_t place) const {
  auto after = has_.upper_bound(place);
  return after != has_.begin() && std::prev(after)->second > place ? std::prev(after)->second : place;
}

void Socket::TakeAhead(const Packet& packet) {
  for (auto [first, end] : packet.ahead) {
    if (end <= unacked_) continue;
    uint64_t& known = has_[first];
    known = std::max(known, end);
  }
  // As few as there are gaps.
  for (auto piece = has_.begin(); piece != has_.end();) {
    auto next = std::next(piece);
    if (piece->second <= unacked_) {
      has_.erase(piece);
    } else if (next != has_.end() && next->first <= piece->second) {
      piece->second = std::max(piece->second, next->second);
      has_.erase(next);
      continue;
    }
    piece = next;
  }
}

// What is missing before three packets that the other end has, or before the probe; what was sent again and should
// have come, once more. No more than the window lets.
void Socket::SendMissing() {
  if (state_ != State::kOpen || has_.empty()) return;
  uint64_t last = has_.rbegin()->second - (probed_ ? 0 : kReordered * segment_bytes());
  uint64_t first = SkipAhead(unacked_);
  if (first >= last || has_.rbegin()->second < kReordered * segment_bytes()) return;
  if (!recovering_) {
    recovering_ = true;
    recover_ = most_sent_;
    timed_ = 0;
    congestion_ = std::max(2.0, congestion_ / 2);
    sent_again_.clear();
  }
  int64_t patience_ns = rtt_ns_ + 4 * rtt_variance_ns_;
  auto is_under_way = [&](const auto& one) {
    return world_->Now() - one.second <= patience_ns && SkipAhead(one.first) == one.first;
  };
  sent_again_.erase(sent_again_.begin(), sent_again_.lower_bound(unacked_));
  auto left = static_cast<int64_t>(congestion_) - std::count_if(sent_again_.begin(), sent_again_.end(), is_under_way);
  for (uint64_t place = first; left > 0 && place < last;) {
    auto bytes = static_cast<size_t>(std::min<uint64_t>(segment_bytes(), has_.upper_bound(place)->first - place));
    auto [sent, is_first] = sent_again_.emplace(place, 0);
    if (is_first || !is_under_way(*sent)) {
      if (!SendSegment(place, bytes, true)) return;
      sent->second = world_->Now();
      --left;
    }
    place = SkipAhead(place + bytes);
  }
}

// The last packet once more, as Linux does after two round trips without a word: what else is missing then shows.
void Socket::SendProbe() {
  probed_ = true;
  auto bytes = static_cast<size_t>(std::min<uint64_t>(segment_bytes(), most_sent_ - unacked_));
  SendSegment(most_sent_ - bytes, bytes, true);
}

void Socket::NoteHeld() {
  bool held = next_ < unacked_ + out_.size() && next_ >= unacked_ + peer_window_;
  if (!held && held_since_ns_ != 0) held_ns_ += world_->Now() - std::exchange(held_since_ns_, 0);
  if (held && held_since_ns_ == 0) held_since_ns_ = world_->Now();
}

void Socket::ArmTimer() {
  timer_armed_ = true;
  int64_t timeout_ns = rtt_ns_ == 0 ? kFirstTimeoutNs : std::max(kLeastTimeoutNs, rtt_ns_ + 4 * rtt_variance_ns_);
  timeout_ns = std::min(kMostTimeoutNs, timeout_ns << std::min(backoff_, 20));
  bool probes = !probed_ && !recovering_ && rtt_ns_ > 0 && backoff_ == 0 && most_sent_ > unacked_;
  if (probes) timeout_ns = std::min(timeout_ns, 2 * rtt_ns_ + kLeastProbeNs);
  timer_ns_ = world_->Now() + timeout_ns;
  AwaitTimer();
}

void Socket::AwaitTimer() {
  if (timer_event_ns_ != 0 && timer_event_ns_ <= timer_ns_) return;
  timer_event_ns_ = timer_ns_;
  world_->Wait(timer_ns_ - world_->Now(), [weak = weak_from_this(), at_ns = timer_ns_] {
    auto self = weak.lock();
    if (self == nullptr || self->timer_event_ns_ != at_ns) return;  // a sooner one took its place
    self->timer_event_ns_ = 0;
    if (!self->timer_armed_) return;
    at_ns < self->timer_ns_ ? self->AwaitTimer() : self->OnTimer();
  });
}

void Socket::OnTimer() {
  if (state_ != State::kOpen) return;
  timer_armed_ = false;
  bool owes = most_sent_ > unacked_;
  if (!owes && out_.empty() && (!closing_ || ended_acked_)) return;
  if (owes && !probed_ && !recovering_ && rtt_ns_ > 0 && backoff_ == 0) {
    SendProbe();
    return ArmTimer();
  }
  ++backoff_;
  timed_ = 0;
  if (owes) {
    congestion_ = 1;
    recovering_ = false;
    next_ = unacked_;
    sent_again_.clear();
    SendWaiting();
  } else if (closing_ && out_.empty()) {
    if (backoff_ > 5) return Reset();
    SendSegment(next_, 0, true);
  } else {  // the other end's window is closed
    SendProbeOfWindow();
  }
  if (!timer_armed_) ArmTimer();
}

// Without bytes, which the other end answers in any case.
void Socket::SendProbeOfWindow() {
  ++probes_;
  PacketPointer probe = Segment(next_);
  probe->demands = true;
  world_->Send(host_, rail_, std::move(probe));
}

void Socket::KeepAlive() {
  if (std::exchange(keeps_alive_, true)) return;
  heard_ns_ = world_->Now();
  AskWhetherThere();
}

void Socket::AskWhetherThere() {
  world_->Wait(kKeepAliveNs, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self == nullptr || self->state_ != State::kOpen || self->closing_) return;
    if (self->world_->Now() - self->heard_ns_ >= kKeepAliveNs) self->SendProbeOfWindow();
    self->AskWhetherThere();
  });
}

void Socket::Take(const Packet& packet) {
  if (state_ == State::kReset || state_ == State::kRefused) return;
  if (packet.kind == Packet::Kind::kReset) {
    // A kernel lets nobody have a stream whose opening is not complete, so only its refusal ends that.
    if (state_ == State::kOpening && !packet.last) return;
    state_ = state_ == State::kOpening ? State::kRefused : State::kReset;  // what came before can still be read
    Tell();
    return;
  }
  if (packet.kind == Packet::Kind::kSynAck) {
    if (state_ != State::kOpening) return;
    state_ = State::kOpen;
    peer_window_ = packet.window;
    Tell();
    return;
  }
  if (state_ != State::kOpen) return;
  heard_ns_ = world_->Now();
  TakeWord(packet);
  TakeBytes(packet);
  Tell();
}

void Socket::TakeWord(const Packet& packet) {
  peer_window_ = packet.window;
  if (packet.window > 0) probes_ = 0;
  delivered_ = std::max(delivered_, packet.taken);
  told_again_ = std::max(told_again_, packet.again);
  uint64_t ends_at = unacked_ + out_.size();
  if (packet.expected > unacked_) {
    auto count = static_cast<size_t>(std::min(packet.expected, ends_at) - unacked_);
    if (packet.expected > ends_at) ended_acked_ = true;
    out_.Drop(count);
    unacked_ += count;
    word_ns_ = world_->Now();
    next_ = std::max(next_, unacked_);
    backoff_ = 0;
    probed_ = false;
    if (timed_ != 0 && unacked_ >= timed_) {
      int64_t sample_ns = world_->Now() - timed_ns_;
      shortest_rtt_ns_ = shortest_rtt_ns_ == 0 ? sample_ns : std::min(shortest_rtt_ns_, sample_ns);
      if (rtt_ns_ == 0) {
        rtt_ns_ = sample_ns;
        rtt_variance_ns_ = sample_ns / 2;
      } else {
        rtt_variance_ns_ += (std::abs(rtt_ns_ - sample_ns) - rtt_variance_ns_) / 4;
        rtt_ns_ += (sample_ns - rtt_ns_) / 8;
      }
      timed_ = 0;
    }
    double grown = static_cast<double>(count) / static_cast<double>(segment_bytes());
    congestion_ = std::min(64.0, congestion_ + (recovering_ ? 0 : grown));
    if (recovering_ && unacked_ >= recover_) {
      recovering_ = false;
      sent_again_.clear();
    }
    timer_armed_ = false;  // it begins anew
  }
  TakeAhead(packet);
  SendMissing();
  SendWaiting();
}

void Socket::TakeBytes(const Packet& packet) {
  if (packet.last) {
    peer_ends_ = true;
    peer_end_ = packet.first + packet.bytes.size();
  }
  if (!packet.demands) return;
  ++taken_;
  bool waits = !in_.empty() && ahead_.empty() && packet.first == expected_ && !packet.bytes.empty();
  uint64_t end = packet.first + packet.bytes.size();
  bool came_before = end <= expected_ || ahead_.contains(packet.first);
  if (came_before && !packet.bytes.empty()) ++again_;
  if (end > expected_ && end <= expected_ + window()) {
    if (packet.first <= expected_) {
      in_.Append(std::string_view(packet.bytes).substr(expected_ - packet.first));
      expected_ = end;
    } else {
      ahead_.emplace(packet.first, packet.bytes);
    }
    for (auto piece = ahead_.begin(); piece != ahead_.end() && piece->first <= expected_; piece = ahead_.erase(piece)) {
      uint64_t piece_end = piece->first + piece->second.size();
      if (piece_end <= expected_) continue;
      in_.Append(std::string_view(piece->second).substr(expected_ - piece->first));
      expected_ = piece_end;
    }
  }
  if (peer_ends_ && expected_ == peer_end_) {
    ++expected_;  // the end takes a place of its own, as TCP's FIN
    peer_ended_ = true;
  }
  waits && !peer_ended_ ? SendWordSoon() : SendWord();
}

void Socket::Reset() {
  if (state_ == State::kOpen || state_ == State::kOpening) {
    PacketPointer packet = Segment(next_);
    packet->kind = Packet::Kind::kReset;
    world_->Send(host_, rail_, std::move(packet));
  }
  state_ = State::kReset;
  out_.Clear();
  in_.Clear();
}

void Socket::Finish() {
  user_ = nullptr;
  if (state_ != State::kOpen || !in_.empty()) return Reset();
  closing_ = true;
  SendWaiting();
}

}  // namespace r2ccl::simulated
