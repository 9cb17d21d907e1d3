// Version 9 of the plugin's table.
#include "plugin/entry.h"

namespace r2ccl::plugin {
namespace {

using abi::Result;

Result InitV9(abi::Logger logger) {
  return entry::Guard([&] { return Init(logger); });
}

}  // namespace
}  // namespace r2ccl::plugin

namespace entry = r2ccl::plugin::entry;

extern "C" __attribute__((visibility("default"))) const r2ccl::abi::NetV9 ncclNetPlugin_v9 = {
    .name = r2ccl::plugin::kName,
    .init = r2ccl::plugin::InitV9,
    .devices = entry::GetDevices,
    .get_properties = entry::GetPropertiesV9,
    .listen = entry::ListenOn,
    .connect = entry::ConnectTo,
    .accept = entry::AcceptFrom,
    .reg_mr = entry::RegMr,
    .reg_mr_dma_buf = entry::RegMrDmaBufIfAsked(),
    .dereg_mr = entry::DeregMr,
    .isend = entry::IsendSized,
    .irecv = entry::IrecvSized,
    .iflush = entry::Iflush,
    .test = entry::TestRequest,
    .close_send = entry::CloseSendComm,
    .close_recv = entry::CloseRecvComm,
    .close_listen = entry::CloseListenComm,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
    .make_virtual_device = nullptr,
};
