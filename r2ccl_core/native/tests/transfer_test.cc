// Transfers in one process: what two engines say to each other, and engines that work, cancel and end at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memory_queue.h"
#include "pair.h"
#include "transfer/engine.h"

namespace r2ccl::transfer {
namespace {

Message SomeMessage() {
  Message message;
  message.kind = Kind::kWrite;
  message.last = true;
  message.code = 2;
  message.operation = 0x1234567890abcdef;
  message.text = std::string("with\0zero", 9);
  for (uint64_t i = 0; i < kMessagePieces; ++i) message.pieces.push_back({i * 0x0101010101, i, i + 1});
  return message;
}

TEST(TransferMessage, IsTheSameAfterItsWay) {
  Message sent = SomeMessage();
  std::string bytes = Encode(sent);
  EXPECT_LE(bytes.size(), kMessageBytes);
  Message got;
  ASSERT_EQ(Decode(bytes.data(), bytes.size(), &got).message(), "");
  EXPECT_EQ(Encode(got), bytes);
  EXPECT_EQ(got.pieces.back().key, sent.pieces.back().key);
}

TEST(TransferMessage, HoldsAllBytesOfItsPiecesOrNone) {
  Message sent;
  sent.kind = Kind::kWrite;
  sent.pieces = {{1, 0, 3}, {2, 8, 4}};
  sent.data = "abcdefg";
  std::string bytes = Encode(sent);
  Message got;
  ASSERT_EQ(Decode(bytes.data(), bytes.size(), &got).message(), "");
  EXPECT_EQ(got.data, sent.data);
  EXPECT_FALSE(Decode(bytes.data(), bytes.size() - 1, &got).ok());
  EXPECT_FALSE(Decode((bytes + "h").data(), bytes.size() + 1, &got).ok());
  sent.pieces[1].bytes = UINT64_MAX - 2;  // together, modulo 2^64, no byte at all
  sent.data = "";
  bytes = Encode(sent);
  EXPECT_TRUE(Decode(bytes.data(), bytes.size(), &got).ok());
  EXPECT_FALSE(Decode((bytes + "a").data(), bytes.size() + 1, &got).ok());
}

TEST(TransferMessage, NotifiesOnlyAtTheEndOfAWrite) {
  Message sent;
  sent.kind = Kind::kWrite;
  sent.last = sent.notifies = true;
  sent.text = "all is here";
  std::string bytes = Encode(sent);
  Message got;
  ASSERT_EQ(Decode(bytes.data(), bytes.size(), &got).message(), "");
  EXPECT_TRUE(got.last && got.notifies);
  EXPECT_EQ(got.text, sent.text);
  for (int kind = 0; kind <= static_cast<int>(Kind::kDone); ++kind) {
    for (int bits = 0; bits < 256; ++bits) {
      bytes[0] = static_cast<char>(kind);
      bytes[1] = static_cast<char>(bits);
      bool is_write = kind == static_cast<int>(Kind::kWrite);
      EXPECT_EQ(Decode(bytes.data(), bytes.size(), &got).ok(), bits < 2 || (bits == 3 && is_write)) << kind << bits;
    }
  }
}

TEST(TransferMessage, OfAnyBytesIsRefusedOrRead) {
  std::string bytes = Encode(SomeMessage());
  Message got;
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(Decode(bytes.data(), size, &got).ok()) << size;
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 20000; ++i) {
    std::string wrong = bytes.substr(0, 64);
    for (int flips = 0; flips < 3; ++flips) wrong[random() % wrong.size()] = static_cast<char>(random());
    if (Decode(wrong.data(), wrong.size(), &got).ok()) {
      EXPECT_EQ(Encode(got).size(), wrong.size());
    }
  }
}

TEST(TransferAddress, OfAnyBytesIsRefusedOrRead) {
  Address address;
  address.name = "decode-7";
  address.host = "a host";
  address.outer.port = 4000;
  address.outer.addresses.resize(2);
  std::string bytes = Encode(address);
  Address got;
  ASSERT_EQ(Decode(bytes, &got).message(), "");
  EXPECT_EQ(got.name, address.name);
  EXPECT_EQ(got.inner.port, 0);
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(Decode(bytes.substr(0, size), &got).ok()) << size;
  EXPECT_FALSE(Decode(bytes + "x", &got).ok());
}

struct Group {
  explicit Group(int count, int64_t spin_us = 0) {
    Params params = PatientParams(2);
    params.transfer_spin_us = spin_us;
    for (int i = 0; i < count; ++i) {
      std::shared_ptr<Engine> engine;
      Status status = Engine::Create("engine " + std::to_string(i), params, LoopbackNics(10 + i, 2), &engine);
      EXPECT_EQ(status.message(), "");
      engines.push_back(std::move(engine));
    }
  }
  EngineId Connect(size_t here, size_t there) {
    EngineId id{};
    EXPECT_EQ(engines[here]->Connect(engines[there]->address(), &id).message(), "");
    return id;
  }
  std::vector<std::shared_ptr<Engine>> engines;
};

bool Ended(const Transfer& transfer) {
  return Until([&] { return transfer.state() != Transfer::kPending; });
}

TEST(TransferEngine, ThreadsWriteReadAndNotifyAtOnceBothWays) {
  constexpr uint64_t kBytes = 1 << 18;
  constexpr int kRounds = 20;
  Group group(2);
  auto work = [&](size_t here, Direction direction, std::atomic<int>* wrong) {
    Engine& own = *group.engines[here];
    Engine& other = *group.engines[1 - here];
    std::vector<char> mine(kBytes);
    std::vector<char> theirs(kBytes);
    uint64_t my_key = 0;
    uint64_t their_key = 0;
    EngineId peer = group.Connect(here, 1 - here);
    auto& source = direction == Direction::kWrite ? mine : theirs;
    auto& sink = direction == Direction::kWrite ? theirs : mine;
    for (int round = 0; round < kRounds; ++round) {
      std::iota(source.begin(), source.end(), static_cast<char>(round));
      EXPECT_TRUE(own.Register(mine.data(), kBytes, &my_key).ok());
      EXPECT_TRUE(other.Register(theirs.data(), kBytes, &their_key).ok());
      std::vector<Range> ranges;
      for (uint64_t at = 0; at < kBytes; at += 5000) {
        uint64_t bytes = std::min<uint64_t>(5000, kBytes - at);
        ranges.push_back({my_key, at, their_key, at, bytes});
        if (ranges.size() > 1 && round % 2 == 0) std::swap(ranges.front(), ranges.back());
      }
      std::shared_ptr<Transfer> transfer;
      std::string text = "done";
      EXPECT_EQ(own.Begin(peer, direction, ranges, &text, &transfer).message(), "");
      EXPECT_TRUE(Ended(*transfer));
      // The other end's transport may still hold what was read of it.
      EXPECT_TRUE(own.Deregister(my_key, 10).ok());
      EXPECT_TRUE(other.Deregister(their_key, 10).ok());
      if (transfer->state() != Transfer::kDone || source != sink) ++*wrong;
    }
  };
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t here : {0, 1}) {
    for (Direction direction : {Direction::kWrite, Direction::kRead})
      threads.emplace_back(work, here, direction, &wrong);
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (const auto& engine : group.engines) {
    size_t count = 0;
    EXPECT_TRUE(Until([&] { return (count += engine->TakeNotifications().size()) == 2 * kRounds; })) << count;
  }
}

// While the threads of NICs look for the next one instead of sleeping, both ways at once.
TEST(TransferEngine, SmallOnesArriveOneAfterAnotherAtThreadsThatDoNotSleep) {
  constexpr int kRounds = 300;
  constexpr uint64_t kBytes = 1000;
  Group group(2, 1'000'000);
  auto work = [&](size_t here, int* wrong) {
    Engine& own = *group.engines[here];
    EngineId peer = group.Connect(here, 1 - here);
    std::vector<char> mine(kBytes);
    std::vector<char> theirs(kBytes);
    uint64_t my_key = 0;
    uint64_t their_key = 0;
    EXPECT_TRUE(own.Register(mine.data(), kBytes, &my_key).ok());
    EXPECT_TRUE(group.engines[1 - here]->Register(theirs.data(), kBytes, &their_key).ok());
    for (int round = 0; round < kRounds; ++round) {
      bool writes = round % 2 == 0;
      std::iota(mine.begin(), mine.end(), static_cast<char>(writes ? round : round + 1));
      std::shared_ptr<Transfer> transfer;
      Direction direction = writes ? Direction::kWrite : Direction::kRead;
      EXPECT_TRUE(own.Begin(peer, direction, {{my_key, 0, their_key, 0, kBytes}}, nullptr, &transfer).ok());
      EXPECT_TRUE(Until([&] { return own.Look(*transfer) != Transfer::kPending; }));
      if (transfer->state() != Transfer::kDone || mine != theirs) ++*wrong;
    }
    EXPECT_TRUE(own.Deregister(my_key, 10).ok());
    EXPECT_TRUE(group.engines[1 - here]->Deregister(their_key, 10).ok());
  };
  int wrong[2] = {};
  std::thread other(work, 1, &wrong[1]);
  work(0, &wrong[0]);
  other.join();
  EXPECT_EQ(wrong[0] + wrong[1], 0);
}

// Around each size at which a transfer is cut in another way, and with more ranges than a message holds: every byte is
// in its place, and a notification of any length comes once, after them.
TEST(TransferEngine, EverySizeArrivesBeforeItsNotification) {
  Group group(2);
  Engine& own = *group.engines[0];
  EngineId peer = group.Connect(0, 1);
  std::mt19937_64 random(TestSeed());
  std::vector<uint64_t> sizes;
  for (uint64_t edge : {uint64_t{1}, uint64_t{64} << 10, uint64_t{256} << 10, uint64_t{4} << 20, uint64_t{8} << 20}) {
    for (uint64_t size : {edge - 1, edge, edge + 1}) sizes.push_back(size);
  }
  for (uint64_t size : sizes) {
    for (uint64_t piece : {std::max<uint64_t>(size, 1), std::max<uint64_t>(size / 700, 1)}) {
      for (Direction direction : {Direction::kWrite, Direction::kRead}) {
        SCOPED_TRACE(std::to_string(size) + " in pieces of " + std::to_string(piece));
        bool writes = direction == Direction::kWrite;
        std::vector<char> mine(2 * size + 2);
        std::vector<char> theirs(2 * size + 2);
        auto& source = writes ? mine : theirs;
        auto& sink = writes ? theirs : mine;
        for (size_t at = 0; at < source.size(); at += sizeof(uint64_t)) {
          uint64_t eight = random();
          std::memcpy(source.data() + at, &eight, std::min(sizeof eight, source.size() - at));
        }
        std::vector<char> wanted(sink.size());
        uint64_t my_key = 0;
        uint64_t their_key = 0;
        ASSERT_TRUE(own.Register(mine.data(), mine.size(), &my_key).ok());
        ASSERT_TRUE(group.engines[1]->Register(theirs.data(), theirs.size(), &their_key).ok());
        std::vector<Range> ranges;
        for (uint64_t at = 0; at < size; at += piece) {
          uint64_t bytes = std::min(piece, size - at);
          uint64_t from = 2 * at + 1;  // with gaps, so that the pieces stay apart
          ranges.push_back({my_key, from, their_key, from, bytes});
          std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                      wanted.begin() + static_cast<std::ptrdiff_t>(from));
        }
        std::string text(std::vector<size_t>{0, 5, kMessageText, kMessageText + 1}[random() % 4], 'n');
        std::shared_ptr<Transfer> transfer;
        ASSERT_EQ(own.Begin(peer, direction, ranges, &text, &transfer).message(), "");
        std::deque<Notification> told;
        ASSERT_TRUE(Until([&] { return !(told = group.engines[1]->TakeNotifications()).empty(); }));
        EXPECT_EQ(sink, wanted);
        ASSERT_EQ(told.size(), 1U);
        EXPECT_EQ(told[0].text, text);
        ASSERT_TRUE(Ended(*transfer));
        EXPECT_EQ(transfer->state(), Transfer::kDone) << transfer->status().message();
        ASSERT_TRUE(own.Deregister(my_key, 10).ok());
        ASSERT_TRUE(group.engines[1]->Deregister(their_key, 10).ok());
        EXPECT_TRUE(group.engines[1]->TakeNotifications().empty());
      }
    }
  }
}

