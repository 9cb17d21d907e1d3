// The event loop of the simulator: messages become flows, flows finish, lanes go on.
#include "simulate/simulator.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "simulate/fair_share.h"

namespace r2ccl::simulate {
namespace {

// Events this close (relative) happen together, so that symmetric schedules need one refresh, not many.
constexpr double kSameTime = 1e-12;
constexpr int32_t kNone = -1;

struct Connection {
  int64_t bytes = 0;
  double busy_s = 0.0;
  int32_t posted = 0;  // messages; these and the next two only grow
  int32_t arrived = 0;
  int32_t consumed = 0;
  int32_t waiting_receiver = kNone;  // lane that stands at a receive from here
  int32_t waiting_sender = kNone;    // lane that stands at a send into here, all slots taken
  bool inner = false;                // inside a host
  double begun_s = 0.0;
};

// What a step does: its connections, and which of the sizes it sends.
struct Move {
  int32_t recv = kNone;
  int32_t send = kNone;
  int32_t size = 0;
};

struct LaneState {
  int64_t next = 0;
  int64_t end = 0;
  int64_t loop_begin = 0;
  int64_t loop_end = 0;
  int32_t rounds = 0;     // done
  Move move;              // the next step's: lanes take turns, and each read of a step is a miss of the caches
  bool received = false;  // the current step's receive is done
};

// One time that lanes run what they repeat.
struct Round {
  double sum_s = 0.0;  // of the times at which lanes were done with it
  int32_t lanes = 0;
};

// A message in its latency.
struct Delayed {
  double until_s = 0.0;
  int64_t size = 0;
  int32_t connection = kNone;
};

int32_t PowerOfTwo(int32_t least) {
  int32_t power = 1;
  while (power < least) power *= 2;
  return power;
}

class Simulation {
 public:
  explicit Simulation(const Problem& problem)
      : problem_(problem),
        connections_(Connect()),
        lanes_(Lanes()),
        nloops_(NumLoops()),
        last_round_(problem.rounds),
        places_(PowerOfTwo(problem.slots)),
        queued_sizes_(connections_.size() * static_cast<size_t>(places_), 0),
        shares_(problem.nports(), Flows(), problem.tolerance) {}

  Outcome Run() {
    shares_.SetCapacities(problem_.capacities);
    for (int32_t lane = 0; lane < static_cast<int32_t>(lanes_.size()); ++lane) ready_.push_back(lane);
    Settle();
    while (Advance()) Settle();
    return Report();
  }

 private:
  int64_t NumLanes() const { return static_cast<int64_t>(problem_.nranks) * problem_.nlanes; }
  int32_t RankOf(int32_t lane) const { return lane / problem_.nlanes; }

  std::vector<LaneState> Lanes() const {
    std::vector<LaneState> lanes(NumLanes());
    for (int64_t i = 0; i < NumLanes(); ++i) {
      lanes[i].next = problem_.lane_begin[i];
      lanes[i].end = problem_.lane_begin[i + 1];
      if (problem_.loop_begin != nullptr) {
        lanes[i].loop_begin = problem_.loop_begin[i];
        lanes[i].loop_end = problem_.loop_end[i];
      }
      if (lanes[i].next < lanes[i].end) lanes[i].move = moves_[lanes[i].next];
    }
    return lanes;
  }

  int32_t NumLoops() const {
    return static_cast<int32_t>(std::count_if(lanes_.begin(), lanes_.end(),
                                              [](const LaneState& lane) { return lane.loop_begin < lane.loop_end; }));
  }

  // Numbers the connections in order of first use, the sizes of messages, and every step's of both.
  std::vector<Connection> Connect() {
    std::vector<Connection> connections;
    std::unordered_map<int64_t, int32_t> ids, sizes;
    moves_.assign(problem_.nsteps(), {});
    const auto find = [&](int32_t source, int32_t destination, int32_t lane) {
      const int64_t key = (static_cast<int64_t>(source) * problem_.nranks + destination) * problem_.nlanes + lane;
      const auto [entry, fresh] = ids.try_emplace(key, static_cast<int32_t>(connections.size()));
      if (fresh) {
        Connection connection;
        ends_.push_back({source, destination, lane, 0, 0, 0.0});
        connection.inner = problem_.host_of_rank[source] == problem_.host_of_rank[destination];
        connections.push_back(connection);
      }
      return entry->second;
    };
    for (int32_t lane = 0; lane < NumLanes(); ++lane) {
      const int32_t rank = RankOf(lane);
      for (int64_t at = problem_.lane_begin[lane]; at < problem_.lane_begin[lane + 1]; ++at) {
        const Step& step = problem_.steps[at];
        if (step.recv >= 0) moves_[at].recv = find(step.recv, rank, lane % problem_.nlanes);
        if (step.send < 0) continue;
        moves_[at].send = find(rank, step.send, lane % problem_.nlanes);
        const int64_t size = problem_.chunk_offset[step.end] - problem_.chunk_offset[step.begin];
        const auto [entry, fresh] = sizes.try_emplace(size, static_cast<int32_t>(sizes_.size()));
        if (fresh) sizes_.push_back(size);
        moves_[at].size = entry->second;
      }
    }
    return connections;
  }

