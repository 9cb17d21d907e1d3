// Wire format, version 9: what travels on a path. Little-endian, one fixed header, then the body.
//
//   offset size field      HELLO            HELLO_ACK       DATA             ACK             PATH_DOWN    CLOSE PING
//        0    4 magic      "R2CC"           =               =                =               =            =     =
//        4    1 version    8                =               =                =               =            =     =
//        5    1 type       1                2               3                4               5            6     7
//        6    2 path       path index       =               =                0               failed path  0     0
//        8    4 epoch      of this path, >0 =               =                0               failed epoch 0     0
//       12    4 body size  16 (secret)      0               chunk length     16 per path     0            0     (**)
//       16    8 a          connection id    eager bytes     message number   messages posted cause        (*)   (***)
//       24    8 b          number of paths  eager messages  message size     0               0            0     0
//       32    8 c          sender's port    abilities       chunk offset     0               0            0     0
//       40    4 d          1: on trial      0               chunk size       0               0            0     0
//       44    4 body sum   CRC32C of the body; of DATA only if the sender was asked to (R2CC_CHECKSUM)
//       48    4 flags      1: the body sum is to be checked; DATA: 2: the sender keeps a copy; 4: much more is on
//                          its way; 8: the ACK may take its time; 16: a mark for who uses the connection; 32: early, it
//                          might have come before its receive was posted; from bit 8 on: a tag, which the other end
//                          can compare
//       52    4 checksum   of what precedes
//
//                          KNOCK            PROBE            PROBED           VERDICT
//        5    1 type       8                9                10               11
//        6    2 path       0                path index       =                =
//        8    4 epoch      0                0                0                failed epoch
//       12    4 body size  16 (secret)      8 per target     0                0
//       16    8 a          connection id    question         =                verdict
//       24    8 b          0                0                targets tried    0
//       32    8 c          0                0                targets reached  0
//
//                          RDMA
//        5    1 type       12
//        8    4 epoch      number of the attempt
//       12    4 body size  44 of OFFER and ANSWER (address of a queue pair), a reason of REFUSE, else 0
//       16    8 a          1 OFFER, 2 ANSWER, 3 REFUSE, 4 SWITCH, 5 WITHDRAW
//
// (*) from the receiving end: how many messages it has got, from the first on.
// (**) what makes it fill a packet, of no meaning; 0 for one that tests nothing.
// (***) 1: the other end's program is to answer, by a PING with a 2; else 0.
//
// A connection has one sender and one receiver and one TCP stream per path. (Several may make one of NCCL's: then their
// numbers differ in the low 4 bits, see plugin/stripes.h.) The sender opens every stream
// with HELLO; the epoch counts how often the path was opened, so that anything said about an earlier stream
// is recognised as stale. DATA flows from sender to receiver, ACK back; an ACK carries the whole state
// (messages posted; chunks received and whether it is given up, per path and epoch), so that losing one with its path
// loses nothing. PATH_DOWN is the hint, either way over any healthy path, that one end has given a path up, and why;
// or, from the receiving end, that the link of its NIC is back and a path that is down is worth a try at once; or, from
// the sending end, that a path has not come up since the connection began, and between which addresses it would be: b
// is the receiving end's, c the sending end's (both 0 in any other). HELLO_ACK says how much may come before its
// receive is posted. PING goes over a quiet path so that the sender's kernel finds out whether the other's is still
// there; from the sending end it also asks for word of the next receive that is posted. One that fills a packet is a
// test of a way that is on probation (way.h), which carries no data; who gets it says nothing of weight there either.
//
// A receiver that has lost every stream KNOCKs at the port that HELLO named, on a stream of its own: PING is the answer
// while the sending end lives, CLOSE when it has ended. PROBE (either way, over any healthy path) asks the other end
// whether addresses (in_addr, then port in 4 bytes) answer to its NIC of that path; without targets it is to choose
// hosts itself, from those it has connections with. VERDICT tells the other end what came of it, as seen from there.
//
// RDMA is between the streams themselves (wire/verbs/verbs_stream.h), where HELLO_ACK's abilities have a 1; no
// connection sees it. With a 2 there, too, large bodies may be written into the place that the receiving end grants.
//
// A header or a control body that was changed on its way is refused; a chunk, where it carries a sum.
#ifndef R2CCL_NET_WIRE_H_
#define R2CCL_NET_WIRE_H_

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace r2ccl {

constexpr uint32_t kWireMagic = 0x43433252;  // "R2CC" in memory
constexpr uint8_t kWireVersion = 10;
constexpr size_t kHeaderBytes = 56;
constexpr size_t kAckEntryBytes = 16;
constexpr size_t kTargetBytes = 8;
constexpr size_t kSecretBytes = 16;
constexpr size_t kGreetingBytes = kHeaderBytes + kSecretBytes;  // what every stream begins with
constexpr int kMaxPaths = 16;
constexpr size_t kMaxTargets = 8;
constexpr size_t kMostPingBytes = 16384;  // its body
constexpr size_t kMostRdmaBytes = 512;    // likewise
constexpr uint64_t kTakesRdma = 1;        // of abilities
constexpr uint64_t kTakesWrites = 2;      // likewise: grants places for RDMA writes
constexpr uint32_t kMaxChunkBytes = 64 << 20;
constexpr uint32_t kBodySumFlag = 1;
constexpr uint32_t kBufferedFlag = 2;
constexpr uint32_t kBulkFlag = 4;
constexpr uint32_t kPatientFlag = 8;
constexpr uint32_t kMarkFlag = 16;
constexpr uint32_t kEarlyFlag = 32;
constexpr uint32_t kTrialFlag = 64;
constexpr uint32_t kTagAt = 8;
constexpr uint32_t kMostTag = (1u << (32 - kTagAt)) - 1;

using Secret = std::array<uint8_t, kSecretBytes>;

// Of a PING.
constexpr uint64_t kAsks = 1;
constexpr uint64_t kAnswers = 2;
constexpr uint64_t kQuestionAt = 2;  // of the same number, the bit at which the question's own begins

enum class FrameType : uint8_t {
  kHello = 1,
  kHelloAck,
  kData,
  kAck,
  kPathDown,
  kClose,
  kPing,
  kKnock,
  kProbe,
  kProbed,
  kVerdict,
  kRdma
};

// What two streams say to each other by TCP, on their way to RDMA and while they use it (wire/verbs/verbs_stream.h).
enum class RdmaStep : uint64_t { kOffer = 1, kAnswer, kRefuse, kSwitch, kWithdraw, kCount, kCounted };

// Why an end gave a path up, as far as the other end can use it; or that the reason is over; or that it was never up;
// or that it is open, and what was sent over it is late.
enum class Cause : uint8_t { kUnknown, kOwnLink, kLinkIsBack, kNeverUp, kLate };

struct Frame {
  FrameType type = FrameType::kClose;
  uint16_t path = 0;
  uint32_t epoch = 0;
  uint32_t body_bytes = 0;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  uint32_t d = 0;
  uint32_t body_sum = 0;
  uint32_t flags = 0;
};

// What the receiver has got over one path in one epoch.
struct AckEntry {
  uint32_t epoch = 0;
  uint32_t down = 0;  // 1: the receiver has given the path up in this epoch
  uint64_t chunks = 0;
};

// Somebody to try to reach.
struct Target {
  in_addr address{};
  uint16_t port = 0;
  bool operator==(const Target& other) const { return address.s_addr == other.address.s_addr && port == other.port; }
};

void EncodeFrame(const Frame& frame, uint8_t* out);  // writes kHeaderBytes

uint32_t HeaderChecksum(const uint8_t* bytes);

// Refuses a wrong magic, version, checksum, type, or sizes that no correct peer sends. Never reads past kHeaderBytes.
Status DecodeFrame(const uint8_t* bytes, Frame* frame);
// The same for the magic and the version, as soon as they are there: releases may differ in the length of the rest.
Status CheckPrefix(const uint8_t* bytes, size_t count);
// Refuses a body that was changed on its way; ok where the frame carries no sum.
Status CheckBody(const Frame& frame, const uint8_t* body);

std::string EncodeAck(uint64_t posted, const std::vector<AckEntry>& entries);
std::vector<AckEntry> DecodeAckEntries(const uint8_t* body, size_t bytes);

std::string EncodeHello(uint16_t path, uint32_t epoch, uint64_t connection, int paths, const Secret& secret,
                        uint16_t port = 0, bool on_trial = false);
std::string EncodeHelloAck(uint16_t path, uint32_t epoch, uint64_t eager_bytes, uint64_t eager_messages,
                           uint64_t abilities = 0);
std::string EncodeClose(uint64_t messages);
std::string EncodeKnock(uint64_t connection, const Secret& secret);
std::string EncodeProbe(uint16_t path, uint64_t question, const std::vector<Target>& targets);
std::vector<Target> DecodeTargets(const uint8_t* body, size_t bytes);
std::string EncodeProbed(uint16_t path, uint64_t question, uint64_t tried, uint64_t reached);
std::string EncodeNeverUp(uint16_t path, in_addr to, in_addr from);
// A PING of `bytes` in all, as far as that can be.
std::string EncodeTestPing(size_t bytes);
// `body` has at most kMostRdmaBytes.
std::string EncodeRdma(RdmaStep step, uint32_t attempt, const std::string& body = "");
std::string EncodeControl(FrameType type, uint16_t path = 0, uint32_t epoch = 0, uint64_t a = 0);

}  // namespace r2ccl

#endif  // R2CCL_NET_WIRE_H_
