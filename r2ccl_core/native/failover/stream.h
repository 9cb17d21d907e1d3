// Stream and Wire: everything that a connection knows about what carries its frames. Each implementation has a folder
// in wire/: TCP, RDMA, and the simulated network of the tests.
//
// A path that is being opened or is open uses one Stream. Frames of one stream arrive whole, in order and at most once,
// or the stream is lost; data in flight on a stream that was cut never arrives afterwards.
//
// Every call, in either direction, is made under the connection's lock (StreamOwner::stream_mutex), and a call down may
// lead to calls up before it returns: after each call, the caller checks whether its path still has the stream.
#ifndef R2CCL_FAILOVER_STREAM_H_
#define R2CCL_FAILOVER_STREAM_H_

#include <netinet/in.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/kickable.h"
#include "base/mutex.h"
#include "base/status.h"
#include "net/nic.h"
#include "net/progress.h"
#include "net/wire.h"

namespace r2ccl {

// What one NIC has moved in this process, counted for those who watch: nothing is decided by it.
struct NicTraffic {
  std::atomic<uint64_t> acknowledged_bytes{0};  // of messages
  // Over all streams, frames included.
  std::atomic<uint64_t> sent_bytes{0};
  std::atomic<uint64_t> received_bytes{0};
  // Of them by RDMA, and how many streams send by it now.
  std::atomic<uint64_t> rdma_sent_bytes{0};
  std::atomic<uint64_t> rdma_received_bytes{0};
  // Of those sent so what went straight from the program's memory into the other end's.
  std::atomic<uint64_t> rdma_written_bytes{0};
  std::atomic<int> rdma_streams{0};
};

// Whose stream it is. Everything but stream_mutex() and OnThrow() REQUIRES that mutex.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;

  virtual Mutex& stream_mutex() = 0;
  // First on every thread of the wire's. False: the connection has ended, and wants to hear nothing more.
  virtual bool OnWake() = 0;
  virtual void OnConnected(int path) = 0;
  // `refused`: the other host answered that nobody listens there.
  virtual void OnNotConnected(int path, const std::string& reason, bool refused) = 0;
  // Something arrived, be it part of a frame.
  virtual void OnHeard(int path) = 0;
  // A frame begins. For DATA `*body` becomes the place of its body, nullptr to drop it; other bodies the stream keeps.
  // An error: the stream is lost for that reason.
  virtual Status OnFrameBegins(int path, const Frame& frame, char** body) = 0;
  // It is complete; `control` is the body of a frame that is not DATA, with its sum checked.
  virtual Status OnFrameEnds(int path, const std::vector<uint8_t>& control) = 0;
  // All that has arrived was given.
  virtual void OnReadDone(int path) = 0;
  // Some stream has room again, or a dial came to something.
  virtual void OnRoom() = 0;
  virtual void OnStreamLost(int path, const std::string& reason) = 0;
  // One of these calls was left by an exception, and the connection is in no known state. Without the mutex held.
  virtual void OnThrow(const std::string& reason) = 0;
  // What comes is small: worth a copy to save a call of the kernel.
  virtual bool ExpectsSmall() const = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;

  // For a stream that came in: from now on events are told.
  virtual void Start() = 0;
  // What else it could be, which the answer to a greeting tells the other end's stream; 0: nothing (kTakesRdma).
  virtual uint64_t abilities() const { return 0; }
  // Of one that opens: what it waits for, if this end knows more than that nobody answers.
  virtual std::string obstacle() const { return ""; }

  // Queues whole control frames (copied), which leave between DATA frames as soon as there is room.
  virtual void Say(const std::string& frames) = 0;
  // How much of them has not left.
  virtual size_t unsaid_bytes() const = 0;

  // Begins a DATA frame. `body` is read until sending() is false. REQUIRES has_room() and nothing unsaid.
  virtual void Send(const Frame& frame, const char* body) = 0;
  virtual bool sending() const = 0;
  // From now on what is left of it is read from a copy: `body` is the owner's again. Nothing to do where !sending().
  // Where that cannot be, the stream is lost by it, which OnStreamLost tells later.
  virtual void KeepBody() = 0;
  // The place behind all that was said and sent, which compares with Progress::bytes_acked.
  virtual uint64_t end() const = 0;
  // What is left of the DATA frame that is coming in goes nowhere; the stream may be lost by that, likewise.
  virtual void DropBody() = 0;
  virtual bool has_room() const = 0;
  // Goes on with what could not leave; finishes a dial. True when nothing waits.
  virtual bool Flush() = 0;

  // Gives what has arrived, without waiting for the wire's thread to wake.
  virtual void Poll() = 0;
  // While `polled`, the program calls Poll() all the time, and no thread is woken for what arrives.
  virtual void SetPolled(bool polled) = 0;
  virtual bool polled() const = 0;
  // Gives back to the wire what was taken longer than `age_ns` ago and still occupies its queue.
  virtual void Release(int64_t now_ns, int64_t age_ns) = 0;

  // False when there is nothing to tell. Is called with each tick once the stream is connected.
  virtual bool ReadProgress(Progress* progress) = 0;

  // After this nothing of the stream lands here, and nothing that was sent on it is sent again.
  virtual void Cut() = 0;
  // Says farewell and leaves what was sent to be delivered; cuts where it stands inside a frame or has no room.
  virtual void HangUp(const std::string& farewell) = 0;
};

// What carries the connections of one thread. Outlives them.
class Wire {
 public:
  virtual ~Wire() = default;
  // Begins to open a stream from `nic` to whoever listens at `remote`: OnConnected or OnNotConnected follows, not from
  // within. An error: this host cannot even begin.
  virtual Status Dial(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic, NicTraffic* traffic,
                      in_addr remote, uint16_t port, std::shared_ptr<Stream>* stream) = 0;
  // Has OnKick of `target` called soon, by the thread.
  virtual void Kick(std::shared_ptr<Kickable> target) = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_STREAM_H_
