// Which strangers are worth an event: the first from each address, and few in all.
#include "transport/strangers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace r2ccl {
namespace {

in_addr From(uint32_t number) { return in_addr{htonl(0x0a000000 + number)}; }

TEST(StrangerCount, TellsOfAnAddressOnce) {
  StrangerCount count;
  EXPECT_TRUE(count.Note(Stranger::kGarbage, From(1), 1));
  EXPECT_FALSE(count.Note(Stranger::kGarbage, From(1), 2));
  EXPECT_FALSE(count.Note(Stranger::kSecret, From(1), 3));
  EXPECT_TRUE(count.Note(Stranger::kSecret, From(2), 4));
  EXPECT_EQ(count.count(Stranger::kGarbage), 2u);
  EXPECT_EQ(count.count(Stranger::kSecret), 2u);
  EXPECT_EQ(count.count(Stranger::kSilent), 0u);
}

TEST(StrangerCount, AScanFromManyAddressesMakesFewEvents) {
  StrangerCount count;
  int told = 0;
  constexpr int64_t kMinuteNs = 60'000'000'000;
  for (uint32_t i = 0; i < 9000; ++i) told += count.Note(Stranger::kSilent, From(i), kMinuteNs * i / 9000) ? 1 : 0;
  EXPECT_EQ(told, StrangerCount::kBurst + 5) << "one more every ten seconds";
  EXPECT_EQ(count.count(Stranger::kSilent), 9000u);
  EXPECT_TRUE(count.Note(Stranger::kSilent, From(9001), 60 * kMinuteNs)) << "an hour later";
}

TEST(StrangerCount, EveryKindHasAName) {
  for (size_t i = 0; i < kStrangerKinds; ++i) EXPECT_STRNE(ToString(static_cast<Stranger>(i)), "?");
}

}  // namespace
}  // namespace r2ccl
