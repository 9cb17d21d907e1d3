// Names of operations and their tags.
#include "collective/operation.h"

#include <algorithm>
#include <array>

namespace r2ccl {
namespace {

constexpr std::array<std::string_view, 7> kCollectives = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                          "reduce",     "sendrecv",   "alltoall"};
constexpr uint32_t kTypeAt = 3;
constexpr uint32_t kTypeMask = 15;
constexpr uint32_t kOpAt = 7;
constexpr uint32_t kOpMask = 7;
constexpr uint32_t kDigestAt = 10;
constexpr uint32_t kDigestMask = 0x3fff;

uint32_t Digest(const Operation& operation) {
  uint64_t mixed = 0;
  for (int64_t value : {operation.elements, operation.root, operation.call}) {
    mixed = (mixed ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 32;
  }
  return static_cast<uint32_t>(mixed >> 16) & kDigestMask;
}

}  // namespace

std::optional<Collective> ParseCollective(std::string_view name) {
  const auto* found = std::find(kCollectives.begin(), kCollectives.end(), name);
  if (found == kCollectives.end()) return std::nullopt;
  return static_cast<Collective>(found - kCollectives.begin());
}

uint32_t TagOf(const Operation& operation) {
  return static_cast<uint32_t>(operation.collective) | static_cast<uint32_t>(operation.type) << kTypeAt |
         static_cast<uint32_t>(operation.op) << kOpAt | Digest(operation) << kDigestAt;
}

std::string Describe(uint32_t tag) {
  size_t collective = tag & 7;
  std::string name(collective < kCollectives.size() ? kCollectives[collective] : "an unknown collective");
  return name + " of " + std::string(NameOf(static_cast<DataType>(tag >> kTypeAt & kTypeMask))) + " (" +
         std::string(NameOf(static_cast<ReduceOp>(tag >> kOpAt & kOpMask))) + ")";
}

}  // namespace r2ccl
