// The arithmetic of the collectives against plain references, and the test pattern against its definition.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collective/pattern.h"
#include "collective/reduce.h"
#include "pair.h"

namespace r2ccl {
namespace {

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat64,  DataType::kInt32, DataType::kInt64,
                               DataType::kFloat16, DataType::kBfloat16, DataType::kUint8, DataType::kInt8};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd, ReduceOp::kAvg};

float FromHalf(uint16_t bits) {
  int exponent = (bits >> 10) & 31;
  int fraction = bits & 1023;
  float magnitude = exponent == 0    ? std::ldexp(static_cast<float>(fraction), -24)
                    : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                     : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

float FromBrain(uint16_t bits) {
  uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// The 16-bit value nearest to `value`, ties to the even one, found by looking at all of them.
template <typename Decode>
uint16_t Nearest(double value, Decode decode) {
  uint16_t best = 0;
  double best_distance = INFINITY;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    double candidate = decode(static_cast<uint16_t>(bits));
    if (std::isnan(candidate) || std::isinf(candidate)) continue;
    double distance = std::fabs(candidate - value);
    bool tie_to_even = distance == best_distance && (bits & 1) == 0 && candidate != 0;
    if (distance < best_distance || tie_to_even) {
      best = static_cast<uint16_t>(bits);
      best_distance = distance;
    }
  }
  return best;
}

template <typename T>
T Plain(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProd:
      return a * b;
  }
  return a;
}

template <typename T>
void ExpectPlain(DataType type, ReduceOp op, std::mt19937_64& random) {
  for (size_t count : {0, 1, 7, 64, 1001}) {
    std::vector<T> a(count), b(count), out(count + 1, T{55});
    for (size_t i = 0; i < count; ++i) {
      a[i] = static_cast<T>(static_cast<int64_t>(random() % 20001) - 10000);
      b[i] = static_cast<T>(static_cast<int64_t>(random() % 20001) - 10000);
    }
    Reduce(type, op, a.data(), b.data(), out.data(), count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], Plain(op, a[i], b[i])) << "element " << i;
    ASSERT_EQ(out[count], T{55}) << "wrote beyond the end";
    std::vector<T> left = a;
    Reduce(type, op, left.data(), b.data(), left.data(), count);
    Reduce(type, op, a.data(), b.data(), b.data(), count);
    out.resize(count);
    ASSERT_EQ(left, out) << "into the left operand";
    ASSERT_EQ(b, out) << "into the right operand";
  }
}

TEST(Reduce, WideTypesAgainstPlainLoops) {
  std::mt19937_64 random(TestSeed());
  for (ReduceOp op : kOps) {
    SCOPED_TRACE(static_cast<int>(op));
    ExpectPlain<float>(DataType::kFloat32, op, random);
    ExpectPlain<double>(DataType::kFloat64, op, random);
    ExpectPlain<int32_t>(DataType::kInt32, op, random);
    ExpectPlain<int64_t>(DataType::kInt64, op, random);
    ExpectPlain<uint8_t>(DataType::kUint8, op, random);
    ExpectPlain<int8_t>(DataType::kInt8, op, random);
  }
}

TEST(Reduce, BoolsAreCombinedByTheirTruth) {
  const std::vector<uint8_t> a = {0, 0, 1, 1, 2, 128, 255, 0};
  const std::vector<uint8_t> b = {0, 1, 0, 1, 1, 2, 0, 64};
  const std::vector<uint8_t> either = {0, 1, 1, 1, 1, 1, 1, 1};
  const std::vector<uint8_t> both = {0, 0, 0, 1, 1, 1, 0, 0};
  for (ReduceOp op : kOps) {
    std::vector<uint8_t> out(a.size(), 7);
    Reduce(DataType::kBool, op, a.data(), b.data(), out.data(), a.size());
    EXPECT_EQ(out, op == ReduceOp::kMin || op == ReduceOp::kProd ? both : either) << static_cast<int>(op);
  }
}

