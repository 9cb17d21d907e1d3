// Process: one rank on a simulated host, with the shipped connections and their locator, witness, drain meter and
// ticks, as Net has them for TCP. Also the host's kernel below it, which answers for the process as long as the host
// lives.
#ifndef R2CCL_WIRE_SIMULATED_PROCESS_H_
#define R2CCL_WIRE_SIMULATED_PROCESS_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "failover/comm.h"
#include "failover/drain_meter.h"
#include "failover/locator.h"
#include "failover/recv_comm.h"
#include "failover/send_comm.h"
#include "failover/witness.h"
#include "net/asker.h"
#include "net/poller.h"
#include "plugin/connections.h"
#include "wire/simulated/rdma_device.h"
#include "wire/simulated/socket.h"
#include "wire/simulated/world.h"
#include "wire/verbs/verbs_stream.h"

namespace r2ccl::simulated {

class Process;

// A stream over a Socket.
class SocketStream;

class SimulatedWire final : public Wire {
 public:
  explicit SimulatedWire(Process* process) : process_(process) {}
  Status Dial(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic, NicTraffic* traffic, in_addr remote,
              uint16_t port, std::shared_ptr<Stream>* stream) override;
  std::shared_ptr<Stream> Adopt(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic,
                                NicTraffic* traffic, std::shared_ptr<Socket> socket, in_addr remote);
  void Kick(std::shared_ptr<Kickable> target) override;

 private:
  std::shared_ptr<Stream> Make(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic, NicTraffic* traffic,
                               std::shared_ptr<Socket> socket, in_addr remote, bool dialled);

  Process* const process_;
};

// What a process has watched: descriptors of queue pairs.
class SimulatedLoop final : public EventLoop {
 public:
  explicit SimulatedLoop(Process* process) : process_(process) {}
  uint64_t Add(int fd, uint32_t events, int tag, std::shared_ptr<Pollable> target) override;
  void Modify(uint64_t id, uint32_t events) override;
  void Remove(uint64_t id) override;
  void Kick(std::shared_ptr<Kickable> target) override;
  // That descriptor has something to tell.
  void OnReadable(int fd);
  void Clear();

 private:
  struct Watched {
    int fd;
    uint32_t events;
    int tag;
    std::shared_ptr<Pollable> target;
    bool due = false;  // it will be called
  };
  void CallSoon(uint64_t id);

  Process* const process_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Watched> watched_;
};

class Process final : public Receiver, public Asker, private plugin::Carrier {
 public:
  static constexpr uint16_t kPort = 4711;
  static constexpr int64_t kTickNs = 5 * kMillisecond;

  // `program_polls`: as Environment's. Its NICs are all of the host's.
  Process(World* world, int host, const Params& params, bool program_polls);
  ~Process() override;

  Environment& environment() override { return environment_; }
  // Where it listens from the beginning.
  Handle handle() const { return HandleOf(*listening_[0]); }
  std::shared_ptr<SendComm> Connect(uint64_t connection, const Handle& to, int home = kNoHome);
  // The connections that came there, in their order.
  std::deque<std::shared_ptr<RecvComm>>& arrived() { return listening_[0]->arrived; }
  // As NCCL's plugin has them.
  plugin::Connections& connections() { return connections_; }
  // Called soon after anything may have changed for the program.
  void SetProgram(std::function<void()> program) { program_ = std::move(program); }
  void RunProgramSoon();
  // The same for a reason of its own, such as a time that it waited for.
  void WakeProgram() {
    look_ns_ = 0;
    RunProgramSoon();
  }

  // The scheduler takes the process from the processor, and gives it back.
  void Pause();
  void Resume();
  // The process ends without a word of its own; its kernel closes its sockets.
  void Kill();
  // The host loses its power: nothing answers any more.
  void PowerOff();
  bool runs() const { return alive_ && !paused_; }
  bool is_alive() const { return alive_; }
  // Of the questions that it asked outside streams, and of its answers to such.
  uint64_t question_bytes() const { return question_bytes_; }

