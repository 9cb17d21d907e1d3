// Chaos: short random failure schedules from a seed. Every byte is checked, nothing hangs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "pair.h"

namespace r2ccl {
namespace {

constexpr int kShards = 8;
constexpr int kSchedulesPerShard = 25;

// R2CCL_TEST_SCHEDULES, at most and by default all: sanitizers are slow.
int SchedulesToRun() {
  const char* text = std::getenv("R2CCL_TEST_SCHEDULES");
  int wanted = text == nullptr ? kShards * kSchedulesPerShard : std::atoi(text);
  return std::clamp(wanted / kShards, 1, kSchedulesPerShard);
}

class Schedule {
 public:
  explicit Schedule(uint64_t seed) : random_(seed), mode_(1 + Draw(2)), paths_(1 + Draw(4)) {
    traffic_.seed = seed;
    traffic_.sends_ahead = 1 + static_cast<size_t>(Draw(32));
    traffic_.receives_ahead = 1 + static_cast<size_t>(Draw(32));
    traffic_.extra_capacity = Draw(2) == 0 ? 0 : 77;
    uint64_t total = 0;
    while (total < 3u << 20) {
      uint64_t size = Draw(3) == 0 ? Draw(20000) : Draw(1 << 20);
      traffic_.sizes.push_back(size);
      total += size;
    }
    step_bytes_ = total / 8;
  }

  std::string Run() {
    Pair pair(MakeParams(), MakeParams(), paths_);
    pair.sender->environment().program_polls = Draw(2) == 0;
    pair.receiver->environment().program_polls = Draw(2) == 0;
    Status status = pair.Open();
    if (!status.ok()) return "open: " + status.message();
    last_ns_ = NowNs();
    std::string wrong =
        Traffic(*pair.send, *pair.recv, traffic_).Run([&](uint64_t received) { Act(*pair.relay, received); });
    if (!wrong.empty()) pair.PrintLogs();
    if (!wrong.empty()) return wrong + " [mode " + std::to_string(mode_) + history_ + "]";
    for (int path = 0; path < paths_; ++path) pair.relay->Set(path, Cable::kGood);
    if (Until([&] { return pair.PathsUp() == paths_; })) return {};
    pair.PrintLogs();
    return "a path did not come back [" + history_ + "]";
  }

 private:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }

  Params MakeParams() {
    Params params = QuickParams(mode_);
    params.stall_min_ms = 20 + Draw(40);
    params.io_threads = 1 + Draw(2);
    params.chunk_bytes = 4096 << Draw(6);
    params.window_bytes = 65536 << Draw(5);
    params.eager_messages = Draw(2) * 64;
    params.buffered_bytes = Draw(3) * 8192;
    params.fast_mbit_s = Draw(2) * 12000;  // 0: every NIC is
    return params;
  }

  // The next event comes after some more bytes or, when none come, after some time; the last one heals all.
  void Act(Relay& relay, uint64_t received) {
    int64_t now_ns = NowNs();
    if (received < next_bytes_ && now_ns - last_ns_ < 60 * kMillisecond) return;
    next_bytes_ = received + static_cast<uint64_t>(Draw(static_cast<int>(step_bytes_)));
    last_ns_ = now_ns;
    if (++events_ > 12) {
      for (int path = 0; path < paths_; ++path) relay.Set(path, Cable::kGood);
      return;
    }
    int path = Draw(paths_);
    int kind = Draw(8);
    history_ += " " + std::to_string(kind) + "@" + std::to_string(path);
    switch (kind) {
      case 0:
      case 1:
        return relay.Reset(path);
      case 2:
        return relay.Set(path, Cable::kSilent);
      case 3:
        return relay.Set(path, paths_ > 1 && path > 0 ? Cable::kMute : Cable::kSilent);
      case 4:
        return relay.Set(path, Cable::kRefused);
      case 5:
        return relay.Set(path, Cable::kSlow);
      default:
        return relay.Set(path, Cable::kGood);
    }
  }

  std::mt19937_64 random_;
  const int mode_;
  const int paths_;
  TrafficOptions traffic_;
  uint64_t step_bytes_ = 1;
  uint64_t next_bytes_ = 0;
  int64_t last_ns_ = 0;
  int events_ = 0;
  std::string history_ = " events";
};

class Chaos : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Failover, Chaos, testing::Range(0, kShards));

TEST_P(Chaos, EveryByteLandsOnceAndNothingHangs) {
  for (int i = 0; i < SchedulesToRun(); ++i) {
    uint64_t seed = TestSeed() * 1000 + static_cast<uint64_t>(GetParam() * kSchedulesPerShard + i);
    ASSERT_EQ(Schedule(seed).Run(), "") << "schedule " << seed;
  }
}

}  // namespace
}  // namespace r2ccl
