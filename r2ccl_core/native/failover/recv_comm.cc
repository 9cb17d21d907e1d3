// The receiving end: placing chunks, duplicates, early messages, acknowledgements.
#include "failover/recv_comm.h"

#include <algorithm>
#include <cstring>

namespace r2ccl {

namespace {

constexpr int64_t kReturnNs = 300 * kMillisecond;

}  // namespace

RecvComm::RecvComm(Environment* environment, Wire* wire, const Secret& secret, const Frame& hello)
    : Comm(environment, wire), secret_(secret), connection_(hello.a), sender_port_(static_cast<uint16_t>(hello.c)) {
  paths_.resize(hello.b);
  incoming_.resize(hello.b);
  for (size_t i = 0; i < paths_.size(); ++i) paths_[i].index = static_cast<int>(i);
}

Status RecvComm::Attach(int index, uint32_t epoch, int nic_index, in_addr remote, std::shared_ptr<Stream> stream,
                        bool on_trial) {
  MutexLock lock(mutex_);
  if (!failure_.ok() || peer_closed_) {
    stream->HangUp(EncodeClose(first_));
    return {Code::kPeerLost, "its connection has ended"};
  }
  if (index >= static_cast<int>(paths_.size())) return {Code::kProtocol, "wire: no such path"};
  Path& path = paths_[static_cast<size_t>(index)];
  if (!IsNewerStream(path.epoch, epoch)) return {Code::kProtocol, "wire: stale epoch"};
  if (path.state == PathState::kUp) {
    if (environment_->params.mode == 0) return {Code::kProtocol, "wire: path opened twice"};
    Retire(path, "the other end opened this path again", false);
  }
  path.nic = nic_index;
  path.remote = remote;
  KnowWay(path);
  path.epoch = epoch;
  path.stream = std::move(stream);
  path.link_down = false;
  incoming_[static_cast<size_t>(index)] = {};
  path.stream->Start();
  path.tested = on_trial;
  MarkUp(path);
  const Params& params = environment_->params;
  path.stream->Say(EncodeHelloAck(static_cast<uint16_t>(index), epoch, static_cast<uint64_t>(params.eager_bytes),
                                  static_cast<uint64_t>(params.eager_messages), path.stream->abilities()));
  SendAck(&path);
  return {};
}

Status RecvComm::Irecv(void* data, uint64_t capacity, Request** request, bool watched) {
  return Submit({.data = static_cast<char*>(data), .size = capacity, .watched = watched}, request);
}

void RecvComm::Take(const Order& order) {
  uint64_t number = posted_++;
  while (first_ + messages_.size() <= number) {
    messages_.emplace_back();
    messages_.back().number = first_ + messages_.size() - 1;
  }
  Message& message = messages_[number - first_];
  message.data = order.data;
  message.capacity = order.size;
  message.request = order.request;
  message.watched = order.watched;
  if (message.started && message.size > order.size) {
    Fail({Code::kMismatch, "a message of " + std::to_string(message.size) + " bytes came for a receive of " +
                               std::to_string(order.size)});
  } else if (message.complete()) {
    Deliver(message);
  } else if (peer_closed_) {
    Fail({Code::kPeerLost, "the sending end closed the connection"});
  }
}

Status RecvComm::OnHeader(Path& path) {
  switch (path.frame.type) {
    case FrameType::kData:
      return TakeData(path);
    case FrameType::kPathDown:
    case FrameType::kClose:
    case FrameType::kPing:
    case FrameType::kProbe:
    case FrameType::kProbed:
    case FrameType::kVerdict:
      return {};
    default:
      return {Code::kProtocol, "wire: the sending end sent a frame of the receiving end"};
  }
}

// Finds or makes the message of `frame`; nullptr when it is over already.
Status RecvComm::Locate(const Frame& frame, Message** message) {
  *message = nullptr;
  if (frame.a < first_) return {};
  const Params& params = environment_->params;
  EarlyLimits early = {static_cast<uint64_t>(params.eager_bytes), static_cast<uint64_t>(params.eager_messages)};
  if (frame.a >= posted_ && !MayBeEarly(early, frame.a, posted_, frame.b)) {
    return {Code::kProtocol, "wire: a message came before its receive was posted"};
  }
  while (first_ + messages_.size() <= frame.a) {
    messages_.emplace_back();
    messages_.back().number = first_ + messages_.size() - 1;
  }
  *message = &messages_[frame.a - first_];
  return {};
}

Status RecvComm::Begin(Message& message, const Frame& frame) {
  if (message.request != nullptr && frame.b > message.capacity) {
    Fail({Code::kMismatch, "a message of " + std::to_string(frame.b) + " bytes came for a receive of " +
                               std::to_string(message.capacity)});
    return failure_;
  }
  message.started = true;
  message.size = frame.b;
  message.tag = frame.flags >> kTagAt;
  message.chunk_bytes = frame.d;
  message.chunks.Reset(frame.b == 0 ? 1 : (frame.b + frame.d - 1) / frame.d);
  bool aside = message.request == nullptr || (message.watched && (frame.flags & kBodySumFlag) != 0);
  if (aside) message.stash = std::make_unique_for_overwrite<char[]>(std::max<uint64_t>(frame.b, 1));
  return {};
}

Status RecvComm::TakeData(Path& path) {
  const Frame& frame = path.frame;
  Incoming& in = incoming_[static_cast<size_t>(path.index)];
  in.arriving = false;
  in.aside.reset();
  if ((frame.flags & kTrialFlag) == 0) SetTested(path, false);
  if (frame.epoch != path.epoch || frame.path != path.index) return {Code::kProtocol, "wire: chunk of another path"};
  if (frame.a >= posted_) EmptyInbox();
  if (frame.a >= posted_) LetOrdersWait(false);  // its receive is to be told of at once
  if (!failure_.ok()) return failure_;
  Message* message = nullptr;
  Status status = Locate(frame, &message);
  if (status.ok() && message != nullptr && !message->started) status = Begin(*message, frame);
  if (!status.ok()) return status;
  if (message != nullptr && (message->size != frame.b || message->chunk_bytes != frame.d)) {
    return {Code::kProtocol, "wire: chunk disagrees with its message"};
  }
  size_t index = frame.c / frame.d;
  Placement placement = message == nullptr ? Placement::kDiscard : PlaceChunk(message->chunks[index]);
  if (placement == Placement::kDiscard) return {};
  if (placement == Placement::kAside) {
    in.aside = std::make_unique_for_overwrite<char[]>(frame.body_bytes);
    path.body = in.aside.get();
    return {};
  }
  message->chunks[index] = ChunkState::kArriving;
  in.arriving = true;
  path.body = (message->stash ? message->stash.get() : message->data) + frame.c;
  return {};
}

// The path that is in the middle of this chunk, if there is one, writes no more of it.
void RecvComm::SendNowhere(const Frame& frame) {
  for (Path& other : paths_) {
    Incoming& in = incoming_[static_cast<size_t>(other.index)];
    if (!in.arriving || other.frame.a != frame.a || other.frame.c != frame.c) continue;
    in.arriving = false;
    other.body = nullptr;
    other.stream->DropBody();
  }
}

// The copy that path.frame brought, if nobody has brought the chunk meanwhile; true where it was the first.
bool RecvComm::PutInPlace(Path& path) {
  const Frame& frame = path.frame;
  std::unique_ptr<char[]> copy = std::move(incoming_[static_cast<size_t>(path.index)].aside);
  if (frame.a < first_) return false;
  Message& message = messages_[frame.a - first_];
  if (message.chunks[frame.c / frame.d] == ChunkState::kDone) return false;
  SendNowhere(frame);
  std::memcpy((message.stash ? message.stash.get() : message.data) + frame.c, copy.get(), frame.body_bytes);
  return true;
}

Status RecvComm::OnBody(Path& path, const std::vector<uint8_t>& control) {
  const Frame& frame = path.frame;
  Incoming& in = incoming_[static_cast<size_t>(path.index)];
  switch (frame.type) {
    case FrameType::kData: {
      bool first = in.arriving;
      if (in.arriving || in.aside) {
        // Before it counts. Until it does, the path that is retired for it leaves the chunk missing.
        Status status = CheckBody(frame, reinterpret_cast<uint8_t*>(path.body));
        if (!status.ok()) {
          ++environment_->corrupt_chunks;
          return status;
        }
      }
      if (in.aside) first = PutInPlace(path);
      environment_->duplicate_chunks += first ? 0 : 1;
      in.arriving = false;
      ++in.chunks;
      CountLazy(frame);
      if (!first) return {};
      Message& message = messages_[frame.a - first_];
      message.chunks[frame.c / frame.d] = ChunkState::kDone;
      ++message.done;
      if (!message.complete()) return {};
      bool bulk = (frame.flags & kBulkFlag) != 0;
      // Its last chunk may have come by a faster path than this one, which the sending end could wait for.
      ack_due_ |= bulk && (frame.flags & kBufferedFlag) == 0;
      inline_.store(!bulk, std::memory_order_relaxed);
      if (bulk) StopPolling();
      relaxed_ = (frame.flags & kEarlyFlag) != 0;
      if ((frame.flags & kMarkFlag) != 0) marked_.store(std::min(marked_.load(), frame.a));
      // Acknowledged before it is delivered: the program may end right after its last message.
      if (ack_due_) SendAck(&path);
      if (message.request != nullptr) Deliver(message);
      // While early messages come one after another, and each finds its receive posted.
      LetOrdersWait(relaxed_ && !asked_ && bulk && environment_->program_polls && first_ + messages_.size() <= posted_);
      return failure_;
    }
    case FrameType::kPing:
      SetTested(path, frame.body_bytes > 0);
      TakePing(path);
      if (path.tested || (frame.a & kAnswers) != 0) return {};
      LetOrdersWait(false);
      asked_ = posted_ == announced_;
      ack_due_ |= HasNews();
      return failure_.ok() ? TakeShared(path, control) : failure_;
    case FrameType::kPathDown:
    case FrameType::kProbe:
    case FrameType::kProbed:
    case FrameType::kVerdict:
      return TakeShared(path, control);
    default:
      peer_closed_ = true;
      if (HasPending()) Fail({Code::kPeerLost, "the sending end closed the connection"});
      return {};
  }
}

void RecvComm::Deliver(Message& message) {
  if (message.stash && message.size > 0) std::memcpy(message.data, message.stash.get(), message.size);
  message.request->size = message.size;
  message.request->tag = message.tag;
  Complete(message.request, Request::kDone);
  message.request = nullptr;
  message.data = nullptr;
  message.stash.reset();
  while (!messages_.empty() && first_ < posted_ && messages_.front().complete() &&
         messages_.front().request == nullptr) {
    messages_.pop_front();
    ++first_;
  }
  oldest_.store(first_);
}

// Whether the sending end is to have word of this chunk now.
void RecvComm::CountLazy(const Frame& frame) {
  bool copied = (frame.flags & kBufferedFlag) != 0;
  bool bulk = (frame.flags & kBulkFlag) != 0;
  bool patient = (frame.flags & kPatientFlag) != 0 && TellsLate() && (bulk || ExpectsMore(frame.a));
  if (copied || patient) {
    lazy_bytes_ += frame.body_bytes;
    uint64_t most_patient = tells_late_.load(std::memory_order_relaxed) ? kLazyMessages : kLazyPatient;
    // Many copies at once are cold when their memory is used again. Those that are moved although they are not little
    // belong to a connection that is alone, and are few.
    bool alone = copied && !bulk && frame.body_bytes > static_cast<uint64_t>(environment_->params.inline_bytes);
    uint64_t most = bulk ? kLazyBulk : most_patient;
    if (copied) most = alone ? kLazyBulk : kLazyMessages;
    bool some = ++lazy_chunks_ < most && (!copied || alone || lazy_bytes_ < kLazyBytes);
    if (some && !copied) TellSoon();
    if (some) return;
  }
  ack_due_ = true;
}

void RecvComm::TellSoon() {
  if (untold_since_ns_ == 0) untold_since_ns_ = Now();
}

// Who sends early messages needs no receive to be posted: the next acknowledgement tells of it, or the next tick. By a
// PING the sending end asks for one that it does need: if it is not posted yet, it is told of as soon as it is,
// whatever comes in between.
void RecvComm::Announce() {
  bool later = relaxed_ && !asked_ && TellsLate() && posted_ - announced_ < kLazyMessages;
  if (!later) SendAck(nullptr);
}

// Who has the mutex is about to tell, or ticks will.
void RecvComm::Tell() {
  if (!mutex_.try_lock()) return;
  MutexLock lock(mutex_, std::adopt_lock);
  if (failure_.ok() && untold_since_ns_ != 0) SendAck(nullptr);
}

void RecvComm::AfterRead(Path& path) {
  bool late = untold_since_ns_ != 0 && Now() - untold_since_ns_ > kUntoldNs;
  if (ack_due_ || late) SendAck(&path);
}

void RecvComm::OnWritable() {
  for (Path& path : paths_) {
    if (path.state == PathState::kUp) path.stream->Flush();
  }
  if (ack_due_) SendAck(nullptr);
}

// The acknowledgement is the whole state, so an older one that still waits in a stream's queue does no harm.
void RecvComm::SendAck(Path* preferred) {
  ack_due_ = true;
  bool usable = preferred != nullptr && preferred->state == PathState::kUp && preferred->stream->unsaid_bytes() == 0 &&
                !preferred->suspect && !IsDoubted(*preferred);
  Path* path = usable ? preferred : AnyUp();
  if (path == nullptr || path->stream->unsaid_bytes() > 0) return;  // OnWritable comes back to it
  ack_due_ = false;
  lazy_chunks_ = lazy_bytes_ = 0;
  if (posted_ != announced_) asked_ = false;
  announced_ = posted_;
  untold_since_ns_ = 0;
  path->stream->Say(EncodeState());
}

std::string RecvComm::EncodeState(bool farewell) const {
  std::vector<AckEntry> entries(paths_.size());
  for (size_t i = 0; i < paths_.size(); ++i) {
    // A path that is down keeps its count: what arrived by it did arrive. That it is down is part of the state
    // because a hint alone can be lost with the path that carries it; at the farewell they all go down.
    uint32_t down = paths_[i].state != PathState::kUp && !farewell ? 1 : 0;
    entries[i] = {paths_[i].epoch, down, incoming_[i].chunks};
  }
  return EncodeAck(posted_, entries);
}

void RecvComm::OnLost(Path& path) {
  Incoming& in = incoming_[static_cast<size_t>(path.index)];
  in.aside.reset();
  if (in.arriving) {
    in.arriving = false;
    if (path.frame.a >= first_) {
      messages_[path.frame.a - first_].chunks[path.frame.c / path.frame.d] = ChunkState::kMissing;
    }
  }
  SendAck(nullptr);  // the lost path may have taken an acknowledgement with it
}

void RecvComm::OnTick(int64_t now_ns) {
  ack_due_ |= HasNews();
  OnWritable();
  Knock(now_ns);
}

// Only the sending end dials, so it is told. Its kernel may be waiting for an answer to an ARP request that was lost,
// for up to a second; one of ours, which any packet causes, answers it.
void RecvComm::OnOwnLinkBack(Path& path) {
  TellPeer(path, path.epoch, Cause::kLinkIsBack);
  if (sender_port_ == 0 || peer_closed_) return;
  environment_->prober->Ask({nic(path), {path.remote, sender_port_}, "", kReturnNs}, [](Answer, const Frame*) {});
}

// Every stream is gone, and only the sending end can open new ones: does it still live? Its host answers at once if its
// process has ended, and its process if the connection has.
void RecvComm::Knock(int64_t now_ns) {
  if (no_path_since_ns_ == 0 || peer_closed_ || sender_port_ == 0) return;
  for (Path& path : paths_) {
    if (path.nic < 0 || path.asking || path.link_down || now_ns < path.dial_ns) continue;
    path.asking = true;
    auto on_answer = [weak = weak_from_this(), index = path.index, epoch = path.epoch](Answer answer,
                                                                                       const Frame* said) {
      if (auto self = weak.lock()) static_cast<RecvComm&>(*self).TakeAnswer(index, epoch, answer, said);
    };
    environment_->prober->Ask({nic(path),
                               {path.remote, sender_port_},
                               EncodeKnock(connection_, secret_),
                               environment_->params.connect_ms * kMillisecond},
                              std::move(on_answer));
  }
}

void RecvComm::TakeAnswer(int index, uint32_t epoch, Answer answer, const Frame* said) {
  MutexLock lock(mutex_);
  Path& path = paths_[static_cast<size_t>(index)];
  path.asking = false;
  const Params& params = environment_->params;
  path.backoff_ns =
      std::min(std::max(path.backoff_ns * 2, params.probe_ms * kMillisecond), params.probe_max_ms * kMillisecond);
  path.dial_ns = Now() + path.backoff_ns;
  if (closed_ || !failure_.ok() || no_path_since_ns_ == 0 || path.epoch != epoch) return;
  if (answer == Answer::kReached && said != nullptr && said->type == FrameType::kClose) {
    peer_closed_ = true;
    Fail({Code::kPeerLost, "the sending end closed the connection"});
    return;
  }
  if (answer == Answer::kReached) path.outlook = Outlook::kOpen;
  if (answer == Answer::kRefused) path.outlook = Outlook::kRefused;
  if (answer == Answer::kSilent) path.outlook = Outlook::kSilent;
}

bool RecvComm::HasPending() const {
  return std::any_of(messages_.begin(), messages_.end(), [](const Message& m) { return m.request != nullptr; });
}

void RecvComm::FailRequests() {
  for (Message& message : messages_) {
    if (message.request != nullptr) Complete(message.request, Request::kFailed);
    message.request = nullptr;
  }
  messages_.clear();
}

}  // namespace r2ccl
