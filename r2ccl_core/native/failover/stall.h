// Stall: how long the peer's kernel may owe an acknowledgement before its silence means that the path is dead.
//
// On a path without losses 80 ms are plenty, and no retransmission is needed to be sure: PINGs sent into the silence
// give the peer's kernel several chances to answer, it would report what is missing, and it is also probed outside the
// stream. On a lossy path all of those may be lost together, so it gets twice that time. There, a few packets in a row
// may also be lost with nothing behind them; then only the kernel's own retransmission timer helps, possibly after
// several attempts. So if anything else arrives, the limit follows that timer.
#ifndef R2CCL_FAILOVER_STALL_H_
#define R2CCL_FAILOVER_STALL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/clock.h"
#include "base/params.h"
#include "net/progress.h"

namespace r2ccl {

// The share of segments that a path had to retransmit, over about the last tenths of a second in which it made
// progress. Retransmissions into a silence count only once the silence is over, so a dead path does not count as lossy.
class LossMeter {
 public:
  void Sample(const Progress& progress, int64_t now_ns) {
    double fade = std::exp2(-static_cast<double>(now_ns - last_ns_) / kHalfLifeNs);
    sent_ = sent_ * fade + static_cast<double>(progress.segments - last_.segments);
    // May be fewer than before, if the peer had received some of them after all.
    double more = static_cast<double>(progress.resent) - last_.resent;
    resent_ = std::max(0.0, resent_ * fade + more);
    last_ = progress;
    last_ns_ = now_ns;
  }
  // From now on only what is lost anew counts.
  void Forget() { sent_ = resent_ = 0; }
  // Drops by a full queue are rarer than this, and are accompanied by acknowledgements of later data.
  bool lossy() const { return resent_ >= kLeastResent && resent_ > kLossyShare * sent_; }

 private:
  static constexpr double kHalfLifeNs = 3e8;
  static constexpr double kLossyShare = 0.004;
  static constexpr double kLeastResent = 1.5;
  Progress last_;
  int64_t last_ns_ = 0;
  double sent_ = 0;
  double resent_ = 0;
};

constexpr int64_t kFailStopStallNs = 2000 * kMillisecond;  // a false alarm ends the job
constexpr int64_t kMostTimeoutsNs = 1000 * kMillisecond;   // most time allowed for the kernel's timer
constexpr int64_t kTimeouts = 8;                           // unanswered retransmissions of the kernel, without back-off
// Times as many on probation, when a path carries test packets alone and nobody waits for the verdict. In that time the
// kernel's timer, which doubles each time, sends the same packet again for a fourth time: on a NIC that others' traffic
// fills, three in a row may be lost.
constexpr int64_t kUnhurried = 4;

// The kernel considers an answer that takes longer as lost; peers that delay acknowledgements make it tens of
// milliseconds.
constexpr int64_t LongestUsualNs(const Progress& progress) { return progress.rtt_ns + 4 * progress.rtt_variance_ns; }

// For a path without losses, if answers usually come within that time.
constexpr int64_t StallLimitNs(const Params& params, int64_t usual_ns) {
  if (params.stall_ms > 0) return params.stall_ms * kMillisecond;
  int64_t shortest_ns = params.mode == 0 ? kFailStopStallNs : params.stall_min_ms * kMillisecond;
  return std::max(shortest_ns, 2 * usual_ns);
}

// How long the peer's kernel has been silent.
struct Silence {
  int64_t in_order_ns = 0;  // since it acknowledged one more byte in order
  int64_t any_ns = 0;  // since it acknowledged anything, even behind a gap, or answered outside the stream (witness.h)
  int64_t seen_ns =
      INT64_MAX;  // the part of any_ns in which answers would have been seen, since others came by other NICs
};

constexpr int64_t kLongestTickNs = 10 * kMillisecond;  // of a process that runs

// What a tick adds to seen_ns. If nothing arrives by any other NIC either, a machine with busy processors may not have
// looked: with many packets its kernel reads them in a separate thread, which waits for its turn. Time that this
// process itself missed does not count either.
constexpr int64_t SeenNs(int64_t since_tick_ns, int64_t since_other_ns) {
  constexpr int64_t kFreshNs = 20 * kMillisecond;
  return since_other_ns <= kFreshNs ? std::min(since_tick_ns, kLongestTickNs) : 0;
}

// A path on which something arrives is lossy and not dead, unless it never delivers the missing data: a path with too
// small an MTU lets small packets through. `limit_ns` is StallLimitNs.
constexpr bool IsDead(const Params& params, const Progress& progress, int64_t limit_ns, bool lossy, bool on_probation,
                      const Silence& silence) {
  if (params.stall_ms > 0) return silence.in_order_ns > limit_ns;
  int64_t patience = on_probation ? kUnhurried : 1;
  int64_t timeouts_ns = patience * std::min(kMostTimeoutsNs, kTimeouts * progress.timeout_ns);
  // Half of it: while an operation waits for data on the dead path, other NICs are idle, too.
  bool sure = !lossy && silence.seen_ns > limit_ns / 2;
  return silence.any_ns > (sure ? 1 : 2) * limit_ns || silence.in_order_ns > std::max(2 * limit_ns, timeouts_ns);
}

// Silence after which a path is pinged, and the interval from then on. Until it answers it is suspect.
constexpr int64_t SuspectAfterNs(const Progress& progress) {
  return std::max(15 * kMillisecond, LongestUsualNs(progress));
}

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_STALL_H_
