// Inquiries, answers to others' questions, and what came of them.
#include "failover/locator.h"

#include <algorithm>
#include <bit>

#include "base/clock.h"
#include "failover/comm.h"

namespace r2ccl {
namespace {

constexpr size_t kMostNotes = 256;  // that wait for the next tick
constexpr int kAbsenceRounds = 3;
constexpr int64_t kAbsencePauseNs = 500'000'000;  // in which the other end and its neighbours come to know as much

template <typename T>
void AddNote(std::vector<T>* notes, T note) {
  if (notes->size() < kMostNotes) notes->push_back(std::move(note));
}

}  // namespace

void Locator::Suspect(Loss loss) {
  MutexLock lock(mutex_);
  AddNote(&losses_, std::move(loss));
}

void Locator::TakeProbe(ProbeOrder order) {
  MutexLock lock(mutex_);
  AddNote(&orders_, std::move(order));
}

void Locator::TakeProbed(uint64_t question, uint64_t tried, uint64_t reached) {
  MutexLock lock(mutex_);
  AddNote(&probed_, {question, tried, reached & tried});
}

void Locator::TakeVerdict(int nic, in_addr peer, Verdict verdict, bool standing) {
  Record(nic, peer, verdict, "the peer found out", standing);
}

void Locator::TakeAbsence(Loss loss, std::string why, bool asks) {
  MutexLock lock(mutex_);
  AddNote(&absences_, {std::move(loss), std::move(why), asks ? kAbsenceRounds : 0});
}

void Locator::TakeReturn(int nic, in_addr peer) {
  MutexLock lock(mutex_);
  auto entry = verdicts_.find({nic, peer.s_addr});
  if (entry != verdicts_.end()) entry->second.standing = false;
  AddNote(&returns_, {nic, peer.s_addr});
}

std::map<VerdictKey, VerdictRecord> Locator::Verdicts() const {
  MutexLock lock(mutex_);
  return verdicts_;
}

void Locator::Tick(int64_t now_ns) {
  std::vector<Loss> losses;
  std::vector<ProbeOrder> orders;
  std::vector<Probed> probed;
  std::vector<Absence> absences;
  std::vector<VerdictKey> returns;
  {
    MutexLock lock(mutex_);
    losses.swap(losses_);
    orders.swap(orders_);
    probed.swap(probed_);
    absences.swap(absences_);
    returns.swap(returns_);
  }
  for (Absence& absence : absences) NoteAbsence(std::move(absence), now_ns);
  for (const VerdictKey& key : returns) {
    absent_.erase(key);
    for (auto& [id, inquiry] : inquiries_) {
      inquiry.returned |= key == VerdictKey{inquiry.loss.nic, inquiry.loss.peer.address.s_addr};
    }
  }
  AskForAbsent(now_ns);
  for (const Loss& loss : losses) Begin(loss, now_ns);
  for (const ProbeOrder& order : orders) Answer(order, now_ns);
  for (const Probed& answer : probed) Apply(answer);
  std::vector<uint64_t> over;
  for (const auto& [id, inquiry] : inquiries_) {
    if (inquiry.pending == 0 || now_ns > inquiry.deadline_ns) over.push_back(id);
  }
  for (uint64_t id : over) Finish(id);
}

void Locator::NoteAbsence(Absence absence, int64_t now_ns) {
  in_addr peer = absence.loss.peer.address;
  VerdictKey key{absence.loss.nic, peer.s_addr};
  if (absent_.size() >= kMostRecords) return;
  auto [known, is_new] = absent_.try_emplace(key, absence);
  if (is_new) log_->Add("path_never_up", nics_[static_cast<size_t>(key.first)].name, ToString(peer), absence.why);
  if (!is_new && (absence.rounds_left == 0 || known->second.rounds_left > 0)) return;
  known->second = std::move(absence);
  known->second.next_round_ns = now_ns + kAbsencePauseNs;
}

void Locator::AskForAbsent(int64_t now_ns) {
  for (auto& [key, absence] : absent_) {
    if (absence.rounds_left == 0 || now_ns < absence.next_round_ns) continue;
    --absence.rounds_left;
    absence.next_round_ns = now_ns + kInquiryPauseNs + 2 * patience_ns_;
    if (!IsKnown(key)) Begin(absence.loss, now_ns);
  }
}

bool Locator::IsKnown(const VerdictKey& key) const {
  MutexLock lock(mutex_);
  auto entry = verdicts_.find(key);
  return entry != verdicts_.end() && entry->second.standing && entry->second.verdict != Verdict::kUnknown;
}

// All connections of a NIC lose their paths together: one inquiry is enough for them.
void Locator::Begin(const Loss& loss, int64_t now_ns) {
  VerdictKey key{loss.nic, loss.peer.address.s_addr};
  if (loss.own_link_down || loss.peer_link_down) {
    Evidence evidence;
    evidence.own_link_down = loss.own_link_down;
    evidence.peer_link_down = loss.peer_link_down;
    auto known = Verdicts();
    auto entry = known.find(key);
    bool news = entry == known.end() || !entry->second.standing || entry->second.verdict != Judge(evidence);
    if (news) Record(loss.nic, loss.peer.address, Judge(evidence), Explain(evidence), true);
    return;
  }
  std::erase_if(last_inquiry_ns_, [now_ns](const auto& last) { return now_ns - last.second > kInquiryPauseNs; });
  if (patience_ns_ == 0 || last_inquiry_ns_.contains(key) || inquiries_.size() >= kMostInquiries) return;
  last_inquiry_ns_[key] = now_ns;
  uint64_t id = next_id_++;
  Inquiry& inquiry = inquiries_[id];
  inquiry.loss = loss;
  inquiry.deadline_ns = now_ns + 2 * patience_ns_;  // others need as long as we do, and their words some time to travel
  if (loss.peer.port != 0) {
    ++inquiry.pending;
    AskHere(loss.nic, loss.peer,
            [this, id](bool reached) { Note(id, [reached](Evidence& e) { e.direct |= reached; }); });
  }
  AskThirds(id, inquiry);
  if (auto comm = loss.comm.lock()) AskRemote(id, inquiry, Asked::kPeer, comm, loss.path, {});
}

void Locator::AskThirds(uint64_t id, Inquiry& inquiry) {
  const Loss& loss = inquiry.loss;
  const Target own{nics_[static_cast<size_t>(loss.nic)].address, port_};
  for (const Third& third : Thirds(loss.nic, loss.peer.address)) {
    ++inquiry.pending;
    AskHere(loss.nic, third.target, [this, id](bool reached) {
      Note(id, [reached](Evidence& e) {
        ++e.own_tried;
        e.own_reached += reached ? 1 : 0;
      });
    });
    AskRemote(id, inquiry, Asked::kThird, third.comm, third.path, {own, loss.peer});
  }
}

void Locator::AskRemote(uint64_t id, Inquiry& inquiry, Asked whom, const std::shared_ptr<Comm>& comm, uint16_t path,
                        const std::vector<Target>& targets) {
  uint64_t question = next_id_++;
  if (!comm->Say(EncodeProbe(path, question, targets))) return;
  ++inquiry.pending;
  questions_[question] = {id, whom};
}

void Locator::AskHere(int nic, Target target, std::function<void(bool reached)> on_answer) {
  prober_->Ask(
      {nics_[static_cast<size_t>(nic)], target, "", patience_ns_},
      [on_answer = std::move(on_answer)](r2ccl::Answer answer, const Frame*) { on_answer(IsAnswered(answer)); });
}

void Locator::Note(uint64_t id, const std::function<void(Evidence&)>& add) {
  auto entry = inquiries_.find(id);
  if (entry == inquiries_.end()) return;
  add(entry->second.evidence);
  --entry->second.pending;
}

void Locator::Apply(const Probed& probed) {
  auto question = questions_.find(probed.question);
  if (question == questions_.end()) return;
  auto [id, whom] = question->second;
  questions_.erase(question);
  Note(id, [&probed, whom = whom](Evidence& e) {
    auto bit = [](uint64_t bits, int place) { return static_cast<int>(bits >> place & 1); };
    if (whom == Asked::kPeer) {
      e.peer_tried += std::popcount(probed.tried);
      e.peer_reached += std::popcount(probed.reached);
    } else {
      e.own_tried += bit(probed.tried, 0);
      e.own_reached += bit(probed.reached, 0);
      e.peer_tried += bit(probed.tried, 1);
      e.peer_reached += bit(probed.reached, 1);
    }
  });
}

void Locator::Finish(uint64_t id) {
  Inquiry inquiry = std::move(inquiries_.at(id));
  inquiries_.erase(id);
  std::erase_if(questions_, [id](const auto& question) { return question.second.first == id; });
  const Loss& loss = inquiry.loss;
  Verdict verdict = Judge(inquiry.evidence);
  Record(loss.nic, loss.peer.address, verdict, Explain(inquiry.evidence), !inquiry.returned);
  if (auto comm = loss.comm.lock()) {
    auto mirrored = static_cast<uint64_t>(Mirrored(verdict));
    comm->Say(EncodeControl(FrameType::kVerdict, loss.path, loss.epoch, mirrored));
  }
}

// Tries what the other end asked for, and answers when all of it is known.
void Locator::Answer(const ProbeOrder& order, int64_t now_ns) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  if (now_ns - answers_since_ns_ > kSecondNs) {
    answers_since_ns_ = now_ns;
    answers_ = 0;
  }
  if (patience_ns_ == 0 || ++answers_ > kMostAnswers) return;
  std::vector<Target> targets = order.targets;
  if (targets.empty()) {
    for (const Third& third : Thirds(order.nic, order.asker)) targets.push_back(third.target);
  }
  struct Tally {
    size_t pending;
    uint64_t reached = 0;
  };
  uint64_t tried = (uint64_t{1} << targets.size()) - 1;
  auto say = [comm = order.comm, path = order.path, question = order.question, tried](uint64_t reached) {
    if (auto held = comm.lock()) held->Say(EncodeProbed(path, question, tried, reached));
  };
  if (targets.empty()) return say(0);
  auto tally = std::make_shared<Tally>(Tally{targets.size()});
  for (size_t i = 0; i < targets.size(); ++i) {
    AskHere(order.nic, targets[i], [tally, say, i](bool reached) {
      if (reached) tally->reached |= uint64_t{1} << i;
      if (--tally->pending == 0) say(tally->reached);
    });
  }
}

