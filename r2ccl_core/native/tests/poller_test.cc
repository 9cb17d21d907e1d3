// What becomes of a descriptor that the kernel does not watch, and of exceptions on the poller's thread.
#include "net/poller.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <memory>
#include <new>
#include <string>

#include "pair.h"

namespace {

std::atomic<int> spared{0};         // descriptors that are watched before
std::atomic<int> refusals{0};       // of the next ones
std::atomic<int> times_refused{0};  // so far

}  // namespace

// The kernel's, but for refusals: as where /proc/sys/fs/epoll/max_user_watches is reached, which is the whole
// machine's.
extern "C" int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  using Function = int (*)(int, int, int, epoll_event*);
  static auto* const real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "epoll_ctl"));
  if (operation == EPOLL_CTL_ADD && spared.load() > 0) {
    --spared;
    return real(epoll, operation, fd, event);
  }
  int left = refusals.load();
  while (operation == EPOLL_CTL_ADD && left > 0) {
    if (!refusals.compare_exchange_weak(left, left - 1)) continue;
    ++times_refused;
    errno = ENOSPC;
    return -1;
  }
  return real(epoll, operation, fd, event);
}

namespace r2ccl {
namespace {

class Watched final : public Pollable, public Kickable {
 public:
  void OnEvents(uint64_t, int, uint32_t) override {
    ++events;
    if (throws) throw std::bad_alloc();
  }
  void OnKick() override {
    ++kicks;
    if (throws) throw std::bad_alloc();
  }
  void OnUnwatched(uint64_t id, int tag, const std::string& reason) override {
    EXPECT_EQ(tag, 7);
    EXPECT_NE(reason.find("the kernel does not watch it: "), std::string::npos) << reason;
    unwatched = id;
  }
  void OnThrow(const std::string& reason) override {
    EXPECT_EQ(reason, "std::bad_alloc");
    ++thrown;
  }

