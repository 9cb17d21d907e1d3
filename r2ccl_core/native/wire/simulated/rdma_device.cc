// Packets and acknowledgements of a reliable connection, its limit of retries, and what a device that is not well does
// to completions.
#include "wire/simulated/rdma_device.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

namespace r2ccl::simulated {
namespace {

constexpr int64_t kTimeoutNs = 34 * kMillisecond;  // 4.096 us * 2^13
constexpr int kRetries = 6;
constexpr int64_t kNicIsFullNs = kMillisecond;
constexpr uint64_t kFirstWindow = 32;  // packets
constexpr uint64_t kMostWindow = 128;
constexpr uint64_t kAnswerEvery = 8;  // packets
constexpr int64_t kUnfencedNs = 1000 * kMillisecond;
constexpr size_t kToldBefore = 256;  // completions, of which one may be told again

// The place in a sequence that a number of 24 bits stands for, next to `near`; negative: before it began.
int64_t PlaceOf(uint64_t number, uint64_t first, uint64_t near) {
  uint64_t ahead = (number - first - near) & kMostPsn;
  auto offset = static_cast<int64_t>(ahead);
  if (ahead > kMostPsn / 2) offset -= int64_t{kMostPsn} + 1;
  return static_cast<int64_t>(near) + offset;
}

// A message is no longer than devices take, and so is its place: rings with gaps between their messages would be spread
// over memory that caches do not hold.
RcShape WithinLimits(RcShape shape, uint32_t message_bytes) {
  shape.send_bytes = std::min(shape.send_bytes, message_bytes);
  shape.receive_bytes = std::min(shape.receive_bytes, message_bytes);
  return shape;
}

}  // namespace

class QueuePair : public std::enable_shared_from_this<QueuePair> {
 public:
  QueuePair(RdmaDevice* device, int rail, uint32_t number, const RcShape& shape, uint32_t psn,
            std::weak_ptr<RcWatcher> watcher)
      : device_(device),
        world_(device->world_),
        rail_(rail),
        number_(number),
        shape_(WithinLimits(shape, device->world_->message_bytes)),
        psn_(psn),
        watcher_(std::move(watcher)),
        // Without a value: most of a large ring is never used.
        memory_(std::make_unique_for_overwrite<char[]>(size_t{shape_.send_slots} * shape_.send_bytes +
                                                       size_t{shape_.receive_slots} * shape_.receive_bytes)) {}

  uint32_t number() const { return number_; }
  uint32_t psn() const { return psn_; }
  uint64_t birth() const { return birth_; }
  int rail() const { return rail_; }
  const RcShape& shape() const { return shape_; }
  const std::weak_ptr<RcWatcher>& watcher() const { return watcher_; }
  bool is_given_back() const { return given_back_; }
  bool readable() const { return readable_; }

  char* send_slot(uint32_t slot) { return memory_.get() + size_t{slot} * shape_.send_bytes; }
  char* receive_slot(uint32_t slot) {
    return memory_.get() + size_t{shape_.send_slots} * shape_.send_bytes + size_t{slot} * shape_.receive_bytes;
  }

  void Connect(const RcAddress& peer) {
    state_ = State::kConnected;
    peer_number_ = peer.number;
    peer_psn_ = peer.psn;
    std::memcpy(&peer_address_, peer.gid.data(), sizeof peer_address_);
    std::memcpy(&peer_birth_, peer.gid.data() + sizeof peer_address_, sizeof peer_birth_);
  }
  // The state ERR: whatever comes is dropped, and nothing is sent.
  void Fence() { state_ = State::kError; }
  // The process has let go of it; `fenced` says whether nothing lands any more.
  bool Release() {
    given_back_ = true;
    return state_ != State::kConnected;
  }

