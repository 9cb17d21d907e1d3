// A peer: connections, bursts of pieces, what the other engine says, and the end of transfers.
#include "transfer/peer.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace r2ccl::transfer {
namespace {

constexpr size_t kMessagesAhead = 16;  // receives posted for messages
// So much may be with the transport at a time: what a cancelled transfer still has to wait for.
constexpr uint64_t kPieceBytes = 4 << 20;
constexpr uint64_t kWindowBytes = 32 << 20;
constexpr uint64_t kWindowPieces = 1024;
constexpr uint64_t kBurstBytes = 8 << 20;  // then it is another transfer's turn
// What one of us keeps to by itself; more is the work of somebody else.
constexpr size_t kOperations = 4096;                // of one engine's that are not over
constexpr uint64_t kNotificationsBytes = 64 << 20;  // that no program has asked for
constexpr uint64_t kNotificationOwnBytes = 256;     // beside its text
constexpr int kRounds = 64;                         // then it is another peer's turn
constexpr int64_t kLastWordsNs = 1'000'000'000;     // as long as the peer's transport lingers over them

Status Wrong(const std::string& what) { return {Code::kProtocol, "the peer's engine " + what}; }

// Takes a piece's bytes out of those that came within a message, to `data` unless it is nullptr. False if none came so.
bool TakeWithin(std::string_view* within, uint64_t bytes, char* data) {
  if (within->empty()) return false;
  if (data != nullptr) std::memcpy(data, within->data(), bytes);
  within->remove_prefix(bytes);
  return true;
}

// What a program reads of a loss.
Status Explain(const Status& status, const std::string& name) {
  return {status.code(), "the transfer engine '" + name + "': " + status.message()};
}

}  // namespace

// Connections ---------------------------------------------------------------------------------------------------------

void Peer::UseSenders(std::vector<std::shared_ptr<SendComm>> senders) {
  senders_ = std::move(senders);
  out_messages_.resize(senders_.size());
  out_pieces_.resize(senders_.size() - 1);
  for (size_t role = 0; role < senders_.size() && failure_.ok(); ++role) {
    Message hello;
    hello.code = static_cast<uint8_t>(role);
    hello.operation = session_;
    hello.text = shared_->address;
    hello.pieces.push_back({their_session_, 0, 0});
    Say(role, Encode(hello));
  }
}

void Peer::TakeReceiver(uint64_t their_session, size_t role, size_t data_ends, std::shared_ptr<RecvComm> comm) {
  their_session_ = their_session;
  if (receivers_.empty()) {
    receivers_.resize(data_ends + 1);
    in_pieces_.resize(data_ends);
  }
  if (!failure_.ok() || role >= receivers_.size() || receivers_[role] != nullptr) {
    comm->Close();
    return;
  }
  receivers_[role] = std::move(comm);
  if (role > 0) return;
  receivers_[0]->ExpectTell();
  for (size_t i = 0; i < kMessagesAhead && failure_.ok(); ++i)
    PostMessage(std::make_unique_for_overwrite<char[]>(kMessageBytes));
}

bool Peer::IsComplete() const {
  return !receivers_.empty() &&
         std::all_of(receivers_.begin(), receivers_.end(), [](const auto& comm) { return comm != nullptr; });
}

bool Peer::HasMet() {
  bool ready = false;
  return failure_.ok() && Ready(&ready).ok() && ready;
}

Status Peer::Ready(bool* ready) {
  *ready = IsComplete();
  for (const auto& sender : senders_) {
    bool one = false;
    if (failure_.ok() && !sender->Ready(&one).ok()) CheckAlive();
    *ready = *ready && one;
  }
  return loss();
}

