// Poller: one I/O thread around epoll, with a periodic tick.
#ifndef R2CCL_NET_POLLER_H_
#define R2CCL_NET_POLLER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/kickable.h"
#include "base/mutex.h"
#include "base/status.h"
#include "net/socket.h"

namespace r2ccl {

// Something with descriptors. Called by the poller's thread with no lock held.
class Pollable {
 public:
  virtual ~Pollable() = default;
  // `tag` and `id` are those of the registration; `events` are epoll's.
  virtual void OnEvents(uint64_t id, int tag, uint32_t events) = 0;
  // The kernel refused to watch the descriptor: nothing more will be heard of it.
  virtual void OnUnwatched(uint64_t id, int tag, const std::string& reason) = 0;
  // OnEvents was left by an exception, such as for want of memory: what it worked on is in no known state.
  virtual void OnThrow(const std::string& reason) = 0;
};

// What has descriptors watched and calls made, wherever these run.
class EventLoop {
 public:
  virtual ~EventLoop() = default;
  virtual uint64_t Add(int fd, uint32_t events, int tag, std::shared_ptr<Pollable> target) = 0;
  virtual void Modify(uint64_t id, uint32_t events) = 0;
  virtual void Remove(uint64_t id) = 0;
  // Has OnKick of `target` called soon, not from within.
  virtual void Kick(std::shared_ptr<Kickable> target) = 0;
};

// Add, Modify and Remove may be called from any thread, also while holding the lock that OnEvents takes.
// After Remove, OnEvents may still be under way or come once for an event already fetched: receivers compare
// `id` with the registration they know. The poller keeps a Pollable alive while it is registered.
class Poller final : public EventLoop {
 public:
  static constexpr int kTickMs = 5;

  Poller() = default;
  ~Poller() override { Stop(); }

  // `on_tick` runs on the poller's thread about every kTickMs; `on_turn`, if there is one, after each event and before
  // the thread sleeps. For as many ns as that returns it does not sleep, but looks again.
  Status Start(std::function<void()> on_tick, std::function<int64_t()> on_turn = nullptr);
  // Joins the thread. No callback runs afterwards. Idempotent; REQUIRES: not called by the poller's thread.
  void Stop();

  uint64_t Add(int fd, uint32_t events, int tag, std::shared_ptr<Pollable> target) override;
  void Modify(uint64_t id, uint32_t events) override;
  void Remove(uint64_t id) override;
  // Within a tick: the next one comes at this time, if that is sooner than usual and at least a millisecond away.
  void TickBy(int64_t time_ns);
  // Whether the kernel watches what was registered.
  bool IsWatched(uint64_t id);
  void Kick(std::shared_ptr<Kickable> target) override;

 private:
  struct Registration {
    int fd;
    int tag;
    std::shared_ptr<Pollable> target;
  };
  // What the kernel refused to watch, and why.
  struct Unwatched {
    uint64_t id;
    int error;
  };

  // Without mutex_ held.
  void Run();
  void Dispatch(uint64_t id, uint32_t events);
  void RunUnwatched();
  bool Find(uint64_t id, Registration* found);
  void NoteUnwatched(uint64_t id) REQUIRES(mutex_);
  void RunKicks();
  void TakeTurn();

  Fd epoll_;
  Fd wake_;
  std::thread thread_;
  std::function<void()> on_tick_;
  std::function<int64_t()> on_turn_;
  int64_t next_tick_ns_ = 0;    // of the poller's thread alone, as what follows
  int64_t awake_until_ns_ = 0;  // until then it looks instead of sleeping
  std::atomic<bool> stopping_{false};
  Mutex mutex_;  // leaf lock: guards what follows
  std::unordered_map<uint64_t, Registration> registrations_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Kickable>> kicked_ GUARDED_BY(mutex_);
  std::vector<Unwatched> unwatched_ GUARDED_BY(mutex_);
  uint64_t next_id_ GUARDED_BY(mutex_) = 1;
};

}  // namespace r2ccl

#endif  // R2CCL_NET_POLLER_H_
