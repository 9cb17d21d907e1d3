// The wire format: what is encoded decodes, and what no correct peer sends is refused, whatever the bytes are.
#include "net/wire.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "pair.h"

namespace r2ccl {
namespace {

const uint8_t* Bytes(const std::string& text) { return reinterpret_cast<const uint8_t*>(text.data()); }

std::string Data(uint64_t message_bytes, uint64_t offset, uint32_t length, uint32_t chunk_bytes) {
  Frame frame;
  frame.type = FrameType::kData;
  frame.path = 1;
  frame.epoch = 2;
  frame.body_bytes = length;
  frame.a = 3;
  frame.b = message_bytes;
  frame.c = offset;
  frame.d = chunk_bytes;
  std::string out(kHeaderBytes, '\0');
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(out.data()));
  return out;
}

// Makes the checksum right again, so that the checks behind it are reached.
void Seal(std::string* bytes) {
  uint32_t sum = HeaderChecksum(Bytes(*bytes));
  bytes->replace(kHeaderBytes - sizeof sum, sizeof sum, reinterpret_cast<char*>(&sum), sizeof sum);
}

Status Decode(const std::string& bytes, Frame* frame = nullptr) {
  Frame unused;
  return DecodeFrame(Bytes(bytes), frame == nullptr ? &unused : frame);
}

TEST(Wire, HelloRoundTrip) {
  Secret secret{1, 2, 3};
  std::string bytes = EncodeHello(2, 7, 0x123456789abcdefu, 4, secret);
  ASSERT_EQ(bytes.size(), kHeaderBytes + kSecretBytes);
  Frame frame;
  ASSERT_TRUE(Decode(bytes, &frame).ok());
  EXPECT_EQ(frame.type, FrameType::kHello);
  EXPECT_EQ(frame.path, 2);
  EXPECT_EQ(frame.epoch, 7u);
  EXPECT_EQ(frame.a, 0x123456789abcdefu);
  EXPECT_EQ(frame.b, 4u);
  EXPECT_EQ(bytes.compare(kHeaderBytes, kSecretBytes, reinterpret_cast<char*>(secret.data()), kSecretBytes), 0);
}

TEST(Wire, HelloAckRoundTrip) {
  Frame frame;
  ASSERT_TRUE(Decode(EncodeHelloAck(1, 9, 16384, 64), &frame).ok());
  EXPECT_EQ(frame.type, FrameType::kHelloAck);
  EXPECT_EQ(frame.epoch, 9u);
  EXPECT_EQ(frame.a, 16384u);
  EXPECT_EQ(frame.b, 64u);
}

TEST(Wire, AWordOnRdmaIsCutToWhatFits) {
  std::string bytes = EncodeRdma(RdmaStep::kRefuse, 9, std::string(2 * kMostRdmaBytes, 'x'));
  Frame frame;
  ASSERT_TRUE(Decode(bytes, &frame).ok());
  EXPECT_EQ(frame.type, FrameType::kRdma);
  EXPECT_EQ(frame.epoch, 9u);
  EXPECT_EQ(frame.a, static_cast<uint64_t>(RdmaStep::kRefuse));
  EXPECT_EQ(frame.body_bytes, kMostRdmaBytes);
}

TEST(Wire, AckRoundTrip) {
  std::string bytes = EncodeAck(42, {{3, 0, 1000000007}, {0, 0, 0}, {5, 1, 1}});
  Frame frame;
  ASSERT_TRUE(Decode(bytes, &frame).ok());
  EXPECT_EQ(frame.a, 42u);
  ASSERT_EQ(frame.body_bytes, bytes.size() - kHeaderBytes);
  auto entries = DecodeAckEntries(Bytes(bytes) + kHeaderBytes, frame.body_bytes);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].epoch, 3u);
  EXPECT_EQ(entries[0].chunks, 1000000007u);
  EXPECT_EQ(entries[0].down, 0u);
  EXPECT_EQ(entries[2].down, 1u);
  EXPECT_EQ(entries[2].chunks, 1u);
}

TEST(Wire, ControlRoundTrip) {
  for (FrameType type : {FrameType::kPathDown, FrameType::kClose, FrameType::kPing}) {
    Frame frame;
    ASSERT_TRUE(Decode(EncodeControl(type, 3, 4), &frame).ok());
    EXPECT_EQ(frame.type, type);
    EXPECT_EQ(frame.path, 3);
    EXPECT_EQ(frame.epoch, 4u);
  }
}

