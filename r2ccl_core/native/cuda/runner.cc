// The order in which a rank issues its rounds.
#include "cuda/runner.h"

#include <algorithm>

namespace r2ccl::cuda {
namespace {

constexpr size_t kAlign = 256;  // of a bounced range
constexpr int kInt8 = 0;

size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// The end of the group that begins at `op`.
const Operation* GroupEnd(const Operation* op, const Operation* end) {
  const Operation* last = op;
  while (last != end && last->round == op->round && last->pipe == op->pipe) ++last;
  return last;
}

bool Overlap(const Operation& a, const Operation& b) { return a.begin < b.end && b.begin < a.end; }

bool IsAfterwards(const Operation& op) { return op.kind == Operation::kReceiveReduce || op.kind == Operation::kCopy; }

}  // namespace

Runner::~Runner() {
  for (Pipe& pipe : pipes_) {
    if (Comm comm = pipe.comm.exchange(nullptr); comm != nullptr) nccl_.comm_destroy(comm);
    if (pipe.stream != nullptr) device_.DropStream(pipe.stream);
    if (pipe.done != nullptr) device_.DropEvent(pipe.done);
    if (pipe.bounce != nullptr) device_.Free(pipe.bounce);
  }
  if (Comm comm = inner_.exchange(nullptr); comm != nullptr) nccl_.comm_destroy(comm);
  for (void* memory : outgrown_) device_.Free(memory);
  if (begin_ != nullptr) device_.DropEvent(begin_);
}

void Runner::Abort() {
  for (Pipe& pipe : pipes_) {
    if (Comm comm = pipe.comm.exchange(nullptr); comm != nullptr) nccl_.comm_abort(comm);
  }
  if (Comm comm = inner_.exchange(nullptr); comm != nullptr) nccl_.comm_abort(comm);
}

int Runner::Open(Comm parent, const Seat& seat) {
  seat_ = seat;
  if (!device_.MakeEvent(&begin_)) return kNcclCudaError;
  for (Pipe& pipe : pipes_) {
    if (!device_.MakeStream(&pipe.stream) || !device_.MakeEvent(&pipe.done)) return kNcclCudaError;
    Comm comm = nullptr;
    int result = nccl_.comm_split(parent, seat_.place, seat_.host, &comm, nullptr);
    pipe.comm = comm;
    if (result == kNcclSuccess) result = Connect(pipe);
    if (result != kNcclSuccess) return result;
  }
  return seat_.gpus > 1 ? OpenInner(parent) : kNcclSuccess;
}

// The ranks of this host, connected by what they will run.
int Runner::OpenInner(Comm parent) {
  Comm comm = nullptr;
  int result = nccl_.comm_split(parent, seat_.host, seat_.place, &comm, nullptr);
  inner_ = comm;
  if (result != kNcclSuccess) return result;
  Pipe& pipe = pipes_.front();
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  char* own = pipe.bounce + seat_.place;  // a byte for each: the bounce buffer has 512 for each host
  result = nccl_.reduce_scatter(pipe.bounce, own, 1, kInt8, static_cast<int>(Op::kMax), inner_, pipe.stream);
  return result == kNcclSuccess ? nccl_.all_gather(own, pipe.bounce, 1, kInt8, inner_, pipe.stream) : result;
}

// A byte to and from everybody. NCCL connects two ranks when they first talk, which takes both of them and long.
int Runner::Connect(Pipe& pipe) {
  void* memory = nullptr;
  pipe.bounce_bytes = kAlign * 2 * static_cast<size_t>(seat_.hosts);
  if (!device_.Allocate(pipe.bounce_bytes, &memory)) return kNcclCudaError;
  pipe.bounce = static_cast<char*>(memory);
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  int result = nccl_.group_start();
  for (int peer = 0; peer < seat_.hosts && result == kNcclSuccess; ++peer) {
    if (peer == seat_.host) continue;
    char* place = pipe.bounce + kAlign * 2 * static_cast<size_t>(peer);
    result = nccl_.send(place, 1, kInt8, peer, pipe.comm, pipe.stream);
    if (result == kNcclSuccess) result = nccl_.recv(place + kAlign, 1, kInt8, peer, pipe.comm, pipe.stream);
  }
  int ended = nccl_.group_end();
  return result == kNcclSuccess ? ended : result;
}

size_t Runner::Offset(const Job& job, int32_t chunk) {
  // Without overflow for any count: chunk * count may not fit.
  size_t chunks = job.entry->chunks;
  size_t number = static_cast<size_t>(chunk);
  return job.count / chunks * number + job.count % chunks * number / chunks;
}

size_t Runner::Bytes(const Job& job, const Operation& op) {
  return (Offset(job, op.end) - Offset(job, op.begin)) * TypeBytes(job.type);
}

size_t Runner::BounceBytes(const Job& job, const Operation* begin, const Operation* end) {
  size_t bytes = 0;
  for (const Operation* op = begin; op != end; ++op) {
    if (op->kind == Operation::kReceiveReduce) bytes += Aligned(Bytes(job, *op));
  }
  return bytes;
}

// Bounce buffers large enough for every group. One that is too small stays until the end: a run that is still under
// way on the device may use it.
bool Runner::Reserve(const Job& job) {
  const auto& program = job.entry->programs[static_cast<size_t>(seat_.host)];
  std::vector<size_t> needed(pipes_.size(), 0);
  const Operation* end = program.data() + program.size();
  for (const Operation* op = program.data(); op != end;) {
    const Operation* next = GroupEnd(op, end);
    size_t& most = needed[static_cast<size_t>(op->pipe)];
    most = std::max(most, BounceBytes(job, op, next));
    op = next;
  }
  for (size_t i = 0; i < pipes_.size(); ++i) {
    Pipe& pipe = pipes_[i];
    if (needed[i] <= pipe.bounce_bytes) continue;
    size_t bytes = std::max(needed[i], 2 * pipe.bounce_bytes);
    void* memory = nullptr;
    if (!device_.Allocate(bytes, &memory)) return false;
    outgrown_.push_back(pipe.bounce);
    pipe.bounce = static_cast<char*>(memory);
    pipe.bounce_bytes = bytes;
  }
  return true;
}

int Runner::Run(const Entry& entry, const void* input, void* output, size_t count, Type type, Op op, Comm parent,
                Stream stream) {
  if (entry.pipes > pipes_.size() || count / static_cast<size_t>(seat_.gpus) < entry.chunks) return kNcclSystemError;
  Job job = {&entry, static_cast<const char*>(input), static_cast<char*>(output), count, type, op};
  return seat_.gpus == 1 ? RunRounds(job, stream) : RunHosts(job, parent, stream);
}

// What no equal parts can be made of, fewer elements than there are GPUs, is NCCL's.
int Runner::RunHosts(const Job& whole, Comm parent, Stream stream) {
  size_t gpus = static_cast<size_t>(seat_.gpus);
  size_t part = whole.count / gpus;
  size_t width = TypeBytes(whole.type);
  size_t rest = whole.count % gpus;
  int type = static_cast<int>(whole.type);
  int op = static_cast<int>(whole.op);
  char* own = whole.output + static_cast<size_t>(seat_.place) * part * width;
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  int result = nccl_.reduce_scatter(whole.input, own, part, type, op, inner_, stream);
  if (result == kNcclSuccess) {
    result = RunRounds({whole.entry, own, own, part, whole.type, whole.op}, stream);
  }
  if (result == kNcclSuccess) result = nccl_.all_gather(own, whole.output, part, type, inner_, stream);
  if (result != kNcclSuccess || rest == 0) return result;
  size_t at = gpus * part * width;
  return nccl_.all_reduce(whole.input + at, whole.output + at, rest, type, op, parent, stream);
}

int Runner::RunRounds(const Job& job, Stream stream) {
  const Entry& entry = *job.entry;
  if (!Reserve(job) || !device_.Record(begin_, stream)) return kNcclCudaError;
  for (uint32_t i = 0; i < entry.pipes; ++i) {
    if (!device_.WaitFor(pipes_[i].stream, begin_)) return kNcclCudaError;
  }
  const auto& program = entry.programs[static_cast<size_t>(seat_.host)];
  const Operation* end = program.data() + program.size();
  for (const Operation* at = program.data(); at != end;) {
    const Operation* next = GroupEnd(at, end);
    int result = IssueGroup(job, at, next);
    if (result != kNcclSuccess) return result;
    if (!ReduceGroup(job, at, next)) return kNcclCudaError;
    at = next;
  }
  for (uint32_t i = 0; i < entry.pipes; ++i) {
    Pipe& pipe = pipes_[i];
    if (!device_.Record(pipe.done, pipe.stream) || !device_.WaitFor(stream, pipe.done)) return kNcclCudaError;
  }
  return kNcclSuccess;
}

int Runner::IssueGroup(const Job& job, const Operation* begin, const Operation* end) {
  Pipe& pipe = pipes_[static_cast<size_t>(begin->pipe)];
  if (std::all_of(begin, end, [](const Operation& op) { return op.kind == Operation::kCopy; })) return kNcclSuccess;
  char* bounce = pipe.bounce;
  Gate::Pass pass(gate_);
  if (!pass.open()) return kNcclSystemError;
  int result = nccl_.group_start();
  for (const Operation* op = begin; op != end && result == kNcclSuccess; ++op) {
    size_t bytes = Bytes(job, *op);
    size_t place = Offset(job, op->begin) * TypeBytes(job.type);
    if (op->kind == Operation::kSend) {
      const char* from = op->from_input ? job.input : job.output;
      result = nccl_.send(from + place, bytes, kInt8, op->peer, pipe.comm, pipe.stream);
    } else if (op->kind == Operation::kReceive) {
      result = nccl_.recv(job.output + place, bytes, kInt8, op->peer, pipe.comm, pipe.stream);
    } else if (op->kind == Operation::kReceiveReduce) {
      result = nccl_.recv(bounce, bytes, kInt8, op->peer, pipe.comm, pipe.stream);
      bounce += Aligned(bytes);
    }
  }
  int ended = nccl_.group_end();
  return result == kNcclSuccess ? ended : result;
}

// Several values for one range come one after another, in the order of the program: each into a launch of its own.
bool Runner::ReduceGroup(const Job& job, const Operation* begin, const Operation* end) {
  Pipe& pipe = pipes_[static_cast<size_t>(begin->pipe)];
  std::vector<std::vector<Reduction>> passes;
  std::vector<std::pair<const Operation*, size_t>> earlier;
  size_t width = TypeBytes(job.type);
  char* bounce = pipe.bounce;
  for (const Operation* op = begin; op != end; ++op) {
    if (!IsAfterwards(*op)) continue;
    size_t pass = 0;
    for (const auto& [other, its_pass] : earlier) {
      if (Overlap(*other, *op)) pass = std::max(pass, its_pass + 1);
    }
    earlier.emplace_back(op, pass);
    size_t place = Offset(job, op->begin) * width;
    const char* own = (op->from_input ? job.input : job.output) + place;
    Reduction one = {job.output + place, own, nullptr, Bytes(job, *op) / width};
    if (op->kind == Operation::kReceiveReduce) {
      one.in = bounce;
      bounce += Aligned(Bytes(job, *op));
    }
    passes.resize(std::max(passes.size(), pass + 1));
    if (one.in != nullptr || one.own != one.out) passes[pass].push_back(one);
  }
  return std::all_of(passes.begin(), passes.end(), [&](const std::vector<Reduction>& reductions) {
    return reductions.empty() || device_.Reduce(reductions, job.type, job.op, pipe.stream);
  });
}

}  // namespace r2ccl::cuda
