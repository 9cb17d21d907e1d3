// Mutex and MutexLock: the standard mutex, with annotations by which Clang's -Wthread-safety proves at compile time
// that whatever a lock guards is accessed only under it. Other compilers see plain C++.
//
//   int count_ GUARDED_BY(mutex_);        read and written with mutex_ held only
//   void Add() REQUIRES(mutex_);          whoever calls it holds mutex_
//
// Lambdas and other threads are checked separately; code that knows better calls mutex_.AssertHeld().
#ifndef R2CCL_BASE_MUTEX_H_
#define R2CCL_BASE_MUTEX_H_

#include <mutex>

#if defined(__clang__)
#define R2CCL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define R2CCL_THREAD_ANNOTATION(x)
#endif

#define CAPABILITY(x) R2CCL_THREAD_ANNOTATION(capability(x))
#define SCOPED_CAPABILITY R2CCL_THREAD_ANNOTATION(scoped_lockable)
#define GUARDED_BY(x) R2CCL_THREAD_ANNOTATION(guarded_by(x))
#define REQUIRES(...) R2CCL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define ACQUIRE(...) R2CCL_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) R2CCL_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) R2CCL_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(x) R2CCL_THREAD_ANNOTATION(assert_capability(x))

namespace r2ccl {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // Says, and does not look.
  void AssertHeld() const ASSERT_CAPABILITY(this) {}

 private:
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  // Takes over one that is held.
  MutexLock(Mutex& mutex, std::adopt_lock_t) REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_MUTEX_H_
