// Parameters, handles, NICs and their pairing, the event log.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/event_log.h"
#include "base/params.h"
#include "net/handle.h"
#include "net/nic.h"

namespace r2ccl {
namespace {

in_addr Ip(const char* text) { return in_addr{inet_addr(text)}; }

TEST(Params, DefaultsEnvironmentAndOverrides) {
  setenv("R2CC_PROBE_MS", "77", 1);
  setenv("R2CC_CHUNK_BYTES", "65536", 1);
  Params params;
  ASSERT_TRUE(ReadParams({{"R2CC_CHUNK_BYTES", "8192"}}, &params).ok());
  unsetenv("R2CC_PROBE_MS");
  unsetenv("R2CC_CHUNK_BYTES");
  EXPECT_EQ(params.mode, 2);
  EXPECT_EQ(params.probe_ms, 77);
  EXPECT_EQ(params.chunk_bytes, 8192);
}

TEST(Params, ZeroFitsTheProcessorsAndWhatWasSetStays) {
  for (auto [processors, threads, inline_bytes, stripes, spin_us] :
       {std::tuple{1U, 1, 262144, 1, 1}, {4U, 2, 262144, 1, 200}, {8U, 4, 12288, 2, 200}, {192U, 16, 12288, 2, 200}}) {
    Params fitting = Fitting({}, processors);
    EXPECT_EQ(fitting.io_threads, threads) << processors;
    EXPECT_EQ(fitting.inline_bytes, inline_bytes) << processors;
    EXPECT_EQ(fitting.stripes, stripes) << processors;
    EXPECT_EQ(fitting.transfer_spin_us, spin_us) << processors;
  }
  Params set;
  set.io_threads = 3;
  set.inline_bytes = 1;
  set.stripes = 1;
  set.transfer_spin_us = 7;
  EXPECT_EQ(Fitting(set, 64).io_threads, 3);
  EXPECT_EQ(Fitting(set, 64).inline_bytes, 1);
  EXPECT_EQ(Fitting(set, 64).stripes, 1);
  EXPECT_EQ(Fitting(set, 64).transfer_spin_us, 7);
}

TEST(Params, RanksOfAHostShareItsProcessors) {
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) unsetenv(name);
  for (auto [text, ranks] : {std::tuple{"8", 8U}, {"8(x4)", 8U}, {"", 1U}, {"many", 1U}, {"0", 1U}}) {
    setenv("SLURM_STEP_TASKS_PER_NODE", text, 1);
    EXPECT_EQ(RanksOnHost(), ranks) << text;
  }
  setenv("LOCAL_WORLD_SIZE", "4", 1);
  EXPECT_EQ(RanksOnHost(), 4U);
  unsetenv("LOCAL_WORLD_SIZE");
  unsetenv("SLURM_STEP_TASKS_PER_NODE");
  EXPECT_EQ(ProcessorsOfRank(192, 192, 8), 24U);
  EXPECT_EQ(ProcessorsOfRank(24, 192, 8), 24U);  // bound to them by the launcher
  EXPECT_EQ(ProcessorsOfRank(2, 2, 8), 1U);
}

TEST(Params, MistakesAreNamed) {
  for (const char* bad : {"", "3", "-1", "1x", " 1", "0x1", "99999999999999999999"}) {
    Params params;
    Status status = ReadParams({{"R2CC_MODE", bad}}, &params);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << "'" << bad << "'";
    EXPECT_NE(status.message().find("R2CC_MODE"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("0 to 2"), std::string::npos) << status.message();
  }
  Params params;
  EXPECT_EQ(ReadParams({{"R2CC_MODES", "1"}}, &params).message(), "R2CC_MODES: no such parameter");
}

TEST(Params, WhatNobodyReadsIsNamed) {
  const char* const environment[] = {
      "R2CC_MODE=1", "R2CC_STATUS_DIR=x", "R2CC_ALGO=ring",   "R2CC_MODES=1", "NCCL_R2CC_X=1", "R2CC_CHUNK=",
      "R2CC_",       "R2CCL_CORE_LIB=/x", "R2CC_SCHEDULES=y", nullptr};
  EXPECT_EQ(UnknownVariables(environment), (std::vector<std::string>{"R2CC_MODES", "R2CC_CHUNK", "R2CC_"}));
}

TEST(Handle, RoundTrip) {
  Handle handle;
  handle.port = 54321;
  for (size_t i = 0; i < kSecretBytes; ++i) handle.secret[i] = static_cast<uint8_t>(i * 17);
  for (int i = 0; i < kMaxPaths; ++i) handle.addresses.push_back(in_addr{static_cast<in_addr_t>(i * 1234567)});
  handle.stripes = kMaxStripes;
  std::string bytes = EncodeHandle(handle);
  ASSERT_EQ(bytes.size(), kHandleBytes);
  Handle back;
  ASSERT_TRUE(DecodeHandle(bytes, &back).ok());
  EXPECT_EQ(back.port, handle.port);
  EXPECT_EQ(back.stripes, kMaxStripes);
  EXPECT_EQ(back.secret, handle.secret);
  ASSERT_EQ(back.addresses.size(), handle.addresses.size());
  for (size_t i = 0; i < back.addresses.size(); ++i) {
    EXPECT_EQ(back.addresses[i].s_addr, handle.addresses[i].s_addr);
  }
}

TEST(Handle, MistakesAreRefused) {
  Handle handle;
  handle.addresses.push_back(Ip("10.0.0.1"));
  const std::string good = EncodeHandle(handle);
  Handle back;
  auto refused = [&back](std::string bytes, size_t at, char value) {
    bytes[at] = value;
    return DecodeHandle(bytes, &back).code() == Code::kInvalidArgument;
  };
  EXPECT_EQ(DecodeHandle(good.substr(1), &back).code(), Code::kInvalidArgument);
  EXPECT_TRUE(refused(good, 0, 'x'));
  EXPECT_TRUE(refused(good, 4, kWireVersion + 1));
  EXPECT_TRUE(refused(good, 5, 0));
  EXPECT_TRUE(refused(good, 5, kMaxPaths + 1));
  EXPECT_TRUE(refused(good, 5, '\xff'));
  EXPECT_TRUE(refused(good, kHandleUsedBytes - 1, 0));
  EXPECT_TRUE(refused(good, kHandleUsedBytes - 1, kMaxStripes + 1));
  EXPECT_TRUE(refused(good, kHandleUsedBytes - 1, '\xff'));
}

TEST(Nic, FoundByNameAndAddress) {
  Nic nic;
  ASSERT_TRUE(FindNic("lo", "127.0.9.9", &nic).ok());
  EXPECT_GT(nic.ifindex.get(), 0);
  EXPECT_EQ(ToString(nic.address), "127.0.9.9");
  EXPECT_EQ(FindNic("lo", "192.0.2.1", &nic).code(), Code::kInvalidArgument);
  EXPECT_EQ(FindNic("lo", "127.0.0", &nic).code(), Code::kInvalidArgument);
  EXPECT_EQ(FindNic("absent0", "127.0.0.1", &nic).code(), Code::kInvalidArgument);
}

// The names that are left of eno1, ens1 and ens2.
std::string Left(const std::string& routes, const std::set<std::string>& marked = {}) {
  std::vector<Nic> nics = {
      {"eno1", 1, Ip("10.0.0.1"), 24}, {"ens1", 2, Ip("10.1.0.1"), 24}, {"ens2", 3, Ip("10.2.0.1"), 24}};
  std::istringstream table("Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
                           routes);
  LeaveOutManagement(marked, table, &nics);
  std::string names;
  for (const Nic& nic : nics) names += nic.name + " ";
  return names;
}

std::string Default(const std::string& name, int metric = 100, const std::string& flags = "0003") {
  return name + "\t00000000\t0100000A\t" + flags + "\t0\t0\t" + std::to_string(metric) + "\t00000000\t0\t0\t0\n";
}

TEST(Nic, ThatOfTheDefaultRouteIsNoDataNicWhereThereAreOthers) {
  EXPECT_EQ(Left(""), "eno1 ens1 ens2 ");
  EXPECT_EQ(Left("eno1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"), "eno1 ens1 ens2 ") << "a network";
  EXPECT_EQ(Left(Default("eno1")), "ens1 ens2 ");
  EXPECT_EQ(Left(Default("eno1", 100, "0002")), "eno1 ens1 ens2 ") << "it is down";
  EXPECT_EQ(Left(Default("ens1", 200) + Default("eno1", 100) + Default("ens2", 300)), "ens1 ens2 ")
      << "the least metric";
  EXPECT_EQ(Left(Default("eno1", 0) + Default("ens1", 0)), "ens2 ");
  EXPECT_EQ(Left(Default("eno1") + Default("ens1") + Default("ens2")), "eno1 ens1 ens2 ") << "none would be left";
  EXPECT_EQ(Left(Default("wlan0")), "eno1 ens1 ens2 ") << "another's";
  EXPECT_EQ(Left("garbage\nens1\n"), "eno1 ens1 ens2 ");
}

TEST(Nic, OneThatIsMarkedAsManagementIsNoDataNicWhereThereAreOthers) {
  EXPECT_EQ(Left("", {"ens1"}), "eno1 ens2 ");
  EXPECT_EQ(Left(Default("eno1"), {"ens1"}), "ens2 ");
  EXPECT_EQ(Left(Default("eno1"), {"ens1", "ens2"}), "eno1 ") << "none would be left";
  EXPECT_EQ(Left("", {"eno1", "ens1", "ens2"}), "eno1 ens1 ens2 ") << "none would be left";
  EXPECT_TRUE(IsManagement("management") && IsManagement("management of cluster 3"));
  EXPECT_FALSE(IsManagement("") || IsManagement("no management") || IsManagement("managements"));
}

using Pairs = std::vector<std::pair<int, int>>;

Nic OnSubnet(const char* address, int prefix_length) { return {"eth", 1, Ip(address), prefix_length}; }

TEST(PairNics, EqualSubnetsFirst) {
  std::vector<Nic> local = {OnSubnet("10.1.0.1", 24), OnSubnet("10.2.0.1", 24), OnSubnet("10.3.0.1", 24)};
  EXPECT_EQ(PairNics(local, {Ip("10.3.0.2"), Ip("10.1.0.2"), Ip("10.2.0.2")}), (Pairs{{0, 1}, {1, 2}, {2, 0}}));
}

TEST(PairNics, TheRestByPosition) {
  std::vector<Nic> local = {OnSubnet("10.1.0.1", 24), OnSubnet("10.2.0.1", 24), OnSubnet("10.9.0.1", 24)};
  EXPECT_EQ(PairNics(local, {Ip("10.7.0.2"), Ip("10.2.0.2"), Ip("10.8.0.2")}), (Pairs{{0, 0}, {1, 1}, {2, 2}}));
}

TEST(PairNics, UnequalNumbers) {
  std::vector<Nic> local = {OnSubnet("10.1.0.1", 24), OnSubnet("10.2.0.1", 24), OnSubnet("10.3.0.1", 24)};
  EXPECT_EQ(PairNics(local, {Ip("10.2.0.2")}), (Pairs{{1, 0}}));
  local.resize(1);
  EXPECT_EQ(PairNics(local, {Ip("10.7.0.2"), Ip("10.1.0.2")}), (Pairs{{0, 1}}));
  // One subnet for all: each address is used once.
  std::vector<Nic> same = {OnSubnet("10.0.0.1", 8), OnSubnet("10.0.0.2", 8)};
  EXPECT_EQ(PairNics(same, {Ip("10.0.0.3"), Ip("10.0.0.4")}), (Pairs{{0, 0}, {1, 1}}));
}

TEST(EventLog, KeepsTheNewest) {
  EventLog log;
  for (size_t i = 0; i < EventLog::kCapacity + 10; ++i) log.Add("kind", "nic", "peer", std::to_string(i));
  auto events = log.Snapshot();
  ASSERT_EQ(events.size(), EventLog::kCapacity);
  EXPECT_EQ(events.front().detail, "10");
  EXPECT_LE(events.front().wall_ns, events.back().wall_ns);
}

}  // namespace
}  // namespace r2ccl
