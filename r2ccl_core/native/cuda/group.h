// Group: the shared state of the ranks of one communicator: their agreement on the remaining NICs, and a Runner.
//
// Two ranks that ran different schedules would wait for each other for ever. So what a rank knows about its own NICs
// counts only when all ranks know it: every few operations the ranks gather one word from each, on a separate
// communicator, beside the program's work, and act on it the same number of operations later. All ranks count the same
// operations, so all switch at the same one. A loss before that costs only time: the plugin below survives it.
#ifndef R2CCL_CUDA_GROUP_H_
#define R2CCL_CUDA_GROUP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/gate.h"
#include "cuda/nccl.h"
#include "cuda/nics.h"
#include "cuda/runner.h"
#include "cuda/table.h"

namespace r2ccl::cuda {

// What a rank tells the others. All of one group must have the same `digest` (the same table and variables), as many
// hosts, GPUs and NICs as the table says, and reach the others on their host; else the group leaves everything to NCCL.
struct Word {
  uint64_t digest = 0;
  uint64_t host = 0;
  uint64_t device = 0;
  uint32_t nics = 0;
  uint32_t left = 0;
  Joint joint = Joint::kJoined;  // the worst of what it finds on its host
  uint32_t reserved = 0;
};
static_assert(sizeof(Word) == 40);

// The number of each word's host, by their first words.
std::vector<int> HostsOf(const std::vector<Word>& words);
// Whether these words allow a table to be used; `why` says why not.
bool Agrees(const std::vector<Word>& words, const Table& table, std::string* why);
// The NICs that each host has left: what the rank of it knows that sees most of them lost. Each of its connections
// reaches two hosts or more, so it does not take another's loss for its own, or its shares are equal.
std::vector<uint32_t> LeftOf(const std::vector<Word>& words);

// Used by one thread at a time, but for Abort.
class Group {
 public:
  Group(const Nccl& nccl, Device& device, const Table& table, uint64_t host, int every);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Splits what it needs from `parent`; all ranks must call it, with nothing under way on `parent`. An NCCL result; in
  // progress where the communicator does not block: nothing is open then, and the parent is as it was.
  int Open(Comm parent);
  // Learns who sits where, and opens the runner where that is what the table is for. After Open, all ranks; from now
  // on another thread may abort. An NCCL result.
  int Meet(Comm parent, uint64_t digest, const Nics& own);
  // Begins the next operation, of so many bytes, with this rank's `own` NICs as they are now; an NCCL result. *entry is
  // what all ranks run for it, or nullptr for NCCL's own.
  int Choose(uint64_t bytes, uint64_t digest, const Nics& own, const Entry** entry);
  // Agrees on the NICs as they are now, before an operation of a graph: whatever is captured with it stays. All ranks
  // wait for each other. An NCCL result.
  int AgreeNow(uint64_t digest, const Nics& own);
  // What all ranks run for so many bytes by what was agreed last, or nullptr for NCCL's own.
  const Entry* Agreed(uint64_t bytes) const;
  Runner& runner() { return *runner_; }
  const std::string& why_not() const { return why_not_; }  // empty while the table is in use
  bool refused() const { return refused_; }                // not only for the time being
  int rank() const { return rank_; }
  const std::vector<uint32_t>& left() const { return left_; }  // NICs, by host
  // From any thread, once Open has returned. What is under way ends with an error.
  void Abort();

 private:
  int Undo(Comm parent, Comm* split);
  Word Own(uint64_t digest, const Nics& own) const;
  int Tell(const Word& word);
  int Learn();
  Joint JointHere() const;

  const Nccl& nccl_;
  Device& device_;
  const Table& table_;
  const uint64_t host_;
  const uint64_t every_;
  int ranks_ = 0;
  int rank_ = 0;
  Joint joint_ = Joint::kJoined;
  Gate gate_;
  std::unique_ptr<Runner> runner_;
  std::atomic<Comm> comm_ = nullptr;
  Stream stream_ = nullptr;
  Event told_ = nullptr;
  char* words_ = nullptr;       // on the device: everybody's, then our own
  char* host_words_ = nullptr;  // the same on the host
  uint64_t operations_ = 0;
  bool pending_ = false;
  bool refused_ = false;
  std::vector<Word> words_told_;
  std::vector<uint32_t> left_;
  std::string why_not_ = "nothing is agreed yet";
};

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_GROUP_H_
