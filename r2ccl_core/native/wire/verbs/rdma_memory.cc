// Registering memory with devices, and what they have written to another device's.
#include "wire/verbs/rdma_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace r2ccl {
namespace {

constexpr int kHostAccess = ibv::kLocalWrite | ibv::kRemoteWrite;
constexpr int kDeviceAccess = kHostAccess | ibv::kRemoteRead;  // the flush reads

std::string WhyNot(const std::optional<DeviceMemory>& device, size_t bytes) {
  std::string size = std::to_string(bytes / 1024) + " KiB of ";
  if (device) {
    return " cannot register " + size + "a GPU's memory, which are copied by the processor: " + std::strerror(errno) +
           "; is nvidia-peermem loaded, or the NIC's driver one that takes a dmabuf?";
  }
  return " cannot register " + size + "the program's memory, which are copied: " + std::strerror(errno) +
         "; the limit for locked memory is " + ibv::LockedLimit() +
         " (`ulimit -l unlimited`, or LimitMEMLOCK=infinity of the service)";
}

}  // namespace

void RdmaMemory::Add(const char* data, size_t bytes, const std::optional<DeviceMemory>& device) {
  MutexLock lock(mutex_);
  ranges_.Add(data, bytes).device = device;
}

void RdmaMemory::Drop(const char* data, size_t bytes) {
  MutexLock lock(mutex_);
  auto known = ranges_.Drop(data, bytes);
  if (!known) return;
  for (const auto& [pd, region] : known->regions) {
    if (region != nullptr) (void)known->give_back(region);
  }
}

ibv::Mr* RdmaMemory::Register(const ibv::Library& library, ibv::Pd* pd, const RcRanges<Known>::Range& range) {
  const auto& device = range.known->device;
  if (!device) return library.reg_mr(pd, const_cast<char*>(range.data), range.bytes, kHostAccess);
  if (device->dmabuf < 0)
    return library.reg_mr(pd, reinterpret_cast<void*>(device->address), range.bytes, kDeviceAccess);
  errno = EOPNOTSUPP;
  if (library.reg_dmabuf_mr == nullptr) return nullptr;
  return library.reg_dmabuf_mr(pd, device->offset, range.bytes, device->address, device->dmabuf, kDeviceAccess);
}

bool RdmaMemory::Find(const ibv::Library& library, ibv::Pd* pd, const char* data, size_t bytes, RcKeys* keys,
                      std::string* why_not) {
  MutexLock lock(mutex_);
  auto range = ranges_.Find(data, bytes);
  if (!range) return false;
  const auto& device = range->known->device;
  range->known->give_back = library.dereg_mr;
  auto [entry, is_new] = range->known->regions.try_emplace(pd, nullptr);
  if (is_new) {
    entry->second = Register(library, pd, *range);
    if (entry->second == nullptr) *why_not = WhyNot(device, range->bytes);
  }
  if (entry->second == nullptr) return false;
  uint64_t base = device ? device->address : reinterpret_cast<uint64_t>(range->data);
  *keys = {entry->second->lkey, entry->second->rkey, base + static_cast<uint64_t>(data - range->data),
           device.has_value()};
  return true;
}

Status RdmaMemory::Revoke(const ibv::Pd* pd) {
  MutexLock lock(mutex_);
  int failed = 0;
  ranges_.ForEach([&](Known* known) {
    known->written.erase(pd);
    auto entry = known->regions.extract(pd);
    if (!entry.empty() && entry.mapped() != nullptr && known->give_back(entry.mapped()) != 0) ++failed;
  });
  if (failed == 0) return {};
  return {Code::kSystem, "a device gives " + std::to_string(failed) + " registrations of memory not back"};
}

Status RdmaMemory::RevokeRange(const ibv::Pd* pd, const char* data, size_t bytes) {
  MutexLock lock(mutex_);
  auto range = ranges_.Find(data, bytes);
  if (!range) return {};
  range->known->written.erase(pd);
  auto entry = range->known->regions.extract(pd);
  if (entry.empty() || entry.mapped() == nullptr || range->known->give_back(entry.mapped()) == 0) return {};
  return {Code::kSystem, "a device that cannot flush what it wrote to a GPU's memory does not give it back, either"};
}

void RdmaMemory::NoteWritten(const ibv::Pd* pd, std::weak_ptr<RdmaDevice> device, const RcPort& port, const char* data,
                             size_t bytes) {
  MutexLock lock(mutex_);
  auto range = ranges_.Find(data, bytes);
  if (!range || !range->known->device) return;
  Written& written = range->known->written[pd];
  written.device = std::move(device);
  written.port = port;
  ++written.writes;
}

std::vector<RdmaMemory::Unflushed> RdmaMemory::FindUnflushed(const char* data, size_t bytes) {
  std::vector<Unflushed> found;
  MutexLock lock(mutex_);
  auto range = ranges_.Find(data, bytes);
  if (!range || !range->known->device) return found;
  uint64_t address = range->known->device->address + static_cast<uint64_t>(data - range->data);
  for (const auto& [pd, written] : range->known->written) {
    auto region = range->known->regions.find(pd);
    // What was given back is written to no more.
    if (written.writes == written.flushed || region == range->known->regions.end() || region->second == nullptr)
      continue;
    found.push_back({written.device, written.port, pd, written.writes, address, region->second->rkey});
  }
  return found;
}

void RdmaMemory::NoteFlushed(const Unflushed& flushed, const char* data, size_t bytes) {
  MutexLock lock(mutex_);
  auto range = ranges_.Find(data, bytes);
  if (!range) return;
  auto written = range->known->written.find(flushed.pd);
  if (written == range->known->written.end()) return;
  written->second.flushed = std::max(written->second.flushed, flushed.writes);
}

}  // namespace r2ccl