// A peer that is written by hand: it says what it is told to.
class Handmade {
 public:
  // Meets `engine`, which then knows it as `id()`.
  Handmade(Engine& engine, int host) {
    EXPECT_TRUE(Net::Create(PatientParams(2), LoopbackNics(host, 2), &net_).ok());
    EXPECT_TRUE(net_->Listen(&listener_).ok());
    own_.name = "by hand";
    std::mt19937_64 random(TestSeed() + static_cast<uint64_t>(host));
    for (uint8_t& byte : own_.id) byte = static_cast<uint8_t>(random());
    own_.outer = listener_->handle();
    Address theirs;
    EXPECT_TRUE(Decode(engine.address(), &theirs).ok());
    senders_.resize(static_cast<size_t>(theirs.outer.stripes) + 1);
    for (size_t role = 0; role < senders_.size(); ++role) {
      EXPECT_TRUE(net_->Connect(theirs.outer, &senders_[role]).ok());
      Message hello;
      hello.code = static_cast<uint8_t>(role);
      hello.operation = 4711;
      hello.text = Encode(own_);
      hello.pieces.push_back({});
      Say(role, Encode(hello));
    }
    bool ready = false;
    EXPECT_TRUE(Until([&] {
      while (auto comm = listener_->Accept()) receivers_.push_back(std::move(comm));
      return engine.Ready(own_.id, &ready).ok() && ready;
    }));
  }
  ~Handmade() { net_->Shutdown(); }
  const EngineId& id() const { return own_.id; }
  // False when it is not taken any more.
  bool Say(size_t role, std::string bytes) {
    said_.push_back(std::move(bytes));
    Request* request = nullptr;
    return senders_[role]->Isend(said_.back().data(), said_.back().size(), &request).ok();
  }

