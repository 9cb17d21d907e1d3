// Reading and checking of tables.
#include "cuda/table.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

namespace r2ccl::cuda {
namespace {

constexpr char kMagic[] = "R2CCLG04";
constexpr size_t kMagicBytes = 8;
constexpr size_t kNameBytes = 32;
constexpr uint32_t kMostHosts = 4096;
constexpr uint32_t kMostGpus = 16;
constexpr uint32_t kMostChunks = 1 << 30;

class Reader {
 public:
  explicit Reader(const std::string& data) : data_(data) {}
  bool Take(void* to, size_t bytes) {
    if (bytes > data_.size() - at_) return false;
    if (bytes > 0) std::memcpy(to, data_.data() + at_, bytes);
    at_ += bytes;
    return true;
  }
  size_t left() const { return data_.size() - at_; }

 private:
  const std::string& data_;
  size_t at_ = 0;
};

Status Damaged(const std::string& what) { return {Code::kInvalidArgument, "a table of rounds is damaged: " + what}; }

bool IsSound(const Operation& op, const Table& table, const Entry& entry, int32_t last_round) {
  bool has_peer = op.kind != Operation::kCopy;
  return op.kind >= 0 && op.kind <= Operation::kCopy && op.round >= last_round && op.begin >= 0 && op.begin < op.end &&
         op.end <= static_cast<int32_t>(entry.chunks) && entry.SegmentOf(op.begin) == entry.SegmentOf(op.end - 1) &&
         (!has_peer || (op.peer >= 0 && op.peer < static_cast<int32_t>(table.hosts)));
}

// One after another, none of them empty, up to the last chunk; several only where there is something inside the hosts.
Status TakeSegments(Reader* reader, const Table& table, Entry* entry) {
  uint32_t count = 0;
  if (!reader->Take(&count, 4) || count > reader->left() / 4) return Damaged("it ends within segments");
  entry->segments.resize(count);
  reader->Take(entry->segments.data(), 4 * size_t{count});
  uint32_t last = 0;
  for (uint32_t end : entry->segments) {
    if (end <= last) return Damaged("a segment is empty");
    last = end;
  }
  if (last != entry->chunks || (count > 1 && table.gpus == 1)) return Damaged("its segments are not the vector's");
  return {};
}

Status TakeEntry(Reader* reader, const Table& table, Entry* entry) {
  entry->left.resize(table.hosts);
  char name[kNameBytes];
  bool whole = reader->Take(entry->left.data(), 4 * size_t{table.hosts}) && reader->Take(&entry->least_bytes, 8) &&
               reader->Take(&entry->most_bytes, 8) && reader->Take(&entry->chunks, 4) && reader->Take(name, kNameBytes);
  if (!whole) return Damaged("it ends within an entry");
  if (entry->chunks < 1 || entry->chunks > kMostChunks) return Damaged("it has no chunks, or too many");
  entry->name.assign(name, strnlen(name, kNameBytes));
  if (Status status = TakeSegments(reader, table, entry); !status.ok()) return status;
  entry->programs.resize(table.hosts);
  for (auto& program : entry->programs) {
    uint32_t count = 0;
    if (!reader->Take(&count, 4) || count > reader->left() / sizeof(Operation)) return Damaged("it ends within steps");
    program.resize(count);
    reader->Take(program.data(), count * sizeof(Operation));
    int32_t round = 0;
    std::vector<bool> touched(entry->segments.size(), false);
    for (const Operation& op : program) {
      if (!IsSound(op, table, *entry, round)) return Damaged("an operation names what is not there");
      round = op.round;
      touched[entry->SegmentOf(op.begin)] = true;
    }
    if (std::find(touched.begin(), touched.end(), false) != touched.end())
      return Damaged("a host leaves a segment out");
  }
  return {};
}

uint64_t Fnv1a(const std::string& data) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char byte : data) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash == 0 ? 1 : hash;
}

}  // namespace

size_t Entry::SegmentOf(int32_t chunk) const {
  auto its = std::upper_bound(segments.begin(), segments.end(), static_cast<uint32_t>(chunk));
  return static_cast<size_t>(its - segments.begin());
}

const Entry* Table::Find(const std::vector<uint32_t>& left, uint64_t bytes) const {
  for (const Entry& entry : entries) {
    if (entry.left == left && bytes >= entry.least_bytes && bytes < entry.most_bytes) return &entry;
  }
  return nullptr;
}

Status ReadTable(const std::string& path, Table* table) {
  std::ifstream file(path, std::ios::binary);
  std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return {Code::kSystem, path + ": cannot be read; make it with r2ccl_core.gpu"};
  return ParseTable(data, table);
}

Status ParseTable(const std::string& data, Table* table) {
  Reader reader(data);
  char magic[kMagicBytes];
  uint32_t count = 0;
  *table = {};
  bool whole = reader.Take(magic, kMagicBytes) && std::memcmp(magic, kMagic, kMagicBytes) == 0 &&
               reader.Take(&table->hosts, 4) && reader.Take(&table->gpus, 4) && reader.Take(&table->nics, 4) &&
               reader.Take(&count, 4);
  bool sound = whole && table->hosts <= kMostHosts && table->gpus >= 1 && table->gpus <= kMostGpus;
  if (!sound) return Damaged("its head is not of this version; make it anew with r2ccl_core.gpu");
  for (uint32_t i = 0; i < count; ++i) {
    Entry entry;
    Status status = TakeEntry(&reader, *table, &entry);
    if (!status.ok()) return status;
    table->entries.push_back(std::move(entry));
  }
  table->digest = Fnv1a(data);
  return {};
}

}  // namespace r2ccl::cuda
