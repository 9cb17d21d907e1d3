// Encoding and checking of frames.
#include "net/wire.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/crc32c.h"

namespace r2ccl {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian; add swaps to port this file");

constexpr size_t kChecksumAt = kHeaderBytes - 4;

template <typename T>
void Put(uint8_t* out, size_t offset, T value) {
  std::memcpy(out + offset, &value, sizeof value);
}

template <typename T>
T Get(const uint8_t* bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

Status Refuse(const std::string& what) { return {Code::kProtocol, "wire: " + what}; }

Status CheckData(const Frame& frame) {
  if (frame.body_bytes > kMaxChunkBytes || frame.d == 0 || frame.d > kMaxChunkBytes) return Refuse("oversized chunk");
  if (frame.b == 0) return frame.body_bytes == 0 && frame.c == 0 ? Status() : Refuse("data in an empty message");
  if (frame.c >= frame.b || frame.c % frame.d != 0) return Refuse("chunk offset outside its message");
  uint64_t expected = frame.b - frame.c < frame.d ? frame.b - frame.c : frame.d;
  if (frame.body_bytes != expected) return Refuse("chunk length does not fit its place");
  return {};
}

Status CheckHello(const Frame& frame) {
  if (frame.body_bytes != kSecretBytes || frame.epoch == 0 || frame.b == 0 || frame.b > kMaxPaths ||
      frame.path >= frame.b || frame.c > 65535) {
    return Refuse("malformed hello");
  }
  return {};
}

bool Fits(const Frame& frame, size_t entry_bytes, size_t most) {
  return frame.body_bytes % entry_bytes == 0 && frame.body_bytes / entry_bytes <= most;
}

// A control frame with its body, which `put` writes to the place that it is given; both are covered by sums.
template <typename Body>
std::string Encode(Frame frame, size_t body_bytes, const Body& put) {
  std::string bytes(kHeaderBytes + body_bytes, '\0');
  auto* out = reinterpret_cast<uint8_t*>(bytes.data());
  put(out + kHeaderBytes);
  frame.body_bytes = static_cast<uint32_t>(body_bytes);
  frame.flags = kBodySumFlag;
  frame.body_sum = Crc32c(out + kHeaderBytes, body_bytes);
  EncodeFrame(frame, out);
  return bytes;
}

std::string Encode(const Frame& frame, std::string_view body = "") {
  return Encode(frame, body.size(), [body](uint8_t* out) { body.copy(reinterpret_cast<char*>(out), body.size()); });
}

std::string_view ToBody(const Secret& secret) { return {reinterpret_cast<const char*>(secret.data()), secret.size()}; }

}  // namespace

void EncodeFrame(const Frame& frame, uint8_t* out) {
  std::memset(out, 0, kHeaderBytes);
  Put(out, 0, kWireMagic);
  Put(out, 4, kWireVersion);
  Put(out, 5, static_cast<uint8_t>(frame.type));
  Put(out, 6, frame.path);
  Put(out, 8, frame.epoch);
  Put(out, 12, frame.body_bytes);
  Put(out, 16, frame.a);
  Put(out, 24, frame.b);
  Put(out, 32, frame.c);
  Put(out, 40, frame.d);
  Put(out, 44, frame.body_sum);
  Put(out, 48, frame.flags);
  Put(out, kChecksumAt, HeaderChecksum(out));
}

// FNV-1a over 32-bit words, closed by a mix so that every bit of the words reaches every bit of the sum.
uint32_t HeaderChecksum(const uint8_t* bytes) {
  uint32_t sum = 2166136261u;
  for (size_t at = 0; at < kChecksumAt; at += 4) sum = (sum ^ Get<uint32_t>(bytes, at)) * 16777619u;
  sum = (sum ^ (sum >> 16)) * 0x7feb352du;
  return sum ^ (sum >> 15);
}

Status CheckPrefix(const uint8_t* bytes, size_t count) {
  if (count >= 4 && Get<uint32_t>(bytes, 0) != kWireMagic) return Refuse("not an r2ccl stream");
  if (count >= 5 && bytes[4] != kWireVersion) {
    return Refuse("peer speaks version " + std::to_string(bytes[4]) + ", this is version " +
                  std::to_string(kWireVersion) + "; install the same release on every host");
  }
  return {};
}

Status CheckBody(const Frame& frame, const uint8_t* body) {
  if ((frame.flags & kBodySumFlag) == 0 || Crc32c(body, frame.body_bytes) == frame.body_sum) return {};
  return Refuse("body was changed on its way");
}

Status DecodeFrame(const uint8_t* bytes, Frame* frame) {
  Status prefix = CheckPrefix(bytes, kHeaderBytes);
  if (!prefix.ok()) return prefix;
  if (Get<uint32_t>(bytes, kChecksumAt) != HeaderChecksum(bytes)) return Refuse("header was changed on its way");
  uint8_t type = bytes[5];
  if (type < static_cast<uint8_t>(FrameType::kHello) || type > static_cast<uint8_t>(FrameType::kRdma)) {
    return Refuse("unknown frame type " + std::to_string(type));
  }
  frame->type = static_cast<FrameType>(type);
  frame->path = Get<uint16_t>(bytes, 6);
  frame->epoch = Get<uint32_t>(bytes, 8);
  frame->body_bytes = Get<uint32_t>(bytes, 12);
  frame->a = Get<uint64_t>(bytes, 16);
  frame->b = Get<uint64_t>(bytes, 24);
  frame->c = Get<uint64_t>(bytes, 32);
  frame->d = Get<uint32_t>(bytes, 40);
  frame->body_sum = Get<uint32_t>(bytes, 44);
  frame->flags = Get<uint32_t>(bytes, 48);
  if (frame->path >= kMaxPaths) return Refuse("path number too large");
  if (frame->type == FrameType::kData) return CheckData(*frame);
  if ((frame->flags & kBodySumFlag) == 0) return Refuse("control frame without a sum");
  switch (frame->type) {
    case FrameType::kHello:
      return CheckHello(*frame);
    case FrameType::kKnock:
      return frame->body_bytes == kSecretBytes ? Status() : Refuse("malformed knock");
    case FrameType::kAck:
      return Fits(*frame, kAckEntryBytes, kMaxPaths) ? Status() : Refuse("malformed acknowledgement");
    case FrameType::kPing:
      return frame->body_bytes <= kMostPingBytes ? Status() : Refuse("oversized ping");
    case FrameType::kProbe:
      return Fits(*frame, kTargetBytes, kMaxTargets) ? Status() : Refuse("malformed probe");
    case FrameType::kRdma:
      return frame->body_bytes <= kMostRdmaBytes ? Status() : Refuse("oversized word on RDMA");
    default:
      return frame->body_bytes == 0 ? Status() : Refuse("unexpected body");
  }
}

std::string EncodeAck(uint64_t posted, const std::vector<AckEntry>& entries) {
  Frame frame;
  frame.type = FrameType::kAck;
  frame.a = posted;
  return Encode(frame, entries.size() * kAckEntryBytes, [&entries](uint8_t* out) {
    for (const AckEntry& entry : entries) {
      Put(out, 0, entry.epoch);
      Put(out, 4, entry.down);
      Put(out, 8, entry.chunks);
      out += kAckEntryBytes;
    }
  });
}

std::vector<AckEntry> DecodeAckEntries(const uint8_t* body, size_t bytes) {
  std::vector<AckEntry> entries(bytes / kAckEntryBytes);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].epoch = Get<uint32_t>(body, i * kAckEntryBytes);
    entries[i].down = Get<uint32_t>(body, i * kAckEntryBytes + 4);
    entries[i].chunks = Get<uint64_t>(body, i * kAckEntryBytes + 8);
  }
  return entries;
}

