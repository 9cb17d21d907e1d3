// The way to the plugin, which NCCL has loaded where only it can see its symbols.
#include "cuda/nics.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <mutex>
#include <string>

#include "base/clock.h"

namespace r2ccl::cuda {
namespace {

constexpr int64_t kReturnNs = 300'000'000;  // as r2ccl_core/model/health.py

using Ask = int (*)(int*, int*);

struct State {
  std::mutex mutex;
  Nics set{-1, -1};
  Ask ask = nullptr;
  Nics believed;
  int64_t better_since_ns = 0;
};

State& state() {
  static State* const instance = new State();
  return *instance;
}

int NotePlugin(dl_phdr_info* info, size_t, void* found) {
  if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "libnccl-net-r2ccl") == nullptr) return 0;
  *static_cast<std::string*>(found) = info->dlpi_name;
  return 1;
}

Ask FindPlugin() {
  std::string path;
  dl_iterate_phdr(NotePlugin, &path);
  void* library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Ask>(dlsym(library, "r2cclNicsLeft"));
}

// A loss counts at once, a return when it lasts: NICs that flap must not make the group switch at each turn.
Nics Damped(State& nics, const Nics& now, int64_t now_ns) {
  if (now.total != nics.believed.total || now.left <= nics.believed.left) {
    nics.believed = now;
    nics.better_since_ns = 0;
  } else if (nics.better_since_ns == 0) {
    nics.better_since_ns = now_ns;
  } else if (now_ns - nics.better_since_ns >= kReturnNs) {
    nics.believed = now;
    nics.better_since_ns = 0;
  }
  return nics.believed;
}

}  // namespace

bool OwnNics(Nics* nics) {
  State& own = state();
  std::lock_guard lock(own.mutex);
  if (own.set.total >= 0) {
    *nics = own.set;
    return true;
  }
  if (own.ask == nullptr) own.ask = FindPlugin();
  Nics now;
  if (own.ask == nullptr || own.ask(&now.total, &now.left) == 0) return false;
  *nics = Damped(own, now, NowNs());
  return true;
}

void SetNics(Nics nics) {
  std::lock_guard lock(state().mutex);
  state().set = nics;
}

}  // namespace r2ccl::cuda
