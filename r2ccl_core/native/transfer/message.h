// The messages between two engines about transfers, in one common form, and the address of an engine.
//
// A connection keeps messages whole and in order, so nothing here handles losses. Every field that arrives is still
// checked: the peer may be another release, or faulty.
#ifndef R2CCL_TRANSFER_MESSAGE_H_
#define R2CCL_TRANSFER_MESSAGE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/handle.h"

namespace r2ccl::transfer {

enum class Kind : uint8_t {
  kHello,   // first on every connection: `operation` the sender's session, `code` the connection's role, `text` its
            // address, the first piece's key the session that it answers, 0: none
  kWrite,   // `pieces` of the sender's write follow on the data connections, or are in `data`; keys are the receiver's
            // regions
  kRead,    // asks for `pieces` of the receiver's regions
  kReply,   // pieces of the receiver's read follow, or are in `data`; keys are numbers of its ranges
  kCancel,  // the sender wants no more of its read
  kNotify,  // a part of a notification that is in no other message; of the write `operation`, 0: of none
  kDone,    // the receiver's operation has ended (`last`), or is refused and should end; that a read has ended well the
            // last reply says
};

enum class Outcome : uint8_t { kOk, kCancelled, kRefused };

struct Piece {
  uint64_t key = 0;
  uint64_t offset = 0;  // bytes
  uint64_t bytes = 0;
};

struct Message {
  Kind kind = Kind::kHello;
  bool last = false;      // about its operation
  bool notifies = false;  // of a write that is the last: `text` is its notification
  uint8_t code = 0;
  uint64_t operation = 0;
  std::string text;
  std::vector<Piece> pieces;
  std::string_view data;  // all bytes of all pieces, in their order, or nothing; decoded, it is where the message is
};

constexpr size_t kMessagePieces = 512;
constexpr size_t kMessageText = 2 * 1024;
// Data of a message: what is copied twice for it costs less than threads that wake for pieces of their own.
constexpr size_t kMessageData = 64 * 1024;
// The longest; what is no longer than R2CC_BUFFERED_BYTES is copied away.
constexpr size_t kMessageBytes = 16 * 1024 + kMessageData;
constexpr size_t kNotificationBytes = 1 << 20;  // the longest

std::string Encode(const Message& message);
Status Decode(const char* data, size_t bytes, Message* message);

using EngineId = std::array<uint8_t, 16>;

// All that another engine needs to reach one. Whoever has it may connect.
struct Address {
  EngineId id{};
  std::string name;
  std::string host;  // of two engines with the same, loopback connects them; "": of none
  Handle outer;      // over the NICs
  Handle inner;      // over loopback; no port where there is none
};

constexpr size_t kNameBytes = 256;  // the longest name

std::string Encode(const Address& address);
Status Decode(const std::string& bytes, Address* address);

}  // namespace r2ccl::transfer

#endif  // R2CCL_TRANSFER_MESSAGE_H_
