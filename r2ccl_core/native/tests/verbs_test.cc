// Connections whose streams go over from TCP to RDMA, on queue pairs in memory that the tests break.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "failover/stall.h"
#include "memory_queue.h"
#include "pair.h"
#include "wire/verbs/ports.h"
#include "wire/verbs/rc_pipe.h"
#include "wire/verbs/rdma_ways.h"

namespace r2ccl {
namespace {

Params By(const std::string& transport) {
  Params params = PatientParams(2);
  params.transport = transport;
  return params;
}

// Two hosts with so many NICs each, and RDMA between them.
struct VerbsPair {
  VerbsPair(const Params& sender_params, const Params& receiver_params, int nics = 2) {
    EXPECT_TRUE(Net::Create(sender_params, LoopbackNics(1, nics), &sender, nullptr, &fabric).ok());
    EXPECT_TRUE(Net::Create(receiver_params, LoopbackNics(2, nics), &receiver, nullptr, &fabric).ok());
  }
  explicit VerbsPair(const Params& params) : VerbsPair(params, params) {}
  ~VerbsPair() {
    if (testing::Test::HasFailure()) {
      for (const auto& net : {sender, receiver}) {
        for (const Event& event : net->environment().log.Snapshot(1000)) {
          std::printf("%s %s %s %s\n", event.kind.c_str(), event.nic.c_str(), event.peer.c_str(), event.detail.c_str());
        }
      }
    }
    if (send != nullptr) send->Close();
    if (recv != nullptr) recv->Close();
    sender->Shutdown();
    receiver->Shutdown();
    send.reset();
    recv.reset();
    EXPECT_EQ(fabric.queues(), 0u) << "queue pairs are left";
  }

  void Open() {
    ASSERT_TRUE(receiver->Listen(&listener).ok());
    ASSERT_TRUE(sender->Connect(listener->handle(), &send).ok());
    ASSERT_TRUE(Until([&] {
      bool ready = false;
      EXPECT_EQ(send->Ready(&ready).message(), "");
      if (recv == nullptr) recv = listener->Accept();
      return ready && recv != nullptr;
    }));
  }
  bool AllByRdma() {
    return Until([&] { return Streams(*sender) == 2 && Streams(*receiver) == 2; });
  }
  static int Streams(Net& net) {
    return net.environment().counters[0].rdma_streams + net.environment().counters[1].rdma_streams;
  }
  static uint64_t Bytes(Net& net, int nic) { return net.environment().counters[nic].rdma_sent_bytes; }
  std::string Run(uint64_t seed = 1, const Traffic::During& during = nullptr) {
    TrafficOptions options;
    options.sizes = {0, 1, 4095, 16384, 131073, 1 << 20, (5 << 20) + 3, 100, 3 << 20, 0};
    options.seed = seed;
    return Traffic(*send, *recv, options).Run(during);
  }

  Fabric fabric;
  std::shared_ptr<Net> sender;
  std::shared_ptr<Net> receiver;
  std::shared_ptr<Listener> listener;
  std::shared_ptr<SendComm> send;
  std::shared_ptr<RecvComm> recv;
};

TEST(Verbs, GoesOverFromTcpInTheMiddleOfMessagesAndLosesNothing) {
  VerbsPair pair(By("auto"));
  pair.Open();
  EXPECT_EQ(pair.Run(), "");
  ASSERT_TRUE(pair.AllByRdma());
  EXPECT_EQ(pair.Run(2), "");
  EXPECT_EQ(CountEvents(*pair.sender, "rdma_on"), 2u);
  EXPECT_EQ(CountEvents(*pair.sender, "path_down"), 0u);
  EXPECT_GT(pair.Bytes(*pair.sender, 0) + pair.Bytes(*pair.sender, 1), 9u << 20);
  EXPECT_GT(pair.Bytes(*pair.receiver, 0) + pair.Bytes(*pair.receiver, 1), 0u) << "acknowledgements";
}

// Sockets of this process whose kernel asks a silent peer whether it is there.
size_t KeptAlive() {
  size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int on = 0;
    socklen_t length = sizeof on;
    count += getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &length) == 0 && on != 0 ? 1 : 0;
  }
  return count;
}

