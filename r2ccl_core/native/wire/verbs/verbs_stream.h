// VerbsStream: a stream that begins as a TCP connection and goes over to a queue pair once that has proved to work.
//
// Over the TCP stream, once it is greeted, the end that dialled OFFERs a queue pair; the other makes its own and
// ANSWERs, or REFUSEs. The first sends test messages of full size through it, which come back as echoes. From then on
// each direction goes over by itself: SWITCH is the last frame on TCP, everything behind it comes by RDMA. What has not
// come back in time is WITHDRAWn and tried again later, so RDMA that is broken costs no path.
//
// Large bodies of DATA may go as RDMA writes between the programs' registered memories (verbs_write.cc).
//
// The TCP connection stays, nearly idle: its end is the sign that the other process is gone. Who waits for long by RDMA
// tells there how many messages it has sent (COUNT), and is told the same (COUNTED), as a device may have lost the
// completion of one. Whatever is wrong with RDMA after the SWITCH is the loss of the stream: which bytes arrived is not
// known. The next stream begins as TCP again.
#ifndef R2CCL_WIRE_VERBS_VERBS_STREAM_H_
#define R2CCL_WIRE_VERBS_VERBS_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/event_log.h"
#include "base/mutex.h"
#include "failover/stream.h"
#include "net/poller.h"
#include "wire/first_stream.h"
#include "wire/frame_reader.h"
#include "wire/tcp/tcp_stream.h"
#include "wire/verbs/rc_pipe.h"
#include "wire/verbs/rc_queue.h"
#include "wire/verbs/rdma_ways.h"

namespace r2ccl {

// 512 KiB under way keep 400 Gbit/s busy for 10 us, and fit into the usual 8 MiB of locked memory. From the receiving
// end come acknowledgements only: of a full packet of the largest MTU.
inline constexpr RcShape kDialledShape{16, 32768, 32, 4096, 0};
inline constexpr RcShape kAcceptedShape{32, 4096, 16, 32768, 0};
inline constexpr uint32_t kWritesAtOnce = 16;  // of the same size, so that as much is under way

class VerbsStream;

// The streams that still deliver a farewell. Each ends when its device says that the other end has it, which a device
// that loses completions never says. Thread-safe; a leaf lock.
class Farewells {
 public:
  static constexpr int64_t kPatienceNs = 1000 * kMillisecond;

  void Begin(const std::shared_ptr<VerbsStream>& stream, int64_t now_ns);
  void End(const VerbsStream* stream);
  bool empty();
  // Ends those that are late.
  void Tick(int64_t now_ns);

 private:
  struct One {
    const VerbsStream* key;
    std::weak_ptr<VerbsStream> stream;
    int64_t until_ns;
  };
  Mutex mutex_;
  std::vector<One> all_ GUARDED_BY(mutex_);
};

// Of a process. Outlives its streams.
struct VerbsShared {
  RcMaker* maker = nullptr;
  EventLog* log = nullptr;
  std::shared_ptr<const Clock> clock;
  std::function<uint32_t()> random = RandomWord;
  bool strict = false;  // R2CC_TRANSPORT=verbs: what this process dials carries nothing by TCP
  // R2CC_ZERO_COPY_BYTES: from that size on bodies are written, and places for them granted; 0: none.
  int64_t write_bytes = 0;
  RdmaWays ways;
  Farewells farewells;

