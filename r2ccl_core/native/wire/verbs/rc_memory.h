// RcRanges: the memory that the program has registered, and what a device knows each piece by. A range that is
// registered twice is given back twice.
#ifndef R2CCL_WIRE_VERBS_RC_MEMORY_H_
#define R2CCL_WIRE_VERBS_RC_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace r2ccl {

// `Known` is what belongs to a range. Not thread-safe.
template <typename Known>
class RcRanges {
 public:
  Known& Add(const char* data, size_t bytes) {
    Held& held = ranges_[{data, bytes}];
    ++held.holders;
    return held.known;
  }

  // The range's, when nobody holds it any more.
  std::optional<Known> Drop(const char* data, size_t bytes) {
    auto range = ranges_.find({data, bytes});
    if (range == ranges_.end() || --range->second.holders > 0) return std::nullopt;
    std::optional<Known> known(std::move(range->second.known));
    ranges_.erase(range);
    return known;
  }

  // A range that has all of these bytes; nullptr where there is none.
  struct Range {
    const char* data;
    size_t bytes;
    Known* known;
  };
  std::optional<Range> Find(const char* data, size_t bytes) {
    // Ranges may lie within each other, so the nearest that begins before need not be the one.
    for (auto range = ranges_.upper_bound({data, SIZE_MAX}); range != ranges_.begin();) {
      --range;
      auto [begin, length] = range->first;
      auto before = static_cast<size_t>(data - begin);
      if (before <= length && bytes <= length - before) return Range{begin, length, &range->second.known};
    }
    return std::nullopt;
  }

  void ForEach(const std::function<void(Known*)>& visit) {
    for (auto& [place, range] : ranges_) visit(&range.known);
  }
  size_t size() const { return ranges_.size(); }

 private:
  struct Held {
    int holders = 0;
    Known known{};
  };
  std::map<std::pair<const char*, size_t>, Held> ranges_;
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_RC_MEMORY_H_
