// Interface look-up through getifaddrs, and the pairing rule.
#include "net/nic.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <net/route.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace r2ccl {
namespace {

bool SameSubnet(in_addr a, in_addr b, int prefix_length) {
  uint32_t mask = prefix_length == 0 ? 0 : htonl(~uint32_t{0} << (32 - prefix_length));
  return (a.s_addr & mask) == (b.s_addr & mask);
}

// NCCL_SOCKET_IFNAME's selection rule.
class NameFilter {
 public:
  explicit NameFilter(std::string text) {
    if (text.empty()) text = "^lo,docker,virbr,br-,cni";
    exclude_ = text.front() == '^';
    if (exclude_) text.erase(0, 1);
    exact_ = !text.empty() && text.front() == '=';
    if (exact_) text.erase(0, 1);
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) names_.push_back(part);
  }

  bool Selects(const std::string& name) const {
    bool match = std::any_of(names_.begin(), names_.end(), [&](const std::string& wanted) {
      return exact_ ? name == wanted : name.starts_with(wanted);
    });
    return match != exclude_;
  }

 private:
  bool exclude_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

void ReadPlace(Nic* nic) {
  std::string folder = "/sys/class/net/" + nic->name + "/device";
  char resolved[PATH_MAX];
  if (realpath(folder.c_str(), resolved) == nullptr) return;
  nic->device = resolved;
  std::ifstream(folder + "/numa_node") >> nic->numa;
}

// Those whose alias marks them as management.
std::set<std::string> Marked(const std::vector<Nic>& nics) {
  std::set<std::string> marked;
  for (const Nic& nic : nics) {
    std::string alias;
    std::ifstream file("/sys/class/net/" + nic.name + "/ifalias");
    if (std::getline(file, alias) && IsManagement(alias)) marked.insert(nic.name);
  }
  return marked;
}

// Of several default routes, the one with the lowest metric is used.
std::set<std::string> WithDefaultRoute(std::istream& routes) {
  std::map<long, std::set<std::string>> defaults;  // by metric
  std::string line;
  std::getline(routes, line);  // the headings
  while (std::getline(routes, line)) {
    std::istringstream columns(line);
    std::string name, destination, gateway, mask;
    unsigned flags = 0;
    long references = 0, use = 0, metric = 0;
    columns >> name >> destination >> gateway >> std::hex >> flags >> std::dec >> references >> use >> metric >> mask;
    if (columns.fail() || destination != "00000000" || mask != "00000000" || (flags & RTF_UP) == 0) continue;
    defaults[metric].insert(name);
  }
  return defaults.empty() ? std::set<std::string>() : defaults.begin()->second;
}

// Takes `names` from `nics`, unless none would be left.
std::vector<LeftOut> LeaveOut(const std::set<std::string>& names, const std::string& why, std::vector<Nic>* nics) {
  auto named = [&names](const Nic& nic) { return names.contains(nic.name); };
  if (std::all_of(nics->begin(), nics->end(), named)) return {};
  std::vector<LeftOut> left_out;
  for (const Nic& nic : *nics) {
    if (named(nic)) left_out.push_back({nic.name, why});
  }
  std::erase_if(*nics, named);
  return left_out;
}

}  // namespace

int Distance(const Nic& a, const Nic& b) {
  constexpr int kOtherDomain = 1000;
  if (a.device.empty() || b.device.empty() || a.device == b.device) return 0;
  auto [one, other] = std::mismatch(a.device.begin(), a.device.end(), b.device.begin(), b.device.end());
  auto deeper = [](auto from, auto to) { return static_cast<int>(std::count(from, to, '/')) + 1; };
  int bridges = std::max(deeper(one, a.device.end()), deeper(other, b.device.end()));
  bool apart = a.numa >= 0 && b.numa >= 0 && a.numa != b.numa;
  return bridges + (apart ? kOtherDomain : 0);
}

bool IsManagement(const std::string& alias) {
  std::istringstream words(alias);
  std::string first;
  words >> first;
  return first == "management";
}

