// Drawing, running and shrinking of scenarios.
#include "wire/simulated/explore.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "wire/simulated/process.h"
#include "wire/simulated/world.h"

namespace r2ccl::simulated {
namespace {

constexpr int64_t kTroubleEndsNs = 900 * kMillisecond;
constexpr int64_t kSettleNs = 4000 * kMillisecond;  // after the last trouble and the give-up limit
constexpr int64_t kRecoveryNs = 3000 * kMillisecond;
constexpr char kOverwritten = static_cast<char>(0xee);

// Eight bytes of a message: others at each place, in each message and flow.
uint64_t RightWord(uint64_t key, size_t place) {
  uint64_t word = (key + place) * 0x9e3779b97f4a7c15u;
  return word ^ word >> 29;
}

uint64_t KeyOf(uint64_t seed, size_t flow, size_t message) {
  return RightWord(seed, flow) ^ RightWord(seed + 1, message) << 1;
}

void FillRight(uint64_t key, std::vector<char>* data) {
  size_t whole = data->size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    uint64_t word = RightWord(key, i);
    std::memcpy(data->data() + i, &word, 8);
  }
  uint64_t last = RightWord(key, whole);
  std::copy_n(reinterpret_cast<const char*>(&last), data->size() - whole, data->begin() + static_cast<int64_t>(whole));
}

// The first place of `size` bytes that is wrong; `size` where none is.
size_t FirstWrong(uint64_t key, const std::vector<char>& data, size_t size) {
  size_t whole = size / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    uint64_t word;
    std::memcpy(&word, data.data() + i, 8);
    if (word != RightWord(key, i)) return i;
  }
  uint64_t last = RightWord(key, whole);
  const char* end = reinterpret_cast<const char*>(&last);
  return std::equal(end, end + (size - whole), data.begin() + static_cast<int64_t>(whole)) ? size : whole;
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t Below(uint64_t limit) { return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random_); }
  int64_t Between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  bool OneIn(uint64_t count) { return Below(count) == 0; }
  template <typename T>
  T Of(std::initializer_list<T> choices) {
    return *(choices.begin() + static_cast<ptrdiff_t>(Below(choices.size())));
  }

 private:
  std::mt19937_64 random_;
};