  std::vector<Flow> Flows() const {
    std::vector<Flow> flows(connections_.size());
    const int32_t hosts = problem_.nhosts;
    for (size_t i = 0; i < flows.size(); ++i) {
      const ConnectionUse& use = ends_[i];
      const int32_t from = problem_.host_of_rank[use.source];
      const int32_t to = problem_.host_of_rank[use.destination];
      Flow& flow = flows[i];
      flow.nports = 2;
      if (from == to) {
        flow.ports = {2 * hosts + use.source, 2 * hosts + problem_.nranks + use.destination, 0};
        continue;
      }
      flow.ports = {from, hosts + to, 0};
      if (!problem_.paired) continue;
      flow.ports[flow.nports++] = 2 * hosts + 2 * problem_.nranks + from * hosts + to;
    }
    return flows;
  }

  // Runs every lane that can move at the present time, then brings the rates up to date.
  void Settle() {
    while (!ready_.empty()) {
      const int32_t lane = ready_.back();
      ready_.pop_back();
      RunLane(lane);
    }
    shares_.Refresh(now_);
  }

  void RunLane(int32_t id) {
    LaneState& lane = lanes_[id];
    while (lane.next < lane.end) {
      const Move& move = lane.move;
      if (move.recv != kNone && !lane.received) {
        if (!Consume(connections_[move.recv], id)) return;
        lane.received = true;
      }
      if (move.send != kNone && !Post(move.send, id, move.size)) return;
      lane.received = false;
      ++lane.next;
      if (lane.next == lane.loop_end && lane.loop_begin < lane.loop_end) EndRound(&lane);
      if (lane.next < lane.end) lane.move = moves_[lane.next];
    }
  }

  void EndRound(LaneState* lane) {
    if (static_cast<size_t>(lane->rounds) == rounds_.size()) rounds_.emplace_back();
    Round& round = rounds_[lane->rounds++];
    round.sum_s += now_;
    if (++round.lanes == nloops_ && !enough_ && problem_.enough && problem_.enough(round.sum_s / nloops_)) {
      enough_ = true;  // one that is done with as many rounds as any is in the next
      last_round_ = std::min(last_round_, static_cast<int32_t>(rounds_.size()) + 1);
    }
    if (lane->rounds < last_round_) lane->next = lane->loop_begin;
  }

  bool Consume(Connection& connection, int32_t lane) {
    if (connection.arrived == connection.consumed) {
      connection.waiting_receiver = lane;
      return false;
    }
    ++connection.consumed;
    Wake(&connection.waiting_sender);
    return true;
  }

  bool Post(int32_t id, int32_t lane, int32_t size) {
    Connection& connection = connections_[id];
    if (connection.posted - connection.consumed >= problem_.slots) {
      connection.waiting_sender = lane;
      return false;
    }
    QueuedSize(id, connection.posted) = size;
    if (connection.posted++ == connection.arrived) Begin(id);
    return true;
  }

  void Wake(int32_t* lane) {
    if (*lane != kNone) ready_.push_back(*lane);
    *lane = kNone;
  }

  // The message at the head of the connection leaves: latency first.
  void Begin(int32_t id) {
    Connection& connection = connections_[id];
    connection.begun_s = now_;
    const int64_t size = sizes_[QueuedSize(id, connection.arrived)];
    connection.bytes += size;
    const double latency_s = connection.inner ? problem_.inner_latency_s : problem_.latency_s;
    if (latency_s > 0.0 || size == 0) {
      (connection.inner ? inner_delayed_ : delayed_).push_back({now_ + latency_s, size, id});
    } else {
      shares_.Start(id, static_cast<double>(size), now_);
    }
  }