  // Empty: `nic` may dial `remote` now.
  std::string WhyNotDial(const Nic& nic, in_addr remote) {
    RdmaWays::Key key{nic.address.s_addr, remote.s_addr};
    if (!strict || clock->Now() >= ways.NotBefore(key)) return "";
    return "R2CC_TRANSPORT=verbs: " + nic.name + ": " + ways.WhyNot(key);
  }
};

class VerbsStream final : public Stream,
                          public StreamOwner,
                          public Pollable,
                          public Kickable,
                          public RcWatcher,
                          public std::enable_shared_from_this<VerbsStream> {
 public:
  VerbsStream(VerbsShared* shared, EventLoop* loop, const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic,
              NicTraffic* traffic, in_addr remote, bool dialled);
  ~VerbsStream() override;

  // The stream that it begins as, whose owner it is.
  void Begin(std::shared_ptr<FirstStream> tcp);

  // Of Stream.
  void Start() override;
  std::string obstacle() const override;
  uint64_t abilities() const override { return kTakesRdma | (shared_->write_bytes > 0 ? kTakesWrites : 0); }
  void Say(const std::string& frames) override;
  size_t unsaid_bytes() const override { return by_rdma_ ? control_.size() : tcp_->unsaid_bytes(); }
  void Send(const Frame& frame, const char* body) override;
  bool sending() const override { return by_rdma_ ? sending_ : tcp_->sending(); }
  void KeepBody() override;
  uint64_t end() const override { return tcp_->end() + end_; }
  void DropBody() override;
  bool has_room() const override;
  bool Flush() override;
  void Poll() override;
  void SetPolled(bool polled) override;
  bool polled() const override { return polled_; }
  void Release(int64_t now_ns, int64_t age_ns) override { tcp_->Release(now_ns, age_ns); }
  bool ReadProgress(Progress* progress) override;
  void Cut() override;
  void HangUp(const std::string& farewell) override;

  // Of the TCP stream's owner.
  Mutex& stream_mutex() override { return owner_->stream_mutex(); }
  bool OnWake() override { return lingering_ || owner_->OnWake(); }
  void OnConnected(int path) override { owner_->OnConnected(path); }
  void OnNotConnected(int path, const std::string& reason, bool refused) override {
    owner_->OnNotConnected(path, reason, refused);
  }
  void OnHeard(int path) override {
    if (!gone_) owner_->OnHeard(path);
  }
  Status OnFrameBegins(int path, const Frame& frame, char** body) override;
  Status OnFrameEnds(int path, const std::vector<uint8_t>& control) override;
  void OnReadDone(int path) override;
  void OnRoom() override;
  void OnStreamLost(int path, const std::string& reason) override;
  bool ExpectsSmall() const override { return owner_->ExpectsSmall(); }

  // Of the queue's channel, and of all of them.
  void OnEvents(uint64_t id, int tag, uint32_t events) override;
  void OnUnwatched(uint64_t id, int tag, const std::string& reason) override;
  void OnKick() override;
  void OnQueueLost(const std::string& reason) override;
  void OnThrow(const std::string& reason) override;

  // Its farewell should have been acknowledged by now.
  void OnLateFarewell();

  // Whether it is about to read from, or to write into, some of these bytes of the program's.
  bool Touches(const char* data, size_t bytes) const;

 private:
  static constexpr int64_t kTryNs = 2000 * kMillisecond;  // for an attempt
  static constexpr const char* kNoWord =
      "test messages have not come back in time; does the rail pass UDP port 4791, with packets of the port's MTU?";

  enum class Stage { kTcp, kOffered, kTesting, kAnswered, kTested };
  // How far a body is on its way by RDMA.
  enum class Way { kCopied, kToAsk, kAsked, kGranted, kWritten };

  struct Held {
    Frame frame;
    std::vector<uint8_t> control;
  };

  RdmaWays::Key key() const { return {nic_.address.s_addr, remote_.s_addr}; }
  bool is_strict() const { return shared_->strict && dialled_; }
  int64_t Now() const { return shared_->clock->Now(); }
  std::shared_ptr<VerbsStream> Keep();
  void KickSelf();
  void Log(const char* kind, const std::string& detail);

  // Going over.
  void Try(int64_t now_ns);
  Status MakePipe();
  void FailTry(const std::string& reason, bool tell_peer);
  Status TakeRdma(const Frame& frame, const std::vector<uint8_t>& control);
  Status TakeOffer(const Frame& frame, const std::vector<uint8_t>& control);
  void TakeAnswer(const std::vector<uint8_t>& control);
  void SayCount(RdmaStep step);
  Status TakeCount(RdmaStep step, const std::vector<uint8_t>& control);
  void SendTests(int64_t now_ns);
  void TrySwitch();
  Status GiveHeld();

  // Once it has.
  void OnKicked();
  void Serve();
  void Deliver();
  bool TakeTest(const RcPipe::Arrival& arrival);
  Status TakeOfWrites(const RcPipe::Arrival& arrival);
  Status TakeAsk(const RcPipe::Arrival& arrival);
  Status TakeGrant(const RcPipe::Arrival& arrival);
  Status TakeLanded(const RcPipe::Arrival& arrival);
  void SendGrant();
  void FenceNow(const std::string& reason);
  bool FlushRdma();
  bool HasRdmaRoom() const;
  bool WaitsForPeer() const { return sending_ && (way_ == Way::kAsked || way_ == Way::kGranted); }
  bool CanGoOn() const;
  bool ContinueFrame(int64_t now_ns);
  bool CopyBody(int64_t now_ns);
  bool Ask(int64_t now_ns);
  bool ContinueWrites(int64_t now_ns);
  bool SayLanded(int64_t now_ns);
  bool SendNumbered(RcKind kind, const void* words, size_t bytes, int64_t now_ns, size_t counted);
  bool EndFrame();
  bool FlushControl(int64_t now_ns);
  void Break(const std::string& reason);
  void Lose(const std::string& reason);
  void DropPipe();
  void HangUpByTcp(const std::string& farewell);
  Status EndRdma();
  void EndLinger();

  VerbsShared* const shared_;
  EventLoop* const loop_;
  StreamOwner* const owner_;
  const std::weak_ptr<StreamOwner> weak_owner_;
  const int path_;
  const Nic nic_;
  NicTraffic* const traffic_;
  const in_addr remote_;
  const bool dialled_;
  std::shared_ptr<FirstStream> tcp_;
  bool gone_ = false;  // cut, or hung up

  Stage stage_ = Stage::kTcp;
  bool peer_takes_ = false;
  bool peer_takes_writes_ = false;
  uint32_t attempt_ = 0;
  int64_t deadline_ns_ = 0;
  int echoes_due_ = 0;
  Frame frame_;  // that is being read
  bool in_rdma_frame_ = false;
  bool in_held_frame_ = false;
  std::vector<Held> held_;  // from before the SWITCH, where TCP carries nothing

  std::unique_ptr<RcPipe> pipe_;
  uint64_t poll_id_ = 0;
  uint64_t counted_ = 0;  // messages that the other end's count told of last
  bool wants_switch_ = false;
  bool by_rdma_ = false;    // what this end sends
  bool from_rdma_ = false;  // what it receives
  bool polled_ = false;
  mutable bool starved_ = false;  // somebody waits for room
  bool lingering_ = false;
  std::string broken_;  // why the queue is lost; the owner is told with the next event

  // As TcpStream has them.
  std::string control_;
  bool sending_ = false;
  uint8_t out_header_[kHeaderBytes] = {};
  const char* out_body_ = nullptr;
  std::unique_ptr<char[]> kept_body_;
  size_t out_bytes_ = 0;
  size_t out_sent_ = 0;
  uint64_t end_ = 0;
  FrameReader reader_;

  // Of the body that is sent.
  Way way_ = Way::kCopied;
  uint64_t asks_ = 0;  // so far; the last is this one's
  RcKeys keys_;        // of its memory
  uint64_t granted_address_ = 0;
  uint32_t granted_key_ = 0;
  // Of the body that comes: the number of its ASK, whether that is to be answered, and whether the other end may write.
  uint64_t asked_ = 0;
  bool owes_grant_ = false;
  bool awaits_landed_ = false;
  bool grant_is_out_ = false;
};

// Makes them for the connections of one poller.
class VerbsWire final : public TcpWire {
 public:
  VerbsWire(VerbsShared* shared, Poller* poller, const Environment* environment)
      : TcpWire(poller, environment), shared_(shared) {}

  Status Dial(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic, NicTraffic* traffic, in_addr remote,
              uint16_t port, std::shared_ptr<Stream>* stream) override;
  std::shared_ptr<Stream> Adopt(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic,
                                NicTraffic* traffic, in_addr remote, Fd fd) override;

 private:
  VerbsShared* const shared_;
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_VERBS_VERBS_STREAM_H_
