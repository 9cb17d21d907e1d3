// The executor: ring AllReduce programs over the transport, checked element by element.
#include "collective/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "collective/pattern.h"
#include "pair.h"

namespace r2ccl {
namespace {

// One lane of ring AllReduce for `rank`, over elements [begin, end) in as many chunks as ranks.
std::vector<Step> RingLane(int64_t rank, int64_t ranks, int64_t lane, int64_t begin, int64_t end) {
  std::vector<Step> steps;
  auto add = [&](int64_t chunk, bool receives, bool sends, int64_t flags) {
    chunk = ((chunk % ranks) + ranks) % ranks;
    int64_t length = end - begin;
    Step step{receives ? lane : -1,
              sends ? lane : -1,
              begin + length * chunk / ranks,
              begin + length * (chunk + 1) / ranks,
              flags,
              -1};
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].begin < step.end && step.begin < steps[i].end) step.barrier = static_cast<int64_t>(i);
    }
    steps.push_back(step);
  };
  if (ranks == 1) {
    add(0, false, false, Step::kOwnIsInput);
    return steps;
  }
  add(rank, false, true, Step::kSendFromInput);
  for (int64_t i = 1; i < ranks; ++i) add(rank - i, true, true, Step::kReduce | Step::kOwnIsInput);
  for (int64_t i = 1; i < ranks; ++i) add(rank + 1 - i, true, i + 1 < ranks, 0);
  return steps;
}

struct Rank {
  std::shared_ptr<Net> net;
  std::vector<std::shared_ptr<Listener>> listeners;
  std::vector<std::unique_ptr<Relay>> relays;
  std::vector<std::shared_ptr<SendComm>> senders;
  std::vector<std::shared_ptr<RecvComm>> receivers;
  std::vector<int64_t> destinations, sources;
  std::unique_ptr<Executor> executor;
  std::vector<char> input, output;
  Status status;
};

class Ring {
 public:
  Ring(const Params& params, int64_t ranks, int64_t lanes, int64_t elements, std::vector<int64_t> abreast = {})
      : ranks_(static_cast<size_t>(ranks)), elements_(elements), abreast_(std::move(abreast)) {
    for (int64_t r = 0; r < ranks; ++r) {
      Rank& rank = At(r);
      EXPECT_TRUE(Net::Create(params, LoopbackNics(static_cast<int>(r) + 1, 2), &rank.net).ok());
      for (int64_t lane = 0; lane < lanes && ranks > 1; ++lane) {
        rank.listeners.emplace_back();
        EXPECT_TRUE(rank.net->Listen(&rank.listeners.back()).ok());
        if (r == 0) rank.relays.push_back(std::make_unique<Relay>(rank.listeners.back()->handle()));
      }
    }
    for (int64_t r = 0; r < ranks; ++r) Connect(r, ranks, lanes);
  }

  ~Ring() {
    for (Rank& rank : ranks_) {
      for (auto& comm : rank.senders) comm->Close();
      for (auto& comm : rank.receivers) comm->Close();
      rank.net->Shutdown();
    }
  }

  Rank& At(int64_t r) { return ranks_[static_cast<size_t>(r) % ranks_.size()]; }

