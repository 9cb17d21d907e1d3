/* The layouts of NCCL's net plugin tables in C, and the calls through them.
 *
 * A table is read as an array of function pointers, by slot: that is all the binary interface is. */
#include "plugin_tables.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct vprops4 {
  int ndevs;
  int devs[4];
};
struct vprops8 {
  int ndevs;
  int devs[8];
};

struct props_v8 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
};

/* Version 9, 10; version 11 and 12 go on where these end. */
#define PROPS_HEAD   \
  char* name;        \
  char* pciPath;     \
  uint64_t guid;     \
  int ptrSupport;    \
  int regIsGlobal;   \
  int forceFlush;    \
  int speed;         \
  int port;          \
  float latency;     \
  int maxComms;      \
  int maxRecvs;      \
  int netDeviceType; \
  int netDeviceVersion

struct props_v9 {
  PROPS_HEAD;
  struct vprops4 vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
};
struct props_v11 {
  PROPS_HEAD;
  struct vprops4 vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
};
struct props_v12 {
  PROPS_HEAD;
  struct vprops8 vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId;
  int16_t planeId;
};

struct comm_config {
  int trafficClass;
};
struct comm_attr {
  int32_t maxConcurrentPeers, minConcurrentPeers, maxFlowsPerPeer, minFlowsPerPeer;
};
struct net_attr {
  struct comm_attr sendCommAttr, recvCommAttr;
  uint32_t op, algo, proto;
};

typedef void (*slot_fn)(void);
typedef int (*init_v8_fn)(log_fn);
typedef int (*init_v10_fn)(log_fn, void* profiler);
typedef int (*init_v11_fn)(void**, uint64_t, struct comm_config*, log_fn, void* profiler);
typedef int (*devices_fn)(int*);
typedef int (*properties_fn)(int, void*);
typedef int (*listen_v8_fn)(int, void*, void**);
typedef int (*listen_v11_fn)(void*, int, void*, void**);
typedef int (*connect_v8_fn)(int, void*, void**, void**);
typedef int (*connect_v10_fn)(int, struct comm_config*, void*, void**, void**);
typedef int (*connect_v11_fn)(void*, int, void*, void**, void**);
typedef int (*accept_fn)(void*, void**, void**);
typedef int (*reg_fn)(void*, void*, size_t, int, void**);
typedef int (*reg_dma_buf_fn)(void*, void*, size_t, int, uint64_t, int, void**);
typedef int (*dereg_fn)(void*, void*);
typedef int (*isend_v8_fn)(void*, void*, int, int, void*, void**);
typedef int (*isend_v9_fn)(void*, void*, size_t, int, void*, void**);
typedef int (*isend_v10_fn)(void*, void*, size_t, int, void*, void*, void**);
typedef int (*irecv_v8_fn)(void*, int, void**, int*, int*, void**, void**);
typedef int (*irecv_v9_fn)(void*, int, void**, size_t*, int*, void**, void**);
typedef int (*irecv_v10_fn)(void*, int, void**, size_t*, int*, void**, void**, void**);
typedef int (*iflush_fn)(void*, int, void**, int*, void**, void**);
typedef int (*test_fn)(void*, int*, int*);
typedef int (*close_fn)(void*);
typedef int (*attr_fn)(void*, struct net_attr*);

enum slot {
  kInit,
  kDevices,
  kProperties,
  kListen,
  kConnect,
  kAccept,
  kRegMr,
  kRegMrDmaBuf,
  kDeregMr,
  kIsend,
  kIrecv,
  kIflush,
  kTest,
  kCloseSend,
  kCloseRecv,
  kCloseListen,
  kGetDeviceMr,
  kIrecvConsumed,
  kMakeVDevice, /* from version 9 */
  kFinalize,    /* from version 11 */
  kSetNetAttr,
  kSlots
};

struct table {
  const char* name;
  slot_fn slots[kSlots];
};

static void* library;
static int version;
static const struct table* table;
static struct comm_config config = {-1};
static void* const kNoProfiler = NULL;

#define CALL(type, slot) ((type)table->slots[slot])

static const void* exported(const char* kind, int number) {
  char name[64];
  snprintf(name, sizeof name, "nccl%sPlugin_v%d", kind, number);
  return dlsym(library, name);
}

