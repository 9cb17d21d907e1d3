// Way: what all connections of the process know together about a NIC pair, one of our NICs and one of a peer's.
//
// A NIC that is neither healthy nor dead is worse than a dead one: its data is late, again and again, for each
// connection separately. So a connection that finds something late, later than the other pairs explain, puts the pair
// on probation for all connections: it carries no data that another pair can carry, until full-size test packets return
// without loss. How long they have to do so depends on the pair's record. The first time one clean test is enough, so
// that a false alarm costs a few milliseconds. A pair that is late again soon after a probation has to be clean for
// longer each time, but never for so long that its recovery would go unnoticed.
//
// Messages that follow each other are hurt long before anything counts as late. So a pair whose answers take much
// longer than another's and than its own queue explains, for some tens of milliseconds, goes on probation too. Messages
// that are copied count for no queue, and a rate may be a shaper's token bucket's: so nobody knows yet whether it is
// sick or has more to do than others, but what it carried now goes over those, and this shows: where their answers
// become as slow as its own were, the pair is excused and carries its part again.
//
// Where packets are lost over a pair and not over all others, the kernels' probes and timers make such messages several
// times as long, though answers to other packets are as fast as ever. That pair goes on probation for slowness, too, at
// either end: words of a receiving end are as few.
//
// Test packets are few, and say nothing of the rate and little of losses that come in bursts. So a repeated probation,
// one of which a test failed, and one for slowness, ends with a trial: for some tens of milliseconds the pair carries
// copies of chunks that another pair carries as well, more than a shaper lets go at once, and has to be at least half
// as fast as the best NIC and lose none. Nobody waits for the copies, so a sick pair costs nothing. If there is no
// chunk to try it with, the probation ends without a trial.
#ifndef R2CCL_FAILOVER_WAY_H_
#define R2CCL_FAILOVER_WAY_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace r2ccl {

// Pure: time is an argument.
class Probation {
 public:
  bool on() const { return on_; }
  // Whether it is more than the first alarm after a long time, or one that may be excused at once: the pair was late
  // again, failed a test, or was slow and is not excused.
  bool grave() const { return on_ && ((needed_ns_ > 0 && (slow_ns_ == 0 || was_clean_)) || missed_); }
  int64_t needed_ns() const { return needed_ns_; }

  // Whether there is something to report: true once for each grave probation.
  bool TakeNews() { return grave() && !std::exchange(told_, true); }
  // Whether that late chunks went over other NICs as well is to be reported: true once for each probation.
  bool TakeCopied() { return on_ && !std::exchange(copied_, true); }
  // Whether the end of this probation is to be reported, too.
  bool told() const { return told_; }

  // How long answers took, if that is why it is on probation, and what follows has to be as fast as over other pairs; 0
  // otherwise.
  int64_t slow_ns() const { return on_ ? slow_ns_ : 0; }
  // The same where the other pairs may show that its load alone made it slow. Load does not lose packets on one of
  // them.
  int64_t excusable_ns() const { return loses_ ? 0 : slow_ns(); }

  // Something was late, answers take `slow_ns`, or it also loses packets. For a pair that is already on probation, that
  // changes nothing.
  void Begin(int64_t now_ns, int64_t slow_ns = 0, bool loses = false) {
    if (std::exchange(on_, true)) return;
    loses_ = loses;
    trial_ = Trial::kNone;
    int64_t halves = ended_ns_ == 0 ? kForgottenHalves : (now_ns - ended_ns_) / kHalfLifeNs;
    int64_t record_ns = halves >= kForgottenHalves ? 0 : std::max(needed_ns_, kLeastNs) >> halves;
    needed_before_ns_ = needed_ns_;
    needed_ns_ = record_ns < kLeastNs ? 0 : std::min(kMostNs, kGrowth * record_ns);
    slow_ns_ = slow_ns;
    if (slow_ns > 0) needed_ns_ = std::max(needed_ns_, kLeastNs);
    missed_ = told_ = copied_ = was_clean_ = false;
    clean_since_ns_ = 0;
    pause_ns_ = kPauseNs;
    next_test_ns_ = now_ns;
  }

  // The other pairs' answers became as slow without it. Returns true if that ends the probation, of which nothing is
  // remembered then.
  bool Excuse() {
    if (excusable_ns() == 0) return false;
    needed_ns_ = needed_before_ns_;
    on_ = false;
    return true;
  }

