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
    if (where_[id] < 0) {
      where_[id] = static_cast<int32_t>(heap_.size());
      heap_.emplace_back(time, id);
    } else {
      heap_[where_[id]].first = time;
    }
    SiftDown(SiftUp(where_[id]));
  }

  void PopFirst() {
    where_[heap_.front().second] = -1;
    const auto last = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return;
    heap_.front() = last;
    where_[last.second] = 0;
    SiftDown(0);
  }

 private:
  int32_t SiftUp(int32_t at) {
    while (at > 0 && heap_[at] < heap_[(at - 1) / 2]) {
      Swap(at, (at - 1) / 2);
      at = (at - 1) / 2;
    }
    return at;
  }

  void SiftDown(int32_t at) {
    const auto size = static_cast<int32_t>(heap_.size());
    for (;;) {
      int32_t least = at;
      for (int32_t child = 2 * at + 1; child <= 2 * at + 2 && child < size; ++child) {
        if (heap_[child] < heap_[least]) least = child;
      }
      if (least == at) return;
      Swap(at, least);
      at = least;
    }
  }

  void Swap(int32_t a, int32_t b) {
    std::swap(heap_[a], heap_[b]);
    where_[heap_[a].second] = a;
    where_[heap_[b].second] = b;
  }

  std::vector<std::pair<double, int32_t>> heap_;
  std::vector<int32_t> where_;
};

}  // namespace r2ccl::simulate

#endif  // R2CCL_SIMULATE_EVENT_HEAP_H_