TEST(Verbs, TheKernelAsksForThePeersOfStreamsThatHaveGoneOver) {
  VerbsPair pair(By("auto"));
  pair.fabric.has_ports = false;
  pair.Open();
  size_t before = KeptAlive();
  pair.fabric.has_ports = true;
  ASSERT_TRUE(pair.AllByRdma());
  EXPECT_EQ(KeptAlive() - before, 4u);
}

TEST(Verbs, AloneItSendsNothingByTcp) {
  VerbsPair pair(By("verbs"));
  pair.Open();
  EXPECT_EQ(pair.Run(), "");
  auto& counters = pair.sender->environment().counters;
  for (int nic = 0; nic < 2; ++nic) EXPECT_GE(counters[nic].rdma_sent_bytes, counters[nic].sent_bytes) << nic;
  EXPECT_GT(pair.Bytes(*pair.sender, 0) + pair.Bytes(*pair.sender, 1), 9u << 20);
}

TEST(Verbs, WhereOneEndHasTcpOnlyThatIsUsedAndNothingIsOffered) {
  for (bool sender_has : {false, true}) {
    VerbsPair pair(By(sender_has ? "auto" : "tcp"), By(sender_has ? "tcp" : "auto"));
    pair.Open();
    EXPECT_EQ(pair.Run(), "");
    EXPECT_EQ(pair.Streams(*pair.sender) + pair.Streams(*pair.receiver), 0);
    EXPECT_EQ(CountEvents(*pair.sender, "rdma_off"), 0u);
    EXPECT_EQ(CountEvents(*pair.sender, "path_down"), 0u);
  }
}

// At whatever moment it gives up: while it waits to dial again, while it dials, and while it tries other rails.
void GivesUpBecause(VerbsPair& pair, const std::string& reason) {
  ASSERT_TRUE(pair.receiver->Listen(&pair.listener).ok());
  ASSERT_TRUE(pair.sender->Connect(pair.listener->handle(), &pair.send).ok());
  ASSERT_TRUE(Until([&] { return !pair.send->failure().ok(); }));
  EXPECT_EQ(pair.send->failure().code(), Code::kPeerLost);
  std::string told = pair.send->failure().message();
  EXPECT_NE(told.find("; this host said: "), std::string::npos) << told;
  EXPECT_NE(told.find(reason), std::string::npos) << told;
  EXPECT_EQ(pair.sender->environment().counters[0].sent_bytes, 0u);
}

TEST(Verbs, AloneAPeerWithTcpOnlyEndsTheConnectionWithTheReason) {
  for (int64_t give_up_ms : {150, 300, 450, 700, 1500}) {
    Params params = By("verbs");
    params.give_up_ms = give_up_ms;
    VerbsPair pair(params, By("tcp"));
    GivesUpBecause(pair, "the peer takes no RDMA on this rail");
    EXPECT_TRUE(AnyEvent(*pair.sender, "rdma_off", "the peer takes no RDMA on this rail"));
  }
}

TEST(Verbs, AloneANetworkWithoutRdmaEndsTheConnectionWithTheReason) {
  Params params = By("verbs");
  params.give_up_ms = 3000;
  VerbsPair pair(params);
  pair.fabric.largest = 0;
  GivesUpBecause(pair, "test messages have not come back");
}

// The port is down at first, and comes.
TEST(Verbs, ATryThatFailsCostsNoPathAndIsMadeAgain) {
  VerbsPair pair(By("auto"));
  pair.fabric.has_ports = false;
  pair.Open();
  EXPECT_EQ(pair.Run(), "");
  EXPECT_EQ(pair.Streams(*pair.sender), 0);
  EXPECT_TRUE(AnyEvent(*pair.sender, "rdma_off", "the port is not active; TCP goes on"));
  pair.fabric.has_ports = true;
  ASSERT_TRUE(pair.AllByRdma());
  EXPECT_EQ(pair.Run(2), "");
  EXPECT_EQ(CountEvents(*pair.sender, "path_down"), 0u);
}

// Large packets are lost, as where one end has jumbo frames: small messages would not have shown it.
TEST(Verbs, WhatDropsLargePacketsIsFoundOutByTestsBeforeAnythingDependsOnIt) {
  VerbsPair pair(By("auto"));
  pair.fabric.largest = 1000;
  pair.Open();
  EXPECT_EQ(pair.Run(), "");
  ASSERT_TRUE(Until([&] { return AnyEvent(*pair.sender, "rdma_off", "test messages have not come back"); }));
  EXPECT_EQ(pair.Run(2), "");
  EXPECT_EQ(pair.Streams(*pair.sender), 0);
  EXPECT_EQ(CountEvents(*pair.sender, "path_down"), 0u);
  pair.fabric.largest = SIZE_MAX;
  ASSERT_TRUE(pair.AllByRdma());
  EXPECT_EQ(pair.Run(3), "");
}