  Status PostReceive(uint64_t id, uint32_t slot) {
    for (const auto& [other_id, other_slot] : posted_) {
      if (other_slot == slot) world_->Break("memory that the device may still write to was taken for a message");
    }
    posted_.push_back({id, slot});
    return {};
  }
  Status PostSend(uint64_t id, uint32_t slot, uint32_t bytes) {
    if (state_ != State::kConnected) return {Code::kSystem, "ibv_post_send: the queue pair is not connected"};
    for (const Sending& other : sendings_) {
      if (other.slot == slot) world_->Break("a message is sent from memory from which one is still being sent");
    }
    uint64_t packets = std::max<uint64_t>(1, (bytes + world_->segment_bytes - 1) / world_->segment_bytes);
    if (sendings_.empty()) ArmTimer();
    sendings_.push_back({id, slot, send_slot(slot), bytes, end_, end_ + packets});
    end_ += packets;
    Pump();
    return {};
  }
  Status PostWrite(uint64_t id, uint64_t from, uint32_t bytes, uint32_t local_key, uint64_t address,
                   uint32_t remote_key) {
    if (state_ != State::kConnected) return {Code::kSystem, "ibv_post_send: the queue pair is not connected"};
    uint64_t packets = std::max<uint64_t>(1, (bytes + world_->segment_bytes - 1) / world_->segment_bytes);
    if (sendings_.empty()) ArmTimer();
    sendings_.push_back({id, kNoSlot, reinterpret_cast<const char*>(from), bytes, end_, end_ + packets, local_key,
                         address, remote_key});
    end_ += packets;
    Pump();
    return {};
  }
  bool Find(const char* data, size_t bytes, RcKeys* keys) {
    auto range = device_->memory_.Find(data, bytes);
    if (!range) return false;
    keys->local = keys->remote = *range->known;
    keys->address = reinterpret_cast<uint64_t>(data);
    return true;
  }
  void Poll(std::vector<RcDone>* done) {
    done->insert(done->end(), done_.begin(), done_.end());
    done_.clear();
  }
  void Arm() {
    armed_ = true;
    if (!late_) return;
    late_ = false;  // it was done between the last look and now
    Signal();
  }
  void TakeEvents() { readable_ = false; }

  void Take(const Packet& packet) {
    if (state_ != State::kConnected || packet.from != peer_address_) return;
    packet.kind == Packet::Kind::kRdma ? TakeData(packet) : TakeAnswer(packet);
  }

  // What was posted is given back with errors, the oldest first.
  void Fail(const std::string& reason) {
    if (state_ == State::kError) return;
    state_ = State::kError;
    std::string why = reason;
    for (const Sending& one : sendings_) Tell({one.id, std::exchange(why, "flushed"), 0});
    for (const auto& [id, slot] : posted_) Tell({id, std::exchange(why, "flushed"), 0});
    sendings_.clear();
    posted_.clear();
  }

 private:
  enum class State { kNew, kConnected, kError };
  struct Sending {
    uint64_t id;
    uint32_t slot;
    const char* data;
    uint32_t bytes;
    uint64_t first;  // its packets
    uint64_t end;
    // Of a write.
    uint32_t local_key = 0;
    uint64_t address = 0;
    uint32_t remote_key = 0;
  };
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  // Sending ---------------------------------------------------------------------------------------------------

  void Pump() {
    while (state_ == State::kConnected && next_ < end_ && next_ - unacked_ < window_) {
      auto one = std::find_if(sendings_.begin(), sendings_.end(), [this](const Sending& s) { return next_ < s.end; });
      size_t offset = (next_ - one->first) * world_->segment_bytes;
      size_t bytes = std::min<size_t>(world_->segment_bytes, one->bytes - offset);
      PacketPointer packet = PacketTo(Packet::Kind::kRdma, psn_ + next_);
      packet->last = next_ + 1 == one->end;
      if (one->local_key != 0) {
        if (!device_->Knows(one->local_key, one->data + offset, bytes)) {
          return world_->Break("a device reads memory whose send is over");
        }
        packet->window = one->remote_key;
        packet->address = one->address + offset;
      }
      packet->bytes.assign(one->data + offset, bytes);
      if (!world_->Send(device_->host_, rail_, std::move(packet))) return PumpLater();
      most_sent_ = std::max(most_sent_, ++next_);
    }
  }
  void PumpLater() {
    if (std::exchange(waits_for_nic_, true)) return;
    world_->After(kNicIsFullNs, [weak = weak_from_this()] {
      auto self = weak.lock();
      if (self == nullptr) return;
      self->waits_for_nic_ = false;
      self->Pump();
    });
  }
  PacketPointer PacketTo(Packet::Kind kind, uint64_t psn) const {
    PacketPointer packet = world_->NewPacket();
    packet->kind = kind;
    packet->from = AddressOf(device_->host_, rail_).s_addr;
    packet->to = peer_address_;
    packet->stream = peer_number_;
    packet->expected = birth_;
    packet->first = psn & kMostPsn;
    return packet;
  }

