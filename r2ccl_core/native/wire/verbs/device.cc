// Devices, queue pairs and asynchronous events through libibverbs.
#include "wire/verbs/device.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace r2ccl {
namespace {

constexpr int kCompletionBatch = 32;
constexpr uint8_t kShortestRnrTimer = 12;  // 0.64 ms; slots are counted, so that nobody waits for it
constexpr uint8_t kRnrRetries = 6;
constexpr uint8_t kHops = 64;
constexpr int kLocalWrite = 1;
constexpr int kRemoteWrite = 2;

std::string Error(const std::string& what) { return what + ": " + std::strerror(errno); }

Status SetNonBlocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return {Code::kSystem, Error("fcntl")};
  return {};
}

std::string LockedLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "no limit";
  return std::to_string(limit.rlim_cur / 1024) + " KiB";
}

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

// One queue pair with a completion queue, a channel and a memory region of its own.
class VerbsQueue final : public RcQueue {
 public:
  VerbsQueue(std::shared_ptr<RdmaDevice> device, const RcPort& port, const VerbsSettings& settings,
             const RcShape& shape)
      : device_(std::move(device)), library_(device_->library_), port_(port), settings_(settings), shape_(shape) {}
  ~VerbsQueue() override;

  Status Create(uint32_t psn);
  const void* qp() const { return qp_; }
  const void* cq() const { return cq_; }

  RcAddress address() const override { return address_; }
  std::string device() const override { return device_->name_; }
  Status Connect(const RcAddress& peer) override;
  Status Fence() override;
  char* send_slot(uint32_t slot) override { return memory_ + size_t{slot} * shape_.send_bytes; }
  char* receive_slot(uint32_t slot) override {
    return memory_ + size_t{shape_.send_slots} * shape_.send_bytes + size_t{slot} * shape_.receive_bytes;
  }
  Status PostSend(uint64_t id, uint32_t slot, uint32_t bytes) override;
  Status PostReceive(uint64_t id, uint32_t slot) override;
  bool Find(const char* data, size_t bytes, RcKeys* keys) override;
  Status PostWrite(uint64_t id, const char* data, uint32_t bytes, uint32_t local_key, uint64_t address,
                   uint32_t remote_key) override;
  Status Poll(std::vector<RcDone>* done) override;
  int fd() const override { return channel_->fd; }
  void Arm() override { device_->context_->ops.request_notification(cq_, 0); }
  void TakeEvents() override;

 private:
  size_t bytes() const {
    return size_t{shape_.send_slots} * shape_.send_bytes + size_t{shape_.receive_slots} * shape_.receive_bytes;
  }
  Status Register();
  Status Post(ibv::SendRequest* request);
  Status Modify(ibv::QpAttr* attributes, uint32_t state, int what, const char* name);

  const std::shared_ptr<RdmaDevice> device_;
  const ibv::Library& library_;
  const RcPort port_;
  const VerbsSettings settings_;
  const RcShape shape_;
  RcAddress address_;
  char* memory_ = nullptr;
  ibv::Mr* region_ = nullptr;
  ibv::Channel* channel_ = nullptr;
  ibv::Cq* cq_ = nullptr;
  ibv::Qp* qp_ = nullptr;
};

Status VerbsQueue::Register() {
  // Pages of its own, which a child that the process forks does not get: the device goes on writing to the parent's.
  void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {Code::kSystem, Error("memory for RDMA")};
  memory_ = static_cast<char*>(memory);
  madvise(memory_, bytes(), MADV_DONTFORK);
  region_ = library_.reg_mr(device_->pd_, memory_, bytes(), kLocalWrite);
  if (region_ != nullptr) return {};
  std::string error = Error(device_->name_ + " cannot register " + std::to_string(bytes() / 1024) + " KiB");
  if (errno != ENOMEM && errno != EPERM) return {Code::kSystem, error};
  return {Code::kSystem, error + "; the limit for locked memory is " + LockedLimit() +
                             ": raise it (`ulimit -l unlimited`, or LimitMEMLOCK=infinity of the service)"};
}

