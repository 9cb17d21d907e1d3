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
abi::Result RegisterMemory(void* data, size_t size, int type, void** mhandle);
abi::Result DeregisterMemory(void* mhandle);
abi::Result Isend(void* send_comm, void* data, size_t size, void** request);
abi::Result Irecv(void* recv_comm, int n, void** data, const size_t* sizes, void** request);
abi::Result Test(void* request, int* done, int* sizes);
abi::Result CloseSend(void* send_comm);
abi::Result CloseRecv(void* recv_comm);
abi::Result CloseListen(void* listen_comm);
// How many NICs there are, and how many have not lost all their paths; false while the plugin was not started.
bool NicsLeft(int* total, int* left);

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
  properties->pointer_support = abi::kPointerHost;
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
  properties->virtual_device.count = 1;
  properties->virtual_device.devices[0] = device;
  properties->max_p2p_bytes = size_t{1} << 40;
  properties->max_collective_bytes = size_t{1} << 40;
  return abi::kSuccess;
}

}  // namespace r2ccl::plugin

#endif  // R2CCL_PLUGIN_PLUGIN_H_
