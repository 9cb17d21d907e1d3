// The GPU executor's order of issue on threads: NCCL's calls between them block as NCCL's groups do on a stream.
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "base/clock.h"
#include "cuda/takeover.h"
#include "gtest/gtest.h"

namespace r2ccl::cuda {
namespace {

struct HostComm {
  int id;
  int rank;
  int splits = 0;
  int size = 0;  // 0: of all ranks
};

// Messages between ranks, in order. A group returns when what it sent is taken and what it receives is there.
struct Wire {
  struct Lane {
    std::deque<std::string> sent;
    size_t put = 0;
    size_t taken = 0;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, int>, Lane> lanes;           // communicator, source, destination
  std::set<int> aborted;                                     // communicators
  std::map<int, std::map<int, std::pair<int, int>>> splits;  // by what is made, each rank's color and key
  int ranks = 0;
  int by_nccl = 0;
};
Wire* wire = nullptr;

struct Part {
  int comm;
  int rank;
  char* place;
  size_t bytes;
  int peer;
  bool sends;
};
thread_local std::vector<Part> parts;

int GroupStart() { return 0; }

int GroupEnd() {
  std::vector<Part> mine;
  mine.swap(parts);
  std::unique_lock lock(wire->mutex);
  std::map<Wire::Lane*, size_t> wanted;
  for (const Part& part : mine) {
    if (!part.sends) continue;
    Wire::Lane& lane = wire->lanes[{part.comm, part.rank, part.peer}];
    lane.sent.emplace_back(part.place, part.bytes);
    wanted[&lane] = ++lane.put;
  }
  wire->changed.notify_all();
  auto aborted = [&] { return !mine.empty() && wire->aborted.contains(mine.front().comm); };
  for (const Part& part : mine) {
    if (part.sends) continue;
    Wire::Lane& lane = wire->lanes[{part.comm, part.peer, part.rank}];
    if (!wire->changed.wait_for(lock, std::chrono::seconds(30), [&] { return !lane.sent.empty() || aborted(); }))
      return 3;
    if (aborted()) return 5;
    if (lane.sent.front().size() != part.bytes) return 4;
    std::memcpy(part.place, lane.sent.front().data(), part.bytes);
    lane.sent.pop_front();
    ++lane.taken;
    wire->changed.notify_all();
  }
  for (auto& [lane, count] : wanted) {
    auto* its = lane;
    size_t until = count;
    if (!wire->changed.wait_for(lock, std::chrono::seconds(30), [&] { return its->taken >= until || aborted(); }))
      return 3;
    if (aborted()) return 5;
  }
  return 0;
}

int Send(const void* place, size_t count, int, int peer, Comm comm, Stream) {
  auto* from = static_cast<HostComm*>(comm);
  parts.push_back({from->id, from->rank, static_cast<char*>(const_cast<void*>(place)), count, peer, true});
  return 0;
}

int Recv(void* place, size_t count, int, int peer, Comm comm, Stream) {
  auto* to = static_cast<HostComm*>(comm);
  parts.push_back({to->id, to->rank, static_cast<char*>(place), count, peer, false});
  return 0;
}

int SizeOf(Comm comm) {
  int size = static_cast<HostComm*>(comm)->size;
  return size == 0 ? wire->ranks : size;
}

// `count` elements of one or four bytes.
int AllGather(const void* own, void* all, size_t count, int type, Comm comm, Stream stream) {
  if (type == 2) count *= 4;
  auto* places = static_cast<char*>(all);
  int rank = static_cast<HostComm*>(comm)->rank;
  for (int peer = 0; peer < SizeOf(comm); ++peer) {
    char* place = places + count * static_cast<size_t>(peer);
    if (peer == rank) {
      std::memmove(place, own, count);
    } else {
      Send(own, count, 0, peer, comm, stream);
      Recv(place, count, 0, peer, comm, stream);
    }
  }
  return GroupEnd();
}

// Of int32; of single bytes, which only connect, nothing is looked at.
int ReduceScatter(const void* input, void* output, size_t count, int type, int, Comm comm, Stream stream) {
  size_t ranks = static_cast<size_t>(SizeOf(comm));
  size_t mine = static_cast<size_t>(static_cast<HostComm*>(comm)->rank);
  size_t width = type == 2 ? 4 : 1;
  std::vector<char> all(ranks * ranks * count * width);
  int result = AllGather(input, all.data(), ranks * count * width, 0, comm, stream);
  if (width == 1) return result;
  const auto* values = reinterpret_cast<const int32_t*>(all.data());
  for (size_t i = 0; i < count; ++i) {
    int32_t sum = 0;
    for (size_t rank = 0; rank < ranks; ++rank) sum += values[(rank * ranks + mine) * count + i];
    static_cast<int32_t*>(output)[i] = sum;
  }
  return result;
}

int AllReduce(const void* input, void* output, size_t count, int, int, Comm comm, Stream stream) {
  std::vector<int32_t> all(count * static_cast<size_t>(SizeOf(comm)));
  int result = AllGather(input, all.data(), count * 4, 0, comm, stream);
  auto* sum = static_cast<int32_t*>(output);
  std::vector<int32_t> total(count, 0);
  for (size_t i = 0; i < all.size(); ++i) total[i % count] += all[i];
  std::memcpy(sum, total.data(), count * 4);
  std::lock_guard lock(wire->mutex);
  ++wire->by_nccl;
  return result;
}

// Waits for all ranks of the parent, as NCCL's does.
int Split(Comm parent, int color, int key, Comm* made, void*) {
  auto* from = static_cast<HostComm*>(parent);
  std::unique_lock lock(wire->mutex);
  int id = from->id * 16 + ++from->splits;
  auto& told = wire->splits[id];
  told[from->rank] = {color, key};
  wire->changed.notify_all();
  auto aborted = [&] { return wire->aborted.contains(from->id); };
  auto met = [&] { return static_cast<int>(told.size()) == SizeOf(parent); };
  if (!wire->changed.wait_for(lock, std::chrono::seconds(30), [&] { return met() || aborted(); })) return 3;
  if (aborted()) return 5;
  int rank = 0;
  int size = 0;
  for (const auto& [other, its] : told) {
    if (its.first != color) continue;
    ++size;
    rank += std::pair(its.second, other) < std::pair(key, from->rank);
  }
  *made = new HostComm{id * 64 + color, rank, 0, size};
  return 0;
}

int Destroy(Comm comm) {
  delete static_cast<HostComm*>(comm);
  return 0;
}

void EndCalls(const HostComm& comm) {
  std::lock_guard lock(wire->mutex);
  wire->aborted.insert(comm.id);
  wire->changed.notify_all();
}

// As NCCL's: calls under way end with an error, and the communicator is gone.
int Abort(Comm comm) {
  EndCalls(*static_cast<HostComm*>(comm));
  return Destroy(comm);
}

int Count(Comm comm, int* count) {
  *count = SizeOf(comm);
  return 0;
}

int Rank(Comm comm, int* rank) {
  *rank = static_cast<HostComm*>(comm)->rank;
  return 0;
}

const Nccl kHostNccl = {AllReduce, AllGather, ReduceScatter, Send,    Recv,  GroupStart, GroupEnd, Count,
                        Rank,      nullptr,   Split,         Destroy, Abort, nullptr,    nullptr};

// Streams that have done everything at once.
class HostDevice : public Device {
 public:
  bool Allocate(size_t bytes, void** memory) override {
    ++allocated;
    return (*memory = std::malloc(bytes)) != nullptr;
  }
  void Free(void* memory) override { std::free(memory); }
  bool AllocateHost(size_t bytes, void** memory) override { return (*memory = std::malloc(bytes)) != nullptr; }
  void FreeHost(void* memory) override { std::free(memory); }
  bool MakeStream(Stream* stream) override { return (*stream = this) != nullptr; }
  void DropStream(Stream) override {}
  bool MakeEvent(Event*) override { return true; }
  void DropEvent(Event) override {}
  bool Record(Event, Stream) override { return true; }
  bool WaitFor(Stream, Event) override { return true; }
  bool Wait(Event) override { return true; }
  bool Wait(Stream) override { return true; }
  int Uncaptured(const std::function<int()>& work) override { return work(); }
  std::optional<uint64_t> GraphOf(Stream stream) override {
    if (stream == &unknown) return std::nullopt;
    return stream == &capturing ? graph : streams_of;
  }
  bool KeepForGraph(Stream, std::shared_ptr<const void> what) override {
    kept.push_back(std::move(what));
    return true;
  }
  int Use(int) override { return 0; }
  bool Copy(void* to, const void* from, size_t bytes, Stream) override {
    std::memmove(to, from, bytes);
    return true;
  }
  bool Reduce(const std::vector<Reduction>& reductions, Type type, Op op, Stream) override {
    if (type != Type::kInt32 || op != Op::kSum) return false;
    for (const Reduction& one : reductions) {
      for (size_t i = 0; i < one.count; ++i) {
        int32_t came = one.in == nullptr ? 0 : static_cast<const int32_t*>(one.in)[i];
        static_cast<int32_t*>(one.out)[i] = static_cast<const int32_t*>(one.own)[i] + came;
      }
    }
    return true;
  }
  uint64_t Identity() override { return identity; }
  Joint JointWith(uint64_t other) override { return other == identity ? on_one_gpu : between_gpus; }
  bool Divide(void* out, const void* in, size_t count, int ranks, Type type, Stream) override {
    if (type != Type::kFloat32) return false;
    for (size_t i = 0; i < count; ++i) {
      static_cast<float*>(out)[i] = static_cast<const float*>(in)[i] / static_cast<float>(ranks);
    }
    return true;
  }
  char capturing = 0;  // the streams of these addresses are captured into `graph`, and it cannot be told of
  char unknown = 0;
  uint64_t graph = 0;
  uint64_t streams_of = 0;  // the graph that the streams which it has made are still captured into
  std::vector<std::shared_ptr<const void>> kept;  // by graphs
  std::atomic<int> allocated = 0;                 // pieces of device memory so far
  uint64_t identity = 0;
  Joint on_one_gpu = Joint::kJoined;
  Joint between_gpus = Joint::kJoined;
};

void Put(std::string* data, const void* what, size_t bytes) { data->append(static_cast<const char*>(what), bytes); }

void Put32(std::string* data, uint32_t value) { Put(data, &value, 4); }

// Three hosts: 1 and 2 send `wide` chunks to 0 in each round, and get the sums in the next. `segments`: the chunk that
// each ends before; empty: one segment.
std::string StarTable(const std::vector<uint32_t>& left, uint32_t chunks, uint32_t gpus = 1, uint32_t wide = 1,
                      std::vector<uint32_t> segments = {}) {
  if (segments.empty()) segments = {chunks};
  std::string data = "R2CCLG04";
  for (uint32_t value : {3U, gpus, 4U, 1U}) Put32(&data, value);
  for (uint32_t one : left) Put32(&data, one);
  uint64_t bounds[] = {0, uint64_t{1} << 40};
  Put(&data, bounds, sizeof(bounds));
  Put32(&data, chunks);
  data += std::string("star").append(28, '\0');
  Put32(&data, static_cast<uint32_t>(segments.size()));
  for (uint32_t end : segments) Put32(&data, end);
  for (int32_t rank = 0; rank < 3; ++rank) {
    std::vector<Operation> ops;
    auto add = [&](int32_t round, int32_t kind, int32_t peer, int32_t chunk, int32_t from_input) {
      ops.push_back({round, kind, peer, chunk, chunk + 1, from_input});
    };
    int32_t rounds = static_cast<int32_t>(chunks / wide);
    for (int32_t round = 0; round <= rounds; ++round) {
      for (int32_t i = 0; i < static_cast<int32_t>(wide); ++i) {
        int32_t chunk = round * static_cast<int32_t>(wide) + i;
        int32_t before = chunk - static_cast<int32_t>(wide);
        bool up = round < rounds;
        if (rank == 0) {
          if (up) add(round, Operation::kReceiveReduce, 1, chunk, 1);
          if (up) add(round, Operation::kReceiveReduce, 2, chunk, 0);
          if (round > 0) add(round, Operation::kSend, 1, before, 0);
          if (round > 0) add(round, Operation::kSend, 2, before, 0);
        } else {
          if (up) add(round, Operation::kSend, 0, chunk, 1);
          if (round > 0) add(round, Operation::kReceive, 0, before, 0);
        }
      }
    }
    Put32(&data, static_cast<uint32_t>(ops.size()));
    Put(&data, ops.data(), ops.size() * sizeof(Operation));
  }
  return data;
}

class Scene : public ::testing::Test {
 protected:
  void SetUp() override { wire = &wire_; }
  void TearDown() override { std::remove(path_.c_str()); }

