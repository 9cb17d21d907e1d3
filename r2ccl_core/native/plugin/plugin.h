// The plugin behind every API version: it translates NCCL's calls into those of one process-wide Net.
//
// NCCL calls the data functions from one proxy thread per GPU, and connect and accept from other threads; all of these
// may run at the same time. No exception leaves this layer.
#ifndef R2CCL_PLUGIN_PLUGIN_H_
#define R2CCL_PLUGIN_PLUGIN_H_

#include <cstddef>
#include <cstdint>

#include "plugin/abi.h"

namespace r2ccl::plugin {

constexpr const char* kName = "r2ccl";

// One NIC as NCCL's topology search sees it. The strings live as long as the process.
struct Device {
  char* name;
  char* pci_path;  // nullptr for a virtual NIC
  uint64_t guid;
  int speed_mbit_s;
  int rail;
};

abi::Result Init(abi::Logger logger);
// The same for releases of NCCL that forget the plugin's name and would not find it again (see second_name.h).
abi::Result InitForgotten(abi::Logger logger);
abi::Result Devices(int* count);
abi::Result Describe(int device, Device* description);
abi::Result Listen(int device, void* handle, void** listen_comm);
// Never blocks: *send_comm (*recv_comm) stays nullptr until the connection is there.
abi::Result Connect(int device, void* handle, void** send_comm);
abi::Result Accept(void* listen_comm, void** recv_comm);
// Part of a GPU's memory that another driver opened: a descriptor, and the offset in it.
struct Dmabuf {
  int fd;
  uint64_t offset;
};
abi::Result RegisterMemory(void* data, size_t size, int type, const Dmabuf* dmabuf, void** mhandle);
abi::Result DeregisterMemory(void* mhandle);
// `mhandle` is one of RegisterMemory's where GPU memory is taken, and not looked at elsewhere.
abi::Result Isend(void* send_comm, void* data, size_t size, void* mhandle, void** request);
abi::Result Irecv(void* recv_comm, int n, void** data, const size_t* sizes, void** mhandles, void** request);
// Until the GPU sees what was received.
abi::Result Flush(int n, void** data, const int* sizes, void** mhandles, void** request);
abi::Result Test(void* request, int* done, int* sizes);
abi::Result CloseSend(void* send_comm);
abi::Result CloseRecv(void* recv_comm);
abi::Result CloseListen(void* listen_comm);
// How many NICs there are, and how many have not lost all their paths; false while the plugin was not started.
bool NicsLeft(int* total, int* left);

// abi::kPointerHost, and what else NCCL's pointers may be.
int PointerSupport();
// Whether R2CC_GDR=1: asked before Init.
bool AsksForGpuMemory();

// Fills what the properties of all versions have in common.
template <typename Properties>
abi::Result FillProperties(int device, Properties* properties) {
  Device description;
  abi::Result result = Describe(device, &description);
  if (result != abi::kSuccess) return result;
  *properties = {};
  properties->name = description.name;
  properties->pci_path = description.pci_path;
  properties->guid = description.guid;
  properties->pointer_support = PointerSupport();
  properties->registration_is_global = 1;
  properties->speed_mbit_s = description.speed_mbit_s;
  properties->port = 0;
  properties->latency_us = 0;  // NCCL's default for sockets
  properties->max_comms = 65536;
  properties->max_receives = 1;
  properties->device_type = abi::kDeviceTypeHost;
  properties->device_version = 0;
  return abi::kSuccess;
}

// What versions 9 and later add.
template <typename Properties>
abi::Result FillSizedProperties(int device, Properties* properties) {
  abi::Result result = FillProperties(device, properties);
  if (result != abi::kSuccess) return result;
  // On every GPU: what the processor wrote has to be pushed as well.
  properties->force_flush = PointerSupport() == abi::kPointerHost ? 0 : 1;
  properties->virtual_device.count = 1;
  properties->virtual_device.devices[0] = device;
  properties->max_p2p_bytes = size_t{1} << 40;
  properties->max_collective_bytes = size_t{1} << 40;
  return abi::kSuccess;
}

}  // namespace r2ccl::plugin

#endif  // R2CCL_PLUGIN_PLUGIN_H_