TEST(Reduce, IntegersWrap) {
  int32_t a = std::numeric_limits<int32_t>::max();
  int32_t b = 1;
  int32_t out = 0;
  Reduce(DataType::kInt32, ReduceOp::kSum, &a, &b, &out, 1);
  EXPECT_EQ(out, std::numeric_limits<int32_t>::min());
  int64_t c = std::numeric_limits<int64_t>::min();
  int64_t d = -1;
  int64_t product = 0;
  Reduce(DataType::kInt64, ReduceOp::kProd, &c, &d, &product, 1);
  EXPECT_EQ(product, c);
}

template <typename Decode>
void ExpectNearest(DataType type, ReduceOp op, std::mt19937_64& random, Decode decode) {
  constexpr size_t kCount = 40;
  std::vector<uint16_t> a, b;
  while (a.size() < kCount) {
    auto x = static_cast<uint16_t>(random());
    auto y = static_cast<uint16_t>(x + random() % 4096);
    double fx = decode(x), fy = decode(y);
    double exact = Plain(op, fx, fy);
    double largest = type == DataType::kFloat16 ? 65504.0 : 3.38e38;
    if (std::isnan(fx) || std::isnan(fy) || std::isinf(fx) || std::isinf(fy)) continue;
    if (std::fabs(exact) > largest || std::fabs(exact) < 1e-37) continue;  // overflow and float's own denormals
    a.push_back(x);
    b.push_back(y);
  }
  std::vector<uint16_t> out(kCount);
  Reduce(type, op, a.data(), b.data(), out.data(), kCount);
  for (size_t i = 0; i < kCount; ++i) {
    // Once to float, as the contract says, then to the nearest.
    double exact = Plain<float>(op, decode(a[i]), decode(b[i]));
    EXPECT_EQ(decode(out[i]), decode(Nearest(exact, decode))) << decode(a[i]) << " and " << decode(b[i]);
  }
}

TEST(Reduce, NarrowTypesRoundToNearestEven) {
  SCOPED_TRACE("seed " + std::to_string(TestSeed()));
  std::mt19937_64 random(TestSeed());
  for (ReduceOp op : kOps) {
    SCOPED_TRACE(static_cast<int>(op));
    ExpectNearest(DataType::kFloat16, op, random, FromHalf);
    ExpectNearest(DataType::kBfloat16, op, random, FromBrain);
  }
}

TEST(Reduce, BrainFloatKeepsNotANumber) {
  uint16_t nan = 0x7f81;  // its fraction would be lost by rounding
  uint16_t one = 0x3f80;
  uint16_t out = 0;
  Reduce(DataType::kBfloat16, ReduceOp::kSum, &nan, &one, &out, 1);
  EXPECT_TRUE(std::isnan(FromBrain(out)));
}

template <typename T>
void ExpectNanFromEitherSide(DataType type, T nan, T one) {
  for (ReduceOp op : kOps) {
    // Many, as vectors and what is left over are computed apart.
    for (size_t count : {1, 67}) {
      for (bool first : {true, false}) {
        std::vector<T> a(count, first ? nan : one), b(count, first ? one : nan), out(count, one);
        Reduce(type, op, a.data(), b.data(), out.data(), count);
        for (T value : out) {
          double wide = type == DataType::kFloat16    ? FromHalf(static_cast<uint16_t>(value))
                        : type == DataType::kBfloat16 ? FromBrain(static_cast<uint16_t>(value))
                                                      : static_cast<double>(value);
          ASSERT_TRUE(std::isnan(wide)) << static_cast<int>(type) << " " << static_cast<int>(op) << " " << first;
        }
      }
    }
  }
}

TEST(Reduce, NotANumberComesThroughFromEitherSide) {
  ExpectNanFromEitherSide<float>(DataType::kFloat32, NAN, 1);
  ExpectNanFromEitherSide<double>(DataType::kFloat64, NAN, 1);
  ExpectNanFromEitherSide<uint16_t>(DataType::kFloat16, 0x7e00, 0x3c00);
  ExpectNanFromEitherSide<uint16_t>(DataType::kBfloat16, 0x7fc0, 0x3f80);
}

