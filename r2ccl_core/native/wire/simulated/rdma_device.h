// RdmaDevice of a simulated host: queue pairs as an RDMA NIC has them, over packets that get lost, come late or twice,
// and with completions that may be lost, late, or told again.
//
// A queue pair is the device's. Where its process goes on without having fenced it, it lives on for a while, and what
// comes late still lands: in memory that was given back. Numbers are used again at once, so that late packets of an old
// queue pair find a new one.
//
// A write reads the sending program's memory whenever a packet of it is sent, or sent again, and lands in the receiving
// program's as they come. Memory that was given back must not be needed for either.
#ifndef R2CCL_WIRE_SIMULATED_RDMA_DEVICE_H_
#define R2CCL_WIRE_SIMULATED_RDMA_DEVICE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "wire/simulated/world.h"
#include "wire/verbs/rc_memory.h"
#include "wire/verbs/rc_queue.h"

namespace r2ccl::simulated {

class QueuePair;

class RdmaDevice final : public RcMaker {
 public:
  // `on_readable` hears of the descriptor (number) of a queue pair that has something to tell.
  RdmaDevice(World* world, int host, std::function<void(int fd)> on_readable);
  ~RdmaDevice() override;

  Status Make(const Nic& nic, const RcShape& shape, uint32_t psn, std::weak_ptr<RcWatcher> watcher,
              std::unique_ptr<RcQueue>* queue) override;
  void AddMemory(const char* data, size_t bytes) override;
  void DropMemory(const char* data, size_t bytes) override;
  bool IsReadable(int fd) const;
  void Take(const Packet& packet, int rail);
  // Those that are told that their queue is lost.
  std::vector<std::weak_ptr<RcWatcher>> Watchers(int rail) const;
  // The device of that NIC fails with all it has, and has no queue pairs until it is well again.
  void SetGone(int rail, bool gone);
  // The process has ended: its kernel gives everything back.
  void Clear();
  // That the process has.
  size_t queues() const;
  // Not even one that is the device's alone.
  bool is_empty() const { return pairs_.empty(); }

 private:
  friend class QueuePair;
  bool Knows(uint32_t key, const char* data, size_t bytes);

  World* const world_;
  const int host_;
  const std::function<void(int)> on_readable_;
  std::map<uint32_t, std::shared_ptr<QueuePair>> pairs_;
  std::vector<bool> gone_;
  // What the program has registered, by keys that are never used again.
  RcRanges<uint32_t> memory_;
  uint32_t next_key_ = 1;
};

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_RDMA_DEVICE_H_
