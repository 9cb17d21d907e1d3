// Max-min fair sharing of full-duplex ports: levels of ports, followed from port to port when a flow comes or goes.
#include "simulate/fair_share.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

// Two beside each other, as any 64-bit processor has them.
using Pair = double __attribute__((vector_size(16)));
using Mask = int64_t __attribute__((vector_size(16)));

}  // namespace

FairShare::FairShare(int32_t nports, std::vector<Flow> flows, double tolerance)
    : ports_(nports),
      levels_(nports, kUnlimited),
      needs_(nports),
      queued_(nports, 0),
      touched_(nports, 0),
      visited_(nports, 0),
      flows_(std::move(flows)),
      left_(flows_.size(), 0.0),
      ends_(nports),
      tolerance_(std::max(kLeastTolerance, tolerance)),
      in_order_(tolerance <= 0.0),
      fixed_(flows_.size(), 0) {
  for (const Flow& flow : flows_) {
    nothers_ = std::max(nothers_, flow.nports - 1);
    for (int32_t i = 0; i < flow.nports; ++i) ++ports_[flow.ports[i]].end;
  }
  int32_t places = 0, most = 0;
  for (Port& port : ports_) {
    most = std::max(most, port.end);
    port.begin = std::exchange(places, places + port.end);
    port.end = port.begin;
  }
  others_.resize(places * nothers_);
  held_.resize(places, Held::kNowhere);
  marks_.resize(places, kNever);
  flow_at_.resize(places, kNone);
  limits_.resize(most + kAbreast);
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
    Mark(holder, flow.places[flow.holder], bytes);
    Touch(holder);
    return;
  }
  List(id);
  const int32_t place = flow.places[0];
  const int32_t least = levels_[flow.ports[0]] <= LimitElsewhere(place) ? flow.ports[0] : Least(place);
  if (levels_[least] < kUnlimited) {
    Hold(id, least, bytes, now);
    Drift(flow.ports[0], levels_[least]);
    DriftOthers(place, levels_[least]);
  } else {
    left_[id] = bytes;
    Enqueue(least, 0.0);
  }
}

void FairShare::List(int32_t id) {
  Flow& flow = flows_[id];
  flow.active = true;
  flow.holder = kNone;
  ++nactive_;
  for (int32_t i = 0; i < flow.nports; ++i) {
    const int32_t place = ports_[flow.ports[i]].end++;
    flow.places[i] = place;
    flow_at_[place] = id;
    held_[place] = Held::kNowhere;
    marks_[place] = kNever;
    int32_t* others = &others_[place * nothers_];
    int32_t* const end = others + nothers_;
    for (int32_t j = 0; j < flow.nports; ++j) {
      if (j != i) *others++ = flow.ports[j];
    }
    while (others != end) *others++ = flow.ports[i == 0 ? 1 : 0];
  }
}

int32_t FairShare::End(double now) {
  const int32_t id = ends_.first_id();
  Serve(id, now);
  const int32_t place = ports_[id].first;
  marks_[place] = kNever;  // not the first to end any more
  const int32_t flow = flow_at_[place];
  flows_[flow].ending = true;
  ending_.push_back(flow);
  FindFirst(id);
  SetEnd(id);
  return flow;
}

void FairShare::Remove(int32_t id, double now) {
  Flow& flow = flows_[id];
  const double rate = levels_[flow.ports[flow.holder]];
  Release(id, now);
  flow.active = false;
  flow.ending = false;
  --nactive_;
  for (int32_t i = 0; i < flow.nports; ++i) {
    Unlist(id, flow.ports[i], flow.places[i]);
    Drift(flow.ports[i], -rate);
    Touch(flow.ports[i]);
  }
}

// The port's last use takes the place.
void FairShare::Unlist(int32_t id, int32_t port_id, int32_t hole) {
  Port& port = ports_[port_id];
  const int32_t last = --port.end;
  if (port.first == last) port.first = hole;
  const int32_t moved = flow_at_[last];
  if (moved == id) return;
  flow_at_[hole] = moved;
  held_[hole] = held_[last];
  marks_[hole] = marks_[last];
  for (int32_t i = 0; i < nothers_; ++i) others_[hole * nothers_ + i] = others_[last * nothers_ + i];
  Flow& other = flows_[moved];
  for (int32_t i = 0; i < other.nports; ++i) {
    if (other.ports[i] == port_id) other.places[i] = hole;
  }
}