uint64_t DrawSize(Dice& dice) {
  switch (dice.Below(6)) {
    case 0:
      return dice.Below(9);
    case 1:
      return dice.Below(1024);
    case 2:
      return 4096 * dice.Below(5);
    case 3:
      return dice.Below(120'000);
    default:
      return dice.Below(20'000);
  }
}

TroubleEvent DrawTrouble(Dice& dice, const Scenario& scenario) {
  TroubleEvent event;
  bool ends_a_process = dice.OneIn(40);
  event.kind = ends_a_process ? dice.Of({Trouble::kKill, Trouble::kPowerOff})
                              : static_cast<Trouble>(dice.Below(static_cast<uint64_t>(Trouble::kKill)));
  event.host = static_cast<int>(dice.Below(static_cast<uint64_t>(scenario.hosts)));
  event.rail = static_cast<int>(dice.Below(static_cast<uint64_t>(scenario.rails)));
  event.at_ns = dice.Between(0, dice.Of({10, 40, 300}) * kMillisecond);
  event.lasts_ns =
      std::min(dice.Of({1, 20, 200, 600}) * dice.Between(kMillisecond / 2, kMillisecond), kTroubleEndsNs - event.at_ns);
  switch (event.kind) {
    case Trouble::kLoss:
      event.amount = 0.01 * static_cast<double>(dice.Of({1, 5, 20, 50, 90}));
      break;
    case Trouble::kBursts:
      event.amount = 0.01 * static_cast<double>(dice.Of({1, 3}));
      break;
    case Trouble::kDuplicates:
      event.amount = 0.3;
      break;
    case Trouble::kDelay:
    case Trouble::kReordering:
      event.amount = static_cast<double>(dice.Of({1, 10, 60, 300}));  // ms
      break;
    case Trouble::kSlow:
      event.amount = dice.Of({0.5, 0.1, 0.01});
      break;
    case Trouble::kCongestion:
      event.amount = dice.Of({0.5, 0.95});
      break;
    case Trouble::kCorruption:
      event.amount = scenario.params.checksum != 0 ? 0.05 : 0;
      break;
    default:
      break;
  }
  return event;
}

// The program of one flow at both ends: what it sends and receives, and the rules that it holds the connection to.
class FlowProgram {
 public:
  FlowProgram(const Scenario& scenario, size_t number, World* world, Process* from, Process* to)
      : scenario_(scenario),
        flow_(scenario.flows[number]),
        number_(number),
        world_(world),
        from_(from),
        to_(to),
        sender_(from->Connect(0x1000 * (number + 1), to->handle())) {}

  void SetReceiver(std::shared_ptr<RecvComm> receiver) { receiver_ = std::move(receiver); }
  uint64_t connection() const { return sender_->connection(); }

  void RunSender() {
    if (send_ended_) return;
    bool ready = false;
    if (!sender_->Ready(&ready).ok()) return EndSender();
    while (ready && next_send_ < flow_.sizes.size() && sends_.size() < flow_.ahead && world_->Now() >= next_send_ns_) {
      if (!Send()) return EndSender();
    }
    for (size_t i = 0; i < sends_.size();) {
      bool done = false;
      uint64_t size = 0;
      Status status = sender_->Test(sends_[i].request, &done, &size);
      if (!status.ok()) return EndSender();
      if (!done) {
        ++i;
        continue;
      }
      CheckLet(from_, *sends_[i].data, "a send");
      CheckArrived(sends_[i]);
      Unregister(from_, flow_.registers_sends, *sends_[i].data);
      std::fill(sends_[i].data->begin(), sends_[i].data->end(), kOverwritten);
      sends_.erase(sends_.begin() + static_cast<ptrdiff_t>(i));
      ++sent_;
    }
    if (all_sent() && flow_.closes_early) {
      sender_->Close();
      send_ended_ = true;
    }
  }

  void RunReceiver() {
    if (receiver_ == nullptr || receive_ended_) return;
    while (next_receive_ < flow_.sizes.size() && receives_.size() < flow_.ahead && world_->Now() >= next_receive_ns_) {
      if (!Receive()) return EndReceiver();
    }
    while (!receives_.empty()) {
      bool done = false;
      uint64_t size = 0;
      Status status = receiver_->Test(receives_.front().request, &done, &size);
      if (!status.ok()) return EndReceiver();
      if (!done) return;
      CheckReceived(*receives_.front().data, size);
      Keep(std::move(receives_.front().data));
      receives_.pop_front();
      if (++received_ == flow_.leaves_after) return Leave();
    }
  }

  bool all_sent() const { return sent_ == flow_.sizes.size(); }
  bool all_received() const { return received_ == flow_.sizes.size(); }
  bool is_over() const {
    return (all_sent() || send_ended_) && (all_received() || receive_ended_ || receiver_ == nullptr);
  }
  bool send_ended() const { return send_ended_; }
  bool receive_ended() const { return receive_ended_; }
  bool has_left() const { return has_left_; }
  bool has_receiver() const { return receiver_ != nullptr; }
  uint64_t received() const { return received_; }
  const std::string& wrong() const { return wrong_; }
  std::string State() const {
    std::ostringstream text;
    text << "flow " << number_ << " host" << flow_.from << ">host" << flow_.to << ": " << sent_ << " sent"
         << (send_ended_ ? " (ended: " + sender_->failure().message() + ")" : "") << ", " << received_ << " received"
         << (receive_ended_ ? " (ended: " + receiver_->failure().message() + ")" : "") << " of " << flow_.sizes.size();
    return text.str();
  }

  void AddHealth(std::vector<NicHealth>* health) const {
    if (flow_.closes_early || has_left_) return;
    sender_->AddHealth(health);
    if (receiver_ != nullptr) receiver_->AddHealth(health);
  }
  void Close() {
    sender_->Close();
    EndSends();
    if (receiver_ != nullptr) receiver_->Close();
    while (!receives_.empty()) {
      Keep(std::move(receives_.front().data));
      receives_.pop_front();
    }
  }
  // Of a connection that has failed, no request may wait for ever.
  void CheckNoneWaits(bool sender_lives, bool receiver_lives) {
    auto waits = [this](auto& end, const Pending& pending) {
      bool done = false;
      return !end->failure().ok() && end->Test(pending.request, &done, nullptr).ok() && !done;
    };
    for (const Pending& send : sends_) {
      if (sender_lives && !flow_.closes_early && waits(sender_, send))
        wrong_ = "a send of a failed connection waits for ever";
    }
    for (const Pending& receive : receives_) {
      if (receiver_lives && waits(receiver_, receive)) wrong_ = "a receive of a failed connection waits for ever";
    }
  }
  // Buffers whose requests completed must be as the program left them.
  void CheckKept() {
    for (const auto& data : kept_) {
      if (std::any_of(data->begin(), data->end(), [](char byte) { return byte != kOverwritten; })) {
        wrong_ = "a buffer was written after its receive had completed";
      }
    }
  }

 private:
  struct Pending {
    std::unique_ptr<std::vector<char>> data;
    Request* request = nullptr;
    size_t message = 0;
  };

  // Its request is over, one way or the other: the memory is the program's again.
  void CheckLet(Process* process, const std::vector<char>& data, const char* which) {
    if (process->is_alive() && process->Touches(data.data(), data.size())) {
      wrong_ = std::string("the buffer of ") + which + " that is over is still used";
    }
  }
  void Keep(std::unique_ptr<std::vector<char>> data) {
    CheckLet(to_, *data, "a receive");
    Unregister(to_, flow_.registers_receives, *data);
    std::fill(data->begin(), data->end(), kOverwritten);
    kept_.push_back(std::move(data));
  }
  // What is neither copied nor early has arrived in its place when its send is done.
  void CheckArrived(const Pending& send) {
    if (flow_.sizes[send.message] <= static_cast<uint64_t>(scenario_.params.eager_bytes)) return;
    bool arrived = send.message < received_ || arrived_before_.contains(send.message) ||
                   std::any_of(
                       receives_.begin(), receives_.end(),
                       [&send](const Pending& receive) {
                         return receive.message == send.message && receive.request->state.load() == Request::kDone;
                       });
    if (!arrived) wrong_ = "a send was told done that did not arrive";
  }
  // The program has what it wants and closes, whatever the other end still has to send.
  void Leave() {
    for (const Pending& receive : receives_) {
      if (receive.request->state.load() == Request::kDone) arrived_before_.insert(receive.message);
    }
    receiver_->Close();
    has_left_ = receive_ended_ = true;
    for (Pending& receive : receives_) Keep(std::move(receive.data));
    receives_.clear();
  }

  bool Send() {
    size_t size = flow_.sizes[next_send_];
    auto data = std::make_unique<std::vector<char>>(size);
    FillRight(KeyOf(scenario_.seed, number_, next_send_), data.get());
    Register(from_, flow_.registers_sends, *data);
    Request* request = nullptr;
    if (!sender_->Isend(data->data(), size, &request).ok()) return false;
    sends_.push_back({std::move(data), request, next_send_});
    ++next_send_;
    Later(&next_send_ns_, flow_.pause_ns, from_);
    return true;
  }

  bool Receive() {
    auto data = std::make_unique<std::vector<char>>(flow_.sizes[next_receive_] + next_receive_ % 3, kOverwritten);
    Register(to_, flow_.registers_receives, *data);
    Request* request = nullptr;
    if (!receiver_->Irecv(data->data(), data->size(), &request).ok()) return false;
    receives_.push_back({std::move(data), request, next_receive_});
    ++next_receive_;
    if (flow_.late_receives) next_receive_ns_ = world_->Now() + 2 * flow_.pause_ns + kMillisecond;
    return true;
  }

  void Later(int64_t* when_ns, int64_t pause_ns, Process* process) {
    if (pause_ns == 0) return;
    *when_ns = world_->Now() + pause_ns;
    world_->At(*when_ns, [process] { process->RunProgramSoon(); });
  }

  void CheckReceived(const std::vector<char>& data, uint64_t size) {
    std::string which = "message " + std::to_string(received_) + " of flow " + std::to_string(number_);
    if (size != flow_.sizes[received_]) {
      wrong_ =
          which + " came with " + std::to_string(size) + " bytes instead of " + std::to_string(flow_.sizes[received_]);
      return;
    }
    size_t place = FirstWrong(KeyOf(scenario_.seed, number_, received_), data, size);
    if (place < size) wrong_ = which + " is wrong near byte " + std::to_string(place) + " of " + std::to_string(size);
  }

  // A request that is over needs no memory, whatever devices still have of it.
  static void Register(Process* process, bool registers, const std::vector<char>& data) {
    if (registers && process->rdma() != nullptr) process->rdma()->AddMemory(data.data(), data.size());
  }
  static void Unregister(Process* process, bool registers, const std::vector<char>& data) {
    if (registers && process->rdma() != nullptr) process->rdma()->DropMemory(data.data(), data.size());
  }

  void EndSender() {
    send_ended_ = true;
    EndSends();
  }
  void EndSends() {
    for (const Pending& send : sends_) {
      CheckLet(from_, *send.data, "a send");
      Unregister(from_, flow_.registers_sends, *send.data);
    }
  }
  void EndReceiver() {
    receive_ended_ = true;
    for (const Pending& receive : receives_) Unregister(to_, flow_.registers_receives, *receive.data);
  }

  const Scenario& scenario_;
  const Flow& flow_;
  const size_t number_;
  World* const world_;
  Process* const from_;
  Process* const to_;
  std::shared_ptr<SendComm> sender_;
  std::shared_ptr<RecvComm> receiver_;
  size_t next_send_ = 0, sent_ = 0, next_receive_ = 0, received_ = 0;
  int64_t next_send_ns_ = 0, next_receive_ns_ = 0;
  std::vector<Pending> sends_;
  std::deque<Pending> receives_;
  std::vector<std::unique_ptr<std::vector<char>>> kept_;
  std::set<size_t> arrived_before_;  // the receiver closed, but were not asked about
  bool send_ended_ = false, receive_ended_ = false, has_left_ = false;
  std::string wrong_;
};

// One history.
class Play {
 public:
  explicit Play(const Scenario& scenario)
      : scenario_(scenario), world_(scenario.seed, scenario.hosts, scenario.rails), begin_ns_(world_.Now()) {
    world_.segment_bytes = scenario.segment_bytes;
    world_.answer_bytes = scenario.answer_bytes;
    for (int host = 0; host < scenario.hosts; ++host) {
      for (int rail = 0; rail < scenario.rails; ++rail) world_.port(host, rail).bytes_per_ns = scenario.bytes_per_ns;
      processes_.push_back(std::make_unique<Process>(&world_, host, scenario.params, scenario.program_polls));
    }
    for (size_t i = 0; i < scenario.flows.size(); ++i) {
      const Flow& flow = scenario.flows[i];
      programs_.push_back(std::make_unique<FlowProgram>(scenario_, i, &world_, &process(flow.from), &process(flow.to)));
    }
    for (int host = 0; host < scenario.hosts; ++host) {
      process(host).SetProgram([this, host] { RunPrograms(host); });
    }
    for (const TroubleEvent& event : scenario.troubles) Plan(event);
  }

  Outcome Run(bool with_log) {
    int64_t limit_ns = begin_ns_ + kTroubleEndsNs + scenario_.params.give_up_ms * kMillisecond + kSettleNs;
    auto over = [this] { return ++looks_ % 16 == 0 && (!Wrong().empty() || IsOver()); };
    world_.RunUntil(limit_ns, over);
    Outcome outcome;
    outcome.virtual_ns = world_.Now() - begin_ns_;
    outcome.wrong = Wrong();
    if (outcome.wrong.empty()) outcome.wrong = CheckEnds();
    if (outcome.wrong.empty()) outcome.wrong = CheckLosses();
    if (outcome.wrong.empty()) outcome.wrong = CheckRecovery();
    if (outcome.wrong.empty()) outcome.wrong = CloseAndCheck();
    outcome.events = world_.events();
    for (const auto& program : programs_) outcome.messages += program->received();
    for (int host = 0; host < scenario_.hosts; ++host) {
      Environment& environment = process(host).environment();
      outcome.replayed_chunks += environment.replayed_chunks.load();
      outcome.duplicate_chunks += environment.duplicate_chunks.load();
      outcome.lost_paths += Count(host, "path_down");
      for (int rail = 0; rail < scenario_.rails; ++rail) {
        const NicCounters& counters = environment.counters[static_cast<size_t>(rail)];
        outcome.rdma_bytes += counters.rdma_sent_bytes.load();
        outcome.written_bytes += counters.rdma_written_bytes.load();
      }
      if (with_log) outcome.log += LogOf(host);
    }
    return outcome;
  }

  ~Play() { world_.Forget(); }

  // The times, from the beginning, at which something happens until all is done.
  std::vector<int64_t> Moments() {
    std::vector<int64_t> moments;
    world_.KeepMoments(&moments);
    world_.RunUntil(begin_ns_ + kTroubleEndsNs, [this] { return IsOver(); });
    for (int64_t& moment : moments) moment -= begin_ns_;
    return moments;
  }

 private:
  Process& process(int host) { return *processes_[static_cast<size_t>(host)]; }
  bool IsDoomed(int host) const {
    return std::any_of(scenario_.troubles.begin(), scenario_.troubles.end(), [host](const TroubleEvent& event) {
      return event.host == host && (event.kind == Trouble::kKill || event.kind == Trouble::kPowerOff);
    });
  }

  void RunPrograms(int host) {
    for (const auto& comm : process(host).arrived()) {
      for (size_t i = 0; i < programs_.size(); ++i) {
        if (programs_[i]->connection() == comm->connection()) programs_[i]->SetReceiver(comm);
      }
    }
    process(host).arrived().clear();
    for (size_t i = 0; i < programs_.size(); ++i) {
      if (scenario_.flows[i].from == host) programs_[i]->RunSender();
      if (scenario_.flows[i].to == host) programs_[i]->RunReceiver();
    }
  }

  void Plan(const TroubleEvent& event) {
    world_.At(begin_ns_ + event.at_ns, [this, event] { Set(event, true); });
    if (event.kind == Trouble::kKill || event.kind == Trouble::kPowerOff || event.kind == Trouble::kCongestion) return;
    world_.At(begin_ns_ + event.at_ns + event.lasts_ns, [this, event] { Set(event, false); });
  }

  // A packet of the other flow's each time, at a steady rate.
  void Congest(const TroubleEvent& event, int64_t until_ns) {
    constexpr double kPacketBytes = 9000;
    if (world_.Now() >= until_ns) return;
    world_.Load(event.host, event.rail, (event.host + 1) % scenario_.hosts, kPacketBytes);
    auto pause_ns = static_cast<int64_t>(kPacketBytes / (event.amount * scenario_.bytes_per_ns));
    world_.After(pause_ns, [this, event, until_ns] { Congest(event, until_ns); });
  }

  void Set(const TroubleEvent& event, bool on) {
    Port& port = world_.port(event.host, event.rail);
    auto delay_ns = static_cast<int64_t>(event.amount * kMillisecond);
    switch (event.kind) {
      case Trouble::kLinkDown:
        return world_.SetLink(event.host, event.rail, !on);
      case Trouble::kBlackHole:
        port.out.black = port.in.black = on;
        return;
      case Trouble::kBlackOut:
        port.out.black = on;
        return;
      case Trouble::kBlackIn:
        port.in.black = on;
        return;
      case Trouble::kLargeOnly:
        port.out.larger_than = on ? 1000 : 0;
        return;
      case Trouble::kLoss:
        port.out.loss = on ? event.amount : 0;
        return;
      case Trouble::kBursts:
        port.in.burst = on ? event.amount : 0;
        return;
      case Trouble::kDuplicates:
        port.out.duplicate = on ? event.amount : 0;
        return;
      case Trouble::kDelay:
        port.out.delay_ns = on ? delay_ns : 0;
        return;
      case Trouble::kReordering:
        port.in.jitter_ns = on ? delay_ns : 0;
        return;
      case Trouble::kSlow:
        port.out.rate = on ? event.amount : 1;
        return;
      case Trouble::kCorruption:
        port.out.corrupt = on ? event.amount : 0;
        return;
      case Trouble::kCongestion:
        return Congest(event, world_.Now() + event.lasts_ns);
      case Trouble::kPause:
        return on ? process(event.host).Pause() : process(event.host).Resume();
      case Trouble::kKill:
        return process(event.host).Kill();
      case Trouble::kPowerOff:
        return process(event.host).PowerOff();
      case Trouble::kRdmaDropped:
        port.out.rdma_black = port.in.rdma_black = on;
        return;
      case Trouble::kRdmaLate:
        port.out.rdma_delay_ns = on ? delay_ns : 0;
        return;
      case Trouble::kRdmaCompletions:
        port.completions = on ? event.amount : 0;
        return;
      case Trouble::kRdmaGone:
        return process(event.host).SetRdmaGone(event.rail, on);
      case Trouble::kCount:
        return;
    }
  }

  std::string Wrong() const {
    if (!world_.broken().empty()) return world_.broken();
    for (const auto& program : programs_) {
      if (!program->wrong().empty()) return program->wrong();
    }
    return "";
  }

  // Of a flow whose peer has ended only the end that lives is asked.
  bool IsOver() {
    for (size_t i = 0; i < programs_.size(); ++i) {
      const FlowProgram& program = *programs_[i];
      const Flow& flow = scenario_.flows[i];
      bool sent = program.all_sent() || program.send_ended() || !process(flow.from).is_alive();
      bool received = program.all_received() || program.receive_ended() || !process(flow.to).is_alive();
      if (!sent || !received) return false;
    }
    return true;
  }

  std::string CheckEnds() {
    for (size_t i = 0; i < programs_.size(); ++i) {
      const FlowProgram& program = *programs_[i];
      const Flow& flow = scenario_.flows[i];
      if (IsDoomed(flow.from) || IsDoomed(flow.to)) {
        bool sender_waits = !IsDoomed(flow.from) && !program.all_sent() && !program.send_ended();
        bool receiver_waits =
            !IsDoomed(flow.to) && program.has_receiver() && !program.all_received() && !program.receive_ended();
        if (sender_waits || receiver_waits) return "a peer's end was not noticed within the limit: " + program.State();
        continue;
      }
      if (program.has_left()) {
        if (!program.all_sent() && !program.send_ended())
          return "a receiver that left was not noticed: " + program.State();
        continue;
      }
      bool whole = program.all_sent() && program.all_received();
      if (whole) continue;
      // Of a sender that has closed, copies are delivered for a second only.
      bool may_fail =
          !scenario_.troubles.empty() && (scenario_.params.mode == 0 || (flow.closes_early && program.all_sent()));
      if (!may_fail) return "a connection did not do all its messages: " + program.State();
      if (!program.is_over()) return "a failed connection left requests waiting: " + program.State();
    }
    return "";
  }

  size_t Count(int host, const std::string& kind) {
    auto events = process(host).environment().log.Snapshot(1 << 20);
    return static_cast<size_t>(
        std::count_if(events.begin(), events.end(), [&kind](const auto& event) { return event.kind == kind; }));
  }

  // But for flows of others, and programs that do not look; not for so long that a greeting is dialled again.
  bool NothingIsWrong() const {
    std::vector<int64_t> paused_ns(static_cast<size_t>(scenario_.hosts));
    for (const TroubleEvent& event : scenario_.troubles) {
      if (event.kind == Trouble::kPause) paused_ns[static_cast<size_t>(event.host)] += event.lasts_ns;
      if (event.kind != Trouble::kPause && event.kind != Trouble::kCongestion) return false;
      // What RDMA's packets lose to others' is sent again after 34 ms, whole windows of it.
      if (event.kind == Trouble::kCongestion && scenario_.params.transport != "tcp") return false;
    }
    int64_t most_ns = *std::max_element(paused_ns.begin(), paused_ns.end());
    return most_ns < scenario_.params.connect_ms * kMillisecond / 2;
  }

  std::string CheckLosses() {
    for (int host = 0; host < scenario_.hosts && scenario_.params.mode == 0; ++host) {
      if (Count(host, "path_down") > Count(host, "failed")) return "fail-stop went on after the loss of a path";
    }
    // A farewell that finds no room is none, and the end of its stream a loss.
    bool farewells = scenario_.answer_bytes >= 65536;
    if (!NothingIsWrong() || !farewells) return "";
    for (int host = 0; host < scenario_.hosts; ++host) {
      if (Count(host, "path_down") > 0) return "a path was given up though nothing was wrong";
      if (process(host).environment().replayed_chunks > 0) return "chunks were sent twice though nothing was wrong";
      if (Count(host, "path_held") > 0) return "a path was held though nothing was wrong";
    }
    return "";
  }

  // All that is not well any more was healed a while ago.
  std::string CheckRecovery() {
    if (!scenario_.ends_well()) return "";
    auto all_up = [this] {
      std::vector<NicHealth> health(static_cast<size_t>(scenario_.rails));
      for (const auto& program : programs_) program->AddHealth(&health);
      return std::none_of(health.begin(), health.end(), [](const NicHealth& nic) { return nic.down > 0; });
    };
    int64_t limit_ns = std::max(world_.Now(), begin_ns_ + kTroubleEndsNs) + kRecoveryNs;
    bool recovered = world_.RunUntil(limit_ns, [&] { return ++looks_ % 256 == 0 && all_up(); });
    return recovered || all_up() ? "" : "a path does not carry data again though all was healed";
  }

  std::string CloseAndCheck() {
    for (int host = 0; host < scenario_.hosts; ++host) process(host).SetProgram(nullptr);
    for (size_t i = 0; i < programs_.size(); ++i) {
      const Flow& flow = scenario_.flows[i];
      programs_[i]->CheckNoneWaits(process(flow.from).is_alive(), process(flow.to).is_alive());
    }
    if (!Wrong().empty()) return Wrong();
    for (size_t i = 0; i < programs_.size(); ++i) programs_[i]->Close();
    world_.RunUntil(world_.Now() + 3000 * kMillisecond);
    for (const auto& program : programs_) program->CheckKept();
    if (!Wrong().empty()) return Wrong();
    // A kernel goes on telling a peer that it cannot reach.
    bool all_hear = std::none_of(scenario_.troubles.begin(), scenario_.troubles.end(),
                                 [](const TroubleEvent& event) { return event.kind == Trouble::kPowerOff; });
    for (int host = 0; host < scenario_.hosts && all_hear; ++host) {
      if (process(host).runs() && process(host).sockets() > 0) {
        return "host" + std::to_string(host) + " has " + std::to_string(process(host).sockets()) +
               " sockets left after all was closed";
      }
      RdmaDevice* rdma = process(host).rdma();
      if (process(host).runs() && rdma != nullptr && rdma->queues() > 0) {
        return "host" + std::to_string(host) + " has " + std::to_string(rdma->queues()) +
               " queue pairs left after all was closed";
      }
    }
    return "";
  }

  std::string LogOf(int host) {
    std::ostringstream text;
    for (const auto& event : process(host).environment().log.Snapshot(1 << 20)) {
      text << "  host" << host << " " << event.kind << " " << event.nic << " " << event.peer << " " << event.detail
           << "\n";
    }
    return text.str();
  }

  const Scenario scenario_;
  World world_;
  const int64_t begin_ns_;
  uint64_t looks_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<FlowProgram>> programs_;
};

}  // namespace

const char* ToString(Trouble trouble) {
  static const char* const kNames[] = {
      "link_down",  "black_hole", "black_out",    "black_in",  "large_only",       "loss",       "bursts",
      "duplicates", "delay",      "reordering",   "slow",      "corruption",       "congestion", "pause",
      "kill",       "power_off",  "rdma_dropped", "rdma_late", "rdma_completions", "rdma_gone"};
  static_assert(std::size(kNames) == static_cast<size_t>(Trouble::kCount));
  return kNames[static_cast<size_t>(trouble)];
}

// Of most of them some go straight from memory to memory.
void DrawWrites(Scenario* scenario) {
  Dice dice(scenario->seed ^ 0x5752'4954);
  if (dice.OneIn(4)) return;
  Params& params = scenario->params;
  params.zero_copy_bytes = dice.Of<int64_t>({1, 2000, 8000});
  bool large = dice.OneIn(3);  // several writes each
  if (large) {
    params.chunk_bytes = 131072;
    params.min_chunk_bytes = dice.Of<int64_t>({4096, 65536});
  }
  for (Flow& flow : scenario->flows) {
    flow.registers_sends = !dice.OneIn(4);
    flow.registers_receives = !dice.OneIn(4);
    for (uint64_t i = dice.Below(large ? 4 : 1); i > 0; --i) flow.sizes.push_back(dice.Below(400'000));
  }
}

// Of one history in four some bytes go by RDMA; where it breaks down, TCP is there, but for where it is not wanted.
void DrawRdma(Scenario* scenario) {
  Dice dice(scenario->seed ^ 0x5244'4d41);
  if (!dice.OneIn(4)) return;
  scenario->params.transport = dice.OneIn(4) ? "verbs" : "auto";
  if (dice.OneIn(2)) {  // enough for a ring to come round
    Flow& flow = scenario->flows[dice.Below(scenario->flows.size())];
    for (int i = 0; i < 40; ++i) flow.sizes.push_back(dice.Below(30'000));
  }
  DrawWrites(scenario);
  if (dice.OneIn(3)) return;
  for (uint64_t i = 1 + dice.Below(4); i > 0; --i) {
    TroubleEvent event = DrawTrouble(dice, *scenario);
    event.kind = dice.Of({Trouble::kRdmaDropped, Trouble::kRdmaLate, Trouble::kRdmaCompletions, Trouble::kRdmaGone});
    event.amount = 0;
    if (event.kind == Trouble::kRdmaLate) event.amount = static_cast<double>(dice.Of({1, 30, 120, 300, 600}));  // ms
    if (event.kind == Trouble::kRdmaCompletions) event.amount = dice.Of({0.005, 0.02, 0.1, 0.5});
    scenario->troubles.push_back(event);
    if (event.kind != Trouble::kRdmaLate || dice.OneIn(2)) continue;
    // What is late finds other queue pairs: the link goes and comes back meanwhile.
    int64_t later_ns = event.at_ns + dice.Between(0, 20) * kMillisecond;
    scenario->troubles.push_back({Trouble::kLinkDown, event.host, event.rail, later_ns, 2 * kMillisecond, 0});
  }
}

Scenario DrawWithoutRdma(uint64_t seed) {
  Dice dice(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.hosts = static_cast<int>(dice.Between(2, dice.OneIn(8) ? 8 : 4));
  scenario.rails = static_cast<int>(dice.Between(1, dice.OneIn(8) ? 8 : 3));
  scenario.bytes_per_ns = dice.Of({0.02, 0.0625, 0.25});
  scenario.segment_bytes = dice.Of<size_t>({1448, 4096, 8192});
  if (dice.OneIn(8)) scenario.answer_bytes = dice.Of<size_t>({64, 200});
  scenario.program_polls = dice.OneIn(2);
  Params& params = scenario.params;
  params.mode = dice.OneIn(8) ? 0 : (dice.OneIn(4) ? 1 : 2);
  params.chunk_bytes = dice.Of<int64_t>({4096, 8192, 16384});
  params.min_chunk_bytes = dice.Of<int64_t>({1024, 4096});
  params.window_bytes = dice.Of<int64_t>({65536, 262144});
  params.eager_bytes = dice.Of<int64_t>({0, 4096, 65536});
  params.eager_messages = dice.Of<int64_t>({1, 8, 64});
  params.buffered_bytes = dice.Of<int64_t>({0, 1024, 16384});
  params.inline_bytes = dice.Of<int64_t>({12288, 262144});
  params.connect_ms = 300;
  params.give_up_ms = 5000;
  params.locate_ms = dice.Of<int64_t>({0, 100});
  if (dice.OneIn(3)) {
    params.flap_suppress = 1000;
    params.flap_half_life_ms = 300;
    params.flap_max_ms = 600;
  }
  params.checksum = dice.OneIn(4) ? 1 : 0;
  params.io_threads = params.stripes = 1;
  auto flows = static_cast<size_t>(dice.Between(scenario.hosts, scenario.hosts + 3));
  for (size_t i = 0; i < flows; ++i) {
    Flow flow;
    flow.from = static_cast<int>(i) % scenario.hosts;
    flow.to =
        (flow.from + 1 +
         static_cast<int>(
             i < static_cast<size_t>(scenario.hosts) ? 0 : dice.Below(static_cast<uint64_t>(scenario.hosts - 1)))) %
        scenario.hosts;
    auto count = static_cast<size_t>(dice.Between(2, 14));
    for (size_t k = 0; k < count; ++k) flow.sizes.push_back(DrawSize(dice));
    flow.pause_ns = dice.OneIn(2) ? dice.Between(kMillisecond, 40 * kMillisecond) : 0;
    flow.ahead = 1 + dice.Below(6);
    flow.late_receives = dice.OneIn(3);
    flow.closes_early = dice.OneIn(4);
    flow.leaves_after = dice.OneIn(8) ? 1 + dice.Below(count) : 0;
    scenario.flows.push_back(std::move(flow));
  }
  if (dice.OneIn(10)) {  // programs that do not look, and nothing else
    for (uint64_t i = 1 + dice.Below(4); i > 0; --i) {
      TroubleEvent event = DrawTrouble(dice, scenario);
      event.kind = Trouble::kPause;
      scenario.troubles.push_back(event);
    }
    return scenario;
  }
  if (dice.OneIn(10)) {  // everywhere, and nothing else
    for (int host = 0; host < scenario.hosts; ++host) {
      for (int rail = 0; rail < scenario.rails; ++rail) {
        scenario.troubles.push_back({Trouble::kCongestion, host, rail, 0, kTroubleEndsNs, dice.Of({0.5, 0.9, 0.95})});
      }
    }
    return scenario;
  }
  uint64_t troubles = dice.OneIn(5) ? 0 : 1 + dice.Below(6);
  for (uint64_t i = 0; i < troubles; ++i) scenario.troubles.push_back(DrawTrouble(dice, scenario));
  return scenario;
}

Scenario Draw(uint64_t seed) {
  Scenario scenario = DrawWithoutRdma(seed);
  DrawRdma(&scenario);
  return scenario;
}

bool Scenario::ends_well() const {
  // Test packets of full size are late where a kernel takes little at a time.
  return params.mode != 0 && answer_bytes >= 65536 && params.flap_max_ms < kRecoveryNs / kMillisecond &&
         std::none_of(
             troubles.begin(), troubles.end(),
             [](const TroubleEvent& event) {
               return event.kind == Trouble::kKill || event.kind == Trouble::kPowerOff;
             });
}

std::string Describe(const Scenario& scenario) {
  const Params& params = scenario.params;
  std::ostringstream text;
  text << "seed " << scenario.seed << ": " << scenario.hosts << " hosts x " << scenario.rails << " rails of "
       << scenario.bytes_per_ns * 8 << " Gbit/s, packets of " << scenario.segment_bytes << ", answers of "
       << scenario.answer_bytes << ", by " << params.transport << ", mode " << params.mode << ", "
       << (scenario.program_polls ? "polling" : "waiting") << ", chunk " << params.chunk_bytes << "/"
       << params.min_chunk_bytes << ", window " << params.window_bytes << ", eager " << params.eager_bytes << " x "
       << params.eager_messages << ", buffered " << params.buffered_bytes << ", inline " << params.inline_bytes
       << ", checksum " << params.checksum << ", zero copy from " << params.zero_copy_bytes << ", held at most "
       << params.flap_max_ms << " ms\n";
  for (const Flow& flow : scenario.flows) {
    text << "  host" << flow.from << " > host" << flow.to << ": " << flow.sizes.size() << " messages, " << flow.ahead
         << " ahead, pause " << static_cast<double>(flow.pause_ns) / kMillisecond << " ms"
         << (flow.late_receives ? ", late receives" : "") << (flow.closes_early ? ", closes early" : "")
         << (flow.registers_sends ? ", registers sends" : "") << (flow.registers_receives ? ", registers receives" : "")
         << (flow.leaves_after > 0 ? ", the receiver leaves after " + std::to_string(flow.leaves_after) : "")
         << "; bytes";
    for (uint64_t size : flow.sizes) text << " " << size;
    text << "\n";
  }
  for (const TroubleEvent& event : scenario.troubles) {
    text << "  at " << static_cast<double>(event.at_ns) / kMillisecond << " ms: " << ToString(event.kind) << " host"
         << event.host << " eth" << event.rail << " for " << static_cast<double>(event.lasts_ns) / kMillisecond
         << " ms, " << event.amount << "\n";
  }
  return text.str();
}

Outcome RunScenario(const Scenario& scenario, bool with_log) { return Play(scenario).Run(with_log); }

std::vector<Scenario> SmallScenarios() {
  Scenario small;
  small.seed = 1;
  small.rails = 2;
  small.bytes_per_ns = 0.25;
  Params& params = small.params;
  params.chunk_bytes = params.min_chunk_bytes = 4096;
  params.window_bytes = 65536;
  params.eager_bytes = params.buffered_bytes = 0;
  params.inline_bytes = 12288;
  params.connect_ms = 300;
  params.give_up_ms = 5000;
  params.locate_ms = 0;
  params.io_threads = params.stripes = 1;
  small.flows = {{.from = 0, .to = 1, .sizes = {10'000, 300, 5000}, .ahead = 2}};
  std::vector<Scenario> all(8, small);
  all[0].params.mode = 0;
  all[1].params.mode = 1;
  all[2].program_polls = true;
  all[3].params.eager_bytes = 65536;
  all[3].params.buffered_bytes = 16384;
  all[3].flows[0].closes_early = true;
  all[4].params.checksum = 1;
  all[4].params.flap_suppress = 1000;
  all[4].params.flap_half_life_ms = 300;
  all[4].params.flap_max_ms = 600;
  all[5].params.transport = "verbs";
  all[6].params.transport = "auto";
  all[6].flows[0].pause_ns = kMillisecond;  // so that the last go by RDMA
  all[7].params.transport = "verbs";
  all[7].params.zero_copy_bytes = 4096;
  all[7].flows[0].registers_sends = all[7].flows[0].registers_receives = true;
  return all;
}

std::vector<TroubleEvent> EveryTrouble(const Scenario& scenario, int64_t from_ns, bool of_processes) {
  std::vector<TroubleEvent> all;
  for (int64_t moment : Play(scenario).Moments()) {
    if (moment < from_ns) continue;
    for (int host = 0; host < scenario.hosts; ++host) {
      for (int rail = 0; rail < scenario.rails; ++rail) {
        for (Trouble kind : {Trouble::kLinkDown, Trouble::kBlackHole, Trouble::kBlackOut, Trouble::kBlackIn}) {
          for (int64_t lasts_ms : {2, 300}) all.push_back({kind, host, rail, moment, lasts_ms * kMillisecond, 0});
        }
        if (scenario.params.transport != "tcp") {
          all.push_back({Trouble::kRdmaDropped, host, rail, moment, 300 * kMillisecond, 0});
          all.push_back({Trouble::kRdmaLate, host, rail, moment, 2 * kMillisecond, 250});
          all.push_back({Trouble::kRdmaCompletions, host, rail, moment, 2 * kMillisecond, 1});
          all.push_back({Trouble::kRdmaGone, host, rail, moment, 20 * kMillisecond, 0});
        }
      }
      if (!of_processes) continue;
      for (Trouble kind : {Trouble::kPause, Trouble::kKill, Trouble::kPowerOff}) {
        all.push_back({kind, host, 0, moment, 100 * kMillisecond, 0});
      }
    }
  }
  return all;
}

Scenario Shrink(const Scenario& scenario) {
  Scenario least = scenario;
  auto try_it = [&least](Scenario smaller) {
    if (RunScenario(smaller).wrong.empty()) return false;
    least = std::move(smaller);
    return true;
  };
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < least.troubles.size(); ++i) {
      Scenario smaller = least;
      smaller.troubles.erase(smaller.troubles.begin() + static_cast<ptrdiff_t>(i));
      if (try_it(std::move(smaller))) again = true;
    }
    for (size_t i = 0; i < least.flows.size() && least.flows.size() > 1; ++i) {
      Scenario smaller = least;
      smaller.flows.erase(smaller.flows.begin() + static_cast<ptrdiff_t>(i));
      if (try_it(std::move(smaller))) again = true;
    }
    for (size_t i = 0; i < least.flows.size(); ++i) {
      for (size_t k = 0; k < least.flows[i].sizes.size() && least.flows[i].sizes.size() > 1; ++k) {
        Scenario smaller = least;
        auto& sizes = smaller.flows[i].sizes;
        sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(k));
        if (try_it(std::move(smaller))) again = true;
      }
    }
  }
  return least;
}

}  // namespace r2ccl::simulated
