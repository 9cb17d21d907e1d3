// RcQueue: one reliable connected queue pair with the memory that it sends from and receives into, and nothing of what
// is said over it. The real one is in device.cc; the tests have one without a device.
#ifndef R2CCL_WIRE_VERBS_RC_QUEUE_H_
#define R2CCL_WIRE_VERBS_RC_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_registry.h"
#include "base/status.h"
#include "net/nic.h"
#include "wire/verbs/ports.h"

namespace r2ccl {

// How the memory of a queue is divided: messages of these sizes, each with a slot of its own.
struct RcShape {
  uint32_t send_slots = 0;
  uint32_t send_bytes = 0;
  uint32_t receive_slots = 0;
  uint32_t receive_bytes = 0;
  uint32_t writes = 0;  // beside the messages, at once
  uint32_t reads = 0;   // likewise
};

// By which devices know registered memory.
struct RcKeys {
  uint32_t local = 0;
  uint32_t remote = 0;
  uint64_t address = 0;    // of the bytes that were looked for
  bool is_device = false;  // a GPU's: its owner sees what is written there once it was flushed
};

// What the other end has to know of a queue.
struct RcAddress {
  GidBytes gid{};
  uint32_t number = 0;  // of the queue pair, 24 bits
  uint32_t psn = 0;     // that its first packet has, 24 bits
  uint32_t mtu = 0;     // of its port, as verbs count: 1 is 256 bytes, 5 is 4096
  uint16_t lid = 0;
  uint8_t infiniband = 0;  // its link layer
  uint32_t receive_slots = 0;
  uint32_t receive_bytes = 0;
};

inline constexpr uint32_t kMostPsn = (1 << 24) - 1;
uint32_t RandomWord();
inline constexpr size_t kRcAddressBytes = 44;
std::string EncodeRcAddress(const RcAddress& address);
// Refuses what no correct peer says.
Status DecodeRcAddress(const std::vector<uint8_t>& bytes, RcAddress* address);

// What became of a request.
struct RcDone {
  uint64_t id = 0;
  std::string error;   // empty: it is well
  uint32_t bytes = 0;  // that were received
};

// Not thread-safe.
class RcQueue {
 public:
  // Its memory goes. REQUIRES: it was fenced, or never connected.
  virtual ~RcQueue() = default;

  virtual RcAddress address() const = 0;
  // The name of its device.
  virtual std::string device() const = 0;
  // From now on it can send and receive.
  virtual Status Connect(const RcAddress& peer) = 0;
  // Once this returns, nothing from the other end lands in its memory or in the program's, however late it comes, and
  // nothing of either is read. An error: the device does not say so, and keeps the memory for good. There is no way
  // back.
  virtual Status Fence() = 0;

  virtual char* send_slot(uint32_t slot) = 0;
  virtual char* receive_slot(uint32_t slot) = 0;
  virtual Status PostSend(uint64_t id, uint32_t slot, uint32_t bytes) = 0;
  virtual Status PostReceive(uint64_t id, uint32_t slot) = 0;
  // Whether all these bytes lie in memory that the program has registered, and by what the queue's device knows it.
  virtual bool Find(const char* data, size_t bytes, RcKeys* keys) = 0;
  // Puts what the queue's device has at `from` where the other end's device has `address` in the memory that it knows
  // by `remote_key`, in front of all messages that are sent later.
  virtual Status PostWrite(uint64_t id, uint64_t from, uint32_t bytes, uint32_t local_key, uint64_t address,
                           uint32_t remote_key) = 0;
  // The other end may write to these bytes of a GPU's from now on; and it has, or will not any more. Fence ends that,
  // too.
  virtual void Granted(const char*, size_t) {}
  virtual void Landed() {}
  // Adds what is done to `done`.
  virtual Status Poll(std::vector<RcDone>* done) = 0;

  // Readable once something is done after Arm().
  virtual int fd() const = 0;
  virtual void Arm() = 0;
  // It was readable.
  virtual void TakeEvents() = 0;
};

// Whoever has a queue, told when it is lost by what the device or its port says. Called without any lock, by the thread
// that hears of it.
class RcWatcher {
 public:
  virtual ~RcWatcher() = default;
  virtual void OnQueueLost(const std::string& reason) = 0;
};

// What devices wrote to a GPU's memory, on its way to where the GPU sees it.
class RcFlush {
 public:
  virtual ~RcFlush() = default;
  // An error: nobody knows whether it is there.
  virtual Status Test(bool* done) = 0;
};

// Its queues find the registered memory.
class RcMaker : public MemoryRegistry {
 public:
  // A GPU's memory, which the processor sees at `data`; until DropMemory. Where it is not taken, the processor moves
  // it.
  virtual void AddDeviceMemory(const char*, size_t, const DeviceMemory&) {}
  // nullptr: nothing was written there but by the processor.
  virtual std::unique_ptr<RcFlush> Flush(const char*, size_t) { return nullptr; }
  // Whether every device takes a GPU's memory by a dmabuf.
  virtual bool TakesDmabuf(const std::vector<Nic>&) { return false; }

  // One that can be connected, on the port that has the NIC's address. Its first packet has the number `psn`, of 24
  // bits: a random one, so that late packets of a queue pair that had its number before do not fit. An error says what
  // is missing; kPeerLost: only the link, which may come back.
  virtual Status Make(const Nic& nic, const RcShape& shape, uint32_t psn, std::weak_ptr<RcWatcher> watcher,
                      std::unique_ptr<RcQueue>* queue) = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_RC_QUEUE_H_
