// Ranks that run one AllReduce after another, each as soon as it can.
#include "wire/simulated/ring_program.h"

#include <algorithm>
#include <utility>

namespace r2ccl::simulated {
namespace {

constexpr uint64_t kFirstConnection = 0x100'0000;
constexpr size_t kKept = 8;

struct Range {
  int64_t begin, end;
};

Range PartOf(Range whole, int64_t part, int64_t parts) {
  int64_t size = whole.end - whole.begin;
  return {whole.begin + size * part / parts, whole.begin + size * (part + 1) / parts};
}

void AddBarriers(std::vector<Step>* steps) {
  for (size_t i = 0; i < steps->size(); ++i) {
    for (size_t before = 0; before < i; ++before) {
      const Step& one = (*steps)[before];
      if (one.begin < (*steps)[i].end && (*steps)[i].begin < one.end) {
        (*steps)[i].barrier = static_cast<int64_t>(before);
      }
    }
  }
}

}  // namespace

std::vector<std::vector<Step>> RingSteps(int64_t rank, int64_t ranks, const RingRun& ring) {
  std::vector<std::vector<Step>> lanes;
  for (int64_t lane = 0; lane < ring.lanes; ++lane) {
    std::vector<Step> steps;
    Range whole = PartOf({0, ring.elements}, lane, ring.lanes);
    auto add = [&](int64_t section, bool receives, bool sends, int64_t flags) {
      Range of_section = PartOf(whole, (section % ranks + ranks) % ranks, ranks);
      for (int64_t slice = 0; slice < ring.slices; ++slice) {
        Range range = PartOf(of_section, slice, ring.slices);
        steps.push_back({receives ? lane : -1, sends ? lane : -1, range.begin, range.end, flags, -1});
      }
    };
    for (int64_t shift = 0; shift < ring.shifts; ++shift) {
      for (int64_t section = 0; section < ranks; ++section) add(section, false, true, 0);
      for (int64_t section = 0; section < ranks; ++section) add(section, true, false, 0);
    }
    add(rank, false, true, Step::kSendFromInput);
    for (int64_t hop = 1; hop < ranks; ++hop) add(rank - hop, true, true, Step::kReduce | Step::kOwnIsInput);
    for (int64_t hop = 0; hop < ranks - 1; ++hop) add(rank - hop, true, hop < ranks - 2, 0);
    AddBarriers(&steps);
    lanes.push_back(std::move(steps));
  }
  return lanes;
}

RingProgram::RingProgram(const Scenario& scenario, World* world, const std::vector<Process*>& processes)
    : ring_(scenario.ring),
      params_(scenario.params),
      has_troubles_(!scenario.troubles.empty()),
      seed_(scenario.seed),
      world_(world),
      connected_by_ns_(world->Now() + params_.give_up_ms * kMillisecond),
      ranks_(processes.size()) {
  auto lanes = static_cast<size_t>(ring_.lanes);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].process = processes[i];
    ranks_[i].receivers.resize(lanes);
    const Handle next = processes[(i + 1) % processes.size()]->handle();
    for (size_t lane = 0; lane < lanes; ++lane) {
      int home = ring_.homes ? static_cast<int>(lane) % scenario.rails : kNoHome;
      ranks_[i].senders.push_back(processes[i]->Connect(kFirstConnection + i * lanes + lane, next, home));
    }
  }
}

bool RingProgram::Take(int host, const std::shared_ptr<RecvComm>& comm) {
  auto lanes = static_cast<size_t>(ring_.lanes);
  auto here = static_cast<size_t>(host);
  size_t before = (here + ranks_.size() - 1) % ranks_.size();
  uint64_t first = kFirstConnection + before * lanes;
  if (comm->connection() < first || comm->connection() >= first + lanes) return false;
  ranks_[here].receivers[comm->connection() - first] = comm;
  if (ranks_[here].failed) comm->Close();
  return true;
}

bool RingProgram::IsReady(Rank& rank) {
  if (rank.machine != nullptr) return true;
  for (const auto& sender : rank.senders) {
    bool ready = false;
    Status status = sender->Ready(&ready);
    if (!status.ok()) Fail(rank, status.message());
    if (!status.ok() || !ready) return false;
  }
  if (std::any_of(rank.receivers.begin(), rank.receivers.end(), [](const auto& comm) { return comm == nullptr; })) {
    return false;
  }
  int64_t number = &rank - ranks_.data();
  auto ranks = static_cast<int64_t>(ranks_.size());
  std::vector<int64_t> next(rank.senders.size(), (number + 1) % ranks);
  std::vector<int64_t> before(rank.senders.size(), (number + ranks - 1) % ranks);
  std::vector<int64_t> abreast;
  if (ring_.abreast) abreast.assign(rank.senders.size(), 0);
  std::shared_ptr<MemoryRegistry> registry;  // the process outlives the machine
  if (ring_.registers) registry = {std::shared_ptr<MemoryRegistry>(), rank.process->rdma()};
  rank.machine = std::make_unique<StepMachine>(RingSteps(number, ranks, ring_), abreast, rank.senders, rank.receivers,
                                               next, before, std::move(registry));
  Status status = rank.machine->Validate(ring_.elements);
  if (!status.ok()) Break("the steps of the ring: " + status.message());
  return status.ok();
}

Operation RingProgram::OperationOf(int64_t call) const {
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kInt64, DataType::kBfloat16, DataType::kUint8};
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};
  uint64_t drawn = ring_.sums ? 0 : seed_ + static_cast<uint64_t>(call) * 7;
  return {Collective::kAllReduce, kTypes[drawn % 4], kOps[drawn / 4 % 3], 0, ring_.elements, call};
}

