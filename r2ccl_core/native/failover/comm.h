// Comm: what both ends of a connection share: paths, frames, control messages, detection and failure. Its functions are
// in comm.cc, comm_absent.cc, comm_orders.cc, comm_watch.cc and comm_way.cc.
//
// A connection carries messages in one direction, from a SendComm to a RecvComm, over one stream per path; the wire
// decides what a stream is made of (stream.h). A Comm's mutex guards all its state; the wire's thread takes it for
// events of streams, for ticks and link events. The user's threads never wait for it in isend, irecv and test: an order
// goes into an inbox with its own lock, which the wire's thread empties. If the message is small and the mutex happens
// to be free, the user's thread does the work itself, because waking another thread would take longer. If the program
// polls anyway, the wire's thread does not even watch the path that last carried data, until a tick finds that nobody
// has polled since the previous one. Lock order: Comm, then any of inbox, the wire's, Notifier, EventLog, Locator,
// Witness, Way, Ways, which are leaves, or the asker's, under which the wire's is taken.
#ifndef R2CCL_FAILOVER_COMM_H_
#define R2CCL_FAILOVER_COMM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_log.h"
#include "base/mutex.h"
#include "base/notifier.h"
#include "base/params.h"
#include "base/report.h"
#include "base/status.h"
#include "failover/damping.h"
#include "failover/fate.h"
#include "failover/locator.h"
#include "failover/nic_shares.h"
#include "failover/nic_state.h"
#include "failover/path_state.h"
#include "failover/stall.h"
#include "failover/stream.h"
#include "failover/way.h"
#include "failover/witness.h"
#include "net/asker.h"
#include "net/nic.h"
#include "net/nic_table.h"
#include "net/wire.h"

namespace r2ccl {

// How many paths of open connections a NIC carries, and how many of its paths are down.
struct NicHealth {
  int up = 0;
  int down = 0;  // held ones included
  int held = 0;
  int never_up = 0;  // of those that are down, told of as that
  int cut_off = 0;   // of those that are down: their connection has no path left, as if the peer had ended
};

class Comm;

// What a Comm needs of its process. Outlives every Comm.
struct Environment {
  Params params;
  std::shared_ptr<const Clock> clock = std::make_shared<Clock>();
  // One of each per NIC, from SetNics.
  std::vector<Nic> nics;
  std::unique_ptr<NicTraffic[]> counters;
  std::unique_ptr<NicState[]> nic_states;
  EventLog log;
  std::shared_ptr<Notifier> notifier = std::make_shared<Notifier>();
  std::atomic<int> senders{0};                    // sending ends that have sent lately
  std::atomic<const Comm*> last_sender{nullptr};  // the last one; it may be gone
  std::atomic<uint64_t> replayed_chunks{0};
  std::atomic<uint64_t> trial_chunks{0};  // copies that show what a NIC drains that is in doubt; nothing waits for them
  std::atomic<uint64_t> duplicate_chunks{0};
  std::atomic<uint64_t> corrupt_chunks{0};
  uint16_t port = 0;  // where this process listens
  // The program asks Test again and again until a request is done, as NCCL's threads do. Set before any Comm is made.
  bool program_polls = false;
  Asker* prober = nullptr;  // all of these outlive every Comm's last call
  Locator* locator = nullptr;
  Witness* witness = nullptr;
  Ways ways;

  // Before any Comm is made.
  void SetNics(std::vector<Nic> all) {
    counters = std::make_unique<NicTraffic[]>(all.size());
    nic_states = std::make_unique<NicState[]>(all.size());
    nics = std::move(all);
  }
};

constexpr uint64_t kNoMessage = UINT64_MAX;

// One isend or irecv. Made by the Comm, given back to it by the Test that reports completion.
struct Request {
  Comm* owner = nullptr;
  enum State { kPending, kDone, kFailed };
  std::atomic<State> state{kPending};
  uint64_t size = 0;  // bytes of the message, valid once done
  uint32_t tag = 0;   // of the message, likewise
};

// What the last attempt to reach the peer over a path that is down came to.
enum class Outlook {
  kOpen,     // not tried yet, or the peer answered
  kRefused,  // the peer's host answered that nobody listens
  kSilent,   // no answer
};

inline constexpr char kPeerHint[] = "peer hint: the other end lost this path";

// Pauses before a quiet path is pinged: while requests wait, and (sending end only, which has to dial) always.
constexpr int64_t kQuietPendingNs = 250'000'000;
constexpr int64_t kQuietIdleNs = 1'000'000'000;

class Comm : public StreamOwner, public Kickable, public std::enable_shared_from_this<Comm> {
 public:
  Comm(Environment* environment, Wire* wire);

