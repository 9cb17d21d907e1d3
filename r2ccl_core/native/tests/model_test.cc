// The protocol explored exhaustively: whatever the network does, each byte lands once, nothing is lost, nothing hangs.
// And the checker is worth something: it finds what every mutant does wrong.
#include "model.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace r2ccl::model {
namespace {

std::string Told(const Found& found) {
  std::string text = found.stuck ? "stuck" : ToString(found.broken);
  for (const std::string& step : found.steps) text += "\n  " + step;
  return text;
}

struct Bounds {
  int chunks;
  int losses;
  int copies;
};

class Exhaustive : public testing::TestWithParam<Bounds> {};
INSTANTIATE_TEST_SUITE_P(Model, Exhaustive,
                         testing::Values(Bounds{1, 3, 0}, Bounds{2, 2, 0}, Bounds{3, 1, 0}, Bounds{1, 2, 3},
                                         Bounds{2, 1, 1}, Bounds{3, 0, 2}));

TEST_P(Exhaustive, EachByteLandsOnceAndNothingHangs) {
  Found found = Explore(Model(GetParam().chunks, GetParam().losses, GetParam().copies));
  RecordProperty("states", static_cast<int>(found.states));
  EXPECT_EQ(found.broken, kNothing) << Told(found);
  EXPECT_FALSE(found.stuck) << Told(found);
  EXPECT_GT(found.states, 1000u);
}

struct Mutant {
  const char* name;
  Mutation mutation;
  Broken broken;  // kNothing: it hangs
  int losses = 2;
  int copies = 0;
};

class Mutants : public testing::TestWithParam<Mutant> {};
INSTANTIATE_TEST_SUITE_P(
    Model, Mutants,
    testing::Values(Mutant{"AcksOfAnyEpoch", Mutation::kAcksOfAnyEpoch, kAcknowledgedUnseen},
                    Mutant{"CopyIsWrittenAtOnce", Mutation::kCopyIsWrittenAtOnce, kTwoWriters, 1, 1},
                    Mutant{"WriterIsLeftAlone", Mutation::kWriterIsLeftAlone, kWrittenTwice, 1, 1},
                    Mutant{"CopyIsThrownAway", Mutation::kCopyIsThrownAway, kAcknowledgedUnseen, 1, 1},
                    Mutant{"BothCopiesAreForgotten", Mutation::kBothCopiesAreForgotten, kNothing, 1, 1},
                    Mutant{"FrameIsNotKept", Mutation::kFrameIsNotKept, kReadAfterDone, 1, 1},
                    Mutant{"WritesDoneChunks", Mutation::kWritesDoneChunks, kWrittenTwice},
                    Mutant{"InFlightIsForgotten", Mutation::kInFlightIsForgotten, kNothing},
                    Mutant{"DoneWhenSent", Mutation::kDoneWhenSent, kAcknowledgedUnseen},
                    Mutant{"HalfChunkCounts", Mutation::kHalfChunkCounts, kAcknowledgedUnseen},
                    Mutant{"CountsAtTheBeginning", Mutation::kCountsAtTheBeginning, kAcknowledgedUnseen},
                    Mutant{"CountSurvivesTheStream", Mutation::kCountSurvivesTheStream, kAcknowledgedUnseen}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(Mutants, AreFound) {
  Found found = Explore(Model(2, GetParam().losses, GetParam().copies, GetParam().mutation));
  EXPECT_EQ(found.broken, GetParam().broken) << Told(found);
  EXPECT_EQ(found.stuck, GetParam().broken == kNothing) << Told(found);
}

}  // namespace
}  // namespace r2ccl::model
