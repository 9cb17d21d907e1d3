// What comes to a VerbsStream: by TCP, by RDMA, and from the device.
#include <sys/epoll.h>

#include <cstring>
#include <utility>

#include "wire/verbs/verbs_stream.h"

namespace r2ccl {

// By TCP ----------------------------------------------------------------------------------------------------

Status VerbsStream::OnFrameBegins(int path, const Frame& frame, char** body) {
  in_rdma_frame_ = frame.type == FrameType::kRdma;
  in_held_frame_ = false;
  frame_ = frame;
  if (in_rdma_frame_ || gone_) return {};
  // The farewell of an end whose queue could not deliver it; of a receiving end its state goes before.
  bool is_farewell = frame.type == FrameType::kClose || (dialled_ && frame.type == FrameType::kAck);
  if (from_rdma_ && !is_farewell) return {Code::kProtocol, "wire: a frame on TCP behind the switch to RDMA"};
  if (from_rdma_) {
    auto self = shared_from_this();
    Status status = EndRdma();
    if (!status.ok() || gone_) return status;
  }
  if (frame.type == FrameType::kHelloAck) {
    peer_takes_ = (frame.c & kTakesRdma) != 0;
    peer_takes_writes_ = (frame.c & kTakesWrites) != 0;
  }
  if (!is_strict() || by_rdma_ || frame.type == FrameType::kClose || frame.type == FrameType::kData) {
    return owner_->OnFrameBegins(path, frame, body);
  }
  in_held_frame_ = true;
  return {};
}

// The peer's queue is gone: gives what it had sent, after which the owner is told of nothing more that comes by RDMA.
Status VerbsStream::EndRdma() {
  (void)pipe_->Reap(Now());
  Deliver();
  if (gone_) return {};
  if (!reader_.at_frame()) return {Code::kPeerLost, "RDMA: the peer hung up in the middle of a frame"};
  reader_.Stop();
  return {};
}

Status VerbsStream::OnFrameEnds(int path, const std::vector<uint8_t>& control) {
  if (gone_) return {};
  auto self = shared_from_this();  // the owner may let go of it
  if (in_rdma_frame_) {
    Status status = TakeRdma(frame_, control);
    if (status.ok() && !gone_) TrySwitch();
    return status;
  }
  if (!in_held_frame_) {
    Status status = owner_->OnFrameEnds(path, control);
    if (!status.ok() || gone_) return status;
  } else if (by_rdma_) {  // it went over in the middle of this frame, and gave out those before it
    char* body = nullptr;
    Status status = owner_->OnFrameBegins(path, frame_, &body);
    if (status.ok() && !gone_) status = owner_->OnFrameEnds(path, control);
    if (!status.ok() || gone_) return status;
  } else {
    held_.push_back({frame_, control});
  }
  if (frame_.type != FrameType::kHelloAck || !dialled_ || stage_ != Stage::kTcp) return {};
  if (in_held_frame_ && !peer_takes_) {
    FailTry(
        "the peer takes no RDMA on this rail; does its host have an RDMA port there, and is its R2CC_TRANSPORT "
        "not tcp?",
        false);
  } else if (peer_takes_ && Now() >= shared_->ways.NotBefore(key())) {
    Try(Now());
  }
  return {};
}

void VerbsStream::OnReadDone(int path) {
  auto self = shared_from_this();
  if (gone_) return;
  if (from_rdma_) Serve();
  if (!gone_) owner_->OnReadDone(path);
}

void VerbsStream::OnRoom() {
  auto self = shared_from_this();
  if (!gone_ && tcp_->unsaid_bytes() > 0 && by_rdma_) tcp_->Flush();  // the SWITCH itself
  if (!gone_ && !by_rdma_ && wants_switch_) {
    tcp_->Flush();
    if (!gone_) TrySwitch();
  }
  if (!gone_) owner_->OnRoom();
}

// What the peer said last may have come by RDMA, which TCP's end has overtaken.
void VerbsStream::OnStreamLost(int path, const std::string& reason) {
  auto self = shared_from_this();
  if (lingering_) return EndLinger();
  if (from_rdma_) {
    (void)pipe_->Reap(Now());
    Deliver();
  }
  if (!gone_) owner_->OnStreamLost(path, reason);
}

// By RDMA ---------------------------------------------------------------------------------------------------

// Takes what is done, gives what has come.
void VerbsStream::Serve() {
  Status status = pipe_->Reap(Now());
  Deliver();
  if (!status.ok() && !gone_) return Lose(status.message());
  if (!gone_ && pipe_ != nullptr && by_rdma_ && sending_ && way_ == Way::kGranted) FlushRdma();
}

void VerbsStream::Deliver() {
  while (!gone_ && pipe_ != nullptr && pipe_->front() != nullptr) {
    RcPipe::Arrival arrival = *pipe_->front();
    Status status;
    if (arrival.kind == RcKind::kBytes) {
      if (!from_rdma_) return;  // TCP has not come to its end yet
      owner_->OnHeard(path_);
      traffic_->rdma_received_bytes += arrival.bytes;
      grant_is_out_ = awaits_landed_ = false;  // what was to be written comes here
      pipe_->queue().Landed();
      status = reader_.Feed(arrival.data, arrival.bytes);
    } else if (arrival.kind == RcKind::kTest || arrival.kind == RcKind::kEcho) {
      if (!TakeTest(arrival)) return;
    } else if (arrival.kind != RcKind::kSlots) {
      if (!from_rdma_) return;
      status = TakeOfWrites(arrival);
    }
    if (gone_ || pipe_ == nullptr) return;
    if (status.ok()) status = pipe_->DropFront();
    if (!status.ok()) return Lose(status.message());
  }
  if (gone_ || pipe_ == nullptr) return;
  SendGrant();
  if (!broken_.empty()) return;
  Status status = pipe_->ReturnSlots(Now());
  if (!status.ok()) Lose(status.message());
}

// False where it has to wait for room.
bool VerbsStream::TakeTest(const RcPipe::Arrival& arrival) {
  if (arrival.kind == RcKind::kTest) {
    size_t most = 0;
    char* place = pipe_->Room(&most, Now());
    if (place == nullptr) return false;
    size_t bytes = std::min(most, arrival.bytes);
    std::memcpy(place, arrival.data, bytes);
    Status status = pipe_->Send(RcKind::kEcho, bytes, Now());
    if (!status.ok()) Break(status.message());
  } else if (stage_ == Stage::kTesting && --echoes_due_ == 0) {
    stage_ = Stage::kTested;
    wants_switch_ = true;
    TrySwitch();
  }
  return true;
}

void VerbsStream::Poll() {
  auto self = shared_from_this();
  if (!from_rdma_) tcp_->Poll();
  if (gone_ || !from_rdma_) return;
  Serve();
  if (!gone_ && starved_ && CanGoOn()) KickSelf();
}

void VerbsStream::SetPolled(bool polled) {
  if (polled_ == polled || gone_) return;
  polled_ = polled;
  tcp_->SetPolled(polled && !from_rdma_);
  if (poll_id_ == 0 || !from_rdma_) return;
  loop_->Modify(poll_id_, polled ? 0 : static_cast<uint32_t>(EPOLLIN));
  if (!polled) KickSelf();  // arms it, and looks for what came before
}

void VerbsStream::DropBody() {
  tcp_->DropBody();
  reader_.DropBody();
  if (grant_is_out_) FenceNow("RDMA: another path brought a chunk that the peer might still write");
}

bool VerbsStream::ReadProgress(Progress* progress) {
  auto self = shared_from_this();
  int64_t now_ns = Now();
  if (dialled_ && !by_rdma_ && !gone_) {
    if ((stage_ == Stage::kOffered || stage_ == Stage::kTesting) && now_ns > deadline_ns_) {
      FailTry(kNoWord, true);
    }
    if (stage_ == Stage::kTcp && peer_takes_ && now_ns >= shared_->ways.NotBefore(key())) Try(now_ns);
  }
  bool known = tcp_->ReadProgress(progress);
  if (!known || pipe_ == nullptr || !broken_.empty()) return known && broken_.empty();
  Status status = pipe_->Reap(now_ns);
  if (!status.ok()) {
    Break(status.message());
  } else if (by_rdma_ && tcp_->unsaid_bytes() == 0 && pipe_->WantsCount(now_ns)) {
    SayCount(RdmaStep::kCount);
  }
  if (pipe_->front() != nullptr || starved_ || WaitsForPeer()) KickSelf();
  if (!by_rdma_) return true;
  if (progress->bytes_acked >= tcp_->end()) progress->bytes_acked = tcp_->end() + pipe_->acknowledged_bytes();
  pipe_->AddProgress(progress, now_ns);
  return true;
}

// Of the device ---------------------------------------------------------------------------------------------

void VerbsStream::OnEvents(uint64_t id, int, uint32_t) {
  MutexLock lock(owner_->stream_mutex());
  if (id != poll_id_) return;  // an event that was fetched before the queue was dropped
  pipe_->queue().TakeEvents();
  OnKicked();
}

void VerbsStream::OnKick() {
  MutexLock lock(owner_->stream_mutex());
  OnKicked();
}

// Armed before it is looked for what is done: what is done later wakes the poller again.
void VerbsStream::OnKicked() {
  auto self = shared_from_this();
  if (pipe_ == nullptr) return;
  if (!polled_ || !from_rdma_) pipe_->queue().Arm();
  if (lingering_) {
    Status status = pipe_->Reap(Now());
    if (!status.ok() || pipe_->all_acknowledged()) EndLinger();
    return;
  }
  if (!owner_->OnWake() || gone_ || pipe_ == nullptr) return;
  if (!broken_.empty()) {
    std::string reason = broken_;
    Lose(reason);
  } else {
    Serve();
  }
  if (gone_) return;
  if (from_rdma_) owner_->OnReadDone(path_);
  if (gone_ || !starved_) return;
  starved_ = false;
  owner_->OnRoom();
}

void VerbsStream::OnUnwatched(uint64_t id, int, const std::string& reason) {
  MutexLock lock(owner_->stream_mutex());
  if (id != poll_id_) return;
  if (lingering_) return EndLinger();
  if (owner_->OnWake() && !gone_) Lose(reason);
}

void VerbsStream::OnQueueLost(const std::string& reason) {
  auto owner = weak_owner_.lock();
  if (owner == nullptr) return;
  MutexLock lock(owner->stream_mutex());
  auto self = shared_from_this();
  if (lingering_) return EndLinger();
  if (pipe_ == nullptr || !owner->OnWake() || gone_ || pipe_ == nullptr) return;
  Lose(reason);
  if (owner->OnWake()) owner->OnRoom();  // what it carried goes by others
}

void VerbsStream::OnThrow(const std::string& reason) { owner_->OnThrow(reason); }

// Before either direction went over it is only an attempt that failed.
void VerbsStream::Lose(const std::string& reason) {
  if (!by_rdma_ && !from_rdma_) return FailTry(reason, dialled_);
  if (shared_->ways.Fail(key(), Now(), reason)) Log("rdma_off", reason);
  owner_->OnStreamLost(path_, reason);
}

}  // namespace r2ccl
