// libplugin_R2CCL.so: the transfer engine as a backend of NIXL, for host memory.
//
// NIXL's agents exchange the metadata: an engine's address is its connection info, and a region's key and place are its
// public data. No exception and no wait leaves a function but those that say so.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/guard.h"
#include "net/nic.h"
#include "nixl/abi.h"
#include "nixl/release.h"
#include "transfer/engine.h"

namespace r2ccl::nixl {
namespace {

using transfer::Direction;
using transfer::Engine;
using transfer::EngineId;
using transfer::Range;
using transfer::Transfer;

constexpr double kQuietS = 10;  // then a connection that still holds memory is closed

void Tell(const std::string& line) { std::fprintf(stderr, "r2ccl: NIXL backend: %s\n", line.c_str()); }

std::string ReadVariable(const Options& custom, const char* name) {
  auto given = custom.find(name);
  if (given != custom.end()) return given->second;
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result ToResult(const Status& status) {
  if (status.ok()) return kSuccess;
  Tell(status.message());
  if (status.code() == Code::kPeerLost) return kRemoteDisconnect;
  return status.code() == Code::kInvalidArgument ? kInvalidParam : kBackend;
}

// Of registered memory, here or at a peer; in the second case as text for the other agent, too.
struct Place : Metadata {
  uint64_t key = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

std::string Encode(const Place& place) {
  const uint64_t values[] = {place.key, place.address, place.bytes};
  std::string out;
  for (uint64_t value : values) {
    for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  }
  return out;
}

bool Decode(const std::string& text, Place* place) {
  if (text.size() != 24) return false;
  uint64_t* values[] = {&place->key, &place->address, &place->bytes};
  for (size_t i = 0; i < 24; ++i) {
    *values[i / 8] |= static_cast<uint64_t>(static_cast<uint8_t>(text[i])) << (8 * (i % 8));
  }
  return true;
}

// The offset of a descriptor in its memory. What lies outside the engines refuse.
uint64_t Offset(const MetadataDescriptor& descriptor) {
  return descriptor.address - static_cast<const Place*>(descriptor.metadata)->address;
}

struct Handle final : RequestHandle {
  std::shared_ptr<Transfer> transfer;
  EngineId peer{};
  bool told = false;     // why it failed
  bool refused = false;  // to be released
};

class R2cclBackend final : public Backend {
 public:
  R2cclBackend(const EngineOptions& options, std::shared_ptr<Engine> engine)
      : Backend(options), engine_(std::move(engine)) {}
  ~R2cclBackend() override { engine_->Close(); }

  bool SupportsRemote() const override { return true; }
  bool SupportsLocal() const override { return false; }
  bool SupportsNotifications() const override { return true; }
  Memories SupportedMemories() const override { return {kDram}; }

  Result Register(const BlobDescriptor& memory, const Memory& kind, Metadata*& out) override {
    if (kind != kDram) return kNotSupported;
    return Guard(kBackend, [&] {
      auto place = std::make_unique<Place>();
      place->address = memory.address;
      place->bytes = memory.bytes;
      // NIXL gives a number for an address.
      Result result =
          ToResult(engine_->Register(reinterpret_cast<void*>(memory.address), memory.bytes, &place->key));  // NOLINT
      if (result == kSuccess) out = place.release();
      return result;
    });
  }

  // Waits until the memory is quiet.
  Result Deregister(Metadata* metadata) override {
    return Guard(kBackend, [&] {
      std::unique_ptr<Place> place(static_cast<Place*>(metadata));
      return ToResult(engine_->Deregister(place->key, kQuietS));
    });
  }

  Result Connect(const std::string& agent) override {
    EngineId id{};
    return Guard(kBackend, [&] { return Find(agent, &id) ? kSuccess : kNotFound; });
  }

  // The other agent may still need the connection, which ends with either process.
  Result Disconnect(const std::string& agent) override {
    return Guard(kBackend, [&] {
      std::lock_guard lock(mutex_);
      return peers_.erase(agent) > 0 ? kSuccess : kNotFound;
    });
  }

  Result Unload(Metadata* metadata) override {
    delete static_cast<Place*>(metadata);
    return kSuccess;
  }

  Result Prepare(const Operation&, const MetadataList& local, const MetadataList& remote, const std::string& agent,
                 RequestHandle*& handle, const TransferOptions*) const override {
    return Guard(kBackend, [&] {
      auto made = std::make_unique<Handle>();
      if (!Find(agent, &made->peer)) return kNotFound;
      if (local.all().size() != remote.all().size()) return kInvalidParam;
      handle = made.release();
      return kSuccess;
    });
  }

  Result Post(const Operation& operation, const MetadataList& local, const MetadataList& remote, const std::string&,
              RequestHandle*& handle, const TransferOptions* options) const override {
    return Guard(kBackend, [&] {
      auto* request = static_cast<Handle*>(handle);
      if (request->transfer != nullptr && request->transfer->state() == Transfer::kPending) return kNotAllowed;
      std::vector<Range> ranges;
      ranges.reserve(local.all().size());
      for (size_t i = 0; i < local.all().size(); ++i) {
        const MetadataDescriptor& here = local.all()[i];
        const MetadataDescriptor& there = remote.all()[i];
        if (here.bytes != there.bytes) return kInvalidParam;
        ranges.push_back({static_cast<const Place*>(here.metadata)->key, Offset(here),
                          static_cast<const Place*>(there.metadata)->key, Offset(there), here.bytes});
      }
      bool notifies = options != nullptr && options->has_notification;
      request->told = request->refused = false;
      request->transfer.reset();  // where none begins, the last one's state is not this one's
      Direction direction = operation == kRead ? Direction::kRead : Direction::kWrite;
      const std::string* text = notifies ? &options->notification : nullptr;
      Status status = engine_->Begin(request->peer, direction, ranges, text, &request->transfer);
      return status.ok() ? kInProgress : ToResult(status);
    });
  }

  Result Check(RequestHandle* handle) const override {
    auto* request = static_cast<Handle*>(handle);
    if (request->transfer == nullptr) return kInvalidParam;
    switch (engine_->Look(*request->transfer)) {
      case Transfer::kPending:
        return kInProgress;
      case Transfer::kDone:
        return kSuccess;
      case Transfer::kCancelled:
        return kCancelled;
      case Transfer::kFailed:
        break;
    }
    const Status& status = request->transfer->status();
    if (!std::exchange(request->told, true)) return ToResult(status);
    return status.code() == Code::kPeerLost ? kRemoteDisconnect : kInvalidParam;
  }

  // Cancels what is not over, and refuses until its memory is quiet. NIXL's core deletes the request when it is asked a
  // second time, whatever is said here: that call waits.
  Result Release(RequestHandle* handle) const override {
    return Guard(kBackend, [&] {
      auto* request = static_cast<Handle*>(handle);
      bool pending = request->transfer != nullptr && request->transfer->state() == Transfer::kPending;
      if (pending) {
        engine_->Cancel(*request->transfer);
        if (!std::exchange(request->refused, true)) return kNotAllowed;
        AwaitQuiet(*request);
      }
      delete request;
      return kSuccess;
    });
  }

  Result PublicData(const Metadata* metadata, std::string& out) const override {
    return Guard(kBackend, [&] {
      out = Encode(*static_cast<const Place*>(metadata));
      return kSuccess;
    });
  }

  Result ConnectionInfo(std::string& out) const override {
    return Guard(kBackend, [&] {
      out = engine_->address();
      return kSuccess;
    });
  }

  Result LoadConnectionInfo(const std::string& agent, const std::string& info) override {
    return Guard(kBackend, [&] {
      EngineId id{};
      Status status = engine_->Connect(info, &id);
      if (!status.ok()) return ToResult(status);
      std::lock_guard lock(mutex_);
      peers_[agent] = id;
      return kSuccess;
    });
  }

  Result LoadRemote(const BlobDescriptor& memory, const Memory& kind, const std::string&, Metadata*& out) override {
    if (kind != kDram) return kNotSupported;
    return Guard(kBackend, [&] {
      auto place = std::make_unique<Place>();
      if (!Decode(memory.blob, place.get())) {
        Tell("the metadata of a peer's memory is not of this release");
        return kInvalidParam;
      }
      out = place.release();
      return kSuccess;
    });
  }

  Result TakeNotifications(Notifications& out) override {
    return Guard(kBackend, [&] {
      for (auto& one : engine_->TakeNotifications()) out.emplace_back(std::move(one.from), std::move(one.text));
      return kSuccess;
    });
  }

  Result Notify(const std::string& agent, const std::string& text) const override {
    return Guard(kBackend, [&] {
      EngineId id{};
      return Find(agent, &id) ? ToResult(engine_->Notify(id, text)) : kNotFound;
    });
  }

 private:
  bool Find(const std::string& agent, EngineId* id) const {
    std::lock_guard lock(mutex_);
    auto entry = peers_.find(agent);
    if (entry == peers_.end()) return false;
    *id = entry->second;
    return true;
  }

  void AwaitQuiet(const Handle& request) const {
    int64_t deadline_ns = NowNs() + static_cast<int64_t>(kQuietS * 1e9);
    while (request.transfer->state() == Transfer::kPending) {
      if (NowNs() > deadline_ns) engine_->Disconnect(request.peer);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const std::shared_ptr<Engine> engine_;
  mutable std::mutex mutex_;               // guards what follows
  std::map<std::string, EngineId> peers_;  // by the name of the agent
};

// R2CC_* variables of the environment, which the backend's own parameters override.
Status Open(const EngineOptions& options, std::shared_ptr<Engine>* engine) {
  std::map<std::string, std::string> overrides;
  for (const auto& [name, value] : *options.custom) {
    if (name != "R2CC_SOCKET_IFNAME") overrides[name] = value;
  }
  Params params;
  Status status = ReadParams(overrides, &params);
  std::string filter = ReadVariable(*options.custom, "R2CC_SOCKET_IFNAME");
  if (filter.empty()) filter = ReadVariable(*options.custom, "NCCL_SOCKET_IFNAME");
  std::vector<Nic> nics;
  if (status.ok()) status = DiscoverNics(filter, &nics);
  return status.ok() ? Engine::Create(options.agent, params, std::move(nics), engine) : status;
}

Backend* Create(const EngineOptions* options) {
  return Guard<Backend*>(nullptr, [&]() -> Backend* {
    std::shared_ptr<Engine> engine;
    Status status = Open(*options, &engine);
    if (status.ok()) return new R2cclBackend(*options, std::move(engine));  // NIXL gives it to Destroy
    Tell(status.message());
    return nullptr;
  });
}

void Destroy(Backend* backend) { delete backend; }

const char* Name() { return "R2CCL"; }

const char* Version() { return R2CCL_VERSION; }

}  // namespace
}  // namespace r2ccl::nixl

extern "C" __attribute__((visibility("default"))) r2ccl::nixl::Plugin* nixl_plugin_init() {
  using namespace r2ccl::nixl;
  return r2ccl::Guard<Plugin*>(nullptr, []() -> Plugin* {
    if (std::string why = WhyNot(VersionBeside(LoadedCore())); !why.empty()) {
      Tell(why);
      return nullptr;
    }
    static Plugin plugin{
        kApiVersion, Create, Destroy, Name, Version, [] { return Options(); }, [] { return Memories{kDram}; }};
    return &plugin;
  });
}

extern "C" __attribute__((visibility("default"))) void nixl_plugin_fini() {}
