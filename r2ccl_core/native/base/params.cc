// Reading of parameters: environment first, explicit overrides on top, every value checked.
#include "base/params.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace r2ccl {
namespace {

Status Parse(const std::string& name, const std::string& text, int64_t low, int64_t high, int64_t* value) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < low || number > high) {
    return {Code::kInvalidArgument,
            name + "=" + text + ": give a whole number from " + std::to_string(low) + " to " + std::to_string(high)};
  }
  *value = number;
  return {};
}

bool IsTransports(std::string_view name) {
#define R2CCL_IS(field, parameter, ...) \
  if (name == parameter) return true;
  R2CCL_PARAMS(R2CCL_IS)
  R2CCL_TEXT_PARAMS(R2CCL_IS)
#undef R2CCL_IS
  return false;
}

bool IsOthers(std::string_view name) {
#define R2CCL_IS(parameter, ...) \
  if (name == parameter) return true;
  R2CCL_OTHER_PARAMS(R2CCL_IS)
#undef R2CCL_IS
  return false;
}

}  // namespace

Status ReadParams(const std::map<std::string, std::string>& overrides, Params* params) {
  size_t used = 0;
#define R2CCL_READ(field, name, value, low, high, meaning)                     \
  {                                                                            \
    const char* environment = std::getenv(name);                               \
    auto override_entry = overrides.find(name);                                \
    Status status;                                                             \
    if (override_entry != overrides.end()) {                                   \
      ++used;                                                                  \
      status = Parse(name, override_entry->second, low, high, &params->field); \
    } else if (environment != nullptr && *environment != '\0') {               \
      status = Parse(name, environment, low, high, &params->field);            \
    }                                                                          \
    if (!status.ok()) return status;                                           \
  }
  R2CCL_PARAMS(R2CCL_READ)
#undef R2CCL_READ
#define R2CCL_READ(field, name, value, meaning)    \
  {                                                \
    const char* environment = std::getenv(name);   \
    auto override_entry = overrides.find(name);    \
    if (override_entry != overrides.end()) ++used; \
    if (override_entry != overrides.end())         \
      params->field = override_entry->second;      \
    else if (environment != nullptr)               \
      params->field = environment;                 \
  }
  R2CCL_TEXT_PARAMS(R2CCL_READ)
#undef R2CCL_READ
  std::string& transport = params->transport;
  if (transport.empty()) transport = "tcp";
  if (transport != "auto" && transport != "verbs" && transport != "tcp") {
    return {Code::kInvalidArgument, "R2CC_TRANSPORT=" + transport + ": give auto, verbs or tcp"};
  }
  if (used != overrides.size()) {
    for (const auto& [name, text] : overrides) {
      if (!IsTransports(name)) return {Code::kInvalidArgument, name + ": no such parameter"};
    }
  }
  return {};
}

std::vector<std::string> UnknownVariables(const char* const* environment) {
  std::vector<std::string> unknown;
  for (; *environment != nullptr; ++environment) {
    std::string_view entry = *environment;
    std::string_view name = entry.substr(0, entry.find('='));
    if (name.starts_with("R2CC_") && !IsTransports(name) && !IsOthers(name)) unknown.emplace_back(name);
  }
  return unknown;
}

Params Fitting(Params params, unsigned processors) {
  if (params.io_threads == 0) params.io_threads = std::clamp<int64_t>(processors / 2, 1, 16);
  if (params.inline_bytes == 0) params.inline_bytes = processors < 8 ? 262144 : 12288;
  if (params.stripes == 0) params.stripes = processors < 8 ? 1 : 2;
  if (params.transfer_spin_us == 0) params.transfer_spin_us = processors < 4 ? 1 : 200;
  return params;
}

unsigned RanksOnHost() {
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                           "SLURM_STEP_TASKS_PER_NODE"}) {  // Slurm: 8, or 8(x4) for four hosts
    const char* text = std::getenv(name);
    unsigned ranks = 0;
    if (text != nullptr && std::from_chars(text, text + std::strlen(text), ranks).ec == std::errc() && ranks > 0) {
      return ranks;
    }
  }
  return 1;
}

unsigned ProcessorsOfRank(unsigned allowed, unsigned of_machine, unsigned ranks) {
  return allowed < of_machine ? allowed : std::max(1U, allowed / std::max(1U, ranks));
}

}  // namespace r2ccl
