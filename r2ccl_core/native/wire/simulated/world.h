// World: hosts, their NICs and the network between them, in virtual time. One seed makes one history.
//
// NIC r of every host is on rail r, a separate network unless the network routes between rails. A packet waits in its
// NIC's queue, which drops whatever does not fit, is in flight for a while, and waits again at the receiving NIC. A
// NIC's possible faults, for each direction, are its Sickness, which may change at any time.
#ifndef R2CCL_WIRE_SIMULATED_WORLD_H_
#define R2CCL_WIRE_SIMULATED_WORLD_H_

#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "net/nic.h"
#include "wire/simulated/event_queue.h"
#include "wire/simulated/task.h"

namespace r2ccl::simulated {

// What one direction of a NIC does to packets. As it is made: nothing.
struct Sickness {
  bool black = false;         // all are lost
  uint32_t larger_than = 0;   // those with more bytes are lost; 0: none
  double loss = 0;            // of all packets, by chance
  double burst = 0;           // chance that a packet begins a burst of losses, which end by chance, of ten on average
  double duplicate = 0;       // come twice
  int64_t delay_ns = 0;       // more on the way
  int64_t jitter_ns = 0;      // at most so much more, by chance: packets overtake each other
  double rate = 1;            // share of the NIC's rate that is left
  double corrupt = 0;         // of packets with bytes: one bit is another
  bool rdma_black = false;    // those of RDMA are lost
  int64_t rdma_delay_ns = 0;  // they alone are so much longer on the way
};

struct PacketHead {
  enum class Kind : uint8_t { kSyn, kSynAck, kReset, kSegment, kQuestion, kAnswer, kRdma, kRdmaAnswer };
  Kind kind = Kind::kSegment;
  in_addr_t from = 0;
  in_addr_t to = 0;
  uint64_t stream = 0;    // number of the stream, of the question, or of the queue pair that it goes to
  uint64_t first = 0;     // the first byte's place in the stream; of RDMA: the packet's number
  uint64_t expected = 0;  // the place of the byte that the sending side wants next
  uint64_t window = 0;    // how many more it takes
  uint32_t taken = 0;     // packets that it has taken so far, in whatever order
  uint32_t again = 0;     // of them, those whose bytes it had already, as TCP tells (DSACK)
  bool last = false;      // nothing follows; of a reset: nobody listens; of RDMA: the message ends
  bool demands = false;   // asks for word of what was taken; of an answer to RDMA: a packet is missing
  uint64_t address = 0;   // of a write by RDMA: where the bytes belong; the key is `window`
};

struct Packet : PacketHead {
  std::string bytes;
  std::vector<std::pair<uint64_t, uint64_t>> ahead;  // what it has behind gaps: first places, and ends

  size_t size() const { return 64 + bytes.size(); }
  bool is_rdma() const { return kind == Kind::kRdma || kind == Kind::kRdmaAnswer; }
  // As a new one, but for the memory that it has.
  void Clear() {
    static_cast<PacketHead&>(*this) = {};
    bytes.clear();
    ahead.clear();
  }
};

// Packets that nobody has any more are the next ones, and with them the memory of their bytes.
class PacketPool {
 public:
  struct GiveBack {
    PacketPool* pool = nullptr;
    void operator()(Packet* packet) const {
      packet->Clear();
      pool->free_.push_back(packet);
    }
  };
  using Pointer = std::unique_ptr<Packet, GiveBack>;

  Pointer New() {
    if (free_.empty()) free_.push_back(all_.emplace_back(std::make_unique<Packet>()).get());
    Packet* packet = free_.back();
    free_.pop_back();
    return {packet, GiveBack{this}};
  }

 private:
  std::vector<std::unique_ptr<Packet>> all_;
  std::vector<Packet*> free_;
};
using PacketPointer = PacketPool::Pointer;

class World;

// What a host's kernel does with a packet, and when a link of the host changes.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void Take(const Packet& packet, int nic) = 0;
  virtual void OnLink(int nic, bool running) = 0;
};

// Somebody else's packets, of equal size, that leave one by one for the same NIC of another host.
struct Competitor {
  int to = 0;
  double bytes = 0;
  int64_t pause_ns = 0;
  int64_t next_ns = 0;
  int64_t until_ns = 0;
};

// Some of them on their way: when the first one comes, and what is between two.
struct Train {
  int64_t at_ns = 0;
  int64_t pause_ns = 0;
  int64_t count = 0;
  double bytes = 0;
};

struct Port {
  Nic nic;
  double bytes_per_ns = 0.0625;  // 500 Mbit/s
  double bucket_bytes = 0;       // that leave and come at once after a pause, as a token bucket lets them
  bool link = true;
  Sickness out, in;
  uint64_t came = 0;       // of our packets
  uint64_t dropped = 0;    // of them, since its queue was full
  double completions = 0;  // share of those of its RDMA that are lost, late or told again
  // The times at which what waits already has gone.
  int64_t out_free_ns = 0;
  int64_t in_free_ns = 0;
  bool out_burst = false;
  bool in_burst = false;
  // What others send from here, and what of others' comes here, from which host (-1: none).
  std::vector<Competitor> competitors;
  std::list<Train> coming;
  int competing_host = -1;
};

