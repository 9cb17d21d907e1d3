/* The line between the two processes, the opening of links, and messages whose every byte is checked. */
#define _POSIX_C_SOURCE 200809L

#include "plugin_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin_tables.h"

enum { kScenarioSeconds = 240 };

struct peer self;
static const char* current = "";
static const char *address, *port; /* of --side */

/* Only what a signal handler may call. */
static void on_alarm(int signal_number) {
  (void)signal_number;
  static const char text[] = " hangs\n";
  ssize_t ignored = write(STDERR_FILENO, current, strlen(current));
  ignored += write(STDERR_FILENO, text, sizeof text - 1);
  (void)ignored;
  _exit(kHang);
}

void scenario(const char* name) {
  current = name;
  signal(SIGALRM, on_alarm);
  alarm(kScenarioSeconds);
  barrier();
}

void fail(int code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "side %d, %s: ", self.side, current);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  fflush(NULL);
  _exit(code);
}

void expect(int condition, const char* what) {
  if (!condition) fail(kBroken, "expected: %s", what);
}

void succeed(int result, const char* call) {
  if (result != 0) fail(kBroken, "%s gave result %d", call, result);
}

int take_side(int argc, char** argv, int at) {
  if (strcmp(argv[at], "--side") != 0 || at + 3 >= argc) return 0;
  self.side = atoi(argv[at + 1]);
  address = argv[at + 2];
  port = argv[at + 3];
  return 4;
}

/* To the side on another host, where side 0 listens; -1: there is none. */
static int line_to_host(void) {
  struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, address, &there.sin_addr);
  if (self.side == 0) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr*)&there, sizeof there) != 0 || listen(fd, 1) != 0) return -1;
    return accept(fd, NULL, NULL);
  }
  while (connect(fd, (struct sockaddr*)&there, sizeof there) != 0) {
    close(fd);
    breathe();
    fd = socket(AF_INET, SOCK_STREAM, 0);
  }
  return fd;
}

static pid_t start(int side, int lines[2], void (*drive)(const char*), const char* path) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  self.side = side;
  self.line = lines[side];
  close(lines[1 - side]);
  drive(path);
  exit(kOk); /* through the exit handlers, with the plugin's threads alive */
}

static int verdict(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  fprintf(stderr, "a process was ended by signal %d\n", WTERMSIG(status));
  return kCrash;
}

static int both(void (*drive)(const char*), const char* path) {
  int lines[2], code = kOk;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) != 0) return kCrash;
  pid_t sides[2] = {start(0, lines, drive, path), start(1, lines, drive, path)};
  close(lines[0]);
  close(lines[1]);
  int status = 0;
  pid_t first = wait(&status);
  code = verdict(status);
  /* The first to fail knows why; the other may only have seen it go, unless both ended at the same time. */
  if (code != kOk) kill(first == sides[0] ? sides[1] : sides[0], SIGKILL);
  wait(&status);
  if (code == kOk) return verdict(status);
  return WIFEXITED(status) && WEXITSTATUS(status) == kWrongData ? kWrongData : code;
}

int run_sides(void (*drive)(const char*), const char* path) {
  signal(SIGPIPE, SIG_IGN);
  if (address == NULL) return both(drive, path);
  self.line = line_to_host();
  if (self.line < 0) return kBroken;
  drive(path);
  return kOk;
}

void tell(const void* data, size_t size) {
  if (write(self.line, data, size) != (ssize_t)size) fail(kBroken, "the other side is gone");
}

void hear(void* data, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t more = read(self.line, (char*)data + got, size - got);
    if (more <= 0) fail(kBroken, "the other side is gone");
    got += (size_t)more;
  }
}

void barrier(void) {
  char token = 'b';
  tell(&token, 1);
  hear(&token, 1);
}

void breathe(void) {
  struct timespec pause = {0, 50000};
  nanosleep(&pause, NULL);
}

void* listen_here(void* handle) {
  unsigned char room[kHandleMax + kGuard];
  void* comm = NULL;
  memset(room, 0xA5, sizeof room);
  succeed(net_listen(self.context, self.device, room, &comm), "listen");
  expect(comm != NULL, "listen gives a comm at once");
  for (size_t i = kHandleMax; i < sizeof room; ++i) expect(room[i] == 0xA5, "a handle of at most 128 bytes");
  memcpy(handle, room, kHandleMax);
  return comm;
}

void* connect_there(void* handle) {
  void* comm = NULL;
  while (comm == NULL) {
    succeed(net_connect(self.context, self.device, handle, &comm), "connect");
    if (comm == NULL) breathe();
  }
  return comm;
}

void* accept_here(void* listen_comm) {
  void* comm = NULL;
  while (comm == NULL) {
    succeed(net_accept(listen_comm, &comm), "accept");
    if (comm == NULL) breathe();
  }
  return comm;
}