Status VerbsQueue::Create(uint32_t psn) {
  ibv::PortAttr port{};
  if (library_.query_port(device_->context_, static_cast<uint8_t>(port_.port), &port) != 0) {
    return {Code::kSystem, Error(device_->name_ + " does not tell the state of its port")};
  }
  std::string name = device_->name_ + " port " + std::to_string(port_.port);
  Status status = Register();
  if (!status.ok()) return status;
  channel_ = library_.create_comp_channel(device_->context_);
  if (channel_ == nullptr) return {Code::kSystem, Error(name + ": no completion channel")};
  status = SetNonBlocking(channel_->fd);
  if (!status.ok()) return status;
  auto entries = static_cast<int>(shape_.send_slots + shape_.writes + shape_.receive_slots);
  cq_ = library_.create_cq(device_->context_, entries, nullptr, channel_, 0);
  if (cq_ == nullptr) return {Code::kSystem, Error(name + ": no completion queue")};
  ibv::QpInitAttr init{};
  init.send_cq = init.receive_cq = cq_;
  init.cap = {shape_.send_slots + shape_.writes, shape_.receive_slots, 1, 1, 0};
  init.type = ibv::kQpTypeRc;
  qp_ = library_.create_qp(device_->pd_, &init);
  if (qp_ == nullptr) return {Code::kSystem, Error(name + ": no queue pair")};
  if (port.state != ibv::kPortActive) return {Code::kPeerLost, name + " is not active; see `rdma link`"};
  ibv::QpAttr attributes{};
  attributes.port = static_cast<uint8_t>(port_.port);
  attributes.pkey_index = static_cast<uint16_t>(settings_.pkey_index);
  attributes.access_flags = shape_.writes > 0 ? kRemoteWrite : 0;
  status = Modify(&attributes, ibv::kStateInit, ibv::kSetPkeyIndex | ibv::kSetPort | ibv::kSetAccess, "INIT");
  if (!status.ok()) return status;
  address_ = {port_.gid,
              qp_->number,
              psn,
              port.active_mtu,
              port.lid,
              static_cast<uint8_t>(port.link_layer == ibv::kLinkLayerInfiniband),
              shape_.receive_slots,
              shape_.receive_bytes};
  return {};
}

Status VerbsQueue::Modify(ibv::QpAttr* attributes, uint32_t state, int what, const char* name) {
  attributes->state = state;
  int error = library_.modify_qp(qp_, attributes, what | ibv::kSetState);
  if (error == 0) return {};
  return {Code::kSystem,
          device_->name_ + ": the queue pair does not get to " + name + ": " + std::strerror(std::abs(error))};
}

Status VerbsQueue::Connect(const RcAddress& peer) {
  if (peer.infiniband != address_.infiniband) {
    return {Code::kSystem,
            "the link layers differ: one end's port is InfiniBand, the other's Ethernet; connect like "
            "with like, or set R2CC_TRANSPORT=tcp"};
  }
  ibv::QpAttr attributes{};
  attributes.path_mtu = std::min(peer.mtu, address_.mtu);
  attributes.remote_qp = peer.number;
  attributes.receive_psn = peer.psn;
  attributes.min_rnr_timer = kShortestRnrTimer;
  ibv::AddressAttr& to = attributes.address;
  std::memcpy(to.route.dgid.raw, peer.gid.data(), peer.gid.size());
  to.route.sgid_index = static_cast<uint8_t>(port_.gid_index);
  to.route.hop_limit = kHops;
  to.route.traffic_class = static_cast<uint8_t>(settings_.traffic_class);
  to.dlid = peer.lid;
  to.sl = static_cast<uint8_t>(settings_.service_level);
  to.is_global = address_.infiniband == 0;
  to.port = static_cast<uint8_t>(port_.port);
  Status status = Modify(&attributes, ibv::kStateReadyToReceive,
                         ibv::kSetAddress | ibv::kSetPathMtu | ibv::kSetRemoteQp | ibv::kSetReceivePsn |
                             ibv::kSetMaxDestRdAtomic | ibv::kSetMinRnrTimer,
                         "RTR");
  if (!status.ok()) return status;
  attributes = {};
  attributes.send_psn = address_.psn;
  attributes.timeout = static_cast<uint8_t>(settings_.timeout);
  attributes.retry_count = static_cast<uint8_t>(settings_.retries);
  attributes.rnr_retry = kRnrRetries;
  return Modify(&attributes, ibv::kStateReadyToSend,
                ibv::kSetTimeout | ibv::kSetRetryCount | ibv::kSetRnrRetry | ibv::kSetSendPsn | ibv::kSetMaxRdAtomic,
                "RTS");
}

