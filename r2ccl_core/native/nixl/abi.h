// NIXL's interface for backends, in our own declarations: what its core and a plugin read of each other's objects.
//
// Nothing of NIXL is needed to build. The layout matters: the order of virtual functions and of members, the values of
// enumerations, and the names, which are not part of any plugin's symbols. This is the interface of NIXL 1.3 to 1.5,
// whose api_version is 1; earlier versions have other members under the same number. Tested with 1.5.1.
#ifndef R2CCL_NIXL_ABI_H_
#define R2CCL_NIXL_ABI_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace r2ccl::nixl {

constexpr int kApiVersion = 1;
constexpr int kMajor = 1;
constexpr int kFirstMinor = 3;
constexpr int kLastMinor = 5;

enum Memory { kDram };
enum Operation { kRead, kWrite };
enum Result {
  kInProgress = 1,
  kSuccess = 0,
  kInvalidParam = -2,
  kBackend = -3,
  kNotFound = -4,
  kNotAllowed = -6,
  kNotSupported = -9,
  kRemoteDisconnect = -10,
  kCancelled = -11,
};
enum class ThreadSync { kNone };

using Options = std::unordered_map<std::string, std::string>;
using Memories = std::vector<Memory>;
using Notifications = std::vector<std::pair<std::string, std::string>>;

// What a plugin hangs on registered memory and on a transfer; NIXL's core keeps the pointers.
class Metadata {
 public:
  virtual ~Metadata() = default;

 protected:
  bool is_private = true;
};

class RequestHandle {
 public:
  virtual ~RequestHandle() = default;
};

struct Descriptor {
  uintptr_t address;
  size_t bytes;
  uint64_t device;
};

struct BlobDescriptor : Descriptor {
  std::string blob;
};

struct MetadataDescriptor : Descriptor {
  Metadata* metadata;
};

struct RemoteDescriptor : MetadataDescriptor {
  std::string agent;
};

// Only read here, and never made: its virtual functions are the core's.
template <typename T>
class DescriptorList {
 public:
  const std::vector<T>& all() const { return descriptors_; }

 protected:
  virtual ~DescriptorList() = default;
  Memory memory_;
  std::vector<T> descriptors_;
};
using MetadataList = DescriptorList<MetadataDescriptor>;

struct TransferOptions {
  std::string notification;
  bool has_notification = false;
  std::string custom;
};

struct EngineOptions {
  std::string agent;
  std::string type;
  Options* custom = nullptr;
  bool progress_thread = false;
  uint64_t progress_delay_us = 0;
  ThreadSync sync = ThreadSync::kNone;
  bool telemetry = false;
};

// The order of the virtual functions is the interface.
class Backend {
 public:
  explicit Backend(const EngineOptions& options)
      : type_(options.type), custom_(*options.custom), agent_(options.agent), telemetry_(options.telemetry) {}
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual ~Backend() = default;
  virtual bool SupportsRemote() const = 0;
  virtual bool SupportsLocal() const = 0;
  virtual bool SupportsNotifications() const = 0;
  virtual Memories SupportedMemories() const = 0;
  virtual Result Register(const BlobDescriptor& memory, const Memory& kind, Metadata*& out) = 0;
  virtual Result Deregister(Metadata* metadata) = 0;
  virtual Result Connect(const std::string& agent) = 0;
  virtual Result Disconnect(const std::string& agent) = 0;
  virtual Result Unload(Metadata* metadata) = 0;
  virtual Result Prepare(const Operation& operation, const MetadataList& local, const MetadataList& remote,
                         const std::string& agent, RequestHandle*& handle, const TransferOptions* options) const = 0;
  virtual Result Post(const Operation& operation, const MetadataList& local, const MetadataList& remote,
                      const std::string& agent, RequestHandle*& handle, const TransferOptions* options) const = 0;
  virtual Result Check(RequestHandle* handle) const = 0;
  virtual Result Release(RequestHandle* handle) const = 0;
  virtual Result PrepareRemoteView(const DescriptorList<RemoteDescriptor>&, void*&, const TransferOptions*) const {
    return kNotSupported;
  }
  virtual Result PrepareLocalView(const MetadataList&, void*&, const TransferOptions*) const { return kNotSupported; }
  virtual void ReleaseView(void*) const {}
  virtual Result PublicData(const Metadata* metadata, std::string& out) const = 0;
  virtual Result ConnectionInfo(std::string& out) const = 0;
  virtual Result LoadConnectionInfo(const std::string& agent, const std::string& info) = 0;
  virtual Result LoadRemote(const BlobDescriptor& memory, const Memory& kind, const std::string& agent,
                            Metadata*& out) = 0;
  virtual Result LoadLocal(Metadata*, Metadata*&) { return kNotSupported; }
  virtual Result TakeNotifications(Notifications& out) = 0;
  virtual Result Notify(const std::string& agent, const std::string& text) const = 0;
  virtual Result Query(const DescriptorList<BlobDescriptor>&, std::vector<std::optional<Options>>&) const {
    return kNotSupported;
  }
  virtual Result EstimateCost(const Operation&, const MetadataList&, const MetadataList&, const std::string&,
                              RequestHandle* const&, std::chrono::microseconds&, std::chrono::microseconds&, int&,
                              const void*) const {
    return kNotSupported;
  }

 private:
  // The core reads these in place.
  std::string type_;
  Options custom_;
  std::vector<char> events_;  // of telemetry: always empty
  std::mutex events_mutex_;

 protected:
  bool failed_ = false;
  const std::string agent_;
  const bool telemetry_;
};

struct Plugin {
  int api_version;
  Backend* (*create)(const EngineOptions* options);
  void (*destroy)(Backend* backend);
  const char* (*name)();
  const char* (*version)();
  Options (*options)();
  Memories (*memories)();
};

}  // namespace r2ccl::nixl

#endif  // R2CCL_NIXL_ABI_H_
