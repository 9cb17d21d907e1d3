// Engine: transfers from memory to memory between two processes, over all NICs and despite their failures.
//
// A program registers memory, tells others its address and keys, and writes into their memory or reads from it. Nothing
// blocks but Deregister and Close. Thread-safe.
//
// The thread of a NIC that has brought a message takes it to the end and answers: to wake another thread for it would
// take longer. Where much is under way, or the lock is taken, a thread of the engine's own does the work, beside the
// NICs'.
#ifndef R2CCL_TRANSFER_ENGINE_H_
#define R2CCL_TRANSFER_ENGINE_H_

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "transfer/message.h"
#include "transfer/peer.h"
#include "transfer/transfer.h"
#include "transport/net.h"

namespace r2ccl::transfer {

constexpr double kDrainS = 1.0;  // how long a peer's last messages are still accepted

class Engine {
 public:
  // `maker` makes the queue pairs instead of this host's RDMA devices, and outlives the engine.
  static Status Create(const std::string& name, const Params& params, std::vector<Nic> nics,
                       std::shared_ptr<Engine>* engine, RcMaker* maker = nullptr);
  ~Engine() { Close(); }

  // What another engine's Connect needs. Anyone who has it may connect.
  const std::string& address() const { return shared_.address; }

  // `data` must stay valid until Deregister. Anyone with the key and a connection may write and read it.
  Status Register(void* data, uint64_t bytes, uint64_t* key);
  // No new piece touches it from now on, and transfers that still need it fail at both ends. Returns when nothing
  // touches it any more; after `timeout_s` the connections that still do are closed, so it always returns.
  Status Deregister(uint64_t key, double timeout_s);

  // Starts to connect; free if there is a connection. Operations started meanwhile wait for it.
  Status Connect(const std::string& address, EngineId* peer);
  // Whether both directions are connected; the reason if the peer was lost.
  Status Ready(const EngineId& peer, bool* ready);
  // Ends every transfer with it.
  void Disconnect(const EngineId& peer);

  // A `notification`, unless nullptr, reaches the peer's program after the last byte has arrived: in memory there for a
  // write, here for a read. Errors: a range that is not wholly within a region of ours, or a lost peer.
  Status Begin(const EngineId& peer, Direction direction, const std::vector<Range>& ranges,
               const std::string* notification, std::shared_ptr<Transfer>* transfer);
  // Its state. While it is pending, the caller's thread does what there is to do, if no other is doing it: the engine's
  // need not wake.
  Transfer::State Look(const Transfer& transfer);
  // Sends nothing more. The transfer stays pending until its memory is quiet.
  void Cancel(Transfer& transfer);
  Status Notify(const EngineId& peer, const std::string& text);
  std::deque<Notification> TakeNotifications();

  // Moves on when something has happened that a program may wait for.
  Notifier& notifier() { return news_; }
  Net& net() { return *outer_; }

  // Waits at most `drain_s` until peers have received the messages sent to them before: ends of their writes,
  // notifications. Then closes every connection: transfers fail, and memory is quiet. Returns how many messages living
  // peers have not received. Idempotent.
  uint64_t Close(double drain_s = kDrainS);

 private:
  // A connection that has not identified itself yet.
  struct Guest {
    std::shared_ptr<RecvComm> comm;
    std::unique_ptr<char[]> bytes;
    Request* request = nullptr;
    bool inner = false;
  };

  Engine() = default;
  Status Start(const std::string& name, const Params& params, std::vector<Nic> nics, RcMaker* maker);
  uint64_t Drain(double drain_s);
  void Run();
  int64_t OnTurn();
  // Whether a transfer has begun or ended, and little is under way.
  bool PumpAll() REQUIRES(mutex_);
  void NoteBegin() REQUIRES(mutex_);
  int64_t SpinNs() const;
  void PumpNow(Peer& peer, bool reads = false) REQUIRES(mutex_);
  bool PumpSafely(Peer& peer, bool reads) REQUIRES(mutex_);
  void LookAtGuests() REQUIRES(mutex_);
  void TakeGuests(Listener& listener, bool inner) REQUIRES(mutex_);
  void Admit(Guest& guest, uint64_t size) REQUIRES(mutex_);
  std::shared_ptr<Peer> NewPeer(const Address& address) REQUIRES(mutex_);
  Status Dial(Peer& peer) REQUIRES(mutex_);
  bool Together(const Address& address) const REQUIRES(mutex_);
  Status Find(const EngineId& id, std::shared_ptr<Peer>* peer) REQUIRES(mutex_);

  Notifier news_;
  Notifier alarm_;                         // what the engine's thread waits for
  std::atomic<bool> started_{false};       // before, nothing but Start uses what follows
  std::atomic<uint64_t> looked_{0};        // the transport's count of events when everything was last looked at
  std::atomic<bool> has_own_turn_{false};  // too much is under way for the threads of NICs
  std::atomic<bool> missed_{false};        // a NIC's thread found the lock taken
  std::atomic<bool> looking_{false};       // by who will see that
  std::shared_ptr<Net> outer_;
  std::shared_ptr<Net> inner_;  // loopback; nullptr if that is the only interface
  std::shared_ptr<Listener> outer_listener_;
  std::shared_ptr<Listener> inner_listener_;
  Mutex mutex_;  // taken before the transport's
  Address own_;
  Shared shared_;  // the address without the mutex
  std::map<EngineId, std::shared_ptr<Peer>> peers_ GUARDED_BY(mutex_);
  std::deque<Guest> guests_ GUARDED_BY(mutex_);
  int64_t begun_ns_ GUARDED_BY(mutex_) = 0;   // when a transfer was last begun, here or by a peer
  bool in_a_row_ GUARDED_BY(mutex_) = false;  // it followed the one before within R2CC_TRANSFER_SPIN_US
  bool closing_ GUARDED_BY(mutex_) = false;   // nothing new is started
  bool closed_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace r2ccl::transfer

#endif  // R2CCL_TRANSFER_ENGINE_H_
