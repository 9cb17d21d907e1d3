// Net: the transport of one process, with the interface that NCCL's net plugin needs.
//
// listen, connect, accept, isend, irecv, test, close: none of them blocks. One listening socket serves every listener;
// the HELLO of a stream names its listener, by the listener's secret. Thread-safe. Destroy it after every Comm and
// Listener was closed.
#ifndef R2CCL_TRANSPORT_NET_H_
#define R2CCL_TRANSPORT_NET_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory_registry.h"
#include "base/mutex.h"
#include "failover/comm.h"
#include "failover/drain_meter.h"
#include "failover/recv_comm.h"
#include "failover/send_comm.h"
#include "net/handle.h"
#include "net/link_monitor.h"
#include "net/poller.h"
#include "net/prober.h"
#include "transport/report_file.h"
#include "transport/strangers.h"
#include "wire/tcp/tcp_stream.h"
#include "wire/verbs/device.h"
#include "wire/verbs/verbs_stream.h"

namespace r2ccl {

// A waiting receiver. Each connection that arrives becomes one RecvComm.
class Listener {
 public:
  const Handle& handle() const { return handle_; }
  // The next connection, or nullptr when none has come yet.
  std::shared_ptr<RecvComm> Accept();

 private:
  friend class Net;
  Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
  Handle handle_;
  struct Connection {
    std::weak_ptr<RecvComm> comm;
    TcpWire* wire;
  };
  std::map<uint64_t, Connection> connections_ GUARDED_BY(mutex_);  // by connection id, for paths that come (back) later
  std::deque<std::shared_ptr<RecvComm>> arrived_ GUARDED_BY(mutex_);
};

class Net : private Pollable, public MemoryRegistry {
 public:
  // Who waits for what happens in `beside` is woken by what happens here, too. `maker` makes the queue pairs instead of
  // this host's RDMA devices, and outlives the Net. `on_turn` is called by each I/O thread, with no lock held, before
  // it sleeps, and says how many ns it shall look for more instead; the first calls may come before this returns.
  static Status Create(const Params& params, std::vector<Nic> nics, std::shared_ptr<Net>* net,
                       const Net* beside = nullptr, RcMaker* maker = nullptr,
                       std::function<int64_t()> on_turn = nullptr);
  ~Net() override;

  // Senders are told to make `stripes` connections each, numbered one after another (see plugin/stripes.h).
  Status Listen(std::shared_ptr<Listener>* listener, int stripes = 1);
  // Paths of connections accepted from `listener` keep coming back after a failure until it is closed and the
  // connections are gone; closing it only ends the arrival of new connections.
  void CloseListener(const std::shared_ptr<Listener>& listener);
  // `home` is the NIC (an index) that the connection uses while it is well, such as the one nearest to a GPU;
  // kNoHome spreads every message over all NICs.
  Status Connect(const Handle& handle, std::shared_ptr<SendComm>* comm, int home = kNoHome);
  // The same by a number that was made up before, which nobody else has and nobody can guess.
  Status ConnectAs(uint64_t connection, const Handle& handle, std::shared_ptr<SendComm>* comm, int home);
  static Status MakeUpConnection(uint64_t* connection);

  // Closes every connection, and waits for what they still have to deliver: what was done because it was copied, for a
  // second at most. For a process that ends in good order: its threads still run then, and do not after it.
  void CloseConnections();
  // The same, and joins the threads. Idempotent.
  void Shutdown();

  // Of messages from R2CC_ZERO_COPY_BYTES on.
  void AddMemory(const char* data, size_t bytes) override;
  void DropMemory(const char* data, size_t bytes) override;
  // A GPU's memory, which the processor sees at `data` and RDMA goes to and from directly; until DropMemory. REQUIRES:
  // WhyNoDeviceMemory() is ok.
  void AddDeviceMemory(const char* data, size_t bytes, const DeviceMemory& device);
  // Begins to make visible to the GPU what has come there; nullptr: RDMA brought nothing.
  std::unique_ptr<RcFlush> Flush(const char* data, size_t bytes);
  // Ok where RDMA may be used.
  Status WhyNoDeviceMemory() const;
  bool TakesDmabuf();

  Environment& environment() { return environment_; }
  std::vector<NicHealth> Health();  // one per NIC
  Report MakeReport();
  // Why R2CC_STATUS_DIR is not served; ok when it is, or when nobody asked for it. No reason to go without a transport.
  const Status& report_status() const { return report_status_; }
  std::string report_path() const { return report_file_ == nullptr ? "" : report_file_->path(); }

 private:
  // A stream that has not yet said whose it is.
  struct Guest {
    Fd fd;
    uint64_t poll_id = 0;
    int nic = -1;
    in_addr remote{};
    int64_t deadline_ns = 0;
    size_t bytes = 0;
    uint8_t hello[kGreetingBytes] = {};
  };

