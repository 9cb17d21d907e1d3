// The agreement of the ranks of one communicator.
#include "cuda/group.h"

#include <cstring>
#include <set>

namespace r2ccl::cuda {
namespace {

constexpr int kInt8 = 0;
constexpr std::chrono::milliseconds kAbortPatience{200};

}  // namespace

bool Agrees(const std::vector<Word>& words, const Table& table, std::string* why) {
  std::set<uint64_t> hosts;
  for (const Word& word : words) {
    hosts.insert(word.host);
    if (word.digest == 0) {
      *why = "a rank has no table of rounds that it can read";
    } else if (word.digest != words[0].digest) {
      *why = "ranks have different tables of rounds or settings";
    } else if (word.nics != table.nics) {
      *why = "a rank has " + std::to_string(word.nics) + " NICs, the table is for " + std::to_string(table.nics);
    } else {
      continue;
    }
    return false;
  }
  if (words.size() != table.ranks) {
    *why = std::to_string(words.size()) + " ranks, the table is for " + std::to_string(table.ranks);
  } else if (hosts.size() != words.size()) {
    *why = "several ranks share a host; the table is for one on each";
  } else {
    why->clear();
  }
  return why->empty();
}

Group::Group(const Nccl& nccl, Device& device, const Table& table, uint64_t host, int every)
    : nccl_(nccl), device_(device), table_(table), host_(host), every_(static_cast<uint64_t>(every)) {}

Group::~Group() {
  runner_.reset();
  if (Comm comm = comm_.exchange(nullptr); comm != nullptr) nccl_.comm_destroy(comm);
  if (stream_ != nullptr) device_.DropStream(stream_);
  if (told_ != nullptr) device_.DropEvent(told_);
  if (words_ != nullptr) device_.Free(words_);
  if (host_words_ != nullptr) device_.FreeHost(host_words_);
}

void Group::Abort() {
  gate_.Shut(kAbortPatience);
  if (Comm comm = comm_.exchange(nullptr); comm != nullptr) nccl_.comm_abort(comm);
  if (runner_ != nullptr) runner_->Abort();
}

int Group::Open(Comm parent) {
  int rank = 0;
  int result = nccl_.comm_count(parent, &ranks_);
  if (result == kNcclSuccess) result = nccl_.comm_rank(parent, &rank);
  if (result != kNcclSuccess) return result;
  size_t bytes = sizeof(Word) * (static_cast<size_t>(ranks_) + 1);
  void* memory = nullptr;
  void* host_memory = nullptr;
  bool made = device_.MakeStream(&stream_) && device_.MakeEvent(&told_) && device_.Allocate(bytes, &memory) &&
              device_.AllocateHost(bytes, &host_memory);
  words_ = static_cast<char*>(memory);
  host_words_ = static_cast<char*>(host_memory);
  if (!made) return kNcclCudaError;
  Comm comm = nullptr;
  result = nccl_.comm_split(parent, 0, rank, &comm, nullptr);
  comm_ = comm;
  if (result != kNcclSuccess) return result;
  runner_ = std::make_unique<Runner>(nccl_, device_, gate_, rank, ranks_, table_.pipes);
  return kNcclSuccess;
}

int Group::Choose(uint64_t bytes, uint64_t digest, const Nics& own, const Entry** entry) {
  *entry = nullptr;
  bool turn = operations_++ % every_ == 0;
  if (turn) {
    int result = pending_ ? Learn() : kNcclSuccess;
    if (result != kNcclSuccess) return result;
    Word word = {digest, host_, static_cast<uint32_t>(own.total), static_cast<uint32_t>(own.left), 0};
    result = Tell(word);
    if (result != kNcclSuccess) return result;
  }
  if (why_not_.empty()) *entry = table_.Find(left_, bytes);
  return kNcclSuccess;
}

int Group::Tell(const Word& word) {
  size_t all = sizeof(Word) * static_cast<size_t>(ranks_);
  std::memcpy(host_words_ + all, &word, sizeof(Word));
  if (!device_.Copy(words_ + all, host_words_ + all, sizeof(Word), stream_)) return kNcclCudaError;
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  int result = nccl_.all_gather(words_ + all, words_, sizeof(Word), kInt8, comm_, stream_);
  if (result != kNcclSuccess) return result;
  bool under_way = device_.Copy(host_words_, words_, all, stream_) && device_.Record(told_, stream_);
  pending_ = under_way;
  return under_way ? kNcclSuccess : kNcclCudaError;
}

int Group::Learn() {
  if (!device_.Wait(told_)) return kNcclCudaError;
  pending_ = false;
  std::vector<Word> words(static_cast<size_t>(ranks_));
  std::memcpy(words.data(), host_words_, sizeof(Word) * words.size());
  left_.clear();
  for (const Word& word : words) left_.push_back(word.left);
  Agrees(words, table_, &why_not_);
  return kNcclSuccess;
}

}  // namespace r2ccl::cuda
