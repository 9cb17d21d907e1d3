// The question beside a silent stream: who answers, who does not, and how often is asked.
#include "failover/witness.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "tests/pair.h"

namespace r2ccl {
namespace {

constexpr int64_t kPatienceNs = 2000 * kMillisecond;

class Questions : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ListenAnywhere(&listener, &port).ok());
    ASSERT_TRUE(poller.Start([this] { prober.Tick(NowNs()); }).ok());
  }
  void TearDown() override { poller.Stop(); }
  int64_t Ask(uint16_t at, int nic = 0) { return witness.AskedAnswerNs(nic, {nics[0].address, at}, kPatienceNs); }
  int Connections() {
    int count = 0;
    while (Fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK)).valid()) ++count;
    return count;
  }

  std::vector<Nic> nics = LoopbackNics(1, 2);
  Poller poller;
  Prober prober{&poller};
  Witness witness{&prober, std::make_shared<Clock>(), nics};
  Fd listener;
  uint16_t port = 0;
};

TEST_F(Questions, WhoListensAnswersAndIsLeftAloneForAWhile) {
  EXPECT_EQ(Ask(port), 0);
  int64_t answered_ns = 0;
  ASSERT_TRUE(Until([&] { return (answered_ns = Ask(port)) != 0; }));
  EXPECT_EQ(Connections(), 1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Ask(port), answered_ns);
  std::this_thread::sleep_for(std::chrono::milliseconds(5 * Poller::kTickMs));
  EXPECT_EQ(Connections(), 0) << "the answer is young";
  EXPECT_TRUE(Until([&] { return Ask(port) > answered_ns; })) << "it grows old, and is asked for again";
}

TEST_F(Questions, ThatNobodyListensIsAnAnswerToo) {
  listener.Reset();
  EXPECT_TRUE(Until([&] { return Ask(port) != 0; }));
}

TEST_F(Questions, EachNicAsksForItself) {
  ASSERT_TRUE(Until([&] { return Ask(port, 0) != 0; }));
  EXPECT_EQ(Ask(port, 1), 0);
}

TEST_F(Questions, APeerWhosePortIsUnknownIsNotAsked) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Ask(0), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(5 * Poller::kTickMs));
  EXPECT_EQ(Connections(), 0);
}

}  // namespace
}  // namespace r2ccl