TEST(Wire, CloseRoundTrip) {
  Frame frame;
  ASSERT_TRUE(Decode(EncodeClose(12), &frame).ok());
  EXPECT_EQ(frame.type, FrameType::kClose);
  EXPECT_EQ(frame.a, 12u);
}

TEST(Wire, ProbeRoundTrip) {
  std::string bytes = EncodeProbe(3, 77, {{in_addr{1}, 2}, {in_addr{~0u}, 65535}});
  Frame frame;
  ASSERT_TRUE(Decode(bytes, &frame).ok());
  EXPECT_EQ(frame.type, FrameType::kProbe);
  EXPECT_EQ(frame.path, 3);
  EXPECT_EQ(frame.a, 77u);
  auto targets = DecodeTargets(Bytes(bytes) + kHeaderBytes, frame.body_bytes);
  ASSERT_EQ(targets.size(), 2u);
  EXPECT_EQ(targets[1], (Target{in_addr{~0u}, 65535}));
  EXPECT_FALSE(Decode(EncodeProbe(3, 77, std::vector<Target>(kMaxTargets + 1))).ok());
  ASSERT_TRUE(Decode(EncodeProbed(3, 77, 6, 2), &frame).ok());
  EXPECT_EQ(frame.type, FrameType::kProbed);
  EXPECT_EQ(frame.b, 6u);
  EXPECT_EQ(frame.c, 2u);
}

TEST(Wire, KnockRoundTrip) {
  Frame frame;
  std::string bytes = EncodeKnock(5, {9});
  ASSERT_EQ(bytes.size(), kGreetingBytes);
  ASSERT_TRUE(Decode(bytes, &frame).ok());
  EXPECT_EQ(frame.type, FrameType::kKnock);
  EXPECT_EQ(frame.a, 5u);
}

TEST(Wire, EveryChangedBitOfAControlBodyIsNoticed) {
  std::string bytes = EncodeAck(42, {{3, 0, 1000000007}, {5, 1, 1}});
  Frame frame;
  ASSERT_TRUE(Decode(bytes, &frame).ok());
  EXPECT_TRUE(CheckBody(frame, Bytes(bytes) + kHeaderBytes).ok());
  for (size_t bit = kHeaderBytes * 8; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(CheckBody(frame, Bytes(changed) + kHeaderBytes).ok()) << "bit " << bit;
  }
}

// Another release's greeting may be shorter than ours: its version is enough to refuse it by name.
TEST(Wire, TheVersionIsCheckedAsSoonAsItIsThere) {
  std::string hello = EncodeHello(0, 1, 2, 3, {});
  hello[4] = 1;
  EXPECT_TRUE(CheckPrefix(Bytes(hello), 4).ok());
  EXPECT_NE(CheckPrefix(Bytes(hello), 5).message().find("peer speaks version 1"), std::string::npos);
  EXPECT_FALSE(CheckPrefix(Bytes("short"), 5).ok());
  EXPECT_TRUE(CheckPrefix(Bytes("sho"), 3).ok());
}

TEST(Wire, DataRoundTrip) {
  Frame frame;
  ASSERT_TRUE(Decode(Data(100000, 98304, 1696, 32768), &frame).ok());
  EXPECT_EQ(frame.b, 100000u);
  EXPECT_EQ(frame.c, 98304u);
  EXPECT_EQ(frame.body_bytes, 1696u);
  EXPECT_TRUE(Decode(Data(0, 0, 0, 4096)).ok());
}

TEST(Wire, DataThatDoesNotFitIsRefused) {
  struct Case {
    uint64_t size;
    uint64_t offset;
    uint32_t length;
    uint32_t chunk;
  };
  constexpr Case kCases[] = {
      {100, 0, 100, 0},                     // chunk size zero
      {100, 100, 0, 50},                    // begins at the end
      {100, 25, 50, 50},                    // not on a chunk's boundary
      {100, 50, 49, 50},                    // too short
      {100, 50, 51, 50},                    // too long
      {0, 0, 1, 50},                        // bytes of an empty message
      {0, 50, 0, 50},                       // empty message with an offset
      {~0ull, 0, kMaxChunkBytes + 1, ~0u},  // oversized
      {~0ull, ~0ull - 49, 50, 50},          // wraps
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(Decode(Data(c.size, c.offset, c.length, c.chunk)).code(), Code::kProtocol)
        << c.size << " " << c.offset << " " << c.length << " " << c.chunk;
  }
}