  // Done: `*done` is set, `*size` and `*tag` are the message's own, where asked for, and the request is gone.
  // A failure is final for the whole connection. Of one that is not done it looks whether something has come for it,
  // unless that is left to the wire's thread (`reads`).
  Status Test(Request* request, bool* done, uint64_t* size, uint32_t* tag = nullptr, bool reads = true);

  // Never waits for the peer, which is told wherever a stream stands between two frames. Outstanding requests
  // fail, and nothing touches their buffers afterwards. Idempotent. What was done because it was copied still goes to
  // the peer: the connection then lives on by itself until that is acknowledged, for a second at most. A process that
  // ends meanwhile has to wait for it (Net::CloseConnections); one that is killed or ends by _exit() loses it.
  void Close();
  bool lingers() const;

  Mutex& stream_mutex() final { return mutex_; }
  bool OnWake() final REQUIRES(mutex_);
  void OnConnected(int path) override;
  void OnNotConnected(int path, const std::string& reason, bool refused) override REQUIRES(mutex_);
  void OnHeard(int path) final REQUIRES(mutex_);
  Status OnFrameBegins(int path, const Frame& frame, char** body) final REQUIRES(mutex_);
  Status OnFrameEnds(int path, const std::vector<uint8_t>& control) final REQUIRES(mutex_);
  void OnReadDone(int path) final REQUIRES(mutex_);
  void OnRoom() final REQUIRES(mutex_) { OnWritable(); }
  void OnStreamLost(int path, const std::string& reason) final REQUIRES(mutex_);
  bool ExpectsSmall() const final { return !GetsData() || inline_.load(std::memory_order_relaxed); }
  void OnKick() final;
  // Ends the connection: better no message than a wrong one.
  void OnThrow(const std::string& reason) noexcept final;
  void OnNic(const NicChange& change);
  // Returns when it is to be called again at the latest, if it is not called sooner anyway.
  int64_t Tick(int64_t now_ns);

  Status failure() const;
  // Whether there is one. Waits for nobody.
  bool has_ended() const { return ended_.load(); }
  // From now on the failure of any connection that shares `fate` is, with the next tick, the end of this one.
  void ShareFate(std::shared_ptr<Fate> fate);
  // Sends control frames over some open path; false when there is none.
  bool Say(const std::string& frames);
  // The peer by its NIC at the other end of our path over `nic`; false when there is none.
  bool ThirdOn(int nic, Third* third);
  // Adds this connection's paths to their NICs' tallies.
  void AddHealth(std::vector<NicHealth>* health) const;
  // Adds this connection to those with the same peer.
  void AddPeer(std::map<PeerKey, PeerReport>* peers) const;

 protected:
  struct Path {
    int index = 0;
    int nic = -1;  // index into Environment::nics, -1 while unknown
    in_addr remote{};
    PathState state = PathState::kDown;
    uint32_t epoch = 0;
    std::shared_ptr<Stream> stream;  // from the dial, or the arrival, until it is lost
    bool was_up = false;
    bool is_absent = false;  // it was told that it has not come up
    bool told_up = false;    // its end is news, and a loss
    bool told_held = false;
    bool ever_told = false;
    int64_t up_since_ns = 0;
    FlapDamper flaps;
    bool link_down = false;

    Frame frame;           // that is being read, or was last
    char* body = nullptr;  // of a chunk: where it goes; nullptr: nowhere

    // Stall detection.
    uint64_t acked_bytes = 0;
    int64_t progress_ns = 0;
    uint32_t delivered = 0;
    int64_t seen_ns = 0;    // see Silence
    int64_t proven_ns = 0;  // when it last showed that it works: the peer's kernel reported something more to have
    LossMeter loss;
    bool suspect = false;        // the peer's kernel owes an answer for longer than usual
    uint32_t resent_before = 0;  // what the kernel had sent again when there was progress last

