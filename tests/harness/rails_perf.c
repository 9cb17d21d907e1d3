// Stands in for a build of nccl-tests with MPI where there is no GPU: MPI ranks that print its columns, a row a cycle,
// and really move and check bytes over the hosts' data NICs, by plain sockets. Compiled by the tests with mpicc.
//
// It chooses its device as nccl-tests does (NCCL_TESTS_DEVICE, else the rank among those of the same host name), and
// gives up after -T seconds. It fails where the launcher left it fewer processors than RAILS_PROCESSORS. RAILS_VARIANT
// says what is odd about it: "idle" moves nothing, "one_rail" uses the last NIC only, "header" prints a table that
// nobody knows, "dies" ends rank 1 in the third cycle, "early" ends all ranks after two cycles as if all was well.

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { kMostNics = 16, kMostRanks = 64, kIdlePauseUs = 200000 };

static int rank, ranks, nic_count, limit_s = 30;
static char host[256];
static const char* variant = "";
static struct in_addr own[kMostNics];
static int to_next[kMostNics], from_previous[kMostNics];

static void Say(const char* text) {
  fputs(text, stdout);
  fflush(stdout);
}

// As nccl-tests does it: a line of the rank that saw it, then all ranks end.
static void Fail(const char* what) {
  printf("%s: Test NCCL failure common.cu:621 '%s'\n .. %s pid %d: Test failure common.cu:540\n", host, what, host,
         getpid());
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

// Until whoever reads that pipe has all of it, so that a launcher knows the last words of a rank before its end.
static void WaitUntilRead(int fd) {
  for (int left = 0; ioctl(fd, FIONREAD, &left) == 0 && left > 0;) usleep(1000);
}

static double NowS(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// The addresses of the NICs that R2CC_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME names exactly: "=eth0,eth1".
static void FindNics(void) {
  const char* given = getenv("R2CC_SOCKET_IFNAME");
  if (given == NULL || given[0] == '\0') given = getenv("NCCL_SOCKET_IFNAME");
  char names[512] = "", *rest = names;
  snprintf(names, sizeof names, "%s", given == NULL ? "lo" : given + (given[0] == '='));
  struct ifaddrs* all;
  if (getifaddrs(&all) != 0) Fail("no interfaces");
  for (char* name; (name = strsep(&rest, ",")) != NULL && nic_count < kMostNics;) {
    for (struct ifaddrs* one = all; one != NULL; one = one->ifa_next) {
      if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET || strcmp(one->ifa_name, name) != 0) continue;
      own[nic_count++] = ((struct sockaddr_in*)one->ifa_addr)->sin_addr;
      break;
    }
  }
  freeifaddrs(all);
  if (nic_count == 0) Fail("no NIC");
}

// A connection to the next rank and one from the previous over every NIC.
static void Connect(void) {
  struct sockaddr_in mine[kMostNics], all[kMostRanks][kMostNics];
  int listening[kMostNics];
  memset(mine, 0, sizeof mine);
  for (int n = 0; n < nic_count; ++n) {
    socklen_t length = sizeof mine[n];
    mine[n].sin_family = AF_INET;
    mine[n].sin_addr = own[n];
    listening[n] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening[n], (struct sockaddr*)&mine[n], length) != 0 || listen(listening[n], 1) != 0) Fail("listen");
    getsockname(listening[n], (struct sockaddr*)&mine[n], &length);
  }
  MPI_Allgather(mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  for (int n = 0; n < nic_count; ++n) {
    struct sockaddr_in from = mine[n];
    from.sin_port = 0;
    to_next[n] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(to_next[n], (struct sockaddr*)&from, sizeof from) != 0) Fail("bind");
    if (connect(to_next[n], (struct sockaddr*)&all[(rank + 1) % ranks][n], sizeof from) != 0) Fail("connect");
    from_previous[n] = accept(listening[n], NULL, NULL);
    fcntl(to_next[n], F_SETFL, O_NONBLOCK);
    fcntl(from_previous[n], F_SETFL, O_NONBLOCK);
    close(listening[n]);
  }
}