// A peer that leaves may have ended transfers just before: its last messages are taken though other connections have
// ended already. True when the peer was failed.
bool Peer::CheckAlive() {
  auto look = [this](const auto& comm) {
    if (comm != nullptr && ended_.ok() && comm->has_ended()) Lose(comm->failure());
  };
  for (const auto& comm : receivers_) look(comm);
  for (const auto& comm : senders_) look(comm);
  if (ended_.ok()) return false;
  bool speaks = receivers_.empty() || receivers_[0] == nullptr || !receivers_[0]->has_ended();
  if (speaks && NowNs() - ended_ns_ < kLastWordsNs) return false;
  for (int round = 0; round < kRounds && failure_.ok() && (PumpMessages() || PumpArrivals()); ++round) continue;
  Fail(ended_);
  return true;
}

// A connection has ended.
void Peer::Lose(const Status& status) {
  if (!ended_.ok()) return;
  ended_ = Explain(status, address_.name);
  ended_ns_ = NowNs();
}

void Peer::Fail(const Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  // From here on nothing touches a piece's memory.
  for (const auto& comm : senders_) comm->Close();
  for (const auto& comm : receivers_) {
    if (comm != nullptr) comm->Close();
  }
  out_pieces_.clear();
  in_pieces_.clear();
  in_messages_.clear();
  out_messages_.clear();
  jobs_.clear();
  waiting_.clear();
  reads_.clear();
  inbound_.clear();
  nowhere_.clear();
  partial_ = {};
  auto transfers = std::move(transfers_);
  transfers_.clear();
  for (const auto& [operation, transfer] : transfers) {
    // Of a write that the peer has ended well only the transport's word may be missing.
    bool well = transfer->direction_ == Direction::kWrite && transfer->answered_ && !transfer->cancelled_;
    if (transfer->problem_.ok()) {
      EndTransfer(*transfer, well ? Transfer::kDone : Transfer::kFailed, well ? Status() : status);
    } else {
      EndTransfer(*transfer, Transfer::kFailed, transfer->problem_);
    }
  }
}

bool Peer::Touches(const Region* region) const {
  auto touches = [region](const auto& lists) {
    return std::any_of(lists.begin(), lists.end(), [region](const auto& list) {
      return std::any_of(list.begin(), list.end(), [region](const auto& one) { return one.use.region() == region; });
    });
  };
  return touches(out_pieces_) || touches(in_pieces_);
}

// What programs ask for -----------------------------------------------------------------------------------------------

void Peer::Begin(std::shared_ptr<Transfer> transfer, Direction direction, std::vector<Range> ranges,
                 const std::string* notification) {
  transfer->direction_ = direction;
  transfer->operation_ = shared_->next_operation++;
  transfer->has_notification_ = notification != nullptr;
  if (notification != nullptr) transfer->notification_ = *notification;
  for (const Range& range : ranges) transfer->wanted_bytes_ += range.bytes;
  if (!loss().ok()) {
    EndTransfer(*transfer, Transfer::kFailed, loss());
    return;
  }
  transfers_[transfer->operation_] = transfer;
  transfer->ranges_ = std::move(ranges);
  waiting_.push_back(std::move(transfer));
  StartWaiting();
}

// As many as the peer takes at a time.
bool Peer::StartWaiting() {
  bool moved = false;
  while (loss().ok() && !waiting_.empty() && HasRoomFor(*waiting_.front())) {
    std::shared_ptr<Transfer> transfer = std::move(waiting_.front());
    waiting_.pop_front();
    Start(std::move(transfer));
    moved = true;
  }
  return moved;
}

bool Peer::HasRoomFor(const Transfer& transfer) const {
  if (transfers_.size() - waiting_.size() >= kOperations) return false;
  return transfer.direction_ == Direction::kWrite || own_ranges_ + transfer.ranges_.size() <= kReadRanges;
}

void Peer::Start(std::shared_ptr<Transfer> transfer) {
  const std::vector<Range>& ranges = transfer->ranges_;
  transfer->begun_ = true;
  if (transfer->direction_ == Direction::kWrite) {
    auto job = std::make_shared<Job>();
    job->operation = transfer->operation_;
    job->ranges.assign(ranges.begin(), ranges.end());
    job->complete = true;
    transfer->ranges_ = {};
    job->transfer = std::move(transfer);
    jobs_.push_back(std::move(job));
    return;
  }
  own_ranges_ += ranges.size();
  Message read;
  read.kind = Kind::kRead;
  read.operation = transfer->operation_;
  size_t at = 0;
  do {
    read.pieces.clear();
    for (; at < ranges.size() && read.pieces.size() < kMessagePieces; ++at) {
      read.pieces.push_back({ranges[at].remote_key, ranges[at].remote_offset, ranges[at].bytes});
    }
    read.last = at == ranges.size();
    Say(read);
  } while (!read.last);
}

