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

// Puts a train behind those that are on their way, as part of the last one where that goes on in the same step.
void Follow(const Train& train, std::list<Train>* coming) {
  if (train.count == 1 && !coming->empty() && coming->back().bytes == train.bytes) {
    Train& last = coming->back();
    if (last.count == 1) last.pause_ns = train.at_ns - last.at_ns;
    if (last.pause_ns > 0 && train.at_ns == last.at_ns + last.count * last.pause_ns) {
      ++last.count;
      return;
    }
  }
  coming->push_back(train);
}

// What does not fit is dropped, as by Linux's bfifo and tbf: a queue that large packets fill still takes small ones.
bool Fits(int64_t waits_ns, double rate, double bytes, double most = kQueueBytes) {
  return static_cast<double>(waits_ns) * rate + bytes <= most;
}

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
    ports_[static_cast<size_t>(host)].resize(static_cast<size_t>(rails));
    for (int rail = 0; rail < rails; ++rail) {
      Raw(host, rail).nic = {"eth" + std::to_string(rail), host * rails + rail + 1, AddressOf(host, rail), 16};
    }
  }
}

Task& World::Add(int64_t when_ns, bool is_news) {
  if (free_event_ == nullptr) MakeEvents();
  Event* event = std::exchange(free_event_, free_event_->next);
  event->when_ns = std::max(when_ns, now_ns_);
  event->number = next_event_++ * 2 + (is_news ? 1 : 0);
  news_ += is_news ? 1 : 0;
  queue_.Push(event);
  return event->what;
}

void World::MakeEvents() {
  constexpr size_t kAtOnce = 64;  // a group of four hosts has about 300 of them
  Event* events = all_events_.emplace_back(std::make_unique<Event[]>(kAtOnce)).get();
  for (size_t i = 0; i < kAtOnce; ++i) events[i].next = std::exchange(free_event_, &events[i]);
}

bool World::Step(int64_t until_ns) {
  if (queue_.empty()) return false;
  Event* event = queue_.Top();
  if (event->when_ns > until_ns) return false;
  queue_.Pop();
  now_ns_ = event->when_ns;
  news_ -= event->number % 2;
  ++events_;
  if (moments_ != nullptr && (moments_->empty() || moments_->back() != now_ns_)) moments_->push_back(now_ns_);
  event->what();
  event->what.Drop();
  event->next = std::exchange(free_event_, event);
  return true;
}

void World::RunUntil(int64_t when_ns) {
  while (Step(when_ns)) {
  }
  now_ns_ = std::max(now_ns_, when_ns);
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
  return sickness.black || *burst || (packet.is_rdma() && sickness.rdma_black) ||
         (sickness.larger_than > 0 && packet.size() > sickness.larger_than) || Chance(sickness.loss);
}

bool World::Send(int host, int rail, PacketPointer packet) {
  Port& from = port(host, rail);
  if (!from.link || is_off_[static_cast<size_t>(host)]) return true;
  double rate = from.bytes_per_ns * from.out.rate;
  from.out_free_ns = std::max(from.out_free_ns, now_ns_ - static_cast<int64_t>(from.bucket_bytes / rate));
  int64_t waits_ns = std::max<int64_t>(0, from.out_free_ns - now_ns_);
  double most = packet->bytes.empty() ? kQueueBytes : kOwnQueueBytes;
  if (!Fits(waits_ns, rate, static_cast<double>(packet->size()), most)) return false;
  from.out_free_ns += static_cast<int64_t>(static_cast<double>(packet->size()) / rate);
  if (IsLost(from.out, &from.out_burst, *packet)) return true;
  bool twice = Chance(from.out.duplicate);
  if (!packet->bytes.empty() && Chance(from.out.corrupt)) {
    packet->bytes[Draw(packet->bytes.size())] ^= static_cast<char>(1 << Draw(8));
  }
  PacketPointer copy = twice ? NewPacket() : nullptr;
  if (twice) *copy = *packet;
  for (PacketPointer* one : {&packet, &copy}) {
    if (*one == nullptr) break;
    int64_t extra_ns = from.out.delay_ns + ((*one)->is_rdma() ? from.out.rdma_delay_ns : 0);
    if (from.out.jitter_ns > 0) extra_ns += static_cast<int64_t>(Draw(static_cast<uint64_t>(from.out.jitter_ns)));
    Carry(host, rail, std::move(*one), extra_ns);
  }
  return true;
}

void World::Compete(int host, int rail, Competitor competitor) {
  competitor.next_ns = now_ns_;
  port(host, rail).competitors.push_back(competitor);
  port(competitor.to, rail).competing_host = host;
}

