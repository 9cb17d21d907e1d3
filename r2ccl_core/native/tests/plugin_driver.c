/* Drives the net plugin as NCCL does, in plain C: one table version, two processes, loopback, no GPU and no NCCL.
 *
 *   plugin_driver LIBRARY VERSION [--corrupt] [--abandon] [--die] [--verbose] [--nics]
 *                [--side 0|1 ADDRESS PORT]
 *
 * --abandon begins connections and never asks for them again; give it a short R2CC_FAILOVER_GIVE_UP_MS.
 * --side: one side is here, and the other on another host; side 0 listens for it at that address.
 * --nics: the devices are NICs of a host that R2CC_SOCKET_IFNAME names, not lo.
 * --die ends one side without a word while requests are under way; the other has to get errors.
 * Exit codes: 0 the contract holds, 1 it does not, 2 usage, 3 a byte is wrong, 4 a call or a wait hangs, 5 a process
 * crashed. --corrupt changes one byte on its way, which has to give 3: the check sees what it is for. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin_peer.h"
#include "plugin_tables.h"

enum { kMany = 64, kStream = 160, kMiB = 1 << 20 };

static int version;
static int corrupt;
static int abandon;
static int die;
static int nics;
static int verbose;
static int log_lines;

/* Formats as NCCL does, so that a format that does not fit its arguments shows. */
static void log_line(int level, unsigned long flags, const char* file, int line, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  ++log_lines;
  if (verbose) fprintf(stderr, "side %d: level %d flags %lu %s:%d %s\n", self.side, level, flags, file, line, text);
}

static void properties_are_plausible(void) {
  struct properties p;
  int count = 0;
  succeed(net_devices(&count), "devices");
  expect(count >= 1 && count <= 16, "at least one device");
  for (int device = 0; device < count; ++device) {
    succeed(net_properties(device, &p), "getProperties");
    expect(p.name != NULL && (strcmp(p.name, "lo") == 0) == !nics, "the device is the one R2CC_SOCKET_IFNAME says");
    expect(p.pciPath == NULL || (nics && access(p.pciPath, F_OK) == 0), "a PCI path that is there, and none of lo");
    expect(p.guid != 0, "a guid");
    expect(p.ptrSupport == 1, "host memory only");
    expect(p.regIsGlobal == 0 || p.regIsGlobal == 1, "regIsGlobal is 0 or 1");
    expect(p.forceFlush == 0, "no flush");
    expect(p.speed > 0 && p.speed <= 1600000, "a speed in Mbit/s");
    expect(p.port >= 0 && p.port < 256, "a port");
    expect(p.latency >= 0 && p.latency < 1000, "a latency in microseconds");
    expect(p.maxComms >= 1024, "many comms");
    expect(p.maxRecvs == 1, "one receive a call");
    expect(p.netDeviceType == 0 && p.netDeviceVersion == 0, "no device offload");
    expect(p.ndevs == 1 && p.dev0 == device, "a physical device is its own virtual one");
    expect(p.maxP2pBytes >= (size_t)1 << 30 && p.maxP2pBytes <= (size_t)1 << 40, "point-to-point limit");
    expect(p.maxCollBytes >= (size_t)1 << 30 && p.maxCollBytes <= (size_t)1 << 40, "collective limit");
    expect(p.maxMultiRequestSize == 1, "one request a multi-request");
    expect(p.railId >= -1 && p.railId < 16 && p.planeId >= -1, "rail and plane");
  }
  expect(net_properties(count, &p) > 0 && net_properties(-1, &p) > 0, "a device that is not there is refused");
}

/* One message each way. */
static void exchange(struct link* link, size_t size, size_t capacity, int tag, uint32_t seed) {
  struct message in = message_to_receive(size, capacity, seed);
  struct message out = message_to_send(size, seed);
  while (!start_receive(link, &in, tag)) breathe();
  while (!start_send(link, &out, tag + 1)) breathe(); /* tags matter inside one multi-receive only */
  finish_send(&out);
  finish_receive(&in);
}

