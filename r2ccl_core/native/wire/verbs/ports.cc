// Reading /sys/class/infiniband, and the environment.
#include "wire/verbs/ports.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

namespace r2ccl {
namespace {

namespace fs = std::filesystem;

constexpr char kRoceV2[] = "RoCE v2";

// One line; empty where there is none: the kernel refuses to read an entry that is not in use.
std::string ReadLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The names in a folder, in the order of names, numbers by their value.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

// Hexadecimal digits with colons anywhere.
bool ParseHex(std::string_view text, uint8_t* bytes, size_t count) {
  size_t digits = 0;
  for (char c : text) {
    if (c == ':') continue;
    int value = 0;
    auto [stop, error] = std::from_chars(&c, &c + 1, value, 16);
    if (error != std::errc() || digits == 2 * count) return false;
    uint8_t& byte = bytes[digits / 2];
    byte = static_cast<uint8_t>(digits % 2 == 0 ? value << 4 : byte | value);
    ++digits;
  }
  return digits == 2 * count;
}

// The address as GIDs of RoCE hold it: an IPv4 address mapped into IPv6.
GidBytes Mapped(in_addr address) {
  GidBytes gid{};
  gid[10] = gid[11] = 0xff;
  std::memcpy(gid.data() + 12, &address, sizeof address);
  return gid;
}

constexpr size_t kIpoibAddressBytes = 20;

// An IPoIB interface has its port's GID in its hardware address.
bool GidOfIpoib(const std::string& sysfs, const std::string& name, GidBytes* gid) {
  uint8_t address[kIpoibAddressBytes] = {};
  if (!ParseHex(ReadLine(fs::path(sysfs) / "net" / name / "address"), address, sizeof address)) return false;
  std::memcpy(gid->data(), address + 4, gid->size());
  return true;
}

fs::path PortFolder(const std::string& sysfs, const std::string& device, int port) {
  return fs::path(sysfs) / "infiniband" / device / "ports" / std::to_string(port);
}

// An entry that is not in use is all zeros, or cannot be read.
bool GidAt(const fs::path& folder, int index, GidBytes* gid) {
  return ParseHex(ReadLine(folder / "gids" / std::to_string(index)), gid->data(), gid->size()) && *gid != GidBytes{};
}

bool IsRoceV2(const fs::path& folder, int index) {
  return ReadLine(folder / "gid_attrs" / "types" / std::to_string(index)) == kRoceV2;
}

// The index of `wanted` in a port's table, -1 where it is not there.
int IndexOf(const fs::path& folder, const GidBytes& wanted, bool infiniband) {
  for (const std::string& name : NamesIn(folder / "gids")) {
    int index = std::atoi(name.c_str());
    GidBytes gid{};
    if (GidAt(folder, index, &gid) && gid == wanted && (infiniband || IsRoceV2(folder, index))) return index;
  }
  return -1;
}

Status ReadNumber(const char* name, int low, int high, int* value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return {};
  int number = 0;
  const char* end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, number);
  if (error != std::errc() || stop != end || number < low || number > high) {
    return {Code::kInvalidArgument, std::string(name) + "=" + text + ": give a whole number from " +
                                        std::to_string(low) + " to " + std::to_string(high)};
  }
  *value = number;
  return {};
}

}  // namespace

Status VerbsSettings::Read(VerbsSettings* settings) {
  int disabled = 0;
  Status status = ReadNumber("NCCL_IB_DISABLE", 0, 1, &disabled);
  settings->disabled = disabled != 0;
  if (status.ok()) status = ReadNumber("NCCL_IB_GID_INDEX", -1, 255, &settings->gid_index);
  if (status.ok()) status = ReadNumber("NCCL_IB_TC", 0, 255, &settings->traffic_class);
  if (status.ok()) status = ReadNumber("NCCL_IB_SL", 0, 15, &settings->service_level);
  if (status.ok()) status = ReadNumber("NCCL_IB_PKEY", 0, 65535, &settings->pkey_index);
  if (status.ok()) status = ReadNumber("NCCL_IB_TIMEOUT", 1, 31, &settings->timeout);
  if (status.ok()) status = ReadNumber("NCCL_IB_RETRY_CNT", 0, 7, &settings->retries);
  settings->retries = std::min(settings->retries, 6);
  if (const char* devices = std::getenv("NCCL_IB_HCA")) settings->devices = devices;
  return status;
}

