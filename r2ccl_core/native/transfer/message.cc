// Encoding of messages and addresses of transfer engines; what is read is checked at every field.
#include "transfer/message.h"

#include <algorithm>
#include <cstring>

namespace r2ccl::transfer {
namespace {

constexpr char kAddressMagic[] = "R2KV\x02";  // with the version, also that of messages
constexpr size_t kMagicBytes = 5;

// Bits of a message.
constexpr uint8_t kLastBit = 1;
constexpr uint8_t kNotifiesBit = 2;

template <typename T>
void Append(std::string* out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

// Reads from the front, and remembers that something was missing.
class Reader {
 public:
  Reader(const char* data, size_t bytes) : data_(data), left_(bytes) {}

  template <typename T>
  T Take() {
    uint64_t value = 0;
    if (left_ < sizeof(T)) return Missing<T>();
    for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(data_[i])) << (8 * i);
    Skip(sizeof(T));
    return static_cast<T>(value);
  }

  std::string TakeText(size_t bytes) {
    if (left_ < bytes) return Missing<std::string>();
    std::string text(data_, bytes);
    Skip(bytes);
    return text;
  }

  std::string_view TakeRest() {
    std::string_view rest(data_, left_);
    Skip(left_);
    return rest;
  }

  bool complete() const { return ok_ && left_ == 0; }
  size_t left() const { return left_; }

 private:
  template <typename T>
  T Missing() {
    ok_ = false;
    left_ = 0;
    return {};
  }
  void Skip(size_t bytes) {
    data_ += bytes;
    left_ -= bytes;
  }

  const char* data_;
  size_t left_;
  bool ok_ = true;
};

// More than any message holds where the sum would be.
uint64_t BytesOf(const std::vector<Piece>& pieces) {
  uint64_t sum = 0;
  for (const Piece& piece : pieces) {
    if (piece.bytes > kMessageData) return kMessageBytes;
    sum += piece.bytes;
  }
  return sum;
}

}  // namespace

std::string Encode(const Message& message) {
  std::string out;
  Append(&out, static_cast<uint8_t>(message.kind));
  Append(&out, static_cast<uint8_t>((message.last ? kLastBit : 0) | (message.notifies ? kNotifiesBit : 0)));
  Append(&out, message.code);
  Append(&out, message.operation);
  Append(&out, static_cast<uint16_t>(message.text.size()));
  Append(&out, static_cast<uint16_t>(message.pieces.size()));
  out += message.text;
  for (const Piece& piece : message.pieces) {
    Append(&out, piece.key);
    Append(&out, piece.offset);
    Append(&out, piece.bytes);
  }
  out += message.data;
  return out;
}

Status Decode(const char* data, size_t bytes, Message* message) {
  Reader reader(data, bytes);
  auto kind = reader.Take<uint8_t>();
  message->kind = static_cast<Kind>(kind);
  auto bits = reader.Take<uint8_t>();
  message->last = (bits & kLastBit) != 0;
  message->notifies = (bits & kNotifiesBit) != 0;
  message->code = reader.Take<uint8_t>();
  message->operation = reader.Take<uint64_t>();
  size_t text = reader.Take<uint16_t>();
  size_t pieces = reader.Take<uint16_t>();
  message->text = reader.TakeText(text);
  size_t announced = pieces * 3 * sizeof(uint64_t);
  bool fits = pieces <= kMessagePieces && reader.left() >= announced;
  message->pieces.resize(fits ? pieces : 0);
  for (Piece& piece : message->pieces) {
    piece.key = reader.Take<uint64_t>();
    piece.offset = reader.Take<uint64_t>();
    piece.bytes = reader.Take<uint64_t>();
  }
  message->data = reader.TakeRest();
  fits = fits && (message->data.empty() || message->data.size() == BytesOf(message->pieces));
  bool known = kind <= static_cast<uint8_t>(Kind::kDone) && bits <= (kLastBit | kNotifiesBit);
  if (message->notifies && (message->kind != Kind::kWrite || !message->last)) known = false;
  if (!fits || !reader.complete() || !known) {
    return {Code::kProtocol, "the peer's engine sent a message that this one does not know; do both run one release?"};
  }
  return {};
}

std::string Encode(const Address& address) {
  std::string out(kAddressMagic, kMagicBytes);
  out.append(address.id.begin(), address.id.end());
  for (const std::string& text : {address.name, address.host}) {
    Append(&out, static_cast<uint16_t>(text.size()));
    out += text;
  }
  out += EncodeHandle(address.outer);
  bool has_inner = address.inner.port != 0;
  Append(&out, static_cast<uint8_t>(has_inner));
  if (has_inner) out += EncodeHandle(address.inner);
  return out;
}

Status Decode(const std::string& bytes, Address* address) {
  Status wrong{Code::kInvalidArgument, "this is no address of a transfer engine of this release"};
  if (bytes.compare(0, kMagicBytes, kAddressMagic, kMagicBytes) != 0) return wrong;
  Reader reader(bytes.data() + kMagicBytes, bytes.size() - kMagicBytes);
  std::string id = reader.TakeText(address->id.size());
  if (id.size() != address->id.size()) return wrong;
  std::copy(id.begin(), id.end(), address->id.begin());
  for (std::string* text : {&address->name, &address->host}) *text = reader.TakeText(reader.Take<uint16_t>());
  Status status = DecodeHandle(reader.TakeText(kHandleBytes), &address->outer);
  if (!status.ok()) return wrong;
  if (reader.Take<uint8_t>() != 0) status = DecodeHandle(reader.TakeText(kHandleBytes), &address->inner);
  return status.ok() && reader.complete() ? Status() : wrong;
}

}  // namespace r2ccl::transfer
