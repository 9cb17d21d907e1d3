#include "simulate/fair_share.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace r2ccl::simulate {
namespace {

// Shares closer than this are one level: symmetric schedules make many ports equal up to rounding.
constexpr double kSameLevel = 1.0 + 1e-12;

}  // namespace

FairShare::FairShare(int32_t nports, std::vector<Flow> flows)
    : ports_(nports), flows_(std::move(flows)), fixed_(flows_.size(), 0) {}

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

void FairShare::Start(int32_t id) {
  Flow& flow = flows_[id];
  flow.active = true;
  flow.rate = -1.0;  // no rate yet: the first one always counts as new
  for (int32_t i = 0; i < flow.nports; ++i) {
    Port& port = ports_[flow.ports[i]];
    flow.positions[i] = static_cast<int32_t>(port.flows.size());
    port.flows.push_back(id);
    MarkDirty(flow.ports[i]);
  }
}

void FairShare::Stop(int32_t id) {
  Flow& flow = flows_[id];
  flow.active = false;
  for (int32_t i = 0; i < flow.nports; ++i) {
    Port& port = ports_[flow.ports[i]];
    const int32_t hole = flow.positions[i];
    const int32_t moved = port.flows.back();
    port.flows[hole] = moved;
    port.flows.pop_back();
    Flow& other = flows_[moved];
    for (int32_t j = 0; moved != id && j < other.nports; ++j) {
      if (other.ports[j] == flow.ports[i]) other.positions[j] = hole;
    }
    MarkDirty(flow.ports[i]);
  }
}

void FairShare::Refresh(const OnRate& on_rate) {
  for (const int32_t seed : dirty_) {
    ports_[seed].dirty = false;
    if (ports_[seed].visited || ports_[seed].flows.empty()) continue;
    const size_t first = component_.size();
    CollectComponent(seed);
    std::vector<int32_t> ports(component_.begin() + static_cast<std::ptrdiff_t>(first), component_.end());
    component_.swap(ports);
    FillComponent(on_rate);
    component_.swap(ports);
  }
  for (const int32_t port : component_) ports_[port].visited = false;
  component_.clear();
  dirty_.clear();
}

void FairShare::CollectComponent(int32_t seed) {
  size_t next = component_.size();
  ports_[seed].visited = true;
  component_.push_back(seed);
  for (; next < component_.size(); ++next) {
    Port& port = ports_[component_[next]];
    port.left = port.capacity;
    port.unfixed = static_cast<int32_t>(port.flows.size());
    for (const int32_t id : port.flows) {
      fixed_[id] = 0;
      const Flow& flow = flows_[id];
      for (int32_t i = 0; i < flow.nports; ++i) {
        Port& neighbour = ports_[flow.ports[i]];
        if (neighbour.visited) continue;
        neighbour.visited = true;
        component_.push_back(flow.ports[i]);
      }
    }
  }
}

void FairShare::FillComponent(const OnRate& on_rate) {
  for (;;) {
    double level = std::numeric_limits<double>::infinity();
    for (const int32_t id : component_) {
      const Port& port = ports_[id];
      if (port.unfixed > 0) level = std::min(level, std::max(0.0, port.left) / port.unfixed);
    }
    if (level == std::numeric_limits<double>::infinity()) return;
    for (const int32_t id : component_) {
      const Port& port = ports_[id];
      if (port.unfixed == 0 || std::max(0.0, port.left) / port.unfixed > level * kSameLevel) continue;
      for (const int32_t flow : port.flows) {
        if (!fixed_[flow]) Fix(flow, level, on_rate);
      }
    }
  }
}

void FairShare::Fix(int32_t id, double rate, const OnRate& on_rate) {
  Flow& flow = flows_[id];
  fixed_[id] = 1;
  for (int32_t i = 0; i < flow.nports; ++i) {
    Port& port = ports_[flow.ports[i]];
    port.left -= rate;
    --port.unfixed;
  }
  if (flow.rate == rate) return;
  flow.rate = rate;
  on_rate(id, rate);
}

}  // namespace r2ccl::simulate
