// Stripes: both ends give every message to the same one, whatever comes when; and each byte lands once all the same.
#include "plugin/stripes.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "pair.h"

namespace r2ccl::plugin {
namespace {

constexpr double kFast = 1.0;
constexpr uint64_t kSmall = 100;

// A group of connections with the network between their ends: messages and buffers by their numbers in the group. What
// a stripe has sent arrives in order and goes to the buffers posted there, in order.
struct Group {
  struct Message {
    uint64_t number;
    bool marked;
  };
  struct Stripe {
    std::deque<Message> sent;
    std::deque<uint64_t> buffers;
  };
  explicit Group(size_t count) : stripes(count) {}

  // False where a message has met another's buffer.
  bool Arrive(size_t index) {
    Stripe& stripe = stripes[index];
    if (stripe.sent.empty() || stripe.buffers.empty()) return true;
    Message message = stripe.sent.front();
    bool right = message.number == stripe.buffers.front();
    if (message.marked) marked = message.number;
    stripe.sent.pop_front();
    stripe.buffers.pop_front();
    ++arrived;
    if (index == 0) oldest = message.number + 1;
    return right;
  }

  bool CanArrive() const {
    auto can = [](const Stripe& stripe) { return !stripe.sent.empty() && !stripe.buffers.empty(); };
    return std::any_of(stripes.begin(), stripes.end(), can);
  }

  std::vector<Stripe> stripes;
  uint64_t sending = 0, posting = 0;  // the number of the next message
  uint64_t arrived = 0, oldest = 0, marked = kNoMessage;
  double peak = 0;
};

struct FakeEnd {
  Group* group;
  size_t index;
  Status end = {};
  bool closed = false;
  bool waits = true;  // as a receiving end has to
  bool ready = true;

  bool has_ended() const { return !end.ok(); }
  Status failure() const { return end; }
  void Close() { closed = true; }
  void ShareFate(const std::shared_ptr<Fate>&) {}
  uint64_t connection() const { return 0x5670 + index; }
  bool home_is_fast() const { return group->peak >= kFast; }
  uint64_t oldest() const { return waits ? group->oldest : UINT64_MAX / 2; }
  uint64_t marked() const { return group->marked; }
  Status Ready(bool* is_ready) const {
    *is_ready = ready;
    return end;
  }
  Status Isend(const void*, uint64_t, Request**, bool marked_here) {
    group->stripes[index].sent.push_back({group->sending++, marked_here});
    return {};
  }
  Status Irecv(void*, uint64_t, Request** request, bool) {
    static Request some;
    group->stripes[index].buffers.push_back(group->posting++);
    *request = &some;
    return {};
  }
};

std::vector<std::shared_ptr<FakeEnd>> Ends(Group* group) {
  std::vector<std::shared_ptr<FakeEnd>> ends;
  for (size_t i = 0; i < group->stripes.size(); ++i) ends.push_back(std::make_shared<FakeEnd>(FakeEnd{group, i}));
  return ends;
}

// Sends and posts run ahead of each other as a seed says, and the NIC shows its rate at some time.
class StripesRun {
 public:
  StripesRun(size_t stripes, uint64_t seed, bool receiver_waits)
      : group_(stripes), random_(seed), sender_(Ends(&group_), kSmall), receiver_(ReceivingEnds(receiver_waits)) {}

  // Whether every message met its buffer; not where some wait for ever.
  bool Run(uint64_t messages) {
    uint64_t fast_at = Below(messages / 2);
    uint64_t ahead = 1 + Below(3 * kNotice);
    bool right = true;
    while (group_.arrived < messages && right) {
      bool may_send = group_.sending < messages && group_.sending < group_.arrived + ahead;
      if (!may_send && group_.posting == messages && !group_.CanArrive()) return false;
      uint64_t what = Below(3);
      for (uint64_t times = 1 + Below(2 * kNotice); times > 0; --times) {
        if (what == 0 && group_.sending < messages && group_.sending < group_.arrived + ahead) Send(fast_at);
        if (what == 1 && group_.posting < messages) Post();
        if (what == 2) right = group_.Arrive(Below(group_.stripes.size())) && right;
      }
    }
    return right;
  }
  bool spread() const { return sender_.is_spread() && receiver_.is_spread(); }
  uint64_t refused() const { return refused_; }

 private:
  uint64_t Below(uint64_t limit) { return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random_); }
  std::vector<std::shared_ptr<FakeEnd>> ReceivingEnds(bool waits) {
    auto ends = Ends(&group_);
    for (auto& end : ends) end->waits = waits;
    return ends;
  }
  void Send(uint64_t fast_at) {
    if (group_.sending == fast_at) group_.peak = kFast;
    Request* request = nullptr;
    EXPECT_TRUE(sender_.Isend(nullptr, kSmall + 1, &request).ok());
  }
  void Post() {
    Request* request = nullptr;
    EXPECT_TRUE(receiver_.Irecv(nullptr, 0, &request, false).ok());
    refused_ += request == nullptr ? 1 : 0;
  }

