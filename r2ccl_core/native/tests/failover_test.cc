// Paths that really fail in the middle of a transfer: what survives, what comes back, what gives up, and when.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "pair.h"

namespace r2ccl {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TrafficOptions Bulk(uint64_t mebibytes) {
  TrafficOptions options;
  options.sizes.assign(mebibytes, kMiB + 5);
  options.sends_ahead = 3;  // so that a good part is still to come when a test interferes
  options.receives_ahead = 3;
  return options;
}

// Calls `action` once when `bytes` have come.
Traffic::During At(uint64_t bytes, std::function<void()> action) {
  return [bytes, action = std::move(action), fired = false](uint64_t received) mutable {
    if (fired || received < bytes) return;
    fired = true;
    action();
  };
}

struct Failure {
  const char* name;
  Cable wire;
};

void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.name; }

class Survives : public testing::TestWithParam<std::tuple<int, Failure>> {};
INSTANTIATE_TEST_SUITE_P(Failover, Survives,
                         testing::Combine(testing::Values(1, 2), testing::Values(Failure{"Silent", Cable::kSilent},
                                                                                 Failure{"Mute", Cable::kMute},
                                                                                 Failure{"Refused", Cable::kRefused})),
                         [](const auto& info) {
                           return "Mode" + std::to_string(std::get<0>(info.param)) + std::get<1>(info.param).name;
                         });

TEST_P(Survives, OnePathLostInMidTransfer) {
  auto [mode, failure] = GetParam();
  Pair pair(QuickParams(mode));
  ASSERT_EQ(pair.Open().message(), "");
  Traffic traffic(*pair.send, *pair.recv, Bulk(24));
  EXPECT_EQ(traffic.Run(At(6 * kMiB, [&, wire = failure.wire] { pair.relay->Set(1, wire); })), "");
  EXPECT_TRUE(Until([&] { return CountEvents(*pair.sender, "path_down") >= 1; }));
  EXPECT_TRUE(Until([&] { return CountEvents(*pair.receiver, "path_down") >= 1; }));
}

TEST_P(Survives, OneAfterTheOtherDownToTheLast) {
  auto [mode, failure] = GetParam();
  Pair pair(QuickParams(mode));
  ASSERT_EQ(pair.Open().message(), "");
  auto first = At(4 * kMiB, [&, wire = failure.wire] { pair.relay->Set(0, wire); });
  auto second = At(10 * kMiB, [&, wire = failure.wire] { pair.relay->Set(2, wire); });
  auto both = [&](uint64_t received) {
    first(received);
    second(received);
  };
  EXPECT_EQ(Traffic(*pair.send, *pair.recv, Bulk(20)).Run(both), "");
}

TEST_P(Survives, EveryPathGoneForAWhile) {
  auto [mode, failure] = GetParam();
  if (failure.wire == Cable::kMute) GTEST_SKIP() << "the relay's own kernel answers the sender for the last path";
  Pair pair(QuickParams(mode));
  ASSERT_EQ(pair.Open().message(), "");
  int64_t heal_ns = 0;
  auto during = [&, wire = failure.wire](uint64_t received) {
    if (heal_ns == 0 && received >= 3 * kMiB) {
      heal_ns = NowNs() + 200 * kMillisecond;
      for (int path = 0; path < 3; ++path) pair.relay->Set(path, wire);
    } else if (heal_ns > 0 && NowNs() > heal_ns) {
      heal_ns = -1;
      for (int path = 0; path < 3; ++path) pair.relay->Set(path, Cable::kGood);
    }
  };
  EXPECT_EQ(Traffic(*pair.send, *pair.recv, Bulk(12)).Run(during), "");
  EXPECT_EQ(heal_ns, -1);
  EXPECT_TRUE(Until([&] { return pair.PathsUp() == 3; }));
}

class BothRepairs : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Failover, BothRepairs, testing::Values(1, 2));

TEST_P(BothRepairs, ResetStreamsComeBackByThemselves) {
  Pair pair(QuickParams(GetParam()));
  ASSERT_EQ(pair.Open().message(), "");
  uint64_t next = kMiB;
  int path = 0;
  auto during = [&](uint64_t received) {
    if (received < next) return;
    next += kMiB;
    pair.relay->Reset(path++ % 3);
  };
  // A reset may find nothing in flight; sooner or later one does.
  for (int round = 0; round < 30 && pair.sender->environment().replayed_chunks == 0; ++round) {
    next = kMiB;
    ASSERT_EQ(Traffic(*pair.send, *pair.recv, Bulk(8)).Run(during), "");
  }
  EXPECT_GT(pair.sender->environment().replayed_chunks.load(), 0u);
  EXPECT_TRUE(Until([&] { return pair.PathsUp() == 3; }));
  EXPECT_GE(CountEvents(*pair.sender, "path_returned"), 1u);
  EXPECT_EQ(Traffic(*pair.send, *pair.recv, Bulk(3)).Run(), "");
}

