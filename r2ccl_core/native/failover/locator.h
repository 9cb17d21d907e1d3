// Locator: finds out where the fault behind the loss of a path is, once per loss, and tells both ends.
//
// The end that notices a loss asks several things at once. It probes the peer's NIC and third hosts from its own NIC;
// it asks the peer, over a healthy path, whether the peer's NIC reaches third hosts; and it asks third processes
// whether they reach both NICs. Third hosts are those that this process has connections with over the same rail: under
// NCCL its neighbours in rings and trees. The evidence is judged (localize.h), and the verdict is logged, kept for the
// status file and sent to the peer.
//
// Only the two ends of a connection ask each other, over streams that know its secret. Work is bounded: one set of
// probes per NIC and peer in kInquiryPauseNs, kMostInquiries at once, kMostThirds third hosts each; kMostAnswers
// answers a second.
//
// Everything except the inbox and the verdicts belongs to the first poller's thread, which holds no lock in Tick.
#ifndef R2CCL_FAILOVER_LOCATOR_H_
#define R2CCL_FAILOVER_LOCATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/event_log.h"
#include "base/mutex.h"
#include "failover/localize.h"
#include "net/asker.h"
#include "net/nic.h"
#include "net/wire.h"

namespace r2ccl {

class Comm;

// A path that was lost.
struct Loss {
  std::weak_ptr<Comm> comm;
  uint16_t path = 0;
  uint32_t epoch = 0;
  int nic = 0;
  Target peer;  // its NIC of this path, and where its process listens
  bool own_link_down = false;
  bool peer_link_down = false;
};

// The other end's PROBE.
struct ProbeOrder {
  std::weak_ptr<Comm> comm;
  uint16_t path = 0;
  uint64_t question = 0;
  int nic = 0;
  in_addr asker{};
  std::vector<Target> targets;  // empty: third hosts of our choice
};

// A process at the other end of a connection, by its NIC on one rail.
struct Third {
  std::shared_ptr<Comm> comm;
  uint16_t path = 0;
  Target target;
  bool was_up = true;  // the two NICs were connected once
};

struct VerdictRecord {
  int64_t wall_ns = 0;
  Verdict verdict = Verdict::kUnknown;
  std::string why;
  bool standing = true;  // no path has come back since
};
using VerdictKey = std::pair<int, in_addr_t>;  // NIC, the peer's address

class Locator {
 public:
  static constexpr int64_t kInquiryPauseNs = 2'000'000'000;
  static constexpr size_t kMostInquiries = 8;
  static constexpr size_t kMostThirds = 4;
  static constexpr int kMostAnswers = 32;
  static constexpr size_t kMostRecords = 256;
  using ThirdsOf = std::function<std::vector<Third>(int nic)>;

  // `patience_ns`: how long an answer may take; 0: nothing is ever probed, and only link events yield verdicts.
  Locator(int64_t patience_ns, std::vector<Nic> nics, uint16_t port, Asker* prober, EventLog* log, ThirdsOf thirds_of)
      : patience_ns_(patience_ns),
        nics_(std::move(nics)),
        port_(port),
        prober_(prober),
        log_(log),
        thirds_of_(std::move(thirds_of)) {}

  // The functions below may be called from any thread and under a Comm's lock: they only take notes.
  void Suspect(Loss loss);
  void TakeProbe(ProbeOrder order);
  void TakeProbed(uint64_t question, uint64_t tried, uint64_t reached);
  void TakeVerdict(int nic, in_addr peer, Verdict verdict, bool standing);
  void TakeReturn(int nic, in_addr peer);
  // A path that has not come up since its connection began: one event for a NIC and peer, until it does. With `asks`,
  // locates the fault; as that may be too early for other hosts, repeats it once if there was no verdict.
  void TakeAbsence(Loss loss, std::string why, bool asks);

  void Tick(int64_t now_ns);
  std::map<VerdictKey, VerdictRecord> Verdicts() const;

 private:
  struct Probed {
    uint64_t question;
    uint64_t tried;
    uint64_t reached;
  };
  struct Absence {
    Loss loss;
    std::string why;
    int rounds_left = 0;
    int64_t next_round_ns = 0;
  };
  enum class Asked { kPeer, kThird };
  struct Inquiry {
    Loss loss;
    Evidence evidence;
    int pending = 0;
    int64_t deadline_ns = 0;
    bool returned = false;  // a path came back meanwhile
  };

  void Begin(const Loss& loss, int64_t now_ns);
  void NoteAbsence(Absence absence, int64_t now_ns);
  void AskForAbsent(int64_t now_ns);
  bool IsKnown(const VerdictKey& key) const;
  void AskThirds(uint64_t id, Inquiry& inquiry);
  void AskRemote(uint64_t id, Inquiry& inquiry, Asked whom, const std::shared_ptr<Comm>& comm, uint16_t path,
                 const std::vector<Target>& targets);
  void AskHere(int nic, Target target, std::function<void(bool reached)> on_answer);
  void Note(uint64_t id, const std::function<void(Evidence&)>& add);
  void Finish(uint64_t id);
  void Answer(const ProbeOrder& order, int64_t now_ns);
  void Apply(const Probed& probed);
  void Record(int nic, in_addr peer, Verdict verdict, const std::string& why, bool standing);
  std::vector<Third> Thirds(int nic, in_addr except) const;

  const int64_t patience_ns_;
  const std::vector<Nic> nics_;
  const uint16_t port_;
  Asker* const prober_;
  EventLog* const log_;
  const ThirdsOf thirds_of_;

  std::map<uint64_t, Inquiry> inquiries_;
  std::map<uint64_t, std::pair<uint64_t, Asked>> questions_;  // to others: the inquiry, and whom
  std::map<VerdictKey, int64_t> last_inquiry_ns_;
  std::map<VerdictKey, Absence> absent_;
  uint64_t next_id_ = 1;
  int64_t answers_since_ns_ = 0;
  int answers_ = 0;

  mutable Mutex mutex_;  // leaf lock: guards the members below
  std::vector<Loss> losses_ GUARDED_BY(mutex_);
  std::vector<ProbeOrder> orders_ GUARDED_BY(mutex_);
  std::vector<Probed> probed_ GUARDED_BY(mutex_);
  std::vector<Absence> absences_ GUARDED_BY(mutex_);
  std::vector<VerdictKey> returns_ GUARDED_BY(mutex_);
  std::map<VerdictKey, VerdictRecord> verdicts_ GUARDED_BY(mutex_);
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_LOCATOR_H_
