/* Measures the plugin as NCCL's proxy thread uses it, beside plain sockets that do what NCCL's own transport does: one
 * stream a connection, a length before each message, everything moved by the thread that asks.
 *
 *   gcc -O2 plugin_bench.c plugin_tables.c -ldl -o plugin_bench
 *   plugin_bench LIBRARY|sockets hop|stream|exchange|ring BYTES COUNT CONNECTIONS NETNS NETNS ADDRESS
 *
 * Two processes, each in its network namespace ("-": where it is), with ADDRESS that of the second, or several after
 * commas, one for each NIC; connections take the NICs in turn. hop: a message goes
 * to and fro, over one connection after the other; prints the median and the 90th percentile of a way in microseconds.
 * stream: both ways at once, eight messages ahead; prints GB/s of one way and CPU seconds per GB of both ends.
 * exchange: a message each way over all connections at once, as NCCL's AllToAll of two hosts; ring: two of them, the
 * second over each connection when its first has come, as an AllReduce. Both print the median, the 10th and the 90th
 * percentile of an exchange in microseconds, from batches of 20, the processor time of both ends, and how often their
 * threads slept. */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin_tables.h"

enum { kAhead = 8, kMost = 64, kBatch = 20 };

static int line; /* to the other process */
static int side;
static const char* remotes[kMost];
static int nics;
static int plain;

