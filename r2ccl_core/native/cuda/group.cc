// The agreement of the ranks of one communicator.
#include "cuda/group.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace r2ccl::cuda {
namespace {

constexpr int kInt8 = 0;
constexpr std::chrono::milliseconds kAbortPatience{200};

}  // namespace

std::vector<int> HostsOf(const std::vector<Word>& words) {
  std::map<uint64_t, int> numbers;
  std::vector<int> hosts;
  for (const Word& word : words) {
    hosts.push_back(numbers.try_emplace(word.host, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

std::vector<uint32_t> LeftOf(const std::vector<Word>& words) {
  std::vector<int> hosts = HostsOf(words);
  std::vector<uint32_t> left;
  for (size_t rank = 0; rank < words.size(); ++rank) {
    size_t host = static_cast<size_t>(hosts[rank]);
    if (host == left.size()) left.push_back(words[rank].left);
    left[host] = std::min(left[host], words[rank].left);
  }
  return left;
}

bool Agrees(const std::vector<Word>& words, const Table& table, std::string* why) {
  std::vector<uint32_t> ranks;  // by host
  for (int host : HostsOf(words)) {
    ranks.resize(std::max(ranks.size(), static_cast<size_t>(host) + 1));
    ++ranks[static_cast<size_t>(host)];
  }
  for (const Word& word : words) {
    if (word.digest == 0) {
      *why = "a rank has no table of rounds that it can read";
    } else if (word.digest != words[0].digest) {
      *why = "ranks have different tables of rounds or variables";
    } else if (word.nics != table.nics) {
      *why = "a rank has " + std::to_string(word.nics) + " NICs, the table is for " + std::to_string(table.nics);
    } else if (word.joint == Joint::kApart) {
      *why = "ranks of a host do not reach each other by NVLink";
    } else if (word.joint == Joint::kByTurns) {
      *why = "ranks share a GPU without the Multi-Process Service; start nvidia-cuda-mps-control -d";
    } else {
      continue;
    }
    return false;
  }
  why->clear();
  auto other = std::find_if(ranks.begin(), ranks.end(), [&](uint32_t count) { return count != table.gpus; });
  if (ranks.size() != table.hosts) {
    *why = std::to_string(ranks.size()) + " hosts, the table is for " + std::to_string(table.hosts);
  } else if (other != ranks.end()) {
    *why = "a host has " + std::to_string(*other) + " ranks, the table is for hosts of " + std::to_string(table.gpus);
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
  int result = nccl_.comm_count(parent, &ranks_);
  if (result == kNcclSuccess) result = nccl_.comm_rank(parent, &rank_);
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
  result = nccl_.comm_split(parent, 0, rank_, &comm, nullptr);
  if (result == kNcclInProgress) return Undo(parent, &comm);
  comm_ = comm;
  if (result != kNcclSuccess) return result;
  runner_ = std::make_unique<Runner>(nccl_, device_, gate_);
  return kNcclSuccess;
}

// Our rounds are issued one after another by calls that return when they are issued, and a communicator that does not
// block promises that of none.
int Group::Undo(Comm parent, Comm* split) {
  int state = kNcclInProgress;
  while (state == kNcclInProgress) {
    int result = nccl_.comm_async_error(parent, &state);
    if (result != kNcclSuccess) return result;
  }
  if (*split != nullptr) nccl_.comm_abort(*split);
  return state == kNcclSuccess ? kNcclInProgress : state;
}

// All ranks see the same words, so all decide alike. What each finds on its host goes with a second word.
int Group::Meet(Comm parent, uint64_t digest, const Nics& own) {
  for (bool again : {false, true}) {
    int result = Tell(Own(digest, own));
    if (result == kNcclSuccess) result = Learn();
    if (result != kNcclSuccess) return result;
    if (!again) joint_ = JointHere();
  }
  refused_ = !why_not_.empty();
  if (refused_) return kNcclSuccess;
  why_not_ = "nothing is agreed yet";
  std::vector<int> hosts = HostsOf(words_told_);
  auto mine = hosts.begin() + rank_;
  Seat seat = {*mine, static_cast<int>(std::count(hosts.begin(), mine, *mine)), static_cast<int>(table_.hosts),
               static_cast<int>(table_.gpus)};
  return runner_->Open(parent, seat);
}

Joint Group::JointHere() const {
  const Word& mine = words_told_[static_cast<size_t>(rank_)];
  Joint worst = Joint::kJoined;
  for (size_t rank = 0; rank < words_told_.size(); ++rank) {
    const Word& other = words_told_[rank];
    if (other.host != mine.host || static_cast<int>(rank) == rank_) continue;
    worst = std::max(worst, device_.JointWith(other.device));
  }
  return worst;
}

Word Group::Own(uint64_t digest, const Nics& own) const {
  return {digest, host_, device_.Identity(), static_cast<uint32_t>(own.total), static_cast<uint32_t>(own.left),
          joint_, 0};
}

int Group::Choose(uint64_t bytes, uint64_t digest, const Nics& own, const Entry** entry) {
  *entry = nullptr;
  if (refused_) return kNcclSuccess;
  bool turn = operations_++ % every_ == 0;
  if (turn) {
    int result = pending_ ? Learn() : kNcclSuccess;
    if (result != kNcclSuccess) return result;
    result = Tell(Own(digest, own));
    if (result != kNcclSuccess) return result;
  }
  *entry = Agreed(bytes);
  return kNcclSuccess;
}

int Group::AgreeNow(uint64_t digest, const Nics& own) {
  if (refused_) return kNcclSuccess;
  return device_.Uncaptured([&] {
    int result = pending_ ? Learn() : kNcclSuccess;
    if (result == kNcclSuccess) result = Tell(Own(digest, own));
    return result == kNcclSuccess ? Learn() : result;
  });
}

const Entry* Group::Agreed(uint64_t bytes) const { return why_not_.empty() ? table_.Find(left_, bytes) : nullptr; }

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
  words_told_.resize(static_cast<size_t>(ranks_));
  std::memcpy(words_told_.data(), host_words_, sizeof(Word) * words_told_.size());
  left_ = LeftOf(words_told_);
  Agrees(words_told_, table_, &why_not_);
  return kNcclSuccess;
}

}  // namespace r2ccl::cuda
