// Operation: what the ranks of a group run together, and its tag, by which a rank detects that another one runs
// something else before it uses its bytes. Pure.
//
//   bits 0..2 collective, 3..6 data type, 7..9 reduction, 10..23 a digest of the rest
#ifndef R2CCL_COLLECTIVE_OPERATION_H_
#define R2CCL_COLLECTIVE_OPERATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collective/reduce.h"

namespace r2ccl {

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kSendRecv, kAllToAll };

std::optional<Collective> ParseCollective(std::string_view name);  // as in r2ccl_core/model/collective.py

struct Operation {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t root = 0;
  int64_t elements = 0;  // of the schedule's vector
  int64_t call = 0;      // how many came before, by which what was left over of an earlier one is known
};

uint32_t TagOf(const Operation& operation);

// Such as "all_reduce of float32 (sum)"; no digest can be read back.
std::string Describe(uint32_t tag);

}  // namespace r2ccl

#endif  // R2CCL_COLLECTIVE_OPERATION_H_
