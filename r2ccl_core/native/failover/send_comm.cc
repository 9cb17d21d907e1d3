// The sending end: messages into chunks, chunks into streams, acknowledgements, and what a lost path carried.
#include "failover/send_comm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "failover/protocol.h"

namespace r2ccl {
namespace {

constexpr int64_t kRateSampleNs = 2 * kMillisecond;
constexpr uint64_t kEarlyMessages = 32;
constexpr uint64_t kReadEvery = 16;
constexpr int kIdleTicks = 100;  // half a second

}  // namespace

SendComm::SendComm(Environment* environment, Wire* wire, const Handle& handle, int home, uint64_t connection)
    : Comm(environment, wire), handle_(handle), connection_(connection) {
  auto pairs = PairNics(environment->nics, handle.addresses);
  CountAsSender(true);
  paths_.resize(pairs.size());
  outgoing_.resize(pairs.size());
  queues_.resize(environment->params.mode == 2 ? 1 : pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    paths_[i].index = static_cast<int>(i);
    paths_[i].nic = pairs[i].first;
    outgoing_[i].partner = static_cast<size_t>(pairs[i].second);
    Aim(paths_[i], 0);
    if (pairs[i].first == home) home_ = &paths_[i];
  }
  for (const Path& path : paths_) from_home_.push_back(home_ == nullptr ? 0 : DistanceBetween(*home_, path));
}

Status SendComm::Isend(const void* data, uint64_t size, Request** request, bool marked, uint32_t tag, NicShares shares,
                       bool announced) {
  uint64_t before = pending_bytes_.fetch_add(size, std::memory_order_relaxed);
  auto most = static_cast<uint64_t>(environment_->params.inline_bytes);
  bool alone = environment_->last_sender.exchange(this, std::memory_order_relaxed) == this;
  bool own = own_share_.Takes(before, size, most, alone && environment_->program_polls);
  inline_.store(own, std::memory_order_relaxed);
  auto* bytes = static_cast<char*>(const_cast<void*>(data));  // Take only reads it
  Order order = {.data = bytes, .size = size, .marked = marked, .tag = tag, .shares = std::move(shares)};
  order.announced = announced;
  Status status = Submit(std::move(order), request);
  if (!status.ok()) pending_bytes_ -= size;
  return status;
}

void SendComm::Finish(Request* request, Request::State state) {
  pending_bytes_.fetch_sub(request->size, std::memory_order_relaxed);
  Complete(request, state);
}

// What connections have on their way together is shared by those that send.
void SendComm::CountAsSender(bool counts) {
  idle_ticks_ = 0;
  if (std::exchange(counts_, counts) == counts) return;
  environment_->senders += counts ? 1 : -1;
  if (!counts) CountSmallOn(-1);
}

// Its small messages go over that NIC from now on.
void SendComm::CountSmallOn(int nic) {
  if (nic == small_nic_) return;
  if (small_nic_ >= 0) --environment_->nic_states[static_cast<size_t>(small_nic_)].small_senders;
  if (nic >= 0) ++environment_->nic_states[static_cast<size_t>(nic)].small_senders;
  small_nic_ = nic;
}

void SendComm::Take(const Order& order) {
  CountAsSender(true);
  uint32_t chunk = ChunkBytes(order.size);
  auto chunks = static_cast<uint32_t>(order.size <= chunk ? 1 : (order.size + chunk - 1) / chunk);
  order.request->size = order.size;
  messages_.push_back({next_message_++, order.data, order.size, chunk, chunks, 0, order.request, order.marked,
                       order.tag, nullptr, order.shares, order.announced});
}

// The program need not ask about sends that are done at once: what the peer says of them is read in passing.
void SendComm::OnTaken() {
  if (next_message_ % kReadEvery == 0) ReadHot();
  if (failure_.ok()) Pump();
}

void SendComm::CutMessages() {
  while (next_cut_ < next_message_) {
    Message& next = message(next_cut_);
    bool may_go = next.number < posted_ || (GoesEarly(next) && MayBeEarly(early_, next.number, posted_, next.size));
    if (!may_go) return AskForReceive(next.number);
    bool buffered = next.size <= std::min(early_.bytes, CopiedBytes());
    if (buffered) Buffer(next);
    for (uint64_t i = 0; i < next.chunks; ++i) {
      uint64_t offset = i * next.chunk_bytes;
      auto length = static_cast<uint32_t>(std::min<uint64_t>(next.chunk_bytes, next.size - offset));
      auto queue = static_cast<uint32_t>((home_ != nullptr ? static_cast<uint64_t>(home_->index) : next_queue_++) %
                                         queues_.size());
      queues_[queue].push_back({next.number, offset, length, queue, buffered, 0, 0, 0, 0, false, nullptr});
      ++waiting_chunks_;
      waiting_bytes_ += length;
    }
    ++next_cut_;
  }
}

// Messages of up to this size are copied. A connection that is alone has few copies, so the cache still has them when
// their memory is used again. RDMA, which reads the program's own memory, gains nothing by larger copies.
uint64_t SendComm::CopiedBytes() const {
  auto most = static_cast<uint64_t>(environment_->params.buffered_bytes);
  bool alone = most > 0 && environment_->params.zero_copy_bytes == 0 && own_share_.is_alone();
  return alone && inline_.load(std::memory_order_relaxed) ? std::max(most, OwnShare::kAloneBytes) : most;
}

// The peer may have posted it and wait with the word, as it does while small messages come.
void SendComm::AskForReceive(uint64_t number) {
  Path* path = was_early_ && asked_until_ <= number ? AnyUp() : nullptr;
  if (path != nullptr && Ping(*path, Now())) asked_until_ = number + 1;
}

// Whether it may go before its receive is posted, with some before it: where its home is a fast NIC, in one piece, or
// announced. On slow NICs the time until the receive is posted is short beside the message's own, and rings that run
// ahead of each other only drift apart.
bool SendComm::GoesEarly(const Message& message) const {
  bool large = message.size > static_cast<uint64_t>(environment_->params.chunk_bytes);
  return message.size <= early_.bytes && (!large || message.announced || home_is_fast());
}

// And with many before it.
bool SendComm::IsEarly(const Message& message) const { return GoesEarly(message) && early_.messages >= kEarlyMessages; }

// Whether word of the chunk may come late: its message is early and the path's window has room for another one, or much
// is on its way, the window has room for as much again, and more of the message is about to follow.
bool SendComm::IsPatient(const Chunk& chunk, const Path& path) {
  if (chunk.buffered) return true;
  const Message& owner = message(chunk.message);
  uint64_t next_bytes = outgoing(path).in_flight_bytes + chunk.length;
  if (inline_.load(std::memory_order_relaxed)) return IsEarly(owner) && next_bytes <= WindowBytes(path);
  return waiting_chunks_ > 0 && chunk.offset + chunk.length < owner.size && 2 * next_bytes <= WindowBytes(path);
}

// What the program sends stays here until it is acknowledged, so that its own buffer is free.
void SendComm::Buffer(Message& message) {
  message.copy = std::make_unique_for_overwrite<char[]>(std::max<uint64_t>(message.size, 1));
  if (message.size > 0) std::memcpy(message.copy.get(), message.data, message.size);
  message.data = message.copy.get();
  Finish(message.request, Request::kDone);
  message.request = nullptr;
}

bool SendComm::OwesOnlyCopies() const {
  return !messages_.empty() && std::all_of(messages_.begin(), messages_.end(),
                                           [](const Message& message) { return message.request == nullptr; });
}

void SendComm::Pump() {
  CutMessages();
  while (failure_.ok() && waiting_chunks_ > 0) {
    int64_t now_ns = Now();
    int index = home();
    if (!IsSettled(now_ns)) {
      index = NextPath();
      if (index == kNoPath) return;
      settled_ns_ = index == home() ? now_ns : 0;
    }
    Path& path = paths_[static_cast<size_t>(index)];
    if (SendOne(path, now_ns) && environment_->params.mode == 2) TryWays(path, now_ns);
  }
}

bool SendComm::SendOne(Path& path, int64_t now_ns) {
  if (!path.stream->Flush()) return false;
  std::deque<Chunk>* queue = QueueFor(path);
  Chunk chunk = std::move(queue->front());
  queue->pop_front();
  --waiting_chunks_;
  waiting_bytes_ -= chunk.length;
  PutOn(path, std::move(chunk), now_ns);
  return true;
}

void SendComm::PutOn(Path& path, Chunk chunk, int64_t now_ns) {
  Outgoing& out = outgoing(path);
  const Message& owner = message(chunk.message);
  chunk.sent_ns = now_ns;
  chunk.end = path.stream->end() + kHeaderBytes + chunk.length;
  chunk.held_ns = path.held_ns;
  if (shares_ != nullptr && !chunk.trial) split_.Take(path.index, chunk.length);
  bool takes_refuge = !chunk.trial && (home_ == nullptr ? IsConfined() : &path != home_ && !HomeIsWell(loads_, home()));
  if (chunk.buffered && !chunk.trial) CountSmallOn(path.nic);
  if (takes_refuge) nic_state(path).refuge_ns.store(chunk.sent_ns);
  if (out.in_flight_bytes == 0) {
    out.sample_start_ns = chunk.sent_ns;
    out.sample_bytes = 0;
  }
  NoteQueue(path);
  out.in_flight.push_back(chunk);
  out.in_flight_bytes += chunk.weight();
  nic_state(path).in_flight_bytes += static_cast<int64_t>(chunk.weight());
  out.last_bytes = owner.size;
  out.in_flight.back().due_ns = now_ns + LateAfter(path);
  Frame frame;
  frame.type = FrameType::kData;
  frame.flags = owner.tag << kTagAt;
  if (chunk.trial) frame.flags |= kTrialFlag;
  frame.path = static_cast<uint16_t>(path.index);
  frame.epoch = path.epoch;
  frame.body_bytes = chunk.length;
  frame.a = owner.number;
  frame.b = owner.size;
  frame.c = chunk.offset;
  frame.d = owner.chunk_bytes;
  if (chunk.buffered) frame.flags |= kBufferedFlag;
  if (owner.marked) frame.flags |= kMarkFlag;
  was_early_ = IsEarly(owner);
  if (was_early_) frame.flags |= kEarlyFlag;
  if (IsPatient(chunk, path)) frame.flags |= kPatientFlag;
  if (!inline_.load(std::memory_order_relaxed)) frame.flags |= kBulkFlag;
  if (environment_->params.checksum != 0) {
    frame.flags |= kBodySumFlag;
    frame.body_sum = Crc32c(owner.data + chunk.offset, chunk.length);
  }
  path.stream->Send(frame, owner.data + chunk.offset);
}

Status SendComm::OnHeader(Path& path) {
  switch (path.frame.type) {
    case FrameType::kHelloAck:
    case FrameType::kAck:
    case FrameType::kPathDown:
    case FrameType::kClose:
    case FrameType::kPing:
    case FrameType::kProbe:
    case FrameType::kProbed:
    case FrameType::kVerdict:
      return {};
    default:
      return {Code::kProtocol, "wire: the receiving end sent a frame of the sending end"};
  }
}

Status SendComm::OnBody(Path& path, const std::vector<uint8_t>& control) {
  const Frame& frame = path.frame;
  switch (frame.type) {
    case FrameType::kHelloAck:
      if (path.state != PathState::kGreeting || frame.epoch != path.epoch) {
        return {Code::kProtocol, "wire: unexpected greeting"};
      }
      outgoing(path).acknowledged_chunks = 0;
      outgoing(path).tried = true;
      early_ = {std::min(frame.a, static_cast<uint64_t>(environment_->params.eager_bytes)),
                std::min(frame.b, static_cast<uint64_t>(environment_->params.eager_messages))};
      MarkUp(path, HoldsBack(path));
      outgoing(path).turn = 0;
      if (IsDetour(path)) Log("path_detour", path, "no NIC reaches its own rail there; the network routes");
      environment_->notifier->Notify();
      return {};
    case FrameType::kAck: {
      if (frame.a > posted_) {
        posted_ = frame.a;
        asked_until_ = 0;  // for a receive that it still lacks it asks again
      }
      auto entries = DecodeAckEntries(control.data(), control.size());
      for (size_t i = 0; i < entries.size() && i < paths_.size(); ++i) {
        Path& acked = paths_[i];
        if (!ConcernsStream(acked.state, acked.epoch, entries[i].epoch)) continue;
        ApplyAck(acked, entries[i].chunks);
        if (entries[i].down != 0 && IsOpen(acked.state)) Retire(acked, kPeerHint, false);
      }
      return {};
    }
    case FrameType::kPing:
      SetTested(path, frame.body_bytes > 0);
      TakePing(path);
      return {};
    case FrameType::kPathDown:
    case FrameType::kProbe:
    case FrameType::kProbed:
    case FrameType::kVerdict:
      return TakeShared(path, control);
    default:
      return PeerClosed(frame.a);
  }
}

// What the peer has got is done, even where the acknowledgements went under with their paths.
Status SendComm::PeerClosed(uint64_t messages) {
  peer_closed_ = true;
  for (Path& path : paths_) {
    if (path.stream != nullptr && path.stream->sending()) path.stream->KeepBody();
  }
  while (!messages_.empty() && messages_.front().number < messages) {
    if (messages_.front().request != nullptr) Finish(messages_.front().request, Request::kDone);
    messages_.pop_front();
  }
  Status gone(Code::kPeerLost, "the receiving end closed the connection");
  if (HasPending()) {
    Fail(gone);
  } else {
    End(gone);  // an orderly end; only a later send is an error
  }
  return {};
}

void SendComm::ApplyAck(Path& path, uint64_t chunks) {
  Outgoing& out = outgoing(path);
  if (chunks <= out.acknowledged_chunks) return;
  uint64_t count = chunks - out.acknowledged_chunks;
  uint64_t complete = out.in_flight.size() - (path.stream->sending() ? 1 : 0);
  if (count > complete) {
    Retire(path, "wire: acknowledgement of chunks that were not sent", true);
    return;
  }
  int64_t now_ns = Now();
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Chunk chunk = out.in_flight.front();
    out.in_flight.pop_front();
    bytes += chunk.weight();
    counters(path).acknowledged_bytes += chunk.length;
    path.way->NotePassed(chunk.sent_ns);
    int64_t round_trip_ns = now_ns - chunk.sent_ns;
    if (chunk.trial) NoteTrial(nic_state(path), static_cast<double>(chunk.length) / static_cast<double>(round_trip_ns));
    if (!chunk.buffered && (out.min_round_trip_ns == 0 || round_trip_ns < out.min_round_trip_ns)) {
      out.min_round_trip_ns = round_trip_ns;
    }
    Acknowledge(chunk);
  }
  out.acknowledged_chunks = chunks;
  if (bytes == 0) return;
  out.in_flight_bytes -= bytes;
  auto acknowledged = static_cast<int64_t>(bytes);
  if (nic_state(path).in_flight_bytes.fetch_sub(acknowledged) == acknowledged) ++nic_state(path).idle_times;
  nic_state(path).drained_bytes += bytes;
  MeasureRate(out, bytes, now_ns);
}

