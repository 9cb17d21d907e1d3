// The way from TCP to RDMA, and what is sent there. Receiving is in verbs_read.cc.
#include "wire/verbs/verbs_stream.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace r2ccl {
namespace {

constexpr int kTests = 2;

}  // namespace

VerbsStream::VerbsStream(VerbsShared* shared, EventLoop* loop, const std::shared_ptr<StreamOwner>& owner, int path,
                         const Nic& nic, NicTraffic* traffic, in_addr remote, bool dialled)
    : shared_(shared),
      loop_(loop),
      owner_(owner.get()),
      weak_owner_(owner),
      path_(path),
      nic_(nic),
      traffic_(traffic),
      remote_(remote),
      dialled_(dialled),
      reader_(owner.get(), path, traffic) {}

VerbsStream::~VerbsStream() { DropPipe(); }

// Keeps the stream and its owner.
std::shared_ptr<VerbsStream> VerbsStream::Keep() {
  auto kept = std::make_shared<std::pair<std::shared_ptr<VerbsStream>, std::shared_ptr<StreamOwner>>>(
      shared_from_this(), weak_owner_.lock());
  return {kept, this};
}

void VerbsStream::Begin(std::shared_ptr<FirstStream> tcp) {
  tcp_ = std::move(tcp);
  if (dialled_) tcp_->AwaitConnection(Keep());
}

// Not before: one that is refused never starts, and ends when its owner lets go of it.
void VerbsStream::Start() {
  tcp_->SetOwner(Keep());
  tcp_->Start();
}

void VerbsStream::KickSelf() { loop_->Kick(Keep()); }

void VerbsStream::Log(const char* kind, const std::string& detail) {
  shared_->log->Add(kind, nic_.name, r2ccl::ToString(remote_), detail);
}

// Going over ------------------------------------------------------------------------------------------------

Status VerbsStream::MakePipe() {
  DropPipe();
  RcShape shape = dialled_ ? kDialledShape : kAcceptedShape;
  if (shared_->write_bytes > 0) shape.writes = kWritesAtOnce;
  std::unique_ptr<RcQueue> queue;
  Status status = shared_->maker->Make(nic_, shape, shared_->random() & kMostPsn, weak_from_this(), &queue);
  if (!status.ok()) return status;
  pipe_ = std::make_unique<RcPipe>(std::move(queue), shape);
  status = pipe_->Prepare();
  if (!status.ok()) return status;
  poll_id_ = loop_->Add(pipe_->queue().fd(), EPOLLIN, path_, Keep());
  return {};
}

void VerbsStream::Try(int64_t now_ns) {
  Status status = MakePipe();
  if (!status.ok()) return FailTry(status.message(), false);
  ++attempt_;
  stage_ = Stage::kOffered;
  deadline_ns_ = now_ns + kTryNs;
  tcp_->Say(EncodeRdma(RdmaStep::kOffer, attempt_, EncodeRcAddress(pipe_->queue().address())));
}

void VerbsStream::FailTry(const std::string& reason, bool tell_peer) {
  DropPipe();
  stage_ = Stage::kTcp;
  wants_switch_ = false;
  if (tell_peer) tcp_->Say(EncodeRdma(RdmaStep::kWithdraw, attempt_));
  if (!dialled_) return;
  if (shared_->ways.Fail(key(), Now(), reason)) Log("rdma_off", reason + (is_strict() ? "" : "; TCP goes on"));
  if (is_strict()) owner_->OnNotConnected(path_, "RDMA: " + reason, false);
}