 private:
  std::shared_ptr<Net> net_;
  std::shared_ptr<Listener> listener_;
  Address own_;
  std::vector<std::shared_ptr<SendComm>> senders_;
  std::vector<std::shared_ptr<RecvComm>> receivers_;
  std::deque<std::string> said_;  // until the end
};

bool IsLost(Engine& engine, const EngineId& id) {
  bool ready = false;
  return Until([&] { return !engine.Ready(id, &ready).ok(); });
}

// A read of eight bytes from a peer that is written by hand, which has sent `data` in its last reply.
struct ReadOfEight {
  explicit ReadOfEight(const std::string& data) {
    uint64_t key = 0;
    EXPECT_TRUE(engine.Register(memory.data(), memory.size(), &key).ok());
    EXPECT_TRUE(engine.Begin(hand.id(), Direction::kRead, {{key, 0, 7, 0, 8}}, nullptr, &transfer).ok());
    reply.kind = Kind::kReply;
    reply.operation = 1;
    reply.pieces = {{0, 0, data.size()}};
    reply.data = data;
    reply.last = true;
    hand.Say(0, Encode(reply));
  }

  std::vector<char> memory = std::vector<char>(16, 1);
  Group group{1};
  Engine& engine = *group.engines[0];
  Handmade hand{engine, 20};
  std::shared_ptr<Transfer> transfer;
  Message reply;
};

