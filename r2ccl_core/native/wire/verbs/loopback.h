// Flushing what devices wrote to a GPU's memory: each of them reads there by a queue pair that is connected to itself.
// A read comes after the writes of the same device before it. Not tried on hardware.
#ifndef R2CCL_WIRE_VERBS_LOOPBACK_H_
#define R2CCL_WIRE_VERBS_LOOPBACK_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "wire/verbs/device.h"
#include "wire/verbs/rdma_memory.h"
#include "wire/verbs/verbs_queue.h"

namespace r2ccl {

// Reads of one device by one of its ports. Thread-safe; a leaf lock.
class LoopbackReader {
 public:
  static Status Make(const std::shared_ptr<RdmaDevice>& device, const RcPort& port, const VerbsSettings& settings,
                     uint32_t psn, std::shared_ptr<LoopbackReader>* reader);
  ~LoopbackReader() { (void)queue_->Fence(); }

  // Begins a read of one byte. Without a place for its request `*number` is 0: later again.
  Status Start(uint64_t address, uint32_t key, uint64_t* number);
  // An error: this reader is lost.
  Status Test(uint64_t number, bool* done);
  bool has_failed();
  bool is_of(const RdmaDevice* device) const { return device == device_; }

 private:
  LoopbackReader(const RdmaDevice* device, std::unique_ptr<VerbsQueue> queue)
      : device_(device), queue_(std::move(queue)) {}
  void Reap() REQUIRES(mutex_);

  const RdmaDevice* const device_;
  Mutex mutex_;
  const std::unique_ptr<VerbsQueue> queue_;
  uint64_t started_ GUARDED_BY(mutex_) = 0;
  uint64_t done_ GUARDED_BY(mutex_) = 0;
  Status failure_ GUARDED_BY(mutex_);
  std::vector<RcDone> found_ GUARDED_BY(mutex_);  // empty; keeps its memory
};

// Until every device that wrote to some bytes has read there. A device that cannot loses the memory's registration,
// which ends its writes as well.
class LoopbackFlush final : public RcFlush {
 public:
  LoopbackFlush(std::shared_ptr<RdmaMemory> memory, const char* data, size_t bytes)
      : memory_(std::move(memory)), data_(data), bytes_(bytes) {}

  // `reader` is nullptr where there can be none.
  void Add(const RdmaMemory::Unflushed& what, std::shared_ptr<LoopbackReader> reader) {
    reads_.push_back({what, std::move(reader), 0});
  }
  Status Test(bool* done) override;

 private:
  struct Read {
    RdmaMemory::Unflushed what;
    std::shared_ptr<LoopbackReader> reader;
    uint64_t number;  // 0: not begun
  };
  Status TestRead(Read* read, bool* done);

  const std::shared_ptr<RdmaMemory> memory_;
  const char* const data_;
  const size_t bytes_;
  std::vector<Read> reads_;
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_LOOPBACK_H_