  // Runs one AllReduce on a thread a rank. How many elements are wrong over all ranks; -1 after an error.
  // The last rank may run another `odd` operation; then the first one hears of it, and the others begin after it has
  // ended: else it might only hear that the odd one, which noticed first, has closed its connections.
  int64_t Run(DataType type, ReduceOp op, int64_t iteration, bool in_place, const Operation* odd = nullptr) {
    Pattern pattern{static_cast<int64_t>(ranks_.size()), iteration, 3, op};
    auto count = static_cast<size_t>(elements_);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      rank.input.resize(count * SizeOf(type));
      rank.output.assign(count * SizeOf(type), '\x77');
      FillPattern(pattern, static_cast<int64_t>(r), type, in_place ? rank.output.data() : rank.input.data(), count);
    }
    std::atomic<bool> first_ended{false};
    std::vector<std::thread> threads;
    for (Rank& rank : ranks_) {
      Operation operation{Collective::kAllReduce, type, op, 0, elements_};
      if (odd != nullptr && &rank == &ranks_.back()) operation = *odd;
      bool waits = odd != nullptr && &rank != &ranks_.front() && &rank != &ranks_.back();
      threads.emplace_back([&rank, operation, in_place, waits, &first_ended] {
        if (waits) first_ended.wait(false);
        const char* input = in_place ? rank.output.data() : rank.input.data();
        rank.status = rank.executor->Run(input, rank.output.data(), operation, [] { return false; });
      });
    }
    threads.front().join();
    first_ended = true;
    first_ended.notify_all();
    for (size_t r = 1; r < threads.size(); ++r) threads[r].join();
    size_t wrong = 0;
    for (Rank& rank : ranks_) {
      if (!rank.status.ok()) return -1;
      wrong += CheckPattern(pattern, type, rank.output.data(), count);
    }
    return static_cast<int64_t>(wrong);
  }

 private:
  void Connect(int64_t r, int64_t ranks, int64_t lanes) {
    Rank& rank = At(r);
    Rank& next = At(r + 1);
    std::vector<std::vector<Step>> programs;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      int64_t begin = elements_ * lane / lanes;
      int64_t end = elements_ * (lane + 1) / lanes;
      programs.push_back(RingLane(r, ranks, lane, begin, end));
      if (ranks == 1) continue;
      auto i = static_cast<size_t>(lane);
      const Handle& handle = next.relays.empty() ? next.listeners[i]->handle() : next.relays[i]->handle();
      rank.senders.emplace_back();
      EXPECT_TRUE(rank.net->Connect(handle, &rank.senders.back()).ok());
      std::shared_ptr<RecvComm> accepted;
      EXPECT_TRUE(Until([&] { return (accepted = next.listeners[i]->Accept()) != nullptr; }));
      next.receivers.push_back(accepted);
      next.sources.push_back(r);
      rank.destinations.push_back((r + 1) % ranks);
      bool ready = false;
      EXPECT_TRUE(Until([&] { return !rank.senders.back()->Ready(&ready).ok() || ready; }));
    }
    programs_.push_back(std::move(programs));
    if (programs_.size() < ranks_.size()) return;
    for (size_t k = 0; k < ranks_.size(); ++k) {
      Rank& each = ranks_[k];
      each.executor =
          std::make_unique<Executor>(programs_[k], abreast_, each.senders, each.receivers, each.destinations,
                                     each.sources, each.net->environment().notifier.get());
      EXPECT_EQ(each.executor->Validate(elements_).message(), "");
    }
  }

  std::vector<Rank> ranks_;
  const int64_t elements_;
  const std::vector<int64_t> abreast_;
  std::vector<std::vector<std::vector<Step>>> programs_;
};

constexpr DataType kSummedTypes[] = {DataType::kFloat32, DataType::kFloat64,  DataType::kInt32, DataType::kInt64,
                                     DataType::kFloat16, DataType::kBfloat16, DataType::kUint8, DataType::kInt8};
constexpr ReduceOp kSummingOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd, ReduceOp::kAvg};

TEST(Executor, RingAllReduceOfEveryTypeAndOperation) {
  Ring ring(QuickParams(2), 3, 2, 50001);
  int64_t iteration = 0;
  for (DataType type : kSummedTypes) {
    for (ReduceOp op : kSummingOps) {
      bool in_place = ++iteration % 2 == 0;
      ASSERT_EQ(ring.Run(type, op, iteration, in_place), 0) << static_cast<int>(type) << " " << static_cast<int>(op);
    }
  }
}

TEST(Executor, RingsOfOtherSizes) {
  for (int64_t ranks : {1, 2, 5}) {
    for (int64_t elements : {0, 1, 3, 1000}) {
      Ring ring(QuickParams(2), ranks, 2, elements);
      for (bool in_place : {false, true}) {
        ASSERT_EQ(ring.Run(DataType::kInt32, ReduceOp::kSum, 1, in_place), 0) << ranks << " ranks, " << elements;
      }
    }
  }
}

TEST(Executor, APathLostInMidCollective) {
  for (int mode : {1, 2}) {
    for (Cable wire : {Cable::kRefused, Cable::kSilent}) {
      Ring ring(QuickParams(mode), 3, 2, 2000000);
      std::thread fault([&] {
        Until([&] { return ring.At(0).net->environment().counters[1].received_bytes.load() > 500000; });
        for (auto& relay : ring.At(0).relays) relay->Set(1, wire);
      });
      for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(ring.Run(DataType::kFloat32, ReduceOp::kSum, i, i == 1), 0);
      fault.join();
      EXPECT_TRUE(Until([&] { return CountEvents(*ring.At(0).net, "path_down") >= 1; }));
    }
  }
}

