// r2ccl-explore: the connections that ship in a simulated network that fails, seed after seed.
// `--help` tells all options.
//
//   r2ccl-explore --seconds 60 [--first SEED] [--jobs N]   until the time is over or a rule is broken
//   r2ccl-explore --runs 1000 [--first SEED]
//   r2ccl-explore --hosts 4 --nics 3 ...                   groups of that size only
//   r2ccl-explore --seed SEED                              one history again, with its log
//   r2ccl-explore --every 1 [--jobs N]                     two hosts with two NICs: every trouble at every moment
//   r2ccl-explore --every 2 [--jobs N] [--first CASE] [--runs CASES] [--seconds S]
//                                                          after each of them every other one of a NIC, at every moment
//
//   r2ccl-explore --bench REPEATS                          how long named scenarios take, in virtual time
//   r2ccl-explore --failures SEEDS [--jobs N]              what failures cost the call that they hit
//   r2ccl-explore --sick SEEDS [--jobs N]                  what sick NICs leave of what their death would leave
//   r2ccl-explore --repaired SEEDS [--jobs N]              what their repair brings back
//   r2ccl-explore --slow SEEDS [--jobs N]                  what healthy slow NICs carry of their rate
//   r2ccl-explore --alarms SEEDS [--first SEED] [--jobs N] what is taken for a failure while nothing fails
//
// A rule that was broken ends it with status 1, the seed or case, the shortest scenario that still breaks it, and the
// command that repeats it.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "wire/simulated/bench.h"
#include "wire/simulated/bench_calls.h"
#include "wire/simulated/explore.h"

