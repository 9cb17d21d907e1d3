// MemoryRegistry: who is told of memory that stays where it is, from and into which large messages may go directly.
#ifndef R2CCL_BASE_MEMORY_REGISTRY_H_
#define R2CCL_BASE_MEMORY_REGISTRY_H_

#include <cstddef>
#include <cstdint>

namespace r2ccl {

// Another device's memory, such as a GPU's, that the processor sees at an address of its own.
struct DeviceMemory {
  uint64_t address = 0;  // by which the other devices know it
  int dmabuf = -1;       // descriptor, open for as long as it is registered; -1: its address is enough
  uint64_t offset = 0;   // in the dmabuf
};

class MemoryRegistry {
 public:
  virtual ~MemoryRegistry() = default;
  // From now on these bytes may be used directly. The program keeps the memory until DropMemory, which follows for each
  // AddMemory when no request on it is left.
  virtual void AddMemory(const char* data, size_t bytes) = 0;
  // No device touches it any more.
  virtual void DropMemory(const char* data, size_t bytes) = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_MEMORY_REGISTRY_H_