Status VerbsStream::TakeRdma(const Frame& frame, const std::vector<uint8_t>& control) {
  auto step = static_cast<RdmaStep>(frame.a);
  if (step == RdmaStep::kOffer) return TakeOffer(frame, control);
  if (frame.epoch != attempt_ || stage_ == Stage::kTcp) {  // of an attempt that is over
    // Who says SWITCH says nothing more by TCP.
    if (step == RdmaStep::kSwitch) return {Code::kPeerLost, "RDMA: lost before the switch to it came"};
    return {};
  }
  switch (step) {
    case RdmaStep::kAnswer:
      if (stage_ == Stage::kOffered) TakeAnswer(control);
      return {};
    case RdmaStep::kRefuse:
      if (stage_ == Stage::kOffered) FailTry("the peer says: " + std::string(control.begin(), control.end()), false);
      return {};
    case RdmaStep::kSwitch:
      if (pipe_ == nullptr || from_rdma_) return {Code::kProtocol, "wire: a switch to RDMA that was not offered"};
      from_rdma_ = true;
      wants_switch_ |= !dialled_;
      tcp_->KeepAlive();
      if (polled_) {
        tcp_->SetPolled(false);
        loop_->Modify(poll_id_, 0);
      }
      return {};
    case RdmaStep::kWithdraw:
      if (!dialled_ && !from_rdma_) FailTry("", false);
      return {};
    case RdmaStep::kCount:
    case RdmaStep::kCounted:
      return TakeCount(step, control);
    default:
      return {Code::kProtocol, "wire: unknown word on RDMA"};
  }
}

Status VerbsStream::TakeOffer(const Frame& frame, const std::vector<uint8_t>& control) {
  RcAddress peer;
  Status status = DecodeRcAddress(control, &peer);
  if (!status.ok()) return status;
  if (dialled_ || by_rdma_ || from_rdma_) return {Code::kProtocol, "wire: an offer of RDMA that cannot be"};
  attempt_ = frame.epoch;
  status = MakePipe();
  if (status.ok()) status = pipe_->Connect(peer, Now());
  if (!status.ok()) {
    DropPipe();
    stage_ = Stage::kTcp;
    tcp_->Say(EncodeRdma(RdmaStep::kRefuse, attempt_, status.message()));
    return {};
  }
  stage_ = Stage::kAnswered;
  tcp_->Say(EncodeRdma(RdmaStep::kAnswer, attempt_, EncodeRcAddress(pipe_->queue().address())));
  return {};
}

void VerbsStream::TakeAnswer(const std::vector<uint8_t>& control) {
  RcAddress peer;
  Status status = DecodeRcAddress(control, &peer);
  if (status.ok()) status = pipe_->Connect(peer, Now());
  if (!status.ok()) return FailTry(status.message(), true);
  stage_ = Stage::kTesting;
  SendTests(Now());
}

// Of full size: what drops large packets only is found out before anything depends on them.
void VerbsStream::SendTests(int64_t now_ns) {
  echoes_due_ = kTests;
  for (int i = 0; i < kTests; ++i) {
    size_t most = 0;
    char* place = pipe_->Room(&most, now_ns);
    if (place == nullptr) return FailTry("the peer has no room for test messages", true);
    std::memset(place, i, most);
    Status status = pipe_->Send(RcKind::kTest, most, now_ns);
    if (!status.ok()) return FailTry(status.message(), true);
  }
}

// At the end of a frame, where nothing waits on TCP.
void VerbsStream::TrySwitch() {
  if (!wants_switch_ || by_rdma_ || gone_ || tcp_->sending() || tcp_->unsaid_bytes() > 0) return;
  tcp_->Say(EncodeRdma(RdmaStep::kSwitch, attempt_));
  wants_switch_ = false;
  by_rdma_ = true;
  // A sender whose bytes were all acknowledged, and which has no slot, asks nothing of the other end's device: that the
  // host is still there, TCP has to ask.
  tcp_->KeepAlive();
  ++traffic_->rdma_streams;
  if (!dialled_) return;
  if (shared_->ways.Work(key(), Now())) Log("rdma_on", "by " + pipe_->queue().device());
  if (!is_strict()) return;
  Status status = GiveHeld();
  if (!status.ok() && !gone_) owner_->OnStreamLost(path_, status.message());
}