TEST(Executor, LanesAbreast) {
  for (std::vector<int64_t> abreast : {std::vector<int64_t>{7, 7, 7}, {0, 1, 0}}) {
    Ring ring(QuickParams(2), 4, 3, 30001, abreast);
    for (int64_t i = 0; i < 5; ++i) ASSERT_EQ(ring.Run(DataType::kInt32, ReduceOp::kSum, i, i % 2 == 0), 0);
  }
}

// A rank that passes on what it gets, in two lanes of kHops messages; who is before and after it is played by the test.
class Relaying {
 public:
  static constexpr int64_t kHops = 40;
  static constexpr int64_t kElements = 100;  // of a message

  explicit Relaying(const std::vector<int64_t>& abreast)
      : ring_(PatientParams(2), 3, 2, 1000), before_(ring_.At(0)), after_(ring_.At(2)) {
    Rank& rank = ring_.At(1);  // no relay, which would take its time, at either side
    std::vector<std::vector<Step>> lanes(2);
    for (int64_t lane = 0; lane < 2; ++lane) {
      for (int64_t hop = 0; hop < kHops; ++hop) {
        int64_t begin = (lane * kHops + hop) * kElements;
        lanes[static_cast<size_t>(lane)].push_back({lane, lane, begin, begin + kElements, 0, -1});
      }
    }
    executor_ = std::make_unique<Executor>(std::move(lanes), abreast, rank.senders, rank.receivers, rank.destinations,
                                           rank.sources, rank.net->environment().notifier.get());
    EXPECT_TRUE(executor_->Validate(2 * kHops * kElements).ok());
    output_.resize(2 * kHops * kElements);
    for (size_t i = 0; i < output_.size(); ++i) sent_.push_back(static_cast<int32_t>(i));
  }

  static constexpr Operation kOperation{.type = DataType::kInt32, .elements = 2 * kHops * kElements};

  void Begin() {
    returned_ = {};
    std::fill(output_.begin(), output_.end(), -1);
    for (auto& requests : requests_) requests.clear();
    for (size_t lane = 0; lane < 2; ++lane) Expect(lane);
    thread_ = std::thread([this] {
      status_ = executor_->Run(output_.data(), output_.data(), kOperation, [this] { return given_up_.load(); });
    });
  }

  void Send(size_t lane, int64_t hops) {
    for (int64_t i = 0; i < hops; ++i) {
      Request* request = nullptr;
      size_t place = (lane * kHops + sends_[lane].size()) * kElements;
      EXPECT_TRUE(before_.senders[lane]
                      ->Isend(&sent_[place], kElements * sizeof(int32_t), &request, false, TagOf(kOperation))
                      .ok());
      sends_[lane].push_back(request);
    }
  }

  // How many messages of the lane came back until now.
  int64_t Returned(size_t lane) {
    bool done = true;
    while (done && returned_[lane] < kHops) {
      uint64_t size = 0;
      EXPECT_TRUE(after_.receivers[lane]->Test(requests_[lane].back(), &done, &size).ok());
      if (!done) break;
      auto place = (static_cast<int64_t>(lane) * kHops + returned_[lane]) * kElements;
      EXPECT_TRUE(std::equal(back_[lane].begin(), back_[lane].end(), sent_.begin() + place)) << "lane " << lane;
      if (++returned_[lane] < kHops) Expect(lane);
    }
    return returned_[lane];
  }

  void End() {
    given_up_ = testing::Test::HasFailure();  // then it would never return
    thread_.join();
    EXPECT_EQ(status_.message(), "");
    EXPECT_EQ(output_, sent_);
    for (size_t lane = 0; lane < 2; ++lane) {
      for (Request* request : sends_[lane]) {
        bool done = false;
        EXPECT_TRUE(Until([&] { return !before_.senders[lane]->Test(request, &done, nullptr).ok() || done; }));
      }
      sends_[lane].clear();
    }
  }

 private:
  void Expect(size_t lane) {
    Request* request = nullptr;
    back_[lane].assign(kElements, -1);
    EXPECT_TRUE(after_.receivers[lane]->Irecv(back_[lane].data(), kElements * sizeof(int32_t), &request).ok());
    requests_[lane].push_back(request);
  }