// Sends `size` bytes of `out` to the next rank while `size` of `in` come from the previous, a share over each NIC.
static void Exchange(const char* out, char* in, size_t size) {
  size_t sent[kMostNics] = {0}, got[kMostNics] = {0}, at[kMostNics], length[kMostNics];
  const int first = strcmp(variant, "one_rail") == 0 ? nic_count - 1 : 0;
  size_t left = 2 * size;
  for (int n = 0; n < nic_count; ++n) {
    const int used = nic_count - first;
    at[n] = n < first ? 0 : size / used * (n - first);
    length[n] = n < first ? 0 : n == nic_count - 1 ? size - at[n] : size / used;
  }
  const double deadline_s = NowS() + limit_s;
  while (left > 0) {
    struct pollfd polled[2 * kMostNics];
    for (int n = 0; n < nic_count; ++n) {
      polled[2 * n] = (struct pollfd){sent[n] < length[n] ? to_next[n] : -1, POLLOUT, 0};
      polled[2 * n + 1] = (struct pollfd){got[n] < length[n] ? from_previous[n] : -1, POLLIN, 0};
    }
    if (NowS() > deadline_s) Fail("remote process exited or there was a network error");
    if (poll(polled, 2 * nic_count, 100) < 0 && errno != EINTR) Fail("poll");
    for (int n = 0; n < nic_count; ++n) {
      if (polled[2 * n].revents != 0) {
        const ssize_t count = send(to_next[n], out + at[n] + sent[n], length[n] - sent[n], MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN) Fail("remote process exited or there was a network error");
        if (count > 0) sent[n] += count, left -= count;
      }
      if (polled[2 * n + 1].revents != 0) {
        const ssize_t count = recv(from_previous[n], in + at[n] + got[n], length[n] - got[n], 0);
        if (count == 0 || (count < 0 && errno != EAGAIN)) Fail("remote process exited or there was a network error");
        if (count > 0) got[n] += count, left -= count;
      }
    }
  }
}

// The sum over all ranks: every vector goes once round the ring. Returns how many elements are wrong.
static long AllReduce(int cycle, int32_t* sum, int32_t* moving, int32_t* next, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] = moving[i] = (int32_t)(i % 1000 + 17 * rank + cycle);
  for (int step = 1; step < ranks; ++step) {
    Exchange((const char*)moving, (char*)next, count * sizeof *next);
    memcpy(moving, next, count * sizeof *next);
    for (size_t i = 0; i < count; ++i) sum[i] += moving[i];
  }
  long wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t right = ranks * (int32_t)(i % 1000 + cycle) + 17 * ranks * (ranks - 1) / 2;
    wrong += sum[i] != right;
  }
  return wrong;
}

// The place among ranks of the same host name; with `machine`, among all of this machine.
static int LocalRank(void) {
  static char all[kMostRanks][256];
  int local = 0;
  MPI_Allgather(host, sizeof host, MPI_BYTE, all, sizeof host, MPI_BYTE, MPI_COMM_WORLD);
  for (int r = 0; r < rank; ++r) local += strcmp(all[r], host) == 0;
  return local;
}

// Says which device every rank has, and refuses two ranks of one machine on one device.
static void ShowDevices(int device) {
  struct Seen {
    char host[256], boot[64];
    int device, pid;
  } mine = {.device = device, .pid = getpid()}, all[kMostRanks];
  snprintf(mine.host, sizeof mine.host, "%s", host);
  FILE* file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (file == NULL || fgets(mine.boot, sizeof mine.boot, file) == NULL) Fail("no boot id");
  fclose(file);
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  for (int r = 0; r < ranks; ++r) {
    for (int other = 0; other < r; ++other) {
      if (strcmp(all[r].boot, all[other].boot) == 0 && all[r].device == all[other].device) Fail("Duplicate GPU detected");
    }
    if (rank == 0) printf("#  Rank %2d Group  0 Pid %6d on %12s device %2d [0000:00:0%d] none\n", r, all[r].pid,
                          all[r].host, all[r].device, all[r].device);
  }
}