// What came before TCP carried nothing more, where it was not to carry anything.
Status VerbsStream::GiveHeld() {
  Status status;
  for (const Held& held : std::exchange(held_, {})) {
    char* body = nullptr;
    status = owner_->OnFrameBegins(path_, held.frame, &body);
    if (status.ok() && !gone_) status = owner_->OnFrameEnds(path_, held.control);
    if (!status.ok() || gone_) break;
  }
  return status;
}

// Of the messages that this end has sent, those that the other end's device has.
void VerbsStream::SayCount(RdmaStep step) {
  uint64_t count = pipe_->acknowledged();
  tcp_->Say(EncodeRdma(step, attempt_, std::string(reinterpret_cast<const char*>(&count), sizeof count)));
}

// One that the own device acknowledged 250 ms ago, and of which it says nothing, will never come. Who asks has waited
// for so long; who answers may have sent the last ones just now, so what counts is what it said before.
Status VerbsStream::TakeCount(RdmaStep step, const std::vector<uint8_t>& control) {
  uint64_t count = 0;
  if (pipe_ == nullptr || control.size() != sizeof count) return {Code::kProtocol, "wire: a count of no messages"};
  std::memcpy(&count, control.data(), sizeof count);
  uint64_t due = std::exchange(counted_, count);
  if (step == RdmaStep::kCount) due = count;
  Status status = pipe_->Reap(Now());
  if (status.ok() && pipe_->received() < due) {
    status = {Code::kPeerLost, "RDMA: the device lost the completion of a message"};
  }
  if (!status.ok()) {
    Lose(status.message());
  } else if (step == RdmaStep::kCount) {
    SayCount(RdmaStep::kCounted);
  }
  return {};
}

// Sending ---------------------------------------------------------------------------------------------------

void VerbsStream::Say(const std::string& frames) {
  if (!by_rdma_) {
    tcp_->Say(frames);
    return;
  }
  control_ += frames;
  end_ += frames.size();
  FlushRdma();
}

void VerbsStream::Send(const Frame& frame, const char* body) {
  if (!by_rdma_) {
    tcp_->Send(frame, body);
    return;
  }
  EncodeFrame(frame, out_header_);
  out_body_ = body;
  out_bytes_ = kHeaderBytes + frame.body_bytes;
  end_ += out_bytes_;
  out_sent_ = 0;
  sending_ = true;
  bool large = shared_->write_bytes > 0 && frame.body_bytes >= static_cast<uint64_t>(shared_->write_bytes);
  bool writes = large && peer_takes_writes_ && pipe_->queue().Find(body, frame.body_bytes, &keys_);
  way_ = writes ? Way::kToAsk : Way::kCopied;
  FlushRdma();
}

// Writes that are under way read the program's memory: nothing but the fence ends that.
void VerbsStream::KeepBody() {
  if (!by_rdma_) {
    tcp_->KeepBody();
    return;
  }
  if (!sending_ || kept_body_ != nullptr || out_body_ == nullptr) return;
  if (way_ == Way::kGranted) {
    out_body_ = nullptr;
    return FenceNow("RDMA: another path brought a chunk whose writes were under way");
  }
  size_t sent = out_sent_ > kHeaderBytes ? out_sent_ - kHeaderBytes : 0;
  size_t bytes = out_bytes_ - kHeaderBytes;
  kept_body_ = std::make_unique_for_overwrite<char[]>(bytes);
  std::memcpy(kept_body_.get() + sent, out_body_ + sent, bytes - sent);
  out_body_ = kept_body_.get();
  if (way_ == Way::kToAsk) way_ = Way::kCopied;
}

bool VerbsStream::has_room() const {
  if (gone_ || (wants_switch_ && !by_rdma_)) return false;
  if (!by_rdma_) return tcp_->has_room();
  bool room = HasRdmaRoom();
  starved_ |= !room;
  return room;
}

bool VerbsStream::CanGoOn() const {
  size_t most = 0;
  return by_rdma_ && broken_.empty() && !WaitsForPeer() && pipe_->Room(&most, Now()) != nullptr;
}

bool VerbsStream::HasRdmaRoom() const {
  size_t most = 0;
  return !sending_ && control_.empty() && broken_.empty() && pipe_->Room(&most, Now()) != nullptr;
}