  void Use(const std::string& table, int ranks) {
    wire_.ranks = ranks;
    path_ = ::testing::TempDir() + "rounds" + std::to_string(getpid());
    std::ofstream(path_, std::ios::binary) << table;
  }

  // The table's schedules for a host that has all of its four NICs.
  std::unique_ptr<Takeover> Whole(HostDevice& device, size_t rank) {
    return std::make_unique<Takeover>(
        kHostNccl, device, Settings{path_, 0, 1, {}}, rank, [](Nics* nics) { return *nics = {4, 4}, true; },
        [](const std::string&, bool) {});
  }

  // `operations` AllReduces on every rank; before each, left(rank, operation) says what the rank has left. Every result
  // is checked; returns by rank what ran.
  std::vector<std::vector<std::string>> Run(int operations, size_t count, const std::function<Nics(int, int)>& left,
                                            bool in_place = false, bool one_host = false, int every = 1) {
    size_t ranks = static_cast<size_t>(wire_.ranks);
    std::vector<std::vector<std::string>> choices(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < wire_.ranks; ++rank) {
      threads.emplace_back([&, rank] {
        int operation = 0;
        HostDevice device;
        HostComm comm{1, rank};
        device.identity = static_cast<uint64_t>(rank);
        if (devices_) devices_(device);
        int host = one_host ? 7 : host_of_ ? host_of_(rank) : rank / gpus_;
        Takeover takeover(
            kHostNccl, device, {path_, 0, every, {}}, static_cast<uint64_t>(host),
            [&](Nics* nics) {
              *nics = left(rank, operation);
              return true;
            },
            [&, rank](const std::string& text, bool mistake) {
              if (mistake && rank == 0) refused_ = text;
            });
        for (; operation < operations; ++operation) {
          std::vector<int32_t> input(count);
          for (size_t i = 0; i < count; ++i) input[i] = static_cast<int32_t>(i) * (rank + 1) + operation;
          std::vector<int32_t> output(count, -1);
          int32_t* to = in_place ? input.data() : output.data();
          ASSERT_EQ(takeover.AllReduce({input.data(), to, count, 2, 0, &comm, nullptr}), 0);
          int32_t sum = wire_.ranks * (wire_.ranks + 1) / 2;
          for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(to[i], static_cast<int32_t>(i) * sum + wire_.ranks * operation) << "element " << i;
          }
          choices[static_cast<size_t>(rank)].push_back(takeover.Choice(&comm));
        }
        takeover.Forget(&comm);
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& one : choices) EXPECT_EQ(one, choices[0]);
    return choices;
  }

  Wire wire_;
  std::string path_;
  int gpus_ = 1;                              // of each host
  std::function<int(int)> host_of_;           // a rank's host; empty: ranks of a host are in a row
  std::function<void(HostDevice&)> devices_;  // what is to be said of each rank's
  std::string refused_;                       // what rank 0 said in any case
};

using Names = std::vector<std::string>;

Nics AllLeft(int, int) { return {4, 4}; }

TEST_F(Scene, AllRanksChangeOverAtOneOperationAndBack) {
  Use(StarTable({4, 3, 4}, 5), 3);
  // Rank 1 has lost a NIC from its operation 2 to 4; what was told at one operation counts from the next on.
  auto left = [](int rank, int operation) { return Nics{4, rank == 1 && operation >= 2 && operation < 5 ? 3 : 4}; };
  EXPECT_EQ(Run(7, 1003, left)[0], (Names{"nccl", "nccl", "nccl", "star", "star", "star", "nccl"}));
}

TEST_F(Scene, InPlace) {
  Use(StarTable({4, 4, 4}, 3), 3);
  EXPECT_EQ(Run(3, 64, AllLeft, true)[0], (Names{"nccl", "star", "star"}));
}

// As one message, whose parts need not be next to each other or of equal length.
TEST_F(Scene, WhatGoesToOnePeerInARoundTravelsTogether) {
  for (uint32_t wide : {1U, 3U}) {
    wire_.lanes.clear();
    wire_.splits.clear();
    Use(StarTable({4, 4, 4}, 6, 1, wide), 3);
    for (bool in_place : {false, true}) {
      wire_.lanes.clear();
      EXPECT_EQ(Run(2, 1003, AllLeft, in_place)[0], (Names{"nccl", "star"}));
      int of_rounds = std::get<0>(wire_.lanes.rbegin()->first);  // made after that of the agreements
      for (int peer : {1, 2}) {
        EXPECT_EQ((wire_.lanes[{of_rounds, peer, 0}].put), 1 + 6 / wide);  // one that connects, then one for each round
        EXPECT_EQ((wire_.lanes[{of_rounds, 0, peer}].put), 1 + 6 / wide);
      }
    }
  }
}

TEST_F(Scene, AgreesEveryFewOperations) {
  Use(StarTable({4, 4, 4}, 3), 3);
  EXPECT_EQ(Run(5, 64, AllLeft, false, false, 3)[0], (Names{"nccl", "nccl", "nccl", "star", "star"}));
}

TEST_F(Scene, FewerElementsThanChunksAreNccls) {
  Use(StarTable({4, 4, 4}, 8), 3);
  EXPECT_EQ(Run(3, 7, AllLeft)[0], (Names{"nccl", "nccl", "nccl"}));
}

TEST_F(Scene, SharedHostsAndOtherNumbersOfNicsAreNccls) {
  Use(StarTable({4, 4, 4}, 3), 3);
  EXPECT_EQ(Run(3, 64, AllLeft, false, true)[0], (Names{"nccl", "nccl", "nccl"}));
  EXPECT_EQ(Run(3, 64, [](int, int) { return Nics{2, 2}; })[0], (Names{"nccl", "nccl", "nccl"}));
}

// Ranks of a host in a row, and dealt out over the hosts; more elements than make equal parts, and segments of unequal
// length. What one rank of a host has lost counts for the host.
TEST_F(Scene, HostsOfSeveralGpus) {
  for (int gpus : {2, 3}) {
    for (bool dealt_out : {false, true}) {
      for (const auto& segments : {std::vector<uint32_t>{5}, {2, 5}, {1, 2, 3, 4, 5}}) {
        SCOPED_TRACE(std::to_string(gpus) + (dealt_out ? " dealt out" : " in a row"));
        wire_.lanes.clear();
        wire_.splits.clear();
        Use(StarTable({4, 3, 4}, 5, static_cast<uint32_t>(gpus), 1, segments), 3 * gpus);
        gpus_ = gpus;
        host_of_ = [=](int rank) { return dealt_out ? rank % 3 : rank / gpus; };
        int struck = dealt_out ? 1 : gpus;
        auto left = [=](int rank, int) { return Nics{4, rank == struck ? 3 : 4}; };
        for (bool in_place : {false, true}) {
          EXPECT_EQ(Run(3, in_place ? 4099 : 1003, left, in_place)[0], (Names{"nccl", "star", "star"}));
        }
        EXPECT_EQ(Run(2, static_cast<size_t>(5 * gpus - 1), left)[0], (Names{"nccl", "nccl"}));  // too few elements
      }
    }
  }
}

// What one rank issues on its streams, and whether any two of its accesses to memory may be in either order.
struct Order {
  using Clock = std::map<Stream, int>;
  struct Access {
    Stream stream;
    int tick;
    const char* from;
    const char* to;
    bool writes;
  };
  std::map<Stream, Clock> clocks;
  std::map<Event, Clock> events;
  std::vector<Access> accesses;
  std::vector<std::string> calls;
  int races = 0;