  // What came of a greeting. Who knows the secret is no stranger, also where it comes too late.
  struct Admission {
    Status status;
    std::optional<Stranger> stranger;
  };
  static Admission UnknownSecret() { return {{Code::kProtocol, "a stranger: unknown secret"}, Stranger::kSecret}; }

  Net() = default;
  Status Start(const std::function<int64_t()>& on_turn);
  void OpenRdma();
  void OpenDevices();
  Status CheckRdma();
  void OnEvents(uint64_t id, int tag, uint32_t events) override;
  void OnUnwatched(uint64_t id, int tag, const std::string& reason) override;
  void OnThrow(const std::string& reason) override;
  void OnTick(size_t thread);
  void NoteNics(const std::vector<NicChange>& changes);
  void AcceptGuests();
  void PauseAccept(const std::string& reason);
  void ResumeAccept(int64_t now_ns);
  void ReadGuest(uint64_t id);
  // Why it is turned away; nothing where that is no stranger's fault.
  void DropGuest(uint64_t id, std::optional<Stranger> kind, const std::string& reason) REQUIRES(mutex_);
  void NoteStranger(Stranger kind, int nic, in_addr from, const std::string& reason) REQUIRES(mutex_);
  void NotePeer(in_addr address) REQUIRES(mutex_);
  Admission Admit(Guest& guest);
  Admission AnswerKnock(Guest& guest, uint64_t connection, const Secret& secret);
  void ForgetClosedListeners() REQUIRES(mutex_);
  std::shared_ptr<Pollable> Self() { return {std::shared_ptr<void>(), this}; }  // not owning: we outlive the pollers
  std::vector<std::shared_ptr<Comm>> Comms();
  std::vector<Third> ThirdsOn(int nic);
  // The thread of the next connection of a kind, so that each thread gets as many of either.
  size_t NextThread(size_t* next) const { return (*next)++ % pollers_.size(); }

  Environment environment_;
  Process process_ = ThisProcess();
  int64_t started_ns_ = WallNs();
  Status report_status_;
  std::unique_ptr<ReportFile> report_file_;
  Fd listen_fd_;
  uint64_t listen_id_ = 0;       // with the first poller
  int64_t accept_again_ns_ = 0;  // used by its thread, as what follows: 0 unless this process is out of descriptors
  bool accept_failed_ = false;
  uint16_t port_ = 0;
  std::unique_ptr<LinkMonitor> link_monitor_;  // used by the first poller's thread
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<Locator> locator_;
  std::unique_ptr<Witness> witness_;
  std::unique_ptr<DrainMeter> drain_meter_;  // used by the first poller's thread
  std::unique_ptr<Prober> witness_prober_;   // apart from the locator's: many streams fall silent together
  std::vector<std::unique_ptr<Poller>> pollers_;
  Status rdma_status_;          // why there is none
  std::unique_ptr<Rdma> rdma_;  // nullptr where only TCP is used
  VerbsShared verbs_;
  std::vector<std::unique_ptr<TcpWire>> wires_;  // one per poller
  Mutex mutex_;  // guards what follows; taken before Listener's, never while a Comm's is held
  std::map<Secret, std::shared_ptr<Listener>> listeners_ GUARDED_BY(mutex_);
  // Of the last listeners that are gone, oldest first: who still comes for one is told so.
  std::set<Secret> ended_ GUARDED_BY(mutex_);
  std::deque<Secret> ended_order_ GUARDED_BY(mutex_);
  std::vector<std::pair<size_t, std::weak_ptr<Comm>>> comms_ GUARDED_BY(mutex_);  // with the poller that serves it
  std::map<uint64_t, std::weak_ptr<SendComm>> senders_
      GUARDED_BY(mutex_);  // by connection id, for receiving ends that knock
  std::map<uint64_t, std::unique_ptr<Guest>> guests_ GUARDED_BY(mutex_);  // by poll id
  StrangerCount strangers_ GUARDED_BY(mutex_);
  uint64_t own_probes_ GUARDED_BY(mutex_) =
      0;  // that came here, and streams that were given up before they were greeted
  std::set<in_addr_t> peers_ GUARDED_BY(mutex_);  // addresses that connections were with, the first kMostPeers
  // Threads, see NextThread.
  size_t next_sender_ GUARDED_BY(mutex_) = 0;
  size_t next_receiver_ GUARDED_BY(mutex_) = 0;
  bool shut_down_ GUARDED_BY(mutex_) = false;
};

}  // namespace r2ccl

#endif  // R2CCL_TRANSPORT_NET_H_