// The last reply ends a read: what still comes about it ends the connection, and changes nothing.
TEST(TransferEngine, AReadEndsWithItsLastReply) {
  for (Kind kind : {Kind::kReply, Kind::kDone}) {
    ReadOfEight read("abcdefgh");
    ASSERT_TRUE(Ended(*read.transfer));
    EXPECT_EQ(read.transfer->state(), Transfer::kDone) << read.transfer->status().message();
    EXPECT_EQ(std::string(read.memory.data(), 8), "abcdefgh");
    read.reply.kind = kind;
    read.reply.pieces = {};
    read.reply.data = {};
    read.hand.Say(0, Encode(read.reply));
    EXPECT_TRUE(IsLost(read.engine, read.hand.id()));
    EXPECT_EQ(read.transfer->state(), Transfer::kDone);
  }
}

// A last reply that leaves bytes out is no read that ended well.
TEST(TransferEngine, AReadThatEndsTooSoonFails) {
  ReadOfEight read("abcdefg");
  ASSERT_TRUE(Ended(*read.transfer));
  EXPECT_EQ(read.transfer->state(), Transfer::kFailed);
  EXPECT_NE(read.transfer->status().message().find("before all of it was sent"), std::string::npos);
}

// Whatever a peer says, memory that it was not told of stays as it is, and other peers' transfers go on.
TEST(TransferEngine, APeerMaySayAnything) {
  std::mt19937_64 random(TestSeed());
  Group group(2);
  Engine& engine = *group.engines[0];
  EngineId good = group.Connect(0, 1);
  std::vector<char> memory(1 << 16, 1);
  std::vector<char> open(1 << 16, 1);
  std::vector<char> far(1 << 16, 3);
  uint64_t key = 0;
  uint64_t open_key = 0;
  uint64_t far_key = 0;
  ASSERT_TRUE(engine.Register(memory.data(), memory.size(), &key).ok());
  ASSERT_TRUE(engine.Register(open.data(), open.size(), &open_key).ok());
  ASSERT_TRUE(group.engines[1]->Register(far.data(), far.size(), &far_key).ok());
  for (int round = 0; round < 40; ++round) {
    Handmade hand(engine, 20 + round);
    std::shared_ptr<Transfer> read;
    (void)engine.Begin(hand.id(), Direction::kRead, {{open_key, 0, 7, 0, 3000}}, nullptr, &read);
    bool taken = true;
    for (int i = 0; i < 30 && taken; ++i) {
      Message message;
      message.kind = static_cast<Kind>(1 + random() % static_cast<uint64_t>(Kind::kDone));
      message.last = random() % 2 == 0;
      message.notifies = message.kind == Kind::kWrite && message.last && random() % 2 == 0;
      message.code = static_cast<uint8_t>(random() % 4);
      message.operation = random() % 5 + static_cast<uint64_t>(round);
      message.text = std::string(random() % 30, 'x');
      uint64_t bytes = 0;
      for (uint64_t pieces = random() % 4; pieces > 0; --pieces) {
        uint64_t keys[] = {open_key, 0, 1, random()};
        uint64_t offsets[] = {0, open.size() - 1, bytes, random()};
        message.pieces.push_back({keys[random() % 4], offsets[random() % 4], random() % 4000});
        bytes += message.pieces.back().bytes;
      }
      std::string data(random() % 2 == 0 ? bytes : 0, 'w');
      message.data = data;
      std::string encoded = Encode(message);
      if (random() % 4 == 0) encoded[random() % encoded.size()] = static_cast<char>(random());
      taken = hand.Say(random() % 4 == 0 ? 1 : 0, std::move(encoded));
    }
    std::shared_ptr<Transfer> transfer;
    ASSERT_TRUE(engine.Begin(good, Direction::kWrite, {{key, 0, far_key, 0, far.size()}}, nullptr, &transfer).ok());
    ASSERT_TRUE(Ended(*transfer));
    ASSERT_EQ(transfer->state(), Transfer::kDone) << transfer->status().message();
    engine.Disconnect(hand.id());
    if (read != nullptr) {
      EXPECT_TRUE(Ended(*read));
    }
  }
  EXPECT_EQ(memory, std::vector<char>(memory.size(), 1));
  EXPECT_EQ(far, memory);
  (void)engine.TakeNotifications();
}

