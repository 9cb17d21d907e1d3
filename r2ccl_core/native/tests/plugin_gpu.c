/* NCCL's GPU memory through the net plugin, in plain C, without a GPU: gdrapi_stand_in.c is in the place of GDRCopy.
 *
 *   plugin_gpu LIBRARY VERSION [--dmabuf] [--as-host] [--corrupt] [--until FILE] [--side 0|1 ADDRESS PORT]
 *
 * R2CC_GDR=1 and LD_LIBRARY_PATH are the caller's. Two processes exchange messages from and into registered memory of
 * the "GPU", flush what came, and check every byte as the GPU sees it; then they overwrite it. Of --side there is one
 * here; side 0 listens for the other at that address. --until: round after round, until side 0 finds that file.
 * --as-host registers the device's address as host memory: it has to crash where the processor cannot touch it (5);
 * so the first message is one that the transport copies itself, and no call of the kernel's does.
 * Exit codes as of plugin_driver. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin_peer.h"
#include "plugin_tables.h"

enum { kSlots = 4, kRounds = 12, kMessage = 700 * 1000, kBefore = 4096 + 12, kDmabuf = 4 };

static int version, dmabuf, as_host, corrupt;
static const char* until;

static void* (*gpu_alloc)(size_t);
static void* (*gpu_view)(const void*);
static int (*gpu_fd)(const void*);
static int (*gpu_left)(void);

/* Registered memory: where NCCL says that it is, and where the GPU sees it. */
struct memory {
  unsigned char *device, *view;
  void* mhandle;
};

