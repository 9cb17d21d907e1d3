// Attempts that are asked for again and again, and stripes that are put together.
#include "plugin/connections.h"

#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace r2ccl::plugin {
namespace {

constexpr size_t kAttemptAt = kHandleBytes - sizeof(uint64_t);  // see Connect
static_assert(kHandleUsedBytes <= kAttemptAt);
constexpr int64_t kAbandonedAfter = 3;  // times R2CC_FAILOVER_GIVE_UP_MS

}  // namespace

Status Connections::Listen(char* handle, std::unique_ptr<ListenComm>* made) {
  DropAbandoned(PatienceNs());
  auto stripes = static_cast<size_t>(carrier_->environment().params.stripes);
  std::unique_ptr<Arrivals> arrivals;
  Status status = carrier_->Listen(static_cast<int>(stripes), &arrivals);
  if (!status.ok()) return status;
  std::string bytes = EncodeHandle(arrivals->handle());
  std::memcpy(handle, bytes.data(), bytes.size());
  made->reset(new ListenComm{std::move(arrivals), StripeCollector<RecvComm>(stripes)});
  return {};
}

Status Connections::Begin(const char* handle, int home, std::unique_ptr<SendGroup>* made) {
  Handle decoded;
  Status status = DecodeHandle(std::string(handle, kHandleBytes), &decoded);
  if (!status.ok()) return status;
  uint64_t group = 0;
  status = carrier_->MakeUpConnection(&group);
  std::vector<std::shared_ptr<SendComm>> comms(static_cast<size_t>(decoded.stripes));
  for (size_t i = 0; i < comms.size() && status.ok(); ++i) {
    status = carrier_->ConnectAs((group & ~kStripeMask) + i, decoded, home, &comms[i]);
  }
  if (!status.ok()) {
    for (const auto& comm : comms) {
      if (comm != nullptr) comm->Close();
    }
    return status;
  }
  auto piece = static_cast<uint64_t>(carrier_->environment().params.chunk_bytes);
  *made = std::make_unique<SendGroup>(std::move(comms), piece);
  return {};
}

// Zero is what Listen leaves in a handle.
Status Connections::NameAttempt(uint64_t* attempt) {
  MutexLock lock(mutex_);
  if (last_attempt_ == 0) {
    Status status = carrier_->MakeUpConnection(&last_attempt_);
    if (!status.ok()) return status;
  }
  if (++last_attempt_ == 0) ++last_attempt_;
  *attempt = last_attempt_;
  return {};
}

// nullptr unless the attempt is under way.
std::unique_ptr<SendGroup> Connections::TakeAttempt(uint64_t attempt) {
  MutexLock lock(mutex_);
  auto entry = connecting_.extract(attempt);
  return entry.empty() ? nullptr : std::move(entry.mapped().group);
}

void Connections::KeepAttempt(uint64_t attempt, std::unique_ptr<SendGroup> group) {
  MutexLock lock(mutex_);
  connecting_[attempt] = {std::move(group), Now()};
}

// The number of the attempt under way is kept in the handle's unused tail, which Listen left zero.
Status Connections::Connect(int device, char* handle, std::unique_ptr<SendGroup>* made) {
  made->reset();
  uint64_t attempt = 0;
  std::memcpy(&attempt, handle + kAttemptAt, sizeof attempt);
  std::unique_ptr<SendGroup> group;
  Status status;
  if (attempt == 0) {
    status = NameAttempt(&attempt);
    if (status.ok()) status = Begin(handle, device, &group);
    if (!status.ok()) return status;
    std::memcpy(handle + kAttemptAt, &attempt, sizeof attempt);
  } else if (group = TakeAttempt(attempt); group == nullptr) {
    return {Code::kInvalidArgument, "handle was not made by r2ccl, or was changed on its way"};
  }
  bool ready = false;
  status = group->Ready(&ready);
  if (status.ok() && !ready) {
    KeepAttempt(attempt, std::move(group));
    return {};
  }
  std::memset(handle + kAttemptAt, 0, sizeof attempt);
  if (!status.ok()) {
    group->Close();
    return status;
  }
  *made = std::move(group);
  return {};
}

std::unique_ptr<RecvGroup> Connections::Accept(ListenComm* waiting) {
  while (std::shared_ptr<RecvComm> comm = waiting->arrivals->Accept()) {
    auto group = waiting->collector.Add(std::move(comm));
    if (!group.empty()) return std::make_unique<RecvGroup>(std::move(group));
  }
  return nullptr;
}

void Connections::CloseListen(std::unique_ptr<ListenComm> waiting) {
  waiting->arrivals->Close();
  waiting->collector.Close();
  DropAbandoned(PatienceNs());
}

int64_t Connections::PatienceNs() const {
  return kAbandonedAfter * carrier_->environment().params.give_up_ms * kMillisecond;
}

void Connections::DropAbandoned(int64_t for_ns) {
  std::vector<std::unique_ptr<SendGroup>> abandoned;
  {
    MutexLock lock(mutex_);
    for (auto entry = connecting_.begin(); entry != connecting_.end();) {
      bool old = Now() - entry->second.asked_ns >= for_ns;
      if (old) abandoned.push_back(std::move(entry->second.group));
      entry = old ? connecting_.erase(entry) : std::next(entry);
    }
  }
  for (const auto& group : abandoned) group->Close();
}

}  // namespace r2ccl::plugin