namespace {

using r2ccl::simulated::CallGroup;
using r2ccl::simulated::Describe;
using r2ccl::simulated::Draw;
using r2ccl::simulated::EveryTrouble;
using r2ccl::simulated::NamedTrouble;
using r2ccl::simulated::Outcome;
using r2ccl::simulated::RunScenario;
using r2ccl::simulated::Scenario;
using r2ccl::simulated::Shrink;
using r2ccl::simulated::SmallScenarios;
using r2ccl::simulated::TroubleEvent;

struct Options {
  double seconds = 10;
  int every = 0;
  int bench = 0;
  int failures = 0;
  int sick = 0;
  int repaired = 0;
  int slow = 0;
  int alarms = 0;
  std::string load;  // empty: all
  uint64_t runs = UINT64_MAX;
  uint64_t first = 1;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  int hosts = 0;  // 0: as the seed says
  int rails = 0;
  bool one = false;
  bool shrink = true;
  bool digest = false;
};

constexpr char kHelp[] =
    "usage: r2ccl-explore [--seconds S | --runs N] [--first SEED] [--jobs N] [--no-shrink] [--digest] |\n"
    "           --seed SEED | --every 1|2\n"
    "       r2ccl-explore --bench REPEATS | --failures N | --sick SEEDS | --repaired SEEDS | --slow SEEDS |\n"
    "           --alarms SEEDS [--jobs N]\n"
    "\n"
    "Runs the connections that ship in a simulated network that fails, seed after seed, until the time is over or a\n"
    "rule is broken.\n"
    "\n"
    "  --seconds S   for so long (10)\n"
    "  --runs N      so many seeds instead\n"
    "  --first SEED  begin with this seed (1)\n"
    "  --jobs N      on so many threads (one for each processor)\n"
    "  --hosts N     of seeds: so many hosts, 2 to 8, with ...\n"
    "  --nics N      ... so many NICs, 1 to 8 (as the seed says)\n"
    "  --no-shrink   of a seed that breaks a rule show the whole scenario, not the least one that still does\n"
    "  --digest      one number of all that the histories did and logged, which a change that only makes them faster\n"
    "                leaves as it was\n"
    "  --seed SEED   one history again, with its log\n"
    "  --every K     every trouble at every moment of small groups; with 2, every pair of them\n"
    "  --bench N     how long named scenarios take in virtual time, the median of N seeds\n"
    "  --failures N  what failures of a NIC cost the AllReduce of 1 MiB that they hit: N of each kind alone, and N of "
    "them\n"
    "                four in a row\n"
    "  --sick N      AllReduces of 64 KiB to 8 MiB with a sick NIC, against those with a dead one, by N seeds\n"
    "  --repaired N  the same after its repair, against those with healthy NICs\n"
    "  --slow N      AllReduces of 1 MiB over healthy NICs of 5 to 100 Mbit/s: their share of the rate, by N seeds; "
    "and\n"
    "                small ones over healthy NICs that some connections share, with one of them dead as well\n"
    "  --alarms N    two seconds of AllReduces of 1 MiB while nothing fails, on idle and on busy NICs and processors: "
    "what\n"
    "                is taken for a failure, and what is sent beyond the messages, by N seeds\n"
    "  --load NAME   of --alarms: only what this line tells\n"
    "  --version     the version, and nothing else\n"
    "\n"
    "Exit status: 0 every rule held, 1 one was broken, 2 an option is wrong.\n";

constexpr unsigned kMostJobs = 4096;
constexpr uint64_t kMostRepeats = 100'000;

bool Refused(const std::string& name, const char* value, const char* remedy) {
  std::fprintf(stderr, "r2ccl-explore: %s%s%s: %s; see r2ccl-explore --help\n", name.c_str(), *value ? " " : "", value,
               remedy);
  return false;
}

// A whole number; strtoull alone would take a sign, and what follows a number.
bool ToWhole(const char* text, uint64_t* number) {
  if (*text < '0' || *text > '9') return false;
  char* end = nullptr;
  errno = 0;
  *number = std::strtoull(text, &end, 10);
  return *end == 0 && errno == 0;
}

bool ToSeconds(const char* text, double* number) {
  char* end = nullptr;
  *number = std::strtod(text, &end);
  return end != text && *end == 0 && *number >= 0 && *number <= 1e9;
}

// False, after a line about it, for an option that is wrong.
bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--no-shrink") {
      options->shrink = false;
      continue;
    }
    if (name == "--digest") {
      options->digest = true;
      continue;
    }
    bool known = name == "--seconds" || name == "--runs" || name == "--first" || name == "--jobs" || name == "--seed" ||
                 name == "--every" || name == "--bench" || name == "--failures" || name == "--sick" ||
                 name == "--repaired" || name == "--slow" || name == "--alarms" || name == "--load" ||
                 name == "--hosts" || name == "--nics";
    if (!known) return Refused(name, "", "no such option");
    if (i + 1 == argc) return Refused(name, "", "a value is missing");
    const char* value = argv[++i];
    if (name == "--seconds") {
      if (!ToSeconds(value, &options->seconds)) return Refused(name, value, "give a number of seconds, such as 60");
      continue;
    }
    if (name == "--load") {
      auto loads = r2ccl::simulated::Loads();
      options->load = value;
      bool is = std::any_of(loads.begin(), loads.end(), [&](const auto& load) { return load.name == options->load; });
      if (!is) return Refused(name, value, "give one that --alarms tells, such as healthy");
      continue;
    }
    uint64_t number = 0;
    if (!ToWhole(value, &number)) return Refused(name, value, "give a whole number, such as 8");
    if (name == "--runs") {
      options->runs = number;
      options->seconds = 1e9;
    } else if (name == "--jobs") {
      if (number < 1 || number > kMostJobs) return Refused(name, value, "give 1 to 4096 threads");
      options->jobs = static_cast<unsigned>(number);
    } else if (name == "--every") {
      if (number < 1 || number > 2) return Refused(name, value, "give 1 or 2");
      options->every = static_cast<int>(number);
      options->seconds = 1e9;
    } else if (name == "--hosts") {
      if (number < 2 || number > 8) return Refused(name, value, "give 2 to 8 hosts");
      options->hosts = static_cast<int>(number);
    } else if (name == "--nics") {
      if (number < 1 || number > 8) return Refused(name, value, "give 1 to 8 NICs");
      options->rails = static_cast<int>(number);
    } else if (name == "--first" || name == "--seed") {
      options->first = number;
      options->one = name == "--seed";
    } else {
      if (number < 1 || number > kMostRepeats) return Refused(name, value, "give 1 to 100000 repeats");
      int& repeats = name == "--bench"      ? options->bench
                     : name == "--failures" ? options->failures
                     : name == "--sick"     ? options->sick
                     : name == "--slow"     ? options->slow
                     : name == "--alarms"   ? options->alarms
                                            : options->repaired;
      repeats = static_cast<int>(number);
    }
  }
  return true;
}