  void TakeAnswer(const Packet& packet) {
    int64_t place = PlaceOf(packet.first, psn_, unacked_);
    if (place < 0 || static_cast<uint64_t>(place) > most_sent_) return;
    auto acked = static_cast<uint64_t>(place);
    if (acked > unacked_) {
      window_ = std::min(kMostWindow, window_ + acked - unacked_);
      unacked_ = acked;
      next_ = std::max(next_, unacked_);
      retries_ = 0;
      went_back_ = false;
      while (!sendings_.empty() && sendings_.front().end <= unacked_) {
        Complete({sendings_.front().id, "", 0});
        sendings_.pop_front();
      }
      ArmTimer();
    }
    // Some packet before one that came is missing there.
    if (packet.demands && acked == unacked_ && !std::exchange(went_back_, true)) GoBack();
    Pump();
  }
  void GoBack() {
    next_ = unacked_;
    window_ = std::max<uint64_t>(2, window_ / 2);
  }

  void ArmTimer() {
    timer_ns_ = world_->Now() + kTimeoutNs;
    if (!std::exchange(awaits_timer_, true)) AwaitTimer();
  }
  // One event for however many times it is set anew meanwhile.
  void AwaitTimer() {
    world_->At(timer_ns_, [weak = weak_from_this()] {
      auto self = weak.lock();
      if (self == nullptr) return;
      if (self->world_->Now() < self->timer_ns_ && !self->sendings_.empty()) return self->AwaitTimer();
      self->awaits_timer_ = false;
      self->OnTimer();
    });
  }
  void OnTimer() {
    if (state_ != State::kConnected || sendings_.empty()) return;
    if (++retries_ > kRetries) return Fail("transport retry counter exceeded");
    went_back_ = false;
    GoBack();
    Pump();
    ArmTimer();
  }

  // Receiving -------------------------------------------------------------------------------------------------

  void TakeData(const Packet& packet) {
    int64_t place = PlaceOf(packet.first, peer_psn_, expected_);
    if (place != static_cast<int64_t>(expected_)) {
      bool missing = place > static_cast<int64_t>(expected_);
      if (!missing || !std::exchange(told_missing_, true)) Answer(missing);
      return;
    }
    if (packet.window != 0) return TakeWrite(packet);
    if (posted_.empty()) return;  // it comes again
    auto [id, slot] = posted_.front();
    if (arrived_bytes_ + packet.bytes.size() > shape_.receive_bytes) return Fail("a message is longer than its place");
    if (packet.expected != peer_birth_) world_->Break("a late message of an old queue pair came by a new one");
    if (given_back_) world_->Break("a late message landed in memory that was given back");
    std::memcpy(receive_slot(slot) + arrived_bytes_, packet.bytes.data(), packet.bytes.size());
    arrived_bytes_ += packet.bytes.size();
    ++expected_;
    told_missing_ = false;
    if (packet.last) {
      posted_.pop_front();
      Complete({id, "", static_cast<uint32_t>(std::exchange(arrived_bytes_, 0))});
    }
    if (packet.last || expected_ % kAnswerEvery == 0) Answer(false);
  }
  void TakeWrite(const Packet& packet) {
    if (packet.expected != peer_birth_) world_->Break("a late message of an old queue pair came by a new one");
    char* place = reinterpret_cast<char*>(packet.address);  // NOLINT(performance-no-int-to-ptr)
    if (!device_->Knows(static_cast<uint32_t>(packet.window), place, packet.bytes.size())) {
      return world_->Break("a late write lands in a buffer whose receive is over");
    }
    std::memcpy(place, packet.bytes.data(), packet.bytes.size());
    ++expected_;
    told_missing_ = false;
    if (packet.last || expected_ % kAnswerEvery == 0) Answer(false);
  }
  void Answer(bool missing) {
    PacketPointer packet = PacketTo(Packet::Kind::kRdmaAnswer, peer_psn_ + expected_);
    packet->demands = missing;
    world_->Send(device_->host_, rail_, std::move(packet));
  }

  // Completions -----------------------------------------------------------------------------------------------

