// Rdma: the RDMA devices of one process. It makes the queues of its NICs, and receives the devices' events.
#ifndef R2CCL_WIRE_VERBS_DEVICE_H_
#define R2CCL_WIRE_VERBS_DEVICE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/event_log.h"
#include "base/mutex.h"
#include "net/poller.h"
#include "wire/verbs/ibverbs.h"
#include "wire/verbs/ports.h"
#include "wire/verbs/rc_memory.h"
#include "wire/verbs/rc_queue.h"

namespace r2ccl {

// The memory that the program has registered. Each device knows a range by a registration of its own, made when it
// first needs it. Thread-safe; a leaf lock, which is held while memory is pinned.
class RdmaMemory {
 public:
  void Add(const char* data, size_t bytes);
  void Drop(const char* data, size_t bytes);
  // False too where the device cannot register it: `why_not` is then told once for each range, else empty.
  bool Find(const ibv::Library& library, ibv::Pd* pd, const char* data, size_t bytes, RcKeys* keys,
            std::string* why_not);
  // The device touches none of it any more. An error: it may.
  Status Revoke(const ibv::Pd* pd);

 private:
  struct Known {
    int (*give_back)(ibv::Mr*) = nullptr;
    std::map<const ibv::Pd*, ibv::Mr*> regions;  // nullptr: it cannot be registered
  };
  Mutex mutex_;
  RcRanges<Known> ranges_ GUARDED_BY(mutex_);
};

// Opened once, for as long as the process has queues on it. Thread-safe.
class RdmaDevice final : public Pollable, public std::enable_shared_from_this<RdmaDevice> {
 public:
  // `memory` outlives it, or is nullptr.
  RdmaDevice(const ibv::Library& library, std::string name, std::shared_ptr<RdmaMemory> memory = nullptr)
      : library_(library), name_(std::move(name)), memory_(std::move(memory)) {}
  ~RdmaDevice() override;

  Status Open(EventLoop* loop, EventLog* log);
  // No more events: before the poller goes.
  void Unwatch();
  bool is_gone() const { return gone_.load(); }
  // Queues that live.
  size_t queues();

  Status MakeQueue(const RcPort& port, const VerbsSettings& settings, const RcShape& shape, uint32_t psn,
                   std::weak_ptr<RcWatcher> watcher, std::unique_ptr<RcQueue>* queue);

  void OnEvents(uint64_t id, int tag, uint32_t events) override;
  void OnUnwatched(uint64_t, int, const std::string&) override {}
  void OnThrow(const std::string&) override {}

 private:
  friend class VerbsQueue;
  struct Made {
    RcPort port;
    const void* qp;
    const void* cq;
    std::weak_ptr<RcWatcher> watcher;
  };

  void Take(const ibv::AsyncEvent& event, std::vector<std::weak_ptr<RcWatcher>>* concerned, std::string* reason);
  void Forget(const void* qp);

  const ibv::Library library_;
  const std::string name_;
  const std::shared_ptr<RdmaMemory> memory_;
  ibv::Context* context_ = nullptr;
  ibv::Pd* pd_ = nullptr;
  EventLoop* loop_ = nullptr;
  EventLog* log_ = nullptr;
  uint64_t poll_id_ = 0;
  std::atomic<bool> gone_{false};
  Mutex mutex_;  // leaf lock: guards what follows
  std::vector<Made> made_ GUARDED_BY(mutex_);
};

class Rdma final : public RcMaker {
 public:
  // Opens the library. An error: this host has no RDMA to use, and why.
  static Status Open(EventLoop* loop, EventLog* log, std::unique_ptr<Rdma>* rdma);
  // REQUIRES: no queue is left.
  ~Rdma() override = default;
  // Before the poller goes.
  void Unwatch();

  Status Make(const Nic& nic, const RcShape& shape, uint32_t psn, std::weak_ptr<RcWatcher> watcher,
              std::unique_ptr<RcQueue>* queue) override;
  void AddMemory(const char* data, size_t bytes) override { memory_->Add(data, bytes); }
  void DropMemory(const char* data, size_t bytes) override { memory_->Drop(data, bytes); }

 private:
  Rdma() = default;
  Status DeviceOf(const std::string& name, std::shared_ptr<RdmaDevice>* device) REQUIRES(mutex_);

  ibv::Library library_;
  VerbsSettings settings_;
  EventLoop* loop_ = nullptr;
  EventLog* log_ = nullptr;
  const std::shared_ptr<RdmaMemory> memory_ = std::make_shared<RdmaMemory>();
  Mutex mutex_;  // guards what follows
  std::map<std::string, std::shared_ptr<RdmaDevice>> devices_ GUARDED_BY(mutex_);
  std::map<in_addr_t, RcPort> ports_ GUARDED_BY(mutex_);  // by the NIC's address, as they were found last
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_DEVICE_H_