// Other hosts with a NIC on the rail of `nic`, each once, without the one at `except` and without our own.
std::vector<Third> Locator::Thirds(int nic, in_addr except) const {
  std::vector<Third> chosen;
  for (Third& third : thirds_of_(nic)) {
    in_addr_t address = third.target.address.s_addr;
    auto is_same = [address](const Third& other) { return other.target.address.s_addr == address; };
    auto is_own = [address](const Nic& own) { return own.address.s_addr == address; };
    if (address == except.s_addr || third.target.port == 0 || chosen.size() == kMostThirds) continue;
    if (std::any_of(chosen.begin(), chosen.end(), is_same) || std::any_of(nics_.begin(), nics_.end(), is_own)) continue;
    chosen.push_back(std::move(third));
  }
  return chosen;
}

void Locator::Record(int nic, in_addr peer, Verdict verdict, const std::string& why, bool standing) {
  {
    MutexLock lock(mutex_);
    if (verdicts_.size() >= kMostRecords) std::erase_if(verdicts_, [](const auto& v) { return !v.second.standing; });
    if (verdicts_.size() >= kMostRecords) verdicts_.clear();
    verdicts_[{nic, peer.s_addr}] = {WallNs(), verdict, why, standing && verdict != Verdict::kWorks};
  }
  log_->Add("verdict", nics_[static_cast<size_t>(nic)].name, ToString(peer),
            std::string(ToString(verdict)) + ": " + why);
}

}  // namespace r2ccl