bool VerbsStream::Flush() {
  if (by_rdma_) return FlushRdma();
  auto self = shared_from_this();  // the owner may let go of it
  bool done = tcp_->Flush();
  TrySwitch();
  return done;
}

bool VerbsStream::FlushRdma() {
  if (gone_ || !broken_.empty()) return false;
  int64_t now_ns = Now();
  bool done = (!sending_ || ContinueFrame(now_ns)) && FlushControl(now_ns);
  starved_ |= !done;
  return done;
}

bool VerbsStream::ContinueFrame(int64_t now_ns) {
  if (way_ == Way::kToAsk && !Ask(now_ns)) return false;
  if (way_ == Way::kGranted && !ContinueWrites(now_ns)) return false;
  if (way_ == Way::kAsked) return false;
  return way_ == Way::kWritten ? SayLanded(now_ns) : CopyBody(now_ns);
}

bool VerbsStream::CopyBody(int64_t now_ns) {
  while (out_sent_ < out_bytes_) {
    size_t most = 0;
    char* place = pipe_->Room(&most, now_ns);
    if (place == nullptr) return false;
    size_t bytes = std::min(most, out_bytes_ - out_sent_);
    size_t header = out_sent_ < kHeaderBytes ? std::min(bytes, kHeaderBytes - out_sent_) : 0;
    if (header > 0) std::memcpy(place, out_header_ + out_sent_, header);
    if (bytes > header) std::memcpy(place + header, out_body_ + (out_sent_ + header - kHeaderBytes), bytes - header);
    Status status = pipe_->Send(RcKind::kBytes, bytes, now_ns);
    if (!status.ok()) {
      Break(status.message());
      return false;
    }
    out_sent_ += bytes;
    traffic_->sent_bytes += bytes;
    traffic_->rdma_sent_bytes += bytes;
  }
  return EndFrame();
}

bool VerbsStream::EndFrame() {
  sending_ = false;
  way_ = Way::kCopied;
  kept_body_.reset();
  return true;
}

bool VerbsStream::FlushControl(int64_t now_ns) {
  while (!control_.empty()) {
    size_t most = 0;
    char* place = pipe_->Room(&most, now_ns);
    if (place == nullptr) return false;
    size_t bytes = std::min(most, control_.size());
    std::memcpy(place, control_.data(), bytes);
    Status status = pipe_->Send(RcKind::kBytes, bytes, now_ns);
    if (!status.ok()) {
      Break(status.message());
      return false;
    }
    control_.erase(0, bytes);
    traffic_->rdma_sent_bytes += bytes;
  }
  return true;
}

// The owner may be in the middle of a call of its own: it is told by the next event.
void VerbsStream::Break(const std::string& reason) {
  if (broken_.empty()) broken_ = reason;
  KickSelf();
}

// The end ---------------------------------------------------------------------------------------------------

void VerbsStream::DropPipe() {
  if (poll_id_ != 0) loop_->Remove(std::exchange(poll_id_, 0));
  if (std::exchange(by_rdma_, false)) --traffic_->rdma_streams;
  from_rdma_ = wants_switch_ = false;
  owes_grant_ = awaits_landed_ = grant_is_out_ = false;
  way_ = Way::kCopied;
  counted_ = 0;
  broken_.clear();
  // First: from here on nothing that comes late lands.
  if (pipe_ != nullptr) (void)pipe_->queue().Fence();
  pipe_.reset();
}

bool VerbsStream::Touches(const char* data, size_t bytes) const {
  auto within = [=](const char* place) { return place != nullptr && place >= data && place < data + bytes; };
  return !gone_ && (within(reader_.place()) || (sending_ && within(out_body_)));
}

std::string VerbsStream::obstacle() const {
  if (!is_strict() || (stage_ != Stage::kOffered && stage_ != Stage::kTesting)) return "";
  return std::string("RDMA: ") + kNoWord;
}

