// Notifier: lets one thread sleep until something completes anywhere in the transport.
#ifndef R2CCL_BASE_NOTIFIER_H_
#define R2CCL_BASE_NOTIFIER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace r2ccl {

// Thread-safe. A waiter reads Count(), looks at its requests, then waits for the count to move on: a completion between
// the look and the wait is never missed. Cheap while nobody waits, as with programs that poll.
class Notifier {
 public:
  void Notify() {
    count_.fetch_add(1);
    if (waiters_.load() == 0) return;  // who comes now has said so before it looks at the count
    {
      std::lock_guard lock(mutex_);
    }  // who has looked already sleeps by then
    condition_.notify_all();
  }

  uint64_t Count() const { return count_.load(); }

  // True when the count differs from `seen`, false after the time-out.
  bool Wait(uint64_t seen, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    waiters_.fetch_add(1);
    bool moved = condition_.wait_for(lock, timeout, [&] { return count_.load() != seen; });
    waiters_.fetch_sub(1);
    return moved;
  }

 private:
  std::atomic<uint64_t> count_{0};
  std::atomic<int> waiters_{0};
  std::mutex mutex_;
  std::condition_variable condition_;
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_NOTIFIER_H_