/* Side 0 connects before side 1 asks, which would deadlock if connect waited for accept. */
static void connect_comes_first(void) {
  unsigned char handle[kHandleMax];
  char token = 'c';
  struct link link = {NULL, NULL, NULL, NULL, NULL};
  struct message m;
  if (self.side == 1) {
    link.listen_comm = listen_here(handle);
    tell(handle, sizeof handle);
    hear(&token, 1);
    link.recv_comm = accept_here(link.listen_comm);
    succeed(net_close_listen(link.listen_comm), "closeListen"); /* what was accepted goes on */
    m = message_to_receive(5, 5, 1);
    while (!start_receive(&link, &m, 0)) breathe();
    finish_receive(&m);
    barrier();
    succeed(net_close_recv(link.recv_comm), "closeRecv");
    return;
  }
  hear(handle, sizeof handle);
  for (int i = 0; i < 100 && link.send_comm == NULL; ++i) {
    succeed(net_connect(self.context, self.device, handle, &link.send_comm), "connect");
    breathe();
  }
  tell(&token, 1);
  if (link.send_comm == NULL) link.send_comm = connect_there(handle);
  m = message_to_send(5, 1);
  while (!start_send(&link, &m, 0)) breathe();
  finish_send(&m);
  barrier();
  succeed(net_close_send(link.send_comm), "closeSend");
}

/* Side 1 asks before side 0 knows the handle. */
static void accept_comes_first(void) {
  unsigned char handle[kHandleMax];
  if (self.side == 0) {
    hear(handle, sizeof handle);
    void* send_comm = connect_there(handle);
    barrier();
    succeed(net_close_send(send_comm), "closeSend");
    return;
  }
  void* listen_comm = listen_here(handle);
  for (int i = 0; i < 5; ++i) {
    void* early = (void*)0x1;
    succeed(net_accept(listen_comm, &early), "accept");
    expect(early == NULL, "accept gives no comm before one came");
  }
  tell(handle, sizeof handle);
  void* recv_comm = accept_here(listen_comm);
  barrier();
  succeed(net_close_recv(recv_comm), "closeRecv");
  succeed(net_close_listen(listen_comm), "closeListen");
}

static void sizes_and_tags(void) {
  static const size_t sizes[] = {0, 1, 3, 4095, 4096, 65537, kMiB, kMiB + 7};
  struct link link = link_open();
  for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    exchange(&link, sizes[i], sizes[i], (int)i * 1000 - 3, 10 + i);
    exchange(&link, sizes[i], sizes[i] + 1000, 0, 50 + i);
    exchange(&link, sizes[i], 2 * sizes[i] + 1, 7, 91 + i);
  }
  void* request = NULL;
  char byte = 0;
  succeed(net_iflush(link.recv_comm, &byte, 1, link.recv_mr, &request), "iflush");
  for (int done = request == NULL; !done; breathe()) succeed(net_test(request, &done, NULL), "test");
  barrier();
  link_close(&link);
}

/* Every send is posted before any receive is. */
static void sends_come_first(void) {
  struct link link = link_open();
  struct message out[kInFlight], in[kInFlight];
  for (uint32_t i = 0; i < kInFlight; ++i) {
    out[i] = message_to_send(1000 * i + i, i);
    expect(start_send(&link, &out[i], 0), "32 sends in flight");
  }
  barrier();
  for (uint32_t i = 0; i < kInFlight; ++i) {
    in[i] = message_to_receive(1000 * i + i, 40000, i);
    expect(start_receive(&link, &in[i], 0), "32 receives in flight");
  }
  for (int i = 0; i < kInFlight; ++i) finish_receive(&in[i]);
  for (int i = 0; i < kInFlight; ++i) finish_send(&out[i]);
  barrier();
  link_close(&link);
}

static size_t stream_size(uint32_t number) {
  static const size_t sizes[] = {0, 1, 3, 511, 4096, 4097, 65537, 300001, kMiB};
  return sizes[number * 7 % (sizeof sizes / sizeof *sizes)];
}

