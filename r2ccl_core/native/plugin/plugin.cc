// The process-wide state of the plugin and the translation of statuses into NCCL's results.
#include "plugin/plugin.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/guard.h"
#include "base/mutex.h"
#include "net/socket.h"
#include "plugin/connections.h"
#include "plugin/gpu_memory.h"
#include "plugin/second_name.h"
#include "transport/net.h"

namespace r2ccl::plugin {
namespace {

// The process's Net for Connections.
class NetArrivals final : public Arrivals {
 public:
  NetArrivals(std::shared_ptr<Net> net, std::shared_ptr<Listener> listener)
      : net_(std::move(net)), listener_(std::move(listener)) {}
  Handle handle() const override { return listener_->handle(); }
  std::shared_ptr<RecvComm> Accept() override { return listener_->Accept(); }
  void Close() override { net_->CloseListener(listener_); }

 private:
  const std::shared_ptr<Net> net_;
  const std::shared_ptr<Listener> listener_;
};

class NetCarrier final : public Carrier {
 public:
  explicit NetCarrier(std::shared_ptr<Net> net) : net_(std::move(net)) {}
  Environment& environment() override { return net_->environment(); }
  Status Listen(int stripes, std::unique_ptr<Arrivals>* arrivals) override {
    std::shared_ptr<Listener> listener;
    Status status = net_->Listen(&listener, stripes);
    if (status.ok()) *arrivals = std::make_unique<NetArrivals>(net_, std::move(listener));
    return status;
  }
  Status MakeUpConnection(uint64_t* connection) override { return Net::MakeUpConnection(connection); }
  Status ConnectAs(uint64_t connection, const Handle& handle, int home, std::shared_ptr<SendComm>* comm) override {
    return net_->ConnectAs(connection, handle, comm, home);
  }

