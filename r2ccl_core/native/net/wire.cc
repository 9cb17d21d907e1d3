// Encoding and checking of frames.
#include "net/wire.h"

#include <bit>
#include <cstring>

namespace r2ccl {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian; add swaps to port this file");

constexpr size_t kChecksumAt = 44;

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
  Put(out, kChecksumAt, HeaderChecksum(out));
}

// FNV-1a over 32-bit words, closed by a mix so that every bit of the words reaches every bit of the sum.
uint32_t HeaderChecksum(const uint8_t* bytes) {
  uint32_t sum = 2166136261u;
  for (size_t at = 0; at < kChecksumAt; at += 4) sum = (sum ^ Get<uint32_t>(bytes, at)) * 16777619u;
  sum = (sum ^ (sum >> 16)) * 0x7feb352du;
  return sum ^ (sum >> 15);
}

Status DecodeFrame(const uint8_t* bytes, Frame* frame) {
  if (Get<uint32_t>(bytes, 0) != kWireMagic) return Refuse("not an r2ccl stream");
  uint8_t version = bytes[4];
  if (version != kWireVersion) {
    return Refuse("peer speaks version " + std::to_string(version) + ", this is version " +
                  std::to_string(kWireVersion) + "; install the same release on every host");
  }
  if (Get<uint32_t>(bytes, kChecksumAt) != HeaderChecksum(bytes)) return Refuse("header was changed on its way");
  uint8_t type = bytes[5];
  if (type < static_cast<uint8_t>(FrameType::kHello) || type > static_cast<uint8_t>(FrameType::kPing)) {
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
  if (frame->path >= kMaxPaths) return Refuse("path number too large");
  switch (frame->type) {
    case FrameType::kData:
      return CheckData(*frame);
    case FrameType::kHello:
      if (frame->body_bytes != kSecretBytes || frame->epoch == 0 || frame->b == 0 || frame->b > kMaxPaths ||
          frame->path >= frame->b) {
        return Refuse("malformed hello");
      }
      return {};
    case FrameType::kAck:
      if (frame->body_bytes > kMaxPaths * kAckEntryBytes || frame->body_bytes % kAckEntryBytes != 0) {
        return Refuse("malformed acknowledgement");
      }
      return {};
    default:
      return frame->body_bytes == 0 ? Status() : Refuse("unexpected body");
  }
}

std::string EncodeAck(uint64_t posted, const std::vector<AckEntry>& entries) {
  std::string bytes(kHeaderBytes + entries.size() * kAckEntryBytes, '\0');
  auto* out = reinterpret_cast<uint8_t*>(bytes.data());
  Frame frame;
  frame.type = FrameType::kAck;
  frame.body_bytes = static_cast<uint32_t>(entries.size() * kAckEntryBytes);
  frame.a = posted;
  EncodeFrame(frame, out);
  for (size_t i = 0; i < entries.size(); ++i) {
    Put(out, kHeaderBytes + i * kAckEntryBytes, entries[i].epoch);
    Put(out, kHeaderBytes + i * kAckEntryBytes + 4, entries[i].down);
    Put(out, kHeaderBytes + i * kAckEntryBytes + 8, entries[i].chunks);
  }
  return bytes;
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

std::string EncodeHello(uint16_t path, uint32_t epoch, uint64_t connection, int paths, const Secret& secret) {
  std::string bytes(kHeaderBytes + kSecretBytes, '\0');
  Frame frame;
  frame.type = FrameType::kHello;
  frame.path = path;
  frame.epoch = epoch;
  frame.body_bytes = kSecretBytes;
  frame.a = connection;
  frame.b = static_cast<uint64_t>(paths);
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(bytes.data()));
  std::memcpy(bytes.data() + kHeaderBytes, secret.data(), kSecretBytes);
  return bytes;
}

std::string EncodeHelloAck(uint16_t path, uint32_t epoch, uint64_t eager_bytes, uint64_t eager_messages) {
  std::string bytes(kHeaderBytes, '\0');
  Frame frame;
  frame.type = FrameType::kHelloAck;
  frame.path = path;
  frame.epoch = epoch;
  frame.a = eager_bytes;
  frame.b = eager_messages;
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

std::string EncodeClose(uint64_t messages) {
  std::string bytes(kHeaderBytes, '\0');
  Frame frame;
  frame.type = FrameType::kClose;
  frame.a = messages;
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

std::string EncodeControl(FrameType type, uint16_t path, uint32_t epoch) {
  std::string bytes(kHeaderBytes, '\0');
  Frame frame;
  frame.type = type;
  frame.path = path;
  frame.epoch = epoch;
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

}  // namespace r2ccl
