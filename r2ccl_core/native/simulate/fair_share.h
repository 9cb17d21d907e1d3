// Max-min fair sharing of full-duplex ports: which flow ends next, recomputed only where something changed.
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
// All flows that a port holds back have one rate, its level. So nothing is written for each of them when that changes:
// the port counts what it has served each of them (the integral of its level), and a flow ends when that count reaches
// the flow's own mark. Only flows that another port holds back from now on are touched.
//
// Invariants
//   1. A flow is listed by each of its ports, once, at the position it remembers.
//   2. After Refresh() every active flow is held by one port, and levels are as above, but for the tolerance: a change
//      of a level by a smaller part of it is followed only when such changes have added up to that.
//   3. A flow that stops and starts again before Refresh() never left: nothing is recomputed for it.
// Threads: none; one simulation owns one FairShare.
#ifndef R2CCL_SIMULATE_FAIR_SHARE_H_
#define R2CCL_SIMULATE_FAIR_SHARE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "simulate/event_heap.h"

namespace r2ccl::simulate {

inline constexpr int kMaxPortsOfFlow = 3;

struct Flow {
  std::array<int32_t, kMaxPortsOfFlow> ports{};
  std::array<int32_t, kMaxPortsOfFlow> places{};  // of its uses, one for each port
  int8_t nports = 0;
  int8_t holder = -1;  // which of its ports holds it back; none before its first Refresh()
  bool active = false;
  bool ending = false;  // ended since the last Refresh()
};

class FairShare {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  FairShare(int32_t nports, std::vector<Flow> flows, double tolerance);

  // REQUIRES: capacities has one value per port, in bytes per second.
  void SetCapacities(const double* capacities);

  // So many bytes begin to flow at time `now`. REQUIRES: the flow is not active, or has ended.
  void Start(int32_t flow, double bytes, double now);

  // When the next flow ends, as things stand; kNever if none does.
  double NextEnd() const { return ends_.empty() ? kNever : ends_.first_time(); }

  // Whether a flow is under way, if only at a rate of nothing.
  bool Busy() const { return nactive_ > 0; }

  // The flow that ends at NextEnd(), which is `now`.
  int32_t End(double now);

  // Recomputes what depends on ports that are dirty.
  void Refresh(double now);

 private:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kUnknown = -2;

  enum class Held : uint8_t { kNowhere, kHere, kElsewhere };

  // Of limits: those up to a rate.
  struct UpTo {
    double sum = 0.0;
    int32_t count = 0;
  };

  // Sums of limits that are made beside each other: the order of additions is the same on every machine.
  static constexpr int32_t kAbreast = 4;

  // Of a port, beside its level.
  struct Need {
    double drift = 0.0;  // how much more its flows need than when the level was set
    double slack = 0.0;  // of drift: what the tolerance leaves, or until the port is full
  };

  struct Port {
    double capacity = 0.0;
    double served = 0.0;  // bytes to each flow that it holds, until time `since`
    double since = 0.0;
    int32_t first = kNone;  // place of the held flow of least mark, or kUnknown
    int32_t begin = 0;      // its uses lie at [begin, end); as many more places as it may have flows are its own
    int32_t end = 0;
    int32_t unfixed = 0;  // these three while a component is filled
    double left = 0.0;
    double filled = 0.0;

    int32_t count() const { return end - begin; }
    double Share() const { return left > 0.0 ? left / unfixed : 0.0; }
  };

  void List(int32_t flow);
  void Unlist(int32_t flow, int32_t port, int32_t place);
  void Remove(int32_t flow, double now);
  bool Follow(double now);
  double LevelOf(int32_t port);
  double Waterfill(double capacity, int32_t all, double guess) const;
  UpTo LimitsUpTo(double rate, int32_t all) const;
  double LimitElsewhere(int32_t place) const;
  void SetLevel(int32_t port, double rate, double now);
  void HandOverAll(int32_t port, double before, double now);
  void HandOver(int32_t place, int32_t port, double limit, double before, double now);
  int32_t Least(int32_t place) const;
  void Hold(int32_t flow, int32_t port, double bytes, double now);
  void Mark(int32_t port, int32_t place, double bytes);
  double Release(int32_t flow, double now);
  void Serve(int32_t port, double now);
  void Drift(int32_t port, double change);
  void DriftOthers(int32_t place, double change);
  void Touch(int32_t port);
  void FindFirst(int32_t port);
  void SetEnd(int32_t port);
  void Enqueue(int32_t port, double key);
  int32_t Dequeue();
  void FillAround(double now);
  void CollectComponent(int32_t seed);
  void FillComponent();
  void Fix(int32_t flow, double rate);

  std::vector<Port> ports_;
  std::vector<double> levels_;  // by port, of each flow that it holds, bytes per second: what others read most
  std::vector<Need> needs_;     // by port
  std::vector<char> queued_, touched_, visited_;  // by port
  std::vector<Flow> flows_;
  std::vector<double> left_;  // by flow: its bytes, while no port holds it

  // Uses, by place: a flow as one of its ports lists it. Apart from each other, since a look at a port reads the first
  // two of all its flows and little else, and is bound by memory.
  std::vector<int32_t> others_;  // `nothers_` for each: the flow's other ports, the last once more where it has fewer
  std::vector<Held> held_;
  std::vector<double> marks_;  // what this port has served each of its flows when this one ends; kNever if not held
  std::vector<int32_t> flow_at_;

  EventHeap ends_;    // by port: when its first flow ends
  double tolerance_;  // relative
  bool in_order_;     // ports of low level are looked at first
  bool filling_ = false;
  int32_t nothers_ = 1;  // that any flow has
  int32_t nactive_ = 0;
  std::vector<int32_t> ending_;
  std::vector<int32_t> to_end_;                    // touched ports: their first end may have moved
  std::vector<std::pair<double, int32_t>> queue_;  // ports to look at, or to fill from; in order: a heap, least first
  std::vector<double> limits_;                     // of the flows of the port that is looked at, at their other ports
  std::vector<int32_t> doubtful_, component_, filled_;  // ports, while components are filled
  std::vector<char> fixed_;                             // by flow, likewise
};

}  // namespace r2ccl::simulate

#endif  // R2CCL_SIMULATE_FAIR_SHARE_H_