// Those that are due. One that meets no queue says how the next ones fare until somebody else sends.
void World::LetCompetitorsGo(Port& from, int rail) {
  double rate = from.bytes_per_ns * from.out.rate;
  while (true) {
    auto one = std::min_element(from.competitors.begin(), from.competitors.end(),
                                [](const auto& a, const auto& b) { return a.next_ns < b.next_ns; });
    if (one->next_ns > now_ns_) return;
    if (one->next_ns >= one->until_ns) {
      from.competitors.erase(one);
      if (from.competitors.empty()) return;
      continue;
    }
    auto takes_ns = static_cast<int64_t>(one->bytes / rate);
    int64_t waits_ns = std::max<int64_t>(0, from.out_free_ns - one->next_ns);
    int64_t count = 1;
    if (waits_ns == 0 && takes_ns <= one->pause_ns && from.competitors.size() == 1) {
      count += (std::min(now_ns_, one->until_ns - 1) - one->next_ns) / one->pause_ns;
    }
    if (Fits(waits_ns, rate, one->bytes)) {
      int64_t left_ns = one->next_ns + waits_ns + takes_ns;
      from.out_free_ns = left_ns + (count - 1) * one->pause_ns;
      Follow({left_ns + kLatencyNs, one->pause_ns, count, one->bytes}, &Raw(one->to, rail).coming);
    }
    one->next_ns += count * one->pause_ns;
  }
}

void World::LetCompetitorsCome(Port& into, int rail) {
  Port& source = Raw(into.competing_host, rail);
  if (!source.competitors.empty()) LetCompetitorsGo(source, rail);
  double rate = into.bytes_per_ns * into.in.rate;
  while (!into.coming.empty() && into.coming.front().at_ns <= now_ns_) {
    Train& train = into.coming.front();
    auto takes_ns = static_cast<int64_t>(train.bytes / rate);
    int64_t waits_ns = std::max<int64_t>(0, into.in_free_ns - train.at_ns);
    int64_t count = 1;
    if (waits_ns == 0 && takes_ns <= train.pause_ns) {
      count = std::min(train.count, 1 + (now_ns_ - train.at_ns) / train.pause_ns);
    }
    if (Fits(waits_ns, rate, train.bytes)) {
      into.in_free_ns = train.at_ns + waits_ns + takes_ns + (count - 1) * train.pause_ns;
    }
    train.at_ns += count * train.pause_ns;
    train.count -= count;
    if (train.count == 0) into.coming.pop_front();
  }
  if (into.coming.empty() && source.competitors.empty()) into.competing_host = -1;
}

void World::Carry(int host, int rail, PacketPointer packet, int64_t extra_ns) {
  int to = HostOf(packet->to);
  int there = RailOf(packet->to);
  if ((there != rail && !routes) || to < 0 || to >= hosts() || there >= rails()) return;
  const Sickness& in = port(to, there).in;
  int64_t there_ns = std::max(now_ns_, port(host, rail).out_free_ns) + kLatencyNs + extra_ns + in.delay_ns;
  if (in.jitter_ns > 0) there_ns += static_cast<int64_t>(Draw(static_cast<uint64_t>(in.jitter_ns)));
  At(there_ns, [this, to, there, came = std::move(packet)]() mutable {
    int64_t waits_ns = Queue(to, there, static_cast<double>(came->size()));
    if (waits_ns == 0) Arrive(to, there, *came);
    if (waits_ns > 0) After(waits_ns, [this, to, there, one = std::move(came)] { Arrive(to, there, *one); });
  });
}

// For how long something that comes to a NIC now waits for what came before it; -1 where it is dropped. It is taken in
// while it comes.
int64_t World::Queue(int host, int rail, double bytes) {
  Port& into = port(host, rail);
  double rate = into.bytes_per_ns * into.in.rate;
  into.in_free_ns = std::max(into.in_free_ns, now_ns_ - static_cast<int64_t>(into.bucket_bytes / rate));
  int64_t waits_ns = std::max<int64_t>(0, into.in_free_ns - now_ns_);
  ++into.came;
  if (!Fits(waits_ns, rate, bytes)) {
    ++into.dropped;
    return -1;
  }
  into.in_free_ns += static_cast<int64_t>(bytes / rate);
  return waits_ns;
}

double World::MostDropped() const {
  double most = 0;
  for (const auto& host : ports_) {
    for (const Port& port : host) {
      if (port.came > 0) most = std::max(most, static_cast<double>(port.dropped) / static_cast<double>(port.came));
    }
  }
  return most;
}

void World::Arrive(int host, int rail, const Packet& packet) {
  Port& into = port(host, rail);
  Receiver* receiver = receivers_[static_cast<size_t>(host)];
  if (!into.link || receiver == nullptr || IsLost(into.in, &into.in_burst, packet)) return;
  receiver->Take(packet, rail);
}

}  // namespace r2ccl::simulated
