// Fabric: in-memory queue pairs that the tests can break, for streams without an RDMA device.
#ifndef R2CCL_TESTS_MEMORY_QUEUE_H_
#define R2CCL_TESTS_MEMORY_QUEUE_H_

#include <sys/eventfd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/socket.h"
#include "wire/verbs/rc_memory.h"
#include "wire/verbs/rc_queue.h"

namespace r2ccl {

class MemoryQueue;

// All queue pairs of a test. A message is in its receiver's memory as soon as it is sent, unless a fault says
// otherwise.
class Fabric final : public RcMaker {
 public:
  Status Make(const Nic& nic, const RcShape& shape, uint32_t psn, std::weak_ptr<RcWatcher> watcher,
              std::unique_ptr<RcQueue>* queue) override;

  void AddMemory(const char* data, size_t bytes) override {
    MutexLock lock(mutex_);
    memory_.Add(data, bytes);
  }
  // What a device moves at `device.address` it finds where AddDevice says.
  void AddDeviceMemory(const char* data, size_t bytes, const DeviceMemory& device) override {
    MutexLock lock(mutex_);
    memory_.Add(data, bytes) = device.address;
  }
  void AddDevice(uint64_t address, char* bus, size_t bytes) {
    MutexLock lock(mutex_);
    devices_.push_back({address, bus, bytes});
  }
  // Writes into memory of a device that have landed, as their queues were told to note.
  std::atomic<int> noted{0};
  void DropMemory(const char* data, size_t bytes) override {
    MutexLock lock(mutex_);
    memory_.Drop(data, bytes);
  }

  // While it is true writes are on their way, and land afterwards, if their queues are still connected.
  std::atomic<bool> holds_writes{false};
  void LandWrites();

  // Messages larger than this are lost, and so is everything behind them: their queue says nothing more.
  std::atomic<size_t> largest{SIZE_MAX};
  std::atomic<bool> has_ports{true};
  // Of a queue that goes the other end hears at once; else only by its own time-out, as a device does.
  std::atomic<bool> tells_ends{true};

  // The completions of what comes to the queues on this NIC are lost.
  std::atomic<in_addr_t> loses_completions_of{INADDR_NONE};

  // As a port says that it went down: the queues on `nic` are told.
  void FailPort(in_addr nic);
  // As the other end's silence ends: every send on `nic` fails.
  void FailSends(in_addr nic);
  size_t queues() {
    MutexLock lock(mutex_);
    return queues_.size();
  }

 private:
  friend class MemoryQueue;
  Mutex mutex_;
  std::map<uint32_t, MemoryQueue*> queues_ GUARDED_BY(mutex_);
  // Where a device finds these bytes by the address that was granted; nullptr: it does not know it.
  char* Reach(uint64_t address, size_t bytes) REQUIRES(mutex_) {
    for (const Device& device : devices_) {
      if (address >= device.address && address + bytes <= device.address + device.bytes) {
        return device.bus + (address - device.address);
      }
    }
    auto range = memory_.Find(reinterpret_cast<char*>(address), bytes);
    return range && *range->known == 0 ? reinterpret_cast<char*>(address) : nullptr;
  }
  struct Device {
    uint64_t address;
    char* bus;
    size_t bytes;
  };
  std::vector<Device> devices_ GUARDED_BY(mutex_);
  RcRanges<uint64_t> memory_ GUARDED_BY(mutex_);  // the address by which devices know it, 0: its own
  uint32_t next_ GUARDED_BY(mutex_) = 1;
};

class MemoryQueue final : public RcQueue {
 public:
  MemoryQueue(Fabric* fabric, const Nic& nic, const RcShape& shape, std::weak_ptr<RcWatcher> watcher)
      : fabric_(fabric),
        nic_(nic),
        shape_(shape),
        watcher_(std::move(watcher)),
        event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        memory_(size_t{shape.send_slots} * shape.send_bytes + size_t{shape.receive_slots} * shape.receive_bytes) {
    MutexLock lock(fabric_->mutex_);
    number_ = fabric_->next_++;
    fabric_->queues_[number_] = this;
  }
  ~MemoryQueue() override {
    MutexLock lock(fabric_->mutex_);
    fabric_->queues_.erase(number_);
    if (!fabric_->tells_ends) return;
    for (auto& [number, queue] : fabric_->queues_) {
      if (queue->peer_ == number_) queue->Fail("the other end is gone");
    }
  }