    // What is known of the way, by this path and others (way.h).
    Way* way = nullptr;
    bool was_on_probation = false;   // at the last tick
    Lasting slow{kSlowNs};           // answers take much longer here than elsewhere
    Lasting no_faster{kNoFasterNs};  // as long as those of a pair took that is on probation for it
    bool late = false;               // something in this stream is, whatever other streams of the way bring
    bool tested = false;             // by the peer: it found the way to be late
    bool owes_word = false;          // the peer was not told that the tests are over
    int64_t held_ns = 0;             // see HeldNs; as the last tick saw it, as what follows
    int64_t shortest_rtt_ns = 0;
    double queued_bytes = 0;  // mean of what its NIC had under way when something was put on it
    struct {
      uint64_t end = 0;  // of the stream's bytes; 0: no test is under way
      uint32_t resent = 0;
      int64_t sent_ns = 0;
      bool missed = false;
      int64_t began_ns = 0;      // of a trial: its first chunk; sent_ns is the last one's
      uint64_t trial_bytes = 0;  // of its chunks, if it is a trial; 0: test packets
    } test;
    struct {
      uint64_t end = 0;  // of the stream's bytes at sent_ns; 0: there is none
      int64_t sent_ns = 0;
    } mark;
    int64_t queued_until_ns = 0;  // see SilentSinceNs
    int64_t asked_ns = 0;         // last PING into that silence
    bool heard = false;           // something was read since the last tick
    int64_t heard_ns = 0;         // last sign of life, or last PING

    // Opening.
    int64_t deadline_ns = 0;  // of connecting and greeting
    int64_t dial_ns = 0;      // not dialled before
    int64_t backoff_ns = 0;
    std::string obstacle;       // why no dial from NIC to partner came through; empty once the peer's host answered
    int64_t round_trip_ns = 0;  // 0 while it was never up
    int64_t usual_ns = 0;       // within which answers come at present
    int64_t no_room_ns = 0;     // for how long the peer's program left no room, while its kernel had all that was sent
    int64_t told_held_ns = 0;   // Progress::held_ns at the last tick
    Outlook outlook = Outlook::kOpen;
    bool asking = false;  // the receiving end waits for the answer to a knock
  };

  // Chooses where path.frame's body goes.
  virtual Status OnHeader(Path& path) REQUIRES(mutex_) = 0;
  // The body of path.frame is complete; of control frames it is `control`.
  virtual Status OnBody(Path& path, const std::vector<uint8_t>& control) REQUIRES(mutex_) = 0;
  // No more to read at present.
  virtual void AfterRead(Path& path) REQUIRES(mutex_) = 0;
  // Some path can take bytes again.
  virtual void OnWritable() REQUIRES(mutex_) = 0;
  // Path was just retired; migrate what it carried.
  virtual void OnLost(Path& path) REQUIRES(mutex_) = 0;
  virtual void OnTick(int64_t now_ns) REQUIRES(mutex_) = 0;
  virtual bool HasPending() const REQUIRES(mutex_) = 0;
  // Something is to be delivered yet, and no request waits for it.
  virtual bool OwesOnlyCopies() const REQUIRES(mutex_) = 0;
  // How long a path may be quiet before it is asked for a sign of life.
  virtual int64_t QuietLimitNs() const REQUIRES(mutex_) = 0;
  virtual void FailRequests() REQUIRES(mutex_) = 0;
  // A tick saw it.
  virtual void OnProgress(Path&, const Progress&, int64_t) REQUIRES(mutex_) {}
  // What was said over it may be late.
  virtual void OnSuspect(Path&) REQUIRES(mutex_) {}
  // The NIC of a path that is down has its link again.
  virtual void OnOwnLinkBack(Path& path) REQUIRES(mutex_) = 0;
  // The peer's NIC has.
  virtual void OnPeerLinkBack(Path&) REQUIRES(mutex_) {}
  // The last frames of a stream.
  virtual std::string Farewell() const REQUIRES(mutex_) = 0;
  // Send or receive.
  virtual const char* Direction() const = 0;
  // Else only control frames, which are small.
  virtual bool GetsData() const = 0;
  // Where the peer's process listens, 0 while unknown.
  virtual uint16_t PeerPort() const = 0;