/* A proxy's loop: up to 32 under way each way, tested in order, started again when a call gave no request. */
static void full_window_both_ways(void) {
  struct link link = link_open();
  struct message in[kInFlight], out[kInFlight];
  uint32_t received = 0, posted = 0, sent = 0, started = 0;
  int in_made = 0, out_made = 0; /* made, but not taken by the plugin yet */
  while (received < kStream || sent < kStream) {
    if (posted < kStream && posted - received < kInFlight) {
      struct message* m = &in[posted % kInFlight];
      if (!in_made) *m = message_to_receive(stream_size(posted), kMiB, posted);
      in_made = !start_receive(&link, m, 0);
      if (!in_made) ++posted;
    }
    if (started < kStream && started - sent < kInFlight) {
      struct message* m = &out[started % kInFlight];
      if (!out_made) *m = message_to_send(stream_size(started), started);
      if (!out_made && corrupt && self.side == 0 && started == 68) m->bytes[m->size / 2] ^= 1;
      out_made = !start_send(&link, m, 0);
      if (!out_made) ++started;
    }
    int progress = 0;
    if (received < posted) progress = poll_receive(&in[received % kInFlight]);
    if (progress < 0) fail(kBroken, "receive %u failed", (unsigned)received);
    received += (uint32_t)progress;
    int more = sent < started ? poll_send(&out[sent % kInFlight]) : 0;
    if (more < 0) fail(kBroken, "send %u failed", (unsigned)sent);
    sent += (uint32_t)more;
    if (progress + more == 0) breathe();
  }
  barrier();
  link_close(&link);
}

/* Large messages from and into memory that is registered meanwhile: it may go without a copy (R2CC_ZERO_COPY_BYTES),
 * and what is overwritten as soon as its request is done stays as it was overwritten. */
static void registered_memory(void) {
  enum { kSlots = 2, kRounds = 8 };
  const size_t size = 700 * 1000;
  struct link link = link_open();
  unsigned char* memory = malloc(2 * kSlots * size);
  void *send_mr = NULL, *recv_mr = NULL;
  succeed(net_reg_mr(link.send_comm, memory, kSlots * size, kPointerHost, &send_mr), "regMr of what is sent");
  succeed(net_reg_mr(link.recv_comm, memory + kSlots * size, kSlots * size, kPointerHost, &recv_mr),
          "regMr of what is received");
  link.send_mr = send_mr;
  link.recv_mr = recv_mr;
  for (int round = 0; round < kRounds; ++round) {
    size_t slot = (size_t)round % kSlots;
    unsigned char *from = memory + slot * size, *to = memory + (kSlots + slot) * size;
    void *sending = NULL, *receiving = NULL;
    int sent = 0, received = 0, got = 0;
    for (size_t i = 0; i < size; ++i) from[i] = (unsigned char)(i * 31 + (size_t)round * 7 + i / 4096);
    memset(to, 0xEE, size);
    for (; !sent || !received; breathe()) {
      if (receiving == NULL && !received) {
        succeed(net_irecv(link.recv_comm, to, size, 1, link.recv_mr, &receiving), "irecv");
      }
      if (sending == NULL && !sent) {
        succeed(net_isend(link.send_comm, from, size, 1, link.send_mr, &sending), "isend");
      }
      if (sending != NULL && !sent) {
        succeed(net_test(sending, &sent, &got), "test");
        if (sent) memset(from, 0x11, size); /* it is the program's again */
      }
      if (receiving != NULL && !received) {
        succeed(net_test(receiving, &received, &got), "test");
        if (received) expect((size_t)got == size, "all of it came");
      }
    }
    for (size_t i = 0; i < size; ++i) {
      unsigned char right = (unsigned char)(i * 31 + (size_t)round * 7 + i / 4096);
      if (to[i] != right) fail(kWrongData, "round %d: byte %zu is %u instead of %u", round, i, to[i], right);
    }
    memset(to, 0x22, size);
  }
  barrier();
  for (size_t i = 0; i < kSlots * size; ++i) {
    if (memory[kSlots * size + i] != 0x22) fail(kWrongData, "byte %zu was written after its receive was done", i);
  }
  succeed(net_dereg_mr(link.send_comm, send_mr), "deregMr");
  succeed(net_dereg_mr(link.recv_comm, recv_mr), "deregMr");
  link_close(&link);
  free(memory);
}

static void many_connections(void) {
  static struct link links[kMany];
  static struct message in[kMany], out[kMany];
  for (int i = 0; i < kMany; ++i) links[i] = link_open();
  for (uint32_t i = 0; i < kMany; ++i) {
    in[i] = message_to_receive(4097, 5000, 1000 + i);
    out[i] = message_to_send(4097, 1000 + i);
    while (!start_receive(&links[i], &in[i], 0)) breathe();
    while (!start_send(&links[i], &out[i], 0)) breathe();
  }
  for (int i = 0; i < kMany; ++i) finish_receive(&in[i]);
  for (int i = 0; i < kMany; ++i) finish_send(&out[i]);
  barrier();
  for (int i = 0; i < kMany; ++i) link_close(&links[i]);
}

