/* One of the driver's two processes: its line to the other, links through the plugin, and bytes that are checked.
 *
 * A failed check ends the process with one of the exit codes below. Waiting is bounded by the alarm of `scenario`. */
#ifndef R2CCL_TESTS_PLUGIN_PEER_H_
#define R2CCL_TESTS_PLUGIN_PEER_H_

#include <stddef.h>
#include <stdint.h>

enum { kOk = 0, kBroken = 1, kUsage = 2, kWrongData = 3, kHang = 4, kCrash = 5 };

enum { kInFlight = 32, kGuard = 64 };

enum { kPointerHost = 1, kPointerCuda = 2 };

struct peer {
  int side; /* 0 or 1 */
  int line; /* a stream socket to the other process, as NCCL's bootstrap network */
  int device;
  void* context;
};
extern struct peer self;

/* Both directions between the two sides. */
struct link {
  void *listen_comm, *send_comm, *recv_comm;
  void *send_mr, *recv_mr;
};

/* A message under way, in a buffer of its own with a guard behind it. */
struct message {
  unsigned char* bytes;
  size_t size, capacity;
  uint32_t seed;
  void* request;
};

void scenario(const char* name);
void fail(int code, const char* format, ...);
void expect(int condition, const char* what);
void succeed(int result, const char* call);

/* How many words argv[at] begins of `--side 0|1 ADDRESS PORT`: the other side is on another host, and side 0 listens
 * for it at that address of its own. 0: it is another option. */
int take_side(int argc, char** argv, int at);
/* Runs `drive` for both sides, each in a process of its own, or for that of --side alone; the exit code. */
int run_sides(void (*drive)(const char* path), const char* path);

void tell(const void* data, size_t size);
void hear(void* data, size_t size);
void barrier(void);
void breathe(void); /* a short pause between two polls */

void* listen_here(void* handle);
void* connect_there(void* handle);
void* accept_here(void* listen_comm);
struct link link_open(void);
void link_close(struct link* link);

/* `seed` names a message: both sides know its bytes. */
struct message message_to_send(size_t size, uint32_t seed);
struct message message_to_receive(size_t size, size_t capacity, uint32_t seed);
/* True once NCCL's call gave a request; a null request means: later again. */
int start_send(const struct link* link, struct message* message, int tag);
int start_receive(const struct link* link, struct message* message, int tag);
/* 1 done and checked, 0 under way, -1 failed. Frees the message unless it is under way. */
int poll_send(struct message* message);
int poll_receive(struct message* message);
/* Until it is done; a failure ends the process. */
void finish_send(struct message* message);
void finish_receive(struct message* message);

#endif