void FairShare::Refresh(double now) {
  for (const int32_t id : ending_) {
    if (flows_[id].ending) Remove(id, now);
  }
  ending_.clear();
  if (!Follow(now)) FillAround(now);
  for (const int32_t port : to_end_) {
    touched_[port] = 0;
    Serve(port, now);
    if (ports_[port].first == kUnknown) FindFirst(port);
    SetEnd(port);
  }
  to_end_.clear();
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
  if (queued_[id]) return;
  queued_[id] = 1;
  queue_.emplace_back(key, id);
  if (in_order_) std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

int32_t FairShare::Dequeue() {
  if (in_order_) std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
  const int32_t id = queue_.back().second;
  queue_.pop_back();
  queued_[id] = 0;
  return id;
}

// The level that this port should have, given those of the ports that its flows also use.
double FairShare::LevelOf(int32_t id) {
  const Port& port = ports_[id];
  const int32_t all = port.count();
  for (int32_t i = 0; i < all; ++i) limits_[i] = LimitElsewhere(port.begin + i);
  for (int32_t i = all; i % kAbreast != 0; ++i) limits_[i] = kUnlimited;
  Need& own = needs_[id];
  own.drift = 0.0;
  own.slack = tolerance_ * port.capacity;
  const UpTo finite = LimitsUpTo(std::numeric_limits<double>::max(), all);
  if (finite.count < all || finite.sum > port.capacity * kSameLevel) return Waterfill(port.capacity, all, levels_[id]);
  own.slack = std::max(kLeastTolerance * port.capacity, port.capacity - finite.sum);
  return kUnlimited;
}

// The rate L at which the sum of min(L, limit) is the capacity, by Newton's method from `guess`: the sum is concave, so
// after one step the rate is too low if anything, and from then on only more flows can be held back elsewhere.
double FairShare::Waterfill(double capacity, int32_t all, double guess) const {
  UpTo below = guess < kUnlimited ? LimitsUpTo(guess, all) : UpTo{0.0, all};
  for (int step = 1;; ++step) {
    const double rate = below.count == all ? capacity / all : (capacity - below.sum) / (all - below.count);
    const int32_t before = below.count;
    below = LimitsUpTo(rate, all);
    const bool settled = step == 1 ? below.count == before : below.count <= before;
    if (settled || below.count == all) return std::max(rate, 0.0);
  }
}

// REQUIRES: a finite rate; the limits are followed by unlimited ones up to a multiple of kAbreast.
FairShare::UpTo FairShare::LimitsUpTo(double rate, int32_t all) const {
  const Pair most = {rate, rate};
  Pair sums[2] = {};
  Mask counts[2] = {};
  for (int32_t i = 0; i < all; i += kAbreast) {
    for (int32_t j = 0; j < 2; ++j) {
      Pair limits;
      std::memcpy(&limits, &limits_[i + 2 * j], sizeof(limits));
      const Mask within = limits <= most;  // -1 or 0
      sums[j] += reinterpret_cast<Pair>(reinterpret_cast<Mask>(limits) & within);
      counts[j] -= within;
    }
  }
  return {(sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]),
          static_cast<int32_t>(counts[0][0] + counts[0][1] + counts[1][0] + counts[1][1])};
}

double FairShare::LimitElsewhere(int32_t place) const {
  if (nothers_ == 1) return levels_[others_[place]];
  return std::min(levels_[others_[2 * place]], levels_[others_[2 * place + 1]]);
}

// REQUIRES: limits_ are those of the port.
void FairShare::SetLevel(int32_t id, double rate, double now) {
  Serve(id, now);
  Touch(id);
  HandOverAll(id, std::exchange(levels_[id], rate), now);
}

// After a change of the port's level: it holds a flow from now on, or another port does, or all stays as it is. What
// stays is the most and costs no jump that a processor could guess wrong. No tolerance here: a flow that another port
// holds back more would always be served too fast.
void FairShare::HandOverAll(int32_t id, double before, double now) {
  const double rate = levels_[id], change = rate - before;
  const double more = 1.0 + kLeastTolerance, less = 1.0 - kLeastTolerance;
  const int32_t begin = ports_[id].begin, end = ports_[id].end;
  for (int32_t place = begin; place < end; ++place) {
    const double limit = limits_[place - begin];
    const Held held = held_[place];
    const bool here = held == Held::kHere;
    const bool moves = (here & (rate > limit * more)) | (!here & (rate < limit * less)) | (held == Held::kNowhere);
    if (moves) {
      HandOver(place, id, limit, before, now);
    } else {
      DriftOthers(place, here ? change : 0.0);
    }
  }
}

