// Layout: where one rank's chunks lie in the vector of a run.
//
// A vector is cut into segments, and each segment into equal parts, one for each GPU of a host. What a rank has of all
// segments, one after another, is what the table's chunks divide. So ncclReduceScatter and ncclAllGather run on one
// segment after another, while others are on the network.
#ifndef R2CCL_CUDA_LAYOUT_H_
#define R2CCL_CUDA_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "cuda/nccl.h"
#include "cuda/table.h"

namespace r2ccl::cuda {

class Layout {
 public:
  // Of `count` elements, of which what makes no equal parts is left out. `count` is at least the entry's chunks for
  // each GPU. The entry must outlive this.
  Layout(const Entry& entry, size_t gpus, size_t place, size_t count, Type type)
      : entry_(entry), gpus_(gpus), place_(place), part_(count / gpus) {
    // NCCL copies what is not aligned an element at a time.
    size_t unit = kAlign / TypeBytes(type);
    unit_ = part_ / unit >= entry.chunks ? unit : 1;
  }

  size_t segments() const { return entry_.segments.size(); }
  // The segment of a chunk.
  size_t SegmentOf(int32_t chunk) const { return entry_.SegmentOf(chunk); }
  // In elements of the vector: where a segment begins, and how much of it each GPU has.
  size_t Begin(size_t segment) const { return gpus_ * Offset(First(segment)); }
  size_t Part(size_t segment) const { return Offset(entry_.segments[segment]) - Offset(First(segment)); }
  // Where this rank's part of a segment begins, and where its chunk does.
  size_t Own(size_t segment) const { return Begin(segment) + place_ * Part(segment); }
  size_t At(int32_t chunk) const {
    size_t segment = SegmentOf(chunk);
    return Own(segment) + Offset(static_cast<size_t>(chunk)) - Offset(First(segment));
  }
  // Elements of the chunks [begin, end), which are of one segment.
  size_t Count(int32_t begin, int32_t end) const {
    return Offset(static_cast<size_t>(end)) - Offset(static_cast<size_t>(begin));
  }

 private:
  static constexpr size_t kAlign = 128;  // bytes

  size_t First(size_t segment) const { return segment == 0 ? 0 : entry_.segments[segment - 1]; }
  size_t Offset(size_t chunk) const {
    // Without overflow for any count: chunk * count may not fit.
    size_t chunks = entry_.chunks;
    if (chunk == chunks) return part_;
    size_t units = part_ / unit_;
    return (units / chunks * chunk + units % chunks * chunk / chunks) * unit_;
  }

  const Entry& entry_;
  const size_t gpus_;
  const size_t place_;
  const size_t part_;  // elements of each GPU
  size_t unit_ = 1;    // elements that stay together
};

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_LAYOUT_H_
