// RdmaMemory: the memory that the program has registered, and by what each device knows it.
#ifndef R2CCL_WIRE_VERBS_RDMA_MEMORY_H_
#define R2CCL_WIRE_VERBS_RDMA_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_registry.h"
#include "base/mutex.h"
#include "base/status.h"
#include "wire/verbs/ibverbs.h"
#include "wire/verbs/ports.h"
#include "wire/verbs/rc_memory.h"
#include "wire/verbs/rc_queue.h"

namespace r2ccl {

class RdmaDevice;

// Each device knows a range by a registration of its own, made when it first needs it. Another device's memory (a
// GPU's) is found by the address at which the processor sees it, like any other, and registered by its own. What is
// written there counts as flushed once the device that wrote it has read there again. Thread-safe; a leaf lock, which
// is held while memory is pinned.
class RdmaMemory {
 public:
  void Add(const char* data, size_t bytes, const std::optional<DeviceMemory>& device = {});
  void Drop(const char* data, size_t bytes);
  // False too where the device cannot register it: `why_not` is then told once for each range, else empty.
  bool Find(const ibv::Library& library, ibv::Pd* pd, const char* data, size_t bytes, RcKeys* keys,
            std::string* why_not);
  // The device touches none of it any more. An error: it may.
  Status Revoke(const ibv::Pd* pd);
  // The same of the range that has these bytes.
  Status RevokeRange(const ibv::Pd* pd, const char* data, size_t bytes);

  // Another device's memory, that this one has written to, or may have.
  void NoteWritten(const ibv::Pd* pd, std::weak_ptr<RdmaDevice> device, const RcPort& port, const char* data,
                   size_t bytes);
  // Who has to read there before these bytes are there for their owner: by `key`, at `address`.
  struct Unflushed {
    std::weak_ptr<RdmaDevice> device;
    RcPort port;
    const ibv::Pd* pd;
    uint64_t writes;  // so far
    uint64_t address;
    uint32_t key;
  };
  std::vector<Unflushed> FindUnflushed(const char* data, size_t bytes);
  void NoteFlushed(const Unflushed& flushed, const char* data, size_t bytes);

 private:
  struct Written {
    std::weak_ptr<RdmaDevice> device;
    RcPort port;
    uint64_t writes = 0;
    uint64_t flushed = 0;
  };
  struct Known {
    std::optional<DeviceMemory> device;
    int (*give_back)(ibv::Mr*) = nullptr;
    std::map<const ibv::Pd*, ibv::Mr*> regions;  // nullptr: it cannot be registered
    std::map<const ibv::Pd*, Written> written;
  };
  static ibv::Mr* Register(const ibv::Library& library, ibv::Pd* pd, const RcRanges<Known>::Range& range);
  Mutex mutex_;
  RcRanges<Known> ranges_ GUARDED_BY(mutex_);
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_RDMA_MEMORY_H_