  void Touch(Stream stream, const void* place, size_t bytes, bool writes) {
    const char* from = static_cast<const char*>(place);
    Clock& clock = clocks[stream];
    for (const Access& one : accesses) {
      bool meets = one.from < from + bytes && from < one.to && (writes || one.writes) && one.stream != stream;
      if (meets && clock[one.stream] < one.tick) ++races;
    }
    accesses.push_back({stream, ++clock[stream], from, from + bytes, writes});
  }
};
Order* order = nullptr;

int OrderedScatter(const void* input, void* output, size_t count, int, int, Comm, Stream stream) {
  order->calls.emplace_back("scatter");
  order->Touch(stream, input, 2 * 4 * count, false);
  order->Touch(stream, output, 4 * count, true);
  return 0;
}

int OrderedGather(const void* own, void* all, size_t count, int, Comm, Stream stream) {
  order->calls.emplace_back("gather");
  order->Touch(stream, own, 4 * count, false);
  order->Touch(stream, all, 2 * 4 * count, true);
  return 0;
}

int OrderedSend(const void* place, size_t bytes, int, int, Comm, Stream stream) {
  order->calls.emplace_back("send");
  order->Touch(stream, place, bytes, false);
  return 0;
}

int OrderedRecv(void* place, size_t bytes, int, int, Comm, Stream stream) {
  order->Touch(stream, place, bytes, true);
  return 0;
}

class OrderedDevice final : public HostDevice {
 public:
  explicit OrderedDevice(bool waits) : waits_(waits) {}
  bool MakeStream(Stream* stream) override { return (*stream = &made_[made_count_++]) != nullptr; }
  bool MakeEvent(Event* event) override { return (*event = reinterpret_cast<Event>(&made_[made_count_++])) != nullptr; }
  bool Record(Event event, Stream stream) override { return order->events[event] = order->clocks[stream], true; }
  bool WaitFor(Stream stream, Event event) override {
    for (const auto& [other, tick] : order->events[event]) {
      int& known = order->clocks[stream][other];
      if (waits_) known = std::max(known, tick);
    }
    return true;
  }
  bool Reduce(const std::vector<Reduction>& reductions, Type, Op, Stream stream) override {
    for (const Reduction& one : reductions) {
      for (const void* read : {one.own, one.in}) {
        if (read != nullptr) order->Touch(stream, read, 4 * one.count, false);
      }
      order->Touch(stream, one.out, 4 * one.count, true);
    }
    return true;
  }

