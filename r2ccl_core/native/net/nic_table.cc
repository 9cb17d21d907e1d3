// Which interface holds a NIC's address, and whether that changed.
#include "net/nic_table.h"

#include <utility>

namespace r2ccl {
namespace {

bool IsLoopback(in_addr_t address) { return ntohl(address) >> 24 == 127; }

}  // namespace

NicTable::NicTable(std::vector<Nic> nics) {
  for (Nic& nic : nics) {
    int ifindex = nic.ifindex.get();
    seats_.push_back({.nic = std::move(nic), .ifindex = ifindex});
  }
}

void NicTable::SetLink(int ifindex, const std::string& name, bool running, bool loopback) {
  links_[ifindex] = {name, running, loopback, sync_};
  for (Seat& seat : seats_) seat.dipped |= !running && seat.ifindex == ifindex;
}

void NicTable::DropLink(int ifindex) {
  links_.erase(ifindex);
  std::erase_if(addresses_, [ifindex](const auto& held) { return held.first.second == ifindex; });
  for (Seat& seat : seats_) seat.dipped |= seat.ifindex == ifindex;
}

void NicTable::AddAddress(int ifindex, in_addr address) { addresses_[{address.s_addr, ifindex}] = sync_; }

void NicTable::DropAddress(int ifindex, in_addr address) { addresses_.erase({address.s_addr, ifindex}); }

void NicTable::EndSync() {
  std::vector<int> gone;
  for (const auto& [ifindex, link] : links_) {
    if (link.sync != sync_) gone.push_back(ifindex);
  }
  for (int ifindex : gone) DropLink(ifindex);
  std::erase_if(addresses_, [this](const auto& held) { return held.second != sync_; });
  synced_ = true;
}

bool NicTable::Prefers(const Seat& seat, int ifindex, int best) const {
  if (best == 0 || ifindex == seat.ifindex) return true;
  return best != seat.ifindex && links_.at(ifindex).name == seat.nic.name;
}

int NicTable::Find(const Seat& seat) const {
  in_addr_t address = seat.nic.address.s_addr;
  int best = 0;
  for (auto held = addresses_.lower_bound({address, 0}); held != addresses_.end(); ++held) {
    auto [other, ifindex] = held->first;
    if (other != address) break;
    if (links_.contains(ifindex) && Prefers(seat, ifindex, best)) best = ifindex;
  }
  if (best != 0 || !IsLoopback(address)) return best;
  for (const auto& [ifindex, link] : links_) {
    if (link.loopback) return ifindex;
  }
  return 0;
}

std::string NicTable::Explain(const Seat& seat, bool lost) const {
  std::string address = ToString(seat.nic.address);
  auto link = links_.find(seat.ifindex);
  if (link == links_.end()) return "no interface has the address " + address;
  if (!link->second.running) return link->second.name + " is down or has no carrier";
  std::string where = link->second.name + ", interface " + std::to_string(seat.ifindex);
  return (lost ? "it went and came back: " : "") + address + " is on " + where;
}

std::vector<NicChange> NicTable::TakeChanges() {
  std::vector<NicChange> changes;
  if (!synced_) return changes;
  for (size_t i = 0; i < seats_.size(); ++i) {
    Seat& seat = seats_[i];
    int before = std::exchange(seat.ifindex, Find(seat));
    bool was_running = std::exchange(seat.running, seat.ifindex != 0 && links_.at(seat.ifindex).running);
    bool moved = before != 0 && seat.ifindex != before;
    seat.nic.ifindex.Set(seat.ifindex);
    bool lost = was_running && (std::exchange(seat.dipped, false) || moved || !seat.running);
    seat.dipped = false;
    if (!lost && was_running == seat.running) continue;
    changes.push_back({static_cast<int>(i), lost, seat.running, Explain(seat, lost)});
  }
  return changes;
}

}  // namespace r2ccl
