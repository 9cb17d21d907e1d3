// OwnShare: which messages of a connection the program's own thread moves, so that no I/O thread has to be woken.
#ifndef R2CCL_FAILOVER_OWN_SHARE_H_
#define R2CCL_FAILOVER_OWN_SHARE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace r2ccl {

// The program's thread serves all its connections, so it moves what is little: while it writes much to one, the others
// wait, and several I/O threads are faster. If it uses one connection at a time, as for messages between two hosts,
// nothing else waits, and a larger message takes it less time than it takes to wake a thread at both ends.
class OwnShare {
 public:
  static constexpr uint64_t kAloneBytes = 32768;    // of a message
  static constexpr uint64_t kAloneFlight = 262144;  // of all that are not acknowledged yet
  static constexpr int kAloneRun = 16;              // messages in a row, after which smaller ones count as alone, too

  // Whether the last messages of the program all went over this connection.
  bool is_alone() const { return run_.load(std::memory_order_relaxed) == kAloneRun; }

  // Of a message of `size` bytes that follows `before` unacknowledged ones. `alone`: the program's last message went
  // over the same connection. Up to `most` bytes two in a row say little: pieces for many connections may come so by
  // chance, but not many of them.
  bool Takes(uint64_t before, uint64_t size, uint64_t most, bool alone) {
    bool little = before + size <= (little_.load(std::memory_order_relaxed) ? most : most / 4);
    little_.store(little, std::memory_order_relaxed);
    int run = alone ? std::min(run_.load(std::memory_order_relaxed) + 1, kAloneRun) : 0;
    run_.store(run, std::memory_order_relaxed);
    bool more = alone && (size > most || run == kAloneRun);
    return little || (more && size <= kAloneBytes && before + size <= kAloneFlight);
  }

 private:
  std::atomic<bool> little_{true};
  std::atomic<int> run_{0};
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_OWN_SHARE_H_
