// Prober: finds out whether a NIC answers, with tiny connections of its own, apart from those that carry data.
//
// A probe is one TCP connection. Since a single packet may be lost, it is repeated on a fresh connection a few times
// within its time, and the first answer counts. Work is bounded: beyond kMostQuestions at once, nothing more is probed.
#ifndef R2CCL_NET_PROBER_H_
#define R2CCL_NET_PROBER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "net/asker.h"
#include "net/poller.h"
#include "net/socket.h"
#include "net/wire.h"

namespace r2ccl {

// Thread-safe. Answers come by the poller's thread. Destroy it after the poller was stopped.
class Prober final : public Asker, private Pollable {
 public:
  static constexpr size_t kMostQuestions = 128;
  static constexpr int kAttempts = 3;
  explicit Prober(Poller* poller) : poller_(poller) {}

  void Ask(Question question, OnAnswer on_answer) override;
  // To be called by the poller's thread about every Poller::kTickMs.
  void Tick(int64_t now_ns);

 private:
  struct Attempt {
    Fd fd;
    uint64_t poll_id = 0;
    bool connected = false;
    size_t bytes = 0;
    uint8_t header[kHeaderBytes] = {};
  };
  struct Asked {
    Question question;
    OnAnswer on_answer;
    int64_t deadline_ns = 0;
    int64_t next_attempt_ns = 0;
    int attempts_left = kAttempts;
    std::vector<std::unique_ptr<Attempt>> attempts;
    Answer answer = Answer::kSilent;
    bool answered = false;
    bool has_said = false;
    Frame said;
  };

  void OnEvents(uint64_t id, int tag, uint32_t events) override;
  // A question that is heard no more of is answered when its time is over.
  void OnUnwatched(uint64_t, int, const std::string&) override {}
  void OnThrow(const std::string&) override {}
  void TryAgain(uint64_t number, Asked& asked, int64_t now_ns) REQUIRES(mutex_);
  void Progress(Asked& asked, Attempt& attempt) REQUIRES(mutex_);
  void Drop(Asked& asked, Attempt& attempt) REQUIRES(mutex_);
  void Settle(Asked& asked, Answer answer) REQUIRES(mutex_);

  std::shared_ptr<Pollable> Self() { return {std::shared_ptr<void>(), this}; }  // not owning: we outlive the poller

  Poller* const poller_;
  Mutex mutex_;  // guards what follows; only the poller's leaf lock is taken under it
  std::unordered_map<uint64_t, Asked> asked_ GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, uint64_t> question_of_ GUARDED_BY(mutex_);  // by poll id
  uint64_t next_number_ GUARDED_BY(mutex_) = 1;
};

}  // namespace r2ccl

#endif  // R2CCL_NET_PROBER_H_