// A queue pair in ERR drops whatever still comes; one that is destroyed has no request left that reads memory, either.
// Where a device does neither, it loses its hold on the program's memory.
Status VerbsQueue::Fence() {
  if (qp_ == nullptr) return {};
  ibv::QpAttr attributes{};
  Status status = Modify(&attributes, ibv::kStateError, 0, "ERR");
  device_->Forget(qp_);
  if (library_.destroy_qp(qp_) != 0) {
    return shape_.writes > 0 ? device_->memory_->Revoke(device_->pd_) : status;
  }
  qp_ = nullptr;
  return {};
}

VerbsQueue::~VerbsQueue() {
  (void)Fence();
  if (cq_ != nullptr) {
    TakeEvents();  // the library waits for those that were not taken
    library_.destroy_cq(cq_);
  }
  if (channel_ != nullptr) library_.destroy_comp_channel(channel_);
  bool given_back = region_ == nullptr || library_.dereg_mr(region_) == 0;
  // What a device may still write to is nobody else's.
  if (memory_ != nullptr && given_back) munmap(memory_, bytes());
}

Status VerbsQueue::PostSend(uint64_t id, uint32_t slot, uint32_t bytes) {
  ibv::Sge part{reinterpret_cast<uint64_t>(send_slot(slot)), bytes, region_->lkey};
  ibv::SendRequest request{};
  request.id = id;
  request.parts = &part;
  request.opcode = ibv::kOpSend;
  return Post(&request);
}

Status VerbsQueue::PostWrite(uint64_t id, const char* data, uint32_t bytes, uint32_t local_key, uint64_t address,
                             uint32_t remote_key) {
  ibv::Sge part{reinterpret_cast<uint64_t>(data), bytes, local_key};
  ibv::SendRequest request{};
  request.id = id;
  request.parts = &part;
  request.opcode = ibv::kOpWrite;
  request.remote_address = address;
  request.remote_key = remote_key;
  return Post(&request);
}

bool VerbsQueue::Find(const char* data, size_t bytes, RcKeys* keys) {
  if (device_->memory_ == nullptr) return false;
  std::string why_not;
  bool found = device_->memory_->Find(library_, device_->pd_, data, bytes, keys, &why_not);
  if (!why_not.empty()) device_->log_->Add("rdma_copies", "", "", device_->name_ + why_not);
  return found;
}

Status VerbsQueue::Post(ibv::SendRequest* request) {
  if (qp_ == nullptr) return {Code::kPeerLost, device_->name_ + ": the queue pair was fenced"};
  request->part_count = 1;
  request->flags = ibv::kSignaled;
  ibv::SendRequest* refused = nullptr;
  int error = device_->context_->ops.post_send(qp_, request, &refused);
  if (error == 0) return {};
  return {Code::kSystem, device_->name_ + ": ibv_post_send: " + std::strerror(std::abs(error))};
}

Status VerbsQueue::PostReceive(uint64_t id, uint32_t slot) {
  if (qp_ == nullptr) return {Code::kPeerLost, device_->name_ + ": the queue pair was fenced"};
  ibv::Sge part{reinterpret_cast<uint64_t>(receive_slot(slot)), shape_.receive_bytes, region_->lkey};
  ibv::ReceiveRequest request{id, nullptr, &part, 1};
  ibv::ReceiveRequest* refused = nullptr;
  int error = device_->context_->ops.post_receive(qp_, &request, &refused);
  if (error == 0) return {};
  return {Code::kSystem, device_->name_ + ": ibv_post_recv: " + std::strerror(std::abs(error))};
}

Status VerbsQueue::Poll(std::vector<RcDone>* done) {
  ibv::Completion found[kCompletionBatch];
  int count = kCompletionBatch;
  while (count == kCompletionBatch) {
    count = device_->context_->ops.poll_cq(cq_, kCompletionBatch, found);
    if (count < 0) return {Code::kSystem, device_->name_ + ": ibv_poll_cq failed"};
    for (int i = 0; i < count; ++i) {
      const ibv::Completion& one = found[i];
      done->push_back({one.id, one.status == 0 ? "" : library_.wc_status_str(one.status), one.bytes});
    }
  }
  return {};
}