static void Info(const char* text) {
  const char* debug = getenv("NCCL_DEBUG");
  if (debug != NULL && strcmp(debug, "INFO") == 0) printf("%s:%d:%d [0] NCCL INFO %s\n", host, getpid(), getpid(), text);
  fflush(stdout);
}

static void Header(void) {
  if (rank != 0) return;
  Say("#                                                              out-of-place                       in-place\n");
  if (strcmp(variant, "header") == 0) {
    Say("# bytes per rank   elements    kind    what    from   micros   algbw   busbw  #wrong   micros   algbw   busbw\n");
    return;
  }
  Say("#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  "
      "#wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  "
      "(GB/s)\n");
}

// One cycle: out of place and in place, each by itself as nccl-tests has them; then its row.
static long Cycle(int cycle, size_t count, int32_t* vectors) {
  double us[2], worst_us[2];
  long wrong[2] = {0, 0}, all_wrong[2];
  for (int place = 0; place < 2; ++place) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin_s = NowS();
    if (strcmp(variant, "idle") == 0) {
      usleep(kIdlePauseUs);
    } else {
      wrong[place] = AllReduce(cycle, vectors, vectors + count, vectors + 2 * count, count);
    }
    us[place] = 1e6 * (NowS() - begin_s);
  }
  MPI_Allreduce(us, worst_us, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(wrong, all_wrong, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%12zu  %12zu     float     sum      -1", 4 * count, count);
    for (int place = 0; place < 2; ++place) {
      const double gbs = 4e-3 * (double)count / worst_us[place];
      printf("  %7.2f  %6.2f  %6.2f  %6ld", worst_us[place], gbs, gbs * 2 * (ranks - 1) / ranks, all_wrong[place]);
    }
    Say("\n");
  }
  return all_wrong[0] + all_wrong[1];
}

int main(int argc, char** argv) {
  size_t size = 1 << 20;
  int cycles = 1, gpus = 1;
  if (getenv("RAILS_VARIANT") != NULL) variant = getenv("RAILS_VARIANT");
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--help") == 0) {
      Say("USAGE: all_reduce_perf\n\t[-N,--run_cycles <cycle count> run & print each cycle]\n");
      return 0;
    }
    if (i + 1 == argc) break;
    if (strcmp(argv[i], "-b") == 0) size = strtoull(argv[++i], NULL, 10);
    else if (strcmp(argv[i], "-N") == 0) cycles = atoi(argv[++i]);
    else if (strcmp(argv[i], "-T") == 0) limit_s = atoi(argv[++i]);
    else if (strcmp(argv[i], "-g") == 0) gpus = atoi(argv[++i]);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  gethostname(host, sizeof host);
  const char* device = getenv("NCCL_TESTS_DEVICE");
  const int local_rank = LocalRank();
  if (rank == 0) Say("# nccl-tests version 2.19.6 nccl-headers=22803 nccl-library=22803\n#\n# Using devices\n");
  ShowDevices(device != NULL ? atoi(device) : local_rank * gpus);
  cpu_set_t processors;
  const char* expected = getenv("RAILS_PROCESSORS");
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) Fail("sched_getaffinity");
  if (expected != NULL && CPU_COUNT(&processors) < atoi(expected)) Fail("bound to a part of the processors");
  FindNics();
  Connect();
  Info("Using network Socket");
  Info("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0");
  Header();
  int32_t* vectors = malloc(3 * size);
  long wrong = 0;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    if (strcmp(variant, "dies") == 0 && cycle == 2 && rank == 1) {
      fprintf(stderr, "all_reduce_perf: the GPU has fallen off the bus\n");
      WaitUntilRead(STDERR_FILENO);
      raise(SIGKILL);
    }
    if (strcmp(variant, "early") == 0 && cycle == 2) break;
    wrong += Cycle(cycle, size / 4, vectors);
  }
  if (rank == 0 && strcmp(variant, "early") != 0) {
    printf("# Out of bounds values : %ld %s\n# Avg bus bandwidth    : 1.0\n#\n", wrong, wrong ? "FAILED" : "OK");
  }
  free(vectors);
  MPI_Finalize();
  return wrong ? 3 : 0;
}