void LoseInTheMiddle(VerbsPair& pair, const std::function<void()>& fault) {
  pair.Open();
  ASSERT_TRUE(pair.AllByRdma());
  bool fired = false;
  EXPECT_EQ(pair.Run(4,
                     [&](uint64_t received) {
                       if (received > (3 << 20) && !fired) fault();
                       fired |= received > (3 << 20);
                     }),
            "");
  EXPECT_TRUE(Until([&] { return CountEvents(*pair.sender, "path_down") > 0; }));
  EXPECT_TRUE(pair.AllByRdma()) << "it comes back";
  EXPECT_EQ(pair.Run(5), "");
}

TEST(Verbs, APortThatGoesDownInTheMiddleLosesNothingAndComesBack) {
  VerbsPair pair(By("auto"));
  LoseInTheMiddle(pair, [&] { pair.fabric.FailPort(pair.sender->environment().nics[1].address); });
  EXPECT_TRUE(AnyEvent(*pair.sender, "path_down", "the port went down"));
}

TEST(Verbs, APortOfTheReceiverThatGoesDownLosesNothing) {
  VerbsPair pair(By("auto"));
  LoseInTheMiddle(pair, [&] { pair.fabric.FailPort(pair.receiver->environment().nics[0].address); });
}

TEST(Verbs, SendsThatFailLoseNothing) {
  VerbsPair pair(By("auto"));
  LoseInTheMiddle(pair, [&] {
    for (const Nic& nic : pair.sender->environment().nics) pair.fabric.FailSends(nic.address);
  });
}

TEST(Verbs, AloneItSurvivesTheSame) {
  VerbsPair pair(By("verbs"));
  LoseInTheMiddle(pair, [&] { pair.fabric.FailPort(pair.sender->environment().nics[1].address); });
}

// RDMA alone is broken: the same NIC goes on by TCP.
TEST(Verbs, TcpCarriesOnTheSameNicWhatRdmaDoesNot) {
  VerbsPair pair(By("auto"));
  pair.Open();
  ASSERT_TRUE(pair.AllByRdma());
  pair.fabric.has_ports = false;
  for (const Nic& nic : pair.sender->environment().nics) pair.fabric.FailPort(nic.address);
  ASSERT_TRUE(Until([&] { return CountEvents(*pair.sender, "path_down") == 2; }));
  EXPECT_EQ(pair.Run(6), "");
  EXPECT_EQ(pair.Streams(*pair.sender), 0);
  pair.fabric.has_ports = true;
  EXPECT_TRUE(pair.AllByRdma());
  EXPECT_EQ(pair.Run(7), "");
}

TEST(Verbs, SilenceOfAQueueIsNoticedAsThatOfASocket) {
  Params params = By("auto");
  params.stall_ms = 200;
  VerbsPair pair(params);
  pair.Open();
  ASSERT_TRUE(pair.AllByRdma());
  pair.fabric.largest = 0;
  EXPECT_EQ(pair.Run(8), "");
  // Both wait for an answer; who sees first that none comes resets the stream of the other.
  EXPECT_TRUE(AnyEvent(*pair.sender, "path_down", "stalled") || AnyEvent(*pair.receiver, "path_down", "stalled"));
}

