// Table: the rounds for every foreseen loss of NICs, read from the file that r2ccl_core/gpu/table.py writes.
//
// Rounds are built from hosts. If a host has several GPUs, each runs them with its own part of the vector.
#ifndef R2CCL_CUDA_TABLE_H_
#define R2CCL_CUDA_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace r2ccl::cuda {

struct Operation {
  enum Kind : int32_t { kSend, kReceive, kReceiveReduce, kCopy };
  int32_t round;
  int32_t kind;
  int32_t peer;
  int32_t begin;  // chunks
  int32_t end;
  int32_t from_input;  // the own value is still in the input
};
static_assert(sizeof(Operation) == 24);

struct Entry {
  std::vector<uint32_t> left;  // NICs, by host
  uint64_t least_bytes = 0;
  uint64_t most_bytes = 0;
  uint32_t chunks = 0;
  std::vector<uint32_t> segments;  // the chunk that each ends before; one ends in the midst of no operation
  std::string name;
  std::vector<std::vector<Operation>> programs;  // by host, in the order of issue

  // That of a chunk.
  size_t SegmentOf(int32_t chunk) const;
};

struct Table {
  uint32_t hosts = 0;
  uint32_t gpus = 0;    // of each host
  uint32_t nics = 0;    // of each host
  uint64_t digest = 0;  // of the file, never 0: ranks with different ones must not act on them
  std::vector<Entry> entries;

  // The entry for these losses and this size, or nullptr.
  const Entry* Find(const std::vector<uint32_t>& left, uint64_t bytes) const;
};

// Refuses what is cut off, of another version, or would have a rank touch what is not there.
Status ReadTable(const std::string& path, Table* table);
Status ParseTable(const std::string& data, Table* table);

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_TABLE_H_
