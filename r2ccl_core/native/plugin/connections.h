// Connections: what is behind NCCL's calls in one process, without its ABI: groups of stripes that listen, connect and
// are accepted, asked for again and again. It stands on a Carrier, which is the process's Net, or a simulated process.
//
// Thread-safe but for what belongs to one group or listener, which one thread uses, as NCCL does.
#ifndef R2CCL_PLUGIN_CONNECTIONS_H_
#define R2CCL_PLUGIN_CONNECTIONS_H_

#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "failover/recv_comm.h"
#include "failover/send_comm.h"
#include "net/handle.h"
#include "plugin/stripes.h"

namespace r2ccl::plugin {

using SendGroup = SendStripes<SendComm>;
using RecvGroup = RecvStripes<RecvComm>;

// Connections that come by one handle.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  virtual Handle handle() const = 0;
  // The next one, or nullptr when none has come yet.
  virtual std::shared_ptr<RecvComm> Accept() = 0;
  // No new ones from now on.
  virtual void Close() = 0;
};

// What makes connections; outlives them.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual Environment& environment() = 0;
  virtual Status Listen(int stripes, std::unique_ptr<Arrivals>* arrivals) = 0;
  // A number that nobody else has and nobody can guess.
  virtual Status MakeUpConnection(uint64_t* connection) = 0;
  virtual Status ConnectAs(uint64_t connection, const Handle& handle, int home, std::shared_ptr<SendComm>* comm) = 0;
};

struct ListenComm {
  std::unique_ptr<Arrivals> arrivals;
  StripeCollector<RecvComm> collector;
};

class Connections {
 public:
  explicit Connections(Carrier* carrier) : carrier_(carrier) {}

  // Writes kHandleBytes to `handle`.
  Status Listen(char* handle, std::unique_ptr<ListenComm>* made);
  // Called again with the same handle until there is a group, which has `device` for its home.
  Status Connect(int device, char* handle, std::unique_ptr<SendGroup>* made);
  // nullptr while none is whole.
  static std::unique_ptr<RecvGroup> Accept(ListenComm* waiting);
  void CloseListen(std::unique_ptr<ListenComm> waiting);
  // NCCL asks for a connection until it is there. When it is aborted it stops, and tells nobody: attempts that were not
  // asked about for so long are given up.
  void DropAbandoned(int64_t for_ns);

 private:
  // A connection that NCCL has asked for and not got yet.
  struct Attempt {
    std::unique_ptr<SendGroup> group;
    int64_t asked_ns;  // last
  };
  int64_t PatienceNs() const;
  int64_t Now() const { return carrier_->environment().clock->Now(); }
  Status Begin(const char* handle, int home, std::unique_ptr<SendGroup>* made);
  Status NameAttempt(uint64_t* attempt);
  std::unique_ptr<SendGroup> TakeAttempt(uint64_t attempt);
  void KeepAttempt(uint64_t attempt, std::unique_ptr<SendGroup> group);

  Carrier* const carrier_;
  Mutex mutex_;
  // By numbers that never come again, as the address of a group would. The first one is random: what a handle brings
  // along is believed only if it is a number in here, which a damaged handle must not hit by chance.
  std::map<uint64_t, Attempt> connecting_ GUARDED_BY(mutex_);
  uint64_t last_attempt_ GUARDED_BY(mutex_) = 0;
};

}  // namespace r2ccl::plugin

#endif  // R2CCL_PLUGIN_CONNECTIONS_H_
