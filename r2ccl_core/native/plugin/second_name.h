// A second name for the plugin in its process: libnccl-net.so, which NCCL looks for when it has forgotten the first.
//
// NCCL 2.28 and 2.29 clear their record of a net plugin when a process destroys its last communicator, including the
// name from NCCL_NET_PLUGIN, and never read that variable again (2.27 does so with NCCL_NET_PLUGIN_REF_COUNT=0, 2.30
// keeps the name). For the next communicator they open a plugin without a name, which means libnccl-net.so. The dynamic
// linker searches the loaded libraries for a name before it searches files. So a library of that name, which has no
// code and depends on this plugin, makes NCCL find the plugin again, whatever it was called and wherever it lies.
#ifndef R2CCL_PLUGIN_SECOND_NAME_H_
#define R2CCL_PLUGIN_SECOND_NAME_H_

#include <string>

#include "base/status.h"

namespace r2ccl::plugin {

// What NCCL opens for an empty name, in all releases from 2.22 on.
inline constexpr const char* kDefaultName = "libnccl-net.so";
// The plugin's own name in its dynamic section, which the empty library needs (see CMakeLists.txt).
inline constexpr const char* kOwnName = "libnccl-net-r2ccl.so";

// The file of a shared library for this machine that is called `name`, needs `needed` and holds nothing.
std::string EmptyLibrary(const std::string& name, const std::string& needed);

// Has dlopen(kDefaultName) give this plugin for as long as the process lives. Idempotent. An error where another
// library has the name already, or where no library can be made in memory.
Status TakeDefaultName();

}  // namespace r2ccl::plugin

#endif  // R2CCL_PLUGIN_SECOND_NAME_H_
