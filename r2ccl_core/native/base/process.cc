// Identity of this process, from /proc.
#include "base/process.h"

#include <limits.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace r2ccl {
namespace {

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The program's name stands in parentheses and may hold any character, the fields are counted behind it.
uint64_t StartTicks() {
  constexpr int kFieldsBefore = 19;  // between the name and field 22
  std::string line = FirstLine("/proc/self/stat");
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

}  // namespace

Process ThisProcess() {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, sizeof host - 1);
  char name[64] = {};
  (void)!readlink("/proc/self/ns/pid", name, sizeof name - 1);
  return {host,        FirstLine("/proc/self/comm"), FirstLine("/proc/sys/kernel/random/boot_id"), name, getpid(),
          StartTicks()};
}

}  // namespace r2ccl
