// What is late at the sending end, and the copies of chunks that go by several paths.
#include <algorithm>
#include <utility>

#include "failover/send_comm.h"

namespace r2ccl {
namespace {

constexpr int64_t kTrialPauseNs = 250 * kMillisecond;
constexpr uint64_t kSmallBytes = 16 * 1024;  // larger messages, if many are under way, show what NICs drain

}  // namespace

// Whether a copy should go over the path now: its way's probation ends with that, or its NIC is much slower than
// others, as far as is known.
bool SendComm::WantsTrial(const Path& path, int64_t now_ns) const {
  if (path.way->on_probation()) return path.way->wants_trial();
  const NicState& nic = nic_state(path);
  double drain = nic.drain_bytes_per_ns.load(std::memory_order_relaxed);
  if (drain == 0 || drain * kMuchFaster >= BestNicRate() || nic.in_flight_bytes.load() > 0) return false;
  return now_ns - nic.tried_ns.load() >= kTrialPauseNs;
}

// Whether this connection is the one that sends it. REQUIRES that the path wants it.
bool SendComm::TakeTrial(const Path& path, int64_t now_ns) {
  if (path.way->on_probation()) {
    return path.way->With([now_ns](Probation& probation) { return probation.TakeTrial(now_ns); });
  }
  NicState& nic = nic_state(path);
  int64_t tried_ns = nic.tried_ns.load();
  return now_ns - tried_ns >= kTrialPauseNs && nic.tried_ns.compare_exchange_strong(tried_ns, now_ns);
}

// Whether a trial of this connection's is under way on the path, and takes more.
bool SendComm::IsOnTrial(const Path& path, int64_t now_ns) {
  const auto& test = path.test;
  return test.end != 0 && !test.missed && test.trial_bytes > 0 && test.trial_bytes < kTrialBytes &&
         path.way->on_probation() && now_ns < test.began_ns + Probation::kTrialNs;
}

// What was just put on `carrier` goes over paths that have to show what they drain as well. Nobody waits for that.
void SendComm::TryWays(const Path& carrier, int64_t now_ns) {
  // A stream that writes straight from memory which is about to be the user's again is lost by it.
  if (environment_->params.zero_copy_bytes > 0) return;
  for (Path& path : paths_) {
    auto& in_flight = outgoing(carrier).in_flight;
    if (in_flight.empty() || in_flight.back().copies != nullptr) return;
    if (&path == &carrier || path.state != PathState::kUp) continue;
    bool more = IsOnTrial(path, now_ns);
    if (!more && (path.test.end != 0 || !WantsTrial(path, now_ns))) continue;
    Progress progress;
    if (!path.stream->has_room() || path.stream->unsaid_bytes() > 0 || !path.stream->ReadProgress(&progress)) continue;
    if (!more && !TakeTrial(path, now_ns)) continue;
    in_flight.back().copies = std::make_shared<Copies>();
    Chunk copy = in_flight.back();
    copy.trial = true;
    if (path.way->on_probation()) {
      if (!more) path.test = {.resent = progress.resent, .began_ns = now_ns};
      path.test.sent_ns = now_ns;
      path.test.end = path.stream->end() + kHeaderBytes + copy.length;
      path.test.trial_bytes += copy.length;
    }
    PutOn(path, std::move(copy), now_ns);
    ++environment_->trial_chunks;
  }
}

// What it drains, but no more than the best of the NICs: after a pause a shaper lets a chunk go at once, and a NIC that
// is taken for many times as fast as it is would be late with whatever it gets.
void SendComm::NoteTrial(NicState& nic, double bytes_per_ns) const {
  double known = nic.drain_bytes_per_ns.load(std::memory_order_relaxed);
  double shown = std::min(bytes_per_ns, BestNicRate());
  if (known > 0 && shown > known) nic.drain_bytes_per_ns.store(shown);
}

// When a chunk that is put on the path now would be late. Messages that are copied are in no NIC's queue: where nothing
// else is under way, they drain at least as all that the NIC carried lately.
int64_t SendComm::LateAfter(const Path& path) const {
  int64_t rtt_ns = path.shortest_rtt_ns;
  for (const Path& other : paths_) {
    if (other.state == PathState::kUp && other.shortest_rtt_ns > 0) rtt_ns = std::min(rtt_ns, other.shortest_rtt_ns);
  }
  const NicState& nic = nic_state(path);
  double drain = nic.drain_bytes_per_ns.load(std::memory_order_relaxed);
  auto queued = static_cast<double>(nic.in_flight_bytes.load(std::memory_order_relaxed));
  if (queued > 0) return LateAfterNs(rtt_ns, queued, drain, nic.peak_bytes_per_ns.load(std::memory_order_relaxed));
  uint64_t end = path.stream->end();  // what opened the stream may count as acknowledged, too
  auto copied = static_cast<double>(end - std::min(end, path.acked_bytes));
  return LateAfterNs(rtt_ns, copied, drain, nic.carried_bytes_per_ns.load(std::memory_order_relaxed));
}

// By how much the chunk is later than it should be; 0: it is not late, or nobody knows.
int64_t SendComm::OverdueNs(Path& path, const Chunk& chunk, int64_t now_ns) {
  int64_t passed_ns = path.way->passed_ns();
  bool silent = IsSilent(chunk.sent_ns, passed_ns);
  // Where something of its NIC was late already, a queue that may have grown since is no excuse for more silence.
  int64_t grows_from_ns = silent && NicIsDoubted(path) ? chunk.sent_ns : passed_ns;
  int64_t excused_ns = HeldNs(path) - chunk.held_ns - SoonerNs(chunk.sent_ns, grows_from_ns, path.usual_ns);
  int64_t asked_ns = chunk.due_ns + excused_ns - kAskAheadNs;
  if (now_ns <= asked_ns) {
    LookAt(asked_ns + 1, now_ns);
    return 0;
  }
  if (!PeerSpoke(path, asked_ns, now_ns)) {
    LookForAnswer(asked_ns + kAskAheadNs, now_ns);
    return 0;
  }
  // What is usual may be the memory of streams that had nothing to do since. If this way is silent, the peer is asked
  // over the others, and how long it takes to answer counts, twice for chance.
  int64_t elsewhere_ns = LookElsewhere(path).usual_ns;
  if (elsewhere_ns > kAskAheadNs && silent) {
    if (answered_ns_ < asked_ns) AskPeer(path, now_ns);
    bool knows = answered_ns_ >= asked_ns && asked_about_ == path.index;
    if (knows) elsewhere_ns = std::min(elsewhere_ns, 2 * answer_took_ns_);
    if (!knows) LookForAnswer(asked_ns + kAskAheadNs, now_ns);
  }
  int64_t due_ns = std::max(chunk.due_ns, chunk.sent_ns + LateAfterNs(elsewhere_ns)) + excused_ns;
  LookAt(due_ns + 1, now_ns);
  return std::max<int64_t>(0, now_ns - due_ns);
}

// Has the next tick come at `due_ns`, or as soon as the peer may have answered what it was just asked.
void SendComm::LookForAnswer(int64_t due_ns, int64_t now_ns) {
  if (now_ns - asked_word_ns_ < kAskAheadNs) LookAt(std::max(due_ns + 1, now_ns + kMillisecond), now_ns);
}

// Has the next tick come then, if that is to come.
void SendComm::LookAt(int64_t time_ns, int64_t now_ns) {
  if (time_ns > now_ns) look_ns_ = std::min(look_ns_, time_ns);
}

// Before something is put on the path: its answer waits for what the NIC has under way, over all connections. Messages
// that are copied count for nothing there. The mean is made as a kernel makes its mean round trip.
void SendComm::NoteQueue(Path& path) const {
  auto queued = static_cast<double>(nic_state(path).in_flight_bytes.load(std::memory_order_relaxed));
  path.queued_bytes += (queued - path.queued_bytes) / 8;
}

// What answers take beyond the pair's own queue tells of slow pairs before anything is late. The peer's kernel may put
// off the answer to a single packet, so only more of them count. A mean that falls remembers what is over. Larger
// messages show which NICs are slow by what these drain, or are late there, unless so few are under way at once that no
// NIC ever has a queue.
void SendComm::CheckSlow(Path& path, const Progress& progress, int64_t now_ns) {
  bool full = progress.bytes_acked - path.acked_bytes >= 2 * progress.packet_bytes;
  if (!progress.rtt_by_kernel || !full) return;
  if (outgoing(path).last_bytes > kSmallBytes && OthersShowDrains(path, now_ns)) return;
  int64_t answer_ns = progress.rtt_ns;
  bool falls = answer_ns < path.way->answer_ns();
  path.way->NoteAnswer(answer_ns);
  if (path.way->on_probation()) return;
  ExcuseSlow(path, answer_ns, now_ns);
  int64_t best_ns = LookElsewhere(path).answer_ns;
  int64_t unexplained_ns = UnexplainedNs(answer_ns, path.queued_bytes, BestKnownRate());
  bool slow = IsSlow(unexplained_ns, best_ns) && !environment_->ways.IsExcused(answer_ns, now_ns);
  if (slow && falls) return;
  if (!path.slow.Note(slow, path.usual_ns, now_ns)) return;
  auto told = [](int64_t ns) { return std::to_string(ns / 1000) + " us"; };
  BeginProbation(path, now_ns, "answers take " + told(answer_ns) + ", elsewhere " + told(best_ns), answer_ns);
}

// What a slow pair carried now goes over this one. Where that makes its answers as slow, the slow one was not sick; of
// several the one that was least slow.
void SendComm::ExcuseSlow(Path& path, int64_t answer_ns, int64_t now_ns) {
  int64_t slow_ns = 0;
  for (const Path& other : paths_) {
    if (&other == &path || other.way == nullptr || other.way->excusable_ns() == 0) continue;
    slow_ns = slow_ns == 0 ? other.way->excusable_ns() : std::min(slow_ns, other.way->excusable_ns());
  }
  if (slow_ns == 0 || !path.no_faster.Note(answer_ns >= slow_ns, answer_ns, now_ns)) return;
  for (const Path& other : paths_) {
    if (other.way == nullptr || other.way->excusable_ns() == 0 || answer_ns < other.way->excusable_ns()) continue;
    environment_->ways.Excuse(std::max(answer_ns, slow_ns), now_ns);
    other.way->With([](Probation& probation) { return probation.Excuse(); });
  }
}

// What the peer's kernel should have had by now, and what is behind it in the same stream, goes over another path as
// well. A peer whose program leaves no room for more, or does not look, is not late.
void SendComm::OnProgress(Path& path, const Progress& progress, int64_t now_ns) {
  bool carries = outgoing(path).in_flight_bytes > 0 && progress.bytes_acked > path.acked_bytes;
  if (carries) nic_state(path).usual_ns.store(path.usual_ns, std::memory_order_relaxed);
  if (environment_->params.mode != 2) return;
  CheckSlow(path, progress, now_ns);
  bool alone = false;
  int64_t overdue_ns = 0;
  path.late = false;
  int64_t works_until_ns = WayWorksUntilNs(path, now_ns);
  if (works_until_ns > 0) {
    if (!outgoing(path).in_flight.empty()) LookAt(works_until_ns, now_ns);
    return;
  }
  for (const Chunk& chunk : outgoing(path).in_flight) {
    if (chunk.end <= progress.bytes_acked) {
      path.way->NotePassed(chunk.sent_ns);
      continue;
    }
    int64_t chunk_ns = OverdueNs(path, chunk, now_ns);
    if (chunk_ns == 0) continue;
    path.late = true;
    overdue_ns = std::max(overdue_ns, chunk_ns);
    alone = alone || GoesAlone(chunk);
  }
  if (!alone) return;
  std::string why = "late by " + std::to_string(overdue_ns / kMillisecond) + " ms";
  bool first = !path.way->on_probation();
  if (!BeginProbation(path, now_ns, why)) return;
  // Either NIC may be dead to all its peers. Each of them would find out by a message that comes late, one after
  // another where one waits for the other.
  if (first) {
    DoubtNic(path, now_ns);
    TellPeer(path, path.epoch, Cause::kLate);
  }
  uint64_t copied = SendAgain(path, progress.bytes_acked);
  if (copied > 0 && path.way->With([](Probation& probation) { return probation.TakeCopied(); })) {
    Log("copied", path, why + ": " + std::to_string(copied) + " chunks go to other NICs as well");
  }
}

// Whether no other path has, or had, the chunk as well.
bool SendComm::GoesAlone(const Chunk& chunk) {
  return chunk.copies == nullptr || (chunk.copies->alive == 1 && !chunk.copies->acknowledged);
}

uint64_t SendComm::SendAgain(Path& path, uint64_t acked_bytes) {
  auto& in_flight = outgoing(path).in_flight;
  uint64_t count = 0;
  for (auto chunk = in_flight.rbegin(); chunk != in_flight.rend(); ++chunk) {
    if (chunk->end <= acked_bytes || !GoesAlone(*chunk)) continue;
    chunk->copies = std::make_shared<Copies>();
    queues_[chunk->queue].push_front(*chunk);
    queues_[chunk->queue].front().trial = false;
    ++waiting_chunks_;
    waiting_bytes_ += chunk->length;
    ++count;
  }
  environment_->replayed_chunks += count;
  Pump();
  return count;
}

// Its memory is about to be the user's again: what a stream still has to be given of it is copied, and no more of it
// waits.
void SendComm::DropCopies(const Chunk& chunk) {
  chunk.copies->acknowledged = true;
  auto& queue = queues_[chunk.queue];
  auto copy = std::find_if(queue.begin(), queue.end(), [&](const Chunk& one) { return one.copies == chunk.copies; });
  if (copy != queue.end()) {
    --waiting_chunks_;
    waiting_bytes_ -= copy->length;
    --chunk.copies->alive;
    queue.erase(copy);
  }
  for (Path& path : paths_) {
    if (path.stream == nullptr || !path.stream->sending()) continue;
    if (outgoing(path).in_flight.back().copies == chunk.copies) path.stream->KeepBody();
  }
}

// Whether a chunk that was in flight on a lost path has to be sent again.
bool SendComm::IsTheLast(Chunk& chunk) {
  if (chunk.copies == nullptr) return true;
  int left = --chunk.copies->alive;
  bool acknowledged = chunk.copies->acknowledged;
  chunk.copies.reset();
  return left == 0 && !acknowledged;
}

}  // namespace r2ccl