std::vector<LeftOut> LeaveOutManagement(const std::set<std::string>& marked, std::istream& routes,
                                        std::vector<Nic>* nics) {
  std::vector<LeftOut> left_out = LeaveOut(marked, "is marked as management", nics);
  std::vector<LeftOut> routed = LeaveOut(WithDefaultRoute(routes), "has the default route", nics);
  left_out.insert(left_out.end(), routed.begin(), routed.end());
  return left_out;
}

Status DiscoverNics(const std::string& filter, std::vector<Nic>* nics, std::vector<LeftOut>* left_out) {
  NameFilter selected(filter);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {Code::kSystem, std::string("getifaddrs: ") + std::strerror(errno)};
  nics->clear();
  for (ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || !selected.Selects(entry->ifa_name)) {
      continue;
    }
    in_addr mask = reinterpret_cast<sockaddr_in*>(entry->ifa_netmask)->sin_addr;
    nics->push_back({entry->ifa_name, static_cast<int>(if_nametoindex(entry->ifa_name)),
                     reinterpret_cast<sockaddr_in*>(entry->ifa_addr)->sin_addr, std::popcount(mask.s_addr)});
  }
  freeifaddrs(list);
  std::sort(nics->begin(), nics->end(), [](const Nic& a, const Nic& b) { return a.name < b.name; });
  if (filter.empty()) {
    std::ifstream routes("/proc/net/route");
    std::vector<LeftOut> management = LeaveOutManagement(Marked(*nics), routes, nics);
    if (left_out != nullptr) *left_out = std::move(management);
  }
  for (Nic& nic : *nics) ReadPlace(&nic);
  if (nics->empty()) {
    return {Code::kInvalidArgument,
            "no interface with an IPv4 address matches '" + filter + "'; set R2CC_SOCKET_IFNAME to the NICs' names"};
  }
  return {};
}

std::string ToString(in_addr address) {
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

Status FindNic(const std::string& name, const std::string& address, Nic* nic) {
  nic->name = name;
  if (inet_pton(AF_INET, address.c_str(), &nic->address) != 1) {
    return {Code::kInvalidArgument, "NIC " + name + ": '" + address + "' is not an IPv4 address"};
  }
  nic->ifindex = LiveIndex(static_cast<int>(if_nametoindex(name.c_str())));
  if (nic->ifindex.get() == 0) return {Code::kInvalidArgument, "NIC " + name + ": no such interface on this host"};
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {Code::kSystem, std::string("getifaddrs: ") + std::strerror(errno)};
  bool found = false;
  for (ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || name != entry->ifa_name) continue;
    in_addr own = reinterpret_cast<sockaddr_in*>(entry->ifa_addr)->sin_addr;
    in_addr mask = reinterpret_cast<sockaddr_in*>(entry->ifa_netmask)->sin_addr;
    // All of 127/8 is local, so any address of it may stand for a NIC on the loopback interface.
    bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0 && SameSubnet(own, nic->address, 8);
    if (own.s_addr != nic->address.s_addr && !loopback) continue;
    nic->prefix_length = loopback ? 32 : std::popcount(mask.s_addr);
    found = true;
  }
  freeifaddrs(list);
  if (!found) return {Code::kInvalidArgument, "NIC " + name + ": has no address " + address};
  ReadPlace(nic);
  return {};
}

std::vector<std::pair<int, int>> PairNics(const std::vector<Nic>& local, const std::vector<in_addr>& remote) {
  std::vector<int> partner(local.size(), -1);
  std::vector<bool> taken(remote.size(), false);
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < local.size(); ++i) {
      for (size_t j = 0; j < remote.size() && partner[i] < 0; ++j) {
        bool match = pass == 1 || SameSubnet(local[i].address, remote[j], local[i].prefix_length);
        if (taken[j] || !match) continue;
        partner[i] = static_cast<int>(j);
        taken[j] = true;
      }
    }
  }
  std::vector<std::pair<int, int>> pairs;
  for (size_t i = 0; i < local.size(); ++i) {
    if (partner[i] >= 0) pairs.emplace_back(static_cast<int>(i), partner[i]);
  }
  return pairs;
}

}  // namespace r2ccl
