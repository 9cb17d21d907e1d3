/* The last small messages of a process, whose NIC has died without a sign.
 *
 *   plugin_last LIBRARY A B exit|_exit|leave
 *
 * Side 0 in network namespace A sends to side 1 in B. Once both are connected it prints "ready" and waits for a line:
 * the time to break its first NIC. Then it sends a few messages that are done at once, as they are copied, closes and
 * ends by exit() or _exit(); "leave" does not even close. Side 1 has to get every byte of all of them; 1: it did not.
 */
#define _GNU_SOURCE

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin_peer.h"
#include "plugin_tables.h"

enum { kVersion = 12, kMessages = 3, kWarmUp = 20 };

static const size_t sizes[kMessages] = {5, 4096, 16384};

static void log_line(int level, unsigned long flags, const char* file, int line, const char* format, ...) {
  (void)level, (void)flags, (void)file, (void)line, (void)format;
}

static void enter(const char* place) {
  char path[128];
  snprintf(path, sizeof path, "/run/netns/%s", place);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) fail(kBroken, "%s: no such network namespace", path);
  close(fd);
}

static void exchange(struct link* link, uint32_t seed) {
  struct message in = message_to_receive(100, 100, seed), out = message_to_send(100, seed);
  while (!start_receive(link, &in, 0)) breathe();
  while (!start_send(link, &out, 0)) breathe();
  finish_send(&out);
  finish_receive(&in);
}

static void drive(const char* library, const char* place, const char* end) {
  char line[8];
  enter(place);
  scenario("the last messages");
  const char* problem = tables_open(library, kVersion);
  if (problem != NULL) fail(kBroken, "%s", problem);
  succeed(net_init(&self.context, 1, log_line), "init");
  struct link link = link_open();
  for (uint32_t i = 0; i < kWarmUp; ++i) exchange(&link, i);
  barrier();
  if (self.side == 1) {
    for (uint32_t i = 0; i < kMessages; ++i) {
      struct message in = message_to_receive(sizes[i], sizes[i], 500 + i);
      while (!start_receive(&link, &in, 0)) breathe();
      finish_receive(&in);
    }
    exit(kOk);
  }
  puts("ready");
  fflush(stdout);
  if (fgets(line, sizeof line, stdin) == NULL) fail(kBroken, "nobody says when");
  for (uint32_t i = 0; i < kMessages; ++i) {
    struct message out = message_to_send(sizes[i], 500 + i);
    while (!start_send(&link, &out, 0)) breathe();
    expect(poll_send(&out) == 1, "a small message is done at once");
  }
  if (strcmp(end, "leave") != 0) link_close(&link);
  if (strcmp(end, "_exit") == 0) _exit(kOk);
  exit(kOk);
}

int main(int argc, char** argv) {
  int lines[2], statuses[2];
  if (argc != 5) {
    fprintf(stderr, "usage: %s LIBRARY A B exit|_exit|leave\n", argv[0]);
    return kUsage;
  }
  signal(SIGPIPE, SIG_IGN);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) != 0) return kCrash;
  pid_t pids[2];
  for (int side = 0; side < 2; ++side) {
    pids[side] = fork();
    if (pids[side] != 0) continue;
    self.side = side;
    self.line = lines[side];
    close(lines[1 - side]);
    drive(argv[1], argv[2 + side], argv[4]);
  }
  for (int side = 0; side < 2; ++side) waitpid(pids[side], &statuses[side], 0);
  for (int side = 0; side < 2; ++side) {
    if (!WIFEXITED(statuses[side])) return kCrash;
    if (WEXITSTATUS(statuses[side]) != kOk) return WEXITSTATUS(statuses[side]);
  }
  return kOk;
}