  // Whether a test is due. The caller then runs the test and reports its result, if there is one.
  bool TakeTest(int64_t now_ns) {
    if (!on_ || now_ns < next_test_ns_) return false;
    next_test_ns_ = now_ns + pause_ns_;
    return true;
  }

  // Whether copies of chunks should go over it.
  bool wants_trial() const { return on_ && trial_ == Trial::kWanted; }
  // The caller then sends them, and reports what became of it with Prove or Miss, if its connection lives.
  bool TakeTrial(int64_t now_ns) {
    if (!wants_trial()) return false;
    trial_ = Trial::kTaken;
    trial_ns_ = now_ns;
    return true;
  }
  // The copies were fast enough. Returns true if that ends the probation.
  bool Prove(int64_t now_ns) {
    if (!on_ || trial_ != Trial::kTaken) return false;
    End(now_ns);
    return true;
  }

  // A test that was sent at `sent_ns` came back clean and in time. Returns true if that ends the probation.
  bool Pass(int64_t sent_ns, int64_t now_ns) {
    if (!on_) return false;
    if (clean_since_ns_ == 0) clean_since_ns_ = sent_ns;
    pause_ns_ = kSeriesPauseNs;
    next_test_ns_ = std::min(next_test_ns_, sent_ns + pause_ns_);
    if (now_ns - clean_since_ns_ < needed_ns_) return false;
    if ((needed_ns_ > 0 || missed_) && AwaitsTrial(now_ns)) return false;
    End(now_ns);
    return true;
  }

  // Packets of a test were lost, or it, or the trial, took too long.
  void Miss() {
    clean_since_ns_ = 0;
    missed_ = true;
    if (std::exchange(trial_, Trial::kNone) == Trial::kTaken) needed_ns_ = std::min(kMostNs, kGrowth * needed_ns_);
    pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  }

  static constexpr int64_t kTrialNs = 50 * kMillisecond;  // in which there is a chunk, if anything is sent at all

 private:
  static constexpr int64_t kLeastNs = 25 * kMillisecond;
  static constexpr int64_t kGrowth = 4;
  static constexpr int64_t kMostNs = 600 * kMillisecond;
  static constexpr int64_t kHalfLifeNs = 2000 * kMillisecond;
  static constexpr int64_t kForgottenHalves = 8;
  static constexpr int64_t kPauseNs = 25 * kMillisecond;
  static constexpr int64_t kSeriesPauseNs = 10 * kMillisecond;  // between clean tests: losses in bursts are rare
  static constexpr int64_t kLongestPauseNs = 100 * kMillisecond;

  enum class Trial : uint8_t { kNone, kWanted, kTaken };

  void End(int64_t now_ns) {
    on_ = false;
    trial_ = Trial::kNone;
    ended_ns_ = now_ns;
  }
  // Its connection may have ended with what it took.
  bool AwaitsTrial(int64_t now_ns) {
    was_clean_ = true;
    if (trial_ == Trial::kNone) {
      trial_ = Trial::kWanted;
      trial_ns_ = now_ns;
    }
    return now_ns - trial_ns_ < (trial_ == Trial::kWanted ? kTrialNs : kMostNs);
  }

  bool on_ = false;
  bool loses_ = false;  // packets, while other pairs do not
  bool missed_ = false;
  bool was_clean_ = false;  // for long enough once, and not excused until then
  bool told_ = false;
  bool copied_ = false;
  Trial trial_ = Trial::kNone;
  int64_t trial_ns_ = 0;          // when it was wanted, or taken
  int64_t slow_ns_ = 0;           // see slow_ns(); 0: something was late
  int64_t needed_before_ns_ = 0;  // needed_ns_ of the one before
  int64_t needed_ns_ = 0;         // how long tests have to come back clean
  int64_t clean_since_ns_ = 0;    // start of the present series of clean tests; 0: none
  int64_t ended_ns_ = 0;          // of the last probation; 0: there was none
  int64_t pause_ns_ = kPauseNs;
  int64_t next_test_ns_ = 0;
};

// A test is this many packets of full size: a loss of one in eight shows in two tests out of three.
constexpr int kTestPackets = 8;

// The time after the usual duration from which on something counts as late: as long as others may need to fill a NIC's
// queue, which is then silent.
constexpr int64_t kLateNs = 22 * kMillisecond;
constexpr int64_t LateAfterNs(int64_t usual_ns) { return kLateNs + 2 * usual_ns; }