std::vector<std::string> IgnoredVariables(const char* const* environment, bool gpu_memory) {
  constexpr std::string_view kRead[] = {"NCCL_IB_DISABLE", "NCCL_IB_HCA",  "NCCL_IB_GID_INDEX", "NCCL_IB_TC",
                                        "NCCL_IB_SL",      "NCCL_IB_PKEY", "NCCL_IB_TIMEOUT",   "NCCL_IB_RETRY_CNT"};
  std::vector<std::string> ignored;
  for (; *environment != nullptr; ++environment) {
    std::string_view entry = *environment;
    std::string_view name = entry.substr(0, entry.find('='));
    bool concerns = name.starts_with("NCCL_IB_") || (!gpu_memory && name.starts_with("NCCL_NET_GDR_"));
    bool holds = entry == "NCCL_IB_ROCE_VERSION_NUM=2" || std::ranges::find(kRead, name) != std::end(kRead);
    if (concerns && !holds) ignored.emplace_back(name);
  }
  std::ranges::sort(ignored);
  return ignored;
}

bool Selects(const std::string& filter, const std::string& device, int port) {
  std::string_view rest = filter;
  bool excludes = !rest.empty() && rest.front() == '^';
  if (excludes) rest.remove_prefix(1);
  bool exact = !rest.empty() && rest.front() == '=';
  if (exact) rest.remove_prefix(1);
  if (rest.empty()) return true;
  bool named = false;
  while (!rest.empty()) {
    std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    size_t colon = one.find(':');
    std::string_view name = one.substr(0, colon);
    bool same_port = colon == std::string_view::npos || one.substr(colon + 1) == std::to_string(port);
    bool same_name = exact ? device == name : std::string_view(device).starts_with(name);
    named |= same_name && same_port;
  }
  return named != excludes;
}

bool HasRdma(const std::string& sysfs) { return !NamesIn(fs::path(sysfs) / "infiniband").empty(); }

Status FindPort(const std::string& sysfs, const Nic& nic, const VerbsSettings& settings, RcPort* port) {
  std::string address = r2ccl::ToString(nic.address);
  auto devices = NamesIn(fs::path(sysfs) / "infiniband");
  if (devices.empty()) {
    return {Code::kSystem, "this host has no RDMA device; load its driver, and see `rdma link`"};
  }
  GidBytes ipoib{};
  bool is_ipoib = GidOfIpoib(sysfs, nic.name, &ipoib);
  bool left_out = false;
  for (const std::string& device : devices) {
    for (const std::string& number : NamesIn(fs::path(sysfs) / "infiniband" / device / "ports")) {
      int at = std::atoi(number.c_str());
      fs::path folder = PortFolder(sysfs, device, at);
      bool infiniband = ReadLine(folder / "link_layer") == "InfiniBand";
      if (infiniband && !is_ipoib) continue;
      int index = IndexOf(folder, infiniband ? ipoib : Mapped(nic.address), infiniband);
      if (index < 0) continue;
      bool selected = Selects(settings.devices, device, at);
      left_out |= !selected;
      if (!selected) continue;
      *port = {device, at, settings.gid_index >= 0 ? settings.gid_index : index, {}, infiniband};
      if (GidAt(folder, port->gid_index, &port->gid)) return {};
      return {Code::kInvalidArgument, device + " port " + number + " has no GID of index " +
                                          std::to_string(port->gid_index) +
                                          " (NCCL_IB_GID_INDEX); leave it out, and it is found by " + address};
    }
  }
  if (left_out) {
    return {Code::kInvalidArgument,
            "NCCL_IB_HCA=" + settings.devices + " leaves out the RDMA device of " + nic.name + " (" + address + ")"};
  }
  return {Code::kSystem, "no RDMA port has " + nic.name + "'s address " + address +
                             " as a GID (RoCE v2, or its IPoIB interface); see `rdma link` and `ibv_devinfo -v`"};
}

bool StillThere(const std::string& sysfs, const RcPort& port) {
  GidBytes gid{};
  return GidAt(PortFolder(sysfs, port.device, port.port), port.gid_index, &gid) && gid == port.gid;
}

}  // namespace r2ccl
