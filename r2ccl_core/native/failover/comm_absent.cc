// What is said of a path that has not come up since its connection began: nothing was lost, so no loss tells of it.
#include <algorithm>

#include "base/clock.h"
#include "failover/comm.h"

namespace r2ccl {

std::string Comm::WhyAbsent(const Path& path) const {
  if (!path.obstacle.empty()) return path.obstacle;
  if (!nic_state(path).link_up.load()) return "the link of this NIC is down";
  switch (path.outlook) {
    case Outlook::kRefused:
      return "the peer's host says that nobody listens there";
    case Outlook::kSilent:
      return "no answer to connection requests";
    case Outlook::kOpen:
      return "connected, and no greeting came back";
  }
  return "?";
}

// A request may be lost once: the second one has its time, too.
void Comm::TellAbsent(int64_t now_ns, int64_t began_ns) {
  const Params& params = environment_->params;
  int64_t patience_ns = 2 * params.connect_ms * kMillisecond;
  if (params.mode == 0 || began_ns == 0 || now_ns - began_ns < patience_ns) return;
  for (Path& path : paths_) {
    if (path.was_up || path.is_absent) continue;
    Path* other = AnyUp();
    if (other == nullptr) return;
    // The other end cannot know which NIC of its own it lacks.
    other->stream->Say(EncodeNeverUp(static_cast<uint16_t>(path.index), path.remote, nic(path).address));
    NoteAbsent(path, WhyAbsent(path), true);
  }
}

void Comm::NoteAbsent(Path& path, const std::string& why, bool asks) {
  path.is_absent = true;
  // Of no epoch: the receiving end has seen none.
  Loss loss{weak_from_this(), static_cast<uint16_t>(path.index), 0, path.nic, {path.remote, PeerPort()}};
  loss.own_link_down = !nic_state(path).link_up.load();
  environment_->locator->TakeAbsence(std::move(loss), why, asks);
}

// From the sending end, which knows what belongs together.
void Comm::TakeAbsent(Path& path, const Frame& frame) {
  if (path.was_up || path.is_absent) return;
  const auto& nics = environment_->nics;
  auto own = std::find_if(nics.begin(), nics.end(), [&frame](const Nic& n) { return n.address.s_addr == frame.b; });
  if (own == nics.end()) return;
  path.nic = static_cast<int>(own - nics.begin());
  path.remote.s_addr = static_cast<in_addr_t>(frame.c);
  path.outlook = Outlook::kSilent;  // so it is no reason to wait for a peer that ended
  bool link_down = !nic_state(path).link_up.load();
  NoteAbsent(path, "says the peer, which gets no answer there", link_down);
  if (link_down) TellPeer(path, 0, Cause::kOwnLink);  // which settles it
}

}  // namespace r2ccl