  // As a device tells it that may not be well.
  void Complete(RcDone done) {
    double share = world_->port(device_->host_, rail_).completions;
    told_.push_back(done);
    if (told_.size() > kToldBefore) told_.pop_front();
    if (!world_->Chance(share)) return Tell(std::move(done));
    switch (world_->Draw(6)) {
      case 0:  // lost
        return;
      case 1:  // twice
        Tell(done);
        return Tell(std::move(done));
      case 2:  // after the next
        passed_over_.push_back(std::move(done));
        return;
      default:  // an old one again
        Tell(std::move(done));
        return TellAgain();
    }
  }
  // The one that looks most like what is due next: of the same place in the ring, a round ago.
  void TellAgain() {
    auto again = std::find_if(told_.rbegin(), told_.rend(), [this](const RcDone& done) {
      return !posted_.empty() && done.id == posted_.front().first;
    });
    Tell(again != told_.rend() ? *again : told_[world_->Draw(told_.size())]);
  }
  void Tell(RcDone done) {
    done_.push_back(std::move(done));
    for (RcDone& one : std::exchange(passed_over_, {})) done_.push_back(std::move(one));
    if (std::exchange(armed_, false)) {
      Signal();
    } else {
      late_ = true;
    }
  }
  void Signal() {
    readable_ = true;
    device_->on_readable_(static_cast<int>(number_));
  }

  RdmaDevice* const device_;
  World* const world_;
  const int rail_;
  const uint32_t number_;
  const RcShape shape_;
  const uint32_t psn_;
  const uint64_t birth_ = world_->NextNumber();  // which no device knows: by it rules are checked
  uint64_t peer_birth_ = 0;
  const std::weak_ptr<RcWatcher> watcher_;
  const std::unique_ptr<char[]> memory_;
  State state_ = State::kNew;
  bool given_back_ = false;
  uint32_t peer_number_ = 0;
  uint32_t peer_psn_ = 0;
  in_addr_t peer_address_ = 0;

  // Packets, counted from 0.
  std::deque<Sending> sendings_;
  uint64_t unacked_ = 0;
  uint64_t next_ = 0;  // to be sent, or sent again
  uint64_t most_sent_ = 0;
  uint64_t end_ = 0;
  uint64_t window_ = kFirstWindow;
  int retries_ = 0;
  bool went_back_ = false;  // for what is missing now
  bool waits_for_nic_ = false;
  int64_t timer_ns_ = 0;
  bool awaits_timer_ = false;

  std::deque<std::pair<uint64_t, uint32_t>> posted_;
  uint64_t expected_ = 0;
  size_t arrived_bytes_ = 0;  // of the message that is coming
  bool told_missing_ = false;

  std::vector<RcDone> done_;
  std::vector<RcDone> passed_over_;
  std::deque<RcDone> told_;
  bool armed_ = false;
  bool late_ = false;  // something was done while nobody asked to be told
  bool readable_ = false;
};

namespace {

// The process' side of a queue pair.
class SimulatedQueue final : public RcQueue {
 public:
  SimulatedQueue(int host, std::shared_ptr<QueuePair> pair, std::function<void(bool)> release)
      : host_(host), pair_(std::move(pair)), release_(std::move(release)) {}
  ~SimulatedQueue() override { release_(pair_->Release()); }

  RcAddress address() const override {
    RcAddress address;
    in_addr nic = AddressOf(host_, pair_->rail());
    uint64_t birth = pair_->birth();
    std::memcpy(address.gid.data(), &nic, sizeof nic);
    std::memcpy(address.gid.data() + sizeof nic, &birth, sizeof birth);
    address.number = pair_->number();
    address.psn = pair_->psn();
    address.mtu = 5;
    address.receive_slots = pair_->shape().receive_slots;
    address.receive_bytes = pair_->shape().receive_bytes;
    return address;
  }
  std::string device() const override { return "simulated"; }
  Status Connect(const RcAddress& peer) override {
    pair_->Connect(peer);
    return {};
  }
  Status Fence() override {
    pair_->Fence();
    return {};
  }
  char* send_slot(uint32_t slot) override { return pair_->send_slot(slot); }
  char* receive_slot(uint32_t slot) override { return pair_->receive_slot(slot); }
  Status PostSend(uint64_t id, uint32_t slot, uint32_t bytes) override { return pair_->PostSend(id, slot, bytes); }
  Status PostReceive(uint64_t id, uint32_t slot) override { return pair_->PostReceive(id, slot); }
  bool Find(const char* data, size_t bytes, RcKeys* keys) override { return pair_->Find(data, bytes, keys); }
  Status PostWrite(uint64_t id, uint64_t from, uint32_t bytes, uint32_t local_key, uint64_t address,
                   uint32_t remote_key) override {
    return pair_->PostWrite(id, from, bytes, local_key, address, remote_key);
  }
  Status Poll(std::vector<RcDone>* done) override {
    pair_->Poll(done);
    return {};
  }
  int fd() const override { return static_cast<int>(pair_->number()); }
  void Arm() override { pair_->Arm(); }
  void TakeEvents() override { pair_->TakeEvents(); }

