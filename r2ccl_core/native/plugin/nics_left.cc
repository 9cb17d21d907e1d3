// What the preloaded library (cuda/) asks the plugin in its process.
#include "base/guard.h"
#include "plugin/plugin.h"

// 1 and both values, or 0 while NCCL has not started the plugin.
extern "C" __attribute__((visibility("default"))) int r2cclNicsLeft(int* total, int* left) {
  return r2ccl::Guard(0, [&] { return r2ccl::plugin::NicsLeft(total, left) ? 1 : 0; });
}
