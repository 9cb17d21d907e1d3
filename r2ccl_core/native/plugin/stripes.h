// Stripes: one NCCL connection, made of several of ours whose messages take turns.
//
// One thread moves the data of one of our connections, and a thread moves a few GB/s: on fast NICs that is the limit.
// On slow NICs another stream would only compete, and with small messages threads spend their time on being woken. So a
// connection begins with one stripe, the first, and spreads over all of them, permanently, when it sends a large
// message and its home NIC has been seen to drain at a high rate. Both ends must know where each message goes before
// its buffer is posted, and neither may wait for the other. The sending end marks that message, number m; from number m
// + kNotice on, messages take turns. The receiving end posts number n only once all up to n - kNotice have come, so it
// knows every mark that concerns n. (NCCL has at most 32 requests in flight, so it never waits for that.)
//
// Each stripe is a connection like any other and hides failures by itself. The failure of one ends all, at once for
// operations requested of the group, and with the next tick for those in flight. A stripe's connection number is the
// group's plus its index, which fits in the low bits.
#ifndef R2CCL_PLUGIN_STRIPES_H_
#define R2CCL_PLUGIN_STRIPES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "failover/comm.h"
#include "net/handle.h"

namespace r2ccl::plugin {

constexpr uint64_t kNotice = 64;

// SendComms or RecvComms. One thread uses it, as NCCL does.
template <typename T>
class Stripes {
 public:
  explicit Stripes(std::vector<std::shared_ptr<T>> comms) : comms_(std::move(comms)) {
    auto fate = std::make_shared<Fate>();
    for (const auto& comm : comms_) comm->ShareFate(fate);
  }

  // The end of any of them.
  Status failure() const {
    for (const auto& comm : comms_) {
      if (comm->has_ended()) return comm->failure();
    }
    return {};
  }
  bool is_spread() const { return next_ >= spread_from_; }
  const std::vector<std::shared_ptr<T>>& comms() const { return comms_; }
  void Close() {
    for (const auto& comm : comms_) comm->Close();
  }

 protected:
  // Whether they do not spread yet, and nothing was said of when they will.
  bool MaySpread() const { return comms_.size() > 1 && spread_from_ == kNoMessage; }
  // Whose turn the next message is.
  T& Turn() const { return *comms_[next_ < spread_from_ ? 0 : (next_ - spread_from_) % comms_.size()]; }

  std::vector<std::shared_ptr<T>> comms_;
  uint64_t next_ = 0;  // number of the next message
  uint64_t spread_from_ = kNoMessage;
};

// T: SendComm.
template <typename T>
class SendStripes : public Stripes<T> {
 public:
  // They spread with a message of more than `small` bytes once the home NIC is fast.
  SendStripes(std::vector<std::shared_ptr<T>> comms, uint64_t small) : Stripes<T>(std::move(comms)), small_(small) {}

  Status Ready(bool* ready) {
    Status status;
    *ready = true;
    for (const auto& comm : this->comms_) {
      bool one_ready = false;
      if (status.ok()) status = comm->Ready(&one_ready);
      *ready = *ready && one_ready;
    }
    return status;
  }

  Status Isend(const void* data, uint64_t size, Request** request) {
    if (Status status = this->failure(); !status.ok()) return status;
    bool mark = size > small_ && this->MaySpread() && this->comms_[0]->home_is_fast();
    Status status = this->Turn().Isend(data, size, request, mark);
    if (!status.ok()) return status;
    if (mark) this->spread_from_ = this->next_ + kNotice;
    ++this->next_;
    return {};
  }

 private:
  const uint64_t small_;
};

// T: RecvComm.
template <typename T>
class RecvStripes : public Stripes<T> {
 public:
  using Stripes<T>::Stripes;

  // Without a request: later again.
  Status Irecv(void* data, uint64_t capacity, Request** request, bool watched) {
    *request = nullptr;
    if (Status status = this->failure(); !status.ok()) return status;
    if (this->MaySpread()) {
      uint64_t oldest = this->comms_[0]->oldest();  // first: then the marks of all before it are known, too
      uint64_t marked = this->comms_[0]->marked();
      if (marked != kNoMessage) this->spread_from_ = marked + kNotice;
      if (marked == kNoMessage && this->next_ >= oldest + kNotice) return {};
    }
    Status status = this->Turn().Irecv(data, capacity, request, watched);
    if (status.ok()) ++this->next_;
    return status;
  }
};

constexpr uint64_t kStripeMask = kMaxStripes - 1;
static_assert((kMaxStripes & kStripeMask) == 0);

// Puts stripes together as they arrive.
template <typename T>
class StripeCollector {
 public:
  explicit StripeCollector(size_t stripes) : stripes_(stripes) {}

  // The whole group once `comm` is its last one, else empty.
  std::vector<std::shared_ptr<T>> Add(std::shared_ptr<T> comm) {
    uint64_t stripe = comm->connection() & kStripeMask;
    uint64_t group = comm->connection() - stripe;
    if (stripe >= stripes_) {  // not by our handle
      comm->Close();
      return {};
    }
    auto& members = forming_[group];
    members.resize(stripes_);
    members[stripe] = std::move(comm);
    if (std::any_of(members.begin(), members.end(), [](const auto& member) { return member == nullptr; })) return {};
    return std::move(forming_.extract(group).mapped());
  }

  // What never became whole.
  void Close() {
    for (const auto& [group, members] : forming_) {
      for (const auto& member : members) {
        if (member != nullptr) member->Close();
      }
    }
    forming_.clear();
  }

 private:
  const size_t stripes_;
  std::map<uint64_t, std::vector<std::shared_ptr<T>>> forming_;
};

}  // namespace r2ccl::plugin

#endif  // R2CCL_PLUGIN_STRIPES_H_
