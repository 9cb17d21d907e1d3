// Split: what a planned schedule wants, and what becomes of it where NICs are not as planned.
#include "failover/split.h"

#include <gtest/gtest.h>

#include <vector>

namespace r2ccl {
namespace {

constexpr double kChunk = 64 << 10;
constexpr double kMuch = 64 << 20;
constexpr double kFast = 0.5;  // bytes per ns

PathLoad With(double share, double drain = kFast) { return {.up = true, .free = true, .drain = drain, .share = share}; }

// What each path gets of so many bytes.
std::vector<double> Divide(Split* split, const std::vector<PathLoad>& paths, double bytes) {
  std::vector<double> got(paths.size(), 0);
  for (double sent = 0; sent < bytes; sent += kChunk) {
    int chosen = kNoPath;
    if (!split->Place(paths, &chosen) || chosen == kNoPath) break;
    split->Take(chosen, kChunk);
    got[static_cast<size_t>(chosen)] += kChunk;
  }
  return got;
}

void ExpectParts(const std::vector<double>& got, const std::vector<double>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_NEAR(got[i] / kMuch, parts[i], 0.01) << "path " << i;
}

TEST(Split, EachPathGetsItsShareWhateverItsQueue) {
  Split split;
  std::vector<PathLoad> paths = {With(0), With(0.4), With(0.6)};
  paths[1].nic_bytes = kMuch;
  ExpectParts(Divide(&split, paths, kMuch), {0, 0.4, 0.6});
}

TEST(Split, WaitsForAPathThatIsBehindItsShare) {
  Split split;
  std::vector<PathLoad> paths = {With(0.5), With(0.5)};
  paths[1].free = false;
  std::vector<double> got = Divide(&split, paths, kMuch);
  EXPECT_GT(got[0], kChunk) << "it may run ahead a little";
  EXPECT_LT(got[0], 1 << 20);
  int chosen = 0;
  EXPECT_TRUE(split.Place(paths, &chosen));
  EXPECT_EQ(chosen, kNoPath);
  paths[1].free = true;
  EXPECT_TRUE(split.Place(paths, &chosen));
  EXPECT_EQ(chosen, 1);
}

TEST(Split, APathThatIsDownLeavesItsShareToTheOthersAndCatchesUpWithNothing) {
  Split split;
  std::vector<PathLoad> paths = {With(0.5), With(0.3), With(0.2)};
  paths[0].up = paths[0].free = false;
  ExpectParts(Divide(&split, paths, kMuch), {0, 0.6, 0.4});
  paths[0].up = paths[0].free = true;
  ExpectParts(Divide(&split, paths, kMuch), {0.5, 0.3, 0.2});
}

TEST(Split, DecidesNothingIfNoPathThatHasAShareIsUp) {
  Split split;
  std::vector<PathLoad> paths = {With(0), With(1)};
  paths[1].up = false;
  int chosen = 0;
  EXPECT_FALSE(split.Place(paths, &chosen));
}

TEST(Split, ANicThatDrainsLessGetsLess) {
  Split split;
  ExpectParts(Divide(&split, {With(0.5), With(0.5, kFast / 4)}, kMuch), {0.8, 0.2});
}

TEST(Split, APathThatIsFarSlowerThanAnotherGetsLess) {
  Split split;
  std::vector<PathLoad> paths = {With(0.5), With(0.5)};
  paths[0].rate = kFast;
  paths[1].rate = kFast / 2;  // as paths may be that share their NICs with others
  ExpectParts(Divide(&split, paths, kMuch), {0.5, 0.5});
  paths[1].rate = kFast / 9;  // the peer's NIC is slow
  ExpectParts(Divide(&split, paths, kMuch), {0.9, 0.1});
}

}  // namespace
}  // namespace r2ccl
