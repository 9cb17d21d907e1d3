// Relay: a network between two ends that a test can break, without privileges and without hooks in the product.
//
// It listens on one loopback address per path and carries every stream that comes to the receiver's address of the same
// path. A silent path is a real black hole: a socket filter drops whatever arrives, so nothing is acknowledged and
// connection requests get no answer, just as behind a dead switch.
#ifndef R2CCL_TESTS_RELAY_H_
#define R2CCL_TESTS_RELAY_H_

#include <netinet/in.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "net/handle.h"
#include "net/socket.h"

namespace r2ccl {

enum class Cable {
  kGood,
  kSilent,   // both directions lose everything
  kMute,     // what the receiving end says is lost; the other direction works as far as TCP lets it
  kRefused,  // streams are reset, new ones at once
  kSlow,     // a trickle of bytes
  kStuck,    // nothing moves, but everything is acknowledged until the buffers are full
};

// Thread-safe. Its own thread moves the bytes.
class Relay {
 public:
  // Changes bytes on their way from the sending end: path, offset in the stream, data.
  using Mangle = std::function<void(int path, uint64_t offset, char* data, size_t bytes)>;

  // `target` is the receiver's handle. Throws std::runtime_error when the relay cannot listen.
  explicit Relay(const Handle& target);
  ~Relay();

  // The handle to give to the sender: as the target's, through the relay.
  const Handle& handle() const { return handle_; }
  void Set(int path, Cable wire);
  // Resets the streams of the path once; new ones are carried.
  void Reset(int path);
  void SetMangle(Mangle mangle);
  int paths() const { return static_cast<int>(handle_.addresses.size()); }
  int good_paths();

 private:
  struct Direction {
    std::vector<char> held;
    uint64_t passed = 0;
    bool ended = false;  // the source sent its last byte
    bool shut = false;   // and the other side was told
  };
  struct Stream {
    int path = 0;
    Fd sender;
    Fd receiver;
    Direction up;    // sender to receiver
    Direction down;  // receiver to sender
    bool broken = false;
  };

  void Run();
  void AcceptStreams(int path);
  void Carry(Stream& stream, Direction& direction, int from, int to, bool upwards);
  void ApplyFilters(Stream& stream);

  const Handle target_;
  Handle handle_;
  std::vector<Fd> listeners_;
  std::mutex mutex_;  // guards what follows
  std::vector<Cable> wires_;
  std::vector<std::unique_ptr<Stream>> streams_;
  Mangle mangle_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace r2ccl

#endif  // R2CCL_TESTS_RELAY_H_
