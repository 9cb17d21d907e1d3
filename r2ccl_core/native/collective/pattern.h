// Pattern: test data whose collective result is known exactly, and the check of every element against it.
//
// Element i of rank r at iteration t is 1 + (i + offset) mod m, where
//   offset = mix(b ^ mix(r * 0x9e3779b9 + t * 0x85ebca6b + seed)),  b = i >> 6,  all modulo 2^32,
// and mix is the 32-bit finaliser below. So every run of 64 elements of every rank is shifted at random, and a chunk
// that is in the wrong place, from another iteration, or reduced twice is detected. For sum, min and max m is 4, or
// less if many ranks would exceed the integers that bfloat16 holds exactly (ranks * m <= 256). For prod m is 2 and
// ranks beyond the sixth hold 1, so a product is at most 64.
#ifndef R2CCL_COLLECTIVE_PATTERN_H_
#define R2CCL_COLLECTIVE_PATTERN_H_

#include <cstddef>
#include <cstdint>

#include "collective/reduce.h"

namespace r2ccl {

struct Pattern {
  int64_t ranks = 1;
  int64_t iteration = 0;
  int64_t seed = 0;
  ReduceOp op = ReduceOp::kSum;
};

void FillPattern(const Pattern& pattern, int64_t rank, DataType type, void* data, size_t count);

// How many elements differ from the collective's exact result over all ranks.
size_t CheckPattern(const Pattern& pattern, DataType type, const void* data, size_t count);

}  // namespace r2ccl

#endif  // R2CCL_COLLECTIVE_PATTERN_H_
