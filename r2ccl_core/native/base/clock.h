// Clocks in nanoseconds: a monotonic one for timers, the wall clock for logs that are compared across hosts.
#ifndef R2CCL_BASE_CLOCK_H_
#define R2CCL_BASE_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace r2ccl {

inline int64_t ReadClockNs(clockid_t id) {
  timespec ts;
  clock_gettime(id, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

inline int64_t NowNs() { return ReadClockNs(CLOCK_MONOTONIC); }
inline int64_t WallNs() { return ReadClockNs(CLOCK_REALTIME); }

constexpr int64_t kMillisecond = 1'000'000;

// The monotonic clock of whoever must also run in virtual time.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t Now() const { return NowNs(); }
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_CLOCK_H_