TEST_P(BothRepairs, APathDeadAtTheStartComesLater) {
  // Stuck: the connection is made, and the greeting goes nowhere.
  for (Cable wire : {Cable::kSilent, Cable::kRefused, Cable::kStuck}) {
    Pair pair(QuickParams(GetParam()));
    pair.relay->Set(2, wire);
    ASSERT_EQ(pair.Open().message(), "");
    EXPECT_EQ(Traffic(*pair.send, *pair.recv, Bulk(3)).Run(), "");
    pair.relay->Set(2, Cable::kGood);
    EXPECT_TRUE(Until([&] { return pair.PathsUp() == 3; }));
    EXPECT_EQ(Traffic(*pair.send, *pair.recv, Bulk(3)).Run(), "");
  }
}

TEST(Failover, ModeOneMovesALostPathToOneBackUp) {
  Pair pair(PatientParams(1));
  ASSERT_EQ(pair.Open().message(), "");
  pair.relay->Set(0, Cable::kRefused);
  ASSERT_TRUE(Until([&] { return pair.PathsUp() == 2; }));
  auto sent = [&](int nic) { return pair.sender->environment().counters[nic].sent_bytes.load(); };
  uint64_t before[] = {sent(1), sent(2)};
  TrafficOptions options;
  options.sizes.assign(10, 3 * 131072);  // one chunk a path
  ASSERT_EQ(Traffic(*pair.send, *pair.recv, options).Run(), "");
  double back_up = static_cast<double>(sent(1) - before[0]);
  double other = static_cast<double>(sent(2) - before[1]);
  EXPECT_NEAR(back_up / other, 2.0, 0.1);
}

TEST(Failover, SlowIsNotDead) {
  Pair pair(PatientParams(2));
  ASSERT_EQ(pair.Open().message(), "");
  auto slow = At(2 * kMiB, [&] { pair.relay->Set(1, Cable::kSlow); });
  EXPECT_EQ(Traffic(*pair.send, *pair.recv, Bulk(16)).Run(slow), "");
  EXPECT_EQ(CountEvents(*pair.sender, "path_down"), 0u);
  EXPECT_EQ(CountEvents(*pair.receiver, "path_down"), 0u);
}

Params Impatient(int mode) {
  Params params = QuickParams(mode);
  params.give_up_ms = 500;
  return params;
}

class GivesUp : public testing::TestWithParam<std::tuple<int, Cable>> {};
INSTANTIATE_TEST_SUITE_P(Failover, GivesUp,
                         testing::Combine(testing::Values(1, 2), testing::Values(Cable::kSilent, Cable::kRefused)),
                         [](const auto& info) {
                           bool silent = std::get<1>(info.param) == Cable::kSilent;
                           return "Mode" + std::to_string(std::get<0>(info.param)) + (silent ? "Silent" : "Refused");
                         });

TEST_P(GivesUp, InMidTransferOnBothEnds) {
  auto [mode, wire] = GetParam();
  Pair pair(Impatient(mode));
  ASSERT_EQ(pair.Open().message(), "");
  auto lose = At(2 * kMiB, [&, wire = wire] {
    for (int path = 0; path < 3; ++path) pair.relay->Set(path, wire);
  });
  Traffic traffic(*pair.send, *pair.recv, Bulk(400));  // one end may still send when the other has failed
  EXPECT_NE(traffic.Run(lose), "");
  EXPECT_TRUE(Until([&] { return !pair.send->failure().ok() && !pair.recv->failure().ok(); }));
  EXPECT_NE(pair.send->failure().message().find("R2CC_FAILOVER_GIVE_UP_MS"), std::string::npos);
  EXPECT_EQ(pair.recv->failure().code(), Code::kPeerLost);
}

TEST_P(GivesUp, WhenItNeverConnects) {
  auto [mode, wire] = GetParam();
  Pair pair(Impatient(mode));
  for (int path = 0; path < 3; ++path) pair.relay->Set(path, wire);
  Status status = pair.Open();
  EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
}

// No descriptor, no route, no such address any more: without the reason people would look for it in the network.
void SaysWhyItCannotConnect(const Nic& nic, const Handle& handle, const char* event, const std::string& reason) {
  std::shared_ptr<Net> elsewhere;
  ASSERT_TRUE(Net::Create(Impatient(2), {nic}, &elsewhere).ok());
  std::shared_ptr<SendComm> send;
  ASSERT_TRUE(elsewhere->Connect(handle, &send).ok());
  bool ready = false;
  EXPECT_TRUE(Until([&] { return !send->Ready(&ready).ok(); }));
  EXPECT_NE(send->failure().message().find("; this host said: "), std::string::npos) << send->failure().message();
  EXPECT_NE(send->failure().message().find(reason), std::string::npos) << send->failure().message();
  EXPECT_TRUE(Until([&] { return CountEvents(*elsewhere, event) == 1; })) << "said once, however often it tries";
  elsewhere->Shutdown();
}

