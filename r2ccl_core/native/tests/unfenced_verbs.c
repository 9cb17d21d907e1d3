// libibverbs without a fence, for the negative control of the ghost test: a queue pair that is to go to ERR, or to be
// destroyed, stays as it is, and so does memory that is to be deregistered. Found as libibverbs.so.1 by its folder; all
// else is the real library's, whose path R2CCL_REAL_IBVERBS has.
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static void* real(const char* name) {
  static void* library = NULL;
  if (library == NULL) library = dlopen(getenv("R2CCL_REAL_IBVERBS"), RTLD_NOW | RTLD_LOCAL);
  void* found = library == NULL ? NULL : dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "unfenced_verbs: no %s: %s\n", name, dlerror());
    abort();
  }
  return found;
}

enum { kStateError = 6 };

int ibv_destroy_qp(void* qp) {
  (void)qp;
  return 0;
}

int ibv_dereg_mr(void* region) {
  (void)region;
  return 0;
}

int ibv_modify_qp(void* qp, unsigned* attributes, int what) {
  int (*modify)(void*, unsigned*, int);
  *(void**)&modify = real("ibv_modify_qp");
  return attributes[0] == kStateError ? 0 : modify(qp, attributes, what);
}

// name, what it returns, its parameters, and how it is called
#define FORWARD(name, result, parameters, arguments) \
  result name parameters {                           \
    result(*call) parameters;                        \
    *(void**)&call = real(#name);                    \
    return call arguments;                           \
  }

FORWARD(ibv_fork_init, int, (void), ())
FORWARD(ibv_get_device_list, void*, (int* count), (count))
FORWARD(ibv_free_device_list, void, (void* list), (list))
FORWARD(ibv_open_device, void*, (void* device), (device))
FORWARD(ibv_close_device, int, (void* context), (context))
FORWARD(ibv_query_port, int, (void* context, unsigned char port, void* attributes), (context, port, attributes))
FORWARD(ibv_alloc_pd, void*, (void* context), (context))
FORWARD(ibv_dealloc_pd, int, (void* pd), (pd))
FORWARD(ibv_reg_mr, void*, (void* pd, void* data, size_t bytes, int access), (pd, data, bytes, access))
FORWARD(ibv_create_comp_channel, void*, (void* context), (context))
FORWARD(ibv_destroy_comp_channel, int, (void* channel), (channel))
FORWARD(ibv_create_cq, void*, (void* context, int entries, void* user, void* channel, int vector),
        (context, entries, user, channel, vector))
FORWARD(ibv_destroy_cq, int, (void* cq), (cq))
FORWARD(ibv_get_cq_event, int, (void* channel, void** cq, void** user), (channel, cq, user))
FORWARD(ibv_ack_cq_events, void, (void* cq, unsigned count), (cq, count))
FORWARD(ibv_create_qp, void*, (void* pd, void* attributes), (pd, attributes))
FORWARD(ibv_get_async_event, int, (void* context, void* event), (context, event))
FORWARD(ibv_ack_async_event, void, (void* event), (event))
FORWARD(ibv_wc_status_str, const char*, (unsigned status), (status))
