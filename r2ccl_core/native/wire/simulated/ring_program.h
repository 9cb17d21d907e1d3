// RingProgram: AllReduces of all hosts around a ring, by the step machine that ships, with every element checked.
#ifndef R2CCL_WIRE_SIMULATED_RING_PROGRAM_H_
#define R2CCL_WIRE_SIMULATED_RING_PROGRAM_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "collective/pattern.h"
#include "collective/step_machine.h"
#include "wire/simulated/explore.h"
#include "wire/simulated/program.h"
#include "wire/simulated/world.h"

namespace r2ccl::simulated {

class RingProgram final : public Program {
 public:
  RingProgram(const Scenario& scenario, World* world, const std::vector<Process*>& processes);

  void Run(int host) override;
  bool Take(int host, const std::shared_ptr<RecvComm>& comm) override;
  bool IsOver() const override;
  std::string CheckEnd(const std::vector<bool>& doomed) const override;
  void AddHealth(std::vector<NicHealth>* health) const override;
  void CheckNoneWaits() override {}  // the machine that ended has none
  void Close() override;
  void CheckKept() override;
  uint64_t received() const override { return checked_; }
  const std::vector<CallRecord>& calls() const override { return calls_; }

 private:
  struct Rank {
    Process* process = nullptr;
    std::vector<std::shared_ptr<SendComm>> senders;    // by lane, to the next rank
    std::vector<std::shared_ptr<RecvComm>> receivers;  // by lane, from the one before; nullptr: has not come
    std::unique_ptr<StepMachine> machine;              // once all are there
    int64_t call = 0;                                  // that it is at
    bool runs = false;                                 // it is under way
    bool failed = false;
    bool registered = false;  // its input and output, where the ring does so
    std::string why;
    int64_t look_ns = 0;  // when it will be looked at, in any case
    std::vector<char> input, output;
    std::deque<std::vector<char>> kept;  // the last outputs that were checked, overwritten since
    int64_t began_ns = 0;
  };

  bool IsReady(Rank& rank);
  bool Begin(Rank& rank);
  void Let(Rank& rank, const char* which);
  void Fail(Rank& rank, const std::string& why);
  static void CloseConnections(Rank& rank);
  void Finish(Rank& rank);
  void Keep(Rank& rank);
  void LookAt(Rank& rank, int64_t when_ns);
  Operation OperationOf(int64_t call) const;
  Pattern PatternOf(int64_t call) const;
  bool is_done(const Rank& rank) const { return rank.call == ring_.calls; }

  const RingRun ring_;
  const Params& params_;
  const bool has_troubles_;
  const uint64_t seed_;
  World* const world_;
  const int64_t connected_by_ns_;  // who makes a group waits no longer
  std::vector<Rank> ranks_;
  uint64_t checked_ = 0;
  std::vector<CallRecord> calls_;
};

// The steps of one rank, by lane: each of the ring's sections, in slices, once round to be reduced and once more to be
// spread. Connection l, either way, is lane l's.
std::vector<std::vector<Step>> RingSteps(int64_t rank, int64_t ranks, const RingRun& ring);

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_RING_PROGRAM_H_
