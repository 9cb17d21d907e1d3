// VerbsQueue: one queue pair of a device, with a completion queue, a channel and a memory region of its own.
#ifndef R2CCL_WIRE_VERBS_VERBS_QUEUE_H_
#define R2CCL_WIRE_VERBS_VERBS_QUEUE_H_

#include <memory>
#include <string>
#include <vector>

#include "wire/verbs/device.h"
#include "wire/verbs/ibverbs.h"
#include "wire/verbs/rc_queue.h"

namespace r2ccl {

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
  Status PostWrite(uint64_t id, uint64_t from, uint32_t bytes, uint32_t local_key, uint64_t address,
                   uint32_t remote_key) override;
  // One byte from there into the first slot. REQUIRES: a shape with reads.
  Status PostRead(uint64_t id, uint64_t address, uint32_t remote_key);
  void Granted(const char* data, size_t bytes) override { granted_ = {data, bytes}; }
  void Landed() override;
  Status Poll(std::vector<RcDone>* done) override;
  int fd() const override { return channel_->fd; }
  void Arm() override { device_->context_->ops.request_notification(cq_, 0); }
  void TakeEvents() override;

 private:
  size_t bytes() const {
    return size_t{shape_.send_slots} * shape_.send_bytes + size_t{shape_.receive_slots} * shape_.receive_bytes;
  }
  uint32_t requests() const { return shape_.send_slots + shape_.writes + shape_.reads; }
  Status Register();
  Status PostOneSided(uint32_t opcode, uint64_t id, ibv::Sge part, uint64_t address, uint32_t remote_key);
  Status Post(ibv::SendRequest* request);
  Status Modify(ibv::QpAttr* attributes, uint32_t state, int what, const char* name);

  struct Place {
    const char* data = nullptr;
    size_t bytes = 0;
  };

  const std::shared_ptr<RdmaDevice> device_;
  const ibv::Library& library_;
  const RcPort port_;
  const VerbsSettings settings_;
  const RcShape shape_;
  RcAddress address_;
  Place granted_;  // in another device's memory, where what is written has to be flushed
  char* memory_ = nullptr;
  ibv::Mr* region_ = nullptr;
  ibv::Channel* channel_ = nullptr;
  ibv::Cq* cq_ = nullptr;
  ibv::Qp* qp_ = nullptr;
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_VERBS_QUEUE_H_