  Group group_;
  std::mt19937_64 random_;
  SendStripes<FakeEnd> sender_;
  RecvStripes<FakeEnd> receiver_;
  uint64_t refused_ = 0;
};

TEST(Stripes, BothEndsGiveAMessageToTheSameOne) {
  uint64_t refused = 0;
  for (uint64_t seed = TestSeed(); seed < TestSeed() + 300; ++seed) {
    StripesRun run(1 + seed % 5, seed, true);
    ASSERT_TRUE(run.Run(2000)) << "seed " << seed;
    EXPECT_TRUE(run.spread() == (seed % 5 > 0)) << "seed " << seed;
    refused += run.refused();
  }
  EXPECT_GT(refused, 0u) << "no receiving end ran as far ahead as it may";
}

TEST(Stripes, AReceivingEndThatDidNotWaitWouldTakeOneMessageForAnother) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) wrong += StripesRun(2, seed, false).Run(2000) ? 0 : 1;
  EXPECT_GT(wrong, 0);
}

TEST(Stripes, AsManyUnderWayAsNcclHasAreNeverRefused) {
  constexpr uint64_t kUnderWay = 32;
  Group group(2);
  SendStripes<FakeEnd> sender(Ends(&group), kSmall);
  RecvStripes<FakeEnd> receiver(Ends(&group));
  group.peak = kFast;
  Request* request = nullptr;
  for (uint64_t number = 0; number < 500; ++number) {
    ASSERT_TRUE(sender.Isend(nullptr, kSmall + 1, &request).ok());
    ASSERT_TRUE(receiver.Irecv(nullptr, 0, &request, false).ok());
    ASSERT_NE(request, nullptr) << number;
    while (group.posting - group.arrived >= kUnderWay) {
      for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(group.Arrive(i));
    }
  }
  EXPECT_TRUE(sender.is_spread());
}

TEST(Stripes, SlowNicsAndSmallMessagesKeepToTheFirst) {
  for (auto [peak, size] : {std::pair{0.99 * kFast, kSmall + 1}, {kFast, kSmall}}) {
    Group group(3);
    SendStripes<FakeEnd> sender(Ends(&group), kSmall);
    group.peak = peak;
    Request* request = nullptr;
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(sender.Isend(nullptr, size, &request).ok());
    EXPECT_EQ(group.stripes[0].sent.size(), 1000u);
    EXPECT_FALSE(sender.is_spread());
  }
}

TEST(Stripes, TheEndOfOneIsTheEndOfAll) {
  Group group(3);
  auto ends = Ends(&group);
  SendStripes<FakeEnd> sender(ends, kSmall);
  RecvStripes<FakeEnd> receiver(ends);
  bool ready = false;
  EXPECT_TRUE(sender.Ready(&ready).ok());
  EXPECT_TRUE(ready);
  ends[1]->ready = false;
  EXPECT_TRUE(sender.Ready(&ready).ok());
  EXPECT_FALSE(ready);
  ends[2]->end = {Code::kPeerLost, "gone"};
  Request* request = nullptr;
  EXPECT_EQ(sender.Ready(&ready).message(), "gone");
  EXPECT_EQ(sender.Isend(nullptr, kSmall + 1, &request).message(), "gone");
  EXPECT_EQ(receiver.Irecv(nullptr, 0, &request, false).message(), "gone");
  EXPECT_EQ(request, nullptr);
  sender.Close();
  EXPECT_TRUE(ends[0]->closed && ends[1]->closed && ends[2]->closed);
}

TEST(StripeCollector, AGroupIsWholeWhenItsLastStripeHasCome) {
  Group group(3);
  auto ends = Ends(&group);
  StripeCollector<FakeEnd> collector(3);
  EXPECT_TRUE(collector.Add(ends[2]).empty());
  EXPECT_TRUE(collector.Add(ends[0]).empty());
  EXPECT_EQ(collector.Add(ends[1]), ends);
  collector.Close();
  EXPECT_FALSE(ends[0]->closed) << "it is no longer the collector's";
}

TEST(StripeCollector, WhatIsNotOfTheHandleOrNeverWholeIsClosed) {
  Group group(3);
  auto ends = Ends(&group);
  StripeCollector<FakeEnd> collector(2);
  EXPECT_TRUE(collector.Add(ends[2]).empty());
  EXPECT_TRUE(ends[2]->closed);
  EXPECT_TRUE(collector.Add(ends[1]).empty());
  EXPECT_FALSE(ends[1]->closed);
  collector.Close();
  EXPECT_TRUE(ends[1]->closed);
}

