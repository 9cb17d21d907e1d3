// TcpStream: a stream as one TCP connection, and TcpWire, which makes such streams for the connections of one poller.
#ifndef R2CCL_WIRE_TCP_TCP_STREAM_H_
#define R2CCL_WIRE_TCP_TCP_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "failover/comm.h"
#include "failover/stream.h"
#include "net/poller.h"
#include "net/socket.h"
#include "wire/first_stream.h"
#include "wire/frame_reader.h"

namespace r2ccl {

// Guarded by its owner's mutex, which events of the poller take. While the poller knows it, it keeps stream and owner
// alive; the owner outlives its streams in any case.
class TcpStream final : public FirstStream, public Pollable, public std::enable_shared_from_this<TcpStream> {
 public:
  // `peeks`: the program asks again and again, so small frames may be read while they stay in the kernel's queue.
  TcpStream(Poller* poller, StreamOwner* owner, int path, NicTraffic* traffic, Fd fd, bool peeks);
  ~TcpStream() override;

  void AwaitConnection(std::shared_ptr<StreamOwner> owner) override;
  void SetOwner(std::shared_ptr<StreamOwner> owner) override { held_ = std::move(owner); }
  void KeepAlive() override;

  void Start() override;
  void Say(const std::string& frames) override;
  size_t unsaid_bytes() const override { return control_.size() - control_sent_; }
  void Send(const Frame& frame, const char* body) override;
  bool sending() const override { return sending_; }
  void KeepBody() override;
  uint64_t end() const override { return end_; }
  void DropBody() override { reader_.DropBody(); }
  bool has_room() const override { return !wants_write_ && !sending_; }
  bool Flush() override;
  void Poll() override { Read(); }
  void SetPolled(bool polled) override;
  bool polled() const override { return polled_; }
  void Release(int64_t now_ns, int64_t age_ns) override;
  bool ReadProgress(Progress* progress) override;
  void Cut() override;
  void HangUp(const std::string& farewell) override;

  void OnEvents(uint64_t id, int tag, uint32_t events) override;
  void OnUnwatched(uint64_t id, int tag, const std::string& reason) override;
  void OnThrow(const std::string& reason) override { owner_->OnThrow(reason); }

 private:
  void Register(uint32_t events, std::shared_ptr<StreamOwner> owner);
  void Unregister();
  void Watch();
  void SetWantsWrite(bool wants);
  void FinishDial();
  bool FlushControl();
  bool ContinueFrame();

  void Read();
  bool ReadSmall();
  void DropTaken();
  void DropUnread();
  void Lose(ssize_t received);

  Poller* const poller_;
  StreamOwner* const owner_;
  const int path_;
  NicTraffic* const traffic_;
  std::shared_ptr<StreamOwner> held_;  // until it is registered
  Fd fd_;
  uint64_t poll_id_ = 0;
  bool dialling_ = false;
  bool wants_write_ = false;
  bool polled_ = false;
  const bool may_peek_;
  bool peeks_ = false;

  // Outgoing control frames, sent at the next frame boundary.
  std::string control_;
  size_t control_sent_ = 0;
  // The outgoing DATA frame.
  bool sending_ = false;
  uint8_t out_header_[kHeaderBytes] = {};
  const char* out_body_ = nullptr;
  std::unique_ptr<char[]> kept_body_;
  uint64_t end_ = 0;
  size_t out_bytes_ = 0;  // header included
  size_t out_sent_ = 0;

  FrameReader reader_;
  // What was taken already and still lies in the kernel's queue, see ReadSmall; only while the stream is polled.
  size_t taken_bytes_ = 0;
  int taken_reads_ = 0;
  int64_t taken_ns_ = 0;  // the first of it
};

class TcpWire : public Wire {
 public:
  // `environment` outlives it; whether the program polls is asked for each stream, as it is known later than the wire.
  TcpWire(Poller* poller, const Environment* environment) : poller_(poller), environment_(environment) {}

  Status Dial(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic, NicTraffic* traffic, in_addr remote,
              uint16_t port, std::shared_ptr<Stream>* stream) override;
  // Takes over a connection that was accepted.
  virtual std::shared_ptr<Stream> Adopt(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic,
                                        NicTraffic* traffic, in_addr remote, Fd fd);
  void Kick(std::shared_ptr<Kickable> target) override { poller_->Kick(std::move(target)); }

 protected:
  Poller* const poller_;
  const Environment* const environment_;
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_TCP_TCP_STREAM_H_
