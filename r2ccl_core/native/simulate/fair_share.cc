// Max-min fair sharing of full-duplex ports: levels of ports, followed from port to port when a flow comes or goes.
#include "simulate/fair_share.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace r2ccl::simulate {
namespace {

// Shares closer than this are one level: symmetric schedules make many ports equal up to rounding.
constexpr double kSameLevel = 1.0 + 1e-12;

// A level that moved by less is kept in any case: rounding must not have half the network looked at at every event.
constexpr double kLeastTolerance = 1e-9;

// A change that has made ports be looked at so often, for every port there is, is not local: filling everything is
// faster.
constexpr size_t kLooksPerPort = 4;

}  // namespace

FairShare::FairShare(int32_t nports, std::vector<Flow> flows, double tolerance)
    : ports_(nports),
      levels_(nports, kUnlimited),
      needs_(nports),
      flows_(std::move(flows)),
      ends_(nports),
      tolerance_(std::max(kLeastTolerance, tolerance)),
      in_order_(tolerance <= 0.0),
      fixed_(flows_.size(), 0) {
  for (const Flow& flow : flows_) nothers_ = std::max(nothers_, flow.nports - 1);
}

void FairShare::SetCapacities(const double* capacities) {
  for (int32_t port = 0; port < static_cast<int32_t>(ports_.size()); ++port) {
    if (ports_[port].capacity == capacities[port]) continue;
    ports_[port].capacity = capacities[port];
    Enqueue(port, 0.0);
  }
}

void FairShare::Start(int32_t id, double bytes, double now) {
  Flow& flow = flows_[id];
  if (flow.active) {  // it goes on without a break
    flow.ending = false;
    const int32_t holder = flow.ports[flow.holder];
    Serve(holder, now);
    Mark(holder, flow.positions[flow.holder], bytes);
    Touch(holder);
    return;
  }
  List(id);
  flow.left = bytes;
  const Use& use = ports_[flow.ports[0]].flows.back();
  const int32_t least = levels_[flow.ports[0]] <= LimitElsewhere(use) ? flow.ports[0] : Least(use);
  if (levels_[least] < kUnlimited) {
    Hold(id, least, bytes, now);
    Drift(flow.ports[0], levels_[least]);
    DriftOthers(use, levels_[least]);
  } else {
    Enqueue(least, 0.0);
  }
}

void FairShare::List(int32_t id) {
  Flow& flow = flows_[id];
  flow.active = true;
  flow.holder = kNone;
  ++nactive_;
  for (int32_t i = 0; i < flow.nports; ++i) {
    Port& port = ports_[flow.ports[i]];
    flow.positions[i] = static_cast<int32_t>(port.flows.size());
    Use use;
    use.flow = id;
    use.others.fill(flow.ports[i == 0 ? 1 : 0]);  // once more where there is only one
    for (int32_t j = 0, other = 0; j < flow.nports; ++j) {
      if (j != i) use.others[other++] = flow.ports[j];
    }
    port.flows.push_back(use);
  }
}

int32_t FairShare::End(double now) {
  const int32_t id = ends_.first_id();
  Serve(id, now);
  Use& use = ports_[id].flows[ports_[id].first];
  use.mark = kNever;  // not the first to end any more
  flows_[use.flow].ending = true;
  ending_.push_back(use.flow);
  FindFirst(id);
  SetEnd(id);
  return use.flow;
}

void FairShare::Remove(int32_t id, double now) {
  Flow& flow = flows_[id];
  const double rate = levels_[flow.ports[flow.holder]];
  Release(id, now);
  flow.active = false;
  flow.ending = false;
  --nactive_;
  for (int32_t i = 0; i < flow.nports; ++i) {
    Port& port = ports_[flow.ports[i]];
    const int32_t hole = flow.positions[i];
    const Use moved = port.flows.back();
    port.flows[hole] = moved;
    port.flows.pop_back();
    if (port.first == static_cast<int32_t>(port.flows.size())) port.first = hole;
    Flow& other = flows_[moved.flow];
    for (int32_t j = 0; moved.flow != id && j < other.nports; ++j) {
      if (other.ports[j] == flow.ports[i]) other.positions[j] = hole;
    }
    Drift(flow.ports[i], -rate);
    Touch(flow.ports[i]);
  }
}

void FairShare::Refresh(double now) {
  for (const int32_t id : ending_) {
    if (flows_[id].ending) Remove(id, now);
  }
  ending_.clear();
  if (!Follow(now)) FillAround(now);
  for (const int32_t port : touched_) {
    ports_[port].touched = false;
    Serve(port, now);
    if (ports_[port].first == kUnknown) FindFirst(port);
    SetEnd(port);
  }
  touched_.clear();
}