void Peer::Cancel(Transfer& transfer) {
  if (transfer.state() != Transfer::kPending || !failure_.ok()) return;
  auto waits = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& one) { return one.get() == &transfer; });
  if (waits != waiting_.end()) {
    std::shared_ptr<Transfer> held = std::move(*waits);
    waiting_.erase(waits);
    transfers_.erase(transfer.operation_);
    EndTransfer(transfer, Transfer::kCancelled, {});
    return;
  }
  if (transfer.direction_ == Direction::kRead) {
    if (transfer.cancelled_) return;
    transfer.cancelled_ = true;
    Message cancel;
    cancel.kind = Kind::kCancel;
    cancel.operation = transfer.operation_;
    Say(cancel);
    return;
  }
  // Where all of it was sent already, it ends as it ends.
  for (const auto& job : jobs_) {
    if (job->transfer.get() != &transfer) continue;
    transfer.cancelled_ = true;
    job->stopped = true;
    job->outcome = Outcome::kCancelled;
  }
}

void Peer::Notify(uint64_t operation, const std::string& text) {
  Message part;
  part.kind = Kind::kNotify;
  part.operation = operation;
  size_t at = 0;
  do {
    part.text = text.substr(at, kMessageText);
    at += part.text.size();
    part.last = at == text.size();
    Say(part);
  } while (!part.last);
}

// Progress ------------------------------------------------------------------------------------------------------------

bool Peer::Pump(bool reads) {
  has_more_ = false;
  if (!failure_.ok()) return false;
  looks_ = reads;
  uint64_t taken_before = taken_;
  bool moved = !met_;  // who connects waits for that
  bool again = true;
  for (int round = 0; round < kRounds && failure_.ok() && again; ++round) {
    again = PumpMessages();
    if (failure_.ok()) again |= PumpArrivals();
    if (failure_.ok()) again |= PumpSent();
    if (loss().ok()) again |= StartWaiting();
    if (loss().ok()) again |= PumpJobs();
    moved |= again;
  }
  has_more_ = again;
  if (failure_.ok()) moved |= CheckAlive();
  met_ = met_ || HasMet();
  if (std::exchange(heard_, false) && failure_.ok()) receivers_[0]->Tell();
  return moved || taken_ != taken_before;
}

// Whether it is done. One that has failed stays, and what it holds, until every connection is closed.
bool Peer::Test(Comm& comm, Request** request, uint64_t* size) {
  if (*request == nullptr) return false;
  bool done = false;
  Status status = comm.Test(*request, &done, size, nullptr, looks_);
  if (!status.ok()) {
    Lose(status);
    *request = nullptr;
  }
  return done;
}

bool Peer::PumpMessages() {
  bool moved = false;
  // Before the data connections are here, nothing could be received that a message announces. Of a peer that leaves
  // only the messages count.
  bool takes = IsComplete() || !ended_.ok();
  for (int turn = 0; turn < kRounds && takes && failure_.ok() && !in_messages_.empty(); ++turn) {
    if (in_count_ >= kWindowPieces) break;  // of the last messages', which come without these
    uint64_t size = 0;
    if (!Test(*receivers_[0], &in_messages_.front().request, &size)) break;
    InMessage arrived = std::move(in_messages_.front());
    in_messages_.pop_front();
    Message message;
    Status status = Decode(arrived.bytes.get(), size, &message);
    if (status.ok()) status = Take(message);
    if (!status.ok()) {
      Fail(Explain(status, address_.name));
      return true;
    }
    if (failure_.ok()) PostMessage(std::move(arrived.bytes));
    heard_ = moved = true;
  }
  return moved;
}

