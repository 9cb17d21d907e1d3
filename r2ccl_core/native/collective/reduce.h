// Reduce: element-wise combination of two host vectors, the arithmetic of the collectives.
#ifndef R2CCL_COLLECTIVE_REDUCE_H_
#define R2CCL_COLLECTIVE_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace r2ccl {

enum class DataType { kFloat32, kFloat64, kInt32, kInt64, kFloat16, kBfloat16, kUint8, kInt8, kBool };
enum class ReduceOp { kSum, kMin, kMax, kProd, kAvg };

std::optional<DataType> ParseDataType(std::string_view name);  // float32, ..., bool
std::optional<ReduceOp> ParseReduceOp(std::string_view name);  // sum, min, max, prod, avg
std::string_view NameOf(DataType type);
std::string_view NameOf(ReduceOp op);
size_t SizeOf(DataType type);

// out[i] = a[i] op b[i] for `count` elements. `out` may be `a` or `b` itself. The 16-bit types are combined in
// float and rounded to nearest even, once per call; integers wrap. NaN with anything is NaN, as in NumPy, also for min
// and max: a result must not depend on the order of the ranks. Of bool, whose bytes are true unless they are 0, max and
// sum are the logical or, min and prod the logical and. kAvg adds, as kSum does: who has the sum divides it.
void Reduce(DataType type, ReduceOp op, const void* a, const void* b, void* out, size_t count);

}  // namespace r2ccl

#endif  // R2CCL_COLLECTIVE_REDUCE_H_
