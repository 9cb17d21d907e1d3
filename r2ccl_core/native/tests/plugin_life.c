/* Communicators that come and go in one process, as NCCL makes and ends them, with connections and messages in each.
 *
 *   plugin_life RELEASE [--rounds N] [--netns A B] [--leak descriptor|thread|memory] [--corrupt] [--verbose]
 *
 * Two processes, each with one communicator at a time (in every fourth round two), load the plugin that NCCL_NET_PLUGIN
 * names as that release of NCCL does (nccl_loader.h). With --netns side 0 runs in network namespace A and side 1 in B,
 * whose NICs somebody else may break meanwhile; else both use loopback. Every third communicator is aborted with
 * messages under way. At the end the process must have the descriptors, the threads and about the memory that it had
 * after a few rounds. --leak and --corrupt do what these checks are for: exit codes 6 and 3. Others as plugin_driver.c;
 * 7: a communicator could not be made. */
#define _GNU_SOURCE

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl_loader.h"
#include "plugin_peer.h"
#include "plugin_tables.h"

enum { kLeak = 6, kNoPlugin = 7 };
enum { kWarmUp = 8, kSettleSeconds = 10, kSettleLeaked = 2, kMostGrowth = 192 << 10, kLeakedBytes = 16 << 10 };

static int rounds = 50;
static const char* leak = "";
static int corrupt;
static int verbose;
static const char* places[2];

struct usage {
  int descriptors, threads;
  size_t memory;
};

static void log_line(int level, unsigned long flags, const char* file, int line, const char* format, ...) {
  char text[1024];
  va_list arguments;
  (void)flags, (void)file, (void)line;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (verbose) fprintf(stderr, "side %d: level %d %s\n", self.side, level, text);
}

static int entries_of(const char* path) {
  int found = 0;
  DIR* folder = opendir(path);
  while (folder != NULL && readdir(folder) != NULL) ++found;
  if (folder != NULL) closedir(folder);
  return found;
}

static struct usage usage_now(void) {
  struct usage usage = {entries_of("/proc/self/fd"), entries_of("/proc/self/task"), mallinfo2().uordblks};
  return usage;
}

static void* idle(void* nothing) {
  pause();
  return nothing;
}

static void* volatile lost; /* or the compiler would see that nobody uses it */

static void leak_something(void) {
  pthread_t thread;
  if (strcmp(leak, "descriptor") == 0) (void)!dup(0);
  if (strcmp(leak, "thread") == 0) pthread_create(&thread, NULL, idle, NULL);
  if (strcmp(leak, "memory") == 0) lost = malloc(kLeakedBytes);
}

static void exchange(struct link* link, size_t size, uint32_t seed, int change) {
  struct message in = message_to_receive(size, size, seed);
  struct message out = message_to_send(size, seed);
  if (change) out.bytes[size / 2] ^= 1;
  while (!start_receive(link, &in, 0)) breathe();
  while (!start_send(link, &out, 0)) breathe();
  finish_send(&out);
  finish_receive(&in);
}

/* Ends everything with messages of every kind under way; nothing may touch their buffers afterwards. */
static void abort_link(struct link* link) {
  static const size_t sizes[] = {1, 4096, 16384, 300001};
  struct message in[4], out[4];
  for (int i = 0; i < 4; ++i) {
    in[i] = message_to_receive(sizes[i], sizes[i], (uint32_t)i);
    out[i] = message_to_send(sizes[i], (uint32_t)i);
    start_receive(link, &in[i], 0);
    start_send(link, &out[i], 0);
  }
  barrier(); /* or the other's calls fail, rightly */
  link_close(link);
  for (int i = 0; i < 4; ++i) free(in[i].bytes), free(out[i].bytes);
}

static void make(void** context, int number) {
  if (loader_init_comm(context, (uint64_t)number, log_line) == kNcclSuccess) return;
  fail(kNoPlugin, "communicator %d: Failed to initialize any NET plugin", number);
}

