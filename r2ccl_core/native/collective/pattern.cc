// Making and checking of the test pattern, a run of 64 elements at a time.
#include "collective/pattern.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "collective/half.h"

namespace r2ccl {
namespace {

constexpr size_t kRun = 64;
constexpr size_t kMaxModulus = 4;
constexpr size_t kMaxElementBytes = 8;
constexpr size_t kMostKeptRuns = 256;

uint32_t Mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

uint32_t Modulus(const Pattern& pattern) {
  if (pattern.op == ReduceOp::kProd) return 2;
  return static_cast<uint32_t>(std::clamp<int64_t>(256 / pattern.ranks, 1, kMaxModulus));
}

uint32_t RankKey(const Pattern& pattern, int64_t rank) {
  return Mix(static_cast<uint32_t>(rank) * 0x9e3779b9u + static_cast<uint32_t>(pattern.iteration) * 0x85ebca6bu +
             static_cast<uint32_t>(pattern.seed));
}

// The small integers of the pattern in each type's own bytes.
template <typename T>
void Encode(int64_t value, char* out) {
  T typed = static_cast<T>(value);
  std::memcpy(out, &typed, sizeof typed);
}

void EncodeAs(DataType type, int64_t value, char* out) {
  switch (type) {
    case DataType::kFloat32:
      return Encode<float>(value, out);
    case DataType::kFloat64:
      return Encode<double>(value, out);
    case DataType::kInt32:
      return Encode<int32_t>(value, out);
    case DataType::kInt64:
      return Encode<int64_t>(value, out);
    case DataType::kFloat16:
      return Encode<Half>(value, out);
    case DataType::kUint8:
      return Encode<uint8_t>(value, out);
    case DataType::kInt8:
      return Encode<int8_t>(value, out);
    case DataType::kBool:
      return Encode<bool>(value != 0, out);
    case DataType::kBfloat16: {
      auto single = static_cast<float>(value);
      std::memcpy(out, reinterpret_cast<char*>(&single) + 2, 2);  // exact: at most eight significant bits
      return;
    }
  }
}

// One run of elements, made of `modulus` values that repeat (the modulus may be 3: the last repeat is cut).
using Run = std::array<char, kRun * kMaxElementBytes>;

template <typename Value>
void EncodeRun(DataType type, uint32_t modulus, Value value, Run* run) {
  size_t bytes = SizeOf(type);
  for (uint32_t k = 0; k < modulus; ++k) EncodeAs(type, value(k), run->data() + k * bytes);
  for (size_t done = modulus; done < kRun;) {
    size_t n = std::min(done, kRun - done);
    std::memcpy(run->data() + done * bytes, run->data(), n * bytes);
    done += n;
  }
}

int64_t Combine(ReduceOp op, int64_t a, int64_t b) {
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
  return 0;
}

// What the ranks' elements come to, of the values that repeat in a run.
std::array<int64_t, kMaxModulus> Results(ReduceOp op, const std::vector<uint32_t>& shifts, uint32_t modulus) {
  std::array<int64_t, kMaxModulus> results{};
  for (size_t r = 0; r < shifts.size(); ++r) {
    for (uint32_t k = 0; k < modulus; ++k) {
      int64_t value = 1 + (shifts[r] + k) % modulus;
      results[k] = r == 0 ? value : Combine(op, results[k], value);
    }
  }
  return results;
}

size_t CountWrong(const char* have, const char* want, size_t count, size_t bytes) {
  if (std::memcmp(have, want, count * bytes) == 0) return 0;
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += std::memcmp(have + i * bytes, want + i * bytes, bytes) != 0;
  return wrong;
}

}  // namespace

void FillPattern(const Pattern& pattern, int64_t rank, DataType type, void* data, size_t count) {
  size_t bytes = SizeOf(type);
  uint32_t modulus = Modulus(pattern);
  bool ones = pattern.op == ReduceOp::kProd && rank >= 6;
  uint32_t key = RankKey(pattern, rank);
  std::array<Run, kMaxModulus> runs;  // by (start of the run + offset) mod m
  for (uint32_t shift = 0; shift < modulus; ++shift) {
    EncodeRun(type, modulus, [&](uint32_t k) { return ones ? 1 : 1 + (shift + k) % modulus; }, &runs[shift]);
  }
  for (size_t at = 0; at < count; at += kRun) {
    auto block = static_cast<uint32_t>(at / kRun);
    uint32_t shift = (static_cast<uint32_t>(at % modulus) + Mix(block ^ key) % modulus) % modulus;
    std::memcpy(static_cast<char*>(data) + at * bytes, runs[shift].data(), std::min(kRun, count - at) * bytes);
  }
}

size_t CheckPattern(const Pattern& pattern, DataType type, const void* data, size_t count) {
  size_t bytes = SizeOf(type);
  uint32_t modulus = Modulus(pattern);
  int64_t active = pattern.op == ReduceOp::kProd ? std::min<int64_t>(pattern.ranks, 6) : pattern.ranks;
  std::vector<uint32_t> keys;
  for (int64_t rank = 0; rank < active; ++rank) keys.push_back(RankKey(pattern, rank));
  // What a run should be depends on the ranks' shifts alone: where those have fewer combinations than there are runs,
  // each is made once.
  size_t combinations = 1;
  size_t most = std::min(kMostKeptRuns, count / kRun);
  for (size_t r = 0; r < keys.size() && combinations <= most; ++r) combinations *= modulus;
  bool keep = combinations <= most;
  std::vector<Run> runs(keep ? combinations : 1);
  std::vector<bool> made(runs.size());
  std::vector<uint32_t> shifts(keys.size());
  size_t wrong = 0;
  for (size_t at = 0; at < count; at += kRun) {
    auto block = static_cast<uint32_t>(at / kRun);
    auto start = static_cast<uint32_t>(at % modulus);
    size_t place = 0;
    for (size_t r = 0; r < keys.size(); ++r) {
      shifts[r] = start + Mix(block ^ keys[r]) % modulus;
      if (keep) place = place * modulus + shifts[r] % modulus;
    }
    Run& run = runs[place];
    if (!keep || !made[place]) {
      auto results = Results(pattern.op, shifts, modulus);
      EncodeRun(type, modulus, [&](uint32_t k) { return results[k]; }, &run);
      made[place] = true;
    }
    wrong += CountWrong(static_cast<const char*>(data) + at * bytes, run.data(), std::min(kRun, count - at), bytes);
  }
  return wrong;
}

}  // namespace r2ccl
