// EventQueue: events by their times; equal times in the order in which they were made.
//
// Most events come within milliseconds. They wait in slots of equal length, as lists. Those of the slot whose time has
// come, a few, are sorted, the next one last. What comes later waits in a heap of its own.
#ifndef R2CCL_WIRE_SIMULATED_EVENT_QUEUE_H_
#define R2CCL_WIRE_SIMULATED_EVENT_QUEUE_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "wire/simulated/task.h"

namespace r2ccl::simulated {

struct Event {
  int64_t when_ns;
  uint64_t number;  // in the order in which they were made; odd: it is news
  Task what;
  Event* next;  // of the same slot
};

// Has no event of its own: those in it stay where they are.
class EventQueue {
 public:
  bool empty() const { return size_ == 0; }
  void Push(Event* event) {
    ++size_;
    int64_t slot = SlotOf(event->when_ns);
    if (slot <= slot_) return Insert(Entry(event));
    if (slot - slot_ >= kSlots) return PushLate(Entry(event));
    size_t place = PlaceOf(slot);
    event->next = std::exchange(slots_[place], event);
    occupied_[place / 64] |= uint64_t{1} << place % 64;
  }
  // The next one. REQUIRES: there is one.
  Event* Top() {
    if (due_.empty()) Advance();
    return due_.back().event;
  }
  // Takes it out. REQUIRES: Top was called.
  void Pop() {
    --size_;
    due_.pop_back();
  }

 private:
  // What decides on an event's place.
  struct Entry {
    explicit Entry(Event* of) : when_ns(of->when_ns), number(of->number), event(of) {}
    bool operator>(const Entry& other) const {
      // Without a branch, which nothing could predict.
      return (when_ns > other.when_ns) | ((when_ns == other.when_ns) & (number > other.number));
    }
    int64_t when_ns;
    uint64_t number;
    Event* event;
  };
  static constexpr int kSlotBits = 15;  // 33 us
  static constexpr int64_t kSlots = 512;

  static int64_t SlotOf(int64_t when_ns) { return when_ns >> kSlotBits; }
  static size_t PlaceOf(int64_t slot) { return static_cast<size_t>(slot % kSlots); }
  void Insert(const Entry& entry) {
    due_.push_back(entry);
    auto place = due_.end() - 1;
    for (; place != due_.begin() && entry > place[-1]; --place) *place = place[-1];
    *place = entry;
  }
  void PushLate(const Entry& entry) {
    late_.push_back(entry);
    std::push_heap(late_.begin(), late_.end(), std::greater<>());
  }
  void PopLate() {
    std::pop_heap(late_.begin(), late_.end(), std::greater<>());
    late_.pop_back();
  }
  // To the next slot that has an event, wherever that waits.
  void Advance() {
    int64_t next = NextOccupied();
    if (!late_.empty()) next = std::min(next, SlotOf(late_.front().when_ns));
    slot_ = next;
    size_t place = PlaceOf(next);
    for (Event* event = std::exchange(slots_[place], nullptr); event != nullptr; event = event->next) {
      due_.emplace_back(event);
    }
    occupied_[place / 64] &= ~(uint64_t{1} << place % 64);
    std::sort(due_.begin(), due_.end(), std::greater<>());
    for (; !late_.empty() && SlotOf(late_.front().when_ns) == slot_; PopLate()) Insert(late_.front());
  }
  int64_t NextOccupied() const {
    size_t first = PlaceOf(slot_ + 1);
    for (size_t i = 0; i <= occupied_.size(); ++i) {
      size_t word = (first / 64 + i) % occupied_.size();
      uint64_t bits = occupied_[word];
      if (i == 0) bits &= ~uint64_t{0} << first % 64;
      if (bits == 0) continue;
      auto place = word * 64 + static_cast<size_t>(std::countr_zero(bits));
      return slot_ + 1 + static_cast<int64_t>((place + kSlots - first) % kSlots);
    }
    return INT64_MAX;
  }

  size_t size_ = 0;
  int64_t slot_ = 0;        // of what is due
  std::vector<Entry> due_;  // sorted
  std::vector<Entry> late_;
  std::array<Event*, kSlots> slots_{};  // those within kSlots of slot_
  std::array<uint64_t, kSlots / 64> occupied_{};
};

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_EVENT_QUEUE_H_
