// LinkMonitor: the kernel's own word that an interface lost or regained its carrier, through rtnetlink.
#ifndef R2CCL_NET_LINK_MONITOR_H_
#define R2CCL_NET_LINK_MONITOR_H_

#include <functional>

#include "base/status.h"
#include "net/socket.h"

namespace r2ccl {

// Used by one thread. Open(), then call Drain() whenever fd() is readable.
class LinkMonitor {
 public:
  using OnLink = std::function<void(int ifindex, bool running)>;

  Status Open();
  int fd() const { return fd_.get(); }

  // Reads every message that waits and reports each interface's state. A deleted interface is not running.
  // When the kernel says that it dropped messages, asks for the state of all interfaces again.
  void Drain(const OnLink& on_link);

 private:
  void RequestAll();

  Fd fd_;
};

}  // namespace r2ccl

#endif  // R2CCL_NET_LINK_MONITOR_H_