/* ncclCommSplit: communicators come and go beside each other. Before version 11 init is the process's. */
static void several_communicators(void) {
  void* first = self.context;
  void* contexts[3] = {first, first, first};
  struct link links[3];
  for (int i = 0; i < 3; ++i) {
    if (version >= 11) succeed(net_init(&contexts[i], (uint64_t)i + 77, log_line), "init");
    self.context = contexts[i];
    succeed(net_set_attributes(contexts[i]), "setNetAttr");
    links[i] = link_open();
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = i; j < 3; ++j) exchange(&links[j], 70001, 70001, 0, (uint32_t)(300 + 10 * i + j));
    barrier();
    link_close(&links[i]);
    if (version >= 11) succeed(net_finalize(contexts[i]), "finalize");
  }
  self.context = first;
  struct link again = link_open(); /* the first communicator is still there */
  exchange(&again, 9, 9, 0, 9);
  barrier();
  link_close(&again);
}

static void sender_closes_in_flight(void) {
  struct link link = link_open();
  struct message m[8];
  for (uint32_t i = 0; i < 8 && self.side == 1; ++i) {
    m[i] = message_to_receive(kMiB, kMiB, i);
    expect(start_receive(&link, &m[i], 0), "receive posted");
  }
  barrier(); /* a receive that is posted after the sender is gone fails by itself */
  if (self.side == 0) {
    for (uint32_t i = 0; i < 8; ++i) {
      m[i] = message_to_send(kMiB, i);
      expect(start_send(&link, &m[i], 0), "send posted");
    }
    succeed(net_close_send(link.send_comm), "closeSend with sends in flight");
    for (int i = 0; i < 8; ++i) free(m[i].bytes); /* nothing may read them from now on */
  } else {
    int failed = 0;
    for (int i = 0; i < 8; ++i) {
      int state = 0;
      while ((state = poll_receive(&m[i])) == 0) breathe(); /* an error, or the whole message */
      failed += state < 0;
    }
    void* request = NULL;
    char byte = 0;
    expect(!failed || (net_irecv(link.recv_comm, &byte, 1, 0, link.recv_mr, &request) != 0 && request == NULL),
           "what is asked for after a failed receive is refused");
    succeed(net_close_send(link.send_comm), "closeSend");
  }
  barrier();
  succeed(net_close_recv(link.recv_comm), "closeRecv");
  succeed(net_close_listen(link.listen_comm), "closeListen");
}

static void receiver_closes_in_flight(void) {
  struct link link = link_open();
  struct message m[8];
  if (self.side == 1) {
    for (uint32_t i = 0; i < 4; ++i) {
      m[i] = message_to_receive(kMiB, kMiB, i);
      expect(start_receive(&link, &m[i], 0), "receive posted");
    }
    succeed(net_close_recv(link.recv_comm), "closeRecv with receives in flight");
    for (int i = 0; i < 4; ++i) memset(m[i].bytes, 0x5A, kMiB);
    barrier();
    for (int i = 0; i < 4; ++i) {
      for (size_t at = 0; at < kMiB; ++at) expect(m[i].bytes[at] == 0x5A, "a buffer is left alone after close");
      free(m[i].bytes);
    }
  } else {
    int failed = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      m[i].request = NULL;
      m[i] = message_to_send(kMiB, i);
      int result = 0;
      while (result == 0 && m[i].request == NULL) {
        result = net_isend(link.send_comm, m[i].bytes, kMiB, 0, link.send_mr, &m[i].request);
      }
      if (result == 0) continue;
      failed = 1;
      free(m[i].bytes);
      m[i].request = NULL;
    }
    for (int i = 0; i < 8; ++i) {
      int state = 0;
      if (m[i].request == NULL) continue;
      while ((state = poll_send(&m[i])) == 0) breathe();
      failed |= state < 0;
    }
    expect(failed, "sends that nobody takes fail");
    void* request = NULL;
    char byte = 0;
    expect(net_isend(link.send_comm, &byte, 1, 0, link.send_mr, &request) != 0 && request == NULL,
           "a send on a connection that ended is refused");
    barrier();
    succeed(net_close_recv(link.recv_comm), "closeRecv");
  }
  barrier();
  succeed(net_close_send(link.send_comm), "closeSend");
  succeed(net_close_listen(link.listen_comm), "closeListen");
}