 private:
  const bool waits_;
  char made_[64] = {};
  size_t made_count_ = 0;
};

int SplitOrdered(Comm parent, int, int, Comm* made, void*) {
  *made = parent;
  return 0;
}

int DestroyNothing(Comm) { return 0; }

// Segments are reduced and gathered beside the rounds of others, and nothing touches what is not there yet: as much as
// streams and events promise, whatever they do beyond.
TEST(Segments, AreOnBothStreamsAtOnceWithoutARace) {
  Nccl nccl = kHostNccl;
  nccl.all_gather = OrderedGather;
  nccl.reduce_scatter = OrderedScatter;
  nccl.send = OrderedSend;
  nccl.recv = OrderedRecv;
  nccl.group_end = GroupStart;
  nccl.comm_split = SplitOrdered;
  nccl.comm_destroy = DestroyNothing;
  Table table;
  ASSERT_TRUE(ParseTable(StarTable({4, 3, 4}, 6, 2, 1, {1, 2, 3, 4, 5, 6}), &table).ok());
  for (bool waits : {true, false}) {
    for (int host : {0, 1}) {
      for (bool in_place : {false, true}) {
        Order its;
        order = &its;
        OrderedDevice device(waits);
        Gate gate;
        char user = 0;
        std::vector<int32_t> input(1200);
        std::vector<int32_t> output(1200);
        int32_t* to = in_place ? input.data() : output.data();
        Runner runner(nccl, device, gate);
        ASSERT_EQ(runner.Open(&its, {host, 1, 3, 2}), 0);
        for (uint64_t graph : {0, 0, 7}) {
          its.calls.clear();
          int result = runner.Run(table.entries[0], input.data(), to, 1200, Type::kInt32, Op::kSum, &its, &user, graph);
          ASSERT_EQ(result, 0);
          its.Touch(&user, to, 4800, true);  // the program's next kernel
        }
        EXPECT_EQ(its.races == 0, waits) << "host " << host;
        auto count = [&](const char* call) { return std::count(its.calls.begin(), its.calls.end(), call); };
        EXPECT_EQ(count("scatter"), 6);
        EXPECT_EQ(count("gather"), 6);
        if (host == 1) {
          EXPECT_EQ(its.calls[3], "send") << "two segments are reduced ahead";
        }
        auto first = std::find(its.calls.begin(), its.calls.end(), "gather");
        EXPECT_NE(std::find(first, its.calls.end(), "send"), its.calls.end()) << "a segment waited for others' rounds";
      }
    }
  }
}

TEST_F(Scene, WhatTheTableIsNotForIsToldInOneLine) {
  gpus_ = 2;
  Use(StarTable({4, 4, 4}, 3, 2), 6);
  auto refusal = [&](Nics nics) {
    wire_.lanes.clear();
    wire_.splits.clear();
    refused_.clear();
    EXPECT_EQ(Run(3, 64, [&](int, int) { return nics; })[0], (Names{"nccl", "nccl", "nccl"}));
    return refused_.substr(0, refused_.find("; NCCL runs every AllReduce"));
  };
  EXPECT_EQ(refusal({8, 8}), "a rank has 8 NICs, the table is for 4");
  host_of_ = [](int rank) { return rank == 0 ? 0 : 1 + rank % 2; };
  EXPECT_EQ(refusal({4, 4}), "a host has 1 ranks, the table is for hosts of 2");
  host_of_ = [](int rank) { return rank / 3; };
  EXPECT_EQ(refusal({4, 4}), "2 hosts, the table is for 3");
  host_of_ = nullptr;
  devices_ = [](HostDevice& device) { device.between_gpus = device.identity == 3 ? Joint::kApart : Joint::kJoined; };
  EXPECT_EQ(refusal({4, 4}), "ranks of a host do not reach each other by NVLink");
  devices_ = [](HostDevice& device) {
    device.identity = 0;
    device.on_one_gpu = Joint::kByTurns;
  };
  EXPECT_EQ(refusal({4, 4}), "ranks share a GPU without the Multi-Process Service; start nvidia-cuda-mps-control -d");
}

TEST(Agreement, RanksThatHaveDifferentTablesOrNoneUseNone) {
  Table table;
  table.hosts = 3;
  table.gpus = 1;
  table.nics = 4;
  std::vector<Word> words;
  for (uint64_t host = 1; host <= 3; ++host) words.push_back({7, host, host, 4, 4});
  std::string why;
  EXPECT_TRUE(Agrees(words, table, &why)) << why;
  words[2].digest = 8;
  EXPECT_FALSE(Agrees(words, table, &why));
  EXPECT_EQ(why, "ranks have different tables of rounds or variables");
  for (Word& word : words) word.digest = 0;
  EXPECT_FALSE(Agrees(words, table, &why));
  EXPECT_EQ(why, "a rank has no table of rounds that it can read");
}

TEST_F(Scene, ATableThatCannotBeReadIsNotUsed) {
  Use("R2CCLG04 and nothing", 3);
  EXPECT_EQ(Run(3, 64, AllLeft)[0], (Names{"nccl", "nccl", "nccl"}));
}

TEST_F(Scene, WhatWeCannotRunIsNccls) {
  Use(StarTable({4, 4, 4}, 3), 1);
  HostDevice device;
  device.graph = 7;
  HostComm comm{1, 0};
  Takeover takeover(
      kHostNccl, device, {path_, 0, 1, {}}, 0, [](Nics*) { return false; }, [](const std::string&, bool) {});
  int32_t value = 5;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(takeover.AllReduce({&value, &value, 1, 2, 0, &comm, &device.capturing}), 0);  // nothing is open yet
    EXPECT_EQ(takeover.AllReduce({&value, &value, 1, 2, 0, &comm, &device.unknown}), 0);
    EXPECT_EQ(takeover.AllReduce({&value, &value, 1, 2, 4, &comm, nullptr}), 0);  // an average of integers
  }
  EXPECT_EQ(comm.splits, 0);
  EXPECT_EQ(wire_.by_nccl, 9);
}

// Does `work` on a thread for each of three ranks, each a host with a device and a Takeover of its own.
class Graphs : public Scene {
 protected:
  struct Host {
    int rank;
    HostDevice device;
    HostComm comm;
    std::unique_ptr<Takeover> takeover;
    Nics nics = {4, 4};
    std::vector<std::string> said;

