// Buffers: device memory that is used again once all who had it have let go of it, and is freed with the pool.
//
// A graph holds the memory that its operations use for as long as it may be launched, and lets go of it on a thread
// where CUDA must not be called.
#ifndef R2CCL_CUDA_BUFFERS_H_
#define R2CCL_CUDA_BUFFERS_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device.h"

namespace r2ccl::cuda {

// Any thread may let go of a buffer, also after the pool's end.
class Buffers {
 public:
  struct Buffer {
    char* memory = nullptr;
    size_t bytes = 0;
  };

  explicit Buffers(Device& device) : device_(device), idle_(std::make_shared<Idle>()) {}
  // Nobody may use what is left.
  ~Buffers() {
    for (const auto& one : all_) device_.Free(one->memory);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // The smallest idle one of so many bytes, or a new one; null where the device has no memory.
  std::shared_ptr<const Buffer> Take(size_t bytes) {
    Buffer* taken = idle_->Take(bytes);
    if (taken == nullptr) {
      void* memory = nullptr;
      if (!device_.Allocate(bytes, &memory)) return nullptr;
      all_.push_back(std::make_unique<Buffer>(Buffer{static_cast<char*>(memory), bytes}));
      taken = all_.back().get();
    }
    return {taken, [idle = idle_](Buffer* buffer) { idle->Put(buffer); }};
  }

 private:
  class Idle {
   public:
    void Put(Buffer* buffer) {
      std::lock_guard lock(mutex_);
      buffers_.push_back(buffer);
    }
    Buffer* Take(size_t bytes) {
      std::lock_guard lock(mutex_);
      auto best = buffers_.end();
      for (auto at = buffers_.begin(); at != buffers_.end(); ++at) {
        if ((*at)->bytes >= bytes && (best == buffers_.end() || (*at)->bytes < (*best)->bytes)) best = at;
      }
      if (best == buffers_.end()) return nullptr;
      Buffer* taken = *best;
      buffers_.erase(best);
      return taken;
    }

   private:
    std::mutex mutex_;
    std::vector<Buffer*> buffers_;
  };

  Device& device_;
  std::vector<std::unique_ptr<Buffer>> all_;
  std::shared_ptr<Idle> idle_;
};

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_BUFFERS_H_