/* A handle travels over the job's bootstrap network: what arrives changed is refused, wherever the change is. */
static void changed_handles_are_refused(void) {
  static const size_t places[] = {0, 4, 5, kHandleMax - 8, kHandleMax - 1};
  unsigned char handle[kHandleMax];
  void* listen_comm = listen_here(handle);
  for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
    void* send_comm = NULL;
    handle[places[i]] ^= 0x55;
    expect(net_connect(self.context, self.device, handle, &send_comm) > 0, "a changed handle is refused");
    expect(send_comm == NULL, "a refused connect gives no comm");
    handle[places[i]] ^= 0x55;
  }
  succeed(net_close_listen(listen_comm), "closeListen");
}

/* A listener that is closed with nobody accepted: who connected, or still tries to, gets an error. */
static void listener_closes(int connect_first) {
  unsigned char handle[kHandleMax];
  if (self.side == 1) {
    void* listen_comm = listen_here(handle);
    tell(handle, sizeof handle);
    if (connect_first) barrier();
    succeed(net_close_listen(listen_comm), "closeListen");
    barrier();
    barrier();
    return;
  }
  struct link link = {NULL, NULL, NULL, NULL, NULL};
  int result = 0;
  hear(handle, sizeof handle);
  if (connect_first) {
    link.send_comm = connect_there(handle);
    barrier();
  }
  barrier();
  while (result == 0 && link.send_comm == NULL) {
    result = net_connect(self.context, self.device, handle, &link.send_comm);
    breathe();
  }
  if (link.send_comm != NULL) {
    struct message m = message_to_send(kMiB, 5);
    result = net_isend(link.send_comm, m.bytes, m.size, 0, NULL, &m.request);
    if (result == 0) {
      while ((result = poll_send(&m)) == 0) breathe();
    } else {
      free(m.bytes);
    }
    expect(result != 1, "a message that nobody accepts fails");
    succeed(net_close_send(link.send_comm), "closeSend");
  }
  barrier();
}

static int open_files(void) {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (folder != NULL && readdir(folder) != NULL) ++count;
  if (folder != NULL) closedir(folder);
  return count;
}

/* An aborted communicator stops asking for its connections, and tells nobody: in time they are dropped, with their
 * sockets, and who asks for one after all is refused. */
static void connects_are_abandoned(void) {
  enum { kConnects = 8 };
  unsigned char handle[kHandleMax], fresh[kHandleMax], copies[kConnects][kHandleMax];
  if (self.side == 1) {
    void* listen_comm = listen_here(handle);
    tell(handle, sizeof handle);
    barrier();
    succeed(net_close_listen(listen_comm), "closeListen");
    return;
  }
  hear(handle, sizeof handle);
  memcpy(fresh, handle, sizeof handle);
  int before = open_files(), most = 0, begun = 0;
  for (int i = 0; i < kConnects; ++i) {
    void* send_comm = NULL;
    memcpy(copies[begun], handle, sizeof handle);
    succeed(net_connect(self.context, self.device, copies[begun], &send_comm), "connect");
    if (send_comm == NULL) {
      ++begun;
    } else { /* so soon */
      succeed(net_close_send(send_comm), "closeSend");
    }
  }
  expect(begun > 0, "some connections take longer than a call");
  for (int now = before + 1; now > before;) {
    succeed(net_close_listen(listen_here(handle)), "closeListen"); /* what is abandoned is looked for here */
    now = open_files();
    most = now > most ? now : most;
    breathe();
  }
  expect(most >= before + begun, "every connection had a socket");
  /* Connections that are under way by now, perhaps where the dropped ones lay, are none of theirs. */
  void* later[kConnects] = {NULL};
  unsigned char handles[kConnects][kHandleMax];
  for (int i = 0; i < kConnects; ++i) {
    memcpy(handles[i], fresh, sizeof fresh);
    succeed(net_connect(self.context, self.device, handles[i], &later[i]), "connect");
  }
  for (int i = 0; i < begun; ++i) {
    void* send_comm = NULL;
    expect(net_connect(self.context, self.device, copies[i], &send_comm) > 0 && send_comm == NULL, "it is refused");
  }
  for (int i = 0; i < kConnects; ++i) {
    if (later[i] == NULL) later[i] = connect_there(handles[i]);
    succeed(net_close_send(later[i]), "closeSend");
  }
  barrier();
}