    // Of ones; the algorithm that ran.
    std::string AllReduce(Stream stream) {
      std::vector<int32_t> data(300, rank + 1);
      EXPECT_EQ(takeover->AllReduce({data.data(), data.data(), data.size(), 2, 0, &comm, stream}), 0);
      EXPECT_EQ(data, std::vector<int32_t>(300, 6));
      return takeover->Choice(&comm);
    }
    std::string Captured(uint64_t number) {
      device.graph = number;
      std::string choice = AllReduce(&device.capturing);
      device.graph = 0;
      return choice;
    }
  };

  void OnHosts(const std::function<void(Host&)>& work, const Nccl& nccl = kHostNccl) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        Host host;
        host.rank = rank;
        host.comm = {1, rank};
        host.takeover = std::make_unique<Takeover>(
            nccl, host.device, Settings{path_, 0, 4, {}}, static_cast<uint64_t>(rank),
            [&](Nics* nics) { return *nics = host.nics, true; },
            [&](const std::string& text, bool) { host.said.push_back(text); });
        work(host);
        host.takeover->Forget(&host.comm);
      });
    }
    for (auto& thread : threads) thread.join();
  }
};

// Every four operations the ranks would learn of a loss; a graph is for long, so they agree when one is captured.
TEST_F(Graphs, EachGraphHasWhatIsBestWhenItIsCaptured) {
  Use(StarTable({4, 3, 4}, 5), 3);
  OnHosts([](Host& host) {
    EXPECT_EQ(host.AllReduce(nullptr), "nccl");
    EXPECT_EQ(host.Captured(1), "nccl");
    host.nics.left = host.rank == 1 ? 3 : 4;
    EXPECT_EQ(host.Captured(1), "nccl");  // one graph, one answer
    EXPECT_EQ(host.AllReduce(nullptr), "nccl");
    EXPECT_EQ(host.Captured(2), "star");
    EXPECT_EQ(host.Captured(2), "star");
    host.nics.left = 4;
    EXPECT_EQ(host.Captured(3), "nccl");
  });
}

