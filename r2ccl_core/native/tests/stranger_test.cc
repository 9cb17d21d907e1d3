// Strangers, garbage and corrupted frames: refused, without harm to a connection that is running.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "pair.h"

namespace r2ccl {
namespace {

constexpr int64_t kSecondNs = 1000 * kMillisecond;

// A plain client of the receiver's port.
class Client {
 public:
  // `from`: the last two numbers of its address; 0: 127.0.0.1.
  explicit Client(const Handle& handle, size_t path = 0, uint32_t from = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(0x7f000000 + from);
    if (from != 0) {
      EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    }
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr = handle.addresses[path];
    where.sin_port = htons(handle.port);
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  }
  void Say(const std::string& bytes) { (void)!send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // What the receiver says before it hangs up; "hangs" when it does not.
  std::string Answer() {
    std::string all;
    pollfd wait{fd_.get(), POLLIN, 0};
    while (poll(&wait, 1, 20000) == 1) {
      char buffer[4096];
      ssize_t received = recv(fd_.get(), buffer, sizeof buffer, 0);
      if (received <= 0) return all;
      all.append(buffer, static_cast<size_t>(received));
    }
    return "hangs";
  }

 private:
  Fd fd_;
};

class Strangers : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pair.Open().message(), "");
    handle = pair.listener->handle();
  }
  std::string Transfer() {
    TrafficOptions options;
    options.sizes = {100, 1 << 20, 300000};
    options.seed = ++transfers;
    return Traffic(*pair.send, *pair.recv, options).Run();
  }

  // Nobody is probed: a probe's descriptor comes and goes when the test counts them.
  static Params Alone() {
    Params params = PatientParams(2);
    params.locate_ms = 0;
    return params;
  }
  // Of the receiver.
  std::string Counted() {
    std::string text;
    for (const auto& [kind, count] : pair.receiver->MakeReport().strangers) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + kind;
    }
    return text;
  }
  Pair pair{Alone()};
  Handle handle;
  uint64_t transfers = 0;
};

TEST_F(Strangers, AreRefusedAndNamed) {
  Secret wrong = handle.secret;
  wrong[5] ^= 1;
  std::string other_version = EncodeHello(0, 1, 99, 3, handle.secret);
  other_version[4] = kWireVersion + 1;
  const std::string speaks = "peer speaks version " + std::to_string(kWireVersion + 1);
  std::string changed = EncodeHello(0, 1, 99, 3, handle.secret);
  changed[16] ^= 1;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string(64, 'G'), "not an r2ccl stream"},
      {EncodeHello(0, 1, 99, 3, wrong), "unknown secret"},
      {other_version, speaks},
      {changed, "header was changed on its way"},
      {EncodeControl(FrameType::kClose) + std::string(16, 'x'), "does not begin with a greeting"},
      {EncodeHello(0, 0, 99, 3, handle.secret), "malformed hello"},
      {other_version.substr(0, 20), speaks},
  };
  uint32_t from = 0x5000;
  for (const auto& [bytes, reason] : cases) {
    Client client(handle, 0, ++from);
    client.Say(bytes);
    EXPECT_EQ(client.Answer(), "") << reason;
    EXPECT_TRUE(Until([&, why = reason] { return AnyEvent(*pair.receiver, "refused", why); })) << reason;
  }
  {
    Client silent(handle, 0, ++from);
  }  // leaves without a word
  EXPECT_TRUE(Until([&] { return AnyEvent(*pair.receiver, "refused", "left without a greeting"); }));
  EXPECT_EQ(Counted(), "1 silent, 4 garbage, 2 version, 1 secret, 0 crowd, 0 astray");
  EXPECT_EQ(Transfer(), "");
  EXPECT_EQ(pair.listener->Accept(), nullptr);
  EXPECT_EQ(CountEvents(*pair.receiver, "path_down"), 0u);
}