bool Peer::PumpArrivals() {
  bool moved = false;
  for (size_t i = 0; i < in_pieces_.size(); ++i) {
    while (failure_.ok() && !in_pieces_[i].empty()) {
      InPiece& front = in_pieces_[i].front();
      uint64_t size = 0;
      if (!Test(*receivers_[i + 1], &front.request, &size)) break;
      if (size != front.bytes) {
        Fail(Explain(Wrong("sent a piece of another size than it said"), address_.name));
        return true;
      }
      InPiece piece = std::move(front);
      in_pieces_[i].pop_front();
      --in_count_;
      moved = true;
      bool landed = piece.use.region() != nullptr;
      piece.use = Use();
      if (piece.inbound != nullptr) {
        --piece.inbound->pieces;
        FinishInbound(*piece.inbound);
      } else {
        --piece.transfer->pieces_;
        if (landed) piece.transfer->bytes_ += piece.bytes;
        FinishTransfer(piece.transfer);
      }
    }
    if (!failure_.ok()) return true;
  }
  return moved;
}

bool Peer::PumpSent() {
  bool moved = false;
  for (size_t i = 0; i < senders_.size(); ++i) {
    while (!out_messages_[i].empty()) {
      if (!Test(*senders_[i], &out_messages_[i].front().request, nullptr)) break;
      out_bytes_ -= out_messages_[i].front().within;
      out_messages_[i].pop_front();
      ++taken_;
    }
  }
  for (size_t i = 0; i < out_pieces_.size(); ++i) {
    while (failure_.ok() && !out_pieces_[i].empty()) {
      OutPiece& front = out_pieces_[i].front();
      if (!Test(*senders_[i + 1], &front.request, nullptr)) break;
      OutPiece piece = std::move(front);
      out_pieces_[i].pop_front();
      moved = true;
      out_bytes_ -= piece.bytes;
      --out_count_;
      piece.use = Use();
      if (piece.transfer == nullptr) continue;
      --piece.transfer->pieces_;
      FinishTransfer(piece.transfer);
    }
    if (!failure_.ok()) return true;
  }
  return moved;
}

bool Peer::PumpJobs() {
  bool moved = false;
  for (size_t turns = jobs_.size(); turns > 0 && loss().ok(); --turns) {
    if (out_bytes_ >= kWindowBytes || out_count_ >= kWindowPieces) break;
    std::shared_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    moved |= SendBurst(*job);
    if (!loss().ok()) {
      jobs_.push_front(std::move(job));
      return true;
    }
    // One that is refused before all of it was asked for waits for the rest, which is about the same operation.
    if (job->complete && (job->stopped || job->ranges.empty())) {
      FinishJob(*job);
      moved = true;
    } else {
      jobs_.push_back(std::move(job));
    }
  }
  return moved;
}

