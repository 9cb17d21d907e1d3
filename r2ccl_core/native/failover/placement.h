// Placement: chooses the path of a connection's next chunk. Pure, so that every rule is tested.
//
//   - A connection keeps to its home, the NIC that NCCL chose for it, while that NIC is well: up, and not much slower
//     than the best of the others.
//   - But if the home has a millisecond of work and another NIC much less, that NIC takes the chunk. Rings that share a
//     NIC drift apart: one host has much to send while another waits, and near the end of an operation some NICs are
//     done before others. This excludes NICs that connections use whose own home is not well (a refuge): those
//     connections need it more.
//   - If such connections load the home itself, a NIC that they do not reach helps sooner. If none of those helps now,
//     as at a host that has lost a NIC, refuges relieve each other as above: their loads differ, and the last one to
//     finish decides.
//   - A connection without a home that reaches all NICs leaves those NICs free to which other connections are confined,
//     unless they have less queued: its chunks would take bandwidth that those connections get nowhere else.
//   - Otherwise a chunk goes where it will be delivered first: to the NIC with the smallest queue for its drain rate,
//     over all connections of the process; among equal NICs to the one with the fewest senders of small messages, then
//     to the one nearest to the home. But a chunk does not go to a NIC that is much slower than the others and would
//     delay the message: the faster ones, whose windows are full, take it soon.
#ifndef R2CCL_FAILOVER_PLACEMENT_H_
#define R2CCL_FAILOVER_PLACEMENT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace r2ccl {

// One path, as a connection sees it.
struct PathLoad {
  bool up = false;
  bool free = false;      // up, and can take a chunk at once
  bool refuge = false;    // connections whose home is not well, or that do not reach all NICs, load its NIC
  double drain = 0;       // bytes per ns that its NIC drains while busy; 0: unknown
  double nic_bytes = 0;   // in flight over its NIC, of all connections
  double path_bytes = 0;  // of them, this connection's
  int small_senders = 0;  // other connections whose small messages, which are copied, go over its NIC
  double peak = 0;        // highest recent drain rate of its NIC over some 10 ms, busy or not
  int distance = 0;       // of its NIC from the home
  // For planned schedules (split.h):
  double rate = 0;   // bytes per ns of this connection's while busy, 0: unknown
  double share = 0;  // what the schedule gives it of the connection's bytes
};

// The data that waits for a path.
struct Waiting {
  double next_bytes = 0;  // the chunk that is to be placed
  double all_bytes = 0;   // all chunks of the connection that no path has yet, this one included
};

constexpr int kNoPath = -1;
constexpr double kMuchFaster = 2.0;  // NICs that differ by less share the work according to their windows

inline bool IsMuchSlower(const PathLoad& path, double drain) {
  return path.drain > 0 && path.drain * kMuchFaster < drain;
}

// Whether the home is up and no other NIC is much faster. False without a home.
inline bool HomeIsWell(const std::vector<PathLoad>& paths, int home) {
  if (home == kNoPath || !paths[static_cast<size_t>(home)].up) return false;
  double drain = paths[static_cast<size_t>(home)].drain;
  if (drain == 0) return true;
  for (const PathLoad& path : paths) {
    if (path.up && path.drain > kMuchFaster * drain) return false;
  }
  return true;
}

// The free NIC with the smallest queue, less than `most` bytes, among those that are not the home, not much slower, and
// (as requested) refuges or not; kNoPath without one. A NIC with unknown rate has not been used, or has just come back.
inline int LeastLoaded(const std::vector<PathLoad>& paths, int home, bool refuge, double most) {
  int best = kNoPath;
  for (size_t i = 0; i < paths.size(); ++i) {
    const PathLoad& path = paths[i];
    if (static_cast<int>(i) == home || !path.free || path.refuge != refuge || path.nic_bytes >= most) continue;
    if (IsMuchSlower(path, paths[static_cast<size_t>(home)].drain)) continue;
    best = static_cast<int>(i);
    most = path.nic_bytes;
  }
  return best;
}

// A NIC that takes a chunk instead of a home with a longer queue; kNoPath if the home is as good. A chunk that leaves
// may meet a cold stream. So unless it leaves a refuge for a NIC that is not one, it stays while the home has less than
// 1 ms of work, or an unknown amount, and goes only to a NIC with much less.
inline int ReliefFor(const std::vector<PathLoad>& paths, int home) {
  constexpr double kClearlyLess = 0.75;
  constexpr double kMuchLess = 0.5;
  constexpr double kBusyNs = 1e6;
  const PathLoad& own = paths[static_cast<size_t>(home)];
  if (own.refuge) {
    int outside = LeastLoaded(paths, home, false, kClearlyLess * own.nic_bytes);
    if (outside != kNoPath) return outside;
  }
  bool busy = own.drain > 0 && own.nic_bytes >= kBusyNs * own.drain;
  return busy ? LeastLoaded(paths, home, own.refuge, kMuchLess * own.nic_bytes) : kNoPath;
}