// Settles levels, the lowest first; false where it gave up, with every port whose level is in doubt noted.
bool FairShare::Follow(double now) {
  for (size_t looks = 0; !queue_.empty(); ++looks) {
    const int32_t id = Dequeue();
    if (looks == kLooksPerPort * ports_.size()) {
      doubtful_.push_back(id);
      while (!queue_.empty()) doubtful_.push_back(Dequeue());
      return false;
    }
    const double rate = LevelOf(id);
    if (in_order_ && !queue_.empty() && rate > queue_.front().first * kSameLevel) {
      Enqueue(id, rate);  // after those that may yet change what it depends on
    } else {
      SetLevel(id, rate, now);
    }
  }
  return true;
}

void FairShare::Enqueue(int32_t id, double key) {
  if (ports_[id].queued) return;
  ports_[id].queued = true;
  queue_.emplace_back(key, id);
  if (in_order_) std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

int32_t FairShare::Dequeue() {
  if (in_order_) std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
  const int32_t id = queue_.back().second;
  queue_.pop_back();
  ports_[id].queued = false;
  return id;
}

// The level that this port should have, given those of the ports that its flows also use.
double FairShare::LevelOf(int32_t id) {
  const Port& port = ports_[id];
  limits_.resize(port.flows.size());
  double need = 0.0;
  for (size_t i = 0; i < limits_.size(); ++i) need += limits_[i] = LimitElsewhere(port.flows[i]);
  Need& own = needs_[id];
  own.drift = 0.0;
  own.slack = tolerance_ * port.capacity;
  if (need > port.capacity * kSameLevel) return Waterfill(port.capacity, levels_[id]);
  own.slack += port.capacity - need;
  return kUnlimited;
}

// The rate L at which the sum of min(L, limit) is the capacity, by Newton's method from `guess`: the sum is concave, so
// after one step the rate is too low if anything, and from then on only more flows can be held back elsewhere.
double FairShare::Waterfill(double capacity, double guess) const {
  const size_t all = limits_.size();
  double rate = guess;
  size_t below_before = 0;
  for (int step = 0;; ++step) {
    double used = 0.0;
    size_t below = 0;
    for (const double limit : limits_) {
      used += limit <= rate ? limit : 0.0;
      below += limit <= rate;
    }
    const bool settled = step == 1 ? below == below_before : below <= below_before;
    if (step > 0 && (settled || below == all)) return std::max(rate, 0.0);
    rate = below == all ? capacity / static_cast<double>(all) : (capacity - used) / static_cast<double>(all - below);
    below_before = below;
  }
}

double FairShare::LimitElsewhere(const Use& use) const {
  const double limit = levels_[use.others[0]];
  return nothers_ == 1 ? limit : std::min(limit, levels_[use.others[1]]);
}

// REQUIRES: limits_ are those of the port.
void FairShare::SetLevel(int32_t id, double rate, double now) {
  Serve(id, now);
  Touch(id);
  const double before = std::exchange(levels_[id], rate);
  std::vector<Use>& flows = ports_[id].flows;
  for (size_t i = 0; i < flows.size(); ++i) HandOver(&flows[i], id, limits_[i], before, now);
}

// After a change of the port's level: it holds the flow from now on, or another port does, or all stays as it is.
void FairShare::HandOver(Use* use, int32_t id, double limit, double before, double now) {
  const double rate = levels_[id];
  if (use->held == Held::kHere) {
    if (rate > limit * (1.0 + tolerance_)) {
      Hold(use->flow, Least(*use), Release(use->flow, now), now);
      DriftOthers(*use, limit - before);
    } else {
      DriftOthers(*use, rate - before);
    }
    return;
  }
  if (use->held == Held::kNowhere) {
    Hold(use->flow, rate <= limit ? id : Least(*use), flows_[use->flow].left, now);
    DriftOthers(*use, std::min(rate, limit));
  } else if (rate < limit * (1.0 - tolerance_)) {
    const double elsewhere = levels_[flows_[use->flow].ports[flows_[use->flow].holder]];
    Hold(use->flow, id, Release(use->flow, now), now);
    DriftOthers(*use, rate - elsewhere);
  }
}

// The one of least level among the flow's other ports.
int32_t FairShare::Least(const Use& use) const {
  return levels_[use.others[0]] <= levels_[use.others[1]] ? use.others[0] : use.others[1];
}

void FairShare::Hold(int32_t id, int32_t by, double bytes, double now) {
  Flow& flow = flows_[id];
  for (int32_t i = 0; i < flow.nports; ++i) {
    if (flow.ports[i] == by) {
      flow.holder = i;
    } else {
      ports_[flow.ports[i]].flows[flow.positions[i]].held = Held::kElsewhere;
    }
  }
  Serve(by, now);
  Touch(by);
  ports_[by].flows[flow.positions[flow.holder]].held = Held::kHere;
  Mark(by, flow.positions[flow.holder], bytes);
}

// REQUIRES: what the port has served is up to date.
void FairShare::Mark(int32_t id, int32_t position, double bytes) {
  Port& port = ports_[id];
  Use& use = port.flows[position];
  use.mark = port.served + bytes;
  if (port.first == kNone || (port.first >= 0 && use.mark < port.flows[port.first].mark)) port.first = position;
}

double FairShare::Release(int32_t id, double now) {
  const Flow& flow = flows_[id];
  const int32_t holder = flow.ports[flow.holder];
  Serve(holder, now);
  Touch(holder);
  Use& use = ports_[holder].flows[flow.positions[flow.holder]];
  use.held = Held::kElsewhere;
  if (ports_[holder].first == flow.positions[flow.holder]) ports_[holder].first = kUnknown;
  return std::max(0.0, use.mark - ports_[holder].served);
}

// Brings a port's count up to date, at the level that it had since.
void FairShare::Serve(int32_t id, double now) {
  Port& port = ports_[id];
  if (levels_[id] < kUnlimited) port.served += levels_[id] * (now - port.since);
  port.since = now;
}

// A port is looked at once such changes add up to more than it has slack for; less need matters only where it is full.
void FairShare::Drift(int32_t id, double change) {
  Need& need = needs_[id];
  need.drift += change;
  const bool counts = std::abs(need.drift) > need.slack && (need.drift > 0.0 || levels_[id] < kUnlimited);
  if (counts && !filling_) Enqueue(id, 0.0);
}

void FairShare::DriftOthers(const Use& use, double change) {
  for (int32_t i = 0; i < nothers_; ++i) Drift(use.others[i], change);
}

void FairShare::Touch(int32_t id) {
  if (ports_[id].touched) return;
  ports_[id].touched = true;
  touched_.push_back(id);
}

void FairShare::FindFirst(int32_t id) {
  Port& port = ports_[id];
  port.first = kNone;
  double least = kNever;
  for (size_t i = 0; i < port.flows.size(); ++i) {
    if (port.flows[i].held != Held::kHere || port.flows[i].mark >= least) continue;
    least = port.flows[i].mark;
    port.first = static_cast<int32_t>(i);
  }
}

// REQUIRES: what the port has served is up to date.
void FairShare::SetEnd(int32_t id) {
  const Port& port = ports_[id];
  const double rate = levels_[id];
  const bool ends = port.first >= 0 && rate > 0.0;
  ends_.Set(id, ends ? port.since + std::max(0.0, port.flows[port.first].mark - port.served) / rate : kNever);
}

void FairShare::FillAround(double now) {
  filling_ = true;
  for (const int32_t seed : doubtful_) {
    if (ports_[seed].visited) continue;
    component_.clear();
    CollectComponent(seed);
    FillComponent();
    for (const int32_t id : component_) Serve(id, now);
    for (const int32_t id : component_) std::swap(levels_[id], ports_[id].filled);
    for (const int32_t id : component_) {
      LevelOf(id);  // limits and slack
      Touch(id);
      std::vector<Use>& flows = ports_[id].flows;
      for (size_t i = 0; i < flows.size(); ++i) HandOver(&flows[i], id, limits_[i], ports_[id].filled, now);
    }
    for (const int32_t id : component_) needs_[id].drift = 0.0;
    visited_.insert(visited_.end(), component_.begin(), component_.end());
  }
  for (const int32_t port : visited_) ports_[port].visited = false;
  visited_.clear();
  doubtful_.clear();
  filling_ = false;
}

void FairShare::CollectComponent(int32_t seed) {
  ports_[seed].visited = true;
  component_.push_back(seed);
  for (size_t next = 0; next < component_.size(); ++next) {
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
  queue_.clear();
  for (const int32_t id : component_) {
    ports_[id].filled = kUnlimited;
    if (ports_[id].unfixed > 0) queue_.emplace_back(ports_[id].Share(), id);
  }
  std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const int32_t id = queue_.back().second;
    queue_.pop_back();
    Port& port = ports_[id];
    if (port.unfixed == 0) continue;
    const double share = port.Share();
    if (!queue_.empty() && share > queue_.front().first * kSameLevel) {
      queue_.emplace_back(share, id);
      std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
      continue;
    }
    port.filled = share;
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
}

}  // namespace r2ccl::simulate