// Whether a NIC pair is silent since something was sent at `sent_ns`, if the last that arrived was sent at `passed_ns`;
// 0: nothing arrived.
constexpr bool IsSilent(int64_t sent_ns, int64_t passed_ns) { return passed_ns != 0 && passed_ns <= sent_ns; }

// How much sooner something is late that was sent at `sent_ns`, if the last that arrived of what was sent over the same
// NIC pair was sent at `passed_ns` (0: nothing was), and answers took `usual_ns` there. In the time between the two a
// queue grows by no more than what so many NICs send into it. That leaves the time in which a busy machine or a lost
// packet's probe answers.
constexpr int64_t SoonerNs(int64_t sent_ns, int64_t passed_ns, int64_t usual_ns) {
  constexpr int64_t kFillingNics = 8;
  constexpr int64_t kLeastLateNs = 10 * kMillisecond;
  if (!IsSilent(sent_ns, passed_ns)) return 0;
  return std::max<int64_t>(0, kLateNs - kLeastLateNs - kFillingNics * (sent_ns - passed_ns) - usual_ns);
}

// The other NIC pairs to the same peer, as they are now: a pair is faulty only in comparison with healthy ones. If
// other traffic fills all of them, answers take long and packets are lost everywhere.
struct Elsewhere {
  int64_t usual_ns = 0;   // time of an answer on the best of them; 0: unknown
  int64_t answer_ns = 0;  // its mean on the best of them; 0: unknown
  bool lossy = false;     // packets are lost on each
  bool any = false;

  // Another pair. The times are 0 before their first measurement, when it counts as neither fast nor slow.
  constexpr void Add(int64_t way_usual_ns, int64_t way_answer_ns, bool way_lossy) {
    lossy = (!any || lossy) && way_lossy;
    any = true;
    if (way_usual_ns != 0) usual_ns = usual_ns == 0 ? way_usual_ns : std::min(usual_ns, way_usual_ns);
    if (way_answer_ns != 0) answer_ns = answer_ns == 0 ? way_answer_ns : std::min(answer_ns, way_answer_ns);
  }
};

constexpr int64_t kSlowNs = 60 * kMillisecond;  // for how long a pair's answers are slow before it goes on probation
constexpr int64_t kNoFasterNs = 20 * kMillisecond;  // for how long those of others are no faster before it is excused

// Whether something has been so for long enough, by what ticks say of it. Pure: time is an argument.
class Lasting {
 public:
  explicit constexpr Lasting(int64_t needed_ns) : needed_ns_(needed_ns) {}

  // `is`: whether it is so, by answers that take up to `answer_ns`. Returns true, and begins anew, once it was for
  // `needed_ns` more than half of the time in which it was not. An answer says nothing of a longer time than itself and
  // a tick.
  bool Note(bool is, int64_t answer_ns, int64_t now_ns) {
    int64_t span_ns = std::min(now_ns - std::exchange(last_ns_, now_ns), std::max(kTickNs, answer_ns));
    lasts_ns_ = is ? lasts_ns_ + span_ns : std::max<int64_t>(0, lasts_ns_ - span_ns / 2);
    if (lasts_ns_ < needed_ns_) return false;
    lasts_ns_ = 0;
    return true;
  }

 private:
  static constexpr int64_t kTickNs = 5 * kMillisecond;
  int64_t needed_ns_;
  int64_t last_ns_ = 0;
  int64_t lasts_ns_ = 0;
};

// How slow answers were of a pair that was not sick: for a while others that are as slow are not either, nor twice as
// slow ones. What is slow by its load is slow again and again, on one pair or another. Pure: time is an argument.
class Excused {
 public:
  void Note(int64_t answer_ns, int64_t now_ns) {
    answer_ns_ = answer_ns;
    noted_ns_ = now_ns;
  }
  bool Covers(int64_t answer_ns, int64_t now_ns) const {
    return answer_ns <= 2 * (answer_ns_ >> std::min<int64_t>(63, (now_ns - noted_ns_) / kExcuseHalfLifeNs));
  }

 private:
  static constexpr int64_t kExcuseHalfLifeNs = 10'000 * kMillisecond;
  int64_t answer_ns_ = 0;
  int64_t noted_ns_ = 0;
};