void SendComm::MeasureRate(Outgoing& out, uint64_t bytes, int64_t now_ns) {
  out.sample_bytes += bytes;
  int64_t elapsed_ns = now_ns - out.sample_start_ns;
  if (elapsed_ns < kRateSampleNs) return;
  double rate = static_cast<double>(out.sample_bytes) / static_cast<double>(elapsed_ns);
  out.bytes_per_ns = out.bytes_per_ns == 0 ? rate : 0.75 * out.bytes_per_ns + 0.25 * rate;
  out.sample_start_ns = now_ns;
  out.sample_bytes = 0;
}

void SendComm::Acknowledge(const Chunk& chunk) {
  if (chunk.copies != nullptr) {
    --chunk.copies->alive;
    if (chunk.copies->acknowledged) return;
    DropCopies(chunk);
  }
  Message& owner = message(chunk.message);
  if (++owner.acknowledged < owner.chunks) return;
  if (owner.request != nullptr) Finish(owner.request, Request::kDone);
  owner.request = nullptr;
  while (!messages_.empty() && messages_.front().acknowledged == messages_.front().chunks) messages_.pop_front();
}

void SendComm::AfterRead(Path&) { Pump(); }

void SendComm::OnWritable() {
  for (Path& path : paths_) {
    if (path.stream != nullptr) path.stream->Flush();
  }
  Pump();
}