Pattern RingProgram::PatternOf(int64_t call) const {
  return {static_cast<int64_t>(ranks_.size()), call, static_cast<int64_t>(seed_ % 1000), OperationOf(call).op};
}

bool RingProgram::Begin(Rank& rank) {
  Operation operation = OperationOf(rank.call);
  size_t bytes = static_cast<size_t>(ring_.elements) * SizeOf(operation.type);
  auto count = static_cast<size_t>(ring_.elements);
  if (rank.output.size() != bytes) rank.output.assign(bytes, kOverwritten);  // as one that was kept is
  std::vector<char>& own = ring_.in_place ? rank.output : rank.input;
  own.resize(bytes);
  FillPattern(PatternOf(rank.call), &rank - ranks_.data(), operation.type, own.data(), count);
  Register(rank.process, ring_.registers, rank.output);
  Register(rank.process, ring_.registers, rank.input);
  rank.registered = true;
  rank.began_ns = world_->Now();
  Status status = rank.machine->Begin(own.data(), rank.output.data(), operation);
  rank.runs = status.ok();
  if (!status.ok()) Fail(rank, status.message());
  return status.ok();
}

// The buffers are the program's again.
void RingProgram::Let(Rank& rank, const char* which) {
  CheckLet(*rank.process, rank.output, which);
  CheckLet(*rank.process, rank.input, which);
  if (!std::exchange(rank.registered, false)) return;
  Unregister(rank.process, ring_.registers, rank.output);
  Unregister(rank.process, ring_.registers, rank.input);
}

void RingProgram::Fail(Rank& rank, const std::string& why) {
  rank.failed = true;
  rank.runs = false;
  rank.why = why;
  if (rank.machine == nullptr) CloseConnections(rank);  // else the machine has
  Let(rank, "a collective that failed");
  Keep(rank);
}

void RingProgram::CloseConnections(Rank& rank) {
  for (const auto& sender : rank.senders) sender->Close();
  for (const auto& receiver : rank.receivers) {
    if (receiver != nullptr) receiver->Close();
  }
}

void RingProgram::Finish(Rank& rank) {
  rank.runs = false;
  Let(rank, "a collective");
  DataType type = OperationOf(rank.call).type;
  size_t wrong = CheckPattern(PatternOf(rank.call), type, rank.output.data(), rank.output.size() / SizeOf(type));
  if (wrong > 0) {
    Break("collective " + std::to_string(rank.call) + ": " + std::to_string(wrong) + " elements are wrong at rank " +
          std::to_string(&rank - ranks_.data()));
  }
  Keep(rank);
  std::fill(rank.input.begin(), rank.input.end(), kOverwritten);
  ++rank.call;
  ++checked_;
  if (&rank == ranks_.data()) calls_.push_back({rank.began_ns, world_->Now()});
}

void RingProgram::Keep(Rank& rank) {
  rank.kept.push_back(std::move(rank.output));
  std::fill(rank.kept.back().begin(), rank.kept.back().end(), kOverwritten);
  if (rank.kept.size() <= kKept) return;
  if (!IsAsLeft(rank.kept.front())) Break("a buffer was written after its collective had ended");
  rank.output = std::move(rank.kept.front());  // of the next call
  rank.kept.pop_front();
}

void RingProgram::LookAt(Rank& rank, int64_t when_ns) {
  if (rank.look_ns > world_->Now() && rank.look_ns <= when_ns) return;
  rank.look_ns = when_ns;
  world_->At(when_ns, [process = rank.process] { process->WakeProgram(); });
}

void RingProgram::Run(int host) {
  Rank& rank = ranks_[static_cast<size_t>(host)];
  if (rank.failed || is_done(rank)) return;
  if (!IsReady(rank)) {
    if (!rank.failed && world_->Now() > connected_by_ns_) Fail(rank, "a connection did not come");
    return;
  }
  while (!is_done(rank)) {
    if (!rank.runs && !Begin(rank)) return;
    StepMachine::Look look;
    Status status = rank.machine->Advance(world_->Now(), &look);
    if (!status.ok()) return Fail(rank, status.message());
    if (look.finished) {
      Finish(rank);
    } else if (!look.progress) {
      return LookAt(rank, world_->Now() + look.wait_ns);
    }
  }
}

bool RingProgram::IsOver() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [this](const Rank& rank) { return is_done(rank) || rank.failed || !rank.process->is_alive(); });
}

std::string RingProgram::CheckEnd(const std::vector<bool>& doomed) const {
  bool may_fail = std::find(doomed.begin(), doomed.end(), true) != doomed.end() || (has_troubles_ && params_.mode == 0);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (doomed[i] || is_done(rank)) continue;
    std::string where = ": rank " + std::to_string(i) + " at call " + std::to_string(rank.call) + " " + rank.why;
    if (!may_fail) return "a collective did not end well" + where;
    if (!rank.failed) return "the end of a collective was not noticed" + where;
  }
  return "";
}

void RingProgram::AddHealth(std::vector<NicHealth>* health) const {
  for (const Rank& rank : ranks_) {
    for (const auto& sender : rank.senders) sender->AddHealth(health);
    for (const auto& receiver : rank.receivers) {
      if (receiver != nullptr) receiver->AddHealth(health);
    }
  }
}

// A process that is dead closes nothing.
void RingProgram::Close() {
  for (Rank& rank : ranks_) {
    if (!rank.process->is_alive()) continue;
    CloseConnections(rank);
    if (!rank.failed) Fail(rank, "");
  }
}

void RingProgram::CheckKept() {
  for (const Rank& rank : ranks_) {
    for (const auto& data : rank.kept) {
      if (!IsAsLeft(data)) Break("a buffer was written after its collective had ended");
    }
  }
}

}  // namespace r2ccl::simulated
