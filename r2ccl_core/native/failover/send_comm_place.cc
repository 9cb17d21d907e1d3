// Where the sending end puts the next chunk, and how much each path takes: pieces, windows, queues.
#include <algorithm>

#include "failover/send_comm.h"

namespace r2ccl {
namespace {

constexpr int64_t kQueueTargetNs = 8 * kMillisecond;  // how long a path's unacknowledged bytes may take to drain
constexpr int64_t kChunkTargetNs = kMillisecond / 2;
constexpr int64_t kSharedQueueNs = 24 * kMillisecond;  // what a NIC's connections may have on the way together
constexpr int64_t kRefugeNs = 20 * kMillisecond;
constexpr int64_t kSettledNs = kMillisecond;
// A cache line: NICs get equal shares, also of a message that is no whole number of pages.
constexpr uint64_t kChunkAlignment = 64;

}  // namespace

// Small messages are cut so that every path gets a share, large ones by the chunk size.
uint32_t SendComm::ChunkBytes(uint64_t size) {
  const Params& params = environment_->params;
  auto least = static_cast<uint64_t>(std::min(params.min_chunk_bytes, params.chunk_bytes));
  if (size <= least) return static_cast<uint32_t>(least);
  uint64_t sharers = HomeIsWell(Look(), home()) ? 1 : paths_.size();
  uint64_t share = (size + sharers - 1) / sharers;
  share = (share + kChunkAlignment - 1) / kChunkAlignment * kChunkAlignment;
  return static_cast<uint32_t>(std::clamp<uint64_t>(share, least, LargestChunk()));
}

// A fast NIC takes larger pieces: fewer frames, system calls and acknowledgements for the same time on the wire. One of
// many connections that share a slow NIC takes smaller ones.
uint64_t SendComm::LargestChunk() const {
  if (home_ == nullptr) {
    uint64_t share = 0;
    for (const Path& path : paths_) share = std::max(share, LeastWindow(path));
    return share / 2;
  }
  return FittingChunk(*home_);
}

uint64_t SendComm::FittingChunk(const Path& path) const {
  const Params& params = environment_->params;
  auto chunk = static_cast<uint64_t>(params.chunk_bytes);
  double drain = nic_state(path).drain_bytes_per_ns.load(std::memory_order_relaxed);
  if (drain == 0) {  // a NIC that is never full does not show it, but drained this lately
    double peak = nic_state(path).peak_bytes_per_ns.load(std::memory_order_relaxed);
    if (peak >= FastBytesPerNs(params)) drain = peak;
  }
  auto fast = static_cast<uint64_t>(drain * static_cast<double>(kChunkTargetNs));
  return std::clamp<uint64_t>(fast, chunk, std::max<uint64_t>(chunk, static_cast<uint64_t>(params.window_bytes) / 8));
}

// Queue q belongs to path q; while that is down, to the nearest path that is up, of several the next (its back-up NIC).
bool SendComm::Serves(const Path& path, uint32_t queue) const {
  const Path* backup = nullptr;
  int nearest = 0;
  for (size_t i = 0; i < paths_.size(); ++i) {
    const Path& candidate = paths_[(queue + i) % paths_.size()];
    if (candidate.state != PathState::kUp) continue;
    if (i == 0) return &candidate == &path;
    int distance = DistanceBetween(paths_[queue], candidate);
    if (backup != nullptr && distance >= nearest) continue;
    backup = &candidate;
    nearest = distance;
  }
  return backup == &path;
}

int SendComm::DistanceBetween(const Path& one, const Path& other) const {
  size_t nics = environment_->nics.size();
  auto known = [nics](const Path& path) { return path.nic >= 0 && static_cast<size_t>(path.nic) < nics; };
  if (!known(one) || !known(other)) return 0;
  return Distance(environment_->nics[static_cast<size_t>(one.nic)], environment_->nics[static_cast<size_t>(other.nic)]);
}

std::deque<SendComm::Chunk>* SendComm::QueueFor(const Path& path) {
  if (queues_.size() == 1) return queues_[0].empty() ? nullptr : &queues_[0];
  std::deque<Chunk>* oldest = nullptr;
  for (uint32_t queue = 0; queue < queues_.size(); ++queue) {
    if (queues_[queue].empty() || !Serves(path, queue)) continue;
    if (oldest == nullptr || queues_[queue].front().message < oldest->front().message) oldest = &queues_[queue];
  }
  return oldest;
}

// Two chunks, so that one is on the way while the other is acknowledged; less where many connections share a NIC, as
// what all have on the way meets in one queue, which drops. Not by what this connection drains: a process that waits
// for a processor would drain less, get less, and so on.
uint64_t SendComm::LeastWindow(const Path& path) const {
  const Params& params = environment_->params;
  uint64_t usual = 2 * FittingChunk(path);
  double peak = nic_state(path).peak_bytes_per_ns.load(std::memory_order_relaxed);
  if (peak == 0) return usual;
  double senders = std::max(1, environment_->senders.load(std::memory_order_relaxed));
  auto share = static_cast<uint64_t>(peak * static_cast<double>(kSharedQueueNs) / senders);
  share = share / (2 * kChunkAlignment) * (2 * kChunkAlignment);
  return std::clamp<uint64_t>(share, std::min<uint64_t>(usual, 2 * static_cast<uint64_t>(params.min_chunk_bytes)),
                              usual);
}

uint64_t SendComm::WindowBytes(const Path& path) const {
  const Outgoing& out = outgoing(path);
  auto largest = static_cast<uint64_t>(environment_->params.window_bytes);
  uint64_t smallest = std::min(largest, LeastWindow(path));
  if (out.bytes_per_ns == 0) return smallest;
  double target = out.bytes_per_ns * static_cast<double>(out.min_round_trip_ns + kQueueTargetNs);
  return std::clamp<uint64_t>(static_cast<uint64_t>(target), smallest, largest);
}

bool SendComm::CanTake(const Path& path) {
  const Outgoing& out = outgoing(path);
  return path.state == PathState::kUp && path.stream->has_room() &&
         (out.in_flight_bytes == 0 || out.in_flight_bytes < WindowBytes(path)) && QueueFor(path) != nullptr;
}

const std::vector<PathLoad>& SendComm::Look() {
  int64_t now_ns = Now();
  loads_.clear();
  bool all_doubted = std::none_of(paths_.begin(), paths_.end(), [this](const Path& path) {
    return path.state == PathState::kUp && !IsDoubted(path);
  });
  for (const Path& path : paths_) {
    const NicState& nic = nic_state(path);
    int64_t refuge_ns = nic.refuge_ns.load(std::memory_order_relaxed);
    bool trusted = !IsDoubted(path) || all_doubted;
    loads_.push_back({.up = path.state == PathState::kUp && trusted,
                      .free = CanTake(path) && trusted,
                      .refuge = refuge_ns != 0 && now_ns - refuge_ns < kRefugeNs,
                      .drain = nic.drain_bytes_per_ns.load(std::memory_order_relaxed),
                      .nic_bytes = static_cast<double>(nic.in_flight_bytes.load(std::memory_order_relaxed)),
                      .path_bytes = static_cast<double>(outgoing(path).in_flight_bytes),
                      .small_senders = home_ == nullptr ? 0
                                                        : nic.small_senders.load(std::memory_order_relaxed) -
                                                              (path.nic == small_nic_ ? 1 : 0),
                      .peak = nic.peak_bytes_per_ns.load(std::memory_order_relaxed),
                      .distance = from_home_[loads_.size()],
                      .rate = outgoing(path).bytes_per_ns,
                      .share = ShareOf(path)});
  }
  TellFromSlow(&loads_);
  return loads_;
}

double SendComm::ShareOf(const Path& path) const {
  auto index = static_cast<size_t>(path.nic);
  return shares_ != nullptr && index < shares_->size() ? (*shares_)[index] : 0;
}

// Whether it does not reach all NICs of this host: the peer has fewer, or a path is down.
bool SendComm::IsConfined() const {
  auto up = std::count_if(paths_.begin(), paths_.end(),
                          [this](const Path& path) { return path.state == PathState::kUp && !IsDoubted(path); });
  return static_cast<size_t>(up) < environment_->nics.size();
}

// For the next chunk; kNoPath while it is better to wait.
int SendComm::NextPath() {
  if (environment_->params.mode != 2) return Soonest(Look(), {}, false);
  FollowShares(message(queues_[0].front().message).shares);
  const std::vector<PathLoad>& paths = Look();
  int index = kNoPath;
  if (shares_ != nullptr && split_.Place(paths, &index)) return index;
  return Place(paths, home(), FirstWaiting(), IsConfined());
}

void SendComm::FollowShares(const NicShares& shares) {
  if (shares == shares_) return;
  shares_ = shares;
  split_ = {};
}

// Whether the next chunk goes to the home without another look: it is a copy, which loads no NIC, and the last look is
// not long ago.
bool SendComm::IsSettled(int64_t now_ns) {
  if (now_ns - settled_ns_ > kSettledNs || environment_->params.mode != 2 || !queues_[0].front().buffered) return false;
  return CanTake(*home_) && !IsDoubted(*home_);
}

// In Balance, whose queue all paths share.
Waiting SendComm::FirstWaiting() const {
  return {static_cast<double>(queues_[0].front().length), static_cast<double>(waiting_bytes_)};
}

}  // namespace r2ccl