// Announces the next pieces of a job, and gives them to the transport.
bool Peer::SendBurst(Job& job) {
  if (job.stopped || job.ranges.empty()) return false;
  if (SendWithin(job)) return true;
  struct Part {
    std::shared_ptr<Region> region;
    uint64_t offset;
    uint64_t bytes;
  };
  std::vector<Part> parts;
  Message burst;
  burst.kind = job.transfer != nullptr ? Kind::kWrite : Kind::kReply;
  burst.operation = job.operation;
  uint64_t bytes = 0;
  while (!job.ranges.empty() && parts.size() < kMessagePieces && bytes < kBurstBytes &&
         out_bytes_ + bytes < kWindowBytes && out_count_ + parts.size() < kWindowPieces) {
    Range& range = job.ranges.front();
    uint64_t part = std::min(range.bytes, kPieceBytes);
    std::shared_ptr<Region> region;
    Status status = shared_->regions.Find(range.local_key, range.local_offset, part, &region);
    if (!status.ok()) {
      job.stopped = true;
      job.outcome = Outcome::kRefused;
      job.why = status.message();
      if (job.transfer != nullptr)
        job.transfer->problem_ = {Code::kInvalidArgument, std::string("here, ").append(job.why)};
      break;
    }
    parts.push_back({std::move(region), range.local_offset, part});
    burst.pieces.push_back({range.remote_key, range.remote_offset, part});
    bytes += part;
    range.local_offset += part;
    range.remote_offset += part;
    range.bytes -= part;
    if (range.bytes == 0) job.ranges.pop_front();
  }
  if (parts.empty()) return job.stopped;
  if (job.complete && job.ranges.empty() && !job.stopped) CloseWith(job, &burst);
  Say(burst);
  for (Part& part : parts) {
    if (!loss().ok()) return true;
    size_t to = next_out_++ % out_pieces_.size();
    Request* request = nullptr;
    // The peer takes a write's announcement while its bytes are on their way. Who reads may be asleep.
    bool early = job.transfer != nullptr;
    Status status =
        senders_[to + 1]->Isend(part.region->data + part.offset, part.bytes, &request, false, 0, nullptr, early);
    if (!status.ok()) {
      Lose(status);
      return true;
    }
    if (job.transfer != nullptr) ++job.transfer->pieces_;
    out_bytes_ += part.bytes;
    ++out_count_;
    out_pieces_[to].push_back({request, part.bytes, Use(std::move(part.region)), job.transfer});
  }
  return true;
}

// What is left of a job in one message, if it fits. Memory that is not registered any more is SendBurst's to refuse.
bool Peer::SendWithin(Job& job) {
  if (!job.complete || job.ranges.size() > kMessagePieces) return false;
  uint64_t bytes = 0;
  std::vector<std::shared_ptr<Region>> regions;
  for (const Range& range : job.ranges) {
    bytes = range.bytes > kMessageData ? kMessageBytes : bytes + range.bytes;
    std::shared_ptr<Region> region;
    if (bytes > kMessageData) return false;
    if (!shared_->regions.Find(range.local_key, range.local_offset, range.bytes, &region).ok()) return false;
    regions.push_back(std::move(region));
  }
  Message message;
  message.kind = job.transfer != nullptr ? Kind::kWrite : Kind::kReply;
  message.operation = job.operation;
  for (const Range& range : job.ranges) message.pieces.push_back({range.remote_key, range.remote_offset, range.bytes});
  CloseWith(job, &message);
  std::string encoded = Encode(message);
  encoded.reserve(encoded.size() + bytes);
  for (size_t i = 0; i < regions.size(); ++i) {
    encoded.append(regions[i]->data + job.ranges[i].local_offset, job.ranges[i].bytes);
  }
  job.ranges.clear();
  Say(0, std::move(encoded), bytes);
  return true;
}

// Makes it the last message of a job that goes well.
void Peer::CloseWith(Job& job, Message* message) {
  message->last = job.ended = true;
  if (job.transfer == nullptr || !job.transfer->has_notification_) return;
  const std::string& text = job.transfer->notification_;
  message->notifies = text.size() <= kMessageText;
  if (message->notifies) {
    message->text = text;
  } else {
    Notify(job.operation, text);
  }
}

void Peer::FinishJob(Job& job) {
  if (job.transfer == nullptr) {
    read_ranges_ -= job.next_range;
    if (!job.ended) SayDone(job.operation, true, job.outcome, job.why);
    reads_.erase(job.operation);
    return;
  }
  job.transfer->sent_ = true;
  if (job.ended) return;
  Message end;
  end.kind = Kind::kWrite;
  end.operation = job.operation;
  end.last = true;
  end.code = static_cast<uint8_t>(job.outcome);
  if (job.outcome == Outcome::kOk) CloseWith(job, &end);
  Say(end);
}

// What the peer says --------------------------------------------------------------------------------------------------

Status Peer::Take(const Message& message) {
  switch (message.kind) {
    case Kind::kHello:
      return Wrong("greeted twice");
    case Kind::kWrite:
      return TakeWrite(message);
    case Kind::kRead:
      return TakeRead(message);
    case Kind::kReply:
      return TakeReply(message);
    case Kind::kCancel:
      Stop(message.operation, Outcome::kCancelled);
      return {};
    case Kind::kNotify:
      return TakeNotify(message);
    case Kind::kDone:
      return TakeDone(message);
  }
  return Wrong("sent a message of no known kind");
}

