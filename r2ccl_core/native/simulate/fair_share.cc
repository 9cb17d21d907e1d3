// Max-min fair sharing of full-duplex ports: the rates of all flows, recomputed when a flow comes or goes.
#include "simulate/fair_share.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace r2ccl::simulate {
namespace {

// Shares closer than this are one level: symmetric schedules make many ports equal up to rounding.
constexpr double kSameLevel = 1.0 + 1e-12;

// A rate that moved by less is kept in any case: rounding must not reschedule half the network at every event.
constexpr double kLeastSameRate = 1e-9;

// Rates that differ by so many tolerances are one: a fifth less work than with one, and no other result (256 hosts, 8
// and 16 trees; 128 hosts, 24 trees: within 0.2 % of each other, 0.1 to 0.4 % from the exact one either way).
constexpr double kRateTolerance = 4.0;

// A change that has made ports be looked at so often, for every port there is, is not local: filling everything is
// faster.
constexpr size_t kLooksPerPort = 4;

}  // namespace

FairShare::FairShare(int32_t nports, std::vector<Flow> flows, double tolerance)
    : ports_(nports),
      level_(nports, kUnlimited),
      flows_(std::move(flows)),
      fixed_(flows_.size(), 0),
      same_rate_(std::max(kLeastSameRate, kRateTolerance * tolerance)) {
  for (const Flow& flow : flows_) nothers_ = std::max(nothers_, flow.nports - 1);
}

void FairShare::SetCapacities(const double* capacities) {
  for (int32_t port = 0; port < static_cast<int32_t>(ports_.size()); ++port) {
    if (ports_[port].capacity == capacities[port]) continue;
    ports_[port].capacity = capacities[port];
    MarkDirty(port);
  }
}

void FairShare::MarkDirty(int32_t port) {
  if (ports_[port].dirty) return;
  ports_[port].dirty = true;
  dirty_.push_back(port);
}

double FairShare::Start(int32_t id) {
  Flow& flow = flows_[id];
  if (flow.active) {
    flow.ending = false;
    return flow.rate;
  }
  flow.active = true;
  flow.rate = -1.0;  // no rate yet: the first one always counts as new
  for (int32_t i = 0; i < flow.nports; ++i) {
    Port& port = ports_[flow.ports[i]];
    flow.positions[i] = static_cast<int32_t>(port.flows.size());
    Use use{id, {}, flow.rate};
    use.others.fill(flow.ports[i == 0 ? 1 : 0]);  // once more where there is only one
    for (int32_t j = 0, other = 0; j < flow.nports; ++j) {
      if (j != i) use.others[other++] = flow.ports[j];
    }
    port.flows.push_back(use);
    MarkDirty(flow.ports[i]);
  }
  return 0.0;
}

void FairShare::Stop(int32_t id) {
  flows_[id].ending = true;
  ending_.push_back(id);
}

void FairShare::Remove(int32_t id) {
  Flow& flow = flows_[id];
  flow.active = false;
  flow.ending = false;
  for (int32_t i = 0; i < flow.nports; ++i) {
    Port& port = ports_[flow.ports[i]];
    const int32_t hole = flow.positions[i];
    const Use moved = port.flows.back();
    port.flows[hole] = moved;
    port.flows.pop_back();
    Flow& other = flows_[moved.flow];
    for (int32_t j = 0; moved.flow != id && j < other.nports; ++j) {
      if (other.ports[j] == flow.ports[i]) other.positions[j] = hole;
    }
    MarkDirty(flow.ports[i]);
  }
}

void FairShare::Refresh(const OnRate& on_rate) {
  for (const int32_t id : ending_) {
    if (flows_[id].ending) Remove(id);
  }
  ending_.clear();
  if (!Follow()) FillAround();
  for (const int32_t id : changed_) {
    flows_[id].changed = false;
    on_rate(id, flows_[id].rate);
  }
  changed_.clear();
  for (const int32_t port : dirty_) ports_[port].dirty = false;
  dirty_.clear();
}

// Settles levels, the lowest first; false where it gave up, with every port whose level is in doubt marked dirty.
bool FairShare::Follow() {
  size_t looks_left = kLooksPerPort * ports_.size();
  levels_.clear();
  for (const int32_t id : dirty_) Enqueue(id, 0.0);
  while (!levels_.empty()) {
    const int32_t id = Dequeue();
    const double level = LevelOf(id);
    if (!levels_.empty() && level > levels_.front().first * kSameLevel) {
      Enqueue(id, level);  // after those that may yet change what it depends on
    } else {
      SetLevel(id, level);
    }
    if (--looks_left > 0) continue;
    while (!levels_.empty()) MarkDirty(Dequeue());
    return false;
  }
  return true;
}

void FairShare::Enqueue(int32_t id, double key) {
  if (ports_[id].queued) return;
  ports_[id].queued = true;
  levels_.emplace_back(key, id);
  std::push_heap(levels_.begin(), levels_.end(), std::greater<>());
}

