// Max-min fair rates of flows over ports, recomputed only where something changed.
//
// A flow uses up to three ports (the sender's, the receiver's, and at most one of the pair of hosts). A port's level is
// the rate L at which it holds its flows back: the sum of min(L, level of the flow's other ports) is its capacity, or L
// is infinite where its flows need less. A flow's rate is its ports' least level. Rates are max-min fair exactly if
// this holds at every port: the port whose level is the least of a flow's is full, and no other flow has more there.
//
// So a change is followed from port to port, only as far as rates do change, ports of low level first (they do not
// depend on the others). Where that would take longer, whole components are filled progressively: the port with the
// least capacity per unfixed flow fixes its flows at that rate, its flows leave the other ports, and so on (Bertsekas &
// Gallager, Data Networks, 6.5.2).
//
// Invariants
//   1. A flow is listed by each of its ports, once, at the position it remembers.
//   2. After Refresh() every active flow's rate is the max-min fair one and every port's level is as above, but for the
//      tolerance, relative to a rate: smaller changes are not made. Between calls both are stale around dirty ports.
//   3. A flow that stops and starts again before Refresh() never left: nothing is recomputed for it.
// Threads: none; one simulation owns one FairShare.
#ifndef R2CCL_SIMULATE_FAIR_SHARE_H_
#define R2CCL_SIMULATE_FAIR_SHARE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace r2ccl::simulate {

inline constexpr int kMaxPortsOfFlow = 3;

struct Flow {
  std::array<int32_t, kMaxPortsOfFlow> ports{};
  std::array<int32_t, kMaxPortsOfFlow> positions{};  // in the ports' lists
  int32_t nports = 0;
  bool active = false;
  bool ending = false;   // stopped since the last Refresh()
  bool changed = false;  // its rate is a new one, not yet told
  double rate = 0.0;     // bytes per second
};

class FairShare {
 public:
  using OnRate = std::function<void(int32_t flow, double rate)>;

  FairShare(int32_t nports, std::vector<Flow> flows, double tolerance);

  // REQUIRES: capacities has one value per port, in bytes per second.
  void SetCapacities(const double* capacities);

  // Returns the rate the flow already has if it goes on without a break, else 0 until Refresh().
  double Start(int32_t flow);
  void Stop(int32_t flow);

  // Recomputes what depends on dirty ports; calls on_rate once for each flow whose rate is a new one.
  void Refresh(const OnRate& on_rate);

 private:
  // A flow as one of its ports lists it, with what is asked of it most: a look at a port reads little else.
  struct Use {
    int32_t flow = 0;
    std::array<int32_t, kMaxPortsOfFlow - 1> others{};  // its other ports
    double rate = 0.0;                                  // as in the flow
  };

  struct Port {
    double capacity = 0.0;
    double left = 0.0;
    int32_t unfixed = 0;
    bool dirty = false;
    bool queued = false;
    bool visited = false;
    std::vector<Use> flows;

    double Share() const { return left > 0.0 ? left / unfixed : 0.0; }
  };

  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  void MarkDirty(int32_t port);
  void Remove(int32_t flow);
  bool Follow();
  double LevelOf(int32_t port);
  double LimitElsewhere(const Use& use) const;
  void SetLevel(int32_t port, double level);
  void SetRate(int32_t flow, double rate);
  void Enqueue(int32_t port, double key);
  int32_t Dequeue();
  void FillAround();
  void CollectComponent(int32_t seed);
  void FillComponent();
  void Fix(int32_t flow, double rate);

  std::vector<Port> ports_;
  std::vector<double> level_;  // per port, bytes per second
  std::vector<Flow> flows_;
  std::vector<char> fixed_;  // per flow, during Refresh
  double same_rate_;         // relative
  int32_t nothers_ = 1;      // that any flow has
  std::vector<int32_t> dirty_;
  std::vector<int32_t> ending_;
  std::vector<int32_t> changed_;
  std::vector<int32_t> component_;
  std::vector<std::pair<double, int32_t>> levels_;  // a heap, least first: ports to look at, or to fill from
  std::vector<double> limits_;
};

}  // namespace r2ccl::simulate

#endif  // R2CCL_SIMULATE_FAIR_SHARE_H_
