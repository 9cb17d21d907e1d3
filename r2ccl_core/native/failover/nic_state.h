// NicState: what the process knows of one of its NICs, over all connections, and decides by. What it counts for those
// who watch is in NicTraffic (stream.h).
#ifndef R2CCL_FAILOVER_NIC_STATE_H_
#define R2CCL_FAILOVER_NIC_STATE_H_

#include <atomic>
#include <cstdint>

namespace r2ccl {

// Thread-safe.
struct NicState {
  std::atomic<bool> link_up{true};  // the kernel's word

  // What its senders have on the way, and what has been acknowledged of it: of a copy word may come late.
  std::atomic<int64_t> in_flight_bytes{0};
  std::atomic<uint64_t> drained_bytes{0};
  std::atomic<uint64_t> idle_times{0};  // how often nothing was in flight any more
  std::atomic<int> small_senders{0};    // sending ends whose last copied message went over it; those count for no bytes
  // What the NIC drains while it is busy; 0 while unknown. Kept by DrainMeter.
  std::atomic<double> drain_bytes_per_ns{0};
  std::atomic<int64_t> queued_ns{INT64_MIN / 2};  // when DrainMeter last saw it have a queue all the time
  std::atomic<double> peak_bytes_per_ns{0};       // the most that it drained lately, busy or not
  std::atomic<double> carried_bytes_per_ns{0};    // the same with copies
  std::atomic<int64_t> tried_ns{0};               // when a copy of a chunk last went over it to see what it drains
  // When a connection whose home is not well, or that does not reach all NICs, last put something on this one.
  std::atomic<int64_t> refuge_ns{0};

  // When one of the NIC's paths was last silent for long, or lost. Until they show that they work, its other paths
  // carry nothing that another NIC can carry.
  std::atomic<int64_t> doubt_ns{0};
  std::atomic<int64_t> proven_ns{0};  // when one of its paths last showed that it works
  // Within which answers came there to a stream that carries data. What else goes over the NIC waits in the same queue.
  std::atomic<int64_t> usual_ns{0};
  std::atomic<int64_t> passed_ns{0};  // when the last of what has passed it was sent, give or take a tick

  static constexpr int64_t kQueueBytes = 64 * 1024;  // less is latency, which tells nothing of the rate
  bool HasQueue() const { return in_flight_bytes.load() >= kQueueBytes; }

  void NotePassed(int64_t sent_ns) {
    if (sent_ns > passed_ns.load(std::memory_order_relaxed)) passed_ns.store(sent_ns, std::memory_order_relaxed);
  }
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_NIC_STATE_H_