const char* tables_open(const char* path, int wanted) {
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return dlerror();
  version = wanted;
  table = exported("Net", wanted);
  return table == NULL ? "the table of this version is not exported" : NULL;
}

const char* tables_unexpected(void) {
  static const char* const kinds[] = {"CollNet", "Tuner", "Profiler", "Gin", "Env"};
  static char text[64];
  for (int number = 1; number < 32; ++number) {
    int wanted = number >= kFirstVersion && number <= kLastVersion;
    snprintf(text, sizeof text, "ncclNetPlugin_v%d", number);
    if ((exported("Net", number) != NULL) != wanted) return text;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
      snprintf(text, sizeof text, "nccl%sPlugin_v%d", kinds[i], number);
      if (exported(kinds[i], number) != NULL) return text;
    }
  }
  return NULL;
}

int tables_close(void) { return dlclose(library); }

const char* net_missing(int gpu_memory) {
  for (int slot = kInit; slot <= kCloseListen; ++slot) {
    if (slot == kRegMrDmaBuf) continue;
    if (table->slots[slot] == NULL) return "a function that NCCL calls without asking is null";
  }
  if ((table->slots[kRegMrDmaBuf] != NULL) != gpu_memory) return "regMrDmaBuf is offered, or not, against R2CC_GDR";
  if (table->slots[kGetDeviceMr] != NULL || table->slots[kIrecvConsumed] != NULL) return "device offload is offered";
  if (version >= 9 && table->slots[kMakeVDevice] != NULL) return "virtual devices are offered";
  if (version >= 11 && table->slots[kFinalize] == NULL) return "finalize is null";
  if (version >= 11 && table->slots[kSetNetAttr] == NULL) return "setNetAttr is null";
  return NULL;
}

const char* net_name(void) { return table->name; }

int net_init(void** context, uint64_t comm_id, log_fn log) {
  *context = NULL;
  if (version >= 11) return CALL(init_v11_fn, kInit)(context, comm_id, &config, log, kNoProfiler);
  if (version >= 10) return CALL(init_v10_fn, kInit)(log, kNoProfiler);
  return CALL(init_v8_fn, kInit)(log);
}

int net_devices(int* count) { return CALL(devices_fn, kDevices)(count); }

#define COPY_COMMON(to, from)                         \
  do {                                                \
    (to)->name = (from).name;                         \
    (to)->pciPath = (from).pciPath;                   \
    (to)->guid = (from).guid;                         \
    (to)->ptrSupport = (from).ptrSupport;             \
    (to)->regIsGlobal = (from).regIsGlobal;           \
    (to)->speed = (from).speed;                       \
    (to)->port = (from).port;                         \
    (to)->latency = (from).latency;                   \
    (to)->maxComms = (from).maxComms;                 \
    (to)->maxRecvs = (from).maxRecvs;                 \
    (to)->netDeviceType = (from).netDeviceType;       \
    (to)->netDeviceVersion = (from).netDeviceVersion; \
  } while (0)

#define COPY_SIZED(to, from)                  \
  do {                                        \
    COPY_COMMON(to, from);                    \
    (to)->forceFlush = (from).forceFlush;     \
    (to)->ndevs = (from).vProps.ndevs;        \
    (to)->dev0 = (from).vProps.devs[0];       \
    (to)->maxP2pBytes = (from).maxP2pBytes;   \
    (to)->maxCollBytes = (from).maxCollBytes; \
  } while (0)

/* A version's structure with a guard behind it: a plugin that fills a longer one is caught. */
union any_props {
  struct props_v8 v8;
  struct props_v9 v9;
  struct props_v11 v11;
  struct props_v12 v12;
  unsigned char bytes[256];
};

static size_t props_size(void) {
  if (version == 8) return sizeof(struct props_v8);
  if (version < 11) return sizeof(struct props_v9);
  return version == 11 ? sizeof(struct props_v11) : sizeof(struct props_v12);
}