  int64_t Now() const { return environment_->clock->Now(); }
  // For how long nothing could go on for other reasons than the way: the peer's program left no room for more, or this
  // process did not run.
  int64_t HeldNs(const Path& path) const REQUIRES(mutex_) { return path.no_room_ns + absent_ns_; }
  void NoteHeld(Path& path, const Progress& progress) REQUIRES(mutex_);
  void NotePassed(Path& path, const Progress& progress, int64_t now_ns) REQUIRES(mutex_);
  // Since when the peer's kernel has been silent for another reason than the own NIC's queue.
  int64_t SilentSinceNs(Path& path) REQUIRES(mutex_);
  void StopPolling() REQUIRES(mutex_);
  void LeaveToProgram() REQUIRES(mutex_);
  void MarkUp(Path& path, bool hold = false) REQUIRES(mutex_);
  void Advance(Path& path, PathEvent event);
  // Gives the path up. In fail-stop mode this fails the connection. With `tell_peer`, hints the other end.
  // Who tells the peer also finds out whose fault it was, unless `cause` says so: then of the end that is the first to
  // know.
  void Retire(Path& path, const std::string& reason, bool tell_peer, Cause cause = Cause::kUnknown) REQUIRES(mutex_);
  void RedialAll(int64_t now_ns) REQUIRES(mutex_);
  // Tells of each path that has not come up since the connection began, once, where others have.
  void TellAbsent(int64_t now_ns, int64_t began_ns) REQUIRES(mutex_);
  // Frames that both ends take alike.
  Status TakeShared(Path& path, const std::vector<uint8_t>& control) REQUIRES(mutex_);
  // Ends the connection with `status`: hangs up and fails the requests. Fail() also logs it.
  void End(Status status) REQUIRES(mutex_);
  void Fail(Status status) REQUIRES(mutex_);
  void TellPeer(const Path& about, uint32_t epoch, Cause cause) REQUIRES(mutex_);
  // False where the stream has no room for it now. With kAsks the peer's program answers, not only its machine.
  bool Ping(Path& path, int64_t now_ns, uint64_t kind = 0);
  // The path for a word to the peer: one that can take it at once and is neither suspect nor doubted, among those the
  // one that has been up for longest, as one that flaps would lose it. nullptr when none is up.
  Path* AnyUp() REQUIRES(mutex_);
  // Whether it has not shown that it works since a path of its NIC was silent for long, or lost. In Balance only, where
  // any other NIC can take its place.
  bool NicIsDoubted(const Path& path) const {
    return environment_->params.mode == 2 && path.nic >= 0 &&
           nic_state(path).doubt_ns.load(std::memory_order_relaxed) > path.proven_ns;
  }
  // From now on, unless it is doubted already.
  void DoubtNic(const Path& path, int64_t now_ns) {
    if (!NicIsDoubted(path)) nic_state(path).doubt_ns.store(now_ns, std::memory_order_relaxed);
  }
  // Or its way is on probation, here or at the peer.
  bool IsDoubted(const Path& path) const {
    return NicIsDoubted(path) || (path.way != nullptr && (path.late || path.tested || path.way->on_probation()));
  }
  // Whether the peer's program has said anything since `since_ns`. Where not, it is asked by all other paths, so that
  // the next tick may know. Its machine takes its time to tell what it has for a program that does not look, up to
  // 40 ms (a delayed acknowledgement): that is no fault of the way. True where there is no other path to ask by.
  bool PeerSpoke(const Path& about, int64_t since_ns, int64_t now_ns) REQUIRES(mutex_);
  // Asks it by all paths but `about`, unless it was just asked. False where there is no other.
  bool AskPeer(const Path& about, int64_t now_ns) REQUIRES(mutex_);
  void TakePing(Path& path) REQUIRES(mutex_);
  // Whether it is up and nothing is held against it: the others are compared with such paths.
  bool IsTrusted(const Path& path) const;
  // Puts its way on probation, unless there is no other that carries data in its place. False then. `slow_ns`: of its
  // answers, if that is why, or what they have to be faster than as it `loses` packets.
  bool BeginProbation(Path& path, int64_t now_ns, const std::string& why, int64_t slow_ns = 0, bool loses = false)
      REQUIRES(mutex_);
  // What one of the own NICs carried lately at the most, copies included; 0: nothing.
  double MostCarried() const;
  // As Carried has it.
  int64_t WayWorksUntilNs(const Path& path, int64_t now_ns) const;
  // What the best of the own NICs drains, or carried lately if that is all that is known; 0: unknown.
  double BestNicRate() const;
  // The same, with all of what it carried lately, half of which may be a token bucket's.
  double BestKnownRate() const;
  bool OthersShowDrains(const Path& path, int64_t now_ns) const;
  void CheckLosses(Path& path, const Progress& progress, int64_t now_ns) REQUIRES(mutex_);
  // The ways to the same peer over other NICs.
  Elsewhere LookElsewhere(const Path& path) const REQUIRES(mutex_);
  // Within which answers would come there without what this process itself has on the way.
  int64_t IdleElsewhereNs(const Path& path) const REQUIRES(mutex_);
  // Whether answers over a pair that is tried still take as long as before its probation, or much longer than over
  // another pair, without what the queues explain.
  bool IsStillSlow(const Path& path, const Progress& progress) const REQUIRES(mutex_);
  void KnowWay(Path& path);
  // No event, but the status file tells it.
  void SetTested(Path& path, bool tested) {
    if (std::exchange(path.tested, tested) != tested) environment_->log.added().Notify();
  }
  // Whether its way is on probation as users see it: not for what is over after a first clean test.
  bool IsOnProbation(const Path& path) const {
    return environment_->params.mode == 2 && path.way != nullptr && (path.tested || path.way->grave());
  }
  // What came by the path that only the program reads.
  void ReadHot() REQUIRES(mutex_);
  const Nic& nic(const Path& path) const { return environment_->nics[static_cast<size_t>(path.nic)]; }
  NicTraffic& counters(const Path& path) { return environment_->counters[static_cast<size_t>(path.nic)]; }
  NicState& nic_state(const Path& path) const { return environment_->nic_states[static_cast<size_t>(path.nic)]; }
  void Log(const char* kind, const Path& path, const std::string& detail, const char* cause = "");
  void Complete(Request* request, Request::State state);

