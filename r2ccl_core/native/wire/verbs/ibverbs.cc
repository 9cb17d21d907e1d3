// Opening libibverbs, and what its users say of errors.
#include "wire/verbs/ibverbs.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
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
  found.reg_dmabuf_mr = reinterpret_cast<decltype(found.reg_dmabuf_mr)>(dlsym(handle, "ibv_reg_dmabuf_mr"));
  *library = found;
  return {};
}

std::string Error(const std::string& what) { return what + ": " + std::strerror(errno); }

std::string LockedLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "no limit";
  return std::to_string(limit.rlim_cur / 1024) + " KiB";
}

Status SetNonBlocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return {Code::kSystem, Error("fcntl")};
  return {};
}

}  // namespace r2ccl::ibv
