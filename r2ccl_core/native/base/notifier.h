// Notifier: lets one thread sleep until something completed somewhere in the transport.
#ifndef R2CCL_BASE_NOTIFIER_H_
#define R2CCL_BASE_NOTIFIER_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace r2ccl {

// Thread-safe. A waiter reads Count(), looks at its requests, then waits for the count to move on: a
// completion between the look and the wait is never missed.
class Notifier {
 public:
  void Notify() {
    {
      std::lock_guard lock(mutex_);
      ++count_;
    }
    condition_.notify_all();
  }

  uint64_t Count() {
    std::lock_guard lock(mutex_);
    return count_;
  }

  // True when the count differs from `seen`, false after the time-out.
  bool Wait(uint64_t seen, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return condition_.wait_for(lock, timeout, [&] { return count_ != seen; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  uint64_t count_ = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_NOTIFIER_H_
