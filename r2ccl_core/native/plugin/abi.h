// The binary interface between NCCL and a net plugin, versions 8 to 12, in our own declarations.
//
// Field order and types are what NCCL's loader reads (NCCL 2.20 to 2.31); names are ours. static_asserts pin the
// layouts, because a mistake here corrupts NCCL's memory instead of failing.
#ifndef R2CCL_PLUGIN_ABI_H_
#define R2CCL_PLUGIN_ABI_H_

#include <cstddef>
#include <cstdint>

namespace r2ccl::abi {

// ncclResult_t
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

enum LogLevel : int { kLogWarn = 2, kLogInfo = 3 };
constexpr unsigned long kLogInit = 1;
constexpr unsigned long kLogNet = 16;
using Logger = void (*)(LogLevel level, unsigned long subsystems, const char* file, int line, const char* format, ...);

// What *request of a receive holds on entry if nobody waits for the request: the data carries flags of its own.
inline void* const kOptionalCompletion = reinterpret_cast<void*>(1);

constexpr int kPointerHost = 1;
constexpr int kPointerCuda = 2;
constexpr int kPointerDmabuf = 4;
constexpr int kDeviceTypeHost = 0;
constexpr int kUndefined = -1;

struct Context;       // what init hands out from version 11 on
struct DeviceHandle;  // device offload, which we do not do
using ProfilerCallback = Result (*)(void** event, int type, void* handle, int64_t plugin, void* data);

struct CommConfig {
  int traffic_class;
};

template <int kMaxDevices>
struct VirtualDevice {
  int count;
  int devices[kMaxDevices];
};

struct PropertiesV8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int speed_mbit_s;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
};

// Versions 9 and 10.
struct PropertiesV9 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbit_s;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice<4> virtual_device;
  size_t max_p2p_bytes;
  size_t max_collective_bytes;
};

struct PropertiesV11 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbit_s;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice<4> virtual_device;
  size_t max_p2p_bytes;
  size_t max_collective_bytes;
  int max_multi_request_size;
};

struct PropertiesV12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbit_s;
  int port;
  float latency_us;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice<8> virtual_device;
  size_t max_p2p_bytes;
  size_t max_collective_bytes;
  int max_multi_request_size;
  int16_t rail;
  int16_t plane;
};

struct NetAttributes;

struct NetV8 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV8* properties);
  Result (*listen)(int device, void* handle, void** listen_comm);
  Result (*connect)(int device, void* handle, void** send_comm, DeviceHandle** device_handle);
  Result (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_handle);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  Result (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  Result (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int n, void* request);
};

struct NetV9 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listen_comm);
  Result (*connect)(int device, void* handle, void** send_comm, DeviceHandle** device_handle);
  Result (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_handle);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  Result (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** request);
  Result (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int n, void* request);
  Result (*make_virtual_device)(int* device, VirtualDevice<4>* properties);
};

struct NetV10 {
  const char* name;
  Result (*init)(Logger logger, ProfilerCallback profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listen_comm);
  Result (*connect)(int device, CommConfig* config, void* handle, void** send_comm, DeviceHandle** device_handle);
  Result (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_handle);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  Result (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void* phandle, void** request);
  Result (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** phandles,
                  void** request);
  Result (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int n, void* request);
  Result (*make_virtual_device)(int* device, VirtualDevice<4>* properties);
};

// Versions 11 and 12 differ in their properties only.
template <typename Properties, int kMaxDevices>
struct NetV11Form {
  const char* name;
  Result (*init)(void** context, uint64_t comm_id, CommConfig* config, Logger logger, ProfilerCallback profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, Properties* properties);
  Result (*listen)(void* context, int device, void* handle, void** listen_comm);
  Result (*connect)(void* context, int device, void* handle, void** send_comm, DeviceHandle** device_handle);
  Result (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_handle);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  Result (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void* phandle, void** request);
  Result (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** phandles,
                  void** request);
  Result (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int n, void* request);
  Result (*make_virtual_device)(int* device, VirtualDevice<kMaxDevices>* properties);
  Result (*finalize)(void* context);
  Result (*set_attributes)(void* context, NetAttributes* attributes);
};
using NetV11 = NetV11Form<PropertiesV11, 4>;
using NetV12 = NetV11Form<PropertiesV12, 8>;

static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, speed_mbit_s) == 32);
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, max_p2p_bytes) == 88);
static_assert(sizeof(PropertiesV11) == 112 && offsetof(PropertiesV11, max_multi_request_size) == 104);
static_assert(sizeof(PropertiesV12) == 128 && offsetof(PropertiesV12, rail) == 124);
static_assert(sizeof(NetV8) == 19 * sizeof(void*) && sizeof(NetV9) == 20 * sizeof(void*));
static_assert(sizeof(NetV10) == 20 * sizeof(void*) && sizeof(NetV11) == 22 * sizeof(void*));

}  // namespace r2ccl::abi

#endif  // R2CCL_PLUGIN_ABI_H_
