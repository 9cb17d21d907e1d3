// What of GDRCopy's library the plugin calls: our own declarations of its binary interface (2.0 and later), and the
// library, which is opened while the process runs.
#ifndef R2CCL_PLUGIN_GDRCOPY_H_
#define R2CCL_PLUGIN_GDRCOPY_H_

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace r2ccl::gdr {

struct Context;

struct Pinned {
  unsigned long handle;
};

// Of pinned memory: the library pins whole pages.
struct Info {
  uint64_t address;
  uint64_t bytes;
  uint8_t reserve[112];  // a later release may write more
};

inline constexpr uint64_t kPageBytes = 65536;

// name, result, parameters: each with the prefix gdr_ in the library
#define R2CCL_GDR_CALLS(X)                                                           \
  X(open, Context*, (void))                                                          \
  X(close, int, (Context*))                                                          \
  X(pin_buffer, int, (Context*, unsigned long, size_t, uint64_t, uint32_t, Pinned*)) \
  X(unpin_buffer, int, (Context*, Pinned))                                           \
  X(get_info, int, (Context*, Pinned, Info*))                                        \
  X(map, int, (Context*, Pinned, void**, size_t))                                    \
  X(unmap, int, (Context*, Pinned, void*, size_t))

// Never closed, like the plugin itself.
struct Library {
#define R2CCL_GDR_FIELD(name, result, parameters) result(*name) parameters = nullptr;
  R2CCL_GDR_CALLS(R2CCL_GDR_FIELD)
#undef R2CCL_GDR_FIELD

  static Status Open(const char* file, Library* library);
};

inline constexpr char kLibraryFile[] = "libgdrapi.so.2";

}  // namespace r2ccl::gdr

#endif  // R2CCL_PLUGIN_GDRCOPY_H_