// What an answer took beyond the time in which the best NIC drains `queued_bytes` that were before it. Nobody knows
// where no rate is known (0), and nothing counts as unexplained then.
constexpr int64_t UnexplainedNs(int64_t answer_ns, double queued_bytes, double bytes_per_ns) {
  if (queued_bytes <= 0) return answer_ns;
  if (bytes_per_ns <= 0) return 0;
  return std::max<int64_t>(0, answer_ns - static_cast<int64_t>(queued_bytes / bytes_per_ns));
}

// From which time on answers are slow, if those of the best other pair take `best_ns`.
constexpr int64_t SlowFromNs(int64_t best_ns) {
  constexpr int64_t kClearlyNs = kMillisecond / 4;
  constexpr int64_t kManyTimes = 3;
  return kClearlyNs + kManyTimes * best_ns;
}

// Whether a pair's answers take much longer than those of the best other pair; 0: unknown.
constexpr bool IsSlow(int64_t answer_ns, int64_t best_ns) { return best_ns > 0 && answer_ns > SlowFromNs(best_ns); }

// The time in which a NIC drains `bytes`, at `bytes_per_ns`. If that is 0 (unknown), it drains at least `least_per_ns`,
// which may be much less than it can, because it had little to do.
constexpr int64_t DrainNs(double bytes, double bytes_per_ns, double least_per_ns = 0) {
  constexpr int64_t kUnknownNs = 20 * kMillisecond;
  if (bytes_per_ns > 0) return static_cast<int64_t>(bytes / bytes_per_ns);
  bool few = bytes < least_per_ns * static_cast<double>(kUnknownNs);
  return few ? static_cast<int64_t>(bytes / least_per_ns) : kUnknownNs;
}

// The time from which on something counts as late if the best pair usually takes `rtt_ns` plus the time of `bytes`,
// those queued before it and its own, as DrainNs has it.
constexpr int64_t LateAfterNs(int64_t rtt_ns, double bytes, double bytes_per_ns, double least_per_ns = 0) {
  return LateAfterNs(rtt_ns + DrainNs(bytes, bytes_per_ns, least_per_ns));
}

// What a trial carries: more than a shaper's token bucket lets go at once.
constexpr uint64_t kTrialBytes = 1024 * 1024;

// The time in which a trial's chunk has to arrive, if the best NIC needs `best_ns` for it and those before it: NICs
// share the work as equals that differ by less than two (placement.h), and the time is read at ticks.
constexpr int64_t TrialLimitNs(int64_t best_ns) {
  constexpr int64_t kReadNs = 5 * kMillisecond;
  return kReadNs + 2 * best_ns;
}

// How long before something counts as late the peer's program is asked whether it runs: its answer takes a round trip,
// and is read at a tick.
constexpr int64_t kAskAheadNs = 5 * kMillisecond;

// The bytes that all streams of a NIC pair have carried in the last tens of milliseconds. Pure: time is an argument.
class Carried {
 public:
  // Of them, so many were acknowledged by `acked_ns`, as is seen now.
  void Add(uint64_t bytes, int64_t acked_ns, int64_t now_ns) {
    Turn(now_ns);
    bytes_ += bytes;
    last_ns_ = std::max(last_ns_, acked_ns);
  }

  // Until when the pair works if nothing more comes; 0: it does not. It does while they are a fair part of what a NIC
  // that drains `bytes_per_ns` carries in that time, and still continue: the last of them are not older than an answer
  // takes, `round_trip_ns`, which a full queue makes long. A stream whose window has collapsed, while others share its
  // NIC and the peer's, is late on a pair that works: one of 40 such streams under reno may wait for 200 ms. A NIC that
  // loses packets, drops large ones, or has a hundredth of its rate, carries no fair part.
  int64_t WorksUntilNs(double bytes_per_ns, int64_t round_trip_ns, int64_t now_ns) {
    Turn(now_ns);
    double enough = kFairPart * bytes_per_ns * static_cast<double>(kSpanNs);
    int64_t until_ns = last_ns_ + std::max(kRecentNs, round_trip_ns);
    bool works = enough > 0 && static_cast<double>(bytes_ + before_) >= enough && now_ns < until_ns;
    return works ? until_ns : 0;
  }