/* A rank that crashes: what its peer has under way fails, and so does what it starts later. */
static void peer_dies(void) {
  struct link link = link_open();
  struct message in = message_to_receive(kMiB, kMiB, 1), out = message_to_send(kMiB, 1);
  expect(start_receive(&link, &in, 0), "receive posted");
  barrier();
  if (self.side == 1) _exit(kOk);
  expect(start_send(&link, &out, 0), "send posted");
  int state = 0;
  while ((state = poll_receive(&in)) == 0) breathe();
  expect(state < 0, "a receive from a rank that is gone fails");
  while ((state = poll_send(&out)) == 0) breathe(); /* the receive was posted: it may have been served */
  struct message later = message_to_send(1, 2);
  later.request = NULL;
  int result = 0;
  while (result == 0) {
    result = net_isend(link.send_comm, later.bytes, 1, 0, link.send_mr, &later.request);
    int done = 0, size = 0;
    while (result == 0 && !done) result = net_test(later.request, &done, &size);
    breathe();
  }
  free(later.bytes);
  link_close(&link);
}

static void drive(const char* path) {
  scenario("load");
  const char* problem = tables_open(path, version);
  if (problem == NULL) problem = tables_unexpected();
  if (problem == NULL) problem = net_missing(0);
  if (problem != NULL) fail(kBroken, "%s", problem);
  expect(net_name() != NULL && strcmp(net_name(), "r2ccl") == 0, "the name is r2ccl");
  succeed(net_init(&self.context, 76, log_line), "init");
  expect(log_lines > 0, "init says what it found");
  if (abandon) { /* first, as files of other connections must not close meanwhile */
    scenario("connects are abandoned");
    connects_are_abandoned();
  }
  scenario("properties");
  properties_are_plausible();
  scenario("connect before accept");
  connect_comes_first();
  scenario("accept before connect");
  accept_comes_first();
  scenario("sizes and tags");
  sizes_and_tags();
  scenario("sends before receives");
  sends_come_first();
  scenario("full window both ways");
  full_window_both_ways();
  scenario("registered memory");
  registered_memory();
  scenario("many connections");
  many_connections();
  scenario("several communicators");
  several_communicators();
  scenario("sender closes in flight");
  sender_closes_in_flight();
  scenario("receiver closes in flight");
  receiver_closes_in_flight();
  scenario("listener closes unused");
  listener_closes(0);
  scenario("listener closes before accept");
  listener_closes(1);
  scenario("changed handles");
  changed_handles_are_refused();
  if (die) {
    scenario("peer dies");
    peer_dies();
    exit(kOk);
  }
  scenario("unload");
  succeed(net_finalize(self.context), "finalize");
  succeed(tables_close(), "dlclose");
  barrier();
}

int main(int argc, char** argv) {
  int known = 3;
  for (int i = 3; i < argc; ++i) {
    corrupt |= strcmp(argv[i], "--corrupt") == 0;
    abandon |= strcmp(argv[i], "--abandon") == 0;
    die |= strcmp(argv[i], "--die") == 0;
    verbose |= strcmp(argv[i], "--verbose") == 0;
    nics |= strcmp(argv[i], "--nics") == 0;
    int words = take_side(argc, argv, i);
    known += words;
    if (words > 0) i += words - 1;
  }
  version = argc >= 3 ? atoi(argv[2]) : 0;
  known += corrupt + abandon + die + verbose + nics;
  if (argc != known || version < kFirstVersion || version > kLastVersion) {
    fprintf(stderr,
            "usage: %s LIBRARY VERSION(8..12) [--corrupt] [--abandon] [--die] [--verbose] [--nics] "
            "[--side 0|1 ADDRESS PORT]\n",
            argv[0]);
    return kUsage;
  }
  return run_sides(drive, argv[1]);
}