TEST(Reduce, NamesAndSizes) {
  EXPECT_EQ(ParseDataType("bfloat16"), DataType::kBfloat16);
  EXPECT_EQ(ParseDataType("float8"), std::nullopt);
  EXPECT_EQ(ParseReduceOp("prod"), ReduceOp::kProd);
  EXPECT_EQ(ParseReduceOp("avg"), ReduceOp::kAvg);
  EXPECT_EQ(ParseReduceOp("mean"), std::nullopt);
  EXPECT_EQ(ParseDataType("bool"), DataType::kBool);
  EXPECT_EQ(SizeOf(DataType::kBool), 1u);
  EXPECT_EQ(SizeOf(DataType::kUint8), 1u);
  EXPECT_EQ(SizeOf(DataType::kBfloat16), 2u);
  EXPECT_EQ(SizeOf(DataType::kFloat16), 2u);
  EXPECT_EQ(SizeOf(DataType::kInt32), 4u);
  EXPECT_EQ(SizeOf(DataType::kFloat64), 8u);
}

// The definition at the top of collective/pattern.h, word for word.
uint32_t Mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

int64_t Element(const Pattern& p, int64_t rank, uint64_t i) {
  uint64_t m = p.op == ReduceOp::kProd ? 2 : static_cast<uint64_t>(std::clamp<int64_t>(256 / p.ranks, 1, 4));
  if (p.op == ReduceOp::kProd && rank >= 6) return 1;
  auto block = static_cast<uint32_t>(i >> 6);
  uint32_t key = Mix(static_cast<uint32_t>(rank) * 0x9e3779b9u + static_cast<uint32_t>(p.iteration) * 0x85ebca6bu +
                     static_cast<uint32_t>(p.seed));
  return static_cast<int64_t>(1 + (i + Mix(block ^ key)) % m);
}

TEST(Pattern, FollowsItsDefinition) {
  for (int64_t ranks : {1, 3, 8, 70, 300}) {  // 70 ranks: modulus 3
    for (ReduceOp op : kOps) {
      Pattern pattern{ranks, 5, 99, op};
      std::vector<int64_t> data(300);
      for (int64_t rank : {int64_t{0}, ranks - 1}) {
        FillPattern(pattern, rank, DataType::kInt64, data.data(), data.size());
        for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], Element(pattern, rank, i)) << rank << " " << i;
      }
    }
  }
}

TEST(Pattern, TheReducedPatternIsRightAndAnyChangeIsSeen) {
  constexpr size_t kCount = 9000;  // more runs than combinations of three ranks, fewer than of nine
  for (DataType type : kTypes) {
    for (ReduceOp op : kOps) {
      for (int64_t ranks : {2, 3, 9}) {
        Pattern pattern{ranks, 2, 7, op};
        size_t bytes = SizeOf(type);
        std::vector<char> sum(kCount * bytes), one(kCount * bytes);
        FillPattern(pattern, 0, type, sum.data(), kCount);
        for (int64_t rank = 1; rank < ranks; ++rank) {
          FillPattern(pattern, rank, type, one.data(), kCount);
          Reduce(type, op, sum.data(), one.data(), sum.data(), kCount);
        }
        ASSERT_EQ(CheckPattern(pattern, type, sum.data(), kCount), 0u)
            << static_cast<int>(type) << " " << static_cast<int>(op) << " " << ranks;
        sum[(kCount - 1) * bytes] = static_cast<char>(sum[(kCount - 1) * bytes] ^ 1);
        sum[3 * bytes + 1] = static_cast<char>(sum[3 * bytes + 1] ^ 64);
        ASSERT_EQ(CheckPattern(pattern, type, sum.data(), kCount), 2u);
      }
    }
  }
}

TEST(Pattern, AnotherIterationIsWrong) {
  Pattern pattern{4, 0, 0, ReduceOp::kSum};
  std::vector<float> sum(4096, 0), one(4096);
  for (int64_t rank = 0; rank < 4; ++rank) {
    FillPattern(pattern, rank, DataType::kFloat32, one.data(), one.size());
    Reduce(DataType::kFloat32, ReduceOp::kSum, sum.data(), one.data(), sum.data(), sum.size());
  }
  pattern.iteration = 1;
  EXPECT_GT(CheckPattern(pattern, DataType::kFloat32, sum.data(), sum.size()), 1000u);
}

}  // namespace
}  // namespace r2ccl