TEST(Wire, MalformedHeadersAreRefused) {
  const std::string good = EncodeHello(0, 1, 5, 2, {});
  auto with = [&good](size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    Seal(&bytes);
    return Decode(bytes);
  };
  EXPECT_TRUE(Decode(good).ok());
  EXPECT_FALSE(with(0, 'X').ok());  // magic
  EXPECT_FALSE(with(5, 0).ok());    // type
  EXPECT_FALSE(with(5, 13).ok());   // type
  EXPECT_FALSE(with(48, 0).ok());   // no sum of the secret
  EXPECT_FALSE(with(34, 1).ok());   // port 65536
  EXPECT_FALSE(with(6, 2).ok());    // a path that the connection has not
  EXPECT_FALSE(with(7, 1).ok());    // path 256
  EXPECT_FALSE(with(8, 0).ok());    // epoch 0
  EXPECT_FALSE(with(12, 15).ok());  // short secret
  EXPECT_FALSE(with(24, 0).ok());   // no path
  EXPECT_FALSE(with(24, 17).ok());  // too many paths
  Status version = with(4, 1);
  EXPECT_NE(version.message().find("version 1"), std::string::npos) << version.message();
  EXPECT_NE(version.message().find("install the same release"), std::string::npos) << version.message();
}

TEST(Wire, EveryChangedBitIsNoticed) {
  const std::string good = Data(1 << 20, 1 << 17, 1 << 17, 1 << 17);
  for (size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(Decode(bytes).ok()) << "bit " << bit;
  }
}

// What DecodeFrame accepts must be usable without further checks.
void ExpectSane(const Frame& frame) {
  ASSERT_LE(frame.body_bytes, kMaxChunkBytes);
  ASSERT_LT(frame.path, kMaxPaths);
  if (frame.type == FrameType::kData) {
    ASSERT_GT(frame.d, 0u);
    ASSERT_LE(frame.c, frame.b);
    ASSERT_LE(frame.body_bytes, frame.b - frame.c);
  } else {
    size_t most = kMaxPaths * kAckEntryBytes;
    if (frame.type == FrameType::kPing) most = kMostPingBytes;
    if (frame.type == FrameType::kRdma) most = kMostRdmaBytes;
    ASSERT_LE(frame.body_bytes, most);
  }
}

TEST(Wire, FuzzedFramesNeverHarm) {
  SCOPED_TRACE("seed " + std::to_string(TestSeed()));
  std::mt19937_64 random(TestSeed());
  const std::string originals[] = {EncodeHello(1, 2, 3, 4, {}),
                                   EncodeHelloAck(1, 2, 3, 4),
                                   EncodeAck(7, {{1, 0, 2}, {3, 1, 4}}),
                                   EncodeControl(FrameType::kPathDown, 1, 2),
                                   EncodeRdma(RdmaStep::kRefuse, 3, "why"),
                                   EncodeKnock(7, {}),
                                   EncodeProbe(1, 2, {{in_addr{5}, 6}}),
                                   EncodeProbed(1, 2, 3, 4),
                                   Data(1 << 20, 1 << 17, 1 << 17, 1 << 17),
                                   Data(0, 0, 0, 1)};
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string bytes = originals[random() % std::size(originals)].substr(0, kHeaderBytes);
    for (uint64_t flips = random() % 8; flips > 0; --flips) {
      // Mostly small values and single bits: those pass the first checks.
      char& byte = bytes[random() % kHeaderBytes];
      byte = random() % 2 == 0 ? static_cast<char>(random()) : static_cast<char>(byte ^ (1 << random() % 8));
    }
    if (round % 16 == 0) {
      for (char& byte : bytes) byte = static_cast<char>(random());
    }
    if (round % 4 != 0) Seal(&bytes);
    Frame frame;
    if (!DecodeFrame(Bytes(bytes), &frame).ok()) continue;
    ++accepted;
    ASSERT_NO_FATAL_FAILURE(ExpectSane(frame)) << "round " << round;
    std::string body(frame.body_bytes % kAckEntryBytes == 0 && frame.body_bytes <= 256 ? frame.body_bytes : 0, '\x7f');
    EXPECT_EQ(DecodeAckEntries(Bytes(body), body.size()).size(), body.size() / kAckEntryBytes);
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace r2ccl
