// The queue of events, and packets on their way.
#include "wire/simulated/world.h"

#include <algorithm>
#include <utility>

namespace r2ccl::simulated {
namespace {

constexpr int64_t kLatencyNs = 50'000;
constexpr double kQueueBytes = 512 * 1024;            // a NIC's, or the switch port's before it
constexpr double kOwnQueueBytes = 0.9 * kQueueBytes;  // that streams fill, as a kernel leaves room for short packets
constexpr double kBurstEnds = 0.1;

}  // namespace

in_addr AddressOf(int host, int rail) {
  return in_addr{htonl(0x0a000000u | static_cast<uint32_t>(rail) << 16 | static_cast<uint32_t>(host + 1))};
}
int HostOf(in_addr_t address) { return static_cast<int>(ntohl(address) & 0xffff) - 1; }
int RailOf(in_addr_t address) { return static_cast<int>(ntohl(address) >> 16 & 0xff); }

World::World(uint64_t seed, int hosts, int rails)
    : random_(seed),
      ports_(static_cast<size_t>(hosts)),
      receivers_(static_cast<size_t>(hosts), nullptr),
      is_off_(static_cast<size_t>(hosts)) {
  for (int host = 0; host < hosts; ++host) {
    for (int rail = 0; rail < rails; ++rail) {
      Port port;
      port.nic = {"eth" + std::to_string(rail), host * rails + rail + 1, AddressOf(host, rail), 16};
      ports_[static_cast<size_t>(host)].push_back(port);
    }
  }
}

void World::At(int64_t when_ns, std::function<void()> what) {
  if (free_whats_.empty()) {
    free_whats_.push_back(whats_.size());
    whats_.emplace_back();
  }
  size_t place = free_whats_.back();
  free_whats_.pop_back();
  whats_[place] = std::move(what);
  queue_.push({std::max(when_ns, now_ns_), next_event_++, place});
}

bool World::Step(int64_t until_ns) {
  if (queue_.empty() || queue_.top().when_ns > until_ns) return false;
  size_t place = queue_.top().what;
  now_ns_ = queue_.top().when_ns;
  queue_.pop();
  std::function<void()> what = std::exchange(whats_[place], nullptr);
  free_whats_.push_back(place);
  ++events_;
  if (moments_ != nullptr && (moments_->empty() || moments_->back() != now_ns_)) moments_->push_back(now_ns_);
  what();
  return true;
}

void World::RunUntil(int64_t when_ns) {
  while (Step(when_ns)) {
  }
  now_ns_ = std::max(now_ns_, when_ns);
}

bool World::RunUntil(int64_t when_ns, const std::function<bool()>& done) {
  while (Step(when_ns)) {
    if (done()) return true;
  }
  now_ns_ = std::max(now_ns_, when_ns);
  return done();
}

void World::SetLink(int host, int rail, bool running) {
  Port& at = port(host, rail);
  if (at.link == running) return;
  at.link = running;
  After(kMillisecond / 2, [this, host, rail, running] {
    Receiver* receiver = receivers_[static_cast<size_t>(host)];
    if (receiver != nullptr && port(host, rail).link == running) receiver->OnLink(rail, running);
  });
}

bool World::IsLost(const Sickness& sickness, bool* burst, const Packet& packet) {
  if (sickness.burst > 0) {
    *burst = *burst ? !Chance(kBurstEnds) : Chance(sickness.burst);
  } else {
    *burst = false;
  }
  bool rdma = packet.kind == Packet::Kind::kRdma || packet.kind == Packet::Kind::kRdmaAnswer;
  return sickness.black || *burst || (rdma && sickness.rdma_black) ||
         (sickness.larger_than > 0 && packet.size() > sickness.larger_than) || Chance(sickness.loss);
}

bool World::Send(int host, int rail, Packet packet) {
  Port& from = port(host, rail);
  if (!from.link || is_off_[static_cast<size_t>(host)]) return true;
  double rate = from.bytes_per_ns * from.out.rate;
  int64_t waits_ns = std::max<int64_t>(0, from.out_free_ns - now_ns_);
  double most = packet.bytes.empty() ? kQueueBytes : kOwnQueueBytes;
  if (static_cast<double>(waits_ns) * rate > most) return false;
  from.out_free_ns = now_ns_ + waits_ns + static_cast<int64_t>(static_cast<double>(packet.size()) / rate);
  ++from.sent_packets;
  if (IsLost(from.out, &from.out_burst, packet)) return true;
  bool twice = Chance(from.out.duplicate);
  if (!packet.bytes.empty() && Chance(from.out.corrupt)) {
    packet.bytes[Draw(packet.bytes.size())] ^= static_cast<char>(1 << Draw(8));
  }
  auto carried = std::make_shared<const Packet>(std::move(packet));
  for (int i = 0; i < (twice ? 2 : 1); ++i) {
    int64_t extra_ns = from.out.delay_ns;
    if (carried->kind == Packet::Kind::kRdma || carried->kind == Packet::Kind::kRdmaAnswer) {
      extra_ns += from.out.rdma_delay_ns;
    }
    if (from.out.jitter_ns > 0) extra_ns += static_cast<int64_t>(Draw(static_cast<uint64_t>(from.out.jitter_ns)));
    Carry(host, rail, carried, extra_ns);
  }
  return true;
}

void World::Load(int host, int rail, int to, double bytes) {
  Port& from = port(host, rail);
  double rate = from.bytes_per_ns * from.out.rate;
  int64_t waits_ns = std::max<int64_t>(0, from.out_free_ns - now_ns_);
  if (static_cast<double>(waits_ns) * rate > kQueueBytes) return;
  from.out_free_ns = now_ns_ + waits_ns + static_cast<int64_t>(bytes / rate);
  At(from.out_free_ns + kLatencyNs, [this, to, rail, bytes] { Queue(to, rail, bytes); });
}

void World::Carry(int host, int rail, const std::shared_ptr<const Packet>& packet, int64_t extra_ns) {
  int to = HostOf(packet->to);
  if (RailOf(packet->to) != rail || to < 0 || to >= hosts()) return;  // no way from rail to rail
  const Sickness& in = port(to, rail).in;
  int64_t there_ns = port(host, rail).out_free_ns + kLatencyNs + extra_ns + in.delay_ns;
  if (in.jitter_ns > 0) there_ns += static_cast<int64_t>(Draw(static_cast<uint64_t>(in.jitter_ns)));
  At(there_ns, [this, to, rail, packet] {
    int64_t waits_ns = Queue(to, rail, static_cast<double>(packet->size()));
    if (waits_ns == 0) Arrive(to, rail, *packet);
    if (waits_ns > 0) After(waits_ns, [this, to, rail, packet] { Arrive(to, rail, *packet); });
  });
}

// For how long something that comes to a NIC now waits for what came before it; -1 where it is dropped. It is taken in
// while it comes.
int64_t World::Queue(int host, int rail, double bytes) {
  Port& into = port(host, rail);
  double rate = into.bytes_per_ns * into.in.rate;
  int64_t waits_ns = std::max<int64_t>(0, into.in_free_ns - now_ns_);
  if (static_cast<double>(waits_ns) * rate > kQueueBytes) return -1;
  into.in_free_ns = now_ns_ + waits_ns + static_cast<int64_t>(bytes / rate);
  return waits_ns;
}

void World::Arrive(int host, int rail, const Packet& packet) {
  Port& into = port(host, rail);
  Receiver* receiver = receivers_[static_cast<size_t>(host)];
  if (!into.link || receiver == nullptr || IsLost(into.in, &into.in_burst, packet)) return;
  receiver->Take(packet, rail);
}

}  // namespace r2ccl::simulated