 private:
  static constexpr int64_t kSpanNs = 20 * kMillisecond;
  static constexpr int64_t kRecentNs =
      10 * kMillisecond;                        // two ticks: a pair that has been silent since then may be cut off
  static constexpr double kFairPart = 1.0 / 8;  // several senders may share the peer's NIC

  void Turn(int64_t now_ns) {
    if (now_ns - since_ns_ < kSpanNs) return;
    before_ = now_ns - since_ns_ < 2 * kSpanNs ? bytes_ : 0;
    bytes_ = 0;
    since_ns_ = now_ns;
  }

  int64_t last_ns_ = 0;
  int64_t since_ns_ = 0;
  uint64_t bytes_ = 0;   // since then
  uint64_t before_ = 0;  // in the span before
};

// Thread-safe.
class Way {
 public:
  void Add(uint64_t bytes, int64_t acked_ns, int64_t now_ns) {
    MutexLock lock(mutex_);
    carried_.Add(bytes, acked_ns, now_ns);
  }
  int64_t WorksUntilNs(double bytes_per_ns, int64_t round_trip_ns, int64_t now_ns) {
    MutexLock lock(mutex_);
    return carried_.WorksUntilNs(bytes_per_ns, round_trip_ns, now_ns);
  }
  // What was sent at that time has arrived.
  void NotePassed(int64_t sent_ns) {
    if (sent_ns > passed_ns_.load(std::memory_order_relaxed)) passed_ns_.store(sent_ns, std::memory_order_relaxed);
  }
  // When the last of what has arrived was sent, give or take what several threads note at once; 0: nothing has.
  int64_t passed_ns() const { return passed_ns_.load(std::memory_order_relaxed); }
  // Of a stream that carries data over it: the mean time of an answer.
  void NoteAnswer(int64_t answer_ns) { answer_ns_.store(answer_ns, std::memory_order_relaxed); }
  // The last of those; 0: there was none.
  int64_t answer_ns() const { return answer_ns_.load(std::memory_order_relaxed); }
  bool on_probation() const { return on_.load(std::memory_order_relaxed); }
  bool grave() const { return grave_.load(std::memory_order_relaxed); }
  bool wants_trial() const { return wants_trial_.load(std::memory_order_relaxed); }
  int64_t slow_ns() const { return slow_ns_.load(std::memory_order_relaxed); }
  int64_t excusable_ns() const { return excusable_ns_.load(std::memory_order_relaxed); }
  template <typename Change>
  auto With(Change change) {
    MutexLock lock(mutex_);
    auto result = change(probation_);
    on_.store(probation_.on(), std::memory_order_relaxed);
    grave_.store(probation_.grave(), std::memory_order_relaxed);
    wants_trial_.store(probation_.wants_trial(), std::memory_order_relaxed);
    slow_ns_.store(probation_.slow_ns(), std::memory_order_relaxed);
    excusable_ns_.store(probation_.excusable_ns(), std::memory_order_relaxed);
    return result;
  }

 private:
  Mutex mutex_;  // a leaf lock: guards the members below
  Probation probation_ GUARDED_BY(mutex_);
  Carried carried_ GUARDED_BY(mutex_);
  std::atomic<int64_t> passed_ns_{0};
  std::atomic<int64_t> answer_ns_{0};
  std::atomic<bool> on_{false};
  std::atomic<bool> grave_{false};
  std::atomic<bool> wants_trial_{false};
  std::atomic<int64_t> slow_ns_{0};
  std::atomic<int64_t> excusable_ns_{0};
};

// Thread-safe. There are as many ways as NICs times peers' NICs, and they are kept for good.
class Ways {
 public:
  Way* Find(int nic, uint32_t peer) {
    MutexLock lock(mutex_);
    std::unique_ptr<Way>& way = ways_[{nic, peer}];
    if (way == nullptr) way = std::make_unique<Way>();
    return way.get();
  }
  void Excuse(int64_t answer_ns, int64_t now_ns) {
    MutexLock lock(mutex_);
    excused_.Note(answer_ns, now_ns);
  }
  bool IsExcused(int64_t answer_ns, int64_t now_ns) {
    MutexLock lock(mutex_);
    return excused_.Covers(answer_ns, now_ns);
  }

 private:
  Mutex mutex_;  // a leaf lock
  Excused excused_ GUARDED_BY(mutex_);
  std::map<std::pair<int, uint32_t>, std::unique_ptr<Way>> ways_ GUARDED_BY(mutex_);
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_WAY_H_