  std::atomic<bool> throws{false};
  std::atomic<int> events{0};
  std::atomic<int> kicks{0};
  std::atomic<int> thrown{0};
  std::atomic<uint64_t> unwatched{0};
};

TEST(Poller, ADescriptorThatCannotBeWatchedIsTold) {
  Poller poller;
  ASSERT_TRUE(poller.Start([] {}).ok());
  auto watched = std::make_shared<Watched>();
  Fd file(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));  // which epoll does not take
  uint64_t id = poller.Add(file.get(), EPOLLIN, 7, watched);
  EXPECT_TRUE(Until([&] { return watched->unwatched == id; }));
  poller.Remove(id);
}

TEST(Poller, IsWatchedKnows) {
  Poller poller;  // whose thread does not run, so that nobody is told
  auto watched = std::make_shared<Watched>();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Fd reads(ends[0]), writes(ends[1]);
  EXPECT_FALSE(poller.IsWatched(poller.Add(reads.get(), EPOLLIN, 7, watched)));  // there is no epoll yet
  ASSERT_TRUE(poller.Start([] {}).ok());
  EXPECT_TRUE(poller.IsWatched(poller.Add(writes.get(), 0, 7, watched)));
}

TEST(Poller, ATickMayAskForTheNextOneSooner) {
  std::atomic<int> ticks{0};
  std::atomic<int64_t> least_ns{std::numeric_limits<int64_t>::max()};
  int64_t last_ns = 0;
  Poller poller;
  ASSERT_TRUE(poller
                  .Start([&] {
                    int64_t now_ns = NowNs();
                    if (last_ns != 0) least_ns = std::min(least_ns.load(), now_ns - last_ns);
                    last_ns = now_ns;
                    poller.TickBy(0);
                    ++ticks;
                  })
                  .ok());
  EXPECT_TRUE(Until([&] { return least_ns < (Poller::kTickMs - 1) * kMillisecond; }));
  EXPECT_TRUE(Until([&] { return ticks > 20; }));
  poller.Stop();
  EXPECT_GE(least_ns, kMillisecond) << "it would leave no time for anything else";
}

TEST(Poller, ExceptionsEndNothingButWhatTheyLeft) {
  std::atomic<int> ticks{0};
  Poller poller;
  ASSERT_TRUE(poller
                  .Start([&] {
                    ++ticks;
                    throw std::bad_alloc();
                  })
                  .ok());
  auto bad = std::make_shared<Watched>();
  auto good = std::make_shared<Watched>();
  bad->throws = true;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Fd reads(ends[0]), writes(ends[1]);
  uint64_t id = poller.Add(writes.get(), EPOLLOUT, 7, bad);
  EXPECT_TRUE(Until([&] { return bad->thrown > 0; }));
  EXPECT_EQ(bad->kicks, 0);
  poller.Remove(id);
  poller.Kick(bad);
  poller.Kick(good);
  EXPECT_TRUE(Until([&] { return bad->kicks == 1 && good->kicks == 1; }));
  EXPECT_TRUE(Until([&] { return bad->thrown > bad->events; }));
  int seen = ticks;
  EXPECT_TRUE(Until([&] { return ticks > seen + 1; }));
}

// After what woke the thread, before it sleeps again.
TEST(Poller, ATurnEndsAfterWhatWasToBeDone) {
  auto watched = std::make_shared<Watched>();
  std::atomic<int> ticks{0};
  std::atomic<int> kicks_seen{0};
  std::atomic<int> ticks_seen{0};
  Poller poller;
  auto on_turn = [&]() -> int64_t {
    kicks_seen = watched->kicks.load();
    ticks_seen = ticks.load();
    throw std::bad_alloc();
  };
  ASSERT_TRUE(poller.Start([&] { ++ticks; }, on_turn).ok());
  for (int round = 1; round <= 20; ++round) {
    poller.Kick(watched);
    ASSERT_TRUE(Until([&] { return kicks_seen == round; }));
  }
  int seen = ticks;
  EXPECT_TRUE(Until([&] { return ticks_seen > seen; }));
}

// Without sleeping, and not longer than it was asked to.
TEST(Poller, ATurnMayAskForMoreOfThem) {
  constexpr int64_t kLongNs = 20 * kMillisecond;
  std::atomic<int> ticks{0};
  std::atomic<int> turns{0};
  std::atomic<bool> asks{true};
  Poller poller;
  auto on_turn = [&]() -> int64_t {
    ++turns;
    return asks ? kLongNs : 0;
  };
  ASSERT_TRUE(poller.Start([&] { ++ticks; }, on_turn).ok());
  ASSERT_TRUE(Until([&] { return turns > 1000 && ticks > 10; }));
  EXPECT_GT(turns, 10 * ticks);
  asks = false;
  int seen = ticks;
  ASSERT_TRUE(Until([&] { return ticks > seen + 5; }));  // which takes longer than it was asked to go on
  int turns_seen = turns;
  seen = ticks;
  ASSERT_TRUE(Until([&] { return ticks > seen + 20; }));
  EXPECT_LE(turns - turns_seen, 2 * (ticks - seen) + 2);
}

// Each end in turn: the stream is given up and dialled again, and every byte arrives.
TEST(Poller, AStreamThatCannotBeWatchedIsDialledAgain) {
  for (int refused : {1, 2, 5}) {
    SCOPED_TRACE(refused);
    int before = times_refused;
    Pair pair(PatientParams(2), 2);
    ASSERT_NE(pair.sender, nullptr);
    ASSERT_NE(pair.receiver, nullptr);
    refusals = refused;
    ASSERT_EQ(pair.Open().message(), "");
    EXPECT_EQ(times_refused, before + refused);
    TrafficOptions options;
    options.sizes.assign(20, 100'001);
    Traffic traffic(*pair.send, *pair.recv, options);
    EXPECT_EQ(traffic.Run(), "");
    EXPECT_TRUE(Until([&] { return pair.PathsUp() == 2; }));
  }
}

// In this order each poller is woken by a descriptor, others come by one, and links are told by one.
TEST(Poller, AProcessThatNobodyCanReachDoesNotStart) {
  Params params = QuickParams(2);
  for (int64_t watched = 0; watched < params.io_threads + 2; ++watched) {
    SCOPED_TRACE(watched);
    std::shared_ptr<Net> net;
    spared = static_cast<int>(watched);
    refusals = 1;
    Status status = Net::Create(params, LoopbackNics(1, 1), &net);
    EXPECT_EQ(refusals, 0);
    EXPECT_EQ(net, nullptr);
    EXPECT_NE(status.message().find("epoll: "), std::string::npos) << status.message();
  }
}

// A connection that was left by an exception ends, on both sides, and says why.
TEST(Poller, AConnectionInNoKnownStateEnds) {
  Pair pair(PatientParams(2), 2);
  ASSERT_EQ(pair.Open().message(), "");
  char room[1];
  Request* receive = nullptr;
  ASSERT_TRUE(pair.recv->Irecv(room, 1, &receive, false).ok());
  static_cast<Kickable*>(pair.send.get())->OnThrow("std::bad_alloc");
  EXPECT_NE(pair.send->failure().message().find("std::bad_alloc"), std::string::npos);
  Request* send = nullptr;
  EXPECT_FALSE(pair.send->Isend("x", 1, &send).ok());
  bool done = false;
  uint64_t size = 0;
  EXPECT_TRUE(Until([&] { return !pair.recv->Test(receive, &done, &size).ok(); }));
}

}  // namespace
}  // namespace r2ccl
