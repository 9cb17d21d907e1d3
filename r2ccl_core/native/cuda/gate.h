// Gate: protects calls on communicators that another thread may abort.
//
// NCCL frees a communicator that is aborted. So the aborting thread first shuts the gate: no further call begins, and
// the calls in progress end. A call that waits for a dead peer does not end; only the abort frees it.
#ifndef R2CCL_CUDA_GATE_H_
#define R2CCL_CUDA_GATE_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace r2ccl::cuda {

class Gate {
 public:
  // A call under way; `open` says whether it may be made.
  class Pass {
   public:
    explicit Pass(Gate& gate) : gate_(gate), open_(gate.Enter()) {}
    ~Pass() {
      if (open_) gate_.Leave();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    bool open() const { return open_; }

   private:
    Gate& gate_;
    const bool open_;
  };

  // For good. Waits so long for calls under way.
  void Shut(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    shut_ = true;
    empty_.wait_for(lock, patience, [this] { return calls_ == 0; });
  }

 private:
  bool Enter() {
    std::lock_guard lock(mutex_);
    if (!shut_) ++calls_;
    return !shut_;
  }

  void Leave() {
    std::lock_guard lock(mutex_);
    if (--calls_ == 0) empty_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable empty_;
  int calls_ = 0;
  bool shut_ = false;
};

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_GATE_H_
