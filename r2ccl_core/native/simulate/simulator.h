// Times a schedule: an event-driven simulation of its lanes, FIFO connections and fairly shared ports.
//
// Model
//   - Steps of a lane run in order, lanes side by side. A step receives, then sends; reducing and copying
//     take no time.
//   - A connection is (source rank, destination rank, lane). It moves one message at a time, in order;
//     a message first spends `latency_s` on its connection without using a port, then its bytes flow.
//   - A sender may be `slots` messages ahead of the receiver's steps; then its lane waits.
//   - All flows share the ports max-min fairly. Ports, by number:
//       [0, H) hosts out, [H, 2H) hosts in, [2H, 2H+R) ranks' inner links out, [2H+R, 2H+2R) in,
//       and, with `paired`, [2H+2R + a*H + b] for what host a can move to host b over common rails.
//     Ranks of one host talk over their inner links only.
//   - Capacities change at given times.
//   - A part of each lane's steps may be run again and again, all lanes equally often. Whoever asks for that hears,
//   after
//     each time, when the lanes were done with it on average, and may have it be the last time but for what has begun.
//   - With a tolerance, a full port is looked at only when what its flows need has changed by that part of its
//     capacity.
//
// The same problem takes the same time to the last bit on every machine: some schedules are chaotic, so the last bit of
// one sum decides about per cents. Sums are made in a fixed order, and multiply-adds are not contracted
// (CMakeLists.txt).
//
// Cost: per message the ports whose level its start and end change, and their flows. In dense patterns (forests of many
// trees) that is most of them, and a tolerance of 1 % makes it ten times less for an error of less than 0.01 %.
#ifndef R2CCL_SIMULATE_SIMULATOR_H_
#define R2CCL_SIMULATE_SIMULATOR_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace r2ccl::simulate {

// As r2ccl_core.model.schedule.STEP lays it out.
struct Step {
  int32_t recv;
  int32_t send;
  int32_t begin;
  int32_t end;
  int32_t reduce;
};

// Borrowed arrays: the caller keeps them alive during Run().
struct Problem {
  int32_t nranks = 0;
  int32_t nlanes = 0;
  int32_t nhosts = 0;
  const Step* steps = nullptr;
  const int64_t* lane_begin = nullptr;    // nranks * nlanes + 1 positions in steps, rank-major
  const int64_t* chunk_offset = nullptr;  // bytes, nchunks + 1
  const int32_t* host_of_rank = nullptr;
  int32_t nepochs = 0;
  const double* epoch_start_s = nullptr;  // ascending, the first is 0
  const double* capacities = nullptr;     // nepochs x nports, bytes per second
  bool paired = false;
  double latency_s = 0.0;        // per message between hosts
  double inner_latency_s = 0.0;  // per message inside a host
  int32_t slots = 4;
  double tolerance = 0.0;

  const int64_t* loop_begin = nullptr;  // of each lane, a position in steps; null: nothing is repeated
  const int64_t* loop_end = nullptr;    // equal to loop_begin where the lane has nothing to repeat
  int32_t rounds = 1;                   // how often, at most
  // All lanes are done with one more round, on average at that time: whether that is enough. The others follow it in
  // order; those that a lane has begun by then are completed by all.
  std::function<bool(double)> enough;

  int64_t nsteps() const { return lane_begin[static_cast<int64_t>(nranks) * nlanes]; }
  int32_t nports() const { return 2 * nhosts + 2 * nranks + (paired ? nhosts * nhosts : 0); }
};

struct ConnectionUse {
  int32_t source = 0;
  int32_t destination = 0;
  int32_t lane = 0;
  int64_t messages = 0;
  int64_t bytes = 0;
  double busy_s = 0.0;  // time with a message under way, latency included
};

struct Outcome {
  double seconds = 0.0;
  int32_t rounds = 1;
  std::string stalled;  // empty, or one line: who waits for whom for ever
  std::vector<ConnectionUse> connections;
};

// Simulates `problem`. REQUIRES: peers of steps are ranks or -1, chunk ranges lie in chunk_offset.
Outcome Run(const Problem& problem);

}  // namespace r2ccl::simulate

#endif  // R2CCL_SIMULATE_SIMULATOR_H_
