// Max-min fair rates of flows over ports, recomputed only where something changed.
//
// A flow uses up to three ports (the sender's, the receiver's, and at most one of the pair of hosts).
// Progressive filling: the port with the least capacity per unfixed flow fixes its flows at that rate,
// its flows leave the other ports, and so on (Bertsekas & Gallager, Data Networks, 6.5.2).
//
// Invariants
//   1. A flow is listed by each of its ports, once, at the position it remembers.
//   2. After Refresh() every active flow's rate is the max-min fair one; between calls rates are stale
//      only in components that hold a dirty port.
//   3. A flow that stops and starts again before Refresh() never left: nothing is recomputed for it.
// Threads: none; one simulation owns one FairShare.
#ifndef R2CCL_SIMULATE_FAIR_SHARE_H_
#define R2CCL_SIMULATE_FAIR_SHARE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace r2ccl::simulate {

inline constexpr int kMaxPortsOfFlow = 3;

struct Flow {
  std::array<int32_t, kMaxPortsOfFlow> ports{};
  std::array<int32_t, kMaxPortsOfFlow> positions{};
  int32_t nports = 0;
  bool active = false;
  bool ending = false;  // stopped since the last Refresh()
  double rate = 0.0;    // bytes per second
};

class FairShare {
 public:
  using OnRate = std::function<void(int32_t flow, double rate)>;

  FairShare(int32_t nports, std::vector<Flow> flows);

  // REQUIRES: capacities has one value per port, in bytes per second.
  void SetCapacities(const double* capacities);

  // Returns the rate the flow already has if it goes on without a break, else 0 until Refresh().
  double Start(int32_t flow);
  void Stop(int32_t flow);

  // Recomputes the components around dirty ports; calls on_rate for each flow whose rate is a new one.
  void Refresh(const OnRate& on_rate);

 private:
  struct Port {
    double capacity = 0.0;
    double left = 0.0;
    int32_t unfixed = 0;
    bool dirty = false;
    bool visited = false;
    std::vector<int32_t> flows;

    double Share() const { return left > 0.0 ? left / unfixed : 0.0; }
  };

  void MarkDirty(int32_t port);
  void Remove(int32_t flow);
  void CollectComponent(int32_t seed);
  void FillComponent(const OnRate& on_rate);
  void Fix(int32_t flow, double rate, const OnRate& on_rate);

  std::vector<Port> ports_;
  std::vector<Flow> flows_;
  std::vector<char> fixed_;  // per flow, during Refresh
  std::vector<int32_t> dirty_;
  std::vector<int32_t> ending_;
  std::vector<int32_t> component_;
  std::vector<std::pair<double, int32_t>> levels_;
};

}  // namespace r2ccl::simulate

#endif  // R2CCL_SIMULATE_FAIR_SHARE_H_
