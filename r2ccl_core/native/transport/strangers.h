// Strangers: connections to our port that do not belong here, counted by kind; few of them become events.
//
// A port scan brings thousands, which must not push the losses of paths out of the log. Pure: time is an argument.
#ifndef R2CCL_TRANSPORT_STRANGERS_H_
#define R2CCL_TRANSPORT_STRANGERS_H_

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace r2ccl {

enum class Stranger {
  kSilent,   // said nothing, or not enough in time
  kGarbage,  // spoke another protocol, or was damaged on the way
  kVersion,  // of another release
  kSecret,   // does not know the secret of any connection
  kCrowd,    // too many waited to be greeted
  kAstray,   // came by an interface that is none of our NICs
};
constexpr size_t kStrangerKinds = 6;

constexpr const char* ToString(Stranger kind) {
  switch (kind) {
    case Stranger::kSilent:
      return "silent";
    case Stranger::kGarbage:
      return "garbage";
    case Stranger::kVersion:
      return "version";
    case Stranger::kSecret:
      return "secret";
    case Stranger::kCrowd:
      return "crowd";
    case Stranger::kAstray:
      return "astray";
  }
  return "?";
}

class StrangerCount {
 public:
  static constexpr int kBurst = 16;                     // events at once,
  static constexpr int64_t kRefillNs = 10'000'000'000;  // and one more in so long
  static constexpr size_t kMostAddresses = 1024;        // that are remembered

  // Whether it is worth an event: the first one from its address, while there were few.
  bool Note(Stranger kind, in_addr from, int64_t now_ns) {
    ++counts_[static_cast<size_t>(kind)];
    Refill(now_ns);
    if (events_left_ == 0 || told_.contains(from.s_addr)) return false;
    --events_left_;
    Remember(from.s_addr);
    return true;
  }

  uint64_t count(Stranger kind) const { return counts_[static_cast<size_t>(kind)]; }

 private:
  void Refill(int64_t now_ns) {
    if (events_left_ == kBurst) refilled_ns_ = now_ns;
    for (; events_left_ < kBurst && now_ns - refilled_ns_ >= kRefillNs; refilled_ns_ += kRefillNs) ++events_left_;
  }

  void Remember(in_addr_t address) {
    told_.insert(address);
    order_.push_back(address);
    if (order_.size() <= kMostAddresses) return;
    told_.erase(order_.front());
    order_.pop_front();
  }

  std::array<uint64_t, kStrangerKinds> counts_{};
  int events_left_ = kBurst;
  int64_t refilled_ns_ = 0;
  std::set<in_addr_t> told_;
  std::deque<in_addr_t> order_;  // of told_, oldest first
};

}  // namespace r2ccl

#endif  // R2CCL_TRANSPORT_STRANGERS_H_
