// Python's door to the simulator: checks array sizes, runs without the interpreter lock, returns arrays.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "simulate/simulator.h"

namespace nb = nanobind;

namespace r2ccl::simulate {
namespace {

template <typename T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<nb::numpy, double, nb::ndim<2>>;

void Require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(std::string("simulate: ") + what);
}

// Rows of (source, destination, lane, messages, bytes, busy_s).
Table ConnectionTable(const Outcome& outcome) {
  const size_t rows = outcome.connections.size();
  auto* values = new double[rows * 6 + 1];
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<double*>(p); });
  double* out = values;
  for (const ConnectionUse& use : outcome.connections) {
    *out++ = use.source;
    *out++ = use.destination;
    *out++ = use.lane;
    *out++ = static_cast<double>(use.messages);
    *out++ = static_cast<double>(use.bytes);
    *out++ = use.busy_s;
  }
  return Table(values, {rows, 6}, owner);
}

std::tuple<double, int32_t, std::string, Table> Simulate(int nhosts, Input<int32_t> host_of_rank, int nlanes,
                                                         Input<int32_t> steps, Input<int64_t> lane_begin,
                                                         Input<int64_t> chunk_offset, Input<double> epoch_start_s,
                                                         Matrix capacities, bool paired, double latency_s,
                                                         double inner_latency_s, int slots, double tolerance,
                                                         Input<int64_t> loops, int32_t rounds,
                                                         std::function<bool(double)> enough) {
  Problem problem;
  problem.nranks = static_cast<int32_t>(host_of_rank.shape(0));
  problem.nlanes = nlanes;
  problem.nhosts = nhosts;
  problem.steps = reinterpret_cast<const Step*>(steps.data());
  problem.lane_begin = lane_begin.data();
  problem.chunk_offset = chunk_offset.data();
  problem.host_of_rank = host_of_rank.data();
  problem.nepochs = static_cast<int32_t>(epoch_start_s.shape(0));
  problem.epoch_start_s = epoch_start_s.data();
  problem.capacities = capacities.data();
  problem.paired = paired;
  problem.latency_s = latency_s;
  problem.inner_latency_s = inner_latency_s;
  problem.slots = slots;
  problem.tolerance = tolerance;
  Require(lane_begin.shape(0) == static_cast<size_t>(problem.nranks) * nlanes + 1, "lane_begin's length");
  Require(steps.shape(0) == static_cast<size_t>(problem.nsteps()) * 5, "steps' length");
  Require(capacities.shape(0) == epoch_start_s.shape(0), "one row of capacities per epoch");
  Require(capacities.shape(1) == static_cast<size_t>(problem.nports()), "one capacity per port");
  Require(slots >= 1, "at least one slot");
  Require(tolerance >= 0.0 && tolerance < 1.0, "a tolerance of 0 to 1");
  const auto lanes = static_cast<size_t>(problem.nranks) * nlanes;
  const bool repeats = loops.shape(0) > 0;
  Require(!repeats || loops.shape(0) == 2 * lanes, "loops: a begin and an end for each lane");
  Require(rounds >= 1, "at least one round");
  for (size_t lane = 0; repeats && lane < lanes; ++lane) {
    const int64_t begin = loops.data()[lane], end = loops.data()[lanes + lane];
    Require(problem.lane_begin[lane] <= begin && begin <= end && end <= problem.lane_begin[lane + 1], "a lane's loop");
  }
  if (repeats) {
    problem.loop_begin = loops.data();
    problem.loop_end = loops.data() + lanes;
  }
  problem.rounds = rounds;
  if (enough) {
    problem.enough = [&enough](double done_s) {
      nb::gil_scoped_acquire locked;
      return enough(done_s);
    };
  }
  Outcome outcome;
  {
    nb::gil_scoped_release unlocked;
    outcome = Run(problem);
  }
  return {outcome.seconds, outcome.rounds, outcome.stalled, ConnectionTable(outcome)};
}

}  // namespace
}  // namespace r2ccl::simulate

void bind_simulate(nb::module_& module) {
  using namespace nb::literals;
  module.def("simulate", &r2ccl::simulate::Simulate, "nhosts"_a, "host_of_rank"_a, "nlanes"_a, "steps"_a,
             "lane_begin"_a, "chunk_offset"_a, "epoch_start_s"_a, "capacities"_a, "paired"_a, "latency_s"_a,
             "inner_latency_s"_a, "slots"_a, "tolerance"_a, "loops"_a, "rounds"_a, "enough"_a.none());
}
