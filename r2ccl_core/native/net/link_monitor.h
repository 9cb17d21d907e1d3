// LinkMonitor: the kernel's events, through rtnetlink, that a NIC lost or regained its carrier, its address, or itself.
#ifndef R2CCL_NET_LINK_MONITOR_H_
#define R2CCL_NET_LINK_MONITOR_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "net/nic_table.h"
#include "net/socket.h"

struct nlmsghdr;

namespace r2ccl {

// Used by one thread. Open(), then call Drain() whenever fd() is readable, and Tick() now and then.
class LinkMonitor {
 public:
  explicit LinkMonitor(std::vector<Nic> nics) : table_(std::move(nics)) {}

  Status Open();
  int fd() const { return fd_.get(); }

  // Reads every message that waits, and says what became of which NIC.
  std::vector<NicChange> Drain();
  // The kernel dropped messages, or what it was asked for changed while it answered: asks it for everything again, ten
  // times a second at most.
  void Tick(int64_t now_ns);
  // As if the kernel had dropped messages.
  void Distrust() { distrusted_ = true; }

 private:
  enum class Asked { kNothing, kLinks, kAddresses };

  void Ask(Asked what);
  void Take(const nlmsghdr& message);
  void TakeLink(const nlmsghdr& message);
  void TakeAddress(const nlmsghdr& message);
  void EndAnswer(bool complete);

  Fd fd_;
  NicTable table_;
  Asked asked_ = Asked::kNothing;
  uint32_t number_ = 0;       // of the question
  bool interrupted_ = false;  // the answer is of different moments
  bool distrusted_ = false;
  int64_t asked_ns_ = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_NET_LINK_MONITOR_H_