// A graph may be launched at any time as long as it is there, so nothing else may use its memory.
TEST_F(Graphs, AGraphsMemoryIsItsOwnUntilItIsGone) {
  Use(StarTable({4, 4, 4}, 5), 3);
  OnHosts([](Host& host) {
    host.AllReduce(nullptr);
    auto captured = [&](uint64_t number) {
      EXPECT_EQ(host.Captured(number), "star");
      return host.device.allocated.load();
    };
    int first = captured(1);
    EXPECT_EQ(host.device.kept.empty(), host.rank != 0);  // only rank 0 receives what it adds
    EXPECT_EQ(captured(1), first);
    int second = captured(2);
    EXPECT_EQ(second > first, host.rank == 0);
    host.device.kept.clear();
    EXPECT_EQ(captured(3), second);
    host.device.streams_of = 3;  // it is still being captured while the next ones are
    EXPECT_EQ(captured(4), second);
    EXPECT_EQ(captured(5) > second, host.rank == 0);
  });
}

TEST_F(Graphs, OperationsOfAGroupRunWhenItHasEnded) {
  Use(StarTable({4, 4, 4}, 5), 3);
  OnHosts([](Host& host) {
    for (const char* choice : {"nccl", "nccl", "star", "star"}) {  // agreed on after four operations
      std::vector<int32_t> one(300, host.rank);
      std::vector<int32_t> other(700, 10 * host.rank);
      std::vector<Call> calls = {{one.data(), one.data(), 300, 2, 0, &host.comm, nullptr},
                                 {other.data(), other.data(), 700, 2, 0, &host.comm, nullptr}};
      EXPECT_TRUE(host.takeover->Waits(calls[0]));
      EXPECT_EQ(host.takeover->RunGroup(calls), 0);
      EXPECT_EQ(one, std::vector<int32_t>(300, 3));
      EXPECT_EQ(other, std::vector<int32_t>(700, 30));
      EXPECT_EQ(host.takeover->Choice(&host.comm), std::string(choice));
    }
    std::vector<int32_t> none(1);
    EXPECT_FALSE(host.takeover->Waits({none.data(), none.data(), 1, 2, 0, nullptr, nullptr}));
    EXPECT_FALSE(host.takeover->Waits({none.data(), none.data(), 1, 2, 4, &host.comm, nullptr}));
  });
}

// One thread that drives all ranks of a job, as a process with several GPUs does.
TEST_F(Scene, AGroupMayHaveAllRanksOfAJob) {
  Use(StarTable({4, 4, 4}, 5), 3);
  HostDevice device;
  std::unique_ptr<Takeover> takeover = Whole(device, 0);
  std::vector<HostComm> comms = {{1, 0}, {1, 1}, {1, 2}};
  for (int i = 0; i < 3; ++i) {
    std::vector<std::vector<int32_t>> data(3, std::vector<int32_t>(64, 1));
    std::vector<Call> calls;
    for (size_t rank = 0; rank < 3; ++rank) {
      calls.push_back({data[rank].data(), data[rank].data(), 64, 2, 0, &comms[rank], nullptr});
    }
    EXPECT_EQ(takeover->RunGroup(calls), 0);
    for (const auto& one : data) EXPECT_EQ(one, std::vector<int32_t>(64, 3));
  }
}

