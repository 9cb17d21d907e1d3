// What of libibverbs the wire calls: our own declarations of its binary interface, and the library, which is opened
// while the process runs. So one build serves hosts with and without RDMA, and nothing is linked.
//
// The interface is that of version IBVERBS_1.1, which rdma-core has kept since 2006. Data calls go through the table of
// the device's driver in `Context`. tests/verbs_abi_test.cc compares the sizes and places here with the distribution's
// headers, where they are installed (libibverbs-dev).
#ifndef R2CCL_WIRE_VERBS_IBVERBS_H_
#define R2CCL_WIRE_VERBS_IBVERBS_H_

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace r2ccl::ibv {

struct Cq;
struct Qp;
struct Pd;

struct Gid {
  uint8_t raw[16];
};

struct Device {
  void* ops[2];
  int node_type;
  int transport_type;
  char name[64];
  char dev_name[64];
  char dev_path[256];
  char ibdev_path[256];
};

struct PortAttr {
  uint32_t state;
  uint32_t max_mtu;
  uint32_t active_mtu;
  int gid_table_length;
  uint32_t port_cap_flags;
  uint32_t max_message_bytes;
  uint32_t bad_pkey_count;
  uint32_t qkey_violation_count;
  uint16_t pkey_table_length;
  uint16_t lid;
  uint16_t sm_lid;
  uint8_t lmc;
  uint8_t max_vl_num;
  uint8_t sm_sl;
  uint8_t subnet_timeout;
  uint8_t init_type_reply;
  uint8_t active_width;
  uint8_t active_speed;
  uint8_t phys_state;
  uint8_t link_layer;
  uint8_t flags;
  uint16_t port_cap_flags2;
  uint8_t reserve[64];  // a library of a later release may write more
};
constexpr uint32_t kPortActive = 4;
constexpr uint8_t kLinkLayerInfiniband = 1;

struct Sge {
  uint64_t address;
  uint32_t length;
  uint32_t lkey;
};

struct SendRequest {
  uint64_t id;
  SendRequest* next;
  Sge* parts;
  int part_count;
  uint32_t opcode;
  uint32_t flags;
  uint32_t immediate;
  uint64_t remote_address;  // of a write or read
  uint32_t remote_key;      // likewise
  uint32_t unused_half;
  uint64_t unused[9];  // of atomics, datagrams, windows and segmentation, none of which is asked for
};
constexpr uint32_t kOpWrite = 0;
constexpr uint32_t kOpSend = 2;
constexpr uint32_t kOpRead = 4;
constexpr uint32_t kSignaled = 1 << 1;

struct ReceiveRequest {
  uint64_t id;
  ReceiveRequest* next;
  Sge* parts;
  int part_count;
};

struct Completion {
  uint64_t id;
  uint32_t status;
  uint32_t opcode;
  uint32_t vendor_error;
  uint32_t bytes;
  uint32_t immediate;
  uint32_t qp_number;
  uint32_t source_qp;
  uint32_t flags;
  uint16_t pkey_index;
  uint16_t slid;
  uint8_t sl;
  uint8_t dlid_path_bits;
};

struct QpCap {
  uint32_t max_send;
  uint32_t max_receive;
  uint32_t max_send_parts;
  uint32_t max_receive_parts;
  uint32_t max_inline_bytes;
};

struct QpInitAttr {
  void* context;
  Cq* send_cq;
  Cq* receive_cq;
  void* srq;
  QpCap cap;
  uint32_t type;
  int signal_all;
};
constexpr uint32_t kQpTypeRc = 2;

struct GlobalRoute {
  Gid dgid;
  uint32_t flow_label;
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
};

struct AddressAttr {
  alignas(8) GlobalRoute route;
  uint16_t dlid;
  uint8_t sl;
  uint8_t source_path_bits;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port;
};

struct QpAttr {
  uint32_t state;
  uint32_t current_state;
  uint32_t path_mtu;
  uint32_t migration_state;
  uint32_t qkey;
  uint32_t receive_psn;
  uint32_t send_psn;
  uint32_t remote_qp;
  uint32_t access_flags;
  QpCap cap;
  AddressAttr address;
  AddressAttr other_address;
  uint16_t pkey_index;
  uint16_t other_pkey_index;
  uint8_t notify_drained;
  uint8_t draining;
  uint8_t max_rd_atomic;
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;
  uint8_t port;
  uint8_t timeout;
  uint8_t retry_count;
  uint8_t rnr_retry;
  uint8_t other_port;
  uint8_t other_timeout;
  uint32_t rate_limit;
  uint8_t reserve[64];  // as in PortAttr
};
constexpr uint32_t kStateInit = 1;
constexpr uint32_t kStateReadyToReceive = 2;
constexpr uint32_t kStateReadyToSend = 3;
constexpr uint32_t kStateError = 6;
constexpr int kSetState = 1 << 0;
constexpr int kSetAccess = 1 << 3;
constexpr int kSetPkeyIndex = 1 << 4;
constexpr int kSetPort = 1 << 5;
constexpr int kSetAddress = 1 << 7;
constexpr int kSetPathMtu = 1 << 8;
constexpr int kSetTimeout = 1 << 9;
constexpr int kSetRetryCount = 1 << 10;
constexpr int kSetRnrRetry = 1 << 11;
constexpr int kSetReceivePsn = 1 << 12;
constexpr int kSetMaxRdAtomic = 1 << 13;
constexpr int kSetMinRnrTimer = 1 << 15;
constexpr int kSetSendPsn = 1 << 16;
constexpr int kSetMaxDestRdAtomic = 1 << 17;
constexpr int kSetRemoteQp = 1 << 20;

struct AsyncEvent {
  union {
    Cq* cq;
    Qp* qp;
    int port;
  } element;
  uint32_t type;
};
constexpr uint32_t kEventCqError = 0;
constexpr uint32_t kEventQpFatal = 1;
constexpr uint32_t kEventQpRequestError = 2;
constexpr uint32_t kEventQpAccessError = 3;
constexpr uint32_t kEventDeviceFatal = 8;
constexpr uint32_t kEventPortActive = 9;
constexpr uint32_t kEventPortError = 10;
constexpr uint32_t kEventLidChange = 11;
constexpr uint32_t kEventGidChange = 18;

// The driver's calls, by their places in the table.
struct ContextOps {
  void* before_poll[11];
  int (*poll_cq)(Cq*, int, Completion*);
  int (*request_notification)(Cq*, int solicited_only);
  void* before_post[12];
  int (*post_send)(Qp*, SendRequest*, SendRequest**);
  int (*post_receive)(Qp*, ReceiveRequest*, ReceiveRequest**);
  void* behind[5];
};

struct Context {
  Device* device;
  ContextOps ops;
  int command_fd;
  int async_fd;
  int completion_vectors;
  pthread_mutex_t mutex;
  void* abi_compat;
};

struct Channel {
  Context* context;
  int fd;
  int references;
};

// What a registration or a queue pair allows.
constexpr int kLocalWrite = 1 << 0;
constexpr int kRemoteWrite = 1 << 1;
constexpr int kRemoteRead = 1 << 2;

// Of these only what stands here is read; the library makes them.
struct Mr {
  Context* context;
  Pd* pd;
  void* address;
  size_t length;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
};

struct Cq {
  Context* context;
  Channel* channel;
};

struct Qp {
  Context* context;
  void* qp_context;
  Pd* pd;
  Cq* send_cq;
  Cq* receive_cq;
  void* srq;
  uint32_t handle;
  uint32_t number;
};

// name, result, parameters: each with the prefix ibv_ in the library
#define R2CCL_IBV_CALLS(X)                                 \
  X(fork_init, int, (void))                                \
  X(get_device_list, Device**, (int*))                     \
  X(free_device_list, void, (Device**))                    \
  X(open_device, Context*, (Device*))                      \
  X(close_device, int, (Context*))                         \
  X(query_port, int, (Context*, uint8_t, PortAttr*))       \
  X(alloc_pd, Pd*, (Context*))                             \
  X(dealloc_pd, int, (Pd*))                                \
  X(reg_mr, Mr*, (Pd*, void*, size_t, int))                \
  X(dereg_mr, int, (Mr*))                                  \
  X(create_comp_channel, Channel*, (Context*))             \
  X(destroy_comp_channel, int, (Channel*))                 \
  X(create_cq, Cq*, (Context*, int, void*, Channel*, int)) \
  X(destroy_cq, int, (Cq*))                                \
  X(get_cq_event, int, (Channel*, Cq**, void**))           \
  X(ack_cq_events, void, (Cq*, unsigned))                  \
  X(create_qp, Qp*, (Pd*, QpInitAttr*))                    \
  X(modify_qp, int, (Qp*, QpAttr*, int))                   \
  X(destroy_qp, int, (Qp*))                                \
  X(get_async_event, int, (Context*, AsyncEvent*))         \
  X(ack_async_event, void, (AsyncEvent*))                  \
  X(wc_status_str, const char*, (uint32_t))

// Every call of the library, found once. Never closed: its drivers have state of their own.
struct Library {
#define R2CCL_IBV_FIELD(name, result, parameters) result(*name) parameters = nullptr;
  R2CCL_IBV_CALLS(R2CCL_IBV_FIELD)
#undef R2CCL_IBV_FIELD
  // Memory of another device by its dmabuf: offset in it, bytes, the address by which it is known, descriptor, access.
  // nullptr in releases before rdma-core 34.
  Mr* (*reg_dmabuf_mr)(Pd*, uint64_t, size_t, uint64_t, int, int) = nullptr;

  // Opens libibverbs.so.1. The error says which package has it.
  static Status Open(const char* file, Library* library);
};

inline constexpr char kLibraryFile[] = "libibverbs.so.1";

// `what`, and what errno says.
std::string Error(const std::string& what);
// Of RLIMIT_MEMLOCK.
std::string LockedLimit();
Status SetNonBlocking(int fd);

}  // namespace r2ccl::ibv

#endif  // R2CCL_WIRE_VERBS_IBVERBS_H_
