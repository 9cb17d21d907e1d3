// Opening libibverbs.
#include "wire/verbs/ibverbs.h"

#include <dlfcn.h>

#include <string>

namespace r2ccl::ibv {

Status Library::Open(const char* file, Library* library) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return {Code::kSystem, std::string("the RDMA library cannot be opened: ") + (why == nullptr ? file : why) +
                               "; install libibverbs1 and ibverbs-providers (rdma-core)"};
  }
  Library found;
#define R2CCL_IBV_FIND(name, result, parameters)                                                                    \
  found.name = reinterpret_cast<result(*) parameters>(dlsym(handle, "ibv_" #name));                                 \
  if (found.name == nullptr) {                                                                                      \
    return {Code::kSystem, std::string(file) + " has no ibv_" #name "; install a current libibverbs1 (rdma-core)"}; \
  }
  R2CCL_IBV_CALLS(R2CCL_IBV_FIND)
#undef R2CCL_IBV_FIND
  *library = found;
  return {};
}

}  // namespace r2ccl::ibv
