// RdmaWays: what this process knows of RDMA between two NICs, for all its connections: whether to try it now, and why
// not. A way that fails is tried again after 0.2 s, then after twice as long each time, up to 30 s.
#ifndef R2CCL_WIRE_VERBS_RDMA_WAYS_H_
#define R2CCL_WIRE_VERBS_RDMA_WAYS_H_

#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace r2ccl {

// Thread-safe; a leaf lock.
class RdmaWays {
 public:
  using Key = std::pair<in_addr_t, in_addr_t>;  // this host's NIC, the peer's
  static constexpr int64_t kFirstPauseNs = 200 * kMillisecond;
  static constexpr int64_t kLongestPauseNs = 30'000 * kMillisecond;
  static constexpr int64_t kProvenNs = 10'000 * kMillisecond;  // after which a loss is the first again

  // 0: now.
  int64_t NotBefore(Key key) {
    MutexLock lock(mutex_);
    auto way = ways_.find(key);
    return way == ways_.end() ? 0 : way->second.not_before_ns;
  }
  // Why the last try failed; empty after one that did not.
  std::string WhyNot(Key key) {
    MutexLock lock(mutex_);
    auto way = ways_.find(key);
    return way == ways_.end() ? "" : way->second.why_not;
  }
  // A try failed, or what worked was lost. True when the reason is another than the last.
  bool Fail(Key key, int64_t now_ns, const std::string& reason) {
    MutexLock lock(mutex_);
    Way& way = ways_[key];
    if (way.works_since_ns != 0 && now_ns - way.works_since_ns > kProvenNs) way.pause_ns = 0;
    way.works_since_ns = 0;
    if (now_ns >= way.not_before_ns) {  // else another connection told of the same failure
      way.pause_ns = std::clamp(2 * way.pause_ns, kFirstPauseNs, kLongestPauseNs);
      way.not_before_ns = now_ns + way.pause_ns;
    }
    return std::exchange(way.why_not, reason) != reason;
  }
  // True when it did not before.
  bool Work(Key key, int64_t now_ns) {
    MutexLock lock(mutex_);
    Way& way = ways_[key];
    way.why_not.clear();
    return std::exchange(way.works_since_ns, now_ns) == 0;
  }

 private:
  struct Way {
    int64_t not_before_ns = 0;
    int64_t pause_ns = 0;
    int64_t works_since_ns = 0;  // 0: it does not
    std::string why_not;
  };
  Mutex mutex_;
  std::map<Key, Way> ways_ GUARDED_BY(mutex_);
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_RDMA_WAYS_H_
