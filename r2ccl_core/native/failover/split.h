// Split: divides the bytes of a connection over the NICs as a planned schedule wants it. Pure.
//
// A planned schedule knows which NICs all hosts have lost, and so how much each pair of hosts has to use each of them.
// A connection cannot find that out: it does not see what other hosts send to its peer's NICs. So it keeps to its
// shares, and waits for a NIC that is behind its share rather than use one that is far ahead. If a NIC of its own
// drains less than the others, or a path is far slower than another one, its share shrinks accordingly.
#ifndef R2CCL_FAILOVER_SPLIT_H_
#define R2CCL_FAILOVER_SPLIT_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "failover/placement.h"

namespace r2ccl {

class Split {
 public:
  // Chooses the path for the next chunk, or kNoPath while it is better to wait. False: no path that has a share is up.
  bool Place(const std::vector<PathLoad>& paths, int* chosen) {
    turns_.resize(paths.size(), 0);
    Weigh(paths);
    bool any = false;
    double first = 0;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (weights_[i] == 0) continue;
      first = any ? std::min(first, turns_[i]) : turns_[i];
      any = true;
    }
    double most = first + lead();
    *chosen = kNoPath;
    for (size_t i = 0; i < paths.size() && any; ++i) {
      if (weights_[i] == 0) {
        turns_[i] = first;  // once it is up, it has nothing to catch up with
      } else if (paths[i].free && turns_[i] <= most) {
        bool sooner = *chosen == kNoPath || turns_[i] < turns_[static_cast<size_t>(*chosen)];
        if (sooner) *chosen = static_cast<int>(i);
      }
    }
    return any;
  }

  // The path takes so many bytes.
  void Take(int path, double bytes) {
    auto index = static_cast<size_t>(path);
    if (index < weights_.size() && weights_[index] > 0) turns_[index] += bytes / weights_[index];
  }

 private:
  // By so many bytes of the connection, or what it sends in so long, a path may be ahead of its share.
  static constexpr double kLeadBytes = 512 * 1024;
  static constexpr double kLeadNs = 8e6;
  static constexpr double kFarSlower = 3;

  double lead() const { return std::max(kLeadBytes, kLeadNs * rate_); }

  void Weigh(const std::vector<PathLoad>& paths) {
    weights_.assign(paths.size(), 0);
    double drain = BestDrain(paths);
    double fastest = 0;
    rate_ = 0;
    for (const PathLoad& path : paths) {
      if (!path.up || path.share <= 0) continue;
      fastest = std::max(fastest, path.rate);
      rate_ += path.rate;
    }
    for (size_t i = 0; i < paths.size(); ++i) {
      const PathLoad& path = paths[i];
      if (!path.up || path.share <= 0) continue;
      double left = path.drain > 0 ? path.drain / drain : 1;
      if (path.rate > 0 && kFarSlower * path.rate < fastest) left = std::min(left, path.rate / fastest);
      weights_[i] = path.share * left;
    }
  }

  std::vector<double> turns_;    // by path: how many bytes the connection has sent when the path has had its share
  std::vector<double> weights_;  // by path: its share as it is now; 0: it is not used
  double rate_ = 0;              // bytes per ns of all paths that have a share
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_SPLIT_H_
