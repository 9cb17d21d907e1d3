// Rdma: the RDMA devices of one process. It makes the queues of its NICs, and receives the devices' events.
#ifndef R2CCL_WIRE_VERBS_DEVICE_H_
#define R2CCL_WIRE_VERBS_DEVICE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/event_log.h"
#include "base/mutex.h"
#include "net/poller.h"
#include "wire/verbs/ibverbs.h"
#include "wire/verbs/ports.h"
#include "wire/verbs/rc_queue.h"
#include "wire/verbs/rdma_memory.h"

namespace r2ccl {

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
  // Whether its driver takes a dmabuf.
  bool TakesDmabuf() const;

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

class LoopbackReader;

class Rdma final : public RcMaker {
 public:
  // Opens the library. An error: this host has no RDMA to use, and why.
  static Status Open(EventLoop* loop, EventLog* log, std::unique_ptr<Rdma>* rdma);
  // REQUIRES: no queue is left.
  ~Rdma() override;
  // Before the poller goes.
  void Unwatch();

  Status Make(const Nic& nic, const RcShape& shape, uint32_t psn, std::weak_ptr<RcWatcher> watcher,
              std::unique_ptr<RcQueue>* queue) override;
  void AddMemory(const char* data, size_t bytes) override { memory_->Add(data, bytes); }
  void DropMemory(const char* data, size_t bytes) override { memory_->Drop(data, bytes); }
  void AddDeviceMemory(const char* data, size_t bytes, const DeviceMemory& device) override {
    memory_->Add(data, bytes, device);
  }
  std::unique_ptr<RcFlush> Flush(const char* data, size_t bytes) override;
  bool TakesDmabuf(const std::vector<Nic>& nics) override;

 private:
  Rdma();
  Status PortOf(const Nic& nic, RcPort* port, std::shared_ptr<RdmaDevice>* device) REQUIRES(mutex_);
  std::shared_ptr<LoopbackReader> ReaderOf(const RdmaMemory::Unflushed& what);
  Status DeviceOf(const std::string& name, std::shared_ptr<RdmaDevice>* device) REQUIRES(mutex_);

  ibv::Library library_;
  VerbsSettings settings_;
  EventLoop* loop_ = nullptr;
  EventLog* log_ = nullptr;
  const std::shared_ptr<RdmaMemory> memory_ = std::make_shared<RdmaMemory>();
  Mutex mutex_;  // guards what follows
  std::map<std::string, std::shared_ptr<RdmaDevice>> devices_ GUARDED_BY(mutex_);
  std::map<in_addr_t, RcPort> ports_ GUARDED_BY(mutex_);  // by the NIC's address, as they were found last
  std::map<std::pair<std::string, int>, std::shared_ptr<LoopbackReader>> readers_ GUARDED_BY(mutex_);  // by ports
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_DEVICE_H_