int32_t FairShare::Dequeue() {
  std::pop_heap(levels_.begin(), levels_.end(), std::greater<>());
  const int32_t id = levels_.back().second;
  levels_.pop_back();
  ports_[id].queued = false;
  return id;
}

// The level that this port should have, given those of the ports that its flows also use. From below: flows that are
// held back elsewhere leave more to the others, which can only hold back more of them elsewhere.
double FairShare::LevelOf(int32_t id) {
  const Port& port = ports_[id];
  limits_.clear();
  double need = 0.0;
  for (const Use& use : port.flows) {
    limits_.push_back(LimitElsewhere(use));
    need += limits_.back();
  }
  if (need <= port.capacity * kSameLevel) return kUnlimited;
  double left = port.capacity;
  size_t waiting = limits_.size();
  for (double level = left / static_cast<double>(waiting);; level = left / static_cast<double>(waiting)) {
    const size_t before = waiting;
    for (size_t i = 0; i < waiting;) {
      if (limits_[i] > level) {
        ++i;
        continue;
      }
      left -= limits_[i];
      limits_[i] = limits_[--waiting];
    }
    if (waiting == before || waiting == 0) return std::max(level, 0.0);
  }
}

double FairShare::LimitElsewhere(const Use& use) const {
  const double limit = level_[use.others[0]];
  return nothers_ == 1 ? limit : std::min(limit, level_[use.others[1]]);
}

void FairShare::SetLevel(int32_t id, double level) {
  level_[id] = level;
  for (const Use& use : ports_[id].flows) {
    const double rate = std::min(level, LimitElsewhere(use));
    if (std::abs(use.rate - rate) <= same_rate_ * rate) continue;
    SetRate(use.flow, rate);
    for (int32_t i = 0; i < nothers_; ++i) Enqueue(use.others[i], 0.0);
  }
}

void FairShare::SetRate(int32_t id, double rate) {
  Flow& flow = flows_[id];
  flow.rate = rate;
  for (int32_t i = 0; i < flow.nports; ++i) ports_[flow.ports[i]].flows[flow.positions[i]].rate = rate;
  if (!flow.changed) changed_.push_back(id);
  flow.changed = true;
}

void FairShare::FillAround() {
  for (const int32_t seed : dirty_) {
    if (ports_[seed].visited || ports_[seed].flows.empty()) continue;
    const size_t first = component_.size();
    CollectComponent(seed);
    std::vector<int32_t> ports(component_.begin() + static_cast<std::ptrdiff_t>(first), component_.end());
    component_.swap(ports);
    FillComponent();
    component_.swap(ports);
  }
  for (const int32_t port : component_) ports_[port].visited = false;
  component_.clear();
}

void FairShare::CollectComponent(int32_t seed) {
  size_t next = component_.size();
  ports_[seed].visited = true;
  component_.push_back(seed);
  for (; next < component_.size(); ++next) {
    Port& port = ports_[component_[next]];
    port.left = port.capacity;
    port.unfixed = static_cast<int32_t>(port.flows.size());
    for (const Use& use : port.flows) {
      fixed_[use.flow] = 0;
      const Flow& flow = flows_[use.flow];
      for (int32_t i = 0; i < flow.nports; ++i) {
        Port& neighbour = ports_[flow.ports[i]];
        if (neighbour.visited) continue;
        neighbour.visited = true;
        component_.push_back(flow.ports[i]);
      }
    }
  }
}

// Shares only grow while flows are fixed at lower levels, so a port whose key in the heap is out of date
// comes up too early, never too late, and is put back.
void FairShare::FillComponent() {
  levels_.clear();
  for (const int32_t id : component_) {
    level_[id] = kUnlimited;
    if (ports_[id].unfixed > 0) levels_.emplace_back(ports_[id].Share(), id);
  }
  std::make_heap(levels_.begin(), levels_.end(), std::greater<>());
  while (!levels_.empty()) {
    std::pop_heap(levels_.begin(), levels_.end(), std::greater<>());
    const int32_t id = levels_.back().second;
    levels_.pop_back();
    Port& port = ports_[id];
    if (port.unfixed == 0) continue;
    const double share = port.Share();
    if (!levels_.empty() && share > levels_.front().first * kSameLevel) {
      levels_.emplace_back(share, id);
      std::push_heap(levels_.begin(), levels_.end(), std::greater<>());
      continue;
    }
    level_[id] = share;
    for (const Use& use : port.flows) {
      if (!fixed_[use.flow]) Fix(use.flow, share);
    }
  }
}

void FairShare::Fix(int32_t id, double rate) {
  Flow& flow = flows_[id];
  fixed_[id] = 1;
  for (int32_t i = 0; i < flow.nports; ++i) {
    Port& port = ports_[flow.ports[i]];
    port.left -= rate;
    --port.unfixed;
  }
  if (std::abs(flow.rate - rate) > same_rate_ * rate) SetRate(id, rate);
}

}  // namespace r2ccl::simulate
