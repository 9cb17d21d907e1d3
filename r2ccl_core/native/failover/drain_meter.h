// DrainMeter: measures the drain rate of each NIC of the process while it has work, over all connections.
#ifndef R2CCL_FAILOVER_DRAIN_METER_H_
#define R2CCL_FAILOVER_DRAIN_METER_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "failover/comm.h"
#include "failover/placement.h"

namespace r2ccl {

// Used by one thread. A NIC shows its drain rate only while it has work all the time: such a sample gradually replaces
// the known rate. Any other sample is a lower limit: it says nothing about a NIC whose rate is unknown, and a known
// rate grows slowly from it, so that a NIC that was slow once gets more work until it shows its rate again. In Balance
// that is so only while the NIC takes its share. The rate of a much slower one is what trials show (SendComm::TryWays):
// if it grew, the NIC would get work that it delays, again and again. The known rate grows no further than to the best
// of the other NICs, even if that is only what they drained recently without being full: beside NICs that grew through
// idle minutes, one that has just come back and been measured would look slow for ever. A NIC of which nothing is
// acknowledged, or less than a packet, is silent, which this meter ignores: it will drain at its old rate when it is
// back.
class DrainMeter {
 public:
  explicit DrainMeter(Environment* environment) : environment_(environment), nics_(environment->nics.size()) {}

  void Sample(int64_t now_ns) {
    if (now_ns - last_ns_ < kSampleNs) return;
    auto elapsed_ns = static_cast<double>(now_ns - last_ns_);
    double best = 0;
    for (size_t i = 0; i < nics_.size(); ++i) {
      const NicState& nic = environment_->nic_states[i];
      double known = nic.drain_bytes_per_ns.load();
      best = std::max(best, known > 0 ? known : nic.peak_bytes_per_ns.load());
    }
    for (size_t i = 0; i < nics_.size(); ++i) {
      NicState& nic = environment_->nic_states[i];
      Seen& seen = nics_[i];
      uint64_t acknowledged = nic.drained_bytes.load();
      bool queued = nic.HasQueue();
      uint64_t idle_times = nic.idle_times.load();
      auto lately = static_cast<double>(acknowledged - std::exchange(seen.last_acknowledged, acknowledged));
      nic.peak_bytes_per_ns.store(std::max(lately / elapsed_ns, kPeakKept * nic.peak_bytes_per_ns.load()));
      uint64_t carried = environment_->counters[i].acknowledged_bytes.load();
      auto more = static_cast<double>(carried - std::exchange(seen.carried, carried));
      nic.carried_bytes_per_ns.store(std::max(more / elapsed_ns, kPeakKept * nic.carried_bytes_per_ns.load()));
      auto moved = static_cast<double>(acknowledged - seen.acknowledged);
      double rate = moved / static_cast<double>(now_ns - seen.since_ns);
      double known = nic.drain_bytes_per_ns.load();
      if (queued && seen.was_queued && idle_times == seen.idle_times) {
        nic.queued_ns.store(now_ns);
        if (moved < kEnoughBytes && now_ns - seen.since_ns < kLongestNs) continue;
        if (moved >= kPacketBytes) nic.drain_bytes_per_ns.store(known == 0 ? rate : 0.7 * known + 0.3 * rate);
      } else if (known > 0) {
        // With zero copy there are no trials (SendComm::TryWays).
        bool tried = environment_->params.mode == 2 && environment_->params.zero_copy_bytes == 0;
        bool by_trials = tried && known * kMuchFaster < best;
        nic.drain_bytes_per_ns.store(std::max(by_trials ? known : std::min(known * kGrowth, best), rate));
      }
      seen = {acknowledged, acknowledged, carried, idle_times, now_ns, queued};
    }
    last_ns_ = now_ns;
  }

 private:
  static constexpr int64_t kSampleNs = 10'000'000;
  static constexpr double kPeakKept = 0.999;  // half of it in seven seconds
  static constexpr double kGrowth = 1.02;     // doubles in about a third of a second
  // A NIC that is slow acknowledges few pieces in kSampleNs: it is watched until it has shown some, but not for ever.
  static constexpr double kEnoughBytes = 1 << 20;
  static constexpr double kPacketBytes = 4096;
  static constexpr int64_t kLongestNs = 40'000'000;
  // What was so when the sample began that is not over yet.
  struct Seen {
    uint64_t acknowledged = 0;
    uint64_t last_acknowledged = 0;
    uint64_t carried = 0;
    uint64_t idle_times = 0;
    int64_t since_ns = 0;
    bool was_queued = false;
  };

  Environment* const environment_;
  std::vector<Seen> nics_;
  int64_t last_ns_ = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_DRAIN_METER_H_