int One(const Options& options) {
  Scenario scenario = Draw(options.first, options.hosts, options.rails);
  std::printf("%s", Describe(scenario).c_str());
  Outcome outcome = RunScenario(scenario, true);
  std::printf("%s", outcome.log.c_str());
  std::printf("%s: %" PRIu64 " events, %.1f ms, %" PRIu64 " messages, %" PRIu64 " paths lost, %" PRIu64
              " replayed, %" PRIu64 " on trial, %" PRIu64 " bytes by RDMA, %" PRIu64 " written\n",
              outcome.wrong.empty() ? "right" : outcome.wrong.c_str(), outcome.events,
              static_cast<double>(outcome.virtual_ns) / 1e6, outcome.messages, outcome.lost_paths,
              outcome.replayed_chunks, outcome.trial_chunks, outcome.rdma_bytes, outcome.written_bytes);
  return outcome.wrong.empty() ? 0 : 1;
}

// What this thread looks at, for the handler of a crash.
thread_local uint64_t seed_at_work = 0;
std::atomic<uint64_t> runs_so_far{0};

void OnCrash(int signal) {
  char text[256];
  int size = std::snprintf(text, sizeof text,
                           "%" PRIu64
                           " runs\nBROKEN: it crashed with signal %d\nrepeat it: r2ccl-explore --seed %" PRIu64 "\n",
                           runs_so_far.load(), signal, seed_at_work);
  if (size > 0 && write(STDOUT_FILENO, text, static_cast<size_t>(size)) < 0) _exit(1);
  raise(signal);  // as without a handler, which is gone by now
}

void TellOfCrashes() {
  struct sigaction action = {};
  action.sa_handler = OnCrash;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(signal, &action, nullptr);
}

