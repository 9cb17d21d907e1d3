// CRC32C (Castagnoli, as in iSCSI), by the processor's own instruction if there is one, otherwise by tables.
#ifndef R2CCL_BASE_CRC32C_H_
#define R2CCL_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace r2ccl {

// The sum of `bytes` bytes; that of none is 0. Thread-safe.
uint32_t Crc32c(const void* data, size_t bytes);

// The same by tables, whatever the processor can do.
uint32_t PortableCrc32c(const void* data, size_t bytes);
// Which of them Crc32c is: sse4.2, armv8 or portable.
const char* Crc32cKind();

}  // namespace r2ccl

#endif  // R2CCL_BASE_CRC32C_H_