void SendComm::OnLost(Path& path) {
  Outgoing& out = outgoing(path);
  out.tried = true;
  Aim(path, 0);  // as others know the path
  environment_->notifier->Notify();
  if (environment_->params.mode == 0) {
    Fail({Code::kPeerLost, "NIC " + nic(path).name + " cannot connect to " + r2ccl::ToString(path.remote) +
                               "; R2CC_MODE=0 needs every NIC"});
    return;
  }
  size_t moved = 0;
  while (!out.in_flight.empty()) {
    Chunk chunk = std::move(out.in_flight.back());
    out.in_flight.pop_back();
    if (!IsTheLast(chunk)) continue;
    chunk.trial = false;
    ++moved;
    queues_[chunk.queue].push_front(chunk);
    ++waiting_chunks_;
    waiting_bytes_ += chunk.length;
  }
  nic_state(path).in_flight_bytes -= static_cast<int64_t>(out.in_flight_bytes);
  out.in_flight_bytes = 0;
  out.bytes_per_ns = 0;
  out.min_round_trip_ns = 0;
  ReleaseHeld(Now());  // this may have been the last one that carries data
  if (moved == 0) return;
  environment_->replayed_chunks += moved;
  Log("migrated", path, std::to_string(moved) + " chunks go to the other NICs");
  Pump();
}