  // One isend or irecv that the connection has not seen yet.
  struct Order {
    char* data;
    uint64_t size;
    Request* request = nullptr;
    bool watched = false;  // see RecvComm::Irecv
    bool marked = false;   // see SendComm::Isend, as for the tag
    uint32_t tag = 0;
    NicShares shares = nullptr;  // see SendComm::Isend, as for what follows
    bool announced = false;
  };
  // Takes an order of the user and gives it a request. Does not need mutex_.
  Status Submit(Order order, Request** request);
  // Puts all orders through.
  void EmptyInbox() REQUIRES(mutex_);
  // Whether orders may wait for the next event or tick: waking the poller's thread costs more than they do.
  void LetOrdersWait(bool wait) REQUIRES(mutex_);
  void Put(const Order& order) REQUIRES(mutex_);
  virtual void Take(const Order& order) = 0;
  virtual void OnTaken() = 0;
  // The user's thread does the work itself while no more than R2CC_INLINE_BYTES are on their way: it alone moves a few
  // GB/s at most, over all its connections. The sending end decides for both.
  std::atomic<bool> inline_{true};
  static constexpr int64_t kLingerNs = 1'000'000'000;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  Environment* const environment_;
  Wire* const wire_;
  mutable Mutex mutex_;
  std::vector<Path> paths_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  bool peer_closed_ GUARDED_BY(mutex_) = false;
  Status failure_ GUARDED_BY(mutex_);
  int64_t no_path_since_ns_ GUARDED_BY(mutex_) = 0;  // 0 while a path is up
  int64_t absent_ns_ GUARDED_BY(mutex_) = 0;         // for how long, all in all, ticks came late
  int64_t word_ns_ GUARDED_BY(mutex_) = 0;           // when the peer's program last said something
  int64_t asked_word_ns_ GUARDED_BY(mutex_) = 0;     // when it was last asked to
  uint64_t question_ GUARDED_BY(mutex_) = 0;         // its number
  int asked_about_ GUARDED_BY(mutex_) = -1;          // not by this path
  int64_t look_ns_ GUARDED_BY(mutex_) = kNever;      // when something will be late
  int64_t answered_ns_ GUARDED_BY(mutex_) = 0;       // when it answered last
  int64_t answer_took_ns_ GUARDED_BY(mutex_) = 0;    // by the path that was first

