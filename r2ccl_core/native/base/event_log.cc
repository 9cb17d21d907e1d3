// The bounded event log.
#include "base/event_log.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace r2ccl {

void EventLog::Add(std::string kind, std::string nic, std::string peer, std::string detail, std::string cause) {
  Event event{WallNs(), std::move(kind), std::move(nic), std::move(peer), std::move(detail), std::move(cause)};
  {
    MutexLock lock(mutex_);
    if (events_.size() == kCapacity) events_.pop_front();
    events_.push_back(std::move(event));
    ++total_;
  }
  added_.Notify();
}

std::vector<Event> EventLog::Snapshot(size_t most) const {
  MutexLock lock(mutex_);
  size_t count = std::min(most, events_.size());
  return {events_.end() - static_cast<std::ptrdiff_t>(count), events_.end()};
}

uint64_t EventLog::total() const {
  MutexLock lock(mutex_);
  return total_;
}

}  // namespace r2ccl
