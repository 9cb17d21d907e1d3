// Whose fault it was: the verdict for every kind of evidence.
#include "failover/localize.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

struct VerdictCase {
  const char* what;
  Evidence evidence;
  Verdict verdict;
};

//                                                   own    peer  direct tried reached tried reached
const VerdictCase kCases[] = {
    {"the kernel knows", {.own_link_down = true, .own_tried = 1, .own_reached = 1}, Verdict::kLocalNic},
    {"the peer's kernel knows", {.peer_link_down = true, .peer_tried = 1, .peer_reached = 1}, Verdict::kRemoteNic},
    {"the peer answers", {.direct = true, .own_tried = 2}, Verdict::kWorks},
    {"both reach a third", {.own_tried = 1, .own_reached = 1, .peer_tried = 1, .peer_reached = 1}, Verdict::kLink},
    {"only I do", {.own_tried = 2, .own_reached = 1, .peer_tried = 2}, Verdict::kRemoteNic},
    {"only the peer does", {.own_tried = 2, .peer_tried = 3, .peer_reached = 1}, Verdict::kLocalNic},
    {"neither does", {.own_tried = 2, .peer_tried = 2}, Verdict::kUnknown},
    {"two hosts", {}, Verdict::kUnknown},
    {"I do, nobody tried the peer", {.own_tried = 1, .own_reached = 1}, Verdict::kUnknown},
    {"the peer does, nobody tried me", {.peer_tried = 1, .peer_reached = 1}, Verdict::kUnknown},
};

TEST(Localize, EveryKindOfEvidence) {
  for (const VerdictCase& c : kCases) EXPECT_EQ(Judge(c.evidence), c.verdict) << c.what << ": " << Explain(c.evidence);
}

// Both ends judge the same evidence, each from its side.
TEST(Localize, BothEndsAgree) {
  for (int bits = 0; bits < 128; ++bits) {
    auto bit = [bits](int place) { return bits >> place & 1; };
    if (bit(0) == 1 && bit(1) == 1) continue;  // both NICs are down: each end blames its own
    Evidence here{bit(0) == 1, bit(1) == 1, bit(2) == 1, 1 + bit(3), bit(4), bit(5), bit(5) * bit(6)};
    Evidence there{here.peer_link_down, here.own_link_down, here.direct,     here.peer_tried,
                   here.peer_reached,   here.own_tried,     here.own_reached};
    EXPECT_EQ(Judge(there), Mirrored(Judge(here))) << bits;
  }
}

TEST(Localize, Names) {
  EXPECT_STREQ(ToString(Verdict::kLocalNic), "local_nic");
  EXPECT_STREQ(ToString(Verdict::kRemoteNic), "remote_nic");
  EXPECT_STREQ(ToString(Verdict::kLink), "link");
  EXPECT_STREQ(ToString(Verdict::kUnknown), "unknown");
  EXPECT_STREQ(ToString(Verdict::kWorks), "works");
}

}  // namespace
}  // namespace r2ccl