void FairShare::HandOver(int32_t place, int32_t id, double limit, double before, double now) {
  const double rate = levels_[id];
  const int32_t flow = flow_at_[place];
  if (held_[place] == Held::kHere) {
    Hold(flow, Least(place), Release(flow, now), now);
    DriftOthers(place, limit - before);
  } else if (held_[place] == Held::kNowhere) {
    Hold(flow, rate <= limit ? id : Least(place), left_[flow], now);
    DriftOthers(place, std::min(rate, limit));
  } else {
    const double elsewhere = levels_[flows_[flow].ports[flows_[flow].holder]];
    Hold(flow, id, Release(flow, now), now);
    DriftOthers(place, rate - elsewhere);
  }
}

// The one of least level among the flow's other ports.
int32_t FairShare::Least(int32_t place) const {
  const int32_t* others = &others_[place * nothers_];
  return levels_[others[0]] <= levels_[others[nothers_ - 1]] ? others[0] : others[nothers_ - 1];
}

void FairShare::Hold(int32_t id, int32_t by, double bytes, double now) {
  Flow& flow = flows_[id];
  for (int8_t i = 0; i < flow.nports; ++i) {
    if (flow.ports[i] == by) {
      flow.holder = i;
    } else {
      held_[flow.places[i]] = Held::kElsewhere;
    }
  }
  Serve(by, now);
  Touch(by);
  held_[flow.places[flow.holder]] = Held::kHere;
  Mark(by, flow.places[flow.holder], bytes);
}

// REQUIRES: what the port has served is up to date.
void FairShare::Mark(int32_t id, int32_t place, double bytes) {
  Port& port = ports_[id];
  const double mark = marks_[place] = port.served + bytes;
  if (port.first == kNone || (port.first >= 0 && mark < marks_[port.first])) port.first = place;
}

double FairShare::Release(int32_t id, double now) {
  const Flow& flow = flows_[id];
  const int32_t holder = flow.ports[flow.holder], place = flow.places[flow.holder];
  Serve(holder, now);
  Touch(holder);
  held_[place] = Held::kElsewhere;
  if (ports_[holder].first == place) ports_[holder].first = kUnknown;
  return std::max(0.0, std::exchange(marks_[place], kNever) - ports_[holder].served);
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

void FairShare::DriftOthers(int32_t place, double change) {
  for (int32_t i = 0; i < nothers_; ++i) Drift(others_[place * nothers_ + i], change);
}

void FairShare::Touch(int32_t id) {
  if (touched_[id]) return;
  touched_[id] = 1;
  to_end_.push_back(id);
}

void FairShare::FindFirst(int32_t id) {
  Port& port = ports_[id];
  port.first = kNone;
  double least = kNever;
  for (int32_t place = port.begin; place < port.end; ++place) {
    if (marks_[place] >= least) continue;
    least = marks_[place];
    port.first = place;
  }
}

// REQUIRES: what the port has served is up to date.
void FairShare::SetEnd(int32_t id) {
  const Port& port = ports_[id];
  const double rate = levels_[id];
  const bool ends = port.first >= 0 && rate > 0.0;
  ends_.Set(id, ends ? port.since + std::max(0.0, marks_[port.first] - port.served) / rate : kNever);
}

void FairShare::FillAround(double now) {
  filling_ = true;
  for (const int32_t seed : doubtful_) {
    if (visited_[seed]) continue;
    component_.clear();
    CollectComponent(seed);
    FillComponent();
    for (const int32_t id : component_) Serve(id, now);
    for (const int32_t id : component_) std::swap(levels_[id], ports_[id].filled);
    for (const int32_t id : component_) {
      LevelOf(id);  // limits and slack
      Touch(id);
      HandOverAll(id, ports_[id].filled, now);
    }
    for (const int32_t id : component_) needs_[id].drift = 0.0;
    filled_.insert(filled_.end(), component_.begin(), component_.end());
  }
  for (const int32_t port : filled_) visited_[port] = 0;
  filled_.clear();
  doubtful_.clear();
  filling_ = false;
}

void FairShare::CollectComponent(int32_t seed) {
  visited_[seed] = 1;
  component_.push_back(seed);
  for (size_t next = 0; next < component_.size(); ++next) {
    Port& port = ports_[component_[next]];
    port.left = port.capacity;
    port.unfixed = port.count();
    for (int32_t place = port.begin; place < port.end; ++place) {
      fixed_[flow_at_[place]] = 0;
      const Flow& flow = flows_[flow_at_[place]];
      for (int32_t i = 0; i < flow.nports; ++i) {
        if (std::exchange(visited_[flow.ports[i]], 1)) continue;
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
    for (int32_t place = port.begin; place < port.end; ++place) {
      if (!fixed_[flow_at_[place]]) Fix(flow_at_[place], share);
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
