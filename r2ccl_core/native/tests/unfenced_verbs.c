// RDMA without a fence, for the negative control of the ghost test: a queue pair that is to go to ERR, or to be
// destroyed, stays as it is, and so does memory that is to be deregistered. To be preloaded: the transport looks the
// library's calls up by their names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void* lookup(void*, const char*);

enum { kStateError = 6 };

static int (*real_modify)(void*, unsigned*, int);

static int leave(void* what) {
  (void)what;
  return 0;
}

static int modify(void* qp, unsigned* attributes, int what) {
  return attributes[0] == kStateError ? 0 : real_modify(qp, attributes, what);
}

void* dlsym(void* handle, const char* name) {
  lookup* real = NULL;
  *(void**)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (real == NULL) *(void**)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (real == NULL) abort();
  int (*stub)(void*) = leave;
  if (strcmp(name, "ibv_destroy_qp") == 0 || strcmp(name, "ibv_dereg_mr") == 0) return *(void**)&stub;
  void* found = real(handle, name);
  if (strcmp(name, "ibv_modify_qp") != 0) return found;
  *(void**)&real_modify = found;
  int (*ours)(void*, unsigned*, int) = modify;
  return *(void**)&ours;
}
