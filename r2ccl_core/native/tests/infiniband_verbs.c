// RDMA whose ports say that they are InfiniBand's, for tests of a network that mixes link layers. To be preloaded: the
// transport looks the library's calls up by their names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void* lookup(void*, const char*);

enum { kLinkLayerAt = 46, kInfiniBand = 1 };  // in ibv_port_attr

static int (*real_query)(void*, uint8_t, uint8_t*);

static int query(void* context, uint8_t port, uint8_t* attributes) {
  int result = real_query(context, port, attributes);
  attributes[kLinkLayerAt] = kInfiniBand;
  return result;
}

void* dlsym(void* handle, const char* name) {
  lookup* real = NULL;
  *(void**)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (real == NULL) *(void**)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (real == NULL) abort();
  void* found = real(handle, name);
  if (strcmp(name, "ibv_query_port") != 0) return found;
  *(void**)&real_query = found;
  int (*ours)(void*, uint8_t, uint8_t*) = query;
  return *(void**)&ours;
}
