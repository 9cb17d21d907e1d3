// What failures and sick NICs cost AllReduces, call by call, in virtual time: as tests/gpu/campaign.py and
// tests/native/sick.py measure it on real NICs.
#ifndef R2CCL_WIRE_SIMULATED_BENCH_CALLS_H_
#define R2CCL_WIRE_SIMULATED_BENCH_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "wire/simulated/explore.h"

namespace r2ccl::simulated {

// Something that happens to one NIC, for good.
struct NamedTrouble {
  std::string name;
  Trouble kind = Trouble::kLinkDown;
  double amount = 0;
};

// AllReduces of 1 MiB without end over four NICs of 4 Gbit/s, and the trouble of one of them. The seed draws the NIC
// and the moment. Two hosts are as tests/gpu/campaign.py has them: NCCL's eight connections, and token buckets of 2 ms.
Scenario CallsWith(const NamedTrouble& trouble, int hosts, uint64_t seed);

// Three hosts that call AllReduce without end over slower NICs, whose token bucket lets a chunk go at once.
struct CallGroup {
  std::string name;  // what its lines begin with
  size_t bytes = 0;  // of a call
  int rails = 0;
  double bytes_per_ns = 0;
};
// The first has two NICs, of which losing one is half; in the others calls are so small that nothing is late for long.
std::vector<CallGroup> CallGroups();
Scenario CallsOf(const CallGroup& group, const NamedTrouble& trouble, uint64_t seed);

// Groups of the same kind on healthy NICs, of which two connections share one while others have one for themselves:
// what a NIC's own queue explains is no sickness.
std::vector<CallGroup> HealthyGroups();
// Calls per second over two seconds in which a NIC has that trouble: none, or its death. In even seeds NICs have a
// token bucket.
double CallsWhileWell(const CallGroup& group, const NamedTrouble& trouble, uint64_t seed, std::string* wrong);

// The time that the call which it hits takes longer than calls do, in ms.
double CostMs(const NamedTrouble& failure, int hosts, uint64_t seed, std::string* wrong);
inline constexpr int kInARow = 4;
// The same of so many in a row, one NIC after another, each for 200 ms: streams that have lived through one failure
// meet the next. Nothing is held back for being lost so often.
std::vector<double> CostsInARowMs(int hosts, const NamedTrouble& failure, uint64_t seed, std::string* wrong);
// Those whose cost is measured.
std::vector<NamedTrouble> Failures();

// Calls per second while a NIC is in trouble, from 150 ms after its beginning.
double CallsPerSecond(const CallGroup& group, const NamedTrouble& sickness, uint64_t seed, std::string* wrong);
// The first is its death, with which the others compare.
std::vector<NamedTrouble> Sicknesses();

// Of the first group: calls per second after a NIC was sick for 400 ms: from 300 ms after its repair on, for 800 ms.
double CallsAfterRepair(const NamedTrouble& sickness, uint64_t seed, std::string* wrong);
// The first is none, with which the others compare.
std::vector<NamedTrouble> Repaired();

// What AllReduces over healthy slow NICs, three to a host, get of the NICs' rate, and what was taken for sick.
struct SlowShare {
  double share = 0;
  uint64_t lost_paths = 0;
  uint64_t replayed_chunks = 0;
};
// In even seeds the NICs have a token bucket.
SlowShare ShareOfSlow(int mbit, uint64_t seed, std::string* wrong);
// The rates whose shares are measured, in Mbit/s.
std::vector<int> SlowRates();

// Two seconds of AllReduces of 1 MiB in which nothing fails, on two to four hosts with two to four NICs each.
struct Load {
  std::string name;
  bool others = false;  // somebody else's flow takes 95 % of each NIC
  bool busy = false;    // processors leave processes waiting, for up to 20 ms and about a quarter of the time
  bool homes = false;   // as NCCL's connections have them
};
std::vector<Load> Loads();

// What was taken for a failure there.
struct Alarms {
  double seconds = 0;
  uint64_t lost_paths = 0;
  uint64_t held_paths = 0;
  uint64_t replayed_chunks = 0;
  uint64_t trial_chunks = 0;
  uint64_t needed_bytes = 0;  // of the messages
  uint64_t sent_bytes = 0;    // all that was sent for them, as Outcome has it
};
// In even seeds the NICs have a token bucket.
Alarms AlarmsUnder(const Load& load, uint64_t seed, std::string* wrong);

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_BENCH_CALLS_H_