Params FastNics() {
  Params params = QuickParams(2);
  params.fast_mbit_s = 0;
  return params;
}

// The real connections, through paths that break while they spread.
class StripedPair {
 public:
  explicit StripedPair(size_t stripes) : pair_(FastNics()) {
    uint64_t group = 0;
    EXPECT_TRUE(Net::MakeUpConnection(&group).ok());
    std::vector<std::shared_ptr<SendComm>> senders(stripes);
    for (size_t i = 0; i < stripes; ++i) {
      EXPECT_TRUE(pair_.sender->ConnectAs((group & ~kStripeMask) + i, pair_.relay->handle(), &senders[i], 0).ok());
    }
    send = std::make_unique<SendStripes<SendComm>>(std::move(senders), 0);
    StripeCollector<RecvComm> collector(stripes);
    EXPECT_TRUE(Until([&] {
      bool ready = false;
      EXPECT_EQ(send->Ready(&ready).message(), "");
      while (recv == nullptr) {
        auto comm = pair_.listener->Accept();
        if (comm == nullptr) break;
        auto whole = collector.Add(std::move(comm));
        if (!whole.empty()) recv = std::make_unique<RecvStripes<RecvComm>>(std::move(whole));
      }
      return ready && recv != nullptr;
    }));
  }
  ~StripedPair() {
    send->Close();
    recv->Close();
  }
  Relay& relay() { return *pair_.relay; }

  std::unique_ptr<SendStripes<SendComm>> send;
  std::unique_ptr<RecvStripes<RecvComm>> recv;

 private:
  Pair pair_;
};

TrafficOptions Mixed(uint64_t seed, size_t messages) {
  TrafficOptions options;
  options.seed = seed;
  options.sends_ahead = options.receives_ahead = 32;
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < messages; ++i) options.sizes.push_back(random() % (i % 7 == 0 ? 600'000 : 20'000));
  return options;
}

TEST(Stripes, CarryMessagesOfAllSizesInTheirTurns) {
  for (size_t stripes : {1, 2, 5, kMaxStripes}) {
    StripedPair pair(stripes);
    ASSERT_EQ(Traffic(*pair.send, *pair.recv, Mixed(TestSeed() + stripes, 300)).Run(), "") << stripes;
    EXPECT_EQ(pair.send->is_spread(), stripes > 1);
    for (const auto& comm : pair.recv->comms()) {
      EXPECT_GT(comm->oldest(), stripes > 1 ? 10u : 299u) << "one of " << stripes << " carried less than its part";
    }
  }
}

TEST(Stripes, HideLossesWhileTheySpreadAndAfterwards) {
  for (uint64_t seed = TestSeed(); seed < TestSeed() + 5; ++seed) {
    StripedPair pair(3);
    std::mt19937_64 random(seed);
    int resets = 0;
    uint64_t next = 0;
    auto lose = [&](uint64_t received) {
      if (received < next) return;
      next = received + 300'000;
      pair.relay().Reset(static_cast<int>(random() % 3));
      ++resets;
    };
    EXPECT_EQ(Traffic(*pair.send, *pair.recv, Mixed(seed, 300)).Run(lose), "") << "seed " << seed;
    EXPECT_GT(resets, 5);
  }
}

// NCCL asks about its oldest request, again and again: where that is another stripe's, it must not wait for ever.
TEST(Stripes, TheFailureOfOneEndsWhatIsUnderWayOnTheOthersAtBothEnds) {
  StripedPair pair(2);
  std::vector<char> small(10), large(1 << 20);
  Request *receive = nullptr, *send = nullptr, *unused = nullptr;
  ASSERT_TRUE(pair.recv->comms()[1]->Irecv(small.data(), small.size(), &receive).ok());
  ASSERT_TRUE(pair.recv->comms()[0]->Irecv(small.data(), small.size(), &unused).ok());
  ASSERT_TRUE(pair.send->comms()[0]->Isend(large.data(), 100, &unused).ok());  // does not fit
  bool done = false;
  EXPECT_TRUE(Until([&] { return !receive->owner->Test(receive, &done, nullptr).ok(); }));
  EXPECT_TRUE(Until([&] {
    if (send == nullptr && !pair.send->comms()[1]->Isend(large.data(), large.size(), &send).ok()) return true;
    return !send->owner->Test(send, &done, nullptr).ok();
  })) << "nobody will ever take it";
  EXPECT_FALSE(done);
  EXPECT_TRUE(Until([&] { return !pair.send->failure().ok() && !pair.recv->failure().ok(); }));
}

}  // namespace
}  // namespace r2ccl::plugin