// A scan of ports pushes no loss of a path out of the log.
TEST_F(Strangers, ManyAreCountedAndFewBecomeEvents) {
  constexpr uint32_t kScans = 600;
  for (uint32_t i = 0; i < kScans; ++i) {
    Client client(handle, 0, 0x6000 + i % 200);
    client.Say("GET / HTTP/1.1\r\n\r\n");
  }
  EXPECT_TRUE(Until([&] { return Counted().find(", 600 garbage") != std::string::npos; })) << Counted();
  EXPECT_LE(CountEvents(*pair.receiver, "refused"), static_cast<size_t>(StrangerCount::kBurst) + 1);
  EXPECT_EQ(Transfer(), "");
}

// What its own processes ask each other on the way to a verdict, and greetings that were lost on the way.
TEST_F(Strangers, OwnProbesAndLostGreetingsAreNone) {
  Target target{handle.addresses[0], handle.port};
  std::atomic<int> answered{0};
  constexpr int kProbes = 20;
  for (int i = 0; i < kProbes; ++i) {
    pair.sender->environment().prober->Ask({LoopbackNics(9, 1)[0], target, "", kSecondNs},
                                           [&](Answer answer, const Frame*) { answered += IsAnswered(answer); });
  }
  EXPECT_TRUE(Until([&] { return answered == kProbes; }));
  EXPECT_TRUE(Until([&] { return pair.receiver->MakeReport().own_probes >= kProbes; }));
  {
    Client mute(handle, 0, 0x0001);  // from where the relay's streams come: a peer
  }
  EXPECT_TRUE(Until([&] { return pair.receiver->MakeReport().own_probes > kProbes; }));
  EXPECT_EQ(Counted(), "0 silent, 0 garbage, 0 version, 0 secret, 0 crowd, 0 astray");
  EXPECT_EQ(CountEvents(*pair.receiver, "refused"), 0u);
}

TEST(Stranger, WhoSaysTooLittleIsSentAwayInTime) {
  Pair pair(QuickParams(2));
  ASSERT_EQ(pair.Open().message(), "");
  const Handle& handle = pair.listener->handle();
  Client client(handle, 0, 0x5001);
  client.Say(EncodeHello(0, 1, 99, 3, handle.secret).substr(0, 60));
  EXPECT_EQ(client.Answer(), "");
  EXPECT_TRUE(AnyEvent(*pair.receiver, "refused", "no greeting came in time"));
}

TEST_F(Strangers, StaleEpochsAndUnknownPathsChangeNothing) {
  uint64_t connection = pair.recv->connection();
  for (const std::string& hello : {EncodeHello(0, 1, connection, 3, handle.secret),      // the epoch in force
                                   EncodeHello(9, 5, connection, 10, handle.secret)}) {  // no such path
    Client client(handle);
    client.Say(hello);
    EXPECT_EQ(client.Answer(), "");
  }
  EXPECT_EQ(Transfer(), "");
  EXPECT_EQ(CountEvents(*pair.receiver, "path_down"), 0u);
}

TEST_F(Strangers, GarbageFloodsDoNotStopTraffic) {
  SCOPED_TRACE("seed " + std::to_string(TestSeed()));
  std::mt19937_64 random(TestSeed());
  std::vector<Client> crowd;
  for (int i = 0; i < 100; ++i) {
    std::string bytes = EncodeHello(0, 1, random(), 3, {});
    for (int flips = 0; flips < 5; ++flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % 65);
    crowd.emplace_back(handle, random() % 3);
    crowd.back().Say(bytes);
  }
  EXPECT_EQ(Transfer(), "");
}

// Knows the secret, opens a path of the running connection with a newer epoch, and talks nonsense.
TEST_F(Strangers, AnIntruderOnAPathIsThrownOutAndThePathComesBack) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 20; ++round) {
    uint32_t epoch = 1000 + static_cast<uint32_t>(round);
    Client client(handle, 1);
    client.Say(EncodeHello(1, epoch, pair.recv->connection(), 3, handle.secret));
    std::string bytes = EncodeAck(1, {});
    for (char& byte : bytes) {
      if (random() % 3 == 0) byte = static_cast<char>(random());
    }
    client.Say(bytes + std::string(100, 'z'));
    EXPECT_NE(client.Answer(), "hangs");
  }
  EXPECT_EQ(Transfer(), "");
}

