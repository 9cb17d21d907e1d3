// Queue pairs through libibverbs.
#include "wire/verbs/verbs_queue.h"

#include <sys/mman.h>

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

}  // namespace

Status VerbsQueue::Register() {
  // Pages of its own, which a child that the process forks does not get: the device goes on writing to the parent's.
  void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {Code::kSystem, ibv::Error("memory for RDMA")};
  memory_ = static_cast<char*>(memory);
  madvise(memory_, bytes(), MADV_DONTFORK);
  region_ = library_.reg_mr(device_->pd_, memory_, bytes(), ibv::kLocalWrite);
  if (region_ != nullptr) return {};
  std::string error = ibv::Error(device_->name_ + " cannot register " + std::to_string(bytes() / 1024) + " KiB");
  if (errno != ENOMEM && errno != EPERM) return {Code::kSystem, error};
  return {Code::kSystem, error + "; the limit for locked memory is " + ibv::LockedLimit() +
                             ": raise it (`ulimit -l unlimited`, or LimitMEMLOCK=infinity of the service)"};
}

Status VerbsQueue::Create(uint32_t psn) {
  ibv::PortAttr port{};
  if (library_.query_port(device_->context_, static_cast<uint8_t>(port_.port), &port) != 0) {
    return {Code::kSystem, ibv::Error(device_->name_ + " does not tell the state of its port")};
  }
  std::string name = device_->name_ + " port " + std::to_string(port_.port);
  Status status = Register();
  if (!status.ok()) return status;
  channel_ = library_.create_comp_channel(device_->context_);
  if (channel_ == nullptr) return {Code::kSystem, ibv::Error(name + ": no completion channel")};
  status = ibv::SetNonBlocking(channel_->fd);
  if (!status.ok()) return status;
  auto entries = static_cast<int>(requests() + shape_.receive_slots);
  cq_ = library_.create_cq(device_->context_, entries, nullptr, channel_, 0);
  if (cq_ == nullptr) return {Code::kSystem, ibv::Error(name + ": no completion queue")};
  ibv::QpInitAttr init{};
  init.send_cq = init.receive_cq = cq_;
  init.cap = {requests(), shape_.receive_slots, 1, 1, 0};
  init.type = ibv::kQpTypeRc;
  qp_ = library_.create_qp(device_->pd_, &init);
  if (qp_ == nullptr) return {Code::kSystem, ibv::Error(name + ": no queue pair")};
  if (port.state != ibv::kPortActive) return {Code::kPeerLost, name + " is not active; see `rdma link`"};
  ibv::QpAttr attributes{};
  attributes.port = static_cast<uint8_t>(port_.port);
  attributes.pkey_index = static_cast<uint16_t>(settings_.pkey_index);
  attributes.access_flags = (shape_.writes > 0 ? ibv::kRemoteWrite : 0) | (shape_.reads > 0 ? ibv::kRemoteRead : 0);
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
  attributes.max_dest_rd_atomic = shape_.reads > 0;
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
  attributes.max_rd_atomic = shape_.reads > 0;
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
    status = shape_.writes > 0 ? device_->memory_->Revoke(device_->pd_) : status;
  } else {
    qp_ = nullptr;
    status = {};
  }
  Landed();  // some of it may be
  return status;
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

Status VerbsQueue::PostWrite(uint64_t id, uint64_t from, uint32_t bytes, uint32_t local_key, uint64_t address,
                             uint32_t remote_key) {
  return PostOneSided(ibv::kOpWrite, id, {from, bytes, local_key}, address, remote_key);
}

Status VerbsQueue::PostRead(uint64_t id, uint64_t address, uint32_t remote_key) {
  ibv::Sge part{reinterpret_cast<uint64_t>(send_slot(0)), 1, region_->lkey};
  return PostOneSided(ibv::kOpRead, id, part, address, remote_key);
}

Status VerbsQueue::PostOneSided(uint32_t opcode, uint64_t id, ibv::Sge part, uint64_t address, uint32_t remote_key) {
  ibv::SendRequest request{};
  request.id = id;
  request.parts = &part;
  request.opcode = opcode;
  request.remote_address = address;
  request.remote_key = remote_key;
  return Post(&request);
}

void VerbsQueue::Landed() {
  Place place = std::exchange(granted_, {});
  if (place.data != nullptr) device_->memory_->NoteWritten(device_->pd_, device_, port_, place.data, place.bytes);
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

}  // namespace r2ccl
