// Which ranges a piece of memory lies in, and for how long.
#include "wire/verbs/rc_memory.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

TEST(RcRanges, APieceIsFoundInARangeThatHasAllOfIt) {
  char memory[100];
  RcRanges<int> ranges;
  ranges.Add(memory + 10, 50);
  *ranges.Find(memory + 10, 50)->known = 7;
  EXPECT_EQ(*ranges.Find(memory + 20, 40)->known, 7);
  EXPECT_FALSE(ranges.Find(memory + 20, 41));
  EXPECT_FALSE(ranges.Find(memory + 9, 2));
  EXPECT_FALSE(ranges.Find(memory + 60, 1));
}

TEST(RcRanges, ASmallRangeInALargeOneDoesNotHideIt) {
  char memory[100];
  RcRanges<int> ranges;
  ranges.Add(memory, 100);
  ranges.Add(memory + 10, 5);
  ranges.Add(memory + 10, 50);
  EXPECT_EQ(ranges.Find(memory + 11, 60)->bytes, 100u);
  EXPECT_EQ(ranges.Find(memory + 11, 30)->bytes, 50u);
}

TEST(RcRanges, ARangeIsGivenBackAsOftenAsItWasAdded) {
  char memory[100];
  RcRanges<int> ranges;
  ranges.Add(memory, 100);
  ranges.Add(memory, 100);
  EXPECT_FALSE(ranges.Drop(memory, 100));
  EXPECT_TRUE(ranges.Find(memory, 1));
  EXPECT_TRUE(ranges.Drop(memory, 100));
  EXPECT_FALSE(ranges.Find(memory, 1));
  EXPECT_FALSE(ranges.Drop(memory, 100)) << "it is not there";
  EXPECT_EQ(ranges.size(), 0u);
}

}  // namespace
}  // namespace r2ccl