std::string EncodeHello(uint16_t path, uint32_t epoch, uint64_t connection, int paths, const Secret& secret,
                        uint16_t port, bool on_trial) {
  Frame frame;
  frame.type = FrameType::kHello;
  frame.path = path;
  frame.epoch = epoch;
  frame.a = connection;
  frame.b = static_cast<uint64_t>(paths);
  frame.c = port;
  frame.d = on_trial ? 1 : 0;
  return Encode(frame, ToBody(secret));
}

std::string EncodeHelloAck(uint16_t path, uint32_t epoch, uint64_t eager_bytes, uint64_t eager_messages,
                           uint64_t abilities) {
  Frame frame;
  frame.type = FrameType::kHelloAck;
  frame.path = path;
  frame.epoch = epoch;
  frame.a = eager_bytes;
  frame.b = eager_messages;
  frame.c = abilities;
  return Encode(frame);
}

std::string EncodeClose(uint64_t messages) { return EncodeControl(FrameType::kClose, 0, 0, messages); }

std::string EncodeKnock(uint64_t connection, const Secret& secret) {
  Frame frame;
  frame.type = FrameType::kKnock;
  frame.a = connection;
  return Encode(frame, ToBody(secret));
}

std::string EncodeProbe(uint16_t path, uint64_t question, const std::vector<Target>& targets) {
  Frame frame;
  frame.type = FrameType::kProbe;
  frame.path = path;
  frame.a = question;
  return Encode(frame, targets.size() * kTargetBytes, [&targets](uint8_t* out) {
    for (const Target& target : targets) {
      Put(out, 0, target.address);
      Put(out, 4, uint32_t{target.port});
      out += kTargetBytes;
    }
  });
}

std::vector<Target> DecodeTargets(const uint8_t* body, size_t bytes) {
  std::vector<Target> targets(bytes / kTargetBytes);
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i].address = Get<in_addr>(body, i * kTargetBytes);
    targets[i].port = static_cast<uint16_t>(Get<uint32_t>(body, i * kTargetBytes + 4));
  }
  return targets;
}

std::string EncodeProbed(uint16_t path, uint64_t question, uint64_t tried, uint64_t reached) {
  Frame frame;
  frame.type = FrameType::kProbed;
  frame.path = path;
  frame.a = question;
  frame.b = tried;
  frame.c = reached;
  return Encode(frame);
}

std::string EncodeNeverUp(uint16_t path, in_addr to, in_addr from) {
  Frame frame;
  frame.type = FrameType::kPathDown;
  frame.path = path;
  frame.a = static_cast<uint64_t>(Cause::kNeverUp);
  frame.b = to.s_addr;
  frame.c = from.s_addr;
  return Encode(frame);
}

std::string EncodeTestPing(size_t bytes) {
  Frame frame;
  frame.type = FrameType::kPing;
  return Encode(frame, std::clamp<size_t>(bytes, kHeaderBytes + 1, kMostPingBytes) - kHeaderBytes, [](uint8_t*) {});
}

std::string EncodeRdma(RdmaStep step, uint32_t attempt, const std::string& body) {
  Frame frame;
  frame.type = FrameType::kRdma;
  frame.epoch = attempt;
  frame.a = static_cast<uint64_t>(step);
  return Encode(frame, std::string_view(body).substr(0, kMostRdmaBytes));
}

std::string EncodeControl(FrameType type, uint16_t path, uint32_t epoch, uint64_t a) {
  Frame frame;
  frame.type = type;
  frame.path = path;
  frame.epoch = epoch;
  frame.a = a;
  return Encode(frame);
}

}  // namespace r2ccl
