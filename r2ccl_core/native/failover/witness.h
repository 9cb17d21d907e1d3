// Witness: whether a peer's NIC still answers, probed outside a stream that fell silent.
//
// A stream may be silent because the network between the NICs is gone, or because its kernel lost the same packet
// several times and waits for a timer, with nothing more that it may send. A separate, tiny connection over the same
// two NICs distinguishes the two.
#ifndef R2CCL_FAILOVER_WITNESS_H_
#define R2CCL_FAILOVER_WITNESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "net/asker.h"
#include "net/nic.h"
#include "net/wire.h"

namespace r2ccl {

// Thread-safe. The streams of all connections between two NICs share what was answered, and one question at a time.
// Outlives the asker's last answer.
class Witness {
 public:
  Witness(Asker* asker, std::shared_ptr<const Clock> clock, const std::vector<Nic>& nics)
      : asker_(asker), clock_(std::move(clock)), nics_(nics) {}

  // When `peer` last answered to the NIC, 0 while it never did. Asks again, unless it is being asked or answered within
  // a third of `patience_ns`, for which an answer is awaited.
  int64_t AskedAnswerNs(int nic, const Target& peer, int64_t patience_ns);

 private:
  struct Seen {
    bool asking = false;
    int64_t answered_ns = 0;
  };
  Asker* const asker_;
  const std::shared_ptr<const Clock> clock_;
  const std::vector<Nic>& nics_;
  Mutex mutex_;                                                       // guards what follows; nothing is locked under it
  std::map<std::pair<int, uint32_t>, Seen> seen_ GUARDED_BY(mutex_);  // by NIC and the peer's address
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_WITNESS_H_
