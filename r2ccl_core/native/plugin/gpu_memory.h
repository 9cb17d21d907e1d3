// GpuMemory: a GPU's memory in the processor's address space, through the window that the GPU has on PCI (its BAR), by
// GDRCopy. So whatever the transport does with memory it can do with a GPU's, also where no RDMA is left. Reading there
// is slow. Not tried on hardware.
#ifndef R2CCL_PLUGIN_GPU_MEMORY_H_
#define R2CCL_PLUGIN_GPU_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "plugin/gdrcopy.h"

namespace r2ccl::plugin {

class GpuMapping;

// Thread-safe.
class GpuMemory : public std::enable_shared_from_this<GpuMemory> {
 public:
  // Opens the library and its driver. An error says what is missing.
  static Status Open(const char* file, std::shared_ptr<GpuMemory>* memory);
  ~GpuMemory();

  Status Map(uint64_t address, size_t bytes, std::unique_ptr<GpuMapping>* mapping);

 private:
  friend class GpuMapping;
  GpuMemory() = default;

  gdr::Library library_;
  gdr::Context* context_ = nullptr;
  Mutex mutex_;  // the library keeps a list, and has no lock
};

// Some bytes of it. The GPU's memory must outlive them.
class GpuMapping {
 public:
  explicit GpuMapping(std::shared_ptr<GpuMemory> memory) : memory_(std::move(memory)) {}
  ~GpuMapping();
  GpuMapping(const GpuMapping&) = delete;
  GpuMapping& operator=(const GpuMapping&) = delete;

  // Where the processor sees what the GPU has at `address`; nullptr where not all of these bytes are mapped.
  char* Find(uint64_t address, size_t bytes) const;
  uint64_t address() const { return address_; }
  size_t bytes() const { return bytes_; }

 private:
  friend class GpuMemory;
  const std::shared_ptr<GpuMemory> memory_;
  uint64_t address_ = 0;
  size_t bytes_ = 0;
  bool is_pinned_ = false;
  gdr::Pinned pinned_{};
  void* window_ = nullptr;  // whole pages
  size_t window_bytes_ = 0;
  char* data_ = nullptr;
};

// After it a GPU sees what any thread of this process has written to these bytes through their mapping, and unlocked.
void PushWrites(const char* data, size_t bytes);

}  // namespace r2ccl::plugin

#endif  // R2CCL_PLUGIN_GPU_MEMORY_H_