int SplitInProgress(Comm parent, int color, int key, Comm* made, void* config) {
  int result = Split(parent, color, key, made, config);
  return result == 0 ? kNcclInProgress : result;
}

int NoError(Comm, int* state) {
  *state = kNcclSuccess;
  return 0;
}

TEST_F(Graphs, ACommunicatorThatDoesNotBlockIsLeftToNccl) {
  Use(StarTable({4, 4, 4}, 5), 3);
  Nccl nccl = kHostNccl;
  nccl.comm_split = SplitInProgress;
  nccl.comm_async_error = NoError;
  OnHosts(
      [](Host& host) {
        for (int i = 0; i < 3; ++i) EXPECT_EQ(host.AllReduce(nullptr), "nccl");
        EXPECT_EQ(host.comm.splits, 1);
        EXPECT_EQ(host.said, (Names{"a communicator that does not block; NCCL runs every AllReduce of it"}));
      },
      nccl);
}

// Rank 2 stops calling at some operation, as if its host had died; the others' operations end when they are aborted.
TEST_F(Scene, AbortEndsOperationsOfAnotherThread) {
  Use(StarTable({4, 4, 4}, 5), 3);
  for (int lasts : {0, 1, 4}) {
    SCOPED_TRACE(lasts);
    wire_.lanes.clear();
    wire_.aborted.clear();
    HostDevice device;
    std::vector<HostComm> comms = {{1, 0}, {1, 1}, {1, 2}};
    std::vector<std::unique_ptr<Takeover>> takeovers;
    std::vector<int> results(3, 0);
    std::atomic<int> reached = 0;
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 3; ++rank) {
      takeovers.push_back(Whole(device, rank));
      threads.emplace_back([&, rank, takeover = takeovers.back().get()] {
        std::vector<int32_t> data(64, 1);
        for (int i = 0; results[rank] == 0 && (rank != 2 || i < lasts); ++i) {
          if (rank == 0 && i == lasts) reached = 1;
          results[rank] = takeover->AllReduce({data.data(), data.data(), 64, 2, 0, &comms[rank], nullptr});
        }
      });
    }
    while (reached == 0) std::this_thread::yield();
    for (size_t rank = 0; rank < 3; ++rank) {
      std::shared_ptr<void> left = takeovers[rank]->Abort(&comms[rank]);
      EndCalls(comms[rank]);  // what NCCL's own abort does
    }
    for (auto& thread : threads) thread.join();
    EXPECT_NE(results[0], 0);
    EXPECT_NE(results[1], 0);
  }
}

// In the middle of work that goes well: no call touches a communicator that is gone.
TEST_F(Scene, AbortWhileAllWork) {
  Use(StarTable({4, 4, 4}, 5), 3);
  for (int round = 0; round < 10; ++round) {
    wire_.lanes.clear();
    wire_.aborted.clear();
    HostDevice device;
    std::vector<HostComm> comms = {{1, 0}, {1, 1}, {1, 2}};
    std::vector<std::unique_ptr<Takeover>> takeovers;
    std::atomic<int> operations = 0;
    int64_t begin_ns = NowNs();
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 3; ++rank) {
      takeovers.push_back(Whole(device, rank));
      threads.emplace_back([&, rank, takeover = takeovers.back().get()] {
        std::vector<int32_t> ones(64, 1);
        std::vector<int32_t> sums(64);
        while (takeover->AllReduce({ones.data(), sums.data(), 64, 2, 0, &comms[rank], nullptr}) == 0) {
          EXPECT_EQ(sums, std::vector<int32_t>(64, 3));
          ++operations;
        }
      });
    }
    while (operations < 3 * round) std::this_thread::yield();
    for (size_t rank = 0; rank < 3; ++rank) {
      std::shared_ptr<void> left = takeovers[rank]->Abort(&comms[rank]);
      EndCalls(comms[rank]);
    }
    for (auto& thread : threads) thread.join();
    EXPECT_LT(NowNs() - begin_ns, 10'000 * kMillisecond)
        << "an operation that began while it was aborted waited for the others";
  }
}

// What NCCL allocates next may lie where the aborted communicator lay. Rank 0's is used before the abort has returned.
TEST_F(Scene, TheNextCommunicatorAtTheAddressKeepsItsPlace) {
  Use(StarTable({4, 4, 4}, 3), 3);
  HostDevice device;
  std::vector<HostComm> comms = {{1, 0}, {1, 1}, {1, 2}};
  std::vector<std::unique_ptr<Takeover>> takeovers;
  for (size_t rank = 0; rank < 3; ++rank) takeovers.push_back(Whole(device, rank));
  auto reduce_twice = [&](const char* last) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<int32_t> data(64, 1);
        for (int32_t sum : {3, 9}) {
          ASSERT_EQ(takeovers[rank]->AllReduce({data.data(), data.data(), 64, 2, 0, &comms[rank], nullptr}), 0);
          ASSERT_EQ(data, std::vector<int32_t>(64, sum));
        }
        EXPECT_STREQ(takeovers[rank]->Choice(&comms[rank]), last);
      });
    }
    for (auto& thread : threads) thread.join();
  };
  std::shared_ptr<void> until_aborted = takeovers[0]->Abort(&comms[0]);
  int32_t value = 1;
  EXPECT_NE(takeovers[0]->AllReduce({&value, &value, 1, 2, 0, &comms[0], nullptr}), 0);
  takeovers[0]->Forget(&comms[0]);
  reduce_twice("star");
  until_aborted.reset();
  reduce_twice("star");
  EXPECT_EQ(comms[0].splits, comms[1].splits);
}

