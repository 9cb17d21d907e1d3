// ByteQueue: bytes that come at one end and leave at the other, without the rest being moved for it each time.
#ifndef R2CCL_WIRE_SIMULATED_BYTE_QUEUE_H_
#define R2CCL_WIRE_SIMULATED_BYTE_QUEUE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace r2ccl::simulated {

class ByteQueue {
 public:
  size_t size() const { return bytes_.size() - gone_; }
  bool empty() const { return size() == 0; }
  void Append(std::string_view bytes) { bytes_.append(bytes); }
  // Valid until the next change.
  std::string_view From(size_t place) const { return std::string_view(bytes_).substr(gone_ + place); }
  // The first `count` leave.
  void Drop(size_t count) {
    gone_ += count;
    if (gone_ == bytes_.size()) return Clear();
    if (gone_ < kMostGone || gone_ < bytes_.size() / 2) return;
    bytes_.erase(0, gone_);
    gone_ = 0;
  }
  void Clear() {
    bytes_.clear();
    gone_ = 0;
  }

 private:
  static constexpr size_t kMostGone = 64 * 1024;  // of less it is not worth a move

  std::string bytes_;
  size_t gone_ = 0;  // of them, from the beginning
};

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_BYTE_QUEUE_H_
