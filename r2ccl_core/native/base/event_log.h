// EventLog: a bounded log of what happened to which NIC and when, for people and for the harness's timelines.
#ifndef R2CCL_BASE_EVENT_LOG_H_
#define R2CCL_BASE_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/notifier.h"

namespace r2ccl {

struct Event {
  int64_t wall_ns;     // CLOCK_REALTIME
  std::string kind;    // such as path_down; docs/guides/nccl.md has the list
  std::string nic;     // local NIC, may be empty
  std::string peer;    // address of the other end, may be empty
  std::string detail;  // one line, for people
  std::string cause;   // of some kinds, for programs: docs/guides/nccl.md has the list
};

// Thread-safe. Keeps the newest `kCapacity` events.
class EventLog {
 public:
  static constexpr size_t kCapacity = 4096;

  void Add(std::string kind, std::string nic, std::string peer, std::string detail, std::string cause = "");
  // The newest events, at most `most`, the oldest of them first.
  std::vector<Event> Snapshot(size_t most = kCapacity) const;
  // How many were ever added.
  uint64_t total() const;
  // Moves on with every event.
  Notifier& added() { return added_; }

 private:
  mutable Mutex mutex_;
  std::deque<Event> events_ GUARDED_BY(mutex_);
  uint64_t total_ GUARDED_BY(mutex_) = 0;
  Notifier added_;
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_EVENT_LOG_H_