TEST(Failover, WhoCannotEvenBeginToConnectSaysWhy) {
  Pair pair(Impatient(2));
  Handle nobody = pair.listener->handle();
  nobody.addresses.resize(1);
  nobody.addresses[0].s_addr = inet_addr("224.0.0.1");
  SaysWhyItCannotConnect(LoopbackNics(1, 1)[0], nobody, "cannot_dial",
                         "connect from lo to 224.0.0.1: Network is unreachable");
  Nic gone{.name = "lo", .address = in_addr{inet_addr("192.0.2.1")}};
  SaysWhyItCannotConnect(gone, pair.listener->handle(), "link_down",
                         "192.0.2.1");  // by netlink or by bind, whichever says it last
}

// Nothing is under way: only an end that asks finds out.
TEST_P(GivesUp, WhileBothEndsOnlyWait) {
  auto [mode, wire] = GetParam();
  Pair pair(Impatient(mode));
  ASSERT_EQ(pair.Open().message(), "");
  std::vector<char> data(kMiB);
  Request* request = nullptr;
  ASSERT_TRUE(pair.recv->Irecv(data.data(), 1, &request).ok());
  TrafficOptions one;
  for (int path = 0; path < 3; ++path) pair.relay->Set(path, wire);
  EXPECT_TRUE(Until([&] { return !pair.recv->failure().ok(); }));
}

// The receiving end gives its paths up without a word getting through; the sending end has nothing to send.
TEST(Failover, AnIdleConnectionComesBackAfterSilence) {
  Pair pair(QuickParams(2));
  ASSERT_EQ(pair.Open().message(), "");
  ASSERT_EQ(Traffic(*pair.send, *pair.recv, Bulk(1)).Run(), "");
  for (int path = 0; path < 3; ++path) pair.relay->Set(path, Cable::kSilent);
  char byte = 0;
  Request* request = nullptr;
  ASSERT_TRUE(pair.recv->Irecv(&byte, 1, &request).ok());  // its acknowledgement is lost
  ASSERT_TRUE(Until([&] { return CountEvents(*pair.receiver, "path_down") == 3; }));
  for (int path = 0; path < 3; ++path) pair.relay->Set(path, Cable::kGood);
  EXPECT_TRUE(Until([&] { return pair.PathsUp() == 3; }));
}

// The receiver's kernel takes no more (the relay is slow), then everything is lost: only window probes are sent.
TEST(Failover, SilenceBehindAClosedWindowIsNoticed) {
  Pair pair(Impatient(2), 1);
  ASSERT_EQ(pair.Open().message(), "");
  bool closed = false;
  auto lose = [&](uint64_t received) {
    if (received >= 2 * kMiB && !closed) pair.relay->Set(0, Cable::kStuck);
    if (received >= 2 * kMiB && !closed && (closed = true)) {
      Until([last = uint64_t{0}, &pair]() mutable {
        uint64_t sent = pair.sender->environment().counters[0].sent_bytes.load();
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return std::exchange(last, sent) == sent;
      });
      pair.relay->Set(0, Cable::kSilent);
    }
  };
  Traffic traffic(*pair.send, *pair.recv, Bulk(40));  // one end may still send when the other has failed
  EXPECT_NE(traffic.Run(lose), "");
  EXPECT_TRUE(Until([&] { return !pair.send->failure().ok(); }));
  pair.recv->Close();
}

TEST(Failover, ASenderThatWaitsForAReceiveNoticesSilence) {
  Pair pair(Impatient(2));
  ASSERT_EQ(pair.Open().message(), "");
  std::vector<char> data(kMiB);
  Request* request = nullptr;
  ASSERT_TRUE(pair.send->Isend(data.data(), data.size(), &request).ok());
  for (int path = 0; path < 3; ++path) pair.relay->Set(path, Cable::kSilent);
  EXPECT_TRUE(Until([&] { return !pair.send->failure().ok(); }));
}

// Its give-up limit is longer than a test may take, so that who notices has another reason.
Params Persistent(int mode) {
  Params params = QuickParams(mode);
  params.give_up_ms = 600000;
  return params;
}

TEST(Failover, APeerThatEndedIsNoticedAtOnce) {
  Pair pair(Persistent(2));
  ASSERT_TRUE(pair.sender->Connect(pair.listener->handle(), &pair.send).ok());
  ASSERT_TRUE(Until([&] { return (pair.recv = pair.listener->Accept()) != nullptr; }));
  std::vector<char> data(kMiB);
  Request* request = nullptr;
  ASSERT_TRUE(pair.send->Isend(data.data(), data.size(), &request).ok());
  pair.recv->Close();
  pair.recv.reset();
  pair.receiver->Shutdown();
  EXPECT_TRUE(Until([&] { return !pair.send->failure().ok(); }));
}

