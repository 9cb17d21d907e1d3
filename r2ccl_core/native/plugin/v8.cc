// Version 8 of the plugin's table.
#include "plugin/entry.h"

namespace r2ccl::plugin {
namespace {

using abi::Result;

Result InitV8(abi::Logger logger) {
  return entry::Guard([&] { return Init(logger); });
}

Result GetPropertiesV8(int device, abi::PropertiesV8* properties) {
  return entry::Guard([&] { return FillProperties(device, properties); });
}

Result IsendV8(void* send_comm, void* data, int size, int tag, void* mhandle, void** request) {
  return entry::IsendSized(send_comm, data, static_cast<size_t>(size), tag, mhandle, request);
}

Result IrecvV8(void* recv_comm, int n, void** data, int* sizes, int*, void** mhandles, void** request) {
  auto size = static_cast<size_t>(sizes[0]);
  return entry::IrecvSized(recv_comm, n, data, &size, nullptr, mhandles, request);
}

}  // namespace
}  // namespace r2ccl::plugin

namespace entry = r2ccl::plugin::entry;

extern "C" __attribute__((visibility("default"))) const r2ccl::abi::NetV8 ncclNetPlugin_v8 = {
    .name = r2ccl::plugin::kName,
    .init = r2ccl::plugin::InitV8,
    .devices = entry::GetDevices,
    .get_properties = r2ccl::plugin::GetPropertiesV8,
    .listen = entry::ListenOn,
    .connect = entry::ConnectTo,
    .accept = entry::AcceptFrom,
    .reg_mr = entry::RegMr,
    .reg_mr_dma_buf = entry::RegMrDmaBufIfAsked(),
    .dereg_mr = entry::DeregMr,
    .isend = r2ccl::plugin::IsendV8,
    .irecv = r2ccl::plugin::IrecvV8,
    .iflush = entry::Iflush,
    .test = entry::TestRequest,
    .close_send = entry::CloseSendComm,
    .close_recv = entry::CloseRecvComm,
    .close_listen = entry::CloseListenComm,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
};
