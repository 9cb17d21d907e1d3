// The order in which a rank issues its rounds.
#include "cuda/runner.h"

#include <algorithm>
#include <map>
#include <utility>

namespace r2ccl::cuda {
namespace {

constexpr size_t kAlign = 256;  // of a bounced range
constexpr int kInt8 = 0;
constexpr size_t kAhead = 2;  // segments that are reduced before a round needs them; gpu/segments.py reckons with it

size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// The end of the group that begins at `op`.
const Operation* GroupEnd(const Operation* op, const Operation* end) {
  const Operation* last = op;
  while (last != end && last->round == op->round) ++last;
  return last;
}

// By segment, the end of the last operation on it or an earlier one.
std::vector<const Operation*> SegmentEnds(const std::vector<Operation>& program, const Entry& entry) {
  std::vector<const Operation*> ends(entry.segments.size(), program.data());
  for (const Operation& op : program) ends[entry.SegmentOf(op.begin)] = &op + 1;
  for (size_t i = 1; i < ends.size(); ++i) ends[i] = std::max(ends[i], ends[i - 1]);
  return ends;
}

bool Overlap(const Operation& a, const Operation& b) { return a.begin < b.end && b.begin < a.end; }

// What a group sends to one peer, or receives from it.
struct Message {
  int32_t peer;
  bool sends;
  size_t bytes = 0;
  std::vector<const Operation*> parts = {};
  size_t bounce = 0;  // its offset in the bounce buffer, if it has a place there

  // NCCL runs the messages between two ranks one after another, each with its own delay, so several parts travel as
  // one: both ends see the same parts in the same order. A part of its own needs no copy, unless something is to be
  // added.
  bool Bounces() const { return parts.size() > 1 || parts.front()->kind == Operation::kReceiveReduce; }
};

}  // namespace

// The messages of a group, and where their bytes are in the bounce buffer.
class Runner::Group {
 public:
  Group(const Job& job, const Operation* begin, const Operation* end) : begin_(begin), end_(end) {
    for (const Operation* op = begin; op != end; ++op) {
      if (op->kind == Operation::kCopy) continue;
      bool sends = op->kind == Operation::kSend;
      auto its = std::find_if(messages_.begin(), messages_.end(),
                              [&](const Message& one) { return one.peer == op->peer && one.sends == sends; });
      if (its == messages_.end()) its = messages_.insert(its, {op->peer, sends});
      its->parts.push_back(op);
      its->bytes += Bytes(job, *op);
    }
    for (Message& message : messages_) {
      if (!message.Bounces()) continue;
      message.bounce = bounce_bytes_;
      bounce_bytes_ += Aligned(message.bytes);
    }
  }

  const Operation* begin() const { return begin_; }
  const Operation* end() const { return end_; }
  const std::vector<Message>& messages() const { return messages_; }
  size_t bounce_bytes() const { return bounce_bytes_; }
  // So many segments, from the first on, must be there.
  size_t Segments(const Layout& layout) const {
    size_t most = 0;
    for (const Operation* op = begin_; op != end_; ++op) most = std::max(most, 1 + layout.SegmentOf(op->begin));
    return most;
  }

