// Process: what distinguishes this process from every other one, including a later one with the same number.
#ifndef R2CCL_BASE_PROCESS_H_
#define R2CCL_BASE_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace r2ccl {

struct Process {
  std::string host;
  std::string program;
  std::string boot_id;        // of the kernel
  std::string pid_namespace;  // in which `pid` counts
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // after boot, field 22 of /proc/PID/stat
};

Process ThisProcess();

}  // namespace r2ccl

#endif  // R2CCL_BASE_PROCESS_H_
