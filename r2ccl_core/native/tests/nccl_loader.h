/* How each release of NCCL opens, counts and closes a net plugin over the communicators of a process.
 *
 * Written after what the sources of the releases do (src/net.cc, src/plugin/net.cc, src/plugin/plugin_open.cc), in
 * words and code of our own: the names that are opened, when they are read, when init, devices and finalize are called,
 * what is counted, and what is left of the record after the last communicator. One plugin; NCCL_NET=r2ccl, so that
 * NCCL's own transports do not count. */
#ifndef R2CCL_TESTS_NCCL_LOADER_H_
#define R2CCL_TESTS_NCCL_LOADER_H_

#include <stdint.h>

#include "plugin_tables.h"

enum { kNcclSuccess = 0, kNcclInvalidUsage = 5 };

/* "2.20" to "2.30". NULL, or one line that says why not. Reads NCCL_NET_PLUGIN and NCCL_NET_PLUGIN_REF_COUNT when NCCL
 * does. */
const char* loader_choose(const char* release);
/* What ncclCommInitRank does about the net plugin. kNcclInvalidUsage: "Failed to initialize any NET plugin". */
int loader_init_comm(void** context, uint64_t comm_id, log_fn log);
/* What the end of a communicator does about it, destroyed or aborted. */
void loader_end_comm(void* context);
/* How often the plugin was closed so far. */
int loader_closed(void);

#endif
