// Version 10 of the plugin's table: NCCL 2.26 and 2.27.
#include "plugin/entry.h"

namespace r2ccl::plugin {
namespace {

using abi::Result;

Result InitV10(abi::Logger logger, abi::ProfilerCallback) {
  return entry::Guard([&] { return InitForgotten(logger); });
}

Result ConnectV10(int device, abi::CommConfig*, void* handle, void** send_comm, abi::DeviceHandle** device_handle) {
  return entry::ConnectTo(device, handle, send_comm, device_handle);
}

}  // namespace
}  // namespace r2ccl::plugin

namespace entry = r2ccl::plugin::entry;

extern "C" __attribute__((visibility("default"))) const r2ccl::abi::NetV10 ncclNetPlugin_v10 = {
    .name = r2ccl::plugin::kName,
    .init = r2ccl::plugin::InitV10,
    .devices = entry::GetDevices,
    .get_properties = entry::GetPropertiesV9,
    .listen = entry::ListenOn,
    .connect = r2ccl::plugin::ConnectV10,
    .accept = entry::AcceptFrom,
    .reg_mr = entry::RegMr,
    .reg_mr_dma_buf = entry::RegMrDmaBufIfAsked(),
    .dereg_mr = entry::DeregMr,
    .isend = entry::IsendProfiled,
    .irecv = entry::IrecvProfiled,
    .iflush = entry::Iflush,
    .test = entry::TestRequest,
    .close_send = entry::CloseSendComm,
    .close_recv = entry::CloseRecvComm,
    .close_listen = entry::CloseListenComm,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
    .make_virtual_device = nullptr,
};