Status Peer::TakeWrite(const Message& message) {
  std::shared_ptr<Inbound> inbound = FindInbound(message.operation);
  if (inbound == nullptr) return Wrong("began too many operations at a time");
  std::string_view within = message.data;
  for (const Piece& piece : message.pieces) {
    if (piece.bytes == 0 || piece.bytes > kPieceBytes) return Wrong("announced a piece of no permitted size");
    std::shared_ptr<Region> region;
    Status status = shared_->regions.Find(piece.key, piece.offset, piece.bytes, &region);
    if (!status.ok()) Refuse(*inbound, status.message());
    char* data = region == nullptr || inbound->outcome != Outcome::kOk ? nullptr : region->data + piece.offset;
    if (TakeWithin(&within, piece.bytes, data)) continue;
    ++inbound->pieces;
    Receive({nullptr, piece.bytes, Use(data == nullptr ? nullptr : region), inbound, nullptr}, data);
  }
  if (message.notifies) {
    Status status = AddNotification(*inbound, message.text);
    if (!status.ok()) return status;
  }
  if (message.last) {
    inbound->last = true;
    if (message.code != 0 && inbound->outcome == Outcome::kOk) inbound->outcome = Outcome::kCancelled;
    FinishInbound(*inbound);
  }
  return {};
}

// nullptr: it has begun too many.
std::shared_ptr<Peer::Inbound> Peer::FindInbound(uint64_t operation) {
  auto known = inbound_.find(operation);
  if (known != inbound_.end()) return known->second;
  if (inbound_.size() + reads_.size() >= kOperations) return nullptr;
  asked_ = true;
  auto inbound = std::make_shared<Inbound>();
  inbound->operation = operation;
  inbound_[operation] = inbound;
  return inbound;
}

// Told at once, so that the peer need not send the rest.
void Peer::Refuse(Inbound& inbound, const std::string& why) {
  if (inbound.outcome != Outcome::kOk) return;
  inbound.outcome = Outcome::kRefused;
  inbound.why = why;
  SayDone(inbound.operation, false, inbound.outcome, why);
}

Status Peer::TakeRead(const Message& message) {
  auto known = reads_.find(message.operation);
  std::shared_ptr<Job> job = known == reads_.end() ? nullptr : known->second;
  if (job == nullptr) {
    if (inbound_.size() + reads_.size() >= kOperations) return Wrong("began too many operations at a time");
    asked_ = true;
    job = std::make_shared<Job>();
    job->operation = message.operation;
    reads_[message.operation] = job;
    jobs_.push_back(job);
  }
  if (job->complete) return Wrong("asked twice for one read");
  read_ranges_ += message.pieces.size();
  if (read_ranges_ > kReadRanges) return Wrong("asked for too many ranges at a time");
  job->complete = message.last;
  for (const Piece& piece : message.pieces) {
    uint64_t number = job->next_range++;
    std::shared_ptr<Region> region;
    Status status = shared_->regions.Find(piece.key, piece.offset, piece.bytes, &region);
    if (!status.ok() && !job->stopped) {
      job->stopped = true;
      job->outcome = Outcome::kRefused;
      job->why = status.message();
    }
    if (piece.bytes > 0 && !job->stopped) job->ranges.push_back({piece.key, piece.offset, number, 0, piece.bytes});
  }
  return {};
}