  Ring ring_;
  Rank& before_;
  Rank& after_;
  std::unique_ptr<Executor> executor_;
  std::vector<int32_t> sent_, output_;
  std::array<std::vector<Request*>, 2> sends_, requests_;
  std::array<std::vector<int32_t>, 2> back_;
  std::array<int64_t, 2> returned_{};
  std::thread thread_;
  std::atomic<bool> given_up_{false};
  Status status_;
};

// By how many messages the second lane led, at most, while the first one was given its messages one by one.
int64_t GreatestLead(Relaying& relaying) {
  relaying.Begin();
  relaying.Send(1, Relaying::kHops);
  const int64_t deadline_ns = NowNs() + 30'000 * kMillisecond;
  int64_t lead = 0;
  for (int64_t hop = 0; hop < Relaying::kHops; ++hop) {
    relaying.Send(0, 1);
    // Without a pause: two milliseconds without progress end the patience.
    while (relaying.Returned(0) <= hop && NowNs() < deadline_ns) {
    }
    lead = std::max(lead, relaying.Returned(1) - hop - 1);
  }
  EXPECT_TRUE(Until([&] { return relaying.Returned(1) == Relaying::kHops; }));
  relaying.End();
  return lead;
}

TEST(Executor, LanesOfAGroupWaitForEachOther) {
  // A tenth of the steps, one more, and what returns while the test looks. A machine that is slow for a moment ends the
  // patience, so one good round of many is asked for; lanes by themselves have none.
  constexpr int64_t kMost = Relaying::kHops / 10 + 1 + 4;
  Relaying together({3, 3});
  EXPECT_TRUE(Until([&] { return GreatestLead(together) <= kMost; }));
  Relaying apart({3, 4});
  int64_t lead = 0;
  for (int64_t i = 0; i < 5; ++i) lead = std::max(lead, GreatestLead(apart));
  EXPECT_GT(lead, kMost);
}

TEST(Executor, AGroupThatGetsNoFurtherLetsGo) {
  Relaying relaying({0, 0});
  for (int64_t i = 0; i < 3; ++i) {
    relaying.Begin();
    relaying.Send(1, Relaying::kHops);  // all of it comes back before the first lane gets anything
    EXPECT_TRUE(Until([&] { return relaying.Returned(1) == Relaying::kHops; }));
    relaying.Send(0, Relaying::kHops);
    EXPECT_TRUE(Until([&] { return relaying.Returned(0) == Relaying::kHops; }));
    relaying.End();
  }
}

TEST(Executor, FailStopEndsOnEveryRankAndForGood) {
  Params params = QuickParams(0);
  Ring ring(params, 3, 1, 4000000);
  std::thread fault([&] {
    Until([&] { return ring.At(0).net->environment().counters[1].received_bytes.load() > 500000; });
    ring.At(0).relays[0]->Set(1, Cable::kRefused);
  });
  int64_t result = 0;
  for (int64_t i = 0; i < 100 && result == 0; ++i) result = ring.Run(DataType::kFloat32, ReduceOp::kSum, i, false);
  fault.join();
  EXPECT_EQ(result, -1);
  for (int64_t r = 0; r < 3; ++r) EXPECT_FALSE(ring.At(r).status.ok()) << "rank " << r;
  EXPECT_EQ(ring.Run(DataType::kFloat32, ReduceOp::kSum, 0, false), -1);
  EXPECT_NE(ring.At(1).status.message().find("an earlier collective failed"), std::string::npos);
}

// Messages of one size that mean something else must not be taken for one's own: a wrong result would look right.
TEST(Executor, APeerThatRunsSomethingElseIsAnErrorThatNamesIt) {
  constexpr int64_t kElements = 3000;
  const Operation own{Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 0, kElements};
  Operation other_type = own, other_op = own, other_collective = own, other_root = own, other_count = own,
            other_call = own;
  other_type.type = DataType::kInt32;
  other_op.op = ReduceOp::kMax;
  other_collective.collective = Collective::kReduceScatter;
  other_root.root = 1;
  other_count.elements = 2 * kElements;
  other_call.call = 1;
  const std::string prefix = "rank 2 runs ", suffix = " while this rank runs all_reduce of float32 (sum)";
  const std::string unlike =
      prefix + "all_reduce of float32 (sum) of another number of elements, with another root, or as another call";
  for (const auto& [odd, text] : {std::pair(&other_type, prefix + "all_reduce of int32 (sum)" + suffix),
                                  {&other_op, prefix + "all_reduce of float32 (max)" + suffix},
                                  {&other_collective, prefix + "reduce_scatter of float32 (sum)" + suffix},
                                  {&other_root, unlike},
                                  {&other_count, unlike},
                                  {&other_call, unlike}}) {
    Ring ring(QuickParams(2), 3, 1, kElements);
    EXPECT_EQ(ring.Run(DataType::kFloat32, ReduceOp::kSum, 1, false), 0) << "the control";
    EXPECT_EQ(ring.Run(DataType::kFloat32, ReduceOp::kSum, 1, false, odd), -1);
    EXPECT_EQ(ring.At(0).status.message(), text);
  }
}