static void* registered(void* comm, size_t size) {
  void* mhandle = NULL;
  void* memory = malloc(size);
  expect(net_reg_mr(comm, memory, size, kPointerCuda, &mhandle) != 0, "device memory is refused");
  succeed(net_reg_mr(comm, memory, size, kPointerHost, &mhandle), "regMr");
  succeed(net_dereg_mr(comm, mhandle), "deregMr");
  free(memory);
  return mhandle;
}

struct link link_open(void) {
  struct link link;
  unsigned char handle[kHandleMax];
  link.listen_comm = listen_here(handle);
  tell(handle, sizeof handle);
  hear(handle, sizeof handle);
  link.send_comm = link.recv_comm = NULL;
  while (link.send_comm == NULL || link.recv_comm == NULL) {
    if (link.send_comm == NULL) succeed(net_connect(self.context, self.device, handle, &link.send_comm), "connect");
    if (link.recv_comm == NULL) succeed(net_accept(link.listen_comm, &link.recv_comm), "accept");
    breathe();
  }
  link.send_mr = registered(link.send_comm, 4096);
  link.recv_mr = registered(link.recv_comm, 4096);
  barrier(); /* an end that closes at once would make the other's connect fail, rightly */
  return link;
}

void link_close(struct link* link) {
  succeed(net_close_send(link->send_comm), "closeSend");
  succeed(net_close_recv(link->recv_comm), "closeRecv");
  succeed(net_close_listen(link->listen_comm), "closeListen");
}

/* Whole numbers only, and every byte depends on its place and on its message. */
static unsigned char byte_at(uint32_t seed, size_t place) {
  uint32_t x = (uint32_t)place + seed * 2654435761u;
  x = (x ^ (x >> 16)) * 73244475u;
  return (unsigned char)((x ^ (x >> 16)) & 255);
}

struct message message_to_send(size_t size, uint32_t seed) {
  struct message message = {malloc(size + 1), size, size, seed, NULL};
  for (size_t i = 0; i < size; ++i) message.bytes[i] = byte_at(seed, i);
  return message;
}

struct message message_to_receive(size_t size, size_t capacity, uint32_t seed) {
  struct message message = {malloc(capacity + kGuard), size, capacity, seed, NULL};
  memset(message.bytes, 0xEE, capacity + kGuard);
  return message;
}

int start_send(const struct link* link, struct message* message, int tag) {
  message->request = NULL;
  succeed(net_isend(link->send_comm, message->bytes, message->size, tag, link->send_mr, &message->request), "isend");
  return message->request != NULL;
}

int start_receive(const struct link* link, struct message* message, int tag) {
  /* NCCL says by this value that it can do without the completion: flags travel in the data. */
  message->request = message->seed % 2 == 1 ? (void*)0x1 : NULL;
  succeed(net_irecv(link->recv_comm, message->bytes, message->capacity, tag, link->recv_mr, &message->request),
          "irecv");
  expect(message->request != (void*)0x1, "irecv replaces the request");
  return message->request != NULL;
}

static void check(const struct message* message, int size) {
  if ((size_t)size != message->size) {
    fail(kBroken, "message %u of %zu bytes was reported as %d", (unsigned)message->seed, message->size, size);
  }
  for (size_t i = 0; i < message->size; ++i) {
    if (message->bytes[i] == byte_at(message->seed, i)) continue;
    fail(kWrongData, "message %u of %zu bytes: byte %zu is %u instead of %u", (unsigned)message->seed, message->size, i,
         message->bytes[i], byte_at(message->seed, i));
  }
  for (size_t i = message->size; i < message->capacity + kGuard; ++i) {
    if (message->bytes[i] != 0xEE)
      fail(kWrongData, "byte %zu behind message %u was written", i, (unsigned)message->seed);
  }
}

static int poll_request(struct message* message, int* size) {
  int done = 0;
  *size = -1;
  if (net_test(message->request, &done, size) != 0) return -1;
  return done;
}

int poll_send(struct message* message) {
  int size = 0;
  int state = poll_request(message, &size);
  if (state == 1) expect(size == (int)message->size, "a send reports its size");
  if (state != 0) free(message->bytes);
  return state;
}

int poll_receive(struct message* message) {
  int size = 0;
  int state = poll_request(message, &size);
  if (state == 1) check(message, size);
  if (state != 0) free(message->bytes);
  return state;
}

static void finish(struct message* message, int (*poll)(struct message*)) {
  int state = 0;
  while ((state = poll(message)) == 0) breathe();
  if (state < 0) fail(kBroken, "message %u failed", (unsigned)message->seed);
}

void finish_send(struct message* message) { finish(message, poll_send); }
void finish_receive(struct message* message) { finish(message, poll_receive); }
