// Which NIXL loads us, as far as its installation tells: its layouts changed without a change of its api_version.
#ifndef R2CCL_NIXL_RELEASE_H_
#define R2CCL_NIXL_RELEASE_H_

#include <string>

namespace r2ccl::nixl {

// The version of a NIXL wheel, such as "1.5.1", from the folder beside its libraries' own; "" where nothing tells.
// `library` is the path of its core.
std::string VersionBeside(const std::string& library);

// The path of the core that this process has loaded; "" if none.
std::string LoadedCore();

// Empty where a plugin for the versions of abi.h may serve it, else a line: which it is, which are needed.
std::string WhyNot(const std::string& version);

}  // namespace r2ccl::nixl

#endif  // R2CCL_NIXL_RELEASE_H_