 private:
  void Poll() REQUIRES(mutex_);
  void EndLinger(int64_t now_ns) REQUIRES(mutex_);
  Status SubmitHere(Order order, Request** request) REQUIRES(mutex_);
  Request* NewRequest() REQUIRES(inbox_mutex_);
  void Cut(Path& path);
  void HangUp() REQUIRES(mutex_);
  void TakePathDown(const Frame& frame) REQUIRES(mutex_);
  void TakeAbsent(Path& path, const Frame& frame) REQUIRES(mutex_);
  void NoteAbsent(Path& path, const std::string& why, bool asks);
  std::string WhyAbsent(const Path& path) const;
  void Suspect(const Path& path, uint32_t epoch, bool own_link_down, bool peer_link_down);
  void ReadOpen(Path& path) REQUIRES(mutex_);
  void CheckStall(Path& path, int64_t now_ns, int64_t since_tick_ns) REQUIRES(mutex_);
  int64_t SinceOtherNicNs(const Path& path, int64_t now_ns) const;
  void CheckQuiet(Path& path, const Progress& progress, int64_t now_ns) REQUIRES(mutex_);
  void WatchWay(Path& path, const Progress& progress, int64_t now_ns) REQUIRES(mutex_);
  void Test(Path& path, const Progress& progress, int64_t now_ns);
  void JudgeTest(Path& path, const Progress& progress, int64_t now_ns) REQUIRES(mutex_);
  int64_t TestLimitNs(const Path& path, const Progress& progress, const Elsewhere& elsewhere) const REQUIRES(mutex_);
  void TellProbation(Path& path, const std::string& why);
  void TellUp(Path& path);
  void AskSuspect(Path& path, const Progress& progress, int64_t now_ns) REQUIRES(mutex_);
  void CheckGiveUp(int64_t now_ns) REQUIRES(mutex_);
  bool PeerIsGone(int64_t now_ns) REQUIRES(mutex_);
  std::string Obstacle() const REQUIRES(mutex_);

  static constexpr uint32_t kPollAllEvery = 64;
  int hot_ GUARDED_BY(mutex_) = 0;                  // the path by which something came last
  int polled_path_ GUARDED_BY(mutex_) = 0;          // the only one that may be left to the program
  uint32_t polls_ GUARDED_BY(mutex_) = 0;           // of the user's thread
  bool polled_ GUARDED_BY(mutex_) = false;          // since the last tick
  int64_t linger_until_ns_ GUARDED_BY(mutex_) = 0;  // 0 unless closed by the user with something to deliver
  std::shared_ptr<Comm> self_ GUARDED_BY(mutex_);   // then
  std::vector<Order> taken_ GUARDED_BY(mutex_);     // empty; keeps its memory
  int64_t last_tick_ns_ GUARDED_BY(mutex_);
  std::shared_ptr<Fate> fate_ GUARDED_BY(mutex_);  // nullptr unless shared
  int64_t gone_since_ns_ GUARDED_BY(mutex_) = 0;   // 0 while there is hope that the peer answers

  Mutex inbox_mutex_;  // leaf lock: guards what follows
  std::vector<Order> inbox_ GUARDED_BY(inbox_mutex_);
  bool orders_wait_ = false;                       // written under mutex_, too
  Status inbox_failure_ GUARDED_BY(inbox_mutex_);  // what later orders are refused with
  std::vector<std::unique_ptr<Request>> requests_ GUARDED_BY(inbox_mutex_);
  std::vector<Request*> free_requests_ GUARDED_BY(inbox_mutex_);
  std::atomic<bool> kicked_{false};
  std::atomic<bool> ended_{false};  // before any request fails for it
  // Written under inbox_mutex_; who has not seen one yet is kicked for it, unless orders_wait_.
  std::atomic<bool> has_orders_{false};
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_COMM_H_
