// The sending end: dialling, cutting, pumping, acknowledgements, migration.
#include "failover/send_comm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "failover/protocol.h"

namespace r2ccl {
namespace {

constexpr int64_t kQueueTargetNs = 8 * kMillisecond;  // how long a path's unacknowledged bytes may take to drain
constexpr int64_t kChunkTargetNs = kMillisecond / 2;
constexpr int64_t kSharedQueueNs = 24 * kMillisecond;  // what a NIC's connections may have on the way together
constexpr int64_t kRateSampleNs = 2 * kMillisecond;
constexpr int64_t kTrialPauseNs = 250 * kMillisecond;
constexpr int64_t kRedialNs = 150 * kMillisecond;
constexpr int64_t kDetourNs = 10'000 * kMillisecond;
constexpr int64_t kRefugeNs = 20 * kMillisecond;
constexpr int64_t kSettledNs = kMillisecond;
constexpr int64_t kReadyGraceNs = 100 * kMillisecond;
// A cache line: NICs get equal shares, also of a message that is no whole number of pages.
constexpr uint64_t kChunkAlignment = 64;
constexpr uint64_t kEarlyMessages = 32;
constexpr uint64_t kReadEvery = 16;
constexpr int kIdleTicks = 100;  // half a second
constexpr char kOwnRail[] = "the NIC's own rail is tried again";

}  // namespace

SendComm::SendComm(Environment* environment, Wire* wire, const Handle& handle, int home, uint64_t connection)
    : Comm(environment, wire), handle_(handle), connection_(connection) {
  auto pairs = PairNics(environment->nics, handle.addresses);
  CountAsSender(true);
  paths_.resize(pairs.size());
  outgoing_.resize(pairs.size());
  queues_.resize(environment->params.mode == 2 ? 1 : pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    paths_[i].index = static_cast<int>(i);
    paths_[i].nic = pairs[i].first;
    outgoing_[i].partner = static_cast<size_t>(pairs[i].second);
    Aim(paths_[i], 0);
    if (pairs[i].first == home) home_ = &paths_[i];
  }
  for (const Path& path : paths_) from_home_.push_back(home_ == nullptr ? 0 : DistanceBetween(*home_, path));
}

void SendComm::Start() {
  MutexLock lock(mutex_);
  int64_t now_ns = Now();
  if (AnyUp() == nullptr) no_path_since_ns_ = now_ns;
  started_ns_ = now_ns;
  for (Path& path : paths_) {
    // A tick may have come first and dialled already.
    if (failure_.ok() && path.state == PathState::kDown && path.epoch == 0) Dial(path, now_ns);
  }
}

Status SendComm::Ready(bool* ready) {
  MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (!ready_) {
    auto is_up = [](const Path& path) { return path.state == PathState::kUp; };
    bool any_up = std::any_of(paths_.begin(), paths_.end(), is_up);
    bool all_tried = std::all_of(outgoing_.begin(), outgoing_.end(), [](const Outgoing& out) { return out.tried; });
    // A NIC that is dead from the start must not hold the connection up for long; it joins when it answers.
    bool waited = any_up && environment_->params.mode != 0 && Now() - started_ns_ > kReadyGraceNs;
    ready_ = any_up && (all_tried || waited);
  }
  *ready = ready_;
  return {};
}

// The kernel sends a connection request that was lost again only after a second: on a way that is known, another dial
// finds out sooner that it is back.
int64_t SendComm::DialPatienceNs(const Path& path) const {
  int64_t longest_ns = environment_->params.connect_ms * kMillisecond;
  if (path.round_trip_ns == 0) return longest_ns;
  return std::min(longest_ns, std::max(kRedialNs, 4 * path.round_trip_ns));
}

void SendComm::OnPeerLinkBack(Path& path) {
  if (environment_->params.mode == 0) return;  // does not try twice
  if (path.state == PathState::kConnecting) Retire(path, "the peer's link came back", false);
  if (path.state != PathState::kDown) return;
  path.backoff_ns = 0;
  path.dial_ns = 0;
}

// Where the path's next dial goes: in even turns to the partner of its NIC, which may come back at any time, in odd
// ones to the peer's other NICs, one after another.
void SendComm::Aim(Path& path, size_t turn) {
  size_t nics = handle_.addresses.size();
  size_t away = turn % 2 == 0 || nics == 1 ? 0 : 1 + turn / 2 % (nics - 1);
  path.remote = handle_.addresses[(outgoing(path).partner + away) % nics];
  KnowWay(path);
}

bool SendComm::IsDetour(const Path& path) const {
  return path.remote.s_addr != handle_.addresses[outgoing(path).partner].s_addr;
}

bool SendComm::AnyDirect() const {
  for (const Path& path : paths_) {
    if (IsOpen(path.state) && !IsDetour(path)) return true;
  }
  return false;
}

// A detour makes way for the partner once another path is up to one, and one of several detours does now and then, to
// find out whether the partner is back.
void SendComm::EndDetours(int64_t now_ns) {
  auto up = std::count_if(paths_.begin(), paths_.end(), CarriesData);
  bool direct = AnyDirect();
  for (Path& path : paths_) {
    bool old = up > 1 && now_ns - path.up_since_ns > kDetourNs;
    if (!CarriesData(path) || !IsDetour(path) || !(direct || old)) continue;
    path.told_up = false;  // it is no loss
    Log("path_down", path, kOwnRail);
    Retire(path, kOwnRail, true);
    if (!failure_.ok()) return;
    --up;
    outgoing(path).turn = 0;
    path.dial_ns = now_ns;
  }
}

// If no path is up to the partner of its NIC, as where the two hosts have lost different rails, other NICs of the peer
// are tried, too: the network may route between rails. A peer whose host refuses has ended, wherever it is asked.
void SendComm::Dial(Path& path, int64_t now_ns) {
  bool others = environment_->params.mode != 0 && path.outlook != Outlook::kRefused && !AnyDirect();
  if (!others) outgoing(path).turn = 0;
  Aim(path, outgoing(path).turn++);
  Advance(path, PathEvent::kDial);
  ++path.epoch;
  path.deadline_ns = now_ns + DialPatienceNs(path);
  Status status =
      wire_->Dial(shared_from_this(), path.index, nic(path), &counters(path), path.remote, handle_.port, &path.stream);
  if (!IsDetour(path)) {  // that there is no way from rail to rail is no obstacle
    if (!status.ok() && path.obstacle != status.message()) Log("cannot_dial", path, status.message());
    // One that begins may end for the same reason, as where RDMA alone is broken.
    if (!status.ok()) path.obstacle = status.message();
  }
  if (!status.ok()) {
    path.outlook = Outlook::kSilent;
    Retire(path, status.message(), false);
  }
}

void SendComm::OnConnected(int index) {
  Path& path = paths_[static_cast<size_t>(index)];
  Advance(path, PathEvent::kConnected);
  path.deadline_ns = Now() + environment_->params.connect_ms * kMillisecond;
  path.outlook = Outlook::kOpen;
  path.stream->Say(EncodeHello(static_cast<uint16_t>(index), path.epoch, connection_, static_cast<int>(paths_.size()),
                               handle_.secret, environment_->port, IsOnProbation(path)));
  path.owes_word = IsOnProbation(path);
}

void SendComm::OnNotConnected(int index, const std::string& reason, bool refused) {
  Path& path = paths_[static_cast<size_t>(index)];
  if (refused) {
    path.obstacle.clear();
  } else if (path.obstacle.empty() && !IsDetour(path)) {
    path.obstacle = reason;
  }
  Comm::OnNotConnected(index, reason, refused);
}

Status SendComm::Isend(const void* data, uint64_t size, Request** request, bool marked, uint32_t tag,
                       NicShares shares) {
  uint64_t before = pending_bytes_.fetch_add(size, std::memory_order_relaxed);
  auto most = static_cast<uint64_t>(environment_->params.inline_bytes);
  bool alone = environment_->last_sender.exchange(this, std::memory_order_relaxed) == this;
  bool own = own_share_.Takes(before, size, most, alone && environment_->program_polls);
  inline_.store(own, std::memory_order_relaxed);
  auto* bytes = static_cast<char*>(const_cast<void*>(data));  // Take only reads it
  Status status =
      Submit({.data = bytes, .size = size, .marked = marked, .tag = tag, .shares = std::move(shares)}, request);
  if (!status.ok()) pending_bytes_ -= size;
  return status;
}

void SendComm::Finish(Request* request, Request::State state) {
  pending_bytes_.fetch_sub(request->size, std::memory_order_relaxed);
  Complete(request, state);
}

// What connections have on their way together is shared by those that send.
void SendComm::CountAsSender(bool counts) {
  idle_ticks_ = 0;
  if (std::exchange(counts_, counts) == counts) return;
  environment_->senders += counts ? 1 : -1;
}

void SendComm::Take(const Order& order) {
  CountAsSender(true);
  uint32_t chunk = ChunkBytes(order.size);
  auto chunks = static_cast<uint32_t>(order.size <= chunk ? 1 : (order.size + chunk - 1) / chunk);
  order.request->size = order.size;
  messages_.push_back({next_message_++, order.data, order.size, chunk, chunks, 0, order.request, order.marked,
                       order.tag, nullptr, order.shares});
}

// The program need not ask about sends that are done at once: what the peer says of them is read in passing.
void SendComm::OnTaken() {
  if (next_message_ % kReadEvery == 0) ReadHot();
  if (failure_.ok()) Pump();
}

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

void SendComm::CutMessages() {
  while (next_cut_ < next_message_) {
    Message& next = message(next_cut_);
    bool may_go = next.number < posted_ || (GoesEarly(next) && MayBeEarly(early_, next.number, posted_, next.size));
    if (!may_go) return AskForReceive(next.number);
    bool buffered = next.size <= std::min(early_.bytes, static_cast<uint64_t>(environment_->params.buffered_bytes));
    if (buffered) Buffer(next);
    for (uint64_t i = 0; i < next.chunks; ++i) {
      uint64_t offset = i * next.chunk_bytes;
      auto length = static_cast<uint32_t>(std::min<uint64_t>(next.chunk_bytes, next.size - offset));
      auto queue = static_cast<uint32_t>((home_ != nullptr ? static_cast<uint64_t>(home_->index) : next_queue_++) %
                                         queues_.size());
      queues_[queue].push_back({next.number, offset, length, queue, buffered, 0, 0, 0, 0, false, nullptr});
      ++waiting_chunks_;
      waiting_bytes_ += length;
    }
    ++next_cut_;
  }
}

// The peer may have posted it and wait with the word, as it does while small messages come.
void SendComm::AskForReceive(uint64_t number) {
  Path* path = was_early_ && asked_until_ <= number ? AnyUp() : nullptr;
  if (path != nullptr && Ping(*path, Now())) asked_until_ = number + 1;
}

// Whether it may go before its receive is posted, with some before it: where its home is a fast NIC, or in one piece.
// On slow NICs the time until the receive is posted is short beside the message's own, and rings that run ahead of each
// other only drift apart.
bool SendComm::GoesEarly(const Message& message) const {
  bool large = message.size > static_cast<uint64_t>(environment_->params.chunk_bytes);
  return message.size <= early_.bytes && (!large || home_is_fast());
}

// And with many before it.
bool SendComm::IsEarly(const Message& message) const { return GoesEarly(message) && early_.messages >= kEarlyMessages; }

// Whether word of the chunk may come late: its message is early and the path's window has room for another one, or much
// is on its way, the window has room for as much again, and more of the message is about to follow.
bool SendComm::IsPatient(const Chunk& chunk, const Path& path) {
  if (chunk.buffered) return true;
  const Message& owner = message(chunk.message);
  uint64_t next_bytes = outgoing(path).in_flight_bytes + chunk.length;
  if (inline_.load(std::memory_order_relaxed)) return IsEarly(owner) && next_bytes <= WindowBytes(path);
  return waiting_chunks_ > 0 && chunk.offset + chunk.length < owner.size && 2 * next_bytes <= WindowBytes(path);
}

// What the program sends stays here until it is acknowledged, so that its own buffer is free.
void SendComm::Buffer(Message& message) {
  message.copy = std::make_unique_for_overwrite<char[]>(std::max<uint64_t>(message.size, 1));
  if (message.size > 0) std::memcpy(message.copy.get(), message.data, message.size);
  message.data = message.copy.get();
  Finish(message.request, Request::kDone);
  message.request = nullptr;
}

bool SendComm::OwesOnlyCopies() const {
  return !messages_.empty() && std::all_of(messages_.begin(), messages_.end(),
                                           [](const Message& message) { return message.request == nullptr; });
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

void SendComm::Pump() {
  CutMessages();
  while (failure_.ok() && waiting_chunks_ > 0) {
    int64_t now_ns = Now();
    int index = home();
    if (!IsSettled(now_ns)) {
      index = NextPath();
      if (index == kNoPath) return;
      settled_ns_ = index == home() ? now_ns : 0;
    }
    Path& path = paths_[static_cast<size_t>(index)];
    if (SendOne(path, now_ns) && environment_->params.mode == 2) TryWays(path, now_ns);
  }
}

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

// What was just put on `carrier` goes over paths that have to show what they drain as well. Nobody waits for that.
void SendComm::TryWays(const Path& carrier, int64_t now_ns) {
  // A stream that writes straight from memory which is about to be the user's again is lost by it.
  if (environment_->params.zero_copy_bytes > 0) return;
  for (Path& path : paths_) {
    auto& in_flight = outgoing(carrier).in_flight;
    if (in_flight.empty() || in_flight.back().copies != nullptr || in_flight.back().buffered) return;
    if (&path == &carrier || path.state != PathState::kUp || path.test.end != 0) continue;
    if (!WantsTrial(path, now_ns)) continue;
    Progress progress;
    if (!path.stream->has_room() || path.stream->unsaid_bytes() > 0 || !path.stream->ReadProgress(&progress)) continue;
    if (!TakeTrial(path, now_ns)) continue;
    in_flight.back().copies = std::make_shared<Copies>();
    Chunk copy = in_flight.back();
    copy.trial = true;
    if (path.way->on_probation()) {
      path.test = {path.stream->end() + kHeaderBytes + copy.length, progress.resent, now_ns, false, copy.length};
    }
    PutOn(path, std::move(copy), now_ns);
    ++environment_->replayed_chunks;
  }
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

bool SendComm::SendOne(Path& path, int64_t now_ns) {
  if (!path.stream->Flush()) return false;
  std::deque<Chunk>* queue = QueueFor(path);
  Chunk chunk = std::move(queue->front());
  queue->pop_front();
  --waiting_chunks_;
  waiting_bytes_ -= chunk.length;
  PutOn(path, std::move(chunk), now_ns);
  return true;
}

void SendComm::PutOn(Path& path, Chunk chunk, int64_t now_ns) {
  Outgoing& out = outgoing(path);
  const Message& owner = message(chunk.message);
  chunk.sent_ns = now_ns;
  chunk.end = path.stream->end() + kHeaderBytes + chunk.length;
  chunk.held_ns = path.held_ns;
  if (shares_ != nullptr && !chunk.trial) split_.Take(path.index, chunk.length);
  bool takes_refuge = !chunk.trial && (home_ == nullptr ? IsConfined() : &path != home_ && !HomeIsWell(loads_, home()));
  if (takes_refuge) nic_state(path).refuge_ns.store(chunk.sent_ns);
  if (out.in_flight_bytes == 0) {
    out.sample_start_ns = chunk.sent_ns;
    out.sample_bytes = 0;
  }
  out.in_flight.push_back(chunk);
  out.in_flight_bytes += chunk.weight();
  nic_state(path).in_flight_bytes += static_cast<int64_t>(chunk.weight());
  out.in_flight.back().due_ns = now_ns + LateAfter(path);
  Frame frame;
  frame.type = FrameType::kData;
  frame.flags = owner.tag << kTagAt;
  if (chunk.trial) frame.flags |= kTrialFlag;
  frame.path = static_cast<uint16_t>(path.index);
  frame.epoch = path.epoch;
  frame.body_bytes = chunk.length;
  frame.a = owner.number;
  frame.b = owner.size;
  frame.c = chunk.offset;
  frame.d = owner.chunk_bytes;
  if (chunk.buffered) frame.flags |= kBufferedFlag;
  if (owner.marked) frame.flags |= kMarkFlag;
  was_early_ = IsEarly(owner);
  if (was_early_) frame.flags |= kEarlyFlag;
  if (IsPatient(chunk, path)) frame.flags |= kPatientFlag;
  if (!inline_.load(std::memory_order_relaxed)) frame.flags |= kBulkFlag;
  if (environment_->params.checksum != 0) {
    frame.flags |= kBodySumFlag;
    frame.body_sum = Crc32c(owner.data + chunk.offset, chunk.length);
  }
  path.stream->Send(frame, owner.data + chunk.offset);
}

Status SendComm::OnHeader(Path& path) {
  switch (path.frame.type) {
    case FrameType::kHelloAck:
    case FrameType::kAck:
    case FrameType::kPathDown:
    case FrameType::kClose:
    case FrameType::kPing:
    case FrameType::kProbe:
    case FrameType::kProbed:
    case FrameType::kVerdict:
      return {};
    default:
      return {Code::kProtocol, "wire: the receiving end sent a frame of the sending end"};
  }
}

Status SendComm::OnBody(Path& path, const std::vector<uint8_t>& control) {
  const Frame& frame = path.frame;
  switch (frame.type) {
    case FrameType::kHelloAck:
      if (path.state != PathState::kGreeting || frame.epoch != path.epoch) {
        return {Code::kProtocol, "wire: unexpected greeting"};
      }
      outgoing(path).acknowledged_chunks = 0;
      outgoing(path).tried = true;
      early_ = {std::min(frame.a, static_cast<uint64_t>(environment_->params.eager_bytes)),
                std::min(frame.b, static_cast<uint64_t>(environment_->params.eager_messages))};
      MarkUp(path, HoldsBack(path));
      outgoing(path).turn = 0;
      if (IsDetour(path)) Log("path_detour", path, "no NIC reaches its own rail there; the network routes");
      environment_->notifier->Notify();
      return {};
    case FrameType::kAck: {
      if (frame.a > posted_) {
        posted_ = frame.a;
        asked_until_ = 0;  // for a receive that it still lacks it asks again
      }
      auto entries = DecodeAckEntries(control.data(), control.size());
      for (size_t i = 0; i < entries.size() && i < paths_.size(); ++i) {
        Path& acked = paths_[i];
        if (!ConcernsStream(acked.state, acked.epoch, entries[i].epoch)) continue;
        ApplyAck(acked, entries[i].chunks);
        if (entries[i].down != 0 && IsOpen(acked.state)) Retire(acked, kPeerHint, false);
      }
      return {};
    }
    case FrameType::kPing:
      path.tested = frame.body_bytes > 0;
      TakePing(path);
      return {};
    case FrameType::kPathDown:
    case FrameType::kProbe:
    case FrameType::kProbed:
    case FrameType::kVerdict:
      return TakeShared(path, control);
    default:
      return PeerClosed(frame.a);
  }
}

// What the peer has got is done, even where the acknowledgements went under with their paths.
Status SendComm::PeerClosed(uint64_t messages) {
  peer_closed_ = true;
  for (Path& path : paths_) {
    if (path.stream != nullptr && path.stream->sending()) path.stream->KeepBody();
  }
  while (!messages_.empty() && messages_.front().number < messages) {
    if (messages_.front().request != nullptr) Finish(messages_.front().request, Request::kDone);
    messages_.pop_front();
  }
  Status gone(Code::kPeerLost, "the receiving end closed the connection");
  if (HasPending()) {
    Fail(gone);
  } else {
    End(gone);  // an orderly end; only a later send is an error
  }
  return {};
}

void SendComm::ApplyAck(Path& path, uint64_t chunks) {
  Outgoing& out = outgoing(path);
  if (chunks <= out.acknowledged_chunks) return;
  uint64_t count = chunks - out.acknowledged_chunks;
  uint64_t complete = out.in_flight.size() - (path.stream->sending() ? 1 : 0);
  if (count > complete) {
    Retire(path, "wire: acknowledgement of chunks that were not sent", true);
    return;
  }
  int64_t now_ns = Now();
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Chunk chunk = out.in_flight.front();
    out.in_flight.pop_front();
    bytes += chunk.weight();
    counters(path).acknowledged_bytes += chunk.length;
    path.way->NotePassed(chunk.sent_ns);
    int64_t round_trip_ns = now_ns - chunk.sent_ns;
    if (chunk.trial) NoteTrial(nic_state(path), static_cast<double>(chunk.length) / static_cast<double>(round_trip_ns));
    if (!chunk.buffered && (out.min_round_trip_ns == 0 || round_trip_ns < out.min_round_trip_ns)) {
      out.min_round_trip_ns = round_trip_ns;
    }
    Acknowledge(chunk);
  }
  out.acknowledged_chunks = chunks;
  if (bytes == 0) return;
  out.in_flight_bytes -= bytes;
  auto acknowledged = static_cast<int64_t>(bytes);
  if (nic_state(path).in_flight_bytes.fetch_sub(acknowledged) == acknowledged) ++nic_state(path).idle_times;
  nic_state(path).drained_bytes += bytes;
  MeasureRate(out, bytes, now_ns);
}

// What it drains, but no more than the best of the NICs: after a pause a shaper lets a chunk go at once, and a NIC that
// is taken for many times as fast as it is would be late with whatever it gets.
void SendComm::NoteTrial(NicState& nic, double bytes_per_ns) const {
  double known = nic.drain_bytes_per_ns.load(std::memory_order_relaxed);
  double shown = std::min(bytes_per_ns, BestNicRate());
  if (known > 0 && shown > known) nic.drain_bytes_per_ns.store(shown);
}

void SendComm::MeasureRate(Outgoing& out, uint64_t bytes, int64_t now_ns) {
  out.sample_bytes += bytes;
  int64_t elapsed_ns = now_ns - out.sample_start_ns;
  if (elapsed_ns < kRateSampleNs) return;
  double rate = static_cast<double>(out.sample_bytes) / static_cast<double>(elapsed_ns);
  out.bytes_per_ns = out.bytes_per_ns == 0 ? rate : 0.75 * out.bytes_per_ns + 0.25 * rate;
  out.sample_start_ns = now_ns;
  out.sample_bytes = 0;
}

// When a chunk that is put on the path now would be late.
int64_t SendComm::LateAfter(const Path& path) const {
  int64_t rtt_ns = path.shortest_rtt_ns;
  for (const Path& other : paths_) {
    if (other.state == PathState::kUp && other.shortest_rtt_ns > 0) rtt_ns = std::min(rtt_ns, other.shortest_rtt_ns);
  }
  const NicState& nic = nic_state(path);
  double drain = nic.drain_bytes_per_ns.load(std::memory_order_relaxed);
  double peak = nic.peak_bytes_per_ns.load(std::memory_order_relaxed);
  return LateAfterNs(rtt_ns, static_cast<double>(nic.in_flight_bytes.load(std::memory_order_relaxed)), drain, peak);
}

// By how much the chunk is later than it should be; 0: it is not late, or nobody knows.
int64_t SendComm::OverdueNs(Path& path, const Chunk& chunk, int64_t now_ns) {
  int64_t passed_ns = path.way->passed_ns();
  int64_t excused_ns = HeldNs(path) - chunk.held_ns - SoonerNs(chunk.sent_ns, passed_ns, path.usual_ns);
  int64_t asked_ns = chunk.due_ns + excused_ns - kAskAheadNs;
  if (now_ns <= asked_ns) return 0;
  if (!PeerSpoke(path, asked_ns, now_ns)) {
    bool may_answer = now_ns - asked_word_ns_ < kAskAheadNs;
    if (may_answer) LookAt(std::max(asked_ns + kAskAheadNs, now_ns + kMillisecond), now_ns);
    return 0;
  }
  // What is usual may be the memory of streams that had nothing to do since. If this way is silent, the peer is asked
  // over the others, and how long it takes to answer counts, twice for chance.
  int64_t elsewhere_ns = LookElsewhere(path).usual_ns;
  if (elsewhere_ns > kAskAheadNs && IsSilent(chunk.sent_ns, passed_ns)) {
    if (answered_ns_ < asked_ns) AskPeer(path, now_ns);
    bool knows = answered_ns_ >= asked_ns && asked_about_ == path.index;
    if (knows) elsewhere_ns = std::min(elsewhere_ns, 2 * answer_took_ns_);
  }
  int64_t due_ns = std::max(chunk.due_ns, chunk.sent_ns + LateAfterNs(elsewhere_ns)) + excused_ns;
  LookAt(due_ns, now_ns);
  return std::max<int64_t>(0, now_ns - due_ns);
}

// Has the next tick come then, if that is to come.
void SendComm::LookAt(int64_t time_ns, int64_t now_ns) {
  if (time_ns > now_ns) look_ns_ = std::min(look_ns_, time_ns);
}

// What the peer's kernel should have had by now, and what is behind it in the same stream, goes over another path as
// well. A peer whose program leaves no room for more, or does not look, is not late.
void SendComm::OnProgress(Path& path, const Progress& progress, int64_t now_ns) {
  bool carries = outgoing(path).in_flight_bytes > 0 && progress.bytes_acked > path.acked_bytes;
  if (carries) nic_state(path).usual_ns.store(path.usual_ns, std::memory_order_relaxed);
  if (environment_->params.mode != 2) return;
  bool alone = false;
  int64_t overdue_ns = 0;
  path.late = false;
  if (WayWorks(path, now_ns)) return;
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
  SendAgain(path, progress.bytes_acked);
}

// Whether no other path has, or had, the chunk as well.
bool SendComm::GoesAlone(const Chunk& chunk) {
  return chunk.copies == nullptr || (chunk.copies->alive == 1 && !chunk.copies->acknowledged);
}

void SendComm::SendAgain(Path& path, uint64_t acked_bytes) {
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

void SendComm::Acknowledge(const Chunk& chunk) {
  if (chunk.copies != nullptr) {
    --chunk.copies->alive;
    if (chunk.copies->acknowledged) return;
    DropCopies(chunk);
  }
  Message& owner = message(chunk.message);
  if (++owner.acknowledged < owner.chunks) return;
  if (owner.request != nullptr) Finish(owner.request, Request::kDone);
  owner.request = nullptr;
  while (!messages_.empty() && messages_.front().acknowledged == messages_.front().chunks) messages_.pop_front();
}

void SendComm::AfterRead(Path&) { Pump(); }

void SendComm::OnWritable() {
  for (Path& path : paths_) {
    if (path.stream != nullptr) path.stream->Flush();
  }
  Pump();
}

void SendComm::OnLost(Path& path) {
  Outgoing& out = outgoing(path);
  out.tried = true;
  Aim(path, 0);  // as others know the path
  environment_->notifier->Notify();
  if (environment_->params.mode == 0) {
    Fail({Code::kPeerLost, "NIC " + nic(path).name + " cannot connect to " + r2ccl::ToString(path.remote) +
                               "; R2CC_MODE=0 needs every NIC"});
    return;
  }
  size_t moved = 0;
  while (!out.in_flight.empty()) {
    Chunk chunk = std::move(out.in_flight.back());
    out.in_flight.pop_back();
    if (!IsTheLast(chunk)) continue;
    chunk.trial = false;
    ++moved;
    queues_[chunk.queue].push_front(chunk);
    ++waiting_chunks_;
    waiting_bytes_ += chunk.length;
  }
  nic_state(path).in_flight_bytes -= static_cast<int64_t>(out.in_flight_bytes);
  out.in_flight_bytes = 0;
  out.bytes_per_ns = 0;
  out.min_round_trip_ns = 0;
  ReleaseHeld(Now());  // this may have been the last one that carries data
  if (moved == 0) return;
  environment_->replayed_chunks += moved;
  Log("migrated", path, std::to_string(moved) + " chunks go to the other NICs");
  Pump();
}

bool SendComm::CarriesData(const Path& path) { return path.state == PathState::kUp; }

bool SendComm::HoldsBack(Path& path) {
  return path.flaps.Holds(environment_->params, Now()) && std::any_of(paths_.begin(), paths_.end(), CarriesData);
}

// The last path is never held: of those that are, the one with the least behind it carries data all the same.
void SendComm::ReleaseHeld(int64_t now_ns) {
  const Params& params = environment_->params;
  Path* best = nullptr;
  for (Path& path : paths_) {
    if (path.state != PathState::kHeld) continue;
    if (!path.flaps.Holds(params, now_ns)) {
      Release(path, "stayed up long enough");
    } else if (best == nullptr || path.flaps.Penalty(params, now_ns) < best->flaps.Penalty(params, now_ns)) {
      best = &path;
    }
  }
  if (best != nullptr && std::none_of(paths_.begin(), paths_.end(), CarriesData)) {
    Release(*best, "no other NIC is left");
  }
}

void SendComm::Release(Path& path, const char* why) {
  Advance(path, PathEvent::kReleased);
  path.told_up = path.ever_told = true;
  Log("path_returned", path, "epoch " + std::to_string(path.epoch) + ", " + why);
}

void SendComm::OnTick(int64_t now_ns) {
  ReleaseHeld(now_ns);
  EndDetours(now_ns);
  if (!failure_.ok()) return;
  if (!messages_.empty()) {
    idle_ticks_ = 0;
  } else if (counts_ && ++idle_ticks_ == kIdleTicks) {
    CountAsSender(false);
  }
  for (Path& path : paths_) {
    bool opening = path.state == PathState::kConnecting || path.state == PathState::kGreeting;
    if (opening && now_ns > path.deadline_ns) {
      std::string obstacle = path.stream->obstacle();
      if (!obstacle.empty()) {
        OnNotConnected(path.index, obstacle, false);
      } else {
        path.outlook = Outlook::kSilent;
        Retire(path, "no answer to the connection request", false);
      }
    }
    if (!failure_.ok()) return;
    if (path.state == PathState::kDown && !path.link_down && now_ns >= path.dial_ns) Dial(path, now_ns);
  }
  if (AnyDirect()) TellAbsent(now_ns, started_ns_);
  OnWritable();
}

void SendComm::FailRequests() {
  CountAsSender(false);
  for (Message& unfinished : messages_) {
    if (unfinished.request != nullptr) Finish(unfinished.request, Request::kFailed);
  }
  messages_.clear();
  for (auto& queue : queues_) queue.clear();
  waiting_chunks_ = waiting_bytes_ = 0;
  for (Path& path : paths_) {
    Outgoing& out = outgoing(path);
    nic_state(path).in_flight_bytes -= static_cast<int64_t>(out.in_flight_bytes);
    out.in_flight_bytes = 0;
    out.in_flight.clear();
  }
}

}  // namespace r2ccl