int net_properties(int device, struct properties* out) {
  union any_props raw;
  memset(&raw, 0xA5, sizeof raw);
  int result = CALL(properties_fn, kProperties)(device, &raw);
  for (size_t i = props_size(); i < sizeof raw; ++i) {
    if (raw.bytes[i] != 0xA5) return -1;
  }
  if (result != 0) return result;
  memset(out, 0, sizeof *out);
  out->ndevs = 1;
  out->dev0 = device;
  out->maxP2pBytes = out->maxCollBytes = (size_t)1 << 40;
  out->maxMultiRequestSize = 1;
  out->railId = out->planeId = -1;
  if (version == 8) COPY_COMMON(out, raw.v8);
  if (version == 9 || version == 10) COPY_SIZED(out, raw.v9);
  if (version == 11) COPY_SIZED(out, raw.v11);
  if (version == 11) out->maxMultiRequestSize = raw.v11.maxMultiRequestSize;
  if (version == 12) {
    COPY_SIZED(out, raw.v12);
    out->maxMultiRequestSize = raw.v12.maxMultiRequestSize;
    out->railId = raw.v12.railId;
    out->planeId = raw.v12.planeId;
  }
  return 0;
}

int net_listen(void* context, int device, void* handle, void** listen_comm) {
  if (version >= 11) return CALL(listen_v11_fn, kListen)(context, device, handle, listen_comm);
  return CALL(listen_v8_fn, kListen)(device, handle, listen_comm);
}

int net_connect(void* context, int device, void* handle, void** send_comm) {
  void* offload = NULL;
  if (version >= 11) return CALL(connect_v11_fn, kConnect)(context, device, handle, send_comm, &offload);
  if (version >= 10) return CALL(connect_v10_fn, kConnect)(device, &config, handle, send_comm, &offload);
  return CALL(connect_v8_fn, kConnect)(device, handle, send_comm, &offload);
}

int net_accept(void* listen_comm, void** recv_comm) {
  void* offload = NULL;
  return CALL(accept_fn, kAccept)(listen_comm, recv_comm, &offload);
}

int net_reg_mr(void* comm, void* data, size_t size, int type, void** mhandle) {
  return CALL(reg_fn, kRegMr)(comm, data, size, type, mhandle);
}

int net_reg_mr_dma_buf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle) {
  return CALL(reg_dma_buf_fn, kRegMrDmaBuf)(comm, data, size, type, offset, fd, mhandle);
}

int net_dereg_mr(void* comm, void* mhandle) { return CALL(dereg_fn, kDeregMr)(comm, mhandle); }

int net_isend(void* comm, void* data, size_t size, int tag, void* mhandle, void** request) {
  if (version >= 10) return CALL(isend_v10_fn, kIsend)(comm, data, size, tag, mhandle, NULL, request);
  if (version >= 9) return CALL(isend_v9_fn, kIsend)(comm, data, size, tag, mhandle, request);
  return CALL(isend_v8_fn, kIsend)(comm, data, (int)size, tag, mhandle, request);
}

int net_irecv(void* comm, void* data, size_t size, int tag, void* mhandle, void** request) {
  void* phandle = NULL;
  int short_size = (int)size;
  if (version >= 10) return CALL(irecv_v10_fn, kIrecv)(comm, 1, &data, &size, &tag, &mhandle, &phandle, request);
  if (version >= 9) return CALL(irecv_v9_fn, kIrecv)(comm, 1, &data, &size, &tag, &mhandle, request);
  return CALL(irecv_v8_fn, kIrecv)(comm, 1, &data, &short_size, &tag, &mhandle, request);
}

int net_iflush(void* comm, void* data, int size, void* mhandle, void** request) {
  return CALL(iflush_fn, kIflush)(comm, 1, &data, &size, &mhandle, request);
}

int net_test(void* request, int* done, int* size) { return CALL(test_fn, kTest)(request, done, size); }

int net_close_send(void* comm) { return CALL(close_fn, kCloseSend)(comm); }
int net_close_recv(void* comm) { return CALL(close_fn, kCloseRecv)(comm); }
int net_close_listen(void* comm) { return CALL(close_fn, kCloseListen)(comm); }

int net_set_attributes(void* context) {
  struct net_attr attributes;
  memset(&attributes, 0xFF, sizeof attributes); /* everything -1: not defined */
  return version >= 11 ? CALL(attr_fn, kSetNetAttr)(context, &attributes) : 0;
}

int net_finalize(void* context) { return version >= 11 ? CALL(close_fn, kFinalize)(context) : 0; }
