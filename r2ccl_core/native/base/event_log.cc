// The bounded event log.
#include "base/event_log.h"

#include <utility>

#include "base/clock.h"

namespace r2ccl {

void EventLog::Add(std::string kind, std::string nic, std::string peer, std::string detail) {
  Event event{WallNs(), std::move(kind), std::move(nic), std::move(peer), std::move(detail)};
  std::lock_guard lock(mutex_);
  if (events_.size() == kCapacity) events_.pop_front();
  events_.push_back(std::move(event));
}

std::vector<Event> EventLog::Snapshot() const {
  std::lock_guard lock(mutex_);
  return {events_.begin(), events_.end()};
}

}  // namespace r2ccl