int BadCount(Comm, int*) { return 4; }

TEST_F(Scene, NothingIsKeptOfACommunicatorThatNcclDoesNotKnow) {
  Use(StarTable({4, 4, 4}, 3), 1);
  Nccl nccl = kHostNccl;
  nccl.comm_count = BadCount;
  HostDevice device;
  HostComm comm{1, 0};
  int asked = 0;
  Takeover takeover(
      nccl, device, {path_, 0, 1, {}}, 0, [&](Nics* nics) { return ++asked, *nics = {4, 4}, true; },
      [](const std::string&, bool) {});
  int32_t value = 5;
  EXPECT_EQ(takeover.AllReduce({&value, &value, 1, 2, 0, &comm, nullptr}), 0);  // as NCCL's own says
  nccl.comm_count = Count;
  wire_.ranks = 2;
  wire_.aborted.insert(1);  // its split fails, so it was tried
  EXPECT_EQ(takeover.AllReduce({&value, &value, 1, 2, 0, &comm, nullptr}), 5);
}

TEST(Settings, WhatCannotBeReadIsToldAndTheDefaultHolds) {
  for (const auto& [text, every, mistakes] : {std::tuple{"", 4, 0U},
                                              {"7", 7, 0U},
                                              {"0", 4, 1U},
                                              {"-1", 4, 1U},
                                              {"7x", 4, 1U},
                                              {"4MiB", 4, 1U},
                                              {"4294967296", 4, 1U}}) {
    setenv("R2CC_AGREE_EVERY", text, 1);
    Settings settings = ReadSettings();
    EXPECT_EQ(settings.every, every) << text;
    EXPECT_EQ(settings.mistakes.size(), mistakes) << text;
  }
  setenv("R2CC_AGREE_EVERY", "0", 1);
  EXPECT_EQ(ReadSettings().mistakes[0], "R2CC_AGREE_EVERY=0: give a whole number from 1 to 1000000; 4 is used instead");
  unsetenv("R2CC_AGREE_EVERY");
}

TEST(Settings, ATableThatCannotBeReadIsToldInAnyCase) {
  std::vector<std::string> told;
  HostDevice device;
  Takeover takeover(
      kHostNccl, device, Settings{"/nowhere", 0, 1, {"a mistake"}}, 0, [](Nics*) { return false; },
      [&](const std::string& text, bool mistake) {
        if (mistake) told.push_back(text);
      });
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0], "a mistake");
  EXPECT_NE(told[1].find("/nowhere"), std::string::npos) << told[1];
}

TEST(Table, RefusesWhatIsCutOffOrPointsOutside) {
  std::string whole = StarTable({4, 4, 4}, 2);
  Table table;
  ASSERT_TRUE(ParseTable(whole, &table).ok());
  EXPECT_EQ(table.entries.size(), 1U);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) EXPECT_FALSE(ParseTable(whole.substr(0, bytes), &table).ok());
  std::string outside = whole;
  int32_t far = 99;
  std::memcpy(outside.data() + outside.size() - 16, &far, 4);  // the last operation's peer
  EXPECT_FALSE(ParseTable(outside, &table).ok());
}

TEST(Table, RefusesSegmentsThatAreNotTheVectors) {
  Table table;
  auto sound = [&](std::vector<uint32_t> segments, uint32_t gpus) {
    return ParseTable(StarTable({4, 4, 4}, 4, gpus, 1, std::move(segments)), &table).ok();
  };
  EXPECT_TRUE(sound({4}, 1));
  EXPECT_TRUE(sound({1, 4}, 2));
  EXPECT_FALSE(sound({1, 4}, 1));  // nothing is reduced inside hosts of one GPU
  EXPECT_FALSE(sound({2, 3}, 2));
  EXPECT_FALSE(sound({2, 2, 4}, 2));
  EXPECT_FALSE(sound({2, 5}, 2));
  std::string wide = StarTable({4, 4, 4}, 4, 2, 1, {2, 4});
  int32_t end = 3;
  std::memcpy(wide.data() + wide.size() - 8, &end, 4);  // the last operation is of chunks [3, 3) then: of none
  EXPECT_FALSE(ParseTable(wide, &table).ok());
  int32_t begin = 1;
  std::memcpy(wide.data() + wide.size() - 12, &begin, 4);  // [1, 3): of two segments
  EXPECT_FALSE(ParseTable(wide, &table).ok());
  begin = 2;
  std::memcpy(wide.data() + wide.size() - 12, &begin, 4);
  EXPECT_TRUE(ParseTable(wide, &table).ok());
}

// A table of r2ccl_core.gpu's, all of its entries: R2CCL_TEST_TABLE names it.
TEST_F(Scene, TheTableOfTheDay) {
  const char* path = std::getenv("R2CCL_TEST_TABLE");
  if (path == nullptr) GTEST_SKIP() << "R2CCL_TEST_TABLE is not set";
  std::ifstream file(path, std::ios::binary);
  std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Table table;
  ASSERT_TRUE(ParseTable(data, &table).ok());
  Use(data, static_cast<int>(table.hosts * table.gpus));
  gpus_ = static_cast<int>(table.gpus);
  for (const Entry& entry : table.entries) {
    if (entry.least_bytes > size_t{16} << 20) continue;  // the same in more rounds
    size_t count = entry.least_bytes / 4 + 13;
    auto left = [&](int rank, int) {
      return Nics{static_cast<int>(table.nics), static_cast<int>(entry.left[static_cast<size_t>(rank / gpus_)])};
    };
    EXPECT_EQ(Run(2, count, left)[0], (Names{"nccl", entry.name})) << entry.least_bytes;
  }
}

}  // namespace
}  // namespace r2ccl::cuda
