// How the sending end opens its paths: where each is dialled, detours by other rails, and paths that are held back.
#include <algorithm>

#include "failover/protocol.h"
#include "failover/send_comm.h"

namespace r2ccl {
namespace {

constexpr int64_t kRedialNs = 150 * kMillisecond;
constexpr int64_t kDetourNs = 10'000 * kMillisecond;
constexpr int64_t kReadyGraceNs = 100 * kMillisecond;
constexpr char kOwnRail[] = "the NIC's own rail is tried again";

}  // namespace

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

}  // namespace r2ccl