  RcAddress address() const override {
    RcAddress address;
    address.number = number_;
    address.mtu = 5;
    address.receive_slots = shape_.receive_slots;
    address.receive_bytes = shape_.receive_bytes;
    return address;
  }
  std::string device() const override { return "memory"; }
  Status Connect(const RcAddress& peer) override {
    MutexLock lock(fabric_->mutex_);
    peer_ = peer.number;
    return {};
  }
  Status Fence() override {
    MutexLock lock(fabric_->mutex_);
    peer_ = 0;
    posted_.clear();
    held_.clear();
    Landed();
    return {};
  }
  char* send_slot(uint32_t slot) override { return memory_.data() + size_t{slot} * shape_.send_bytes; }
  char* receive_slot(uint32_t slot) override {
    return memory_.data() + size_t{shape_.send_slots} * shape_.send_bytes + size_t{slot} * shape_.receive_bytes;
  }
  Status PostReceive(uint64_t id, uint32_t slot) override {
    MutexLock lock(fabric_->mutex_);
    posted_.push_back({id, slot});
    return {};
  }
  Status PostSend(uint64_t id, uint32_t slot, uint32_t bytes) override {
    MutexLock lock(fabric_->mutex_);
    under_way_.push_back(id);
    auto peer = fabric_->queues_.find(peer_);
    silent_ |= bytes > fabric_->largest || peer == fabric_->queues_.end() || peer->second->peer_ != number_;
    if (silent_) return {};
    if (!held_.empty()) return {Code::kProtocol, "a message would overtake writes"};
    MemoryQueue& to = *peer->second;
    if (to.posted_.empty()) return {Code::kProtocol, "nothing is posted for a message: slots were counted wrongly"};
    auto [receive, place] = to.posted_.front();
    to.posted_.pop_front();
    std::memcpy(to.receive_slot(place), send_slot(slot), bytes);
    if (to.nic_.address.s_addr != fabric_->loses_completions_of) to.Add({receive, "", bytes});
    under_way_.pop_back();
    Add({id, "", 0});
    return {};
  }
  bool Find(const char* data, size_t bytes, RcKeys* keys) override {
    MutexLock lock(fabric_->mutex_);
    auto range = fabric_->memory_.Find(data, bytes);
    if (!range) return false;
    uint64_t device = *range->known;
    uint64_t base = device != 0 ? device : reinterpret_cast<uint64_t>(range->data);
    *keys = {1, 2, base + static_cast<uint64_t>(data - range->data), device != 0};
    return true;
  }
  Status PostWrite(uint64_t id, uint64_t from, uint32_t bytes, uint32_t local_key, uint64_t address,
                   uint32_t remote_key) override {
    MutexLock lock(fabric_->mutex_);
    if (local_key != 1) return {Code::kProtocol, "a write by another key"};
    under_way_.push_back(id);
    auto peer = fabric_->queues_.find(peer_);
    silent_ |= peer == fabric_->queues_.end() || peer->second->peer_ != number_;
    if (silent_) return {};
    held_.push_back({id, from, address, bytes, remote_key});
    if (!fabric_->holds_writes) Land();
    return {};
  }
  void Granted(const char*, size_t) override { granted_ = true; }
  void Landed() override {
    if (std::exchange(granted_, false)) ++fabric_->noted;
  }
  Status Poll(std::vector<RcDone>* done) override {
    MutexLock lock(fabric_->mutex_);
    done->insert(done->end(), done_.begin(), done_.end());
    done_.clear();
    return {};
  }
  int fd() const override { return event_.get(); }
  void Arm() override {
    MutexLock lock(fabric_->mutex_);
    armed_ = true;
  }
  void TakeEvents() override {
    eventfd_t count = 0;
    eventfd_read(event_.get(), &count);
  }

 private:
  friend class Fabric;
  // With the fabric's lock held.
  void Add(RcDone done) {
    done_.push_back(std::move(done));
    if (std::exchange(armed_, false)) eventfd_write(event_.get(), 1);
  }
  // What both ends still stand for, in memory that is registered.
  void Land() {
    auto peer = fabric_->queues_.find(peer_);
    bool stands = peer != fabric_->queues_.end() && peer->second->peer_ == number_;
    for (const Held& one : std::exchange(held_, {})) {
      if (!stands) continue;
      char *from = fabric_->Reach(one.from, one.bytes), *to = fabric_->Reach(one.to, one.bytes);
      if (from == nullptr || to == nullptr || one.remote_key != 2) return Fail("remote access error");
      std::memcpy(to, from, one.bytes);
      std::erase(under_way_, one.id);
      Add({one.id, "", 0});
    }
  }
  void Fail(const std::string& reason) {
    silent_ = true;
    for (uint64_t id : under_way_) Add({id, reason, 0});
    if (under_way_.empty() && !posted_.empty()) Add({posted_.front().first, reason, 0});
    under_way_.clear();
  }

  Fabric* const fabric_;
  const Nic nic_;
  const RcShape shape_;
  const std::weak_ptr<RcWatcher> watcher_;
  const Fd event_;
  std::vector<char> memory_;
  uint32_t number_ = 0;
  uint32_t peer_ = 0;
  bool armed_ = false;
  bool silent_ = false;
  bool granted_ = false;
  std::deque<std::pair<uint64_t, uint32_t>> posted_;
  std::deque<uint64_t> under_way_;
  struct Held {
    uint64_t id;
    uint64_t from;
    uint64_t to;
    uint32_t bytes;
    uint32_t remote_key;
  };
  std::vector<Held> held_;
  std::vector<RcDone> done_;
};

inline Status Fabric::Make(const Nic& nic, const RcShape& shape, uint32_t, std::weak_ptr<RcWatcher> watcher,
                           std::unique_ptr<RcQueue>* queue) {
  if (!has_ports) return {Code::kPeerLost, "the port is not active"};
  *queue = std::make_unique<MemoryQueue>(this, nic, shape, std::move(watcher));
  return {};
}

inline void Fabric::LandWrites() {
  MutexLock lock(mutex_);
  holds_writes = false;
  for (auto& [number, queue] : queues_) queue->Land();
}

inline void Fabric::FailPort(in_addr nic) {
  std::vector<std::weak_ptr<RcWatcher>> watchers;
  {
    MutexLock lock(mutex_);
    for (auto& [number, queue] : queues_) {
      if (queue->nic_.address.s_addr == nic.s_addr) watchers.push_back(queue->watcher_);
    }
  }
  for (const auto& weak : watchers) {
    if (auto watcher = weak.lock()) watcher->OnQueueLost("the port went down");
  }
}

inline void Fabric::FailSends(in_addr nic) {
  MutexLock lock(mutex_);
  for (auto& [number, queue] : queues_) {
    if (queue->nic_.address.s_addr == nic.s_addr) queue->Fail("transport retry counter exceeded");
  }
}

}  // namespace r2ccl

#endif  // R2CCL_TESTS_MEMORY_QUEUE_H_
