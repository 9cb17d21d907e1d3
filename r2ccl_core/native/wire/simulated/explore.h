// Explore: whole groups of processes with the connections that ship, in a simulated network that fails, by a seed.
//
// What holds in every run: each message arrives once, whole and unchanged, in its place and order; a send that needs a
// receive is done only when that is; a buffer is neither read nor written after its request completed; every request
// ends, with success where something could still carry it, else with an error within the limit; nothing is lost where
// nothing was wrong; what recovered carries data again; in the end nothing is left. Where RDMA is used, nothing lands
// in memory that was given back, and none is read. Of collectives, which run by the step machine that ships, every
// element is right.
#ifndef R2CCL_WIRE_SIMULATED_EXPLORE_H_
#define R2CCL_WIRE_SIMULATED_EXPLORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/params.h"

namespace r2ccl::simulated {

constexpr int64_t kTroubleEndsNs = 900'000'000;  // none that heals goes on for longer
constexpr int64_t kRecoveryNs = 3000'000'000;    // after that, all carries data again

enum class Trouble : uint8_t {
  kLinkDown,
  kBlackHole,  // both ways
  kBlackOut,   // what it sends
  kBlackIn,    // what comes to it
  kLargeOnly,  // packets above 1000 bytes, what it sends
  kLoss,       // by chance, a share
  kBursts,     // ten in a row, by chance
  kDuplicates,
  kDelay,
  kReordering,
  kSlow,        // a share of the rate is left
  kCorruption,  // a bit of a packet, which its own checksums miss; only where ours are on (R2CC_CHECKSUM)
  kCongestion,  // a competing flow that takes a share of the rate, and fills the queue with it: nothing is wrong
  kPause,       // of the process
  kKill,
  kPowerOff,
  kRdmaDropped,      // what RDMA sends is lost, both ways; nothing else is
  kRdmaLate,         // it comes so much later
  kRdmaCompletions,  // the device loses a share of its completions, tells them late, or again
  kRdmaGone,         // the device fails with all it has
  kCount
};
const char* ToString(Trouble trouble);

struct TroubleEvent {
  Trouble kind = Trouble::kLinkDown;
  int host = 0;
  int rail = 0;
  int64_t at_ns = 0;  // from the beginning
  int64_t lasts_ns = 0;
  double amount = 0;
};

// The messages of one connection.
struct Flow {
  int from = 0;
  int to = 0;
  std::vector<uint64_t> sizes;
  int64_t pause_ns = 0;  // between two messages of the program
  uint64_t ahead = 1;    // sends, and receives, under way at once
  bool late_receives = false;
  bool closes_early = false;        // the sender, as soon as its sends are done
  uint64_t leaves_after = 0;        // so many messages the receiver closes, whatever follows; 0: it stays
  bool by_nccl = false;             // over a connection of NCCL's, with its stripes
  int home = -1;                    // of that, the NIC
  std::vector<double> shares = {};  // by NIC, as a planned schedule divides it; empty: none does
  // Whether the memory of what it sends, and receives, is registered as long as the request is under way.
  bool registers_sends = false;
  bool registers_receives = false;
};

// AllReduces of all hosts, one after another, around a ring.
struct RingRun {
  int64_t calls = 0;  // 0: there is none
  int64_t lanes = 1;
  int64_t slices = 1;  // of each rank's section
  int64_t elements = 0;
  bool in_place = false;
  // In place only: how often each rank first sends all that it has to the next rank, and receives the previous rank's
  // into the same place. The result does not change, and what comes does not wait for what was there to arrive.
  int64_t shifts = 0;
  bool abreast = false;    // its lanes wait for each other
  bool registers = false;  // its bounce buffers, and inputs and outputs for the time of a call
  bool sums = false;       // all of them, of float32
  bool homes = false;      // each lane has a NIC as its home, as NCCL's connections have
};

// An AllReduce as rank 0 saw it, in time from the beginning.
struct CallRecord {
  int64_t began_ns = 0;
  int64_t ended_ns = 0;
};

struct Scenario {
  uint64_t seed = 0;
  int hosts = 2;
  int rails = 1;
  double bytes_per_ns = 0.0625;
  double bucket_bytes = 0;  // see Port
  size_t segment_bytes = 4096;
  size_t answer_bytes = 256 * 1024;    // see World
  uint32_t message_bytes = 32 * 1024;  // likewise
  bool program_polls = false;
  bool routes = false;  // between rails
  Params params;
  std::vector<Flow> flows;
  RingRun ring;
  std::vector<TroubleEvent> troubles;

  // Whether in the end every NIC is well, and paths that flapped are held for a while only.
  bool ends_well() const;
};

// With so many hosts and NICs, or as many as the seed says.
Scenario Draw(uint64_t seed, int hosts = 0, int rails = 0);
std::string Describe(const Scenario& scenario);

struct Outcome {
  std::string wrong;  // empty: all rules held
  uint64_t events = 0;
  int64_t virtual_ns = 0;
  uint64_t messages = 0;  // delivered and checked
  uint64_t replayed_chunks = 0;
  uint64_t trial_chunks = 0;
  uint64_t duplicate_chunks = 0;
  uint64_t lost_paths = 0;
  uint64_t held_paths = 0;
  uint64_t sent_bytes = 0;        // over all streams, frames included, and of questions outside them, with answers
  double dropped_share = 0;       // of the packets that came to a NIC, by its full queue; of the worst NIC
  uint64_t rdma_bytes = 0;        // sent so
  uint64_t written_bytes = 0;     // of them, without a copy
  std::vector<CallRecord> calls;  // of the ring
  std::string log;                // of all processes, where asked for
};

Outcome RunScenario(const Scenario& scenario, bool with_log = false);

// The same until then, wherever its programs are, or until so many calls have ended that began after `from_ns`; of the
// rules only those that hold at any time.
Outcome WatchScenario(const Scenario& scenario, int64_t from_ns, size_t calls, int64_t until_ns, bool with_log = false);

// The least groups in which everything can go wrong: two hosts, two rails, one connection; in each mode, and by RDMA.
std::vector<Scenario> SmallScenarios();

// Every trouble that can begin in the scenario's history, at each moment at which anything happens there from `from_ns`
// on until its messages have arrived: links that go and come back and black holes, for short and for long, of each NIC;
// what goes wrong with RDMA alone, where it is used; with `of_processes` also those that pause, are killed or lose
// their host.
std::vector<TroubleEvent> EveryTrouble(const Scenario& scenario, int64_t from_ns, bool of_processes);

// The same scenario with less in it, which still breaks a rule.
Scenario Shrink(const Scenario& scenario);

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_EXPLORE_H_