 private:
  const Operation* begin_;
  const Operation* end_;
  std::vector<Message> messages_;
  size_t bounce_bytes_ = 0;
};

Runner::~Runner() {
  for (auto* held : {&outer_, &inner_}) {
    if (Comm comm = held->exchange(nullptr); comm != nullptr) nccl_.comm_destroy(comm);
  }
  auto drop = [this](Workspace& workspace) {
    if (workspace.stream != nullptr) device_.DropStream(workspace.stream);
    for (Event event : workspace.begin) device_.DropEvent(event);
    if (workspace.done != nullptr) device_.DropEvent(workspace.done);
  };
  drop(ungraphed_);
  for (auto& workspace : graphed_) drop(*workspace);
}

void Runner::Abort() {
  for (auto* held : {&outer_, &inner_}) {
    if (Comm comm = held->exchange(nullptr); comm != nullptr) nccl_.comm_abort(comm);
  }
}

int Runner::Open(Comm parent, const Seat& seat) {
  seat_ = seat;
  if (!Make(&ungraphed_)) return kNcclCudaError;
  Comm comm = nullptr;
  int result = nccl_.comm_split(parent, seat_.place, seat_.host, &comm, nullptr);
  outer_ = comm;
  if (result == kNcclSuccess) result = Connect();
  return result == kNcclSuccess && seat_.gpus > 1 ? OpenInner(parent) : result;
}

bool Runner::Make(Workspace* workspace) {
  return device_.MakeStream(&workspace->stream) && device_.MakeEvent(&workspace->done);
}

// The stream of a graph is captured with it until its capture ends; only then another graph may have it. Nullptr
// where the device gives no more.
Runner::Workspace* Runner::Find(uint64_t graph) {
  if (graph == 0) return &ungraphed_;
  auto found = std::find_if(graphed_.begin(), graphed_.end(), [&](const auto& one) { return one->graph == graph; });
  if (found == graphed_.end()) {
    found = std::find_if(graphed_.begin(), graphed_.end(),
                         [&](const auto& one) { return device_.GraphOf(one->stream) == 0; });
  }
  if (found == graphed_.end()) {
    found = graphed_.insert(found, std::make_unique<Workspace>());
    if (!Make(found->get())) return nullptr;
  }
  Workspace& workspace = **found;
  if (workspace.graph != graph) {
    workspace.bounce.reset();
    workspace.graph = graph;
  }
  return &workspace;
}

// The ranks of this host, connected by what they will run.
int Runner::OpenInner(Comm parent) {
  Comm comm = nullptr;
  int result = nccl_.comm_split(parent, seat_.host, seat_.place, &comm, nullptr);
  inner_ = comm;
  if (result != kNcclSuccess) return result;
  char* all = ungraphed_.bounce->memory;
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  char* own = all + seat_.place;  // a byte for each: the bounce buffer has 512 for each host
  result = nccl_.reduce_scatter(all, own, 1, kInt8, static_cast<int>(Op::kMax), inner_, ungraphed_.stream);
  return result == kNcclSuccess ? nccl_.all_gather(own, all, 1, kInt8, inner_, ungraphed_.stream) : result;
}

// A byte to and from everybody. NCCL connects two ranks when they first talk, which takes both of them and long.
int Runner::Connect() {
  Workspace& in = ungraphed_;
  in.bounce = buffers_.Take(kAlign * 2 * static_cast<size_t>(seat_.hosts));
  if (in.bounce == nullptr) return kNcclCudaError;
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  int result = nccl_.group_start();
  for (int peer = 0; peer < seat_.hosts && result == kNcclSuccess; ++peer) {
    if (peer == seat_.host) continue;
    char* place = in.bounce->memory + kAlign * 2 * static_cast<size_t>(peer);
    result = nccl_.send(place, 1, kInt8, peer, outer_, in.stream);
    if (result == kNcclSuccess) result = nccl_.recv(place + kAlign, 1, kInt8, peer, outer_, in.stream);
  }
  int ended = nccl_.group_end();
  return result == kNcclSuccess ? ended : result;
}

size_t Runner::Bytes(const Job& job, const Operation& op) {
  return job.layout->Count(op.begin, op.end) * TypeBytes(job.type);
}

char* Runner::Result(const Job& job, const Operation& op) {
  return job.output + job.layout->At(op.begin) * TypeBytes(job.type);
}

const char* Runner::Own(const Job& job, const Operation& op) {
  return (op.from_input ? job.input : job.output) + job.layout->At(op.begin) * TypeBytes(job.type);
}

// A bounce buffer large enough for every group. One that is too small stays until the end: a run that is still under
// way on the device may use it. A graph keeps its own.
bool Runner::Reserve(const Job& job, Stream stream) {
  const auto& program = job.entry->programs[static_cast<size_t>(seat_.host)];
  size_t needed = 0;
  const Operation* end = program.data() + program.size();
  for (const Operation* op = program.data(); op != end;) {
    const Operation* next = GroupEnd(op, end);
    needed = std::max(needed, Group(job, op, next).bounce_bytes());
    op = next;
  }
  Workspace& in = *job.in;
  size_t has = in.bounce == nullptr ? 0 : in.bounce->bytes;
  if (needed <= has) return true;
  auto larger = buffers_.Take(std::max(needed, 2 * has));
  if (larger == nullptr) return false;
  if (in.graph != 0) {
    if (!device_.KeepForGraph(stream, larger)) return false;
  } else if (in.bounce != nullptr) {
    outgrown_.push_back(in.bounce);
  }
  in.bounce = std::move(larger);
  return true;
}

// What no equal parts can be made of, fewer elements than there are GPUs, is NCCL's.
int Runner::Run(const Entry& entry, const void* input, void* output, size_t count, Type type, Op op, Comm parent,
                Stream stream, uint64_t graph) {
  size_t gpus = static_cast<size_t>(seat_.gpus);
  if (count / gpus < entry.chunks) return kNcclSystemError;
  Workspace* in = Find(graph);
  if (in == nullptr) return kNcclCudaError;
  Layout layout(entry, gpus, static_cast<size_t>(seat_.place), count, type);
  Job job = {&entry, &layout, static_cast<const char*>(input), static_cast<char*>(output), type, op, in};
  int result = RunSegments(job, stream);
  size_t rest = count % gpus;
  if (result != kNcclSuccess || rest == 0) return result;
  size_t at = (count - rest) * TypeBytes(type);
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  return nccl_.all_reduce(job.input + at, job.output + at, rest, static_cast<int>(type), static_cast<int>(op), parent,
                          stream);
}

int Runner::RunSegments(const Job& whole, Stream stream) {
  if (!Reserve(whole, stream)) return kNcclCudaError;
  Job job = whole;
  if (seat_.gpus > 1) job.input = job.output;  // what the host has summed is there
  const auto& program = job.entry->programs[static_cast<size_t>(seat_.host)];
  std::vector<const Operation*> ends = SegmentEnds(program, *job.entry);
  const Operation* end = program.data() + program.size();
  size_t reduced = 0;
  size_t begun = 0;
  size_t ended = 0;
  for (const Operation* at = program.data(); at != end;) {
    const Operation* next = GroupEnd(at, end);
    Group group(job, at, next);
    size_t needed = group.Segments(*job.layout);
    for (; reduced < std::min(needed + kAhead, ends.size()); ++reduced) {
      if (int result = BeginSegment(whole, stream, reduced); result != kNcclSuccess) return result;
    }
    for (; begun < needed; ++begun) {
      if (!device_.WaitFor(job.in->stream, job.in->begin[begun])) return kNcclCudaError;
    }
    if (int result = RunRound(job, group); result != kNcclSuccess) return result;
    size_t until = ended;
    while (until < ends.size() && ends[until] <= next) ++until;
    if (int result = EndSegments(job, stream, ended, until); result != kNcclSuccess) return result;
    ended = until;
    at = next;
  }
  return kNcclSuccess;
}

int Runner::BeginSegment(const Job& job, Stream stream, size_t segment) {
  std::vector<Event>& begin = job.in->begin;
  if (segment == begin.size()) {
    begin.push_back(nullptr);
    if (!device_.MakeEvent(&begin.back())) return kNcclCudaError;
  }
  int result = ReduceSegment(job, stream, segment);
  if (result != kNcclSuccess) return result;
  return device_.Record(begin[segment], stream) ? kNcclSuccess : kNcclCudaError;
}

// The segments [from, until), whose rounds are issued.
int Runner::EndSegments(const Job& job, Stream stream, size_t from, size_t until) {
  if (from == until) return kNcclSuccess;
  if (!device_.Record(job.in->done, job.in->stream) || !device_.WaitFor(stream, job.in->done)) return kNcclCudaError;
  int result = kNcclSuccess;
  for (size_t i = from; i < until && result == kNcclSuccess; ++i) result = GatherSegment(job, stream, i);
  return result;
}

int Runner::ReduceSegment(const Job& job, Stream stream, size_t segment) {
  if (seat_.gpus == 1) return kNcclSuccess;
  const Layout& layout = *job.layout;
  size_t width = TypeBytes(job.type);
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  return nccl_.reduce_scatter(job.input + layout.Begin(segment) * width, job.output + layout.Own(segment) * width,
                              layout.Part(segment), static_cast<int>(job.type), static_cast<int>(job.op), inner_,
                              stream);
}

int Runner::GatherSegment(const Job& job, Stream stream, size_t segment) {
  if (seat_.gpus == 1) return kNcclSuccess;
  const Layout& layout = *job.layout;
  size_t width = TypeBytes(job.type);
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  return nccl_.all_gather(job.output + layout.Own(segment) * width, job.output + layout.Begin(segment) * width,
                          layout.Part(segment), static_cast<int>(job.type), inner_, stream);
}

int Runner::RunRound(const Job& job, const Group& group) {
  if (!Pack(job, group)) return kNcclCudaError;
  int result = Transfer(job, group);
  if (result != kNcclSuccess) return result;
  return Finish(job, group) ? kNcclSuccess : kNcclCudaError;
}

// Copies the parts of messages that have several to where they are sent from.
bool Runner::Pack(const Job& job, const Group& group) {
  std::vector<Reduction> copies;
  for (const Message& message : group.messages()) {
    if (!message.sends || !message.Bounces()) continue;
    char* to = job.in->bounce->memory + message.bounce;
    for (const Operation* op : message.parts) {
      copies.push_back({to, Own(job, *op), nullptr, Bytes(job, *op) / TypeBytes(job.type)});
      to += Bytes(job, *op);
    }
  }
  return copies.empty() || device_.Reduce(copies, job.type, job.op, job.in->stream);
}

int Runner::Transfer(const Job& job, const Group& group) {
  if (group.messages().empty()) return kNcclSuccess;
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  int result = nccl_.group_start();
  for (const Message& message : group.messages()) {
    if (result != kNcclSuccess) break;
    const Operation& first = *message.parts.front();
    char* bounce = message.Bounces() ? job.in->bounce->memory + message.bounce : nullptr;
    if (message.sends) {
      const char* from = bounce == nullptr ? Own(job, first) : bounce;
      result = nccl_.send(from, message.bytes, kInt8, message.peer, outer_, job.in->stream);
    } else {
      char* to = bounce == nullptr ? Result(job, first) : bounce;
      result = nccl_.recv(to, message.bytes, kInt8, message.peer, outer_, job.in->stream);
    }
  }
  int ended = nccl_.group_end();
  return result == kNcclSuccess ? ended : result;
}

// What came is copied or added to its place. Several values for one range come one after another, in the order of the
// program: each into a launch of its own.
bool Runner::Finish(const Job& job, const Group& group) {
  std::map<const Operation*, const char*> came;
  for (const Message& message : group.messages()) {
    if (message.sends || !message.Bounces()) continue;
    const char* from = job.in->bounce->memory + message.bounce;
    for (const Operation* op : message.parts) {
      came[op] = from;
      from += Bytes(job, *op);
    }
  }
  std::vector<std::vector<Reduction>> passes;
  std::vector<std::pair<const Operation*, size_t>> earlier;
  for (const Operation* op = group.begin(); op != group.end(); ++op) {
    if (op->kind != Operation::kCopy && !came.contains(op)) continue;
    size_t pass = 0;
    for (const auto& [other, its_pass] : earlier) {
      if (Overlap(*other, *op)) pass = std::max(pass, its_pass + 1);
    }
    earlier.emplace_back(op, pass);
    Reduction one = {Result(job, *op), Own(job, *op), nullptr, Bytes(job, *op) / TypeBytes(job.type)};
    if (op->kind == Operation::kReceive) one.own = came[op];
    if (op->kind == Operation::kReceiveReduce) one.in = came[op];
    passes.resize(std::max(passes.size(), pass + 1));
    if (one.in != nullptr || one.own != one.out) passes[pass].push_back(one);
  }
  return std::all_of(passes.begin(), passes.end(), [&](const std::vector<Reduction>& reductions) {
    return reductions.empty() || device_.Reduce(reductions, job.type, job.op, job.in->stream);
  });
}

}  // namespace r2ccl::cuda
