// The functions that several versions of the table share, with NCCL's signatures. Functions for device offload have
// no entry, because NCCL calls entries that are not null whether or not the device announced the capability; the one
// for dmabuf only where R2CC_GDR=1. Guard wraps every function that touches the core, so that no exception crosses into
// NCCL.
#ifndef R2CCL_PLUGIN_ENTRY_H_
#define R2CCL_PLUGIN_ENTRY_H_

#include "base/guard.h"
#include "plugin/plugin.h"

namespace r2ccl::plugin::entry {

using abi::Result;

template <typename Call>
Result Guard(Call call) noexcept {
  return r2ccl::Guard<Result>(abi::kSystemError, call);  // out of memory or threads
}

inline Result GetDevices(int* count) {
  return Guard([&] { return Devices(count); });
}

inline Result GetPropertiesV9(int device, abi::PropertiesV9* properties) {
  return Guard([&] { return FillSizedProperties(device, properties); });
}

inline Result ListenOn(int device, void* handle, void** listen_comm) {
  return Guard([&] { return Listen(device, handle, listen_comm); });
}

inline Result ListenInContext(void*, int device, void* handle, void** listen_comm) {
  return ListenOn(device, handle, listen_comm);
}

inline Result ConnectTo(int device, void* handle, void** send_comm, abi::DeviceHandle**) {
  return Guard([&] { return Connect(device, handle, send_comm); });
}

inline Result ConnectInContext(void*, int device, void* handle, void** send_comm, abi::DeviceHandle**) {
  return Guard([&] { return Connect(device, handle, send_comm); });
}

inline Result AcceptFrom(void* listen_comm, void** recv_comm, abi::DeviceHandle**) {
  return Guard([&] { return Accept(listen_comm, recv_comm); });
}

inline Result RegMr(void*, void* data, size_t size, int type, void** mhandle) {
  return Guard([&] { return RegisterMemory(data, size, type, nullptr, mhandle); });
}

inline Result RegMrDmaBuf(void*, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle) {
  return Guard([&] {
    Dmabuf dmabuf{fd, offset};
    return RegisterMemory(data, size, type, &dmabuf, mhandle);
  });
}

inline decltype(&RegMrDmaBuf) RegMrDmaBufIfAsked() { return AsksForGpuMemory() ? RegMrDmaBuf : nullptr; }

inline Result DeregMr(void*, void* mhandle) {
  return Guard([&] { return DeregisterMemory(mhandle); });
}

inline Result IsendSized(void* send_comm, void* data, size_t size, int, void* mhandle, void** request) {
  return Guard([&] { return Isend(send_comm, data, size, mhandle, request); });
}

inline Result IsendProfiled(void* send_comm, void* data, size_t size, int, void* mhandle, void*, void** request) {
  return Guard([&] { return Isend(send_comm, data, size, mhandle, request); });
}

inline Result IrecvSized(void* recv_comm, int n, void** data, size_t* sizes, int*, void** mhandles, void** request) {
  return Guard([&] { return Irecv(recv_comm, n, data, sizes, mhandles, request); });
}

inline Result IrecvProfiled(void* recv_comm, int n, void** data, size_t* sizes, int*, void** mhandles, void**,
                            void** request) {
  return Guard([&] { return Irecv(recv_comm, n, data, sizes, mhandles, request); });
}

inline Result Iflush(void*, int n, void** data, int* sizes, void** mhandles, void** request) {
  return Guard([&] { return Flush(n, data, sizes, mhandles, request); });
}

inline Result TestRequest(void* request, int* done, int* sizes) {
  return Guard([&] { return Test(request, done, sizes); });
}

inline Result CloseSendComm(void* comm) {
  return Guard([&] { return CloseSend(comm); });
}

inline Result CloseRecvComm(void* comm) {
  return Guard([&] { return CloseRecv(comm); });
}

inline Result CloseListenComm(void* comm) {
  return Guard([&] { return CloseListen(comm); });
}

// From version 11 on NCCL initialises once per communicator; the transport is the process's all the same.
inline Result Finalize(void*) { return abi::kSuccess; }

inline Result SetAttributes(void*, abi::NetAttributes*) { return abi::kSuccess; }

}  // namespace r2ccl::plugin::entry

#endif  // R2CCL_PLUGIN_ENTRY_H_
