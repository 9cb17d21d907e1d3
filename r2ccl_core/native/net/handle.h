// Handle: what a receiver publishes so that a sender can connect; opaque to NCCL, at most 128 bytes.
#ifndef R2CCL_NET_HANDLE_H_
#define R2CCL_NET_HANDLE_H_

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/wire.h"

namespace r2ccl {

constexpr size_t kHandleBytes = 128;
constexpr size_t kHandleUsedBytes = 9 + kSecretBytes + kMaxPaths * sizeof(in_addr);  // the rest is zero
constexpr int kMaxStripes = 16;

struct Handle {
  uint16_t port = 0;               // host order, the same on every address
  Secret secret{};                 // names the listener and keeps strangers out
  std::vector<in_addr> addresses;  // one per NIC, at most kMaxPaths
  int stripes = 1;                 // connections that make one of the sender's, at most kMaxStripes
};

std::string EncodeHandle(const Handle& handle);  // kHandleBytes long
Status DecodeHandle(const std::string& bytes, Handle* handle);

}  // namespace r2ccl

#endif  // R2CCL_NET_HANDLE_H_
