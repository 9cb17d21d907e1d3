// Placement: where a chunk goes, rule by rule.
#include "failover/placement.h"

#include "gtest/gtest.h"
#include "net/nic.h"

namespace r2ccl {
namespace {

constexpr double kChunk = 128 << 10;
constexpr double kFast = 0.5;  // bytes per ns
constexpr double kSlow = 0.05;
constexpr double kMuch = 16 << 20;

PathLoad Busy(double drain, double nic_bytes) {
  return {.up = true, .free = true, .drain = drain, .nic_bytes = nic_bytes, .path_bytes = 0};
}

PathLoad Full(double drain, double nic_bytes) {
  PathLoad load = Busy(drain, nic_bytes);
  load.free = false;
  return load;
}

PathLoad Refuge(double drain, double nic_bytes) {
  PathLoad load = Busy(drain, nic_bytes);
  load.refuge = true;
  return load;
}

constexpr Waiting kOneChunk{kChunk, kChunk};

TEST(Distance, BridgesThenDomainsAndNothingWhereItIsNotKnown) {
  auto nic = [](const char* device, int numa) {
    Nic made;
    made.device = device;
    made.numa = numa;
    return made;
  };
  Nic home = nic("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0", 0);
  Nic port = nic("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.1", 0);
  Nic beside = nic("/sys/devices/pci0000:00/0000:00:02.0/0000:02:00.0", 0);
  Nic far = nic("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", 1);
  EXPECT_EQ(Distance(home, home), 0);
  EXPECT_LT(Distance(home, port), Distance(home, beside));
  EXPECT_LT(Distance(home, beside), Distance(home, far));
  EXPECT_EQ(Distance(far, home), Distance(home, far));
  EXPECT_EQ(Distance(home, nic("", -1)), 0);
}

TEST(Placement, OfNicsThatAreAlikeTheOneNearestToTheHomeTakesAChunk) {
  PathLoad lost;
  std::vector<PathLoad> paths = {lost, Busy(kFast, 0), Busy(kFast, 0), Busy(kFast, 0)};
  paths[1].distance = 1002;
  paths[2].distance = 1;
  paths[3].distance = 2;
  EXPECT_EQ(Place(paths, 0, kOneChunk), 2);
  paths[2].nic_bytes = kChunk;  // load comes first
  EXPECT_EQ(Place(paths, 0, kOneChunk), 3);
}
constexpr Waiting kManyChunks{kChunk, kMuch};

TEST(Placement, AChunkGoesHomeWhileThatHasLittleBeforeItHoweverIdleTheOthersAre) {
  EXPECT_EQ(Place({Busy(kFast, 0), Busy(kFast, kChunk)}, 1, kOneChunk), 1);
  EXPECT_EQ(Place({Busy(kFast, 0), Busy(0, kMuch)}, 1, kOneChunk), 1) << "what it drains is not known yet";
}

TEST(Placement, ABusyHomeIsRelievedByANicWithMuchLessBeforeIt) {
  EXPECT_EQ(Place({Busy(kFast, 0.3 * kMuch), Busy(kFast, kMuch), Busy(kFast, 0.2 * kMuch)}, 1, kOneChunk), 2);
  EXPECT_EQ(Place({Busy(kFast, 0.3 * kMuch), Full(kFast, kMuch)}, 1, kOneChunk), 0) << "full, too";
  EXPECT_EQ(Place({Busy(kFast, 0.6 * kMuch), Busy(kFast, kMuch)}, 1, kOneChunk), 1) << "not so much less";
  EXPECT_EQ(Place({Refuge(kFast, 0), Busy(kFast, kMuch)}, 1, kOneChunk), 1) << "others need it more";
  EXPECT_EQ(Place({Busy(kSlow, 0), Busy(kFast, kMuch)}, 1, kOneChunk), 1) << "slow";
  EXPECT_EQ(Place({Busy(0, 0), Busy(kFast, kMuch)}, 1, kOneChunk), 0) << "nothing is known of it";
}

TEST(Placement, AFullHomeThatIsWellIsWaitedFor) {
  EXPECT_EQ(Place({Busy(kFast, 0.6 * kMuch), Full(kFast, kMuch)}, 1, kOneChunk), kNoPath);
}

TEST(Placement, TheChunksOfALostHomeGoWhereTheLeastWaits) {
  EXPECT_EQ(Place({Busy(kFast, kMuch), PathLoad{}, Busy(kFast, kChunk)}, 1, kOneChunk), 2);
}

TEST(Placement, TheChunksOfASlowHomeGoToTheOthers) {
  EXPECT_FALSE(HomeIsWell({Busy(kFast, 0), Busy(kSlow, 0)}, 1));
  EXPECT_EQ(Place({Busy(kFast, kMuch), Busy(kSlow, kMuch)}, 1, kOneChunk), 0);
}

TEST(Placement, ALoadedHomeIsRelievedByANicThatRefugeesDoNotReach) {
  std::vector<PathLoad> paths{Refuge(kFast, kMuch), Refuge(kFast, 0), Busy(kFast, 0.7 * kMuch)};
  EXPECT_EQ(Place(paths, 0, kOneChunk), 2);
  paths[0].refuge = false;
  EXPECT_EQ(Place(paths, 0, kOneChunk), 0);
}

// As at a host that has lost a NIC: all that are left are refuges.
TEST(Placement, ABusyRefugeIsRelievedByAnotherWithMuchLessBeforeIt) {
  EXPECT_EQ(Place({Refuge(kFast, 0.3 * kMuch), Refuge(kFast, kMuch), Refuge(kFast, 0.2 * kMuch)}, 1, kOneChunk), 2);
  EXPECT_EQ(Place({Refuge(kFast, 0.6 * kMuch), Refuge(kFast, kMuch)}, 1, kOneChunk), 1) << "not so much less";
  EXPECT_EQ(Place({Refuge(kFast, 0), Refuge(kFast, kChunk)}, 1, kOneChunk), 1) << "the home has little to do";
  EXPECT_EQ(Place({Refuge(kFast, 0), Refuge(0, kMuch)}, 1, kOneChunk), 1) << "what it drains is not known yet";
  EXPECT_EQ(Place({Refuge(kSlow, 0), Refuge(kFast, kMuch)}, 1, kOneChunk), 1) << "slow";
  EXPECT_EQ(Place({Refuge(kFast, 0), Refuge(kFast, kMuch), Busy(kFast, 0.7 * kMuch)}, 1, kOneChunk), 2) << "rather";
  EXPECT_EQ(Place({Refuge(kFast, 0.3 * kMuch), Refuge(kFast, kMuch), Busy(kFast, 0.8 * kMuch)}, 1, kOneChunk), 0)
      << "the other has about as much to do";
  EXPECT_EQ(Place({Refuge(kFast, 0.3 * kMuch), Refuge(kFast, kMuch), Full(kFast, 0.1 * kMuch)}, 1, kOneChunk), 0)
      << "the other is full";
}

TEST(Placement, ARefugeOfWhichNothingIsKnownButThatItHasLittleToDoSendsToOneThatIsNone) {
  EXPECT_EQ(Place({Busy(kFast, 0), Refuge(0, kChunk)}, 1, kOneChunk), 0);
}

TEST(Placement, NobodyIsRelievedByANicThatHasAboutAsMuchToDo) {
  EXPECT_EQ(ReliefFor({Refuge(kFast, kMuch), Busy(kFast, 0.8 * kMuch)}, 0), kNoPath);
}

// As after the loss of a path: another peer's NIC may have died, and this one is as good as ever.
TEST(Placement, ANicOfWhichNothingIsKnownGivesRelief) {
  EXPECT_EQ(ReliefFor({Refuge(kFast, kMuch), Busy(0, 0)}, 0), 1);
}

// A slow NIC is idle most of the time, because it gets little.
TEST(Placement, NobodyIsRelievedByASlowNic) {
  EXPECT_EQ(ReliefFor({Refuge(kFast, kMuch), Busy(kSlow, 0)}, 0), kNoPath);
  EXPECT_EQ(Place({Refuge(kFast, kMuch), Busy(kSlow, 0)}, 0, kManyChunks), 0);
}

TEST(Placement, ASlowNicTakesAChunkIfItDeliversItBeforeTheOthersAreDone) {
  std::vector<PathLoad> paths{Full(kFast, kMuch), Busy(kSlow, 0)};
  EXPECT_EQ(Place(paths, 1, kManyChunks), 1);
  paths[0].nic_bytes = 2 * kChunk;
  EXPECT_EQ(Place(paths, 1, kOneChunk), kNoPath) << "the message would wait for it";
}

// Whatever the others drain: as after its return, when short messages never fill it.
TEST(Placement, ANicOfWhichNothingIsKnownGetsAnEqualShare) {
  for (double drain : {0.025, 0.5, 1.0, 12.0}) {
    std::vector<PathLoad> paths{Busy(drain, 0), Busy(0, 0)};
    for (int i = 0; i < 100; ++i) paths[static_cast<size_t>(Place(paths, kNoPath, kManyChunks))].nic_bytes += kChunk;
    EXPECT_EQ(paths[0].nic_bytes, paths[1].nic_bytes) << drain;
  }
}

// Where work is short, only the slow NIC has a queue, and so only its rate is known.
TEST(Placement, ASlowNicIsToldFromOnesThatNeverHaveAQueue) {
  std::vector<PathLoad> paths{Busy(0, 0), Busy(kSlow, 0), Busy(0, 0)};
  paths[0].peak = paths[2].peak = kFast;
  TellFromSlow(&paths);
  int slow = 0;
  for (int i = 0; i < 10; ++i) {
    int chosen = Place(paths, kNoPath, kOneChunk);
    ASSERT_NE(chosen, kNoPath);
    slow += chosen == 1 ? 1 : 0;
    paths[static_cast<size_t>(chosen)].nic_bytes += kChunk / 10;
  }
  EXPECT_EQ(slow, 0) << "it holds up the message";
  paths = {Busy(0, 0), Busy(kSlow, 0)};
  paths[0].peak = 3 * kSlow;  // may be the word of a while that came at once
  TellFromSlow(&paths);
  EXPECT_EQ(paths[0].drain, 0);
}

// The slow one would deliver the chunk first, but the others would have done everything by then.
TEST(Placement, AFasterNicThatIsFreeTakesWhatASlowOneIsNotWorth) {
  EXPECT_EQ(Place({Busy(12, 2 * kChunk), Busy(3, 0)}, kNoPath, kOneChunk), 0);
}

TEST(Placement, ASlowNicTakesChunksUntilItHasItsShare) {
  std::vector<PathLoad> paths{Full(kFast, kMuch), Busy(kSlow, 0)};
  while (Place(paths, kNoPath, kOneChunk) == 1) {
    paths[1].nic_bytes += kChunk;
    ASSERT_LT(paths[1].nic_bytes, kMuch);
  }
  EXPECT_GT(paths[1].nic_bytes, 0.3 * kMuch * kSlow / kFast);
  EXPECT_LE(paths[1].nic_bytes, kMuch * kSlow / kFast);
}

TEST(Placement, AmongNicsThatAreAlikeNoneIsSlow) {
  EXPECT_EQ(Place({Full(kFast, 0), Busy(0.6 * kFast, kMuch)}, kNoPath, kOneChunk), 1);
}

TEST(Placement, WithoutAHomeEveryNicGetsItsShare) {
  std::vector<PathLoad> paths{Busy(kFast, 0), Busy(kFast / 1.5, 0), Busy(0, kMuch)};
  for (int i = 0; i < 100; ++i) paths[static_cast<size_t>(Place(paths, kNoPath, kManyChunks))].nic_bytes += kChunk;
  EXPECT_NEAR(paths[0].nic_bytes / paths[1].nic_bytes, 1.5, 0.1);
}

TEST(Placement, ANicToWhichOthersAreConfinedIsLeftToThem) {
  EXPECT_EQ(Place({Refuge(kFast, kChunk), Busy(kFast, kMuch)}, kNoPath, kManyChunks), 0) << "it has less before it";
  EXPECT_EQ(Place({Refuge(kFast, kMuch), Busy(kFast, kMuch)}, kNoPath, kManyChunks), 1);
  EXPECT_EQ(Place({Refuge(kFast, kMuch), Full(kFast, kMuch)}, kNoPath, kManyChunks), kNoPath) << "better wait";
  EXPECT_EQ(Place({Refuge(kFast, kMuch), PathLoad{}}, kNoPath, kManyChunks), 0) << "no other is up";
  EXPECT_EQ(Place({Refuge(kFast, 0), Busy(kSlow, 0)}, kNoPath, kOneChunk), 0) << "the other is not worth it";
}

TEST(Placement, WhoIsConfinedTakesWhatItReaches) {
  EXPECT_EQ(Place({Refuge(kFast, kMuch), Full(kFast, kMuch)}, kNoPath, kManyChunks, true), 0);
}

TEST(Placement, NothingGoesWhereNothingIsFree) {
  EXPECT_EQ(Place({Full(kFast, 0), PathLoad{}}, kNoPath, kManyChunks), kNoPath);
  EXPECT_EQ(Soonest({PathLoad{}, PathLoad{}}, kOneChunk, false), kNoPath);
}

}  // namespace
}  // namespace r2ccl