TEST(Executor, APeerThatEndsIsNamedByItsRank) {
  for (int64_t gone : {1, 2}) {  // the one it sends to, the one it receives from
    Ring ring(QuickParams(2), 3, 1, 1000);
    for (auto& receiver : ring.At(gone).receivers) receiver->Close();
    for (auto& sender : ring.At(gone).senders) sender->Close();
    Rank& rank = ring.At(0);
    // A small message that is sent before is copied and done, and nobody else runs here whose end would be heard of.
    ASSERT_TRUE(gone != 1 || Until([&] { return !rank.senders.front()->failure().ok(); }));
    std::vector<float> data(1000);
    Status status = rank.executor->Run(data.data(), data.data(), {.elements = 1000}, [] { return false; });
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_EQ(status.message().find("the connection with rank " + std::to_string(gone) + ": "), 0u) << status.message();
  }
}

TEST(Operation, TagsTellOperationsApartAndFitTheirPlace) {
  std::set<uint32_t> tags;
  size_t made = 0;
  for (auto collective : {Collective::kAllReduce, Collective::kAllToAll}) {
    for (auto type : {DataType::kFloat32, DataType::kBfloat16, DataType::kBool}) {
      for (auto op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kAvg}) {
        for (int64_t root : {0, 1, 255}) {
          for (int64_t elements : {0, 1, 1 << 20, 1 << 21}) {
            for (int64_t call : {0, 1, 2}) {
              uint32_t tag = TagOf({collective, type, op, root, elements, call});
              EXPECT_LE(tag, kMostTag);
              tags.insert(tag);
              ++made;
            }
          }
        }
      }
    }
  }
  EXPECT_GE(tags.size() + 8, made) << "by chance some may be alike";
  EXPECT_EQ(Describe(TagOf({Collective::kAllToAll, DataType::kBfloat16, ReduceOp::kProd, 3, 7})),
            "alltoall of bfloat16 (prod)");
  EXPECT_EQ(Describe(kMostTag), "an unknown collective of unknown (unknown)") << "what no correct peer sends";
}

TEST(Executor, CanBeInterrupted) {
  Ring ring(QuickParams(2), 2, 1, 1000);
  Rank& rank = ring.At(0);
  std::vector<float> data(1000);
  Status status = rank.executor->Run(data.data(), data.data(), {.elements = 1000}, [] { return true; });
  EXPECT_EQ(status.message(), "interrupted");
}

TEST(Executor, RefusesWhatIsNotThere) {
  Ring ring(QuickParams(2), 2, 1, 1000);
  Rank& rank = ring.At(0);
  auto refused = [&](std::vector<std::vector<Step>> lanes) {
    Executor executor(std::move(lanes), {}, rank.senders, rank.receivers, rank.destinations, rank.sources,
                      rank.net->environment().notifier.get());
    return executor.Validate(100).code() == Code::kInvalidArgument;
  };
  EXPECT_FALSE(refused({{{0, 0, 0, 100, 0, -1}, {-1, 0, 0, 100, 0, 0}}}));
  EXPECT_TRUE(refused({{{1, -1, 0, 100, 0, -1}}}));
  EXPECT_TRUE(refused({{{-1, 1, 0, 100, 0, -1}}}));
  EXPECT_TRUE(refused({{{-2, 0, 0, 100, 0, -1}}}));
  EXPECT_TRUE(refused({{{0, 0, 0, 101, 0, -1}}}));
  EXPECT_TRUE(refused({{{0, 0, 50, 49, 0, -1}}}));
  EXPECT_TRUE(refused({{{0, 0, -1, 49, 0, -1}}}));
  EXPECT_TRUE(refused({{{0, 0, 0, 100, 0, 0}}}));
  EXPECT_TRUE(refused({{{0, -1, 0, 50, 0, -1}}, {{0, -1, 50, 100, 0, -1}}})) << "one connection, two lanes";
}

}  // namespace
}  // namespace r2ccl