// The device has acknowledged it, so that nothing is under way, and the receiving program says nothing more. The word
// gave slots back as well, without which the sending end cannot go on asking until the other end has some to return.
TEST(Verbs, AnAcknowledgementWhoseCompletionIsLostIsAskedFor) {
  Params params = By("verbs");
  params.chunk_bytes = params.min_chunk_bytes = params.eager_bytes = 1 << 20;
  VerbsPair pair(params, params, 1);
  pair.Open();
  ASSERT_EQ(pair.Run(9), "");
  std::vector<char> from(7 * 32'000, 'x'), to(from.size());
  Request *send = nullptr, *recv = nullptr;
  bool sent = false, received = false;
  uint64_t size = 0;
  pair.fabric.loses_completions_of = pair.sender->environment().nics[0].address.s_addr;
  ASSERT_TRUE(pair.recv->Irecv(to.data(), to.size(), &recv, false).ok());
  ASSERT_TRUE(pair.send->Isend(from.data(), from.size(), &send).ok());
  ASSERT_TRUE(Until([&] { return pair.recv->Test(recv, &received, &size).ok() && received; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  pair.fabric.loses_completions_of = INADDR_NONE;
  EXPECT_TRUE(Until([&] { return pair.send->Test(send, &sent, &size).ok() && sent; }, 20));
  EXPECT_EQ(CountEvents(*pair.sender, "path_down"), 1u) << "it was met";
  EXPECT_EQ(from, to);
}

TEST(Verbs, TheEndOfAProcessIsHeardByTcpAtOnce) {
  VerbsPair pair(By("auto"));
  pair.Open();
  ASSERT_TRUE(pair.AllByRdma());
  pair.receiver->Shutdown();
  EXPECT_TRUE(Until([&] { return !pair.send->failure().ok(); }));
}

// RcPipe ----------------------------------------------------------------------------------------------------

struct Pipes {
  Pipes() {
    for (auto& pipe : pipes) {
      std::unique_ptr<RcQueue> queue;
      EXPECT_TRUE(fabric.Make({}, shape, 0, {}, &queue).ok());
      pipe = std::make_unique<RcPipe>(std::move(queue), shape);
      EXPECT_TRUE(pipe->Prepare().ok());
    }
    EXPECT_TRUE(pipes[0]->Connect(pipes[1]->queue().address(), 1).ok());
    EXPECT_TRUE(pipes[1]->Connect(pipes[0]->queue().address(), 1).ok());
  }
  // Whether `from` could send one.
  bool Send(int from) {
    size_t most = 0;
    char* place = pipes[from]->Room(&most, 2);
    if (place == nullptr) return false;
    EXPECT_EQ(most, 512 - sizeof(RcPipe::Header) - RcPipe::kTailBytes);
    std::memset(place, 'x', most);
    EXPECT_TRUE(pipes[from]->Send(RcKind::kBytes, most, 2).ok());
    return true;
  }
  void Take(int at) {
    EXPECT_TRUE(pipes[at]->Reap(3).ok());
    while (pipes[at]->front() != nullptr) {
      taken[at] += pipes[at]->front()->bytes;
      EXPECT_TRUE(pipes[at]->DropFront().ok());
    }
    EXPECT_TRUE(pipes[at]->ReturnSlots(3).ok());
  }

  Fabric fabric;
  RcShape shape{64, 512, 8, 512, 1};
  std::unique_ptr<RcPipe> pipes[2];
  size_t taken[2] = {};
};

TEST(RcPipe, SendsNoMoreThanTheOtherEndHasSlotsFor) {
  Pipes pipes;
  int sent = 0;
  while (pipes.Send(0)) ++sent;
  EXPECT_EQ(sent, 8 - int{RcPipe::kKeptSlots});
  Progress progress;
  pipes.pipes[0]->AddProgress(&progress, 102);
  EXPECT_EQ(progress.held_ns, 100);
  pipes.Take(1);
  EXPECT_TRUE(pipes.pipes[0]->Reap(4).ok());
  EXPECT_TRUE(pipes.Send(0));
}

TEST(RcPipe, FullRingsBothWaysNeverWaitForEachOther) {
  Pipes pipes;
  for (int round = 0; round < 200; ++round) {
    while (pipes.Send(0)) continue;
    while (pipes.Send(1)) continue;
    pipes.Take(round % 2);
    pipes.Take(1 - round % 2);
  }
  EXPECT_GT(pipes.taken[0], 200u * 512);
  EXPECT_GT(pipes.taken[1], 200u * 512);
}

TEST(RcPipe, WhoWaitsForAWordOrForSlotsCountsNowAndThen) {
  for (bool slots : {false, true}) {
    Pipes pipes;
    RcPipe& waiting = *pipes.pipes[0];
    auto counts = [&waiting](int64_t from_ns) {
      int counted = 0;
      for (int64_t now_ns = from_ns; now_ns < from_ns + 1'000'000'000; now_ns += 5'000'000) {
        EXPECT_TRUE(waiting.Reap(now_ns).ok());
        counted += waiting.WantsCount(now_ns) ? 1 : 0;
      }
      return counted;
    };
    ASSERT_TRUE(pipes.Send(0));
    EXPECT_EQ(counts(3), 0);
    if (slots) {
      while (pipes.Send(0)) continue;
    } else {
      waiting.SetWaits(true, 2'000'000'000);
    }
    EXPECT_EQ(counts(2'000'000'000), 3 + (slots ? 0 : 1));
    EXPECT_EQ(waiting.acknowledged(), slots ? 6u : 1u);
    waiting.SetWaits(false, 3'000'000'000);
    if (slots) pipes.Take(1);
    EXPECT_EQ(counts(4'000'000'000), 0);
  }
}

// For this process, which was stopped after its last look.
TEST(RcPipe, HowLongAnAnswerWaitedIsNoPartOfTheTimeThatItTook) {
  constexpr int64_t kDoneNs = 300'000'000;
  auto took_ns = [](int64_t looks_until_ns) {
    Pipes pipes;
    RcPipe& pipe = *pipes.pipes[0];
    char from[] = "from", to[] = "to";
    pipes.fabric.AddMemory(from, sizeof from);
    pipes.fabric.AddMemory(to, sizeof to);
    pipes.fabric.holds_writes = true;
    EXPECT_TRUE(pipe.Write(reinterpret_cast<uint64_t>(from), 2, 1, reinterpret_cast<uint64_t>(to), 2, 0).ok());
    for (int64_t now_ns = 0; now_ns <= looks_until_ns; now_ns += 5'000'000) EXPECT_TRUE(pipe.Reap(now_ns).ok());
    pipes.fabric.LandWrites();
    EXPECT_TRUE(pipe.Reap(kDoneNs).ok());
    Progress progress;
    pipe.AddProgress(&progress, kDoneNs);
    return progress.rtt_ns;
  };
  EXPECT_EQ(took_ns(kDoneNs - 5'000'000), kDoneNs);
  EXPECT_EQ(took_ns(100'000'000), 100'000'000 + kLongestTickNs);
  EXPECT_EQ(took_ns(0), kLongestTickNs);
}

TEST(RcPipe, WhatIsSentAfterAnAbsenceTakesItsOwnTime) {
  constexpr int64_t kBackNs = 300'000'000;
  Pipes pipes;
  RcPipe& pipe = *pipes.pipes[0];
  size_t most = 0;
  ASSERT_NE(pipe.Room(&most, kBackNs), nullptr);
  EXPECT_TRUE(pipe.Send(RcKind::kBytes, 1, kBackNs).ok());
  EXPECT_TRUE(pipe.Reap(kBackNs + 1000).ok());
  Progress progress;
  pipe.AddProgress(&progress, kBackNs + 1000);
  EXPECT_EQ(progress.rtt_ns, 1000);
}

// One that were taken for an echo would be dropped, and whoever waits for its bytes would wait for ever.
TEST(RcPipe, AMessageOfWhichOneBitWasChangedIsRefused) {
  constexpr size_t kTail = 512 - RcPipe::kTailBytes;
  for (size_t at = 0; at < 512; at = at + 1 == sizeof(RcPipe::Header) ? kTail : at + 1) {
    for (int bit = 0; bit < 8; ++bit) {
      Pipes pipes;
      ASSERT_TRUE(pipes.Send(0));
      pipes.pipes[1]->queue().receive_slot(0)[at] ^= static_cast<char>(1 << bit);
      EXPECT_EQ(pipes.pipes[1]->Reap(3).code(), Code::kProtocol) << at << " " << bit;
      EXPECT_EQ(pipes.pipes[1]->front(), nullptr);
    }
  }
}

TEST(RcPipe, AMessageOfAnotherNumberOrLengthIsRefused) {
  for (size_t at :
       {offsetof(RcPipe::Header, number), offsetof(RcPipe::Header, returned), offsetof(RcPipe::Header, bytes)}) {
    Pipes pipes;
    ASSERT_TRUE(pipes.Send(0));
    char* slot = pipes.pipes[1]->queue().receive_slot(0);
    ++slot[at];
    uint32_t sum = Crc32c(slot, sizeof(RcPipe::Header));
    std::memcpy(slot + 512 - RcPipe::kTailBytes, &sum, sizeof sum);
    EXPECT_EQ(pipes.pipes[1]->Reap(3).code(), Code::kProtocol) << at;
  }
}

TEST(RcPipe, WhatAPeerSaysOfItsQueueIsChecked) {
  RcAddress address;
  address.mtu = 3;
  address.receive_slots = 16;
  address.receive_bytes = 4096;
  address.psn = 0xabcdef;
  auto decode = [](const std::string& bytes) {
    RcAddress decoded;
    return DecodeRcAddress({bytes.begin(), bytes.end()}, &decoded);
  };
  std::string good = EncodeRcAddress(address);
  ASSERT_EQ(good.size(), kRcAddressBytes);
  EXPECT_TRUE(decode(good).ok());
  EXPECT_FALSE(decode(good.substr(1)).ok());
  EXPECT_FALSE(decode("").ok());
  for (size_t field : {16, 20, 24, 28, 32, 36, 40}) {
    std::string bad = good;
    bad[field + 3] = 0x7f;
    EXPECT_FALSE(decode(bad).ok()) << field;
  }
}

TEST(RdmaWays, AWayThatFailsIsTriedEverLaterAndOneThatLastedAtOnceAgain) {
  RdmaWays ways;
  RdmaWays::Key key{1, 2};
  EXPECT_EQ(ways.NotBefore(key), 0);
  EXPECT_TRUE(ways.Fail(key, 1000, "a"));
  EXPECT_FALSE(ways.Fail(key, 1001, "a")) << "another connection says the same";
  EXPECT_EQ(ways.NotBefore(key), 1000 + RdmaWays::kFirstPauseNs);
  int64_t now_ns = ways.NotBefore(key);
  EXPECT_FALSE(ways.Fail(key, now_ns, "a"));
  EXPECT_EQ(ways.NotBefore(key), now_ns + 2 * RdmaWays::kFirstPauseNs);
  for (int i = 0; i < 20; ++i) ways.Fail(key, ways.NotBefore(key), "b");
  EXPECT_EQ(ways.WhyNot(key), "b");
  now_ns = ways.NotBefore(key);
  EXPECT_TRUE(ways.Work(key, now_ns));
  EXPECT_FALSE(ways.Work(key, now_ns));
  ways.Fail(key, now_ns + RdmaWays::kProvenNs + 1, "c");
  EXPECT_EQ(ways.NotBefore(key), now_ns + RdmaWays::kProvenNs + 1 + RdmaWays::kFirstPauseNs);
}

// Ports -----------------------------------------------------------------------------------------------------

// A folder like /sys/class.
struct Sysfs {
  Sysfs() {
    char name[] = "/tmp/r2ccl-sysfs-XXXXXX";
    root = mkdtemp(name);
  }
  ~Sysfs() { std::filesystem::remove_all(root); }
  void Write(const std::string& path, const std::string& text) {
    auto file = std::filesystem::path(root) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void AddGid(const std::string& device, int index, const std::string& gid, const std::string& type) {
    std::string port = "infiniband/" + device + "/ports/1/";
    Write(port + "link_layer", "Ethernet");
    Write(port + "gids/" + std::to_string(index), gid);
    Write(port + "gid_attrs/types/" + std::to_string(index), type);
  }
  Status Find(const std::string& address, RcPort* port, const VerbsSettings& settings = {}) const {
    Nic nic{"eth0"};
    inet_pton(AF_INET, address.c_str(), &nic.address);
    return FindPort(root, nic, settings, port);
  }
  std::string root;
};

TEST(Ports, TheGidOfTheAddressIsFoundAndRoceV1IsNot) {
  Sysfs sysfs;
  sysfs.AddGid("mlx5_0", 0, "fe80:0000:0000:0000:5054:00ff:fe00:0001", "IB/RoCE v1");
  sysfs.AddGid("mlx5_0", 2, "0000:0000:0000:0000:0000:ffff:0a64:0001", "IB/RoCE v1");
  sysfs.AddGid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a64:0001", "RoCE v2");
  sysfs.AddGid("mlx5_1", 10, "0000:0000:0000:0000:0000:ffff:0a65:0001", "RoCE v2");
  RcPort port;
  ASSERT_EQ(sysfs.Find("10.100.0.1", &port).message(), "");
  EXPECT_EQ(port.device, "mlx5_0");
  EXPECT_EQ(port.gid_index, 3);
  EXPECT_TRUE(StillThere(sysfs.root, port));
  sysfs.AddGid("mlx5_0", 3, "0000:0000:0000:0000:0000:0000:0000:0000", "");
  EXPECT_FALSE(StillThere(sysfs.root, port));
  ASSERT_EQ(sysfs.Find("10.101.0.1", &port).message(), "");
  EXPECT_EQ(port.device, "mlx5_1");
  EXPECT_EQ(
      sysfs.Find("10.102.0.1", &port).message(),
      "no RDMA port has eth0's address 10.102.0.1 as a GID (RoCE v2, or its IPoIB interface); see `rdma link` and "
      "`ibv_devinfo -v`");
}

TEST(Ports, IpoibHasThePortsGidInItsHardwareAddress) {
  Sysfs sysfs;
  sysfs.AddGid("mlx5_4", 0, "fe80:0000:0000:0000:b8ce:f603:0012:3456", "IB/RoCE v1");
  sysfs.Write("infiniband/mlx5_4/ports/1/link_layer", "InfiniBand");
  sysfs.Write("net/eth0/address", "00:00:10:29:fe:80:00:00:00:00:00:00:b8:ce:f6:03:00:12:34:56");
  RcPort port;
  ASSERT_EQ(sysfs.Find("10.100.0.1", &port).message(), "");
  EXPECT_EQ(port.device, "mlx5_4");
  EXPECT_TRUE(port.infiniband);
}

TEST(Ports, WhatUsersSetIsSaidWhereItFindsNothing) {
  Sysfs sysfs;
  RcPort port;
  EXPECT_EQ(sysfs.Find("10.100.0.1", &port).message(),
            "this host has no RDMA device; load its driver, and see `rdma link`");
  sysfs.AddGid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a64:0001", "RoCE v2");
  VerbsSettings settings;
  settings.gid_index = 9;
  sysfs.AddGid("mlx5_0", 9, "0000:0000:0000:0000:0000:0000:0000:0000", "");
  EXPECT_EQ(sysfs.Find("10.100.0.1", &port, settings).message(),
            "mlx5_0 port 1 has no GID of index 9 (NCCL_IB_GID_INDEX); leave it out, and it is found by 10.100.0.1");
  settings = {};
  settings.devices = "^mlx5_0";
  EXPECT_EQ(sysfs.Find("10.100.0.1", &port, settings).message(),
            "NCCL_IB_HCA=^mlx5_0 leaves out the RDMA device of eth0 (10.100.0.1)");
}

TEST(Ports, VariablesOfNcclsThatChangeNothingAreNamed) {
  const char* environment[] = {"NCCL_IB_TC=106",
                               "NCCL_IB_QPS_PER_CONNECTION=4",
                               "NCCL_IB_ROCE_VERSION_NUM=2",
                               "NCCL_NET_GDR_LEVEL=PHB",
                               "NCCL_DEBUG=INFO",
                               "NCCL_IB_ADAPTIVE_ROUTING=1",
                               nullptr};
  EXPECT_EQ(IgnoredVariables(environment),
            (std::vector<std::string>{"NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_NET_GDR_LEVEL"}));
  EXPECT_EQ(IgnoredVariables(environment, true),
            (std::vector<std::string>{"NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_QPS_PER_CONNECTION"}))
      << "NCCL reads NCCL_NET_GDR_LEVEL itself, where the plugin takes GPU memory";
  const char* other[] = {"NCCL_IB_ROCE_VERSION_NUM=1", nullptr};
  EXPECT_EQ(IgnoredVariables(other), std::vector<std::string>{"NCCL_IB_ROCE_VERSION_NUM"});
}

TEST(Ports, AListOfDevicesMeansWhatItMeansToNccl) {
  EXPECT_TRUE(Selects("", "mlx5_0", 1));
  EXPECT_TRUE(Selects("mlx5", "mlx5_3", 1));
  EXPECT_FALSE(Selects("=mlx5", "mlx5_3", 1));
  EXPECT_TRUE(Selects("=mlx5_1,mlx5_3:2", "mlx5_3", 2));
  EXPECT_FALSE(Selects("=mlx5_1,mlx5_3:2", "mlx5_3", 1));
  EXPECT_FALSE(Selects("^mlx5_3", "mlx5_3", 1));
  EXPECT_TRUE(Selects("^=mlx5_3", "mlx5_30", 1));
}

}  // namespace
}  // namespace r2ccl
