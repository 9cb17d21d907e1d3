// Progress: how far a stream has advanced in the other end's machine.
#ifndef R2CCL_NET_PROGRESS_H_
#define R2CCL_NET_PROGRESS_H_

#include <cstdint>

namespace r2ccl {

// What the other end's machine has of a stream, whether its program has looked or not.
struct Progress {
  uint64_t bytes_acked = 0;     // in order, since the stream began
  uint32_t delivered = 0;       // packets that it reported to have, also those behind a gap; 0 where nobody counts
  uint32_t unanswered = 0;      // packets under way, and probes, of which it has not said that it has them
  int64_t rtt_ns = 0;           // smoothed
  bool rtt_by_kernel = false;   // not by this process, which may look late
  bool loses_unseen = false;    // what it has its program may never be told of; only what comes behind shows the gap
  int64_t rtt_variance_ns = 0;  // mean deviation
  int64_t timeout_ns = 0;       // until the wire itself sends again, without its back-off
  int64_t shortest_rtt_ns = 0;  // of the last minutes; 0 while unknown
  int64_t held_ns = 0;          // for how long the other end's program has left no room for more, since it began
  int64_t since_ack_ns = 0;     // since the last word came of what it has
  uint32_t packet_bytes = 0;    // what a full packet carries
  uint32_t segments = 0;        // packets sent since the stream began, repeated ones included
  uint32_t resent = 0;          // of them repeated, but for those that turned out to be there already
};

}  // namespace r2ccl

#endif  // R2CCL_NET_PROGRESS_H_