void SendComm::OnTick(int64_t now_ns) {
  ReleaseHeld(now_ns);
  EndDetours(now_ns);
  if (!failure_.ok()) return;
  if (!messages_.empty()) {
    idle_ticks_ = 0;
  } else if (counts_ && ++idle_ticks_ == kIdleTicks) {
    CountAsSender(false);
  }
  for (Path& path : paths_) {
    bool opening = path.state == PathState::kConnecting || path.state == PathState::kGreeting;
    if (opening && now_ns > path.deadline_ns) {
      std::string obstacle = path.stream->obstacle();
      if (!obstacle.empty()) {
        OnNotConnected(path.index, obstacle, false);
      } else {
        path.outlook = Outlook::kSilent;
        Retire(path, "no answer to the connection request", false);
      }
    }
    if (!failure_.ok()) return;
    Progress progress;
    // A stream may be tested already, for which it has to look with each tick.
    if (path.state == PathState::kGreeting) (void)path.stream->ReadProgress(&progress);
    if (path.state == PathState::kDown && !path.link_down && now_ns >= path.dial_ns) Dial(path, now_ns);
  }
  if (AnyDirect()) TellAbsent(now_ns, started_ns_);
  OnWritable();
}

void SendComm::FailRequests() {
  CountAsSender(false);
  for (Message& unfinished : messages_) {
    if (unfinished.request != nullptr) Finish(unfinished.request, Request::kFailed);
  }
  messages_.clear();
  for (auto& queue : queues_) queue.clear();
  waiting_chunks_ = waiting_bytes_ = 0;
  for (Path& path : paths_) {
    Outgoing& out = outgoing(path);
    nic_state(path).in_flight_bytes -= static_cast<int64_t>(out.in_flight_bytes);
    out.in_flight_bytes = 0;
    out.in_flight.clear();
  }
}

}  // namespace r2ccl
