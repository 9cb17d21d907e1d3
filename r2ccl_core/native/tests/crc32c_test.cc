// CRC32C: the published values, and that all ways to it agree at every length and alignment.
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "pair.h"

namespace r2ccl {
namespace {

// RFC 3720, B.4.
TEST(Crc32c, PublishedValues) {
  std::vector<uint8_t> bytes(32, 0);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x8a9136aau);
  bytes.assign(32, 0xff);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x62a8ab43u);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x46dd794eu);
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(PortableCrc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(nullptr, 0), 0u);
}

TEST(Crc32c, AllWaysAgree) {
  std::mt19937_64 random(TestSeed());
  std::vector<uint8_t> bytes(20000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  std::vector<size_t> lengths(200);
  std::iota(lengths.begin(), lengths.end(), size_t{0});
  for (size_t near : {1024u, 3072u, 6144u, 9216u, 19000u}) {
    for (size_t length = near - 10; length < near + 10; ++length) lengths.push_back(length);
  }
  for (size_t length : lengths) {
    size_t at = random() % 17;
    ASSERT_EQ(Crc32c(bytes.data() + at, length), PortableCrc32c(bytes.data() + at, length))
        << Crc32cKind() << ", " << length << " bytes at " << at;
  }
}

}  // namespace
}  // namespace r2ccl