TEST_F(Strangers, ALateStreamOfAnEndedConnectionMakesNoNewOne) {
  uint64_t connection = pair.recv->connection();
  ASSERT_EQ(Transfer(), "");
  pair.send->Close();
  pair.recv->Close();
  pair.recv.reset();
  EXPECT_TRUE(Until([&] {
    Client late(handle);
    late.Say(EncodeHello(0, 7, connection, 3, handle.secret));
    return late.Answer() == EncodeClose(0);
  }));
  EXPECT_EQ(pair.listener->Accept(), nullptr);
}

// Out of descriptors: who knocks waits in the kernel, nobody spins, and all goes on once there are some again.
TEST_F(Strangers, WaitWhileThereIsNoDescriptorForThem) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr = handle.addresses[0];
  where.sin_port = htons(handle.port);
  Fd guest(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 128;
  setrlimit(RLIMIT_NOFILE, &none);
  std::vector<Fd> fill;
  do {
    fill.emplace_back(dup(guest.get()));
  } while (fill.back().valid());
  EXPECT_EQ(connect(guest.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  EXPECT_TRUE(Until([&] { return CountEvents(*pair.receiver, "accept_paused") >= 1; }));
  int64_t cpu_ns = ReadClockNs(CLOCK_PROCESS_CPUTIME_ID);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  cpu_ns = ReadClockNs(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
  EXPECT_EQ(Transfer(), "") << "the running connection does not care";
  EXPECT_EQ(CountEvents(*pair.receiver, "accept_paused"), 1u) << "said once";
  fill.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_LT(cpu_ns, 250 * kMillisecond) << "who spins takes half a second";
  std::string garbage(64, 'G');
  EXPECT_EQ(send(guest.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 64);
  EXPECT_TRUE(Until([&] { return AnyEvent(*pair.receiver, "refused", "not an r2ccl stream"); }));
}

TEST(Corruption, OfTheGreetingOnlyDelaysThePath) {
  for (uint64_t at : {0, 4, 5, 8, 24, 50}) {  // magic, version, type, epoch, paths, secret
    Pair pair(QuickParams(2));
    bool corrupted = false;
    pair.relay->SetMangle([&corrupted, at](int path, uint64_t offset, char* data, size_t bytes) {
      if (corrupted || path != 1 || at < offset || at >= offset + bytes) return;
      data[at - offset] = static_cast<char>(data[at - offset] ^ 0x40);
      corrupted = true;
    });
    ASSERT_EQ(pair.Open().message(), "") << "byte " << at;
    EXPECT_TRUE(Until([&] { return pair.PathsUp() == 3; })) << "byte " << at;
    pair.relay->SetMangle(nullptr);
    TrafficOptions options;
    options.sizes = {1 << 20, 5};
    EXPECT_EQ(Traffic(*pair.send, *pair.recv, options).Run(), "");
  }
}

TEST(Corruption, OfAChunksHeaderRetiresThePathAndReplays) {
  constexpr uint64_t kFirstData = kHeaderBytes + kSecretBytes;
  for (uint64_t at : {0, 4, 5, 6, 8, 12, 16, 24, 32, 40, 44, 48, 52}) {
    Pair pair(QuickParams(2));
    ASSERT_EQ(pair.Open().message(), "");
    bool corrupted = false;
    pair.relay->SetMangle([&corrupted, where = kFirstData + at](int path, uint64_t offset, char* data, size_t bytes) {
      if (corrupted || path != 0 || where < offset || where >= offset + bytes) return;
      data[where - offset] = static_cast<char>(data[where - offset] ^ 0x44);
      corrupted = true;
    });
    TrafficOptions options;
    options.sizes.assign(6, 1 << 20);
    EXPECT_EQ(Traffic(*pair.send, *pair.recv, options).Run(), "") << "byte " << at;
    pair.relay->SetMangle(nullptr);
    EXPECT_TRUE(AnyEvent(*pair.receiver, "path_down", "wire:")) << "byte " << at;
  }
}

// Flips one bit in `flips` chunks' bodies on path 0, and says how many were flipped.
int FlipBodies(Relay& relay, int flips) {
  auto left = std::make_shared<int>(flips);
  auto next = std::make_shared<uint64_t>(10000);
  relay.SetMangle([left, next](int path, uint64_t offset, char* data, size_t bytes) {
    if (path != 0) return;
    if (offset == 0) *next = 10000;  // another stream
    if (*left == 0 || *next < offset || *next >= offset + bytes) return;
    data[*next - offset] = static_cast<char>(data[*next - offset] ^ 0x10);
    *next += 300007;  // bodies are far longer than headers, and of these lengths no flip hits a header
    --*left;
  });
  return flips;
}

TEST(Corruption, OfAChunksBodyIsNoticedWithChecksums) {
  for (int mode : {1, 2}) {
    Params params = PatientParams(mode);
    params.checksum = 1;
    Pair pair(params);
    ASSERT_EQ(pair.Open().message(), "");
    FlipBodies(*pair.relay, 5);
    uint64_t most = mode == 1 ? 3 : 1;  // in Balance tests come first when the path comes back, and are changed, too
    TrafficOptions options;
    options.sizes.assign(24, 1 << 20);
    for (int round = 0; round < 20 && pair.receiver->environment().corrupt_chunks < most; ++round) {
      ASSERT_EQ(Traffic(*pair.send, *pair.recv, options).Run(), "");
    }
    EXPECT_GE(pair.receiver->environment().corrupt_chunks.load(), most);
    EXPECT_GE(pair.sender->environment().replayed_chunks.load(), most);
    EXPECT_TRUE(AnyEvent(*pair.receiver, "path_down", "wire: body was changed on its way"));
    pair.relay->SetMangle(nullptr);
    EXPECT_TRUE(Until([&] { return pair.PathsUp() == 3; })) << "the path comes back";
  }
}

// What the check is worth: without it, and only then, the damage arrives.
TEST(Corruption, OfAChunksBodyArrivesWithoutChecksums) {
  Pair pair(PatientParams(2));
  ASSERT_EQ(pair.Open().message(), "");
  FlipBodies(*pair.relay, 1);
  TrafficOptions options;
  options.sizes.assign(24, 1 << 20);
  Traffic traffic(*pair.send, *pair.recv, options);
  EXPECT_NE(traffic.Run().find("came wrong"), std::string::npos);
  pair.recv->Close();  // before the buffers of what is still under way go
  pair.send->Close();
}

// A GPU looks at the buffer of such a receive all the time: what fails its check must never be seen there.
TEST(Corruption, IsNeverSeenInAWatchedBuffer) {
  Params params = PatientParams(2);
  params.checksum = 1;
  bool flipped = false;  // before the pair, whose relay looks at it until it ends
  Pair pair(params, 1);
  ASSERT_EQ(pair.Open().message(), "");
  std::vector<char> data(200000, 'x'), got(200000, '.');
  pair.relay->SetMangle([&](int, uint64_t offset, char* bytes, size_t count) {
    constexpr uint64_t kAt = kGreetingBytes + kHeaderBytes + 100;
    if (flipped || kAt < offset || kAt >= offset + count) return;
    bytes[kAt - offset] = 'y';
    flipped = true;
  });
  Request* send = nullptr;
  Request* receive = nullptr;
  ASSERT_TRUE(pair.recv->Irecv(got.data(), got.size(), &receive, true).ok());
  ASSERT_TRUE(pair.send->Isend(data.data(), data.size(), &send).ok());
  bool done = false;
  EXPECT_TRUE(Until([&] { return pair.receiver->environment().corrupt_chunks == 1; }));
  EXPECT_TRUE(Until([&] { return !pair.recv->Test(receive, &done, nullptr).ok() || done; }));
  EXPECT_EQ(std::count(got.begin(), got.end(), 'y'), 0);
  EXPECT_EQ(got, data);
}

}  // namespace
}  // namespace r2ccl