  // Of that message of a connection, in the order in which they are posted.
  int32_t& QueuedSize(int32_t id, int32_t message) {
    return queued_sizes_[static_cast<size_t>(id) * static_cast<size_t>(places_) + (message & (places_ - 1))];
  }

  // Moves the clock to the next event or change of capacities; false when nothing is left to happen.
  bool Advance() {
    const double next = NextEvent();
    const bool event = next < FairShare::kNever;
    if (epoch_ + 1 < problem_.nepochs && (event || shares_.Busy()) &&
        (!event || problem_.epoch_start_s[epoch_ + 1] <= next)) {
      now_ = problem_.epoch_start_s[++epoch_];
      shares_.SetCapacities(problem_.capacities + static_cast<int64_t>(epoch_) * problem_.nports());
      return true;
    }
    if (!event) return false;
    now_ = next;
    const double together = now_ * (1.0 + kSameTime);
    while (shares_.NextEnd() <= together) Arrive(shares_.End(now_));
    for (std::deque<Delayed>* delayed : {&delayed_, &inner_delayed_}) {
      while (!delayed->empty() && delayed->front().until_s <= together) {
        const Delayed one = delayed->front();
        delayed->pop_front();
        Undelayed(one);
      }
    }
    return true;
  }

  double NextEvent() const {
    double next = shares_.NextEnd();
    if (!delayed_.empty()) next = std::min(next, delayed_.front().until_s);
    if (!inner_delayed_.empty()) next = std::min(next, inner_delayed_.front().until_s);
    return next;
  }

  void Undelayed(const Delayed& one) {
    if (one.size > 0) {
      shares_.Start(one.connection, static_cast<double>(one.size), now_);
    } else {
      Arrive(one.connection);
    }
  }

  void Arrive(int32_t id) {
    Connection& connection = connections_[id];
    connection.busy_s += now_ - connection.begun_s;
    last_arrival_s_ = now_;
    ++connection.arrived;
    Wake(&connection.waiting_receiver);
    if (connection.posted > connection.arrived) Begin(id);
  }

  Outcome Report() const {
    Outcome outcome;
    outcome.seconds = last_arrival_s_;
    outcome.rounds = last_round_;
    outcome.connections = ends_;
    for (size_t i = 0; i < connections_.size(); ++i) {
      outcome.connections[i].messages = connections_[i].arrived;
      outcome.connections[i].bytes = connections_[i].bytes;
      outcome.connections[i].busy_s = connections_[i].busy_s;
    }
    for (int32_t lane = 0; lane < NumLanes(); ++lane) {
      if (lanes_[lane].next == lanes_[lane].end) continue;
      const int64_t at = lanes_[lane].next;
      const bool receives = moves_[at].recv != kNone && !lanes_[lane].received;
      outcome.stalled = "rank " + std::to_string(RankOf(lane)) + " lane " + std::to_string(lane % problem_.nlanes) +
                        " waits for ever at step " + std::to_string(at - problem_.lane_begin[lane]) + " to " +
                        (receives ? "receive from rank " + std::to_string(problem_.steps[at].recv)
                                  : "send to rank " + std::to_string(problem_.steps[at].send));
      break;
    }
    return outcome;
  }

  const Problem& problem_;
  std::vector<Move> moves_;          // of each step
  std::vector<int64_t> sizes_;       // bytes, all that there are
  std::vector<ConnectionUse> ends_;  // of each connection; its use is filled in at the end
  std::vector<Connection> connections_;
  std::vector<LaneState> lanes_;
  int32_t nloops_;  // lanes that repeat something
  int32_t last_round_;
  bool enough_ = false;
  std::vector<Round> rounds_;          // that any lane is done with
  int32_t places_;                     // the slots of a connection and some more: a power of two
  std::vector<int32_t> queued_sizes_;  // which of the sizes, of messages that have a place
  FairShare shares_;
  std::deque<Delayed> delayed_, inner_delayed_;  // in the order in which that ends: it is equal for all of a kind
  std::vector<int32_t> ready_;
  double now_ = 0.0;
  double last_arrival_s_ = 0.0;
  int32_t epoch_ = 0;
};

}  // namespace

Outcome Run(const Problem& problem) { return Simulation(problem).Run(); }

}  // namespace r2ccl::simulate