 private:
  const std::shared_ptr<Net> net_;
};

constexpr int64_t kGpuZeroCopyBytes = 16384;  // at most: the processor reads a GPU's memory slowly

// Memory that NCCL has registered.
struct Registration {
  const char* data;  // where the processor sees it
  size_t size;
  std::unique_ptr<GpuMapping> gpu;  // nullptr: host memory
  Fd dmabuf;
};

// A request of Flush: one without a connection.
struct FlushRequest : Request {
  std::unique_ptr<RcFlush> flush;
  const char* data;
  size_t size;
};

struct State {
  Mutex mutex;
  std::atomic<abi::Logger> logger = nullptr;  // renewed by each communicator while others log
  // Set by the first Init, before NCCL calls anything else.
  std::shared_ptr<Net> net;
  std::unique_ptr<NetCarrier> carrier;
  std::unique_ptr<Connections> connections;
  std::vector<Device> devices;
  std::shared_ptr<GpuMemory> gpu_memory;  // nullptr: host memory only
  int pointer_support = abi::kPointerHost;
};

// Never destroyed: NCCL's threads may still call while the process ends.
State& state() {
  static State* const instance = new State();
  return *instance;
}

void Log(abi::LogLevel level, const std::string& text) {
  abi::Logger logger = state().logger;
  if (logger != nullptr) logger(level, abi::kLogInit | abi::kLogNet, "r2ccl", 0, "NET/r2ccl : %s", text.c_str());
}

abi::Result Translate(const Status& status) {
  if (status.ok()) return abi::kSuccess;
  Log(abi::kLogWarn, status.message());
  switch (status.code()) {
    case Code::kInvalidArgument:
      return abi::kInvalidUsage;
    case Code::kSystem:
      return abi::kSystemError;
    default:
      return abi::kRemoteError;
  }
}

int ReadSpeed(const std::string& nic) {
  constexpr int kUnknownMbitS = 10000;  // NCCL's own assumption for sockets
  std::ifstream file("/sys/class/net/" + nic + "/speed");
  int speed = 0;
  return file >> speed && speed > 0 ? speed : kUnknownMbitS;
}

char* ReadPciPath(const std::string& nic) {
  char resolved[PATH_MAX];
  if (realpath(("/sys/class/net/" + nic + "/device").c_str(), resolved) == nullptr) return nullptr;
  return strdup(resolved);
}

// Empty counts as not set.
std::string ReadVariable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// NCCL never ends its plugin. A small message is done for NCCL once it is copied, so what the peer has not acknowledged
// is delivered before exit() ends the threads that do it. A child that was forked has none of these connections.
void DeliverAtExit() {
  static const pid_t owner = getpid();
  std::atexit([] {
    if (getpid() != owner) return;
    Guard(0, [] {
      state().net->CloseConnections();
      return 0;
    });
  });
}

// GPU memory, where it was asked for and everything for it is there. Else NCCL moves it through host memory.
void OfferGpuMemory(State& plugin, Status status) {
  if (status.ok()) status = plugin.net->WhyNoDeviceMemory();
  if (!status.ok()) {
    plugin.gpu_memory.reset();
    plugin.net->environment().log.Add("gdr_off", "", "", status.message());
    Log(abi::kLogWarn, "R2CC_GDR=1: " + status.message() + "; GPU memory goes through host memory");
    return;
  }
  plugin.pointer_support |= abi::kPointerCuda;
  if (plugin.net->TakesDmabuf()) plugin.pointer_support |= abi::kPointerDmabuf;
  std::string how = (plugin.pointer_support & abi::kPointerDmabuf) != 0 ? "by dmabuf" : "by nvidia-peermem";
  plugin.net->environment().log.Add("gdr_on", "", "", how + "; not tried on hardware");
  Log(abi::kLogInfo, "R2CC_GDR=1: GPU memory is taken directly, " + how + "; this was not tried on hardware");
}

Status Start(State& plugin) {
  std::map<std::string, std::string> overrides;
  // Mode 3 is mode 2 with other schedules after a loss, but NCCL chooses its own; to refuse it would send NCCL back
  // to its built-in transport.
  if (ReadVariable("R2CC_MODE") == "3") overrides.emplace("R2CC_MODE", "2");
  Params params;
  Status status = ReadParams(overrides, &params);
  if (!status.ok()) return status;
  for (const std::string& name : UnknownVariables(environ)) {
    Log(abi::kLogWarn, name + ": no such variable; see r2ccl_core/PARAMETERS.md");
  }
  std::string filter = ReadVariable("R2CC_SOCKET_IFNAME");
  if (filter.empty()) filter = ReadVariable("NCCL_SOCKET_IFNAME");
  std::vector<Nic> nics;
  std::vector<LeftOut> left_out;
  status = DiscoverNics(filter, &nics, &left_out);
  if (!status.ok()) return status;
  Status gpu_status;
  if (params.gdr == 1) gpu_status = GpuMemory::Open(gdr::kLibraryFile, &plugin.gpu_memory);
  if (plugin.gpu_memory != nullptr && (params.zero_copy_bytes == 0 || params.zero_copy_bytes > kGpuZeroCopyBytes)) {
    params.zero_copy_bytes = kGpuZeroCopyBytes;
  }
  status = Net::Create(params, nics, &plugin.net);
  if (!status.ok()) return status;
  if (params.gdr == 1) OfferGpuMemory(plugin, gpu_status);
  plugin.net->environment().program_polls = true;
  plugin.carrier = std::make_unique<NetCarrier>(plugin.net);
  plugin.connections = std::make_unique<Connections>(plugin.carrier.get());
  DeliverAtExit();
  std::string names;
  for (size_t i = 0; i < nics.size(); ++i) {
    const Nic& nic = nics[i];
    plugin.devices.push_back({strdup(nic.name.c_str()), ReadPciPath(nic.name), uint64_t{nic.address.s_addr},
                              ReadSpeed(nic.name), static_cast<int>(i)});
    names += " " + nic.name + ":" + r2ccl::ToString(nic.address);
  }
  if (!plugin.net->report_status().ok()) Log(abi::kLogWarn, plugin.net->report_status().message());
  for (const LeftOut& nic : left_out) {
    Log(abi::kLogInfo, "no data NIC: " + nic.name + " " + nic.why + "; R2CC_SOCKET_IFNAME can name it");
  }
  Log(abi::kLogInfo, "mode " + std::to_string(params.mode) + ", NICs" + names);
  return {};
}

template <typename Group>
abi::Result CloseGroup(void* comm) {
  auto* group = static_cast<Group*>(comm);
  if (group == nullptr) return abi::kSuccess;
  group->Close();
  delete group;
  return abi::kSuccess;
}

}  // namespace

abi::Result Init(abi::Logger logger) {
  State& plugin = state();
  MutexLock lock(plugin.mutex);
  plugin.logger = logger;
  return plugin.net != nullptr ? abi::kSuccess : Translate(Start(plugin));
}

abi::Result InitForgotten(abi::Logger logger) {
  abi::Result result = Init(logger);
  if (result != abi::kSuccess) return result;
  Status named = TakeDefaultName();
  if (!named.ok()) {
    Log(abi::kLogWarn, "NCCL 2.27 to 2.29 may forget a net plugin when a process destroys its last communicator, and " +
                           named.message() + ", so the next one would go without r2ccl: set " +
                           "NCCL_NET_PLUGIN_REF_COUNT=1 before the program starts");
  }
  return result;
}

abi::Result Devices(int* count) {
  *count = static_cast<int>(state().devices.size());
  return abi::kSuccess;
}

abi::Result Describe(int device, Device* description) {
  const auto& devices = state().devices;
  if (device < 0 || device >= static_cast<int>(devices.size())) return abi::kInvalidArgument;
  *description = devices[static_cast<size_t>(device)];
  return abi::kSuccess;
}

abi::Result Listen(int, void* handle, void** listen_comm) {
  std::unique_ptr<ListenComm> made;
  Status status = state().connections->Listen(static_cast<char*>(handle), &made);
  if (!status.ok()) return Translate(status);
  *listen_comm = made.release();
  return abi::kSuccess;
}

abi::Result Connect(int device, void* handle, void** send_comm) {
  std::unique_ptr<SendGroup> made;
  Status status = state().connections->Connect(device, static_cast<char*>(handle), &made);
  *send_comm = made.release();
  return Translate(status);
}

abi::Result Accept(void* listen_comm, void** recv_comm) {
  *recv_comm = Connections::Accept(static_cast<ListenComm*>(listen_comm)).release();
  return abi::kSuccess;
}

int PointerSupport() { return state().pointer_support; }

bool AsksForGpuMemory() { return ReadVariable("R2CC_GDR") == "1"; }

abi::Result RegisterMemory(void* data, size_t size, int type, const Dmabuf* dmabuf, void** mhandle) {
  *mhandle = nullptr;
  State& plugin = state();
  bool takes = type == abi::kPointerHost || (type == abi::kPointerCuda && plugin.gpu_memory != nullptr);
  if (!takes || (dmabuf != nullptr && type != abi::kPointerCuda)) return abi::kInternalError;
  auto made = std::make_unique<Registration>(Registration{static_cast<const char*>(data), size, nullptr, Fd()});
  if (type == abi::kPointerHost) {
    plugin.net->AddMemory(made->data, size);
    *mhandle = made.release();
    return abi::kSuccess;
  }
  DeviceMemory device{reinterpret_cast<uint64_t>(data)};
  if (dmabuf != nullptr) {  // NCCL closes its own
    made->dmabuf = Fd(fcntl(dmabuf->fd, F_DUPFD_CLOEXEC, 0));
    if (!made->dmabuf.valid()) return Translate({Code::kSystem, std::string("dmabuf: ") + std::strerror(errno)});
    device.dmabuf = made->dmabuf.get();
    device.offset = dmabuf->offset;
  }
  Status status = plugin.gpu_memory->Map(device.address, size, &made->gpu);
  if (!status.ok()) return Translate(status);
  made->data = made->gpu->Find(device.address, size);
  plugin.net->AddDeviceMemory(made->data, size, device);
  *mhandle = made.release();
  return abi::kSuccess;
}

abi::Result DeregisterMemory(void* mhandle) {
  std::unique_ptr<Registration> gone(static_cast<Registration*>(mhandle));
  if (gone != nullptr) state().net->DropMemory(gone->data, gone->size);
  return abi::kSuccess;
}

namespace {

// Where the processor sees NCCL's pointer; nullptr where that is outside the GPU's memory that was registered with it.
char* Seen(void* data, size_t size, void* mhandle) {
  auto* registration = state().gpu_memory == nullptr ? nullptr : static_cast<Registration*>(mhandle);
  if (registration == nullptr || registration->gpu == nullptr) return static_cast<char*>(data);
  return registration->gpu->Find(reinterpret_cast<uint64_t>(data), size);
}

abi::Result NotRegistered() {
  return Translate({Code::kInvalidArgument, "bytes of a GPU that are not in the memory registered for them"});
}

abi::Result TestFlush(FlushRequest* pending, int* done, int* sizes) {
  bool finished = false;
  Status status = pending->flush->Test(&finished);
  *done = finished && status.ok() ? 1 : 0;
  if (*done == 0) return Translate(status);
  PushWrites(pending->data, pending->size);
  if (sizes != nullptr) *sizes = static_cast<int>(pending->size);
  delete pending;
  return abi::kSuccess;
}

}  // namespace

abi::Result Isend(void* send_comm, void* data, size_t size, void* mhandle, void** request) {
  Request* made = nullptr;
  *request = nullptr;
  char* seen = Seen(data, size, mhandle);
  if (seen == nullptr && data != nullptr) return NotRegistered();
  Status status = static_cast<SendGroup*>(send_comm)->Isend(seen, size, &made);
  *request = made;
  return Translate(status);
}

abi::Result Irecv(void* recv_comm, int n, void** data, const size_t* sizes, void** mhandles, void** request) {
  // NCCL's low-latency protocols: the GPU takes each word as soon as the flag beside it is there.
  bool watched = *request == abi::kOptionalCompletion;
  *request = nullptr;
  if (n != 1) return abi::kInternalError;  // we announced max_receives = 1
  char* seen = Seen(data[0], sizes[0], mhandles == nullptr ? nullptr : mhandles[0]);
  if (seen == nullptr && data[0] != nullptr) return NotRegistered();
  Request* made = nullptr;
  Status status = static_cast<RecvGroup*>(recv_comm)->Irecv(seen, sizes[0], &made, watched);
  *request = made;
  return Translate(status);
}

abi::Result Flush(int n, void** data, const int* sizes, void** mhandles, void** request) {
  *request = nullptr;
  if (state().gpu_memory == nullptr) return abi::kSuccess;  // data lands in host memory: there is nothing to flush
  if (n != 1) return abi::kInternalError;
  auto* registration = static_cast<Registration*>(mhandles[0]);
  auto size = static_cast<size_t>(sizes[0]);
  if (registration == nullptr || registration->gpu == nullptr || size == 0) return abi::kSuccess;
  char* seen = Seen(data[0], size, registration);
  if (seen == nullptr) return NotRegistered();
  std::unique_ptr<RcFlush> flush = state().net->Flush(seen, size);
  if (flush == nullptr) {
    PushWrites(seen, size);
    return abi::kSuccess;
  }
  auto made = std::make_unique<FlushRequest>();
  made->flush = std::move(flush);
  made->data = seen;
  made->size = size;
  *request = static_cast<Request*>(made.release());
  return abi::kSuccess;
}

abi::Result Test(void* request, int* done, int* sizes) {
  auto* pending = static_cast<Request*>(request);
  if (pending->owner == nullptr) return TestFlush(static_cast<FlushRequest*>(pending), done, sizes);
  bool finished = false;
  uint64_t size = 0;
  Status status = pending->owner->Test(pending, &finished, &size);
  *done = finished ? 1 : 0;
  if (finished && sizes != nullptr) *sizes = static_cast<int>(size);
  return Translate(status);
}

abi::Result CloseSend(void* send_comm) { return CloseGroup<SendGroup>(send_comm); }

abi::Result CloseRecv(void* recv_comm) { return CloseGroup<RecvGroup>(recv_comm); }

abi::Result CloseListen(void* listen_comm) {
  std::unique_ptr<ListenComm> waiting(static_cast<ListenComm*>(listen_comm));
  if (waiting != nullptr) state().connections->CloseListen(std::move(waiting));
  return abi::kSuccess;
}

bool NicsLeft(int* total, int* left) {
  State& plugin = state();
  MutexLock lock(plugin.mutex);
  if (plugin.net == nullptr) return false;
  std::vector<NicHealth> health = plugin.net->Health();
  auto is_lost = [](const NicHealth& nic) { return nic.up == 0 && nic.down > 0; };
  *total = static_cast<int>(health.size());
  *left = *total - static_cast<int>(std::count_if(health.begin(), health.end(), is_lost));
  return true;
}

}  // namespace r2ccl::plugin