void VerbsQueue::TakeEvents() {
  ibv::Cq* cq = nullptr;
  void* context = nullptr;
  unsigned count = 0;
  while (library_.get_cq_event(channel_, &cq, &context) == 0) ++count;
  if (count > 0) library_.ack_cq_events(cq_, count);
}

void RdmaMemory::Add(const char* data, size_t bytes) {
  MutexLock lock(mutex_);
  ranges_.Add(data, bytes);
}

void RdmaMemory::Drop(const char* data, size_t bytes) {
  MutexLock lock(mutex_);
  auto known = ranges_.Drop(data, bytes);
  if (!known) return;
  for (const auto& [pd, region] : known->regions) {
    if (region != nullptr) (void)known->give_back(region);
  }
}

bool RdmaMemory::Find(const ibv::Library& library, ibv::Pd* pd, const char* data, size_t bytes, RcKeys* keys,
                      std::string* why_not) {
  MutexLock lock(mutex_);
  auto range = ranges_.Find(data, bytes);
  if (!range) return false;
  range->known->give_back = library.dereg_mr;
  auto [entry, is_new] = range->known->regions.try_emplace(pd, nullptr);
  if (is_new) {
    entry->second = library.reg_mr(pd, const_cast<char*>(range->data), range->bytes, kLocalWrite | kRemoteWrite);
    if (entry->second == nullptr) {
      *why_not = " cannot register " + std::to_string(range->bytes / 1024) +
                 " KiB of the program's memory, which are " + "copied: " + std::strerror(errno) +
                 "; the limit for locked memory is " + LockedLimit() +
                 " (`ulimit -l unlimited`, or LimitMEMLOCK=infinity of the service)";
    }
  }
  if (entry->second == nullptr) return false;
  *keys = {entry->second->lkey, entry->second->rkey};
  return true;
}

Status RdmaMemory::Revoke(const ibv::Pd* pd) {
  MutexLock lock(mutex_);
  int failed = 0;
  ranges_.ForEach([&](Known* known) {
    auto entry = known->regions.extract(pd);
    if (!entry.empty() && entry.mapped() != nullptr && known->give_back(entry.mapped()) != 0) ++failed;
  });
  if (failed == 0) return {};
  return {Code::kSystem, "a device gives " + std::to_string(failed) + " registrations of memory not back"};
}

RdmaDevice::~RdmaDevice() {
  Unwatch();
  if (memory_ != nullptr && pd_ != nullptr) (void)memory_->Revoke(pd_);
  if (pd_ != nullptr) library_.dealloc_pd(pd_);
  if (context_ != nullptr) library_.close_device(context_);
}

Status RdmaDevice::Open(EventLoop* loop, EventLog* log) {
  int count = 0;
  ibv::Device** devices = library_.get_device_list(&count);
  if (devices == nullptr) return {Code::kSystem, Error("the list of RDMA devices")};
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
  if (pd_ == nullptr) return {Code::kSystem, Error(name_ + ": no protection domain")};
  Status status = SetNonBlocking(context_->async_fd);
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

void Rdma::Unwatch() {
  MutexLock lock(mutex_);
  for (auto& [name, device] : devices_) device->Unwatch();
}

Status Rdma::DeviceOf(const std::string& name, std::shared_ptr<RdmaDevice>* device) {
  std::shared_ptr<RdmaDevice>& known = devices_[name];
  if (known != nullptr && known->is_gone()) {
    known->Unwatch();
    known.reset();  // it ends with its last queue
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

Status Rdma::Make(const Nic& nic, const RcShape& shape, uint32_t psn, std::weak_ptr<RcWatcher> watcher,
                  std::unique_ptr<RcQueue>* queue) {
  RcPort port;
  std::shared_ptr<RdmaDevice> device;
  {
    MutexLock lock(mutex_);
    auto known = ports_.find(nic.address.s_addr);
    if (known == ports_.end() || !StillThere(kSysfs, known->second)) {
      Status status = FindPort(kSysfs, nic, settings_, &port);
      if (!status.ok()) return status;
      ports_[nic.address.s_addr] = port;
    }
    port = ports_[nic.address.s_addr];
    Status status = DeviceOf(port.device, &device);
    if (!status.ok()) return status;
  }
  return device->MakeQueue(port, settings_, shape, psn, std::move(watcher), queue);
}

}  // namespace r2ccl
