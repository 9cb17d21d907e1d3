// FlowProgram: both ends of one flow of messages, over a connection of ours or over one of NCCL's, which is made and
// used as NCCL does it (plugin/connections.h).
#ifndef R2CCL_WIRE_SIMULATED_FLOW_PROGRAM_H_
#define R2CCL_WIRE_SIMULATED_FLOW_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "wire/simulated/explore.h"
#include "wire/simulated/program.h"
#include "wire/simulated/world.h"

namespace r2ccl::simulated {

// The sending end as its program has it.
class SendEnd {
 public:
  virtual ~SendEnd() = default;
  virtual Status Ready(bool* ready) = 0;
  // Without a request: later again.
  virtual Status Isend(const void* data, uint64_t size, Request** request) = 0;
  virtual Status failure() const = 0;
  virtual void Close() = 0;
  virtual void AddHealth(std::vector<NicHealth>* health) const = 0;
};

// The receiving end.
class RecvEnd {
 public:
  virtual ~RecvEnd() = default;
  // Whether the connection has come.
  virtual bool Ready() = 0;
  virtual bool Take(const std::shared_ptr<RecvComm>& comm) = 0;
  virtual Status Irecv(void* data, uint64_t capacity, Request** request, bool watched) = 0;
  virtual Status failure() const = 0;
  virtual void Close() = 0;
  virtual void AddHealth(std::vector<NicHealth>* health) const = 0;
};

class FlowProgram final : public Program {
 public:
  FlowProgram(const Scenario& scenario, size_t number, World* world, Process* from, Process* to);
  ~FlowProgram() override;

  void Run(int host) override;
  bool Take(int host, const std::shared_ptr<RecvComm>& comm) override {
    return host == flow_.to && receiver_->Take(comm);
  }
  bool IsOver() const override;
  std::string CheckEnd(const std::vector<bool>& doomed) const override;
  void AddHealth(std::vector<NicHealth>* health) const override;
  void CheckNoneWaits() override;
  void Close() override;
  void CheckKept() override;
  int Extend() override;
  uint64_t received() const override { return received_; }

 private:
  struct Pending {
    Buffer data;
    Request* request = nullptr;
    size_t message = 0;
  };

  void RunSender();
  void RunReceiver();
  bool all_sent() const { return sent_ == flow_.sizes.size(); }
  bool all_received() const { return received_ == flow_.sizes.size(); }
  std::string State() const;
  void Keep(Buffer data);
  void CheckArrived(const Pending& send);
  void Leave();
  bool Send(bool* later);
  bool Receive(bool* later);
  void CheckReceived(const Buffer& data, uint64_t size);
  void EndSender();
  void EndSends();
  void EndReceiver();

  const Params& params_;
  const uint64_t seed_;
  const bool has_troubles_;
  Flow flow_;
  const size_t number_;
  World* const world_;
  Process* const from_;
  Process* const to_;
  std::unique_ptr<SendEnd> sender_;
  std::unique_ptr<RecvEnd> receiver_;
  bool received_any_ = false;  // the connection has come
  size_t next_send_ = 0, sent_ = 0, next_receive_ = 0, received_ = 0;
  int64_t next_send_ns_ = 0, next_receive_ns_ = 0;
  std::vector<Pending> sends_;
  std::deque<Pending> receives_;
  std::optional<Buffer> unsent_, unposted_;  // of the next of each, which the connection could not take
  std::vector<Buffer> kept_;
  std::set<size_t> arrived_before_;  // the receiver closed, but were not asked about
  bool send_ended_ = false, receive_ended_ = false, has_left_ = false;
};

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_FLOW_PROGRAM_H_
