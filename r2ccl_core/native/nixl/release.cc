// Looks for the version of the NIXL wheel that has loaded the plugin.
#include "nixl/release.h"

#include <link.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "nixl/abi.h"

namespace r2ccl::nixl {

std::string VersionBeside(const std::string& library) {
  std::error_code error;
  auto site = std::filesystem::path(library).parent_path().parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(site, error)) {
    std::string name = entry.path().filename().string();
    size_t dash = name.find('-');
    size_t end = name.rfind(".dist-info");
    bool ours = name.rfind("nixl", 0) == 0 && dash != std::string::npos && end != std::string::npos && dash < end;
    // nixl-1.5.1 and nixl_cu12-1.5.1 stand beside each other; the one whose libraries these are has its name in them.
    if (ours && library.find(std::string(1, '.').append(name, 0, dash).append(".")) != std::string::npos) {
      return name.substr(dash + 1, end - dash - 1);
    }
  }
  return "";
}

std::string LoadedCore() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        std::string path = info->dlpi_name;
        if (path.size() < 11 || path.compare(path.size() - 11, 11, "/libnixl.so") != 0) return 0;
        *static_cast<std::string*>(out) = path;
        return 1;
      },
      &found);
  return found;
}

std::string WhyNot(const std::string& version) {
  int major = 0;
  int minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2) return "";
  if (major == kMajor && minor >= kFirstMinor && minor <= kLastMinor) return "";
  char line[160];
  std::snprintf(line, sizeof line, "this NIXL is %s; the R2CCL plugin needs one from %d.%d to %d.%d (api_version %d)",
                version.c_str(), kMajor, kFirstMinor, kMajor, kLastMinor, kApiVersion);
  return line;
}

}  // namespace r2ccl::nixl
