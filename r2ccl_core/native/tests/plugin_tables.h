/* One view of NCCL's net plugin tables, versions 8 to 12, for a driver in plain C.
 *
 * The layouts in plugin_tables.c are written down a second time, apart from plugin/abi.h and with the names that
 * NCCL's documentation uses, so that a mistake in one of the two shows. Every call returns NCCL's result, 0 for
 * success. */
#ifndef R2CCL_TESTS_PLUGIN_TABLES_H_
#define R2CCL_TESTS_PLUGIN_TABLES_H_

#include <stddef.h>
#include <stdint.h>

enum { kFirstVersion = 8, kLastVersion = 12, kHandleMax = 128 };

typedef void (*log_fn)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

/* The properties of a device in the widest form. What a version lacks has the value that NCCL assumes for it. */
struct properties {
  const char* name;
  const char* pciPath;
  uint64_t guid;
  int ptrSupport, regIsGlobal, forceFlush, speed, port;
  float latency;
  int maxComms, maxRecvs, netDeviceType, netDeviceVersion;
  int ndevs, dev0;
  size_t maxP2pBytes, maxCollBytes;
  int maxMultiRequestSize;
  int railId, planeId;
};

/* Opens the library's table of `version`. NULL, or one line that says why not. */
const char* tables_open(const char* path, int version);
/* NULL, or the name of an exported plugin table that should not be there or of one that is missing. */
const char* tables_unexpected(void);
/* Hands the library back as NCCL does. Nothing below may be called afterwards. */
int tables_close(void);

/* What every version must offer is there, regMrDmaBuf only where GPU memory is taken, and what we cannot do is null,
 * which NCCL reads as "cannot". */
const char* net_missing(int gpu_memory);
const char* net_name(void);
int net_init(void** context, uint64_t comm_id, log_fn log);
int net_devices(int* count);
int net_properties(int device, struct properties* properties);
int net_listen(void* context, int device, void* handle, void** listen_comm);
int net_connect(void* context, int device, void* handle, void** send_comm);
int net_accept(void* listen_comm, void** recv_comm);
int net_reg_mr(void* comm, void* data, size_t size, int type, void** mhandle);
int net_reg_mr_dma_buf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
int net_dereg_mr(void* comm, void* mhandle);
int net_isend(void* send_comm, void* data, size_t size, int tag, void* mhandle, void** request);
int net_irecv(void* recv_comm, void* data, size_t size, int tag, void* mhandle, void** request);
int net_iflush(void* recv_comm, void* data, int size, void* mhandle, void** request);
int net_test(void* request, int* done, int* size);
int net_close_send(void* comm);
int net_close_recv(void* comm);
int net_close_listen(void* comm);
/* Success without a call before version 11, which brought them. */
int net_set_attributes(void* context);
int net_finalize(void* context);

#endif
