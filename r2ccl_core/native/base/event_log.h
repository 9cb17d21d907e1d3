// EventLog: what happened to which NIC and when, bounded, for people and for the harness's timelines.
#ifndef R2CCL_BASE_EVENT_LOG_H_
#define R2CCL_BASE_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace r2ccl {

struct Event {
  int64_t wall_ns;     // CLOCK_REALTIME
  std::string kind;    // path_up, path_down, path_returned, migrated, refused, failed
  std::string nic;     // local NIC, may be empty
  std::string peer;    // address of the other end, may be empty
  std::string detail;  // one line
};

// Thread-safe. Keeps the newest `kCapacity` events.
class EventLog {
 public:
  static constexpr size_t kCapacity = 4096;

  void Add(std::string kind, std::string nic, std::string peer, std::string detail);
  std::vector<Event> Snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::deque<Event> events_;
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_EVENT_LOG_H_
