// The decision, operation by operation.
#include "cuda/takeover.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/guard.h"

namespace r2ccl::cuda {
namespace {

constexpr uint64_t kMostEvery = 1'000'000;

uint64_t ReadNumber(const char* name, uint64_t least, uint64_t most, uint64_t otherwise,
                    std::vector<std::string>* mistakes) {
  const char* variable = std::getenv(name);
  std::string_view text = variable == nullptr ? "" : variable;
  if (text.empty()) return otherwise;
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) {
    return value;
  }
  mistakes->push_back(std::string(name) + "=" + variable + ": give a whole number from " + std::to_string(least) +
                      " to " + std::to_string(most) + "; " + std::to_string(otherwise) + " is used instead");
  return otherwise;
}

// Makes a communicator's device this thread's while it lives, as NCCL's own calls do. Negative: that is not known.
class CurrentDevice {
 public:
  CurrentDevice(Device& device, int wanted) : device_(device) {
    if (wanted < 0) return;
    before_ = device.Use(wanted);
    ok_ = before_ >= 0;
  }
  ~CurrentDevice() {
    if (before_ >= 0) device_.Use(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  bool ok() const { return ok_; }

 private:
  Device& device_;
  int before_ = -1;
  bool ok_ = true;
};

}  // namespace

Settings ReadSettings() {
  Settings settings;
  const char* path = std::getenv("R2CC_SCHEDULES");
  settings.table_path = path == nullptr ? "" : path;
  settings.min_bytes = ReadNumber("R2CC_AR_MIN_BYTES", 0, INT64_MAX, settings.min_bytes, &settings.mistakes);
  settings.every = static_cast<int>(ReadNumber("R2CC_AGREE_EVERY", 1, kMostEvery, 4, &settings.mistakes));
  return settings;
}

Takeover::Takeover(const Nccl& nccl, Device& device, Settings settings, uint64_t host, AskNics ask, Say say)
    : nccl_(nccl),
      device_(device),
      settings_(std::move(settings)),
      host_(host),
      ask_(std::move(ask)),
      say_(std::move(say)) {
  if (settings_.table_path.empty()) return;
  for (const std::string& mistake : settings_.mistakes) say_(mistake, true);
  Status status = ReadTable(settings_.table_path, &table_);
  if (!status.ok()) say_(status.message() + "; NCCL runs every AllReduce", true);
  // Ranks that count differently must not act either.
  uint64_t settings_word = settings_.min_bytes * 31 + static_cast<uint64_t>(settings_.every);
  digest_ = status.ok() ? (table_.digest ^ settings_word * 0x9E3779B97F4A7C15) : 0;
}

int Takeover::ByNccl(const Call& call) const {
  return nccl_.all_reduce(call.input, call.output, call.count, call.type, call.op, call.comm, call.stream);
}

// The same answer on every rank: it depends on what all ranks must call alike, and on variables that all must set
// alike. A table that one of them cannot read is no reason to stay away here, or the others would wait for this rank.
bool Takeover::Concerns(const Call& call) const {
  if (settings_.table_path.empty() || nccl_.comm_split == nullptr || nccl_.send == nullptr) return false;
  static_assert(kAverage == kOps);
  if (call.type < 0 || call.type >= kTypes || call.op < 0 || call.op > kAverage) return false;
  if (call.op == kAverage && !IsFloating(static_cast<Type>(call.type))) return false;
  return call.count * TypeBytes(static_cast<Type>(call.type)) >= settings_.min_bytes;
}

int Takeover::AllReduce(const Call& call) {
  return call.comm == nullptr || !Concerns(call) ? ByNccl(call) : RunOn({call});
}

// Communicators of one group may be ranks of one job, which wait for each other: each has a thread of its own then, as
// ranks have elsewhere.
int Takeover::RunGroup(const std::vector<Call>& calls) {
  std::map<Comm, std::vector<Call>> by_comm;
  for (const Call& call : calls) by_comm[call.comm].push_back(call);
  if (by_comm.size() == 1) return RunOn(calls);
  std::atomic<int> result = kNcclSuccess;
  std::vector<std::thread> threads;
  threads.reserve(by_comm.size());
  for (const auto& entry : by_comm) {
    threads.emplace_back([&, its = &entry.second] {
      int ended = Guard(kNcclSystemError, [&] { return RunOn(*its); });
      if (ended != kNcclSuccess) result = ended;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

// Calls of one communicator. What is NCCL's is one group, as it was where the program grouped it.
int Takeover::RunOn(const std::vector<Call>& calls) {
  Comm comm = calls.front().comm;
  std::shared_ptr<Place> place = Find(comm);
  std::lock_guard lock(place->mutex);
  if (IsAborted(*place)) return kNcclSystemError;
  if (place->device < 0 && nccl_.comm_device != nullptr) nccl_.comm_device(comm, &place->device);
  CurrentDevice device(device_, place->device);
  if (!device.ok()) return kNcclCudaError;
  std::vector<Call> left;
  for (const Call& call : calls) {
    if (IsAborted(*place)) return kNcclSystemError;
    std::optional<uint64_t> graph = device_.GraphOf(call.stream);
    const Entry* entry = nullptr;
    if (graph.has_value()) {
      int result = Decide(*place, call, *graph, &entry);
      if (result != kNcclSuccess) return result;
    }
    if (entry == nullptr) {
      left.push_back(call);
    } else if (int result = Run(*place, call, *graph, *entry); result != kNcclSuccess) {
      return result;
    }
  }
  if (left.size() == 1) return ByNccl(left.front());
  if (left.empty()) return kNcclSuccess;
  int result = nccl_.group_start();
  for (const Call& call : left) result = result == kNcclSuccess ? ByNccl(call) : result;
  int ended = nccl_.group_end();
  return result == kNcclSuccess ? ended : result;
}

// Nothing can be opened inside a capture. The ranks agree once for each graph, and its operations do not count: what
// was captured runs without us.
int Takeover::Decide(Place& place, const Call& call, uint64_t graph, const Entry** entry) {
  if (place.failed || (graph != 0 && place.group == nullptr)) return kNcclSuccess;
  Nics own;
  if (!ask_(&own)) own = {static_cast<int>(table_.nics), static_cast<int>(table_.nics)};
  if (place.group == nullptr) {
    int result = Open(place, call.comm, call.stream, own);
    if (result != kNcclSuccess || place.failed) return result;
  }
  Group& group = *place.group;
  uint64_t bytes = call.count * TypeBytes(static_cast<Type>(call.type));
  if (graph == 0) {
    int result = group.Choose(bytes, digest_, own, entry);
    if (result != kNcclSuccess) return result;
  } else {
    int result = place.graph == graph ? kNcclSuccess : group.AgreeNow(digest_, own);
    if (result != kNcclSuccess) return result;
    place.graph = graph;
    *entry = group.Agreed(bytes);
  }
  if (*entry != nullptr && call.count / table_.gpus < (*entry)->chunks) *entry = nullptr;
  Tell(place, *entry);
  return kNcclSuccess;
}

int Takeover::Run(Place& place, Call call, uint64_t graph, const Entry& entry) {
  auto type = static_cast<Type>(call.type);
  if (call.op == kAverage) {  // each rank's share first, as NCCL does it: sums may leave what a type holds
    int ranks = static_cast<int>(table_.hosts * table_.gpus);
    if (!device_.Divide(call.output, call.input, call.count, ranks, type, call.stream)) return kNcclCudaError;
    call.input = call.output;
    call.op = static_cast<int>(Op::kSum);
  }
  return place.group->runner().Run(entry, call.input, call.output, call.count, type, static_cast<Op>(call.op),
                                   call.comm, call.stream, graph);
}

// A communicator that NCCL does not know is NCCL's to complain of, and nothing is kept of it: its address may be that
// of a good one later. Any other error is the operation's: a rank that went on alone would leave the others waiting.
int Takeover::Open(Place& place, Comm comm, Stream stream, const Nics& own) {
  int ranks = 0;
  bool known = nccl_.comm_count(comm, &ranks) == kNcclSuccess;
  if (!known) Remove(comm, &place);
  place.failed = !known || ranks < 2;
  if (place.failed) return kNcclSuccess;
  if (!device_.Wait(stream)) return kNcclCudaError;
  auto group = std::make_shared<Group>(nccl_, device_, table_, host_, settings_.every);
  int result = group->Open(comm);
  if (result == kNcclInProgress) {
    place.failed = true;
    say_("a communicator that does not block; NCCL runs every AllReduce of it", true);
    return kNcclSuccess;
  }
  if (result != kNcclSuccess) return result;
  // Before this rank meets the others, which may be gone: Abort must be able to end that.
  if (!Show(place, group)) return kNcclSystemError;
  result = group->Meet(comm, digest_, own);
  if (result != kNcclSuccess) Show(place, nullptr);
  return result;
}

bool Takeover::Show(Place& place, std::shared_ptr<Group> group) {
  std::lock_guard lock(mutex_);
  if (place.aborted && group != nullptr) return false;
  place.group.swap(group);
  return true;
}

void Takeover::Tell(Place& place, const Entry* entry) {
  place.choice = entry == nullptr ? "nccl" : entry->name.c_str();
  std::string text = place.group->why_not();
  if (text.empty()) {
    text += "NICs left:";
    for (uint32_t left : place.group->left()) text.append(" ").append(std::to_string(left));
    text.append(", AllReduce by ").append(place.choice);
  }
  if (text == place.said) return;
  place.said = text;
  // Why the table is of no use is told in any case, by one rank.
  bool mistake = place.group->refused() && place.group->rank() == 0;
  say_(mistake ? text + "; NCCL runs every AllReduce" : text, mistake);
}

std::shared_ptr<Takeover::Place> Takeover::Find(Comm comm) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Place>& place = places_[comm];
  if (place == nullptr) place = std::make_shared<Place>();
  return place;
}

// What is at the address, if it is `only`.
std::shared_ptr<Takeover::Place> Takeover::Remove(Comm comm, const Place* only) {
  std::lock_guard lock(mutex_);
  auto found = places_.find(comm);
  if (found == places_.end() || (only != nullptr && found->second.get() != only)) return nullptr;
  std::shared_ptr<Place> place = std::move(found->second);
  places_.erase(found);
  return place;
}

// Without the place's own lock: who holds it may be what is to be aborted. The last of both lets the group go.
std::shared_ptr<void> Takeover::Abort(Comm comm) {
  std::shared_ptr<Place> place = Find(comm);
  std::shared_ptr<Group> group;
  {
    std::lock_guard lock(mutex_);
    place->aborted = true;
    group = place->group;
  }
  if (group != nullptr) group->Abort();
  Place* only = place.get();
  return {only, [this, comm, held = std::move(place)](void*) { Remove(comm, held.get()); }};
}

void Takeover::Forget(Comm comm) {
  std::shared_ptr<Place> place = Remove(comm);
  if (place == nullptr || IsAborted(*place)) return;
  std::lock_guard lock(place->mutex);
  place->group.reset();
}

bool Takeover::IsAborted(const Place& place) {
  std::lock_guard lock(mutex_);
  return place.aborted;
}

const char* Takeover::Choice(Comm comm) {
  std::lock_guard lock(mutex_);
  auto found = places_.find(comm);
  return found == places_.end() ? "nccl" : found->second->choice.load();
}

}  // namespace r2ccl::cuda
