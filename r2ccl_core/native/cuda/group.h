// Group: what the ranks of one communicator share: their agreement on the NICs that are left, and a Runner.
//
// Two ranks that ran different schedules would wait for each other for ever. So what a rank knows of its own NICs
// counts only when all know it: every few operations the ranks gather one word from each, on a communicator of its own,
// beside the program's work, and act on it the same number of operations later. All of them count the same operations,
// so all change over at the same one. A loss before that costs time and nothing else: the plugin below survives it.
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

// What a rank tells the others. All of one group must have the same `digest` (the same table and settings) and as many
// NICs as the table says, and be on hosts of their own; else the group leaves everything to NCCL.
struct Word {
  uint64_t digest = 0;
  uint64_t host = 0;
  uint32_t nics = 0;
  uint32_t left = 0;
  uint64_t reserved = 0;
};
static_assert(sizeof(Word) == 32);

// Whether these words allow a table to be used; `why` says why not.
bool Agrees(const std::vector<Word>& words, const Table& table, std::string* why);

// Used by one thread at a time, but for Abort.
class Group {
 public:
  Group(const Nccl& nccl, Device& device, const Table& table, uint64_t host, int every);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Splits what it needs from `parent`; all ranks must call it, with nothing under way on `parent`. An NCCL result.
  int Open(Comm parent);
  // Begins the next operation, of so many bytes, with this rank's `own` NICs as they are now; an NCCL result. *entry is
  // what all ranks run for it, or nullptr for NCCL's own.
  int Choose(uint64_t bytes, uint64_t digest, const Nics& own, const Entry** entry);
  Runner& runner() { return *runner_; }
  const std::string& why_not() const { return why_not_; }  // empty while the table is in use
  const std::vector<uint32_t>& left() const { return left_; }
  // From any thread, once Open has returned. What is under way ends with an error.
  void Abort();

 private:
  int Tell(const Word& word);
  int Learn();

  const Nccl& nccl_;
  Device& device_;
  const Table& table_;
  const uint64_t host_;
  const uint64_t every_;
  int ranks_ = 0;
  Gate gate_;
  std::unique_ptr<Runner> runner_;
  std::atomic<Comm> comm_ = nullptr;
  Stream stream_ = nullptr;
  Event told_ = nullptr;
  char* words_ = nullptr;       // on the device: everybody's, then our own
  char* host_words_ = nullptr;  // the same on the host
  uint64_t operations_ = 0;
  bool pending_ = false;
  std::vector<uint32_t> left_;
  std::string why_not_ = "nothing is agreed yet";
};

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_GROUP_H_