Status Peer::TakeReply(const Message& message) {
  auto entry = transfers_.find(message.operation);
  if (entry == transfers_.end() || entry->second->direction_ != Direction::kRead || !entry->second->begun_) {
    return Wrong("sends what nobody reads");
  }
  std::shared_ptr<Transfer> transfer = entry->second;
  if (transfer->answered_) return Wrong("goes on with a read that it has ended");
  std::string_view within = message.data;
  for (const Piece& piece : message.pieces) {
    if (piece.bytes == 0 || piece.bytes > kPieceBytes) return Wrong("announced a piece of no permitted size");
    bool next = piece.key == transfer->next_range_ && piece.offset == transfer->next_offset_;
    if (!next || piece.key >= transfer->ranges_.size()) return Wrong("sends other bytes than this one reads");
    const Range& range = transfer->ranges_[piece.key];
    if (piece.bytes > range.bytes - piece.offset) return Wrong("sends more than this one reads");
    transfer->next_offset_ += piece.bytes;
    if (transfer->next_offset_ == range.bytes) {
      ++transfer->next_range_;
      transfer->next_offset_ = 0;
    }
    std::shared_ptr<Region> region;
    uint64_t offset = range.local_offset + piece.offset;
    Status status = shared_->regions.Find(range.local_key, offset, piece.bytes, &region);
    if (!status.ok() && transfer->problem_.ok()) {
      transfer->problem_ = {Code::kInvalidArgument, std::string("here, ").append(status.message())};
      Cancel(*transfer);
    }
    char* data = region == nullptr ? nullptr : region->data + offset;
    if (TakeWithin(&within, piece.bytes, data)) {
      if (data != nullptr) transfer->bytes_ += piece.bytes;
      continue;
    }
    ++transfer->pieces_;
    Receive({nullptr, piece.bytes, Use(std::move(region)), nullptr, transfer}, data);
  }
  if (message.last) {
    transfer->answered_ = true;
    transfer->cancelled_ = false;  // it came too late
    FinishTransfer(transfer);
  }
  return {};
}

Status Peer::TakeDone(const Message& message) {
  auto entry = transfers_.find(message.operation);
  if (entry == transfers_.end() || !entry->second->begun_) return Wrong("ended an operation that nobody began");
  std::shared_ptr<Transfer> transfer = entry->second;
  auto outcome = static_cast<Outcome>(message.code);
  if (outcome == Outcome::kRefused && transfer->problem_.ok()) {
    transfer->problem_ = {Code::kInvalidArgument, "'" + address_.name + "' refuses: " + message.text};
  }
  if (!message.last) {
    for (const auto& job : jobs_) {
      if (job->transfer != transfer || job->stopped) continue;
      job->stopped = true;
      job->outcome = Outcome::kRefused;
    }
    return {};
  }
  if (transfer->direction_ == Direction::kWrite && !transfer->sent_) return Wrong("ended a write before all was sent");
  if (transfer->answered_) return Wrong("ended an operation twice");
  transfer->answered_ = true;
  if (outcome == Outcome::kCancelled) transfer->cancelled_ = true;
  if (outcome == Outcome::kOk) transfer->cancelled_ = false;  // it came too late
  FinishTransfer(transfer);
  return {};
}

Status Peer::AddNotification(Inbound& inbound, const std::string& text) {
  inbound.has_notification = true;
  inbound.notification += text;
  return inbound.notification.size() > kNotificationBytes ? Wrong("sent too long a notification") : Status();
}

Status Peer::TakeNotify(const Message& message) {
  if (message.operation != 0) {
    std::shared_ptr<Inbound> inbound = FindInbound(message.operation);
    if (inbound == nullptr) return Wrong("began too many operations at a time");
    return AddNotification(*inbound, message.text);
  }
  partial_ += message.text;
  if (partial_.size() > kNotificationBytes) return Wrong("sent too long a notification");
  if (message.last) Deliver(std::exchange(partial_, {}));
  return {};
}

void Peer::Stop(uint64_t operation, Outcome outcome) {
  auto entry = reads_.find(operation);
  if (entry == reads_.end() || entry->second->stopped) return;
  entry->second->stopped = true;
  entry->second->outcome = outcome;
}

// The end of things ---------------------------------------------------------------------------------------------------

void Peer::FinishInbound(Inbound& inbound) {
  if (!inbound.last || inbound.pieces > 0) return;
  if (inbound.outcome == Outcome::kOk && inbound.has_notification) {
    Deliver(std::move(inbound.notification));
  }
  SayDone(inbound.operation, true, inbound.outcome, inbound.why);
  served_ = true;
  inbound_.erase(inbound.operation);
}