class World final : public Clock {
 public:
  World(uint64_t seed, int hosts, int rails);

  int64_t Now() const override { return now_ns_; }
  template <typename What>
  void At(int64_t when_ns, What&& what) {
    Add(when_ns, true).Make(std::forward<What>(what));
  }
  template <typename What>
  void After(int64_t delay_ns, What&& what) {
    Add(now_ns_ + delay_ns, true).Make(std::forward<What>(what));
  }
  // The same for what concerns nobody once all that could be concerned is gone: a timer, a tick.
  template <typename What>
  void Wait(int64_t delay_ns, What&& what) {
    Add(now_ns_ + delay_ns, false).Make(std::forward<What>(what));
  }
  // Whether nothing is to happen but for such.
  bool only_waits() const { return news_ == 0; }
  // Lets everything happen that happens until then.
  void RunUntil(int64_t when_ns);
  // The same, until `done` says so after an event; false: time is over.
  template <typename Done>
  bool RunUntil(int64_t when_ns, const Done& done) {
    while (Step(when_ns)) {
      if (done()) return true;
    }
    now_ns_ = std::max(now_ns_, when_ns);
    return done();
  }
  uint64_t events() const { return events_; }

  int hosts() const { return static_cast<int>(ports_.size()); }
  int rails() const { return static_cast<int>(ports_[0].size()); }
  // As it is now, what others did there included.
  Port& port(int host, int rail) {
    Port& found = Raw(host, rail);
    if (!found.competitors.empty()) LetCompetitorsGo(found, rail);
    if (found.competing_host >= 0) LetCompetitorsCome(found, rail);
    return found;
  }
  void SetReceiver(int host, Receiver* receiver) { receivers_[static_cast<size_t>(host)] = receiver; }
  // Nothing leaves the host from now on, whatever its programs still hold.
  void PowerOff(int host) { is_off_[static_cast<size_t>(host)] = true; }
  // The carrier goes or comes, and the host's kernel says so.
  void SetLink(int host, int rail, bool running);

  // An empty one, to be sent.
  PacketPointer NewPacket() { return packets_.New(); }
  // False where the NIC's own queue is full, and the host knows.
  bool Send(int host, int rail, PacketPointer packet);
  // From now on packets of somebody else's go from a NIC to another host's, where the queues have room for them. Nobody
  // sees them but by the room that they take, so they are no events: what they did is found out when somebody looks.
  // REQUIRES: those that come to a NIC come from one host.
  void Compete(int host, int rail, Competitor competitor);

  // From the history's only source of chance.
  uint64_t Draw(uint64_t below) { return std::uniform_int_distribution<uint64_t>(0, below - 1)(random_); }
  bool Chance(double share) { return share > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < share; }

  // Whether a packet to an address on another rail gets there.
  bool routes = false;
  // The most that a packet carries.
  size_t segment_bytes = 4096;
  // The most that a kernel keeps of what its program wrote to a stream that came in.
  size_t answer_bytes = 256 * 1024;
  // The most that RDMA devices say that a message may have.
  uint32_t message_bytes = 32 * 1024;

  // What is still to happen does not.
  void Forget() {
    queue_ = {};
    free_event_ = nullptr;
    news_ = 0;
    std::exchange(all_events_, {});
  }

  // A rule was broken that only the network and its devices can see.
  void Break(const std::string& rule) {
    if (broken_.empty()) broken_ = rule;
  }
  const std::string& broken() const { return broken_; }

  // Of our packets that came to a NIC so far, the share that its full queue dropped; of the NIC with the largest.
  double MostDropped() const;

  // From now on keeps the times at which something happens.
  void KeepMoments(std::vector<int64_t>* moments) { moments_ = moments; }

  uint64_t NextNumber() { return next_number_++; }

 private:
  // An empty task that is done then.
  Task& Add(int64_t when_ns, bool is_news);
  void MakeEvents();
  Port& Raw(int host, int rail) { return ports_[static_cast<size_t>(host)][static_cast<size_t>(rail)]; }
  void LetCompetitorsGo(Port& from, int rail);
  void LetCompetitorsCome(Port& into, int rail);
  bool Step(int64_t until_ns);
  bool IsLost(const Sickness& sickness, bool* burst, const Packet& packet);
  void Carry(int host, int rail, PacketPointer packet, int64_t extra_ns);
  int64_t Queue(int host, int rail, double bytes);
  void Arrive(int host, int rail, const Packet& packet);

  std::mt19937_64 random_;
  int64_t now_ns_ = 1'000'000'000;
  uint64_t events_ = 0;
  uint64_t next_event_ = 0;
  uint64_t next_number_ = 1;
  std::string broken_;
  std::vector<int64_t>* moments_ = nullptr;
  PacketPool packets_;
  EventQueue queue_;
  std::vector<std::unique_ptr<Event[]>> all_events_;
  Event* free_event_ = nullptr;           // of those that are over, as a list
  size_t news_ = 0;                       // of queue_
  std::vector<std::vector<Port>> ports_;  // by host and rail
  std::vector<Receiver*> receivers_;
  std::vector<bool> is_off_;
};

// The address of a host's NIC on a rail.
in_addr AddressOf(int host, int rail);
int HostOf(in_addr_t address);
int RailOf(in_addr_t address);

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_WORLD_H_
