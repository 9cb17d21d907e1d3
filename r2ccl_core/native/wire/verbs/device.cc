// Devices, their asynchronous events, and which of them a NIC has.
#include "wire/verbs/device.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/verbs/loopback.h"
#include "wire/verbs/verbs_queue.h"

namespace r2ccl {
namespace {

std::string EventName(const ibv::AsyncEvent& event) {
  switch (event.type) {
    case ibv::kEventCqError:
      return "the completion queue overflowed (CQ_ERR)";
    case ibv::kEventQpFatal:
      return "the queue pair failed (QP_FATAL)";
    case ibv::kEventQpRequestError:
      return "the queue pair got an invalid request (QP_REQ_ERR)";
    case ibv::kEventQpAccessError:
      return "the queue pair got a request without the right (QP_ACCESS_ERR)";
    case ibv::kEventDeviceFatal:
      return "the device failed (DEVICE_FATAL)";
    case ibv::kEventPortError:
      return "the port went down (PORT_ERR)";
    case ibv::kEventLidChange:
      return "the port's LID changed (LID_CHANGE)";
    case ibv::kEventGidChange:
      return "the port's GID is gone (GID_CHANGE)";
    default:
      return "";
  }
}

}  // namespace

RdmaDevice::~RdmaDevice() {
  Unwatch();
  if (memory_ != nullptr && pd_ != nullptr) (void)memory_->Revoke(pd_);
  if (pd_ != nullptr) library_.dealloc_pd(pd_);
  if (context_ != nullptr) library_.close_device(context_);
}

Status RdmaDevice::Open(EventLoop* loop, EventLog* log) {
  int count = 0;
  ibv::Device** devices = library_.get_device_list(&count);
  if (devices == nullptr) return {Code::kSystem, ibv::Error("the list of RDMA devices")};
  for (int i = 0; i < count; ++i) {
    if (name_ == devices[i]->name) context_ = library_.open_device(devices[i]);
  }
  int error = errno;
  library_.free_device_list(devices);
  errno = error;
  if (context_ == nullptr) {
    return {Code::kSystem, "the RDMA device " + name_ + " cannot be opened" +
                               (error == 0 ? std::string() : std::string(": ") + std::strerror(error)) +
                               "; is its provider installed (ibverbs-providers), and /dev/infiniband there?"};
  }
  pd_ = library_.alloc_pd(context_);
  if (pd_ == nullptr) return {Code::kSystem, ibv::Error(name_ + ": no protection domain")};
  Status status = ibv::SetNonBlocking(context_->async_fd);
  if (!status.ok()) return status;
  loop_ = loop;
  log_ = log;
  poll_id_ = loop->Add(context_->async_fd, EPOLLIN, 0, shared_from_this());
  return {};
}

void RdmaDevice::Unwatch() {
  if (poll_id_ != 0) loop_->Remove(std::exchange(poll_id_, 0));
}

Status RdmaDevice::MakeQueue(const RcPort& port, const VerbsSettings& settings, const RcShape& shape, uint32_t psn,
                             std::weak_ptr<RcWatcher> watcher, std::unique_ptr<RcQueue>* queue) {
  auto made = std::make_unique<VerbsQueue>(shared_from_this(), port, settings, shape);
  Status status = made->Create(psn);
  if (!status.ok()) return status;
  {
    MutexLock lock(mutex_);
    made_.push_back({port, made->qp(), made->cq(), std::move(watcher)});
  }
  *queue = std::move(made);
  return {};
}

// Nothing is registered: of a descriptor that is none, a driver that takes them says so (EBADF).
bool RdmaDevice::TakesDmabuf() const {
  if (library_.reg_dmabuf_mr == nullptr) return false;
  ibv::Mr* region = library_.reg_dmabuf_mr(pd_, 0, 0, 0, -1, 0);
  if (region != nullptr) (void)library_.dereg_mr(region);
  return region != nullptr || errno == EBADF;
}

void RdmaDevice::Forget(const void* qp) {
  MutexLock lock(mutex_);
  std::erase_if(made_, [qp](const Made& made) { return made.qp == qp; });
}

size_t RdmaDevice::queues() {
  MutexLock lock(mutex_);
  return made_.size();
}

// Who is concerned is found before the event is acknowledged: until then the queue that it names cannot go.
void RdmaDevice::Take(const ibv::AsyncEvent& event, std::vector<std::weak_ptr<RcWatcher>>* concerned,
                      std::string* reason) {
  std::string what = EventName(event);
  if (what.empty()) return;
  *reason = name_ + ": " + what;
  if (event.type == ibv::kEventDeviceFatal) gone_.store(true);
  MutexLock lock(mutex_);
  for (const Made& made : made_) {
    bool concerns = event.type == ibv::kEventDeviceFatal;
    if (event.type == ibv::kEventPortError || event.type == ibv::kEventLidChange) {
      concerns = event.element.port == made.port.port && (event.type == ibv::kEventPortError || made.port.infiniband);
    }
    if (event.type == ibv::kEventGidChange) {
      concerns = event.element.port == made.port.port && !StillThere(kSysfs, made.port);
    }
    if (event.type == ibv::kEventCqError) concerns = event.element.cq == made.cq;
    if (event.type == ibv::kEventQpFatal || event.type == ibv::kEventQpRequestError ||
        event.type == ibv::kEventQpAccessError) {
      concerns = event.element.qp == made.qp;
    }
    if (concerns) concerned->push_back(made.watcher);
  }
}

void RdmaDevice::OnEvents(uint64_t id, int, uint32_t events) {
  ibv::AsyncEvent event{};
  bool any = false;
  while (library_.get_async_event(context_, &event) == 0) {
    any = true;
    std::vector<std::weak_ptr<RcWatcher>> concerned;
    std::string reason;
    Take(event, &concerned, &reason);
    library_.ack_async_event(&event);
    if (!reason.empty()) log_->Add("rdma_event", "", "", reason);
    for (const auto& weak : concerned) {
      if (auto watcher = weak.lock()) watcher->OnQueueLost(reason);
    }
  }
  // The descriptor of a device that is gone reports an error for ever.
  if (!any && (events & (EPOLLERR | EPOLLHUP)) != 0) gone_.store(true);
  if (gone_.load()) loop_->Remove(id);
}

Status Rdma::Open(EventLoop* loop, EventLog* log, std::unique_ptr<Rdma>* rdma) {
  std::unique_ptr<Rdma> made(new Rdma());
  Status status = VerbsSettings::Read(&made->settings_);
  if (status.ok() && made->settings_.disabled) {
    status = {Code::kInvalidArgument, "NCCL_IB_DISABLE=1; unset it"};
  }
  if (status.ok()) status = ibv::Library::Open(ibv::kLibraryFile, &made->library_);
  if (!status.ok()) return status;
  // Where a kernel does not copy what a device has locked for a child that forks (before 5.12), the library sees to it.
  (void)made->library_.fork_init();
  made->loop_ = loop;
  made->log_ = log;
  *rdma = std::move(made);
  return {};
}

Rdma::Rdma() = default;

Rdma::~Rdma() = default;

void Rdma::Unwatch() {
  MutexLock lock(mutex_);
  readers_.clear();
  for (auto& [name, device] : devices_) device->Unwatch();
}

Status Rdma::DeviceOf(const std::string& name, std::shared_ptr<RdmaDevice>* device) {
  std::shared_ptr<RdmaDevice>& known = devices_[name];
  if (known != nullptr && known->is_gone()) {
    known->Unwatch();
    known.reset();  // it ends with its last queue, or reader
    std::erase_if(readers_, [&name](const auto& entry) { return entry.first.first == name; });
  }
  if (known == nullptr) {
    auto made = std::make_shared<RdmaDevice>(library_, name, memory_);
    Status status = made->Open(loop_, log_);
    if (!status.ok()) return status;
    known = std::move(made);
  }
  *device = known;
  return {};
}

Status Rdma::PortOf(const Nic& nic, RcPort* port, std::shared_ptr<RdmaDevice>* device) {
  auto known = ports_.find(nic.address.s_addr);
  if (known == ports_.end() || !StillThere(kSysfs, known->second)) {
    Status status = FindPort(kSysfs, nic, settings_, port);
    if (!status.ok()) return status;
    ports_[nic.address.s_addr] = *port;
  }
  *port = ports_[nic.address.s_addr];
  return DeviceOf(port->device, device);
}

Status Rdma::Make(const Nic& nic, const RcShape& shape, uint32_t psn, std::weak_ptr<RcWatcher> watcher,
                  std::unique_ptr<RcQueue>* queue) {
  RcPort port;
  std::shared_ptr<RdmaDevice> device;
  {
    MutexLock lock(mutex_);
    Status status = PortOf(nic, &port, &device);
    if (!status.ok()) return status;
  }
  return device->MakeQueue(port, settings_, shape, psn, std::move(watcher), queue);
}

bool Rdma::TakesDmabuf(const std::vector<Nic>& nics) {
  MutexLock lock(mutex_);
  return std::ranges::all_of(nics, [this](const Nic& nic) {
    RcPort port;
    std::shared_ptr<RdmaDevice> device;
    return PortOf(nic, &port, &device).ok() && device->TakesDmabuf();
  });
}

// nullptr where the device, or its port, does not serve any more.
std::shared_ptr<LoopbackReader> Rdma::ReaderOf(const RdmaMemory::Unflushed& what) {
  std::shared_ptr<RdmaDevice> device = what.device.lock();
  MutexLock lock(mutex_);
  std::shared_ptr<LoopbackReader>& reader = readers_[{what.port.device, what.port.port}];
  bool serves = device != nullptr && !device->is_gone();
  if (reader != nullptr && (!serves || !reader->is_of(device.get()) || reader->has_failed())) reader.reset();
  if (reader == nullptr && serves) {
    (void)LoopbackReader::Make(device, what.port, settings_, RandomWord() & kMostPsn, &reader);
  }
  return reader;
}

std::unique_ptr<RcFlush> Rdma::Flush(const char* data, size_t bytes) {
  std::vector<RdmaMemory::Unflushed> unflushed = memory_->FindUnflushed(data, bytes);
  if (unflushed.empty()) return nullptr;
  auto flush = std::make_unique<LoopbackFlush>(memory_, data, bytes);
  for (const auto& what : unflushed) flush->Add(what, ReaderOf(what));
  return flush;
}

}  // namespace r2ccl
