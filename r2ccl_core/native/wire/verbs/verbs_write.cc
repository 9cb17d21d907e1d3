// Large bodies as RDMA writes, from the sending program's memory into the place that the receiving end grants.
//
// The header of the frame goes ahead, as ASK. The receiving end places the body as it does every other, and GRANTs that
// place to this queue pair alone, if it lies in registered memory; else it says that the body is to come as messages
// do, or not at all. LANDED ends the frame. While a grant is out the place is written to, as far as the rest of the
// process can tell: whoever wants it back has the stream fence its queue pair first (DropBody, Cut, HangUp).
//
// What is said of it has a sum of its own: a place that was changed on its way would be somebody else's memory.
#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "wire/verbs/verbs_stream.h"

namespace r2ccl {
namespace {

enum class Place : uint64_t { kNowhere, kGranted, kCopied };

struct AskWords {
  uint8_t header[kHeaderBytes];
  uint64_t number;
};

struct GrantWords {
  uint64_t number;  // of the ASK
  Place place;
  uint64_t address;
  uint64_t key;
};

Status Wrong(const std::string& what) { return {Code::kProtocol, "RDMA: " + what}; }

using Sum = uint32_t;

Sum SumOf(const void* words, size_t bytes) { return Crc32c(words, bytes); }

template <typename Words>
bool Read(const RcPipe::Arrival& arrival, Words* words) {
  Sum sum = 0;
  if (arrival.bytes != sizeof *words + sizeof sum) return false;
  std::memcpy(words, arrival.data, sizeof *words);
  std::memcpy(&sum, arrival.data + sizeof *words, sizeof sum);
  return sum == SumOf(words, sizeof *words);
}

}  // namespace

// Sending ---------------------------------------------------------------------------------------------------

// False where it has to wait, or the queue is lost.
bool VerbsStream::SendNumbered(RcKind kind, const void* words, size_t bytes, int64_t now_ns, size_t counted) {
  size_t most = 0;
  char* place = pipe_->Room(&most, now_ns);
  if (place == nullptr) return false;
  Sum sum = SumOf(words, bytes);
  std::memcpy(place, words, bytes);
  std::memcpy(place + bytes, &sum, sizeof sum);
  Status status = pipe_->Send(kind, bytes + sizeof sum, now_ns, counted);
  if (!status.ok()) Break(status.message());
  return status.ok();
}

bool VerbsStream::Ask(int64_t now_ns) {
  AskWords ask;
  std::memcpy(ask.header, out_header_, kHeaderBytes);
  ask.number = asks_ + 1;
  if (!SendNumbered(RcKind::kAsk, &ask, sizeof ask, now_ns, kHeaderBytes)) return false;
  ++asks_;
  traffic_->sent_bytes += kHeaderBytes;
  traffic_->rdma_sent_bytes += kHeaderBytes;
  out_sent_ = kHeaderBytes;
  way_ = Way::kAsked;
  pipe_->SetWaits(true, now_ns);
  return true;
}

Status VerbsStream::TakeGrant(const RcPipe::Arrival& arrival) {
  GrantWords grant;
  if (!Read(arrival, &grant) || grant.number != asks_ || !sending_ || way_ != Way::kAsked) {
    return Wrong("a place was granted that nobody has asked for");
  }
  if (grant.place > Place::kCopied) return Wrong("a place of no known kind was granted");
  pipe_->SetWaits(false, Now());
  granted_address_ = grant.address;
  granted_key_ = static_cast<uint32_t>(grant.key);
  // A copy is not registered. Its bytes give the grant up.
  bool writes = grant.place == Place::kGranted && kept_body_ == nullptr;
  way_ = writes ? Way::kGranted : (grant.place == Place::kNowhere ? Way::kWritten : Way::kCopied);
  FlushRdma();
  return {};
}

// True when all writes have their completions: from then on nothing reads the memory.
bool VerbsStream::ContinueWrites(int64_t now_ns) {
  while (out_sent_ < out_bytes_) {
    size_t bytes = std::min(pipe_->WriteRoom(), out_bytes_ - out_sent_);
    if (bytes == 0) return false;
    size_t offset = out_sent_ - kHeaderBytes;
    Status status =
        pipe_->Write(keys_.address + offset, bytes, keys_.local, granted_address_ + offset, granted_key_, now_ns);
    if (!status.ok()) {
      Break(status.message());
      return false;
    }
    out_sent_ += bytes;
    traffic_->sent_bytes += bytes;
    traffic_->rdma_sent_bytes += bytes;
    traffic_->rdma_written_bytes += bytes;
  }
  if (pipe_->is_writing()) return false;
  way_ = Way::kWritten;
  out_body_ = nullptr;
  return true;
}

// What went nowhere counts as having gone.
bool VerbsStream::SayLanded(int64_t now_ns) {
  return SendNumbered(RcKind::kLanded, &asks_, sizeof asks_, now_ns, out_bytes_ - out_sent_) && EndFrame();
}

// Receiving -------------------------------------------------------------------------------------------------

Status VerbsStream::TakeOfWrites(const RcPipe::Arrival& arrival) {
  if (arrival.kind == RcKind::kAsk) return TakeAsk(arrival);
  if (arrival.kind == RcKind::kGrant) return TakeGrant(arrival);
  return arrival.kind == RcKind::kLanded ? TakeLanded(arrival) : Wrong("a message of no known kind");
}

Status VerbsStream::TakeAsk(const RcPipe::Arrival& arrival) {
  AskWords ask;
  if (!Read(arrival, &ask) || !reader_.at_frame() || owes_grant_) return Wrong("a place was asked for out of turn");
  owner_->OnHeard(path_);
  traffic_->rdma_received_bytes += kHeaderBytes;
  Status status = reader_.Feed(reinterpret_cast<const char*>(ask.header), kHeaderBytes);
  if (!status.ok() || gone_) return status;
  if (!reader_.in_data()) return Wrong("a place was asked for what is no data");
  asked_ = ask.number;
  owes_grant_ = true;
  return {};
}

// As soon as there is room for it. What the owner has dropped meanwhile goes nowhere.
void VerbsStream::SendGrant() {
  if (!owes_grant_ || !broken_.empty()) return;
  RcKeys keys;
  bool finds = shared_->write_bytes > 0 && reader_.place() != nullptr &&
               pipe_->queue().Find(reader_.place(), reader_.body_left(), &keys);
  Place place = reader_.place() == nullptr ? Place::kNowhere : (finds ? Place::kGranted : Place::kCopied);
  GrantWords grant{asked_, place, finds ? keys.address : 0, keys.remote};
  if (!SendNumbered(RcKind::kGrant, &grant, sizeof grant, Now(), 0)) return;
  owes_grant_ = false;
  awaits_landed_ = place != Place::kCopied;
  grant_is_out_ = place == Place::kGranted;
  if (grant_is_out_ && keys.is_device) pipe_->queue().Granted(reader_.place(), reader_.body_left());
}

Status VerbsStream::TakeLanded(const RcPipe::Arrival& arrival) {
  uint64_t number = 0;
  if (!Read(arrival, &number) || number != asked_ || !awaits_landed_) {
    return Wrong("a body has landed for which no place was granted");
  }
  owner_->OnHeard(path_);
  if (grant_is_out_) traffic_->rdma_received_bytes += reader_.body_left();
  pipe_->queue().Landed();
  grant_is_out_ = awaits_landed_ = false;
  return reader_.Landed();
}

// From here on nothing that is late lands in the program's memory, and nothing of it is read.
void VerbsStream::FenceNow(const std::string& reason) {
  grant_is_out_ = false;
  (void)pipe_->queue().Fence();
  Break(reason);
}

}  // namespace r2ccl
