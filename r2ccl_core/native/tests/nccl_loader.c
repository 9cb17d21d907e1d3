/* The record of the plugin in each release. */
#define _POSIX_C_SOURCE 200809L

#include "nccl_loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { kNameMax = 255 };
enum state { kDisabled = -2, kLoadFailed = -1, kLoadReady = 0, kInitReady = 1, kEnabled = 2 };

struct release {
  const char* name;
  int table;           /* the newest version that it reads */
  int counts;          /* closes the plugin when nobody uses it */
  int first_count;     /* of NCCL_NET_PLUGIN_REF_COUNT when that is not set; -1: does not read it */
  int rereads_name;    /* reads NCCL_NET_PLUGIN again whenever it opens the plugin */
  int forgets;         /* clears the name and the count when it closes the plugin */
  int init_every_comm; /* not only when the plugin was opened */
};

static const struct release kReleases[] = {
    {"2.20", 8, 0, -1, 1, 0, 0},  {"2.21", 8, 0, -1, 1, 0, 0},  {"2.22", 8, 1, -1, 1, 0, 0},
    {"2.23", 8, 1, -1, 1, 0, 0},  {"2.24", 9, 1, -1, 1, 0, 0},  {"2.25", 9, 1, -1, 1, 0, 0},
    {"2.26", 10, 1, 1, 1, 0, 0},  {"2.27", 10, 1, 1, 0, 1, 0},  {"2.28", 11, 1, 0, 0, 1, 1},
    {"2.29", 11, 1, 0, 0, 1, 1},  {"2.30", 12, 1, 0, 0, 0, 1},
};

static const struct release* release;
static int once_done;
static char name[kNameMax];
static int count;
static int closed;
static int is_open;
static enum state state;

const char* loader_choose(const char* wanted) {
  for (size_t i = 0; i < sizeof kReleases / sizeof *kReleases; ++i) {
    if (strcmp(kReleases[i].name, wanted) == 0) release = &kReleases[i];
  }
  return release == NULL ? "no such release; choose from 2.20 to 2.30" : NULL;
}

static void read_name(void) {
  const char* set = getenv("NCCL_NET_PLUGIN");
  snprintf(name, sizeof name, "%s", set == NULL ? "" : set);
}

/* What the process reads once, with its first communicator. */
static void read_once(void) {
  const char* set = getenv("NCCL_NET_PLUGIN_REF_COUNT");
  if (once_done) return;
  once_done = 1;
  read_name();
  count = release->first_count < 0 ? 0 : release->first_count;
  if (release->first_count >= 0 && set != NULL) count = atoi(set);
}

/* A name that is empty means the default one; "x" may also be libnccl-net-x.so. */
static const char* open_plugin(void) {
  char full[kNameMax + 32];
  const char* problem;
  if (name[0] == '\0') return tables_open("libnccl-net.so", release->table);
  problem = tables_open(name, release->table);
  if (problem == NULL || strchr(name, '/') != NULL) return problem;
  snprintf(full, sizeof full, "libnccl-net-%s.so", name);
  return tables_open(full, release->table);
}

static void load(void) {
  const char* problem;
  if (release->rereads_name) read_name();
  problem = open_plugin();
  is_open = problem == NULL;
  state = is_open ? kInitReady : kLoadFailed;
  if (!is_open) fprintf(stderr, "NET/Plugin: '%s': %s\n", name, problem);
}

/* A plugin that refuses to start is not asked again; from 2.28 on it is told the end of what it refused. */
static void initialise(void** context, uint64_t comm_id, log_fn log) {
  int devices = 0;
  int first = state == kInitReady;
  if (!first && !release->init_every_comm) return;
  if (net_init(context, comm_id, log) == 0 && (!first || (net_devices(&devices) == 0 && devices > 0))) {
    state = kEnabled;
    return;
  }
  if (release->init_every_comm) net_finalize(*context);
  state = kDisabled;
}

int loader_init_comm(void** context, uint64_t comm_id, log_fn log) {
  struct properties properties;
  *context = NULL;
  read_once();
  if (state == kLoadReady) load();
  if (state >= kInitReady && strcasecmp(net_name(), "r2ccl") == 0) initialise(context, comm_id, log);
  if (state != kEnabled || net_properties(0, &properties) != 0) return kNcclInvalidUsage;
  ++count;
  return kNcclSuccess;
}

void loader_end_comm(void* context) {
  if (release->init_every_comm) net_finalize(context);
  if (!release->counts || --count != 0 || !is_open) return;
  tables_close();
  ++closed;
  is_open = 0;
  state = kLoadReady;
  if (release->forgets) name[0] = '\0';
}

int loader_closed(void) { return closed; }