 private:
  const int host_;
  const std::shared_ptr<QueuePair> pair_;
  const std::function<void(bool)> release_;
};

}  // namespace

RdmaDevice::RdmaDevice(World* world, int host, std::function<void(int fd)> on_readable)
    : world_(world), host_(host), on_readable_(std::move(on_readable)), gone_(static_cast<size_t>(world->rails())) {}

RdmaDevice::~RdmaDevice() = default;

Status RdmaDevice::Make(const Nic& nic, const RcShape& shape, uint32_t psn, std::weak_ptr<RcWatcher> watcher,
                        std::unique_ptr<RcQueue>* queue) {
  int rail = RailOf(nic.address.s_addr);
  if (gone_[static_cast<size_t>(rail)]) return {Code::kPeerLost, "the device is gone"};
  if (!world_->port(host_, rail).link) return {Code::kPeerLost, "the port is not active"};
  uint32_t number = 1;
  while (pairs_.contains(number)) ++number;
  auto pair = std::make_shared<QueuePair>(this, rail, number, shape, psn, std::move(watcher));
  pairs_[number] = pair;
  *queue = std::make_unique<SimulatedQueue>(host_, pair, [this, number, pair](bool fenced) {
    auto forget = [this, number, pair] {
      auto known = pairs_.find(number);
      if (known != pairs_.end() && known->second == pair) pairs_.erase(known);
    };
    if (fenced) return forget();
    world_->After(kUnfencedNs, forget);
  });
  return {};
}

void RdmaDevice::AddMemory(const char* data, size_t bytes) {
  memory_.Add(data, bytes);
  uint32_t& key = *memory_.Find(data, bytes)->known;
  if (key == 0) key = next_key_++;
}

void RdmaDevice::DropMemory(const char* data, size_t bytes) { memory_.Drop(data, bytes); }

bool RdmaDevice::Knows(uint32_t key, const char* data, size_t bytes) {
  auto range = memory_.Find(data, bytes);
  return range && *range->known == key;
}

bool RdmaDevice::IsReadable(int fd) const {
  auto known = pairs_.find(static_cast<uint32_t>(fd));
  return known != pairs_.end() && known->second->readable();
}

void RdmaDevice::Take(const Packet& packet, int rail) {
  auto known = pairs_.find(static_cast<uint32_t>(packet.stream));
  if (known == pairs_.end() || known->second->rail() != rail) return;
  auto pair = known->second;
  pair->Take(packet);
}

std::vector<std::weak_ptr<RcWatcher>> RdmaDevice::Watchers(int rail) const {
  std::vector<std::weak_ptr<RcWatcher>> watchers;
  for (const auto& [number, pair] : pairs_) {
    if (pair->rail() == rail && !pair->is_given_back()) watchers.push_back(pair->watcher());
  }
  return watchers;
}

void RdmaDevice::SetGone(int rail, bool gone) {
  gone_[static_cast<size_t>(rail)] = gone;
  if (!gone) return;
  for (const auto& [number, pair] : std::map(pairs_)) {
    if (pair->rail() == rail) pair->Fail("the device failed");
  }
}

void RdmaDevice::Clear() { pairs_.clear(); }

size_t RdmaDevice::queues() const {
  return static_cast<size_t>(
      std::count_if(pairs_.begin(), pairs_.end(), [](const auto& entry) { return !entry.second->is_given_back(); }));
}

}  // namespace r2ccl::simulated
