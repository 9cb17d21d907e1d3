// Pair: two ends of a connection in one process, on loopback addresses as NICs, with the relay in between; and the
// traffic that proves that every byte arrives once, in order, and that no buffer is touched too long.
#ifndef R2CCL_TESTS_PAIR_H_
#define R2CCL_TESTS_PAIR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "relay.h"
#include "transport/net.h"

namespace r2ccl {

// R2CCL_TEST_SEED, or 1. Tests that draw random numbers print it when they fail.
uint64_t TestSeed();

// Calls `condition` until it is true; false after `seconds`, which is longer than anything here may take.
bool Until(const std::function<bool()>& condition, double seconds = 120);

// 127.0.<host>.1 to 127.0.<host>.<count> on the loopback interface.
std::vector<Nic> LoopbackNics(int host, int count);

// Parameters with timers short enough for tests.
Params QuickParams(int mode);

// As QuickParams, for tests in which no path may be lost: a starved machine must not look like a dead path, nor a
// stream whose greeting is late like a stranger.
Params PatientParams(int mode);

size_t CountEvents(Net& net, const std::string& kind);
bool AnyEvent(Net& net, const std::string& kind, const std::string& text);

struct Pair {
  Pair(const Params& sender, const Params& receiver, int paths);
  explicit Pair(const Params& params, int paths = 3) : Pair(params, params, paths) {}
  ~Pair();

  // Connects and accepts, and waits until every path is up that the relay carries well. The status is the first error
  // of either end.
  Status Open(double seconds = 120);
  void PrintLogs();  // as is done at the end of a test that failed
  int PathsUp();     // seen up by both ends

  std::shared_ptr<Net> sender;
  std::shared_ptr<Net> receiver;
  std::shared_ptr<Listener> listener;
  std::unique_ptr<Relay> relay;
  std::shared_ptr<SendComm> send;
  std::shared_ptr<RecvComm> recv;
};

struct TrafficOptions {
  std::vector<uint64_t> sizes;
  uint64_t seed = 1;
  size_t sends_ahead = 16;
  size_t receives_ahead = 16;
  uint64_t extra_capacity = 0;  // receives are larger than the messages by this
  double seconds = 60;
};

// Sends the messages and receives them. As soon as a send completes its source is overwritten, so a late replay
// would be seen; a received buffer is checked, overwritten, and at the end must still be as it was left.
class Traffic {
 public:
  using During = std::function<void(uint64_t received_bytes)>;

  // Over a SendComm and a RecvComm, or what offers the same.
  template <typename Sender, typename Receiver>
  Traffic(Sender& sender, Receiver& receiver, TrafficOptions options)
      : isend_([&sender](const void* data, uint64_t size, Request** made) { return sender.Isend(data, size, made); }),
        irecv_(
            [&receiver](void* data, uint64_t most, Request** made) { return receiver.Irecv(data, most, made, false); }),
        options_(std::move(options)) {}

  // Until all is done or an end fails. `during` is called again and again. Empty when right, else what is wrong.
  std::string Run(const During& during = nullptr);

  Status send_status;
  Status recv_status;

 private:
  struct Slot {
    uint64_t number;
    std::vector<char> buffer;
    Request* request;
  };

  bool PostSends();
  bool PostReceives();
  bool ReapSends();
  bool ReapReceives(std::string* wrong);
  void FillMessage(uint64_t number, std::vector<char>* out) const;

  const std::function<Status(const void*, uint64_t, Request**)> isend_;
  const std::function<Status(void*, uint64_t, Request**)> irecv_;
  const TrafficOptions options_;
  std::deque<Slot> sends_;
  std::deque<Slot> receives_;
  std::vector<std::vector<char>> finished_;  // overwritten buffers that nobody may touch
  uint64_t next_send_ = 0;
  uint64_t next_receive_ = 0;
  uint64_t received_bytes_ = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_TESTS_PAIR_H_
