// Region: registered memory, and what still accesses it.
#ifndef R2CCL_TRANSFER_REGION_H_
#define R2CCL_TRANSFER_REGION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"

namespace r2ccl::transfer {

struct Region {
  uint64_t key = 0;  // random, so that nobody can guess it
  char* data = nullptr;
  uint64_t bytes = 0;
  int users = 0;        // pieces that the transport may still read or write
  bool closed = false;  // no new ones
};

// A piece's reference to its region; nullptr: to none.
class Use {
 public:
  Use() = default;
  explicit Use(std::shared_ptr<Region> region) : region_(std::move(region)) {
    if (region_ != nullptr) ++region_->users;
  }
  Use(Use&& other) noexcept : region_(std::move(other.region_)) {}
  Use& operator=(Use&& other) noexcept {
    std::swap(region_, other.region_);
    return *this;
  }
  ~Use() {
    if (region_ != nullptr) --region_->users;
  }
  const Region* region() const { return region_.get(); }

 private:
  std::shared_ptr<Region> region_;
};

// Not thread-safe.
class Regions {
 public:
  void Add(std::shared_ptr<Region> region) { regions_[region->key] = std::move(region); }

  // From now on the key is refused; nullptr if there is no such region. Pieces in flight continue.
  std::shared_ptr<Region> Remove(uint64_t key) {
    auto node = regions_.extract(key);
    if (node.empty()) return nullptr;
    node.mapped()->closed = true;
    return std::move(node.mapped());
  }

  // The region of a range; an error that says what is wrong if the range is not wholly within a registered region.
  Status Find(uint64_t key, uint64_t offset, uint64_t bytes, std::shared_ptr<Region>* region) const {
    auto entry = regions_.find(key);
    if (entry == regions_.end()) return {Code::kInvalidArgument, "the memory is not registered (any more)"};
    const Region& found = *entry->second;
    if (offset > found.bytes || bytes > found.bytes - offset) {
      return {Code::kInvalidArgument, "bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " +
                                          std::to_string(bytes) + " are not within the registered " +
                                          std::to_string(found.bytes)};
    }
    *region = entry->second;
    return {};
  }

 private:
  std::map<uint64_t, std::shared_ptr<Region>> regions_;
};

}  // namespace r2ccl::transfer

#endif  // R2CCL_TRANSFER_REGION_H_
