// SocketStream: a connection's stream over a simulated socket, which it uses as TcpStream uses the kernel's.
#ifndef R2CCL_WIRE_SIMULATED_SOCKET_STREAM_H_
#define R2CCL_WIRE_SIMULATED_SOCKET_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "failover/stream.h"
#include "wire/first_stream.h"
#include "wire/frame_reader.h"
#include "wire/simulated/byte_queue.h"
#include "wire/simulated/process.h"
#include "wire/simulated/socket.h"

namespace r2ccl::simulated {

class SocketStream final : public FirstStream, public SocketUser, public std::enable_shared_from_this<SocketStream> {
 public:
  SocketStream(Process* process, StreamOwner* owner, int path, NicTraffic* traffic, std::shared_ptr<Socket> socket)
      : process_(process),
        owner_(owner),
        path_(path),
        traffic_(traffic),
        socket_(std::move(socket)),
        reader_(owner, path, traffic) {
    process_->streams().push_back(this);
  }
  ~SocketStream() override;

  void AwaitConnection(std::shared_ptr<StreamOwner> owner) override;
  void SetOwner(std::shared_ptr<StreamOwner> owner) override { owner_to_be_ = std::move(owner); }
  void KeepAlive() override { socket_->KeepAlive(); }
  void Start() override;
  void Say(const std::string& frames) override;
  size_t unsaid_bytes() const override { return control_.size(); }
  void Send(const Frame& frame, const char* body) override;
  bool sending() const override { return sending_; }
  void KeepBody() override;
  uint64_t end() const override { return end_; }
  void DropBody() override { reader_.DropBody(); }
  bool has_room() const override { return !wants_write_ && !sending_; }
  bool Flush() override;
  void Poll() override;
  void SetPolled(bool polled) override;
  bool polled() const override { return polled_; }
  void Release(int64_t, int64_t) override {}
  bool ReadProgress(Progress* progress) override { return open_ && socket_->ReadProgress(progress); }
  void Cut() override;
  void HangUp(const std::string& farewell) override;

  void OnChange() override;
  // What a poller drops when it no longer watches the stream: the hold on it and on its owner.
  void LetGo();

  // Whether it is about to read from, or to write into, some of these bytes of the program's.
  bool Touches(const char* data, size_t bytes) const {
    auto within = [=](const char* place) { return place != nullptr && place >= data && place < data + bytes; };
    return open_ && (within(reader_.place()) || (sending_ && within(body_)));
  }

 private:
  void Keep(std::shared_ptr<StreamOwner> owner);
  bool HasEvent() const;
  void Wake();
  bool FlushControl();
  bool ContinueFrame();
  size_t ReadInPlace(char* scratch, size_t scratch_bytes);

  Process* const process_;
  StreamOwner* const owner_;
  std::shared_ptr<StreamOwner> owner_to_be_;  // until it starts
  // As a poller keeps what it watches, until the stream lets go.
  std::shared_ptr<SocketStream> kept_;
  std::shared_ptr<StreamOwner> kept_owner_;
  const int path_;
  NicTraffic* const traffic_;
  std::shared_ptr<Socket> socket_;
  FrameReader reader_;
  bool open_ = true;
  bool dialling_ = false;
  bool wants_write_ = false;
  bool polled_ = false;
  bool woken_ = false;  // and has not run yet
  ByteQueue control_;
  bool sending_ = false;
  uint8_t header_[kHeaderBytes] = {};
  const char* body_ = nullptr;
  std::string kept_body_;
  uint64_t end_ = 0;
  size_t body_bytes_ = 0;
  size_t sent_ = 0;  // header included
};

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_SOCKET_STREAM_H_