// Whether a slow path delivers the chunk well before the faster ones would have finished everything that waits. The
// chunk delays its message, and whatever waits for that; the slow path can gain only its small share.
inline bool IsWorthIt(const std::vector<PathLoad>& paths, size_t slow, const Waiting& waiting) {
  constexpr double kMargin = 1.5;
  double drain = paths[slow].drain;
  if (drain == 0) return true;
  double faster_drain = 0;
  double faster_bytes = 0;
  for (const PathLoad& path : paths) {
    if (!path.up || path.drain < kMuchFaster * drain) continue;
    faster_drain += path.drain;
    faster_bytes += path.nic_bytes;
  }
  if (faster_drain == 0) return true;
  return kMargin * (paths[slow].nic_bytes + waiting.next_bytes) / drain <=
         (faster_bytes + waiting.all_bytes) / faster_drain;
}

// Whether a refuge has a smaller queue than every path that is not one, except much slower ones.
inline bool IsIdlest(const std::vector<PathLoad>& paths, const PathLoad& refuge) {
  for (const PathLoad& path : paths) {
    bool comparable = path.up && !path.refuge && !IsMuchSlower(path, refuge.drain);
    if (comparable && refuge.nic_bytes >= path.nic_bytes) return false;
  }
  return true;
}

// The assumed drain rate of a NIC with unknown rate: that of the best of the others. The NIC may never have had enough
// work to show it, as with messages that are short relative to its queue; a guess in bytes per ns would make it look
// better than every slower NIC, or worse than every faster one, for as long as that lasts.
inline double BestDrain(const std::vector<PathLoad>& paths) {
  double best = 0;
  for (const PathLoad& path : paths) best = path.up ? std::max(best, path.drain) : best;
  return best > 0 ? best : 1;  // no rate is known: all are alike
}

// A NIC that never has a queue does not show its drain rate, but it drains at least at its recent rate; half of that is
// used, since the acknowledgements of 20 ms may arrive within ten. If that is much more than another NIC's known rate,
// the other is slow, and gets only chunks that are worth it.
inline void TellFromSlow(std::vector<PathLoad>* paths) {
  for (PathLoad& path : *paths) {
    if (!path.up || path.drain > 0) continue;
    double least = path.peak / 2;
    bool beside_slow = std::any_of(paths->begin(), paths->end(),
                                   [least](const PathLoad& other) { return other.up && IsMuchSlower(other, least); });
    if (beside_slow) path.drain = least;
  }
}

// Of two NICs that look alike, the one that fewer connections send small messages over, which count for no bytes; among
// those the one nearer to the home.
inline bool IsPreferred(const PathLoad& path, const PathLoad& other) {
  if (path.small_senders != other.small_senders) return path.small_senders < other.small_senders;
  return path.distance < other.distance;
}

// The free path that would deliver the next chunk first; kNoPath if none is free. `only_worthy` excludes paths that are
// not worth it; `spare_refuges` allows only the idlest of the refuges.
inline int Soonest(const std::vector<PathLoad>& paths, const Waiting& waiting, bool only_worthy,
                   bool spare_refuges = false) {
  int best = kNoPath;
  double best_cost = 0;
  double unknown_drain = BestDrain(paths);
  for (size_t i = 0; i < paths.size(); ++i) {
    const PathLoad& path = paths[i];
    if (!path.free || (only_worthy && !IsWorthIt(paths, i, waiting))) continue;
    if (spare_refuges && path.refuge && !IsIdlest(paths, path)) continue;
    // The whole NIC's queue decides; this connection's own breaks ties between NICs that look alike.
    double cost =
        (path.nic_bytes + path.path_bytes + waiting.next_bytes) / (path.drain > 0 ? path.drain : unknown_drain);
    bool preferred = best != kNoPath && cost == best_cost && IsPreferred(path, paths[static_cast<size_t>(best)]);
    if (best == kNoPath || cost < best_cost || preferred) {
      best = static_cast<int>(i);
      best_cost = cost;
    }
  }
  return best;
}

// The path for the next chunk; kNoPath while it is better to wait. `confined`: the connection does not reach all NICs.
inline int Place(const std::vector<PathLoad>& paths, int home, const Waiting& waiting, bool confined = false) {
  if (!HomeIsWell(paths, home)) return Soonest(paths, waiting, true, home == kNoPath && !confined);
  int relief = ReliefFor(paths, home);
  if (relief != kNoPath) return relief;
  return paths[static_cast<size_t>(home)].free ? home : kNoPath;
}

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_PLACEMENT_H_
