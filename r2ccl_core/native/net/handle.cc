// Encoding of handles: magic, version, port, number of addresses, secret, addresses, stripes.
#include "net/handle.h"

#include <cstring>

namespace r2ccl {
namespace {

constexpr size_t kAddressesAt = 8 + kSecretBytes;
constexpr size_t kStripesAt = kHandleUsedBytes - 1;
static_assert(kHandleUsedBytes <= kHandleBytes);

}  // namespace

std::string EncodeHandle(const Handle& handle) {
  std::string bytes(kHandleBytes, '\0');
  std::memcpy(bytes.data(), &kWireMagic, 4);
  bytes[4] = static_cast<char>(kWireVersion);
  bytes[5] = static_cast<char>(handle.addresses.size());
  std::memcpy(bytes.data() + 6, &handle.port, 2);
  std::memcpy(bytes.data() + 8, handle.secret.data(), kSecretBytes);
  std::memcpy(bytes.data() + kAddressesAt, handle.addresses.data(), handle.addresses.size() * sizeof(in_addr));
  bytes[kStripesAt] = static_cast<char>(handle.stripes);
  return bytes;
}

Status DecodeHandle(const std::string& bytes, Handle* handle) {
  uint32_t magic = 0;
  if (bytes.size() < kHandleBytes) return {Code::kInvalidArgument, "handle is shorter than 128 bytes"};
  std::memcpy(&magic, bytes.data(), 4);
  if (magic != kWireMagic) return {Code::kInvalidArgument, "handle was not made by r2ccl"};
  if (static_cast<uint8_t>(bytes[4]) != kWireVersion) {
    return {Code::kInvalidArgument, "handle is of another version of r2ccl; install the same release on every host"};
  }
  size_t count = static_cast<uint8_t>(bytes[5]);
  if (count == 0 || count > kMaxPaths) return {Code::kInvalidArgument, "handle names no usable address"};
  handle->stripes = static_cast<uint8_t>(bytes[kStripesAt]);
  if (handle->stripes < 1 || handle->stripes > kMaxStripes) {
    return {Code::kInvalidArgument, "handle asks for no usable number of stripes"};
  }
  std::memcpy(&handle->port, bytes.data() + 6, 2);
  std::memcpy(handle->secret.data(), bytes.data() + 8, kSecretBytes);
  handle->addresses.resize(count);
  std::memcpy(handle->addresses.data(), bytes.data() + kAddressesAt, count * sizeof(in_addr));
  return {};
}

}  // namespace r2ccl
