// The process-wide state of the plugin and the translation of statuses into NCCL's results.
#include "plugin/plugin.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/guard.h"
#include "base/mutex.h"
#include "plugin/second_name.h"
#include "plugin/stripes.h"
#include "transport/net.h"

namespace r2ccl::plugin {
namespace {

constexpr size_t kAttemptAt = kHandleBytes - sizeof(uint64_t);  // see Connect
static_assert(kHandleUsedBytes <= kAttemptAt);
constexpr int64_t kAbandonedAfter = 3;  // times R2CC_FAILOVER_GIVE_UP_MS

using SendGroup = SendStripes<SendComm>;
using RecvGroup = RecvStripes<RecvComm>;

struct ListenComm {
  std::shared_ptr<Listener> listener;
  StripeCollector<RecvComm> collector;
};

// A connection that NCCL has asked for and not got yet.
struct Attempt {
  std::unique_ptr<SendGroup> group;
  int64_t asked_ns;  // last
};

struct State {
  Mutex mutex;
  std::atomic<abi::Logger> logger = nullptr;  // renewed by each communicator while others log
  // Set by the first Init, before NCCL calls anything else.
  std::shared_ptr<Net> net;
  std::vector<Device> devices;
  // By numbers that never come again, as the address of a group would. The first one is random: what a handle brings
  // along is believed only if it is a number in here, which a damaged handle must not hit by chance.
  std::map<uint64_t, Attempt> connecting GUARDED_BY(mutex);
  uint64_t last_attempt GUARDED_BY(mutex) = 0;
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
  std::vector<std::string> left_out;
  status = DiscoverNics(filter, &nics, &left_out);
  if (!status.ok()) return status;
  status = Net::Create(params, nics, &plugin.net);
  if (!status.ok()) return status;
  plugin.net->environment().program_polls = true;
  DeliverAtExit();
  std::string names;
  for (size_t i = 0; i < nics.size(); ++i) {
    const Nic& nic = nics[i];
    plugin.devices.push_back({strdup(nic.name.c_str()), ReadPciPath(nic.name), uint64_t{nic.address.s_addr},
                              ReadSpeed(nic.name), static_cast<int>(i)});
    names += " " + nic.name + ":" + r2ccl::ToString(nic.address);
  }
  if (!plugin.net->report_status().ok()) Log(abi::kLogWarn, plugin.net->report_status().message());
  for (const std::string& name : left_out) {
    Log(abi::kLogInfo, "no data NIC: " + name + " has the default route; R2CC_SOCKET_IFNAME can name it");
  }
  Log(abi::kLogInfo, "mode " + std::to_string(params.mode) + ", NICs" + names);
  return {};
}

Status BeginConnect(const std::string& handle, int home, std::unique_ptr<SendGroup>* made) {
  Handle decoded;
  Status status = DecodeHandle(handle, &decoded);
  if (!status.ok()) return status;
  State& plugin = state();
  uint64_t group = 0;
  status = Net::MakeUpConnection(&group);
  std::vector<std::shared_ptr<SendComm>> comms(static_cast<size_t>(decoded.stripes));
  for (size_t i = 0; i < comms.size() && status.ok(); ++i) {
    status = plugin.net->ConnectAs((group & ~kStripeMask) + i, decoded, &comms[i], home);
  }
  if (!status.ok()) {
    for (const auto& comm : comms) {
      if (comm != nullptr) comm->Close();
    }
    return status;
  }
  auto piece = static_cast<uint64_t>(plugin.net->environment().params.chunk_bytes);
  *made = std::make_unique<SendGroup>(std::move(comms), piece);
  return {};
}

// Zero is what Listen leaves in a handle.
Status NameAttempt(uint64_t* attempt) {
  State& plugin = state();
  MutexLock lock(plugin.mutex);
  if (plugin.last_attempt == 0) {
    Status status = Net::MakeUpConnection(&plugin.last_attempt);
    if (!status.ok()) return status;
  }
  if (++plugin.last_attempt == 0) ++plugin.last_attempt;
  *attempt = plugin.last_attempt;
  return {};
}

// nullptr unless the attempt is under way.
std::unique_ptr<SendGroup> TakeAttempt(uint64_t attempt) {
  State& plugin = state();
  MutexLock lock(plugin.mutex);
  auto entry = plugin.connecting.extract(attempt);
  return entry.empty() ? nullptr : std::move(entry.mapped().group);
}

void KeepAttempt(uint64_t attempt, std::unique_ptr<SendGroup> group) {
  State& plugin = state();
  MutexLock lock(plugin.mutex);
  plugin.connecting[attempt] = {std::move(group), NowNs()};
}

template <typename Group>
abi::Result CloseGroup(void* comm) {
  auto* group = static_cast<Group*>(comm);
  if (group == nullptr) return abi::kSuccess;
  group->Close();
  delete group;
  return abi::kSuccess;
}

// NCCL asks for a connection again and again until it is there. When it is aborted it stops, and tells nobody.
void DropAbandoned() {
  State& plugin = state();
  std::vector<std::unique_ptr<SendGroup>> abandoned;
  {
    MutexLock lock(plugin.mutex);
    if (plugin.net == nullptr) return;
    int64_t asked_after_ns = NowNs() - kAbandonedAfter * plugin.net->environment().params.give_up_ms * kMillisecond;
    for (auto entry = plugin.connecting.begin(); entry != plugin.connecting.end();) {
      bool old = entry->second.asked_ns < asked_after_ns;
      if (old) abandoned.push_back(std::move(entry->second.group));
      entry = old ? plugin.connecting.erase(entry) : std::next(entry);
    }
  }
  for (const auto& group : abandoned) group->Close();
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
  DropAbandoned();
  std::shared_ptr<Listener> listener;
  int64_t stripes = state().net->environment().params.stripes;
  Status status = state().net->Listen(&listener, static_cast<int>(stripes));
  if (!status.ok()) return Translate(status);
  std::string bytes = EncodeHandle(listener->handle());
  std::memcpy(handle, bytes.data(), bytes.size());
  *listen_comm = new ListenComm{std::move(listener), StripeCollector<RecvComm>(static_cast<size_t>(stripes))};
  return abi::kSuccess;
}

// NCCL calls again with the same handle until there is a comm, so the number of the attempt under way is kept in the
// handle's unused tail, which Listen left zero.
abi::Result Connect(int device, void* handle, void** send_comm) {
  *send_comm = nullptr;
  auto* bytes = static_cast<char*>(handle);
  uint64_t attempt = 0;
  std::memcpy(&attempt, bytes + kAttemptAt, sizeof attempt);
  std::unique_ptr<SendGroup> group;
  Status status;
  if (attempt == 0) {
    status = NameAttempt(&attempt);
    if (status.ok()) status = BeginConnect(std::string(bytes, kHandleBytes), device, &group);
    if (!status.ok()) return Translate(status);
    std::memcpy(bytes + kAttemptAt, &attempt, sizeof attempt);
  } else if (group = TakeAttempt(attempt); group == nullptr) {
    return Translate({Code::kInvalidArgument, "handle was not made by r2ccl, or was changed on its way"});
  }
  bool ready = false;
  status = group->Ready(&ready);
  if (status.ok() && !ready) {
    KeepAttempt(attempt, std::move(group));
    return abi::kSuccess;
  }
  std::memset(bytes + kAttemptAt, 0, sizeof attempt);
  if (!status.ok()) {
    group->Close();
    return Translate(status);
  }
  *send_comm = group.release();
  return abi::kSuccess;
}

abi::Result Accept(void* listen_comm, void** recv_comm) {
  *recv_comm = nullptr;
  auto* waiting = static_cast<ListenComm*>(listen_comm);
  while (std::shared_ptr<RecvComm> comm = waiting->listener->Accept()) {
    auto group = waiting->collector.Add(std::move(comm));
    if (group.empty()) continue;
    *recv_comm = new RecvGroup(std::move(group));
    break;
  }
  return abi::kSuccess;
}

abi::Result RegisterMemory(int type, void** mhandle) {
  *mhandle = nullptr;
  return type == abi::kPointerHost ? abi::kSuccess : abi::kInternalError;
}

abi::Result DeregisterMemory() { return abi::kSuccess; }

abi::Result Isend(void* send_comm, void* data, size_t size, void** request) {
  Request* made = nullptr;
  Status status = static_cast<SendGroup*>(send_comm)->Isend(data, size, &made);
  *request = made;
  return Translate(status);
}

abi::Result Irecv(void* recv_comm, int n, void** data, const size_t* sizes, void** request) {
  // NCCL's low-latency protocols: the GPU takes each word as soon as the flag beside it is there.
  bool watched = *request == abi::kOptionalCompletion;
  *request = nullptr;
  if (n != 1) return abi::kInternalError;  // we announced max_receives = 1
  Request* made = nullptr;
  Status status = static_cast<RecvGroup*>(recv_comm)->Irecv(data[0], sizes[0], &made, watched);
  *request = made;
  return Translate(status);
}

abi::Result Test(void* request, int* done, int* sizes) {
  auto* pending = static_cast<Request*>(request);
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
  auto* waiting = static_cast<ListenComm*>(listen_comm);
  if (waiting == nullptr) return abi::kSuccess;
  state().net->CloseListener(waiting->listener);
  waiting->collector.Close();
  delete waiting;
  DropAbandoned();
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
