// What two ends tell each other of their queues.
#include "wire/verbs/rc_queue.h"

#include <cstring>
#include <random>

namespace r2ccl {
namespace {

constexpr uint32_t kMostSlots = 4096;
constexpr uint32_t kMostSlotBytes = 1 << 20;
constexpr uint32_t kLeastSlotBytes = 256;

template <typename T>
void Put(std::string* out, const T& value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
void Take(const uint8_t** at, T* value) {
  std::memcpy(value, *at, sizeof *value);
  *at += sizeof *value;
}

}  // namespace

uint32_t RandomWord() { return std::random_device()(); }

std::string EncodeRcAddress(const RcAddress& address) {
  std::string bytes;
  Put(&bytes, address.gid);
  Put(&bytes, address.number);
  Put(&bytes, address.psn);
  Put(&bytes, address.mtu);
  Put(&bytes, address.receive_slots);
  Put(&bytes, address.receive_bytes);
  Put(&bytes, uint32_t{address.lid});
  Put(&bytes, uint32_t{address.infiniband});
  return bytes;
}

Status DecodeRcAddress(const std::vector<uint8_t>& bytes, RcAddress* address) {
  if (bytes.size() != kRcAddressBytes) return {Code::kProtocol, "wire: malformed address of a queue pair"};
  const uint8_t* at = bytes.data();
  uint32_t lid = 0;
  uint32_t infiniband = 0;
  Take(&at, &address->gid);
  Take(&at, &address->number);
  Take(&at, &address->psn);
  Take(&at, &address->mtu);
  Take(&at, &address->receive_slots);
  Take(&at, &address->receive_bytes);
  Take(&at, &lid);
  Take(&at, &infiniband);
  address->lid = static_cast<uint16_t>(lid);
  address->infiniband = static_cast<uint8_t>(infiniband);
  bool fits = address->number <= kMostPsn && address->psn <= kMostPsn && address->mtu >= 1 && address->mtu <= 5 &&
              lid <= 65535 && infiniband <= 1 && address->receive_slots >= 4 && address->receive_slots <= kMostSlots &&
              address->receive_bytes >= kLeastSlotBytes && address->receive_bytes <= kMostSlotBytes;
  return fits ? Status() : Status(Code::kProtocol, "wire: impossible address of a queue pair");
}

}  // namespace r2ccl