  // Soon on the process' own time: after a wake-up, and after a pause.
  template <typename What>
  void Soon(What what) {
    world_->After(WakeNs(), [this, exists = std::weak_ptr(exists_), what = std::move(what)]() mutable {
      if (exists.expired() || !alive_) return;
      if (paused_ || !put_off_.empty()) {  // in the order in which they came, as a kernel keeps them
        put_off_.push_back(std::move(what));
        return;
      }
      what();
      LookSoon();
    });
  }
  // Those that the program holds, or that nobody has closed.
  size_t sockets() const;
  // Whether nothing of its connections is left, in it or in its kernel, be it what its peers have to tell.
  bool has_nothing() const;
  // Whether a stream is about to read from, or to write into, these bytes.
  bool Touches(const char* data, size_t bytes) const;
  std::vector<SocketStream*>& streams() { return streams_; }

  // Its RDMA; nullptr: TCP is all there is.
  RdmaDevice* rdma() { return rdma_.get(); }
  // The RDMA device of that NIC fails, and is well again.
  void SetRdmaGone(int rail, bool gone);

  void Take(const Packet& packet, int nic) override;
  void OnLink(int nic, bool running) override;
  void Ask(Question question, OnAnswer on_answer) override;

 private:
  friend class SimulatedWire;
  friend class SimulatedLoop;
  struct Guest;
  // Who waits for connections by a secret of his own.
  struct Listening {
    Secret secret{};
    bool closed = false;
    std::deque<std::shared_ptr<RecvComm>> arrived;
  };
  class ListeningArrivals;
  struct Asked {
    Question question;
    OnAnswer on_answer;
    int64_t deadline_ns = 0;
    int64_t next_attempt_ns = 0;
    int attempts_left = 3;
  };

  Status Listen(int stripes, std::unique_ptr<plugin::Arrivals>* arrivals) override;
  Status MakeUpConnection(uint64_t* connection) override;
  Status ConnectAs(uint64_t connection, const Handle& handle, int home, std::shared_ptr<SendComm>* comm) override;
  std::shared_ptr<Listening> ListenAnew();
  Handle HandleOf(const Listening& listening) const;
  int64_t WakeNs();
  void LookSoon();
  void Look();
  std::shared_ptr<Socket> MakeSocket(int rail, uint64_t number, in_addr_t remote);
  void LoseQueues(int rail, const std::string& reason);
  void ForgetAll();
  void Tick();
  int64_t TickAll();
  void TickQuestions(int64_t now_ns);
  void Settle(uint64_t number, Answer answer, const std::string& said);
  void AnswerQuestion(const Packet& packet, int nic);
  void Refuse(const Packet& packet, int nic);
  void ReadGuest(Guest* guest);
  void Admit(Guest* guest, const uint8_t* greeting);
  std::vector<Third> ThirdsOn(int nic);

  World* const world_;
  const int host_;
  std::vector<SocketStream*> streams_;  // that exist
  Environment environment_;
  SimulatedWire wire_{this};
  SimulatedLoop loop_{this};
  std::unique_ptr<RdmaDevice> rdma_;
  VerbsShared verbs_;
  std::vector<std::weak_ptr<VerbsStream>> verbs_streams_;
  std::unique_ptr<Locator> locator_;
  std::unique_ptr<Witness> witness_;
  std::unique_ptr<DrainMeter> drain_meter_;
  bool alive_ = true;
  bool powered_ = true;
  bool paused_ = false;
  bool program_due_ = false;
  uint64_t seen_ = 0;    // of what the notifier told
  int64_t look_ns_ = 0;  // when a program that waits looks in any case
  std::vector<Task> put_off_;
  std::function<void()> program_;
  std::map<uint64_t, std::shared_ptr<Socket>> sockets_;
  std::map<uint64_t, std::unique_ptr<Guest>> guests_;
  std::map<uint64_t, std::shared_ptr<RecvComm>> receivers_;
  std::map<uint64_t, std::shared_ptr<SendComm>> senders_;
  std::vector<std::shared_ptr<Comm>> ticked_;  // while they are, as a tick may bring others
  std::vector<std::shared_ptr<Listening>> listening_;
  plugin::Connections connections_{this};
  std::map<uint64_t, Asked> asked_;
  uint64_t question_bytes_ = 0;
  std::shared_ptr<bool> exists_ = std::make_shared<bool>(true);  // for what the world still has of it
};

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_PROCESS_H_