static void live(int number) {
  static const size_t sizes[] = {0, 1, 4097, 16384, 16385, 300001, 1 << 20};
  void* contexts[2] = {NULL, NULL};
  int both = number % 4 == 3;
  make(&contexts[0], number);
  if (both) make(&contexts[1], number);
  self.context = contexts[0];
  struct link link = link_open(), second = link_open();
  for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    int change = corrupt && self.side == 0 && number == 2 && i == 5;
    exchange(&link, sizes[i], (uint32_t)number * 100 + i, change);
    exchange(&second, sizes[i] / 2, (uint32_t)number * 100 + i, 0);
  }
  barrier();
  link_close(&second);
  if (number % 3 == 2) {
    abort_link(&link);
  } else {
    link_close(&link);
  }
  loader_end_comm(contexts[0]);
  if (both) loader_end_comm(contexts[1]);
  leak_something();
}

/* The last words of closed connections, and what was freed late: waited for, then judged. */
static void compare(const struct usage* before) {
  struct usage now = usage_now();
  struct timespec pause = {0, 20000000};
  int seconds = *leak != '\0' ? kSettleLeaked : kSettleSeconds;
  for (int i = 0; i < seconds * 50; ++i) {
    now = usage_now();
    if (now.descriptors <= before->descriptors && now.threads <= before->threads &&
        now.memory <= before->memory + kMostGrowth) {
      break;
    }
    nanosleep(&pause, NULL);
  }
  fprintf(stderr, "side %d: descriptors %d to %d, threads %d to %d, memory %zu to %zu, closed %d times\n", self.side,
          before->descriptors, now.descriptors, before->threads, now.threads, before->memory, now.memory,
          loader_closed());
  if (now.descriptors > before->descriptors) fail(kLeak, "descriptors are left");
  if (now.threads > before->threads) fail(kLeak, "threads are left");
  if (now.memory > before->memory + kMostGrowth) fail(kLeak, "memory is left");
}

static void enter(const char* place) {
  char path[128];
  if (place == NULL) return;
  snprintf(path, sizeof path, "/run/netns/%s", place);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) fail(kBroken, "%s: no such network namespace", path);
  close(fd);
}

static void drive(void) {
  struct usage before = {0, 0, 0};
  enter(places[self.side]);
  for (int number = 0; number < rounds; ++number) {
    scenario("a communicator");
    if (number == kWarmUp) {
      struct timespec pause = {1, 200000000}; /* a closed connection lives on for a second at most */
      nanosleep(&pause, NULL);
      before = usage_now();
    }
    live(number);
  }
  alarm(0);
  if (rounds > kWarmUp) compare(&before);
  barrier();
}

static pid_t start(int side, int lines[2]) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  self.side = side;
  self.line = lines[side];
  close(lines[1 - side]);
  drive();
  exit(kOk);
}

static int verdict(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : kCrash; }

static const char* read_arguments(int argc, char** argv) {
  const char* problem = argc < 2 ? "no release" : loader_choose(argv[1]);
  for (int i = 2; i < argc && problem == NULL; ++i) {
    int more = argc - i - 1;
    if (strcmp(argv[i], "--corrupt") == 0) {
      corrupt = 1;
    } else if (strcmp(argv[i], "--verbose") == 0) {
      verbose = 1;
    } else if (strcmp(argv[i], "--rounds") == 0 && more >= 1) {
      rounds = atoi(argv[++i]);
    } else if (strcmp(argv[i], "--leak") == 0 && more >= 1) {
      leak = argv[++i];
    } else if (strcmp(argv[i], "--netns") == 0 && more >= 2) {
      places[0] = argv[++i];
      places[1] = argv[++i];
    } else {
      problem = argv[i];
    }
  }
  return problem;
}

int main(int argc, char** argv) {
  int lines[2], status = 0;
  const char* problem = read_arguments(argc, argv);
  if (problem != NULL) {
    fprintf(stderr, "usage: %s RELEASE [--rounds N] [--netns A B] [--leak KIND] [--corrupt] [--verbose]: %s\n", argv[0],
            problem);
    return kUsage;
  }
  signal(SIGPIPE, SIG_IGN);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) != 0) return kCrash;
  pid_t sides[2] = {start(0, lines), start(1, lines)};
  close(lines[0]);
  close(lines[1]);
  pid_t first = wait(&status);
  int code = verdict(status);
  if (code != kOk) kill(first == sides[0] ? sides[1] : sides[0], SIGKILL);
  wait(&status);
  if (code == kOk || (WIFEXITED(status) && WEXITSTATUS(status) > kBroken)) code = verdict(status);
  return code;
}
