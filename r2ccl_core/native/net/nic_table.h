// NicTable: where our NICs are now, according to the kernel's interfaces and addresses. Pure.
//
// A NIC is identified by its address. It is on the interface that holds the address: the previous one while that holds
// it, otherwise the one with the same name, otherwise any other. So it may be deleted and made again, moved to a
// namespace and back, or renamed, and its address may move to a bridge or a bond above it: it remains the same NIC, and
// whatever is bound to it follows.
#ifndef R2CCL_NET_NIC_TABLE_H_
#define R2CCL_NET_NIC_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "net/nic.h"

namespace r2ccl {

// What became of one NIC. Both may be true: it was lost and is back, or it is on another interface.
struct NicChange {
  int nic = 0;
  bool lost = false;     // streams that were open over it may be dead
  bool running = false;  // it can carry bytes now
  std::string why;       // of the loss, or where the NIC is now; one line
};

// Not thread-safe, but for the NICs' indices, which it keeps up to date.
class NicTable {
 public:
  explicit NicTable(std::vector<Nic> nics);

  // `loopback`: all of 127/8 is on it.
  void SetLink(int ifindex, const std::string& name, bool running, bool loopback);
  void DropLink(int ifindex);
  void AddAddress(int ifindex, in_addr address);
  void DropAddress(int ifindex, in_addr address);

  // What the kernel does not tell of between the two is gone: a word may have been lost. Nothing is known, and nothing
  // reported, before the first EndSync.
  void BeginSync() { ++sync_; }
  void EndSync();

  // What happened since the last call. An address that went and is back on the same interface was not away (the kernel
  // does so with secondary addresses when the first one goes); a link that was down was, even for a moment.
  std::vector<NicChange> TakeChanges();

 private:
  struct Link {
    std::string name;
    bool running = false;
    bool loopback = false;
    uint64_t sync = 0;
  };
  struct Seat {
    Nic nic;
    int ifindex = 0;  // 0: nowhere
    bool running = true;
    bool dipped = false;  // its link was down or gone since the last report
  };

  int Find(const Seat& seat) const;
  bool Prefers(const Seat& seat, int ifindex, int best) const;
  std::string Explain(const Seat& seat, bool lost) const;

  std::vector<Seat> seats_;
  std::map<int, Link> links_;
  std::map<std::pair<in_addr_t, int>, uint64_t> addresses_;  // with the interface, to the sync that told of it
  uint64_t sync_ = 0;
  bool synced_ = false;
};

}  // namespace r2ccl

#endif  // R2CCL_NET_NIC_TABLE_H_