// Whatever the moment is at which a transfer is given up, or its memory or an engine goes away: it ends, and then
// nobody touches the memory, here or there.
TEST(TransferEngine, MemoryIsQuietAfterEveryEnd) {
  constexpr uint64_t kBytes = 48 << 20;  // more than is on its way at a time
  std::mt19937_64 random(TestSeed());
  std::vector<char> mine(kBytes);
  std::vector<char> theirs(kBytes);
  for (int round = 0; round < 16; ++round) {
    Group group(2);
    uint64_t my_key = 0;
    uint64_t their_key = 0;
    ASSERT_TRUE(group.engines[0]->Register(mine.data(), kBytes, &my_key).ok());
    ASSERT_TRUE(group.engines[1]->Register(theirs.data(), kBytes, &their_key).ok());
    EngineId peer = group.Connect(0, 1);
    Direction direction = round % 2 == 0 ? Direction::kWrite : Direction::kRead;
    auto& sink = direction == Direction::kWrite ? theirs : mine;
    std::shared_ptr<Transfer> transfer;
    ASSERT_TRUE(group.engines[0]->Begin(peer, direction, {{my_key, 0, their_key, 0, kBytes}}, nullptr, &transfer).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    switch (round / 2 % 4) {
      case 0:
        group.engines[0]->Cancel(*transfer);
        break;
      case 1:
        EXPECT_TRUE(group.engines[0]->Deregister(my_key, 10).ok());
        break;
      case 2:
        EXPECT_TRUE(group.engines[1]->Deregister(their_key, 10).ok());
        break;
      default:
        group.engines[static_cast<size_t>(round) / 8 % 2]->Close();
    }
    ASSERT_TRUE(Ended(*transfer)) << round;
    // Where it failed, the peer may not have heard yet; its own program deregisters before it uses the memory. A
    // refusal says that this was done above.
    (void)group.engines[0]->Deregister(my_key, 10);
    (void)group.engines[1]->Deregister(their_key, 10);
    std::memset(sink.data(), round + 1, kBytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // The first byte is right, and each is like the one before.
    ASSERT_EQ(sink.front(), round + 1);
    ASSERT_EQ(std::memcmp(sink.data(), sink.data() + 1, kBytes - 1), 0);
  }
}

// Transfers go over RDMA where it is allowed, both ways, and go on when a port of it dies in the middle.
TEST(TransferEngine, RidesRdmaAndSurvivesAPort) {
  constexpr uint64_t kBytes = 24 << 20;
  Fabric fabric;
  Params params = PatientParams(2);
  params.transport = "auto";
  std::vector<std::shared_ptr<Engine>> engines(2);
  for (int i = 0; i < 2; ++i) {
    std::string name = "engine " + std::to_string(i);
    ASSERT_TRUE(Engine::Create(name, params, LoopbackNics(10 + i, 2), &engines[static_cast<size_t>(i)], &fabric).ok());
  }
  std::vector<char> mine(kBytes);
  std::vector<char> theirs(kBytes);
  uint64_t my_key = 0;
  uint64_t their_key = 0;
  ASSERT_TRUE(engines[0]->Register(mine.data(), kBytes, &my_key).ok());
  ASSERT_TRUE(engines[1]->Register(theirs.data(), kBytes, &their_key).ok());
  EngineId peer{};
  ASSERT_TRUE(engines[0]->Connect(engines[1]->address(), &peer).ok());
  auto sent = [&](size_t engine) {
    auto& counters = engines[engine]->net().environment().counters;
    return counters[0].rdma_sent_bytes + counters[1].rdma_sent_bytes;
  };
  for (Direction direction : {Direction::kWrite, Direction::kRead}) {
    size_t from = direction == Direction::kWrite ? 0 : 1;
    auto& source = from == 0 ? mine : theirs;
    auto& sink = from == 0 ? theirs : mine;
    auto run = [&](int round, const std::function<void()>& fault) {
      for (uint64_t i = 0; i < kBytes; ++i)
        source[i] = static_cast<char>(i * 31 + static_cast<uint64_t>(round) + (i >> 13));
      std::fill(sink.begin(), sink.end(), 0);
      std::shared_ptr<Transfer> transfer;
      ASSERT_TRUE(engines[0]->Begin(peer, direction, {{my_key, 0, their_key, 0, kBytes}}, nullptr, &transfer).ok());
      fault();
      ASSERT_TRUE(Ended(*transfer));
      EXPECT_EQ(transfer->state(), Transfer::kDone) << transfer->status().message();
      EXPECT_EQ(std::memcmp(source.data(), sink.data(), kBytes), 0);
    };
    // It begins by TCP and goes over after tests, so the first one may have gone without.
    ASSERT_TRUE(Until([&] {
      run(1, [] {});
      return sent(from) > kBytes;
    }));
    uint64_t before = sent(from);
    run(2, [&] {
      (void)Until([&] { return sent(from) > before; });
      fabric.FailPort(engines[from]->net().environment().nics[1].address);
    });
    EXPECT_TRUE(Until([&] { return CountEvents(engines[from]->net(), "path_down") > 0; }));
  }
  for (const auto& engine : engines) engine->Close();
  engines.clear();
  EXPECT_EQ(fabric.queues(), 0u) << "queue pairs are left";
}

TEST(TransferEngine, MemoryThatIsNotRegisteredStaysAsItIs) {
  Group group(2);
  std::vector<char> mine(1000, 1);
  std::vector<char> theirs(1000, 2);
  uint64_t my_key = 0;
  uint64_t their_key = 0;
  ASSERT_TRUE(group.engines[0]->Register(mine.data(), 1000, &my_key).ok());
  ASSERT_TRUE(group.engines[1]->Register(theirs.data(), 500, &their_key).ok());
  EngineId peer = group.Connect(0, 1);
  for (Direction direction : {Direction::kWrite, Direction::kRead}) {
    for (uint64_t offset : {uint64_t{401}, uint64_t{500}, UINT64_MAX, UINT64_MAX - 99}) {
      std::shared_ptr<Transfer> transfer;
      Range range{my_key, 0, their_key, offset, 100};
      ASSERT_TRUE(group.engines[0]->Begin(peer, direction, {range}, nullptr, &transfer).ok());
      ASSERT_TRUE(Ended(*transfer));
      EXPECT_EQ(transfer->state(), Transfer::kFailed);
      EXPECT_NE(transfer->status().message().find("not within the registered 500"), std::string::npos);
    }
  }
  EXPECT_EQ(theirs, std::vector<char>(1000, 2));
  EXPECT_EQ(mine, std::vector<char>(1000, 1));
}

// A refusal of a read whose second message is still on its way ends the read and not the connection.
TEST(TransferEngine, ARefusedReadOfManyRangesLeavesTheConnectionWell) {
  Group group(2);
  std::vector<char> mine(20000, 1);
  std::vector<char> theirs(20000, 2);
  uint64_t my_key = 0;
  uint64_t their_key = 0;
  uint64_t gone = 0;
  ASSERT_TRUE(group.engines[0]->Register(mine.data(), mine.size(), &my_key).ok());
  ASSERT_TRUE(group.engines[1]->Register(theirs.data(), theirs.size(), &their_key).ok());
  ASSERT_TRUE(group.engines[1]->Register(theirs.data(), theirs.size(), &gone).ok());
  ASSERT_TRUE(group.engines[1]->Deregister(gone, 10).ok());
  EngineId peer = group.Connect(0, 1);
  for (uint64_t count : {600, 600, 600, 20000}) {
    std::vector<Range> ranges;
    for (uint64_t i = count; i > 0; --i) ranges.push_back({my_key, i - 1, gone, i - 1, 1});
    std::shared_ptr<Transfer> refused;
    ASSERT_EQ(group.engines[0]->Begin(peer, Direction::kRead, ranges, nullptr, &refused).message(), "");
    ASSERT_TRUE(Ended(*refused));
    EXPECT_NE(refused->status().message().find("not registered"), std::string::npos) << refused->status().message();
    for (Range& range : ranges) range.remote_key = their_key;
    std::shared_ptr<Transfer> good;
    std::fill(mine.begin(), mine.end(), 1);
    ASSERT_EQ(group.engines[0]->Begin(peer, Direction::kRead, ranges, nullptr, &good).message(), "");
    ASSERT_TRUE(Ended(*good));
    EXPECT_EQ(good->state(), Transfer::kDone) << good->status().message();
    EXPECT_EQ(std::count(mine.begin(), mine.end(), 2), static_cast<std::ptrdiff_t>(count));
  }
}

// What has arrived has been done, though the peer's program leaves as soon as it sees it.
TEST(TransferEngine, AWriteIsDoneWhoseTargetLeavesAtOnce) {
  for (int round = 0; round < 20; ++round) {
    Group group(2);
    std::vector<char> mine(5000, 1);
    std::vector<char> theirs(5000, 2);
    uint64_t my_key = 0;
    uint64_t their_key = 0;
    ASSERT_TRUE(group.engines[0]->Register(mine.data(), mine.size(), &my_key).ok());
    ASSERT_TRUE(group.engines[1]->Register(theirs.data(), theirs.size(), &their_key).ok());
    EngineId peer = group.Connect(0, 1);
    bool ready = false;
    ASSERT_TRUE(Until([&] { return group.engines[0]->Ready(peer, &ready).ok() && ready; }));
    std::string text = "all is here";
    std::vector<std::shared_ptr<Transfer>> transfers(100);  // more than the peer may say without waiting
    for (auto& transfer : transfers) {
      Range range{my_key, 0, their_key, 0, mine.size()};
      ASSERT_EQ(group.engines[0]->Begin(peer, Direction::kWrite, {range}, &text, &transfer).message(), "");
    }
    size_t count = 0;
    ASSERT_TRUE(Until([&] { return (count += group.engines[1]->TakeNotifications().size()) == transfers.size(); }));
    EXPECT_EQ(group.engines[1]->Close(60), 0U);
    for (const auto& transfer : transfers) {
      ASSERT_TRUE(Ended(*transfer));
      ASSERT_EQ(transfer->state(), Transfer::kDone) << round << ": " << transfer->status().message();
    }
    EXPECT_TRUE(Until([&] { return !group.engines[0]->Ready(peer, &ready).ok(); }));
  }
}

// A peer takes so many at a time; the rest waits here, and can be cancelled.
TEST(TransferEngine, MoreAreBegunAtOnceThanAPeerTakes) {
  constexpr uint64_t kCount = 10000;
  Group group(2);
  std::vector<char> mine(kCount, 1);
  std::vector<char> theirs(kCount, 2);
  uint64_t my_key = 0;
  uint64_t their_key = 0;
  ASSERT_TRUE(group.engines[0]->Register(mine.data(), kCount, &my_key).ok());
  ASSERT_TRUE(group.engines[1]->Register(theirs.data(), kCount, &their_key).ok());
  EngineId peer = group.Connect(0, 1);
  std::vector<std::shared_ptr<Transfer>> transfers(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    Range range{my_key, i, their_key, i, 1};
    Direction direction = i % 2 == 0 ? Direction::kWrite : Direction::kRead;
    ASSERT_EQ(group.engines[0]->Begin(peer, direction, {range}, nullptr, &transfers[i]).message(), "");
  }
  group.engines[0]->Cancel(*transfers.back());
  for (const auto& transfer : transfers) {
    ASSERT_TRUE(Ended(*transfer));
    bool may_be_cancelled = transfer == transfers.back() && transfer->state() == Transfer::kCancelled;
    ASSERT_TRUE(transfer->state() == Transfer::kDone || may_be_cancelled) << transfer->status().message();
  }
  for (uint64_t i = 0; i + 1 < kCount; ++i) ASSERT_EQ(mine[i], theirs[i]) << i;
  std::string text(kNotificationBytes, 'x');
  EXPECT_TRUE(group.engines[0]->Notify(peer, text).ok());
  EXPECT_TRUE(Until([&] { return group.engines[1]->TakeNotifications().size() == 1; }));
  EXPECT_EQ(group.engines[0]->Notify(peer, text + "x").code(), Code::kInvalidArgument);
}

TEST(TransferEngine, AReadOfTooManyRangesIsRefused) {
  Group group(2);
  char byte = 1;
  uint64_t key = 0;
  ASSERT_TRUE(group.engines[0]->Register(&byte, 1, &key).ok());
  EngineId peer = group.Connect(0, 1);
  std::vector<Range> ranges((1 << 20) + 1, Range{key, 0, key, 0, 1});
  std::shared_ptr<Transfer> transfer;
  Status status = group.engines[0]->Begin(peer, Direction::kRead, ranges, nullptr, &transfer);
  EXPECT_EQ(status.message(), "a read has at most 1048576 ranges; make several");
}

// What nobody asks for does not fill the memory.
TEST(TransferEngine, NotificationsThatNobodyTakesEndTheConnection) {
  Group group(2);
  EngineId peer = group.Connect(0, 1);
  std::string text(kNotificationBytes, 'x');
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(group.engines[0]->Notify(peer, text).ok());
  bool ready = true;
  EXPECT_TRUE(Until([&] { return !group.engines[0]->Ready(peer, &ready).ok(); }));
  EXPECT_EQ(group.engines[1]->TakeNotifications().size(), 63U);
}

// However both have connected and disconnected, it ends: in one session at most.
TEST(TransferEngine, TwoThatConnectAnewAtOnceComeToRest) {
  Group group(2);
  std::mt19937_64 random(TestSeed());
  char mine = 1;
  char theirs = 2;
  uint64_t my_key = 0;
  uint64_t their_key = 0;
  ASSERT_TRUE(group.engines[0]->Register(&mine, 1, &my_key).ok());
  ASSERT_TRUE(group.engines[1]->Register(&theirs, 1, &their_key).ok());
  for (int round = 0; round < 4; ++round) {
    std::vector<std::thread> threads;
    for (size_t here : {0, 1}) {
      threads.emplace_back([&group, here, seed = random()] {
        std::mt19937_64 pauses(seed);
        for (int i = 0; i < 5; ++i) {
          EngineId id = group.Connect(here, 1 - here);
          std::this_thread::sleep_for(std::chrono::microseconds(pauses() % 5000));
          group.engines[here]->Disconnect(id);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EngineId peer = group.Connect(0, 1);
    bool ready = false;
    ASSERT_TRUE(Until([&] { return group.engines[0]->Ready(peer, &ready).ok() && ready; }, 10)) << round;
    std::shared_ptr<Transfer> transfer;
    Range range{my_key, 0, their_key, 0, 1};
    ASSERT_EQ(group.engines[0]->Begin(peer, Direction::kWrite, {range}, nullptr, &transfer).message(), "") << round;
    ASSERT_TRUE(Ended(*transfer));
    ASSERT_EQ(transfer->state(), Transfer::kDone) << round << ": " << transfer->status().message();
    group.engines[0]->Disconnect(peer);
  }
}

}  // namespace
}  // namespace r2ccl::transfer
