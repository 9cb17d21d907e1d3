// A binary heap of one pending time per connection, whose times may change: an indexed priority queue.
//
// Invariant: where_[id] is the position of id in heap_, or -1 if it has no pending time.
// Threads: none.
#ifndef R2CCL_SIMULATE_EVENT_HEAP_H_
#define R2CCL_SIMULATE_EVENT_HEAP_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace r2ccl::simulate {

class EventHeap {
 public:
  explicit EventHeap(int32_t nids) : where_(nids, -1) {}

  bool empty() const { return heap_.empty(); }
  double first_time() const { return heap_.front().first; }
  int32_t first_id() const { return heap_.front().second; }

  void Set(int32_t id, double time) {
    int32_t at = where_[id];
    if (at < 0) {
      at = static_cast<int32_t>(heap_.size());
      heap_.emplace_back();
    } else if (heap_[at].first == time) {
      return;
    }
    Settle(at, {time, id});
  }

 private:
  using Entry = std::pair<double, int32_t>;

  // Puts the entry at that free position, or where others that move over leave one.
  void Settle(int32_t at, const Entry& entry) {
    while (at > 0 && entry < heap_[(at - 1) / 2]) at = Move((at - 1) / 2, at);
    const auto size = static_cast<int32_t>(heap_.size());
    for (int32_t child = 2 * at + 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && heap_[child + 1] < heap_[child]) ++child;
      if (!(heap_[child] < entry)) break;
      at = Move(child, at);
    }
    heap_[at] = entry;
    where_[entry.second] = at;
  }

  int32_t Move(int32_t from, int32_t to) {
    heap_[to] = heap_[from];
    where_[heap_[to].second] = to;
    return from;
  }

  std::vector<Entry> heap_;
  std::vector<int32_t> where_;
};

}  // namespace r2ccl::simulate

#endif  // R2CCL_SIMULATE_EVENT_HEAP_H_
