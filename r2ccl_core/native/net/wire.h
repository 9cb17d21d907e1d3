// Wire format, version 1: what travels on a path. Little-endian, one fixed header, then the body.
//
//   offset size field      HELLO            HELLO_ACK       DATA             ACK             PATH_DOWN    CLOSE PING
//        0    4 magic      "R2CC"           =               =                =               =            =     =
//        4    1 version    1                =               =                =               =            =     =
//        5    1 type       1                2               3                4               5            6     7
//        6    2 path       path index       =               =                0               failed path  0     0
//        8    4 epoch      of this path, >0 =               =                0               failed epoch 0     0
//       12    4 body size  16 (secret)      0               chunk length     16 per path     0            0     0
//       16    8 a          connection id    eager bytes     message number   messages posted 0            (*)   0
//       24    8 b          number of paths  eager messages  message size     0               0            0     0
//       32    8 c          0                0               chunk offset     0               0            0     0
//       40    4 d          0                0               chunk size       0               0            0     0
//       44    4 checksum   of what precedes =               =                =               =            =     =
//
// (*) from the receiving end: how many messages it has got, from the first on.
//
// A connection has one sender and one receiver and one TCP stream per path. The sender opens every stream
// with HELLO; the epoch counts how often the path was opened, so that anything said about an earlier stream
// is recognised as stale. DATA flows from sender to receiver, ACK back; an ACK carries the whole state
// (messages posted; chunks received and whether it is given up, per path and epoch), so that losing one with its path
// loses nothing. PATH_DOWN is the hint, either way over any healthy path, that one end has given a path up. HELLO_ACK
// says how much may come before its receive is posted. PING means nothing: it goes over a quiet path so that the
// sender's kernel finds out whether the other's is still there. A header that was changed on its way is refused; bodies
// are not checked.
#ifndef R2CCL_NET_WIRE_H_
#define R2CCL_NET_WIRE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace r2ccl {

constexpr uint32_t kWireMagic = 0x43433252;  // "R2CC" in memory
constexpr uint8_t kWireVersion = 1;
constexpr size_t kHeaderBytes = 48;
constexpr size_t kAckEntryBytes = 16;
constexpr size_t kSecretBytes = 16;
constexpr int kMaxPaths = 16;
constexpr uint32_t kMaxChunkBytes = 64 << 20;

using Secret = std::array<uint8_t, kSecretBytes>;

enum class FrameType : uint8_t { kHello = 1, kHelloAck, kData, kAck, kPathDown, kClose, kPing };

struct Frame {
  FrameType type = FrameType::kClose;
  uint16_t path = 0;
  uint32_t epoch = 0;
  uint32_t body_bytes = 0;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  uint32_t d = 0;
};

// What the receiver has got over one path in one epoch.
struct AckEntry {
  uint32_t epoch = 0;
  uint32_t down = 0;  // 1: the receiver has given the path up in this epoch
  uint64_t chunks = 0;
};

void EncodeFrame(const Frame& frame, uint8_t* out);  // writes kHeaderBytes

uint32_t HeaderChecksum(const uint8_t* bytes);

// Refuses a wrong magic, version, checksum, type, or sizes that no correct peer sends. Never reads past kHeaderBytes.
Status DecodeFrame(const uint8_t* bytes, Frame* frame);

std::string EncodeAck(uint64_t posted, const std::vector<AckEntry>& entries);
std::vector<AckEntry> DecodeAckEntries(const uint8_t* body, size_t bytes);

std::string EncodeHello(uint16_t path, uint32_t epoch, uint64_t connection, int paths, const Secret& secret);
std::string EncodeHelloAck(uint16_t path, uint32_t epoch, uint64_t eager_bytes, uint64_t eager_messages);
std::string EncodeClose(uint64_t messages);
std::string EncodeControl(FrameType type, uint16_t path = 0, uint32_t epoch = 0);

}  // namespace r2ccl

#endif  // R2CCL_NET_WIRE_H_