/* By one write, as both sides write to the same pipe. */
static void log_line(int level, unsigned long flags, const char* file, int line, const char* format, ...) {
  char said[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(said, sizeof said, format, arguments);
  va_end(arguments);
  fprintf(stderr, "side %d: level %d flags %lu %s:%d %s\n", self.side, level, flags, file, line, said);
}

static void load_stand_in(void) {
  void* library = dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fail(kBroken, "%s", dlerror());
  *(void**)&gpu_alloc = dlsym(library, "stand_in_alloc");
  *(void**)&gpu_view = dlsym(library, "stand_in_view");
  *(void**)&gpu_fd = dlsym(library, "stand_in_fd");
  *(void**)&gpu_left = dlsym(library, "stand_in_left");
}

static size_t size_of(int round) {
  static const size_t sizes[] = {1, kMessage, 4097, 262144, 70001, kMessage - 5};
  return sizes[(size_t)round % (sizeof sizes / sizeof *sizes)];
}

static unsigned char byte_at(size_t place, int round) {
  return (unsigned char)(place * 31 + (size_t)round * 7 + place / 4096);
}

/* Not at the beginning of a page, nor to the end of one. */
static struct memory memory_of(void* comm) {
  struct memory made;
  unsigned char* block = gpu_alloc(kBefore + (size_t)kSlots * kMessage);
  expect(block != NULL, "memory of the stand-in");
  made.device = block + kBefore;
  made.view = (unsigned char*)gpu_view(block) + kBefore;
  size_t bytes = (size_t)kSlots * kMessage;
  int type = as_host ? kPointerHost : kPointerCuda;
  if (dmabuf) {
    int fd = dup(gpu_fd(block));
    succeed(net_reg_mr_dma_buf(comm, made.device, bytes, kPointerCuda, kBefore, fd, &made.mhandle), "regMrDmaBuf");
    close(fd); /* as NCCL does */
  } else {
    succeed(net_reg_mr(comm, made.device, bytes, type, &made.mhandle), "regMr");
  }
  return made;
}

/* 1: a device had to read there. */
static int flush(struct link* link, unsigned char* at, size_t size, void* mhandle) {
  void* request = NULL;
  succeed(net_iflush(link->recv_comm, at, (int)size, mhandle, &request), "iflush");
  int by_device = request != NULL;
  for (int done = request == NULL; !done; breathe()) succeed(net_test(request, &done, NULL), "test of a flush");
  return by_device;
}

/* One message each way; how many flushes a device took part in. */
static int exchange(struct link* link, struct memory* out, struct memory* in, int round) {
  size_t slot = (size_t)(round % kSlots) * kMessage, size = size_of(round);
  unsigned char *from = out->view + slot, *to = in->view + slot;
  void *sending = NULL, *receiving = NULL;
  int sent = 0, received = 0, got = 0, flushed = 0;
  for (size_t i = 0; i < size; ++i) from[i] = byte_at(i, round);
  if (corrupt && self.side == 0 && round == 3) from[size / 2] ^= 1;
  memset(to, 0xEE, kMessage);
  for (; !sent || !received; breathe()) {
    if (receiving == NULL && !received) {
      succeed(net_irecv(link->recv_comm, in->device + slot, kMessage, 1, in->mhandle, &receiving), "irecv");
    }
    if (sending == NULL && !sent) {
      succeed(net_isend(link->send_comm, out->device + slot, size, 1, out->mhandle, &sending), "isend");
    }
    if (sending != NULL && !sent) {
      succeed(net_test(sending, &sent, &got), "test");
      if (sent) memset(from, 0x11, size); /* it is the program's again */
    }
    if (receiving != NULL && !received) {
      succeed(net_test(receiving, &received, &got), "test");
      if (received) expect((size_t)got == size, "all of it came");
      if (received) flushed = flush(link, in->device + slot, size, in->mhandle);
    }
  }
  for (size_t i = 0; i < size; ++i) {
    if (to[i] == byte_at(i, round)) continue;
    fail(kWrongData, "round %d: byte %zu is %u instead of %u", round, i, to[i], byte_at(i, round));
  }
  for (size_t i = size; i < kMessage; ++i) {
    if (to[i] != 0xEE) fail(kWrongData, "round %d: byte %zu behind the message was written", round, i);
  }
  memset(to, 0x22, kMessage);
  return flushed;
}

/* The same at both ends. */
static int goes_on(int round) {
  char more = (char)(until == NULL ? round < kRounds : round < kRounds || access(until, F_OK) != 0);
  if (self.side == 0) tell(&more, 1);
  if (self.side == 1) hear(&more, 1);
  return more;
}

static void gpu_memory(void) {
  struct link link = link_open();
  struct memory out = memory_of(link.send_comm), in = memory_of(link.recv_comm);
  void *request = NULL, *mhandle = NULL;
  int rounds = 0, flushed = 0;
  while (goes_on(rounds)) {
    if (rounds % 64 == 0) scenario("GPU memory");
    flushed += exchange(&link, &out, &in, rounds++);
  }
  barrier();
  for (size_t i = 0; i < (size_t)kSlots * kMessage; ++i) {
    if (in.view[i] != 0x22) fail(kWrongData, "byte %zu was written after its receive was done", i);
  }
  expect(as_host || net_isend(link.send_comm, out.device - 1, 2, 1, out.mhandle, &request) != 0, "bytes outside");
  expect(net_reg_mr(link.send_comm, &request, 8, kPointerCuda, &mhandle) != 0, "what is no GPU's is refused");
  succeed(net_dereg_mr(link.send_comm, out.mhandle), "deregMr");
  succeed(net_dereg_mr(link.recv_comm, in.mhandle), "deregMr");
  expect(gpu_left() == 0, "no mapping and no pinned memory is left");
  printf("side %d: %d rounds, %d flushed by a device\n", self.side, rounds, flushed);
  link_close(&link);
}

static void drive(const char* path) {
  scenario("load");
  const char* problem = tables_open(path, version);
  if (problem == NULL && !as_host) problem = net_missing(1);
  if (problem != NULL) fail(kBroken, "%s", problem);
  succeed(net_init(&self.context, 76, log_line), "init");
  struct properties p;
  succeed(net_properties(0, &p), "getProperties");
  printf("side %d: pointers %d\n", self.side, p.ptrSupport);
  expect((p.ptrSupport & ~kDmabuf) == (kPointerHost | kPointerCuda), "GPU memory is taken");
  expect(p.forceFlush == (version >= 9), "every receive is flushed");
  scenario("GPU memory");
  load_stand_in();
  gpu_memory();
  scenario("finalize");
  succeed(net_finalize(self.context), "finalize");
  barrier();
}

int main(int argc, char** argv) {
  int known = 3;
  for (int i = 3; i < argc; ++i) {
    if (strcmp(argv[i], "--dmabuf") == 0) known += dmabuf = 1;
    if (strcmp(argv[i], "--as-host") == 0) known += as_host = 1;
    if (strcmp(argv[i], "--corrupt") == 0) known += corrupt = 1;
    if (strcmp(argv[i], "--until") == 0 && i + 1 < argc) until = argv[++i], known += 2;
    int words = take_side(argc, argv, i);
    known += words;
    if (words > 0) i += words - 1;
  }
  version = argc >= 3 ? atoi(argv[2]) : 0;
  if (argc != known || version < kFirstVersion || version > kLastVersion) {
    fprintf(stderr,
            "usage: %s LIBRARY VERSION(8..12) [--dmabuf] [--as-host] [--corrupt] [--until FILE] "
            "[--side 0|1 ADDRESS PORT]\n",
            argv[0]);
    return kUsage;
  }
  return run_sides(drive, argv[1]);
}
