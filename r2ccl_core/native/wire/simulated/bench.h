// Bench: how long groups of processes with the shipped connections take for their messages, in virtual time, in named
// scenarios. The value of a constant or a rule is the time that the scenarios take longer without it.
#ifndef R2CCL_WIRE_SIMULATED_BENCH_H_
#define R2CCL_WIRE_SIMULATED_BENCH_H_

#include <string>
#include <vector>

#include "wire/simulated/explore.h"

namespace r2ccl::simulated {

struct NamedScenario {
  std::string name;
  Scenario scenario;
};

std::vector<NamedScenario> BenchScenarios();

// The median of `repeats` seeds, in ms, from the beginning until the last message has arrived. `wrong` becomes the rule
// that was broken, if one was.
double MedianMs(const Scenario& scenario, int repeats, std::string* wrong);

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_BENCH_H_
