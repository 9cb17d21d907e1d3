// The shared fate of connections that end together, such as the stripes of one NCCL connection: the first failure, and
// its message.
#ifndef R2CCL_FAILOVER_FATE_H_
#define R2CCL_FAILOVER_FATE_H_

#include <atomic>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace r2ccl {

class Fate {
 public:
  void Seal(const Status& failure) {
    MutexLock lock(mutex_);
    if (!sealed_.load()) failure_ = failure;
    sealed_.store(true);
  }
  // Waits for nobody.
  bool sealed() const { return sealed_.load(); }
  Status failure() const {
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  mutable Mutex mutex_;
  std::atomic<bool> sealed_{false};
  Status failure_ GUARDED_BY(mutex_);
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_FATE_H_