static void must(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "side %d: %s: %s\n", side, what, strerror(errno));
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void log_line(int level, unsigned long flags, const char* file, int at, const char* format, ...) {
  (void)flags, (void)file, (void)at;
  if (level > 2) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

static void swap_bytes(void* mine, void* theirs, size_t size) {
  must(write(line, mine, size) == (ssize_t)size, "tell");
  for (size_t got = 0; got < size;) {
    ssize_t more = read(line, (char*)theirs + got, size - got);
    must(more > 0, "hear");
    got += (size_t)more;
  }
}

/* One way of a connection, its requests in order. */
struct way {
  void* comm;
  int fd;
  struct request {
    void* handle;
    char* data;
    uint32_t size, header;
    size_t moved; /* header included */
    int busy;
  } requests[kAhead];
  unsigned first, next;
};

static int plain_send(struct way* way) {
  struct request* r = &way->requests[way->first % kAhead];
  struct iovec parts[2] = {{(char*)&r->header + (r->moved < 4 ? r->moved : 4), r->moved < 4 ? 4 - r->moved : 0},
                           {r->data + (r->moved > 4 ? r->moved - 4 : 0), r->size - (r->moved > 4 ? r->moved - 4 : 0)}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  ssize_t sent = sendmsg(way->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  must(sent >= 0 || errno == EAGAIN, "send");
  if (sent > 0) r->moved += (size_t)sent;
  return r->moved == 4 + (size_t)r->size;
}

static int plain_receive(struct way* way) {
  struct request* r = &way->requests[way->first % kAhead];
  for (int part = 0; part < 2; ++part) {
    size_t end = r->moved < 4 ? 4 : 4 + (size_t)r->header;
    char* to = r->moved < 4 ? (char*)&r->header + r->moved : r->data + r->moved - 4;
    if (r->moved == end) break;
    ssize_t got = recv(way->fd, to, end - r->moved, MSG_DONTWAIT);
    must(got > 0 || (got < 0 && errno == EAGAIN), "receive");
    if (got <= 0) return 0;
    r->moved += (size_t)got;
  }
  return r->moved >= 4 && r->moved == 4 + (size_t)r->header;
}

/* Posts the next request of `way`; 0 while there is no room. */
static int post(struct way* way, int is_send, char* data, uint32_t size) {
  struct request* r = &way->requests[way->next % kAhead];
  if (way->next - way->first == kAhead) return 0;
  *r = (struct request){NULL, data, size, size, 0, 1};
  if (!plain) {
    int result = is_send ? net_isend(way->comm, data, size, 0, NULL, &r->handle)
                         : net_irecv(way->comm, data, size, 0, NULL, &r->handle);
    must(result == 0, "post");
    if (r->handle == NULL) return 0;
  }
  ++way->next;
  return 1;
}

/* How many of the oldest requests are done. */
static int progress(struct way* way, int is_send) {
  int count = 0;
  for (; way->first != way->next; ++way->first, ++count) {
    int done = 0;
    if (plain) {
      done = is_send ? plain_send(way) : plain_receive(way);
    } else {
      must(net_test(way->requests[way->first % kAhead].handle, &done, NULL) == 0, "test");
    }
    if (!done) break;
  }
  return count;
}

static int plain_socket(const char* remote, uint16_t port) {
  int one = 1;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = port};
  if (remote != NULL) {
    inet_pton(AF_INET, remote, &where.sin_addr);
    must(connect(fd, (struct sockaddr*)&where, sizeof where) == 0, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  } else {
    must(bind(fd, (struct sockaddr*)&where, sizeof where) == 0 && listen(fd, 64) == 0, "listen");
  }
  return fd;
}

/* Both ways between side 0 and side 1; plain streams are all opened by side 0. */
static void open_plain(int connection, struct way* out, struct way* in) {
  struct sockaddr_in where = {.sin_port = 0};
  socklen_t length = sizeof where;
  uint16_t port = 0, theirs = 0;
  int one = 1;
  int listener = plain_socket(NULL, 0);
  getsockname(listener, (struct sockaddr*)&where, &length);
  port = where.sin_port;
  swap_bytes(&port, &theirs, sizeof port);
  for (int i = 0; i < 2; ++i) {
    int fd = side == 0 ? plain_socket(remotes[connection % nics], theirs) : accept(listener, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (i == side ? out : in)->fd = fd;
  }
  close(listener);
}

static void open_plugin(void* context, int connection, struct way* out, struct way* in) {
  char mine[kHandleMax] = {0}, theirs[kHandleMax];
  void* listener = NULL;
  must(net_listen(context, connection % nics, mine, &listener) == 0, "listen");
  swap_bytes(mine, theirs, sizeof mine);
  while (out->comm == NULL || in->comm == NULL) {
    if (out->comm == NULL) must(net_connect(context, connection % nics, theirs, &out->comm) == 0, "connect");
    if (in->comm == NULL) must(net_accept(listener, &in->comm) == 0, "accept");
    usleep(100);
  }
}

static int by_value(const void* a, const void* b) {
  double difference = *(const double*)a - *(const double*)b;
  return difference < 0 ? -1 : difference > 0;
}

static void hop(struct way* out, struct way* in, int connections, uint32_t size, int count, char* data) {
  double* times = calloc((size_t)count, sizeof *times);
  for (int c = 0; c < connections; ++c) {
    while (post(&in[c], 0, data, size)) {
    }
  }
  for (int i = 0; i < count; ++i) {
    int c = i % connections;
    double begin = now();
    if (side == 0) must(post(&out[c], 1, data + size, size), "room");
    for (int got = 0; got == 0;) {
      for (int k = 0; k < connections; ++k) progress(&out[k], 1);
      for (int k = 0; k < connections; ++k) got += progress(&in[k], 0);
    }
    if (side == 1) {
      while (!post(&out[c], 1, data + size, size)) progress(&out[c], 1);
    }
    times[i] = (now() - begin) * 1e6 / 2;
    post(&in[c], 0, data, size);
  }
  for (double end = now() + 0.05; now() < end;) { /* so that the last words arrive */
    for (int k = 0; k < connections; ++k) progress(&out[k], 1);
  }
  qsort(times + count / 10, (size_t)(count - count / 10), sizeof *times, by_value);
  size_t warm = (size_t)(count / 10), rest = (size_t)count - warm;
  if (side == 0) printf("%.2f %.2f\n", times[warm + rest / 2], times[warm + rest * 9 / 10]);
}

static double seconds(const struct rusage* used) {
  return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
         1e-6 * (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
}

static void stream(struct way* out, struct way* in, int connections, uint32_t size, int count, char* data) {
  int left = 0, each = count / connections;
  int* posts = calloc((size_t)connections * 2, sizeof *posts);
  double begin = now();
  for (left = 2 * each * connections; left > 0;) {
    for (int k = 0; k < connections; ++k) {
      if (posts[2 * k] < each && post(&in[k], 0, data + (size_t)k * 2 * size, size)) ++posts[2 * k];
      if (posts[2 * k + 1] < each && post(&out[k], 1, data + ((size_t)k * 2 + 1) * size, size)) ++posts[2 * k + 1];
      left -= progress(&out[k], 1) + progress(&in[k], 0);
    }
  }
  double elapsed = now() - begin;
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  double cpu = seconds(&used);
  double theirs = 0;
  swap_bytes(&cpu, &theirs, sizeof cpu);
  double bytes = (double)size * each * connections;
  if (side == 0) printf("%.3f GB/s, %.3f CPU s/GB\n", bytes / elapsed / 1e9, (cpu + theirs) / (2 * bytes / 1e9));
}

/* The proxy thread's turn: of each connection in order, what can be posted is, and the oldest request is asked about.
 */
static void exchange(struct way* out, struct way* in, int connections, int steps, uint32_t size, int count,
                     char* data) {
  int batches = count / kBatch, warm = batches / 10;
  double* times = calloc((size_t)batches + 1, sizeof *times);
  int sent[kMost] = {0}, got[kMost] = {0};
  struct rusage before, after;
  for (int c = 0; c < connections; ++c) {
    while (post(&in[c], 0, data, size)) {
    }
  }
  double begin = now();
  for (int i = 0; i < batches * kBatch; ++i) {
    if (i == warm * kBatch) getrusage(RUSAGE_SELF, &before);
    for (int missing = 1; missing != 0;) {
      for (int c = 0; c < connections; ++c) {
        int due = sent[c] < (i + 1) * steps && (sent[c] % steps == 0 || sent[c] <= got[c]);
        if (due && post(&out[c], 1, data + size, size)) {
          ++sent[c];
        } else {
          progress(&out[c], 1);
        }
      }
      missing = 0;
      for (int c = 0; c < connections; ++c) {
        got[c] += progress(&in[c], 0);
        while (post(&in[c], 0, data, size)) {
        }
        missing += got[c] < (i + 1) * steps || sent[c] < (i + 1) * steps;
      }
    }
    if ((i + 1) % kBatch != 0) continue;
    double end = now();
    times[i / kBatch] = (end - begin) * 1e6 / kBatch;
    begin = end;
  }
  getrusage(RUSAGE_SELF, &after);
  double mine[2] = {seconds(&after) - seconds(&before), (double)(after.ru_nvcsw - before.ru_nvcsw)}, theirs[2];
  for (double end = now() + 0.05; now() < end;) { /* so that the last words arrive */
    for (int k = 0; k < connections; ++k) progress(&out[k], 1);
  }
  swap_bytes(mine, theirs, sizeof mine);
  int rest = batches - warm;
  qsort(times + warm, (size_t)rest, sizeof *times, by_value);
  if (side == 0) {
    printf("%.1f us (%.1f, %.1f), CPU %.1f us, %.2f sleeps\n", times[warm + rest / 2], times[warm + rest / 10],
           times[warm + rest * 9 / 10], (mine[0] + theirs[0]) / (rest * kBatch) * 1e6,
           (mine[1] + theirs[1]) / (rest * kBatch));
  }
}

int main(int argc, char** argv) {
  must(argc == 9 && atoi(argv[5]) <= kMost,
       "usage: LIBRARY|sockets hop|stream|exchange|ring BYTES COUNT CONNECTIONS NETNS NETNS ADDRESS");
  int ends[2];
  must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  pid_t child = fork();
  side = child == 0;
  line = ends[side];
  close(ends[!side]); /* who outlives the other sees it */
  const char* place = argv[6 + side];
  if (strcmp(place, "-") != 0) {
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", place);
    must(setns(open(path, O_RDONLY | O_CLOEXEC), CLONE_NEWNET) == 0, path);
  }
  for (char* one = strtok(argv[8], ","); one != NULL && nics < kMost; one = strtok(NULL, ",")) remotes[nics++] = one;
  plain = strcmp(argv[1], "sockets") == 0;
  void* context = NULL;
  if (!plain) {
    const char* wrong = tables_open(argv[1], 11);
    if (wrong != NULL) fprintf(stderr, "%s\n", wrong), exit(1);
    must(net_init(&context, 1, log_line) == 0, "init");
  }
  uint32_t size = (uint32_t)atoi(argv[3]);
  int count = atoi(argv[4]), connections = atoi(argv[5]);
  struct way* ways = calloc(2 * kMost, sizeof *ways);
  for (int c = 0; c < connections; ++c) {
    plain ? open_plain(c, &ways[c], &ways[kMost + c]) : open_plugin(context, c, &ways[c], &ways[kMost + c]);
  }
  char token = 't', other;
  size_t room = (size_t)size * 2 * (size_t)connections + 1;
  char* data = malloc(room);
  memset(data, 'x', room);
  swap_bytes(&token, &other, 1);
  if (strcmp(argv[2], "hop") == 0) {
    hop(ways, ways + kMost, connections, size, count, data);
  } else if (strcmp(argv[2], "stream") == 0) {
    stream(ways, ways + kMost, connections, size, count, data);
  } else {
    int steps = strcmp(argv[2], "ring") == 0 ? 2 : 1;
    exchange(ways, ways + kMost, connections, steps, size, count, data);
  }
  swap_bytes(&token, &other, 1);
  fflush(NULL);
  int status = 0;
  if (child != 0) waitpid(child, &status, 0);
  _exit(status != 0);
}