void VerbsStream::Cut() {
  auto self = shared_from_this();
  if (gone_) return;
  gone_ = true;
  reader_.Stop();
  std::string no_word = obstacle();
  if (!no_word.empty() && shared_->ways.Fail(key(), Now(), no_word)) Log("rdma_off", no_word);
  end_ = 0;
  tcp_->Cut();
  DropPipe();
  polled_ = sending_ = false;
  kept_body_.reset();
  control_.clear();
  held_.clear();
}

// Where the queue cannot deliver it. Nothing else goes there.
void VerbsStream::HangUpByTcp(const std::string& farewell) {
  gone_ = true;
  reader_.Stop();
  DropPipe();
  control_.clear();
  tcp_->HangUp(farewell);
}

void VerbsStream::HangUp(const std::string& farewell) {
  auto self = shared_from_this();
  if (gone_) return;
  // With a grant out the queue cannot live on to deliver it.
  if (!by_rdma_ || grant_is_out_) return HangUpByTcp(farewell);
  if (sending_ || !broken_.empty()) return Cut();
  SetPolled(false);
  control_ += farewell;
  // The peer may not have returned enough slots: the last acknowledgement came by another path.
  if (!FlushRdma()) return HangUpByTcp(farewell);
  gone_ = true;
  reader_.Stop();
  // Until the other end's device has it. One that does not answer ends the queue by its own time-out.
  lingering_ = true;
  shared_->farewells.Begin(self, Now());
  KickSelf();
}

void VerbsStream::EndLinger() {
  auto self = shared_from_this();
  if (!std::exchange(lingering_, false)) return;
  shared_->farewells.End(this);
  tcp_->HangUp("");
  DropPipe();
}

void VerbsStream::OnLateFarewell() {
  auto owner = weak_owner_.lock();
  if (owner == nullptr) return;
  MutexLock lock(owner->stream_mutex());
  EndLinger();
}

void Farewells::Begin(const std::shared_ptr<VerbsStream>& stream, int64_t now_ns) {
  MutexLock lock(mutex_);
  all_.push_back({stream.get(), stream, now_ns + kPatienceNs});
}

void Farewells::End(const VerbsStream* stream) {
  MutexLock lock(mutex_);
  std::erase_if(all_, [stream](const One& one) { return one.key == stream; });
}

bool Farewells::empty() {
  MutexLock lock(mutex_);
  return all_.empty();
}

void Farewells::Tick(int64_t now_ns) {
  std::vector<std::shared_ptr<VerbsStream>> late;
  {
    MutexLock lock(mutex_);
    auto is_late = [now_ns](const One& one) { return now_ns > one.until_ns; };
    for (const One& one : all_) {
      if (is_late(one)) late.push_back(one.stream.lock());
    }
    std::erase_if(all_, is_late);
  }
  for (const auto& stream : late) {
    if (stream != nullptr) stream->OnLateFarewell();
  }
}

// The wire --------------------------------------------------------------------------------------------------

Status VerbsWire::Dial(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic, NicTraffic* traffic,
                       in_addr remote, uint16_t port, std::shared_ptr<Stream>* stream) {
  std::string why_not = shared_->WhyNotDial(nic, remote);
  if (!why_not.empty()) return {Code::kSystem, why_not};
  Fd fd;
  Status status = StartConnect(nic, remote, port, &fd);
  if (!status.ok()) return status;
  auto made = std::make_shared<VerbsStream>(shared_, poller_, owner, path, nic, traffic, remote, true);
  *stream = made;
  made->Begin(
      std::make_shared<TcpStream>(poller_, made.get(), path, traffic, std::move(fd), environment_->program_polls));
  return {};
}

std::shared_ptr<Stream> VerbsWire::Adopt(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic,
                                         NicTraffic* traffic, in_addr remote, Fd fd) {
  auto made = std::make_shared<VerbsStream>(shared_, poller_, owner, path, nic, traffic, remote, false);
  made->Begin(
      std::make_shared<TcpStream>(poller_, made.get(), path, traffic, std::move(fd), environment_->program_polls));
  return made;
}

}  // namespace r2ccl
