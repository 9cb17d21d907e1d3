// Version 12 of the plugin's table: NCCL 2.30 and newer.
#include "plugin/entry.h"

namespace r2ccl::plugin {
namespace {

using abi::Result;

Result InitV12(void** context, uint64_t, abi::CommConfig*, abi::Logger logger, abi::ProfilerCallback) {
  *context = nullptr;
  return entry::Guard([&] { return Init(logger); });
}

Result GetPropertiesV12(int device, abi::PropertiesV12* properties) {
  return entry::Guard([&] {
    Result result = FillSizedProperties(device, properties);
    if (result != abi::kSuccess) return result;
    properties->max_multi_request_size = 1;
    properties->rail = static_cast<int16_t>(device);
    properties->plane = abi::kUndefined;
    return result;
  });
}

}  // namespace
}  // namespace r2ccl::plugin

namespace entry = r2ccl::plugin::entry;

extern "C" __attribute__((visibility("default"))) const r2ccl::abi::NetV12 ncclNetPlugin_v12 = {
    .name = r2ccl::plugin::kName,
    .init = r2ccl::plugin::InitV12,
    .devices = entry::GetDevices,
    .get_properties = r2ccl::plugin::GetPropertiesV12,
    .listen = entry::ListenInContext,
    .connect = entry::ConnectInContext,
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
    .finalize = entry::Finalize,
    .set_attributes = entry::SetAttributes,
};
