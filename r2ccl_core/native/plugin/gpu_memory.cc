// Opening GDRCopy, and mapping by it.
#include "plugin/gpu_memory.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

namespace r2ccl {
namespace gdr {

Status Library::Open(const char* file, Library* library) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return {Code::kSystem, std::string("GDRCopy's library cannot be opened: ") + (why == nullptr ? file : why) +
                               "; install libgdrapi"};
  }
  Library found;
#define R2CCL_GDR_FIND(name, result, parameters)                                                                \
  found.name = reinterpret_cast<result(*) parameters>(dlsym(handle, "gdr_" #name));                             \
  if (found.name == nullptr) {                                                                                  \
    return {Code::kSystem, std::string(file) + " has no gdr_" #name "; install a current libgdrapi (GDRCopy)"}; \
  }
  R2CCL_GDR_CALLS(R2CCL_GDR_FIND)
#undef R2CCL_GDR_FIND
  *library = found;
  return {};
}

}  // namespace gdr

namespace plugin {

Status GpuMemory::Open(const char* file, std::shared_ptr<GpuMemory>* memory) {
  std::shared_ptr<GpuMemory> made(new GpuMemory());
  Status status = gdr::Library::Open(file, &made->library_);
  if (!status.ok()) return status;
  made->context_ = made->library_.open();
  if (made->context_ == nullptr) {
    return {Code::kSystem, "GDRCopy's device cannot be opened; is its driver loaded (gdrdrv), and /dev/gdrdrv there?"};
  }
  *memory = std::move(made);
  return {};
}

GpuMemory::~GpuMemory() {
  if (context_ != nullptr) (void)library_.close(context_);
}

Status GpuMemory::Map(uint64_t address, size_t bytes, std::unique_ptr<GpuMapping>* mapping) {
  auto made = std::make_unique<GpuMapping>(shared_from_this());
  uint64_t first = address / gdr::kPageBytes * gdr::kPageBytes;
  uint64_t last = (address + bytes + gdr::kPageBytes - 1) / gdr::kPageBytes * gdr::kPageBytes;
  made->address_ = address;
  made->bytes_ = bytes;
  made->window_bytes_ = last - first;
  const char* call = "gdr_pin_buffer";
  gdr::Info info{};
  int error = 0;
  {
    MutexLock lock(mutex_);
    error = library_.pin_buffer(context_, first, made->window_bytes_, 0, 0, &made->pinned_);
    made->is_pinned_ = error == 0;
    if (error == 0) {
      call = "gdr_map";
      error = library_.map(context_, made->pinned_, &made->window_, made->window_bytes_);
      if (error != 0) made->window_ = nullptr;
    }
    if (error == 0) {
      call = "gdr_get_info";
      error = library_.get_info(context_, made->pinned_, &info);
    }
  }
  if (error != 0) {
    return {Code::kSystem, std::to_string(bytes) + " bytes of a GPU's memory cannot be mapped: " + call + ": " +
                               std::strerror(error) +
                               "; where the GPU's window on PCI is too small (BAR1 in nvidia-smi -q), unset R2CC_GDR"};
  }
  // Mapped from the page on that it says.
  if (info.address > address || info.address + info.bytes < address + bytes || info.address < first) {
    return {Code::kSystem, "GDRCopy mapped other memory than it was asked to"};
  }
  made->data_ = static_cast<char*>(made->window_) + (address - info.address);
  *mapping = std::move(made);
  return {};
}

GpuMapping::~GpuMapping() {
  MutexLock lock(memory_->mutex_);
  if (window_ != nullptr) (void)memory_->library_.unmap(memory_->context_, pinned_, window_, window_bytes_);
  if (is_pinned_) (void)memory_->library_.unpin_buffer(memory_->context_, pinned_);
}

char* GpuMapping::Find(uint64_t address, size_t bytes) const {
  uint64_t before = address - address_;
  if (address < address_ || before > bytes_ || bytes > bytes_ - before) return nullptr;
  return data_ + before;
}

// Locked instructions, such as that unlock, empty the buffers of a processor in which writes are combined. A read of a
// PCI device passes no write on the way there.
void PushWrites(const char* data, size_t bytes) {
  if (bytes == 0) return;
  __sync_synchronize();  // not std::atomic_thread_fence, which ThreadSanitizer does not know
  (void)*static_cast<const volatile char*>(data + bytes - 1);
}

}  // namespace plugin
}  // namespace r2ccl
