// Questions beside silent streams, one at a time for two NICs.
#include "failover/witness.h"

#include <algorithm>

namespace r2ccl {
namespace {

constexpr int64_t kLeastPatienceNs = 15 * kMillisecond;  // answers and repeated questions come with ticks of 5 ms

}  // namespace

int64_t Witness::AskedAnswerNs(int nic, const Target& peer, int64_t patience_ns) {
  if (peer.port == 0) return 0;
  std::pair key{nic, peer.address.s_addr};
  int64_t answered_ns = 0;
  {
    MutexLock lock(mutex_);
    Seen& seen = seen_[key];
    answered_ns = seen.answered_ns;
    if (seen.asking || clock_->Now() - answered_ns < patience_ns / 3) return answered_ns;
    seen.asking = true;
  }
  patience_ns = std::max(patience_ns, kLeastPatienceNs);
  asker_->Ask({nics_[static_cast<size_t>(nic)], peer, "", patience_ns}, [this, key](Answer answer, const Frame*) {
    MutexLock lock(mutex_);
    Seen& seen = seen_[key];
    seen.asking = false;
    if (IsAnswered(answer)) seen.answered_ns = clock_->Now();
  });
  return answered_ns;
}

}  // namespace r2ccl