// Work on so many threads, by their numbers. One job is done by this thread: a process that never had another one
// counts its pointers without atomic instructions.
void OnThreads(unsigned jobs, const std::function<void(unsigned)>& work) {
  if (jobs == 1) return work(0);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < jobs; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

// `of` by seed, from 1 to `count`.
std::vector<double> BySeed(int count, unsigned jobs, const std::function<double(uint64_t, std::string*)>& of) {
  std::vector<double> values(static_cast<size_t>(count));
  std::atomic<size_t> next{0};
  std::vector<std::string> wrong(jobs);
  OnThreads(jobs, [&](unsigned i) {
    for (size_t at = next++; at < values.size(); at = next++) values[at] = of(at + 1, &wrong[i]);
  });
  for (const std::string& rule : wrong) {
    if (rule.empty()) continue;
    std::printf("BROKEN: %s\n", rule.c_str());
    std::exit(1);
  }
  return values;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Bench(int repeats) {
  bool right = true;
  for (const auto& [name, scenario] : r2ccl::simulated::BenchScenarios()) {
    std::string wrong;
    double took_ms = r2ccl::simulated::MedianMs(scenario, repeats, &wrong);
    std::printf("%-28s %10.3f ms%s%s\n", name.c_str(), took_ms, wrong.empty() ? "" : ", broken: ", wrong.c_str());
    std::fflush(stdout);
    right = right && wrong.empty();
  }
  constexpr int kSeedsOfACost = 4;
  for (const NamedTrouble& failure : r2ccl::simulated::Failures()) {
    auto costs = BySeed(kSeedsOfACost * repeats, 1, std::bind_front(r2ccl::simulated::CostMs, failure, 4));
    double mean_ms = std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size());
    std::printf("%-28s %10.3f ms\n", ("hit_by_" + failure.name).c_str(), mean_ms);
    std::fflush(stdout);
  }
  const CallGroup group = r2ccl::simulated::CallGroups().front();
  for (const NamedTrouble& sickness : r2ccl::simulated::Sicknesses()) {
    auto calls = BySeed(repeats, 1, std::bind_front(r2ccl::simulated::CallsPerSecond, group, sickness));
    std::printf("%-28s %10.3f ms\n", ("call_" + sickness.name).c_str(), 1e3 / Median(calls));
    std::fflush(stdout);
  }
  return right ? 0 : 1;
}

// What failures of a seed cost, in ms.
using CostsOf = std::function<std::vector<double>(const NamedTrouble&, uint64_t, std::string*)>;

void TellCosts(const std::string& prefix, int seeds, const Options& options, const CostsOf& costs_of) {
  for (const NamedTrouble& failure : r2ccl::simulated::Failures()) {
    std::mutex mutex;
    std::vector<std::pair<double, uint64_t>> costs;
    BySeed(seeds, options.jobs, [&](uint64_t seed, std::string* wrong) {
      std::vector<double> some = costs_of(failure, seed, wrong);
      std::lock_guard lock(mutex);
      for (double one : some) costs.emplace_back(one, seed);
      return 0.0;
    });
    std::sort(costs.begin(), costs.end());
    std::printf("%-28s median %6.2f ms, 99th percentile %6.2f, worst %6.2f (seed %" PRIu64 ")\n",
                (prefix + failure.name).c_str(), costs[costs.size() / 2].first, costs[costs.size() * 99 / 100].first,
                costs.back().first, costs.back().second);
    std::fflush(stdout);
  }
}

int TellFailures(const Options& options) {
  using namespace r2ccl::simulated;
  for (const auto& [hosts, prefix] : {std::pair(4, ""), std::pair(2, "two_hosts_")}) {
    auto alone = [hosts = hosts](const NamedTrouble& failure, uint64_t seed, std::string* wrong) {
      return std::vector{CostMs(failure, hosts, seed, wrong)};
    };
    TellCosts(prefix, options.failures, options, alone);
  }
  int rows = (options.failures + kInARow - 1) / kInARow;
  TellCosts("in_a_row_", rows, options, std::bind_front(CostsInARowMs, 2));
  return 0;
}

// Each seed's calls against those of the first trouble with the same seed.
using CallsWith = std::function<double(const NamedTrouble&, uint64_t, std::string*)>;

void TellShares(int seeds, const Options& options, const std::string& name, const std::vector<NamedTrouble>& troubles,
                const char* of_first, const CallsWith& calls_with) {
  std::vector<double> first;
  for (const NamedTrouble& trouble : troubles) {
    auto calls = BySeed(seeds, options.jobs, std::bind_front(calls_with, trouble));
    if (first.empty()) first = calls;
    std::vector<double> shares;
    for (size_t i = 0; i < calls.size(); ++i) shares.push_back(calls[i] / first[i]);
    std::printf("%-26s %6.1f calls/s, %5.3f of %s, at least %5.3f\n", (name + trouble.name).c_str(), Median(calls),
                Median(shares), of_first, *std::min_element(shares.begin(), shares.end()));
    std::fflush(stdout);
  }
}

int TellSick(const Options& options) {
  using namespace r2ccl::simulated;
  for (const CallGroup& group : CallGroups()) {
    TellShares(options.sick, options, group.name, Sicknesses(), "dead", std::bind_front(CallsPerSecond, group));
  }
  return 0;
}

int TellRepaired(const Options& options) {
  using namespace r2ccl::simulated;
  TellShares(options.repaired, options, "", Repaired(), "healthy", CallsAfterRepair);
  return 0;
}

// Small calls, with all NICs in good health and with one dead.
void TellSmallCalls(const Options& options) {
  using namespace r2ccl::simulated;
  const std::vector<NamedTrouble> troubles{Repaired()[0], Repaired()[1]};
  for (const CallGroup& group : HealthyGroups()) {
    TellShares(options.slow, options, group.name, troubles, "healthy", std::bind_front(CallsWhileWell, group));
  }
}

int TellSlow(const Options& options) {
  TellSmallCalls(options);
  for (int mbit : r2ccl::simulated::SlowRates()) {
    std::atomic<uint64_t> lost{0}, twice{0};
    auto shares = BySeed(options.slow, options.jobs, [&](uint64_t seed, std::string* wrong) {
      auto one = r2ccl::simulated::ShareOfSlow(mbit, seed, wrong);
      lost += one.lost_paths;
      twice += one.replayed_chunks;
      return one.share;
    });
    std::printf("%3d Mbit/s: %4.2f of the rate, at least %4.2f; %" PRIu64 " paths lost, %" PRIu64
                " chunks sent twice\n",
                mbit, Median(shares), *std::min_element(shares.begin(), shares.end()), lost.load(), twice.load());
    std::fflush(stdout);
  }
  return 0;
}

// What is taken for a failure, of histories without one; in how many of them, and which of them lost paths.
int TellAlarms(const Options& options) {
  using namespace r2ccl::simulated;
  for (const Load& load : Loads()) {
    if (!options.load.empty() && options.load != load.name) continue;
    std::mutex mutex;
    Alarms all;
    uint64_t alarmed = 0;
    std::set<uint64_t> lost_in;
    BySeed(options.alarms, options.jobs, [&](uint64_t seed, std::string* wrong) {
      Alarms one = AlarmsUnder(load, options.first - 1 + seed, wrong);
      std::lock_guard lock(mutex);
      all.seconds += one.seconds;
      all.lost_paths += one.lost_paths;
      all.held_paths += one.held_paths;
      all.replayed_chunks += one.replayed_chunks;
      all.trial_chunks += one.trial_chunks;
      all.needed_bytes += one.needed_bytes;
      all.sent_bytes += one.sent_bytes;
      if (one.lost_paths + one.held_paths + one.replayed_chunks > 0) {
        ++alarmed;
        if (one.lost_paths > 0) lost_in.insert(options.first - 1 + seed);
      }
      return 0.0;
    });
    double beyond = 100 * (static_cast<double>(all.sent_bytes) / static_cast<double>(all.needed_bytes) - 1);
    std::printf("%-16s %" PRIu64 " paths lost, %" PRIu64 " held, %" PRIu64 " chunks sent twice in %" PRIu64
                " of %d, %" PRIu64 " on trial, %.0f s, %.1f GB, %.3f %% beyond the messages\n",
                load.name.c_str(), all.lost_paths, all.held_paths, all.replayed_chunks, alarmed, options.alarms,
                all.trial_chunks, all.seconds, static_cast<double>(all.needed_bytes) / 1e9, beyond);
    for (uint64_t seed : lost_in) std::printf("  lost in seed %" PRIu64 "\n", seed);
    std::fflush(stdout);
  }
  return 0;
}

struct Totals {
  std::mutex mutex;
  uint64_t cases = 0;
  Scenario least;
  uint64_t runs = 0, events = 0, messages = 0, lost_paths = 0, replayed = 0, duplicates = 0, by_rdma = 0, written = 0;
  double virtual_s = 0;
  bool digests = false;
  uint64_t digest = 0;  // of all histories, in whatever order
  bool broken = false;
  uint64_t seed = 0;
};

// Of what happened, and when. By FNV-1a, as std::hash is another one elsewhere.
uint64_t DigestOf(const Outcome& outcome, uint64_t number) {
  std::string all = outcome.wrong + outcome.log;
  for (uint64_t value : {number, outcome.events, static_cast<uint64_t>(outcome.virtual_ns), outcome.messages,
                         outcome.replayed_chunks, outcome.trial_chunks, outcome.duplicate_chunks, outcome.sent_bytes,
                         outcome.rdma_bytes, outcome.written_bytes}) {
    all += " " + std::to_string(value);
  }
  for (const auto& call : outcome.calls) all += " " + std::to_string(call.ended_ns);
  uint64_t digest = 0xcbf29ce484222325u;
  for (unsigned char byte : all) digest = (digest ^ byte) * 0x100000001b3u;
  return digest;
}

// Runs it and counts; false where it breaks a rule, or another did.
bool Count(const Scenario& scenario, uint64_t number, Totals* totals) {
  seed_at_work = number;
  Outcome outcome = RunScenario(scenario, totals->digests);
  ++runs_so_far;
  std::lock_guard lock(totals->mutex);
  if (totals->broken) return false;
  if (totals->digests) totals->digest += DigestOf(outcome, number);
  ++totals->runs;
  totals->events += outcome.events;
  totals->messages += outcome.messages;
  totals->lost_paths += outcome.lost_paths;
  totals->replayed += outcome.replayed_chunks;
  totals->duplicates += outcome.duplicate_chunks;
  totals->by_rdma += outcome.rdma_bytes > 0 ? 1 : 0;
  totals->written += outcome.written_bytes > 0 ? 1 : 0;
  totals->virtual_s += static_cast<double>(outcome.virtual_ns) / 1e9;
  if (outcome.wrong.empty()) return true;
  totals->broken = true;
  totals->seed = number;
  totals->least = scenario;
  return false;
}

// A small group and the first trouble in it.
struct Case {
  Scenario scenario;
  int64_t at_ns = 0;
};

std::vector<Case> EveryCase() {
  std::vector<Case> all;
  for (const Scenario& small : SmallScenarios()) {
    for (const TroubleEvent& event : EveryTrouble(small, 0, true)) {
      all.push_back({small, event.at_ns});
      all.back().scenario.troubles = {event};
    }
  }
  return all;
}

bool TryCase(const Case& one, uint64_t number, int every, Totals* totals) {
  if (every == 1) return Count(one.scenario, number, totals);
  for (const TroubleEvent& event : EveryTrouble(one.scenario, one.at_ns, false)) {
    Scenario both = one.scenario;
    both.troubles.push_back(event);
    if (!Count(both, number, totals)) return false;
  }
  return true;
}

void WorkOnCases(const std::vector<Case>& cases, const Options& options, std::atomic<uint64_t>* next, Totals* totals) {
  auto begin = std::chrono::steady_clock::now();
  while (true) {
    uint64_t number = next->fetch_add(1);
    std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    bool over = number > cases.size() || number - options.first >= options.runs || elapsed.count() > options.seconds;
    if (over || !TryCase(cases[number - 1], number, options.every, totals)) return;
    std::lock_guard lock(totals->mutex);
    ++totals->cases;
  }
}

void Work(const Options& options, std::atomic<uint64_t>* next, Totals* totals) {
  auto begin = std::chrono::steady_clock::now();
  while (true) {
    uint64_t seed = next->fetch_add(1);
    std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    if (seed - options.first >= options.runs || elapsed.count() > options.seconds) return;
    if (!Count(Draw(seed, options.hosts, options.rails), seed, totals)) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") return std::fputs(kHelp, stdout) < 0 ? 1 : 0;
    if (name == "--version") return std::printf("r2ccl-explore %s\n", R2CCL_VERSION) < 0 ? 1 : 0;
  }
  Options options;
  if (!Parse(argc, argv, &options)) return 2;
  // Memory that a run gives back is for the next one, not for the kernel.
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  TellOfCrashes();
  seed_at_work = options.first;
  if (options.bench > 0) return Bench(options.bench);
  if (options.failures > 0) return TellFailures(options);
  if (options.sick > 0) return TellSick(options);
  if (options.repaired > 0) return TellRepaired(options);
  if (options.slow > 0) return TellSlow(options);
  if (options.alarms > 0) return TellAlarms(options);
  if (options.one) return One(options);
  Totals totals;
  totals.digests = options.digest;
  std::atomic<uint64_t> next{options.first};
  auto begin = std::chrono::steady_clock::now();
  std::clock_t begin_ticks = std::clock();  // of all threads
  std::vector<Case> cases = options.every > 0 ? EveryCase() : std::vector<Case>();
  OnThreads(options.jobs, [&](unsigned) {
    options.every > 0 ? WorkOnCases(cases, options, &next, &totals) : Work(options, &next, &totals);
  });
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  double processor_s = static_cast<double>(std::clock() - begin_ticks) / CLOCKS_PER_SEC;
  std::printf("%" PRIu64 " runs from seed %" PRIu64
              " in %.1f s (%.0f a second, %.0f for each of a processor), %.0f s of virtual time, %" PRIu64
              " events, %" PRIu64 " messages checked, %" PRIu64 " paths lost, %" PRIu64 " chunks sent again, %" PRIu64
              " came twice, RDMA in %" PRIu64 " runs, writes in %" PRIu64 "\n",
              totals.runs, options.first, elapsed.count(), static_cast<double>(totals.runs) / elapsed.count(),
              static_cast<double>(totals.runs) / processor_s, totals.virtual_s, totals.events, totals.messages,
              totals.lost_paths, totals.replayed, totals.duplicates, totals.by_rdma, totals.written);
  if (options.every > 0) std::printf("%" PRIu64 " of %zu cases\n", totals.cases, cases.size());
  if (options.digest) std::printf("digest %016" PRIx64 "\n", totals.digest);
  if (!totals.broken) return 0;
  Scenario broken = totals.least;
  if (options.shrink) broken = Shrink(broken);
  std::string group = options.hosts > 0 ? "--hosts " + std::to_string(options.hosts) + " " : "";
  if (options.rails > 0) group += "--nics " + std::to_string(options.rails) + " ";
  std::printf("BROKEN: %s\nthe least that breaks it:\n%srepeat it: r2ccl-explore %s%s %" PRIu64 "%s\n",
              RunScenario(broken).wrong.c_str(), Describe(broken).c_str(), group.c_str(),
              options.every == 0 ? "--seed" : (options.every == 1 ? "--every 1 --first" : "--every 2 --first"),
              totals.seed, options.every == 0 ? "" : " --runs 1");
  return 1;
}