// A program that never asks for notifications must not be filled up with them.
void Peer::Deliver(std::string text) {
  uint64_t bytes = text.size() + kNotificationOwnBytes;
  if (shared_->notification_bytes + bytes > kNotificationsBytes) {
    std::string count = std::to_string(shared_->notifications.size());
    Lose({Code::kProtocol, count + " notifications wait, and the program takes none"});
    return;
  }
  shared_->notification_bytes += bytes;
  shared_->notifications.push_back({address_.name, std::move(text)});
}

void Peer::FinishTransfer(const std::shared_ptr<Transfer>& transfer) {
  if (!transfer->answered_ || transfer->pieces_ > 0 || transfer->state() != Transfer::kPending) return;
  bool reads = transfer->direction_ == Direction::kRead;
  bool short_read = reads && transfer->bytes_ != transfer->wanted_bytes_;
  if (transfer->problem_.ok() && !transfer->cancelled_ && short_read) {
    transfer->problem_ = Wrong("ended a read before all of it was sent");
  }
  bool well = transfer->problem_.ok() && !transfer->cancelled_;
  if (well && reads && transfer->has_notification_) Notify(0, transfer->notification_);
  transfers_.erase(transfer->operation_);
  if (reads) own_ranges_ -= transfer->ranges_.size();
  if (!transfer->problem_.ok()) {
    EndTransfer(*transfer, Transfer::kFailed, transfer->problem_);
  } else {
    EndTransfer(*transfer, well ? Transfer::kDone : Transfer::kCancelled, {});
  }
}

void Peer::EndTransfer(Transfer& transfer, Transfer::State state, Status status) {
  served_ = true;
  transfer.status_ = std::move(status);
  transfer.state_.store(state, std::memory_order_release);
}

// Towards the transport -----------------------------------------------------------------------------------------------

// Nothing, to a peer that has left.
void Peer::Say(size_t sender, std::string bytes, uint64_t within) {
  if (!loss().ok()) return;
  std::deque<OutMessage>& queue = out_messages_[sender];
  queue.push_back({std::move(bytes), nullptr, within});
  out_bytes_ += within;
  ++said_;
  OutMessage& last = queue.back();
  Status status = senders_[sender]->Isend(last.bytes.data(), last.bytes.size(), &last.request);
  if (status.ok()) return;
  out_bytes_ -= within;
  queue.pop_back();
  Lose(status);
}

void Peer::SayDone(uint64_t operation, bool last, Outcome outcome, const std::string& why) {
  Message done;
  done.kind = Kind::kDone;
  done.last = last;
  done.code = static_cast<uint8_t>(outcome);
  done.operation = operation;
  done.text = why.substr(0, kMessageText);
  Say(done);
}

void Peer::PostMessage(std::unique_ptr<char[]> bytes) {
  in_messages_.push_back({std::move(bytes), nullptr});
  InMessage& last = in_messages_.back();
  Status status = receivers_[0]->Irecv(last.bytes.get(), kMessageBytes, &last.request);
  if (status.ok()) return;
  in_messages_.pop_back();
  Lose(status);
}

// `data` nullptr: to nowhere.
void Peer::Receive(InPiece piece, char* data) {
  size_t from = next_in_++ % in_pieces_.size();
  if (receivers_[from + 1] == nullptr) return;  // it leaves before it was here
  if (data == nullptr) data = Nowhere(from);
  Status status = receivers_[from + 1]->Irecv(data, piece.bytes, &piece.request);
  if (status.ok()) {
    in_pieces_[from].push_back(std::move(piece));
    ++in_count_;
  } else {
    Lose(status);
  }
}

// One for each connection: they are written by threads of their own.
char* Peer::Nowhere(size_t connection) {
  nowhere_.resize(in_pieces_.size());
  if (nowhere_[connection] == nullptr) nowhere_[connection] = std::make_unique<char[]>(kPieceBytes);
  return nowhere_[connection].get();
}

}  // namespace r2ccl::transfer