// The streams end in the middle of frames, where no farewell can be said.
TEST(Failover, ASenderThatClosesInMidFrameIsNoticedSoon) {
  for (int mode : {1, 2}) {
    Pair pair(Persistent(mode));
    ASSERT_TRUE(pair.sender->Connect(pair.listener->handle(), &pair.send).ok());
    ASSERT_TRUE(Until([&] { return (pair.recv = pair.listener->Accept()) != nullptr; }));
    ASSERT_TRUE(Until([&] { return pair.PathsUp() == 3; }));
    std::vector<char> data(64 * kMiB), got(64 * kMiB);
    for (int i = 0; i < 16; ++i) {  // more than can arrive while Close waits for the thread that moves it
      Request* request = nullptr;
      ASSERT_TRUE(pair.recv->Irecv(got.data(), got.size(), &request).ok());
      ASSERT_TRUE(pair.send->Isend(data.data(), data.size(), &request).ok());
    }
    ASSERT_TRUE(Until([&] { return pair.receiver->environment().counters[0].received_bytes > kMiB; }));
    pair.send->Close();
    EXPECT_TRUE(Until([&] { return !pair.recv->failure().ok(); }));
    EXPECT_EQ(pair.recv->failure().code(), Code::kPeerLost);
  }
}

// A connection that lives answers a knock; who does not know the secret is told nothing.
TEST(Failover, KnocksAreAnsweredByWhoeverKnowsTheConnection) {
  Pair pair(QuickParams(2));
  ASSERT_TRUE(pair.sender->Connect(pair.listener->handle(), &pair.send).ok());
  ASSERT_TRUE(Until([&] { return (pair.recv = pair.listener->Accept()) != nullptr; }));
  Secret secret = pair.listener->handle().secret;
  Secret wrong = secret;
  wrong[3] ^= 1;
  auto ask = [&](uint64_t connection, const Secret& with, int64_t patience_ns = 20000 * kMillisecond) {
    std::string told = "-";
    std::atomic<bool> answered{false};
    Target target{LoopbackNics(1, 1)[0].address, pair.sender->environment().port};
    pair.receiver->environment().prober->Ask(
        {LoopbackNics(2, 1)[0], target, EncodeKnock(connection, with), patience_ns},
        [&](Answer answer, const Frame* said) {
          told = ToString(answer);
          if (said != nullptr) told += said->type == FrameType::kPing ? ", alive" : ", ended";
          answered = true;
        });
    EXPECT_TRUE(Until([&] { return answered.load(); }));
    return told;
  };
  EXPECT_EQ(ask(pair.recv->connection(), secret), "reached, alive");
  EXPECT_EQ(ask(pair.recv->connection() + 1, secret), "reached, ended");
  EXPECT_EQ(ask(pair.recv->connection(), wrong, 300 * kMillisecond), "silent");
  EXPECT_TRUE(AnyEvent(*pair.sender, "refused", "unknown secret"));
  pair.send->Close();
  EXPECT_EQ(ask(pair.recv->connection(), secret), "reached, ended");
}

TEST(FailStop, OneLostPathFailsBothEndsWithItsName) {
  for (Cable wire : {Cable::kRefused, Cable::kSilent}) {
    Params params = QuickParams(0);
    params.stall_ms = 200;
    Pair pair(params);
    ASSERT_EQ(pair.Open().message(), "");
    auto lose = At(2 * kMiB, [&, wire = wire] { pair.relay->Set(1, wire); });
    Traffic traffic(*pair.send, *pair.recv, Bulk(400));  // one end may still send when the other has failed
    EXPECT_NE(traffic.Run(lose), "");
    EXPECT_TRUE(Until([&] { return !pair.send->failure().ok() && !pair.recv->failure().ok(); }));
    EXPECT_EQ(CountEvents(*pair.sender, "failed") + CountEvents(*pair.receiver, "failed"), 2u) << "one error an end";
    std::string first = pair.send->failure().message() + " | " + pair.recv->failure().message();
    EXPECT_NE(first.find("127.0.1.2"), std::string::npos) << first;
    EXPECT_NE(first.find("R2CC_MODE=0"), std::string::npos) << first;
  }
}

TEST(FailStop, NeedsEveryNicAtTheStart) {
  for (Cable wire : {Cable::kRefused, Cable::kSilent}) {
    Pair pair(QuickParams(0));
    pair.relay->Set(2, wire);
    Status status = pair.Open();
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("R2CC_MODE=0 needs every NIC"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace r2ccl
