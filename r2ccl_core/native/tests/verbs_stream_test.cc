// A VerbsStream step by step: on streams and an event loop that do what the test says, queue pairs in memory, and a
// device whose library is the test's.
#include "wire/verbs/verbs_stream.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "memory_queue.h"
#include "wire/verbs/device.h"

namespace r2ccl {
namespace {

// Calls nothing by itself.
class Loop final : public EventLoop {
 public:
  uint64_t Add(int fd, uint32_t, int tag, std::shared_ptr<Pollable> target) override {
    watched.push_back({++last_id, fd, tag, std::move(target)});
    return last_id;
  }
  void Modify(uint64_t, uint32_t) override {}
  void Remove(uint64_t id) override {
    std::erase_if(watched, [id](const Watched& one) { return one.id == id; });
  }
  void Kick(std::shared_ptr<Kickable> target) override { kicked.push_back(std::move(target)); }

  // Everything that is due, once.
  void Run() {
    for (const auto& target : std::exchange(kicked, {})) target->OnKick();
    for (const Watched& one : std::vector<Watched>(watched)) one.target->OnEvents(one.id, one.tag, EPOLLIN);
  }

  struct Watched {
    uint64_t id;
    int fd;
    int tag;
    std::shared_ptr<Pollable> target;
  };
  std::vector<Watched> watched;
  std::vector<std::shared_ptr<Kickable>> kicked;
  uint64_t last_id = 0;
};

// Stands still by itself.
struct SetClock final : Clock {
  int64_t Now() const override { return now_ns; }
  int64_t now_ns = 1000 * kMillisecond;
};

// The connection: keeps what it is told.
class Owner final : public StreamOwner {
 public:
  Mutex& stream_mutex() override { return mutex_; }
  bool OnWake() override { return true; }
  void OnConnected(int) override {}
  void OnNotConnected(int, const std::string& reason, bool) override { lost = reason; }
  void OnHeard(int) override {}
  Status OnFrameBegins(int, const Frame& frame, char** body) override {
    began.push_back(frame.type);
    if (frame.type == FrameType::kData && frame.body_bytes <= room) *body = place;
    return {};
  }
  Status OnFrameEnds(int, const std::vector<uint8_t>&) override {
    ++ended;
    return {};
  }
  void OnReadDone(int) override {}
  void OnRoom() override {}
  void OnStreamLost(int, const std::string& reason) override { lost = reason; }
  void OnThrow(const std::string&) override {}
  bool ExpectsSmall() const override { return false; }

  char* place = nullptr;   // of the next body of DATA
  size_t room = SIZE_MAX;  // there
  std::vector<FrameType> began;
  size_t ended = 0;
  std::string lost;

 private:
  Mutex mutex_;
};

// TCP: what is said stays here until the test carries it over.
class Held final : public FirstStream {
 public:
  void AwaitConnection(std::shared_ptr<StreamOwner> owner) override { SetOwner(std::move(owner)); }
  void SetOwner(std::shared_ptr<StreamOwner> owner) override {
    owner_ = std::move(owner);
    reader_ = std::make_unique<FrameReader>(owner_.get(), 0, &traffic_);
  }
  void KeepAlive() override { ++kept_alive; }
  void Start() override {}
  void Say(const std::string& frames) override { said += frames; }
  size_t unsaid_bytes() const override { return 0; }
  void Send(const Frame&, const char*) override {}
  bool sending() const override { return is_sending; }
  void KeepBody() override {}
  uint64_t end() const override { return 0; }
  void DropBody() override {}
  bool has_room() const override { return true; }
  bool Flush() override { return true; }
  void Poll() override {}
  void SetPolled(bool) override {}
  bool polled() const override { return false; }
  void Release(int64_t, int64_t) override {}
  bool ReadProgress(Progress*) override { return true; }
  void Cut() override { owner_.reset(); }
  void HangUp(const std::string& farewell) override {
    said += farewell;
    owner_.reset();
  }

  // Comes in by TCP.
  Status Take(const std::string& bytes) {
    MutexLock lock(owner_->stream_mutex());
    return reader_->Feed(bytes.data(), bytes.size());
  }

  std::string said;
  int kept_alive = 0;
  bool is_sending = false;

 private:
  NicTraffic traffic_;
  std::shared_ptr<StreamOwner> owner_;
  std::unique_ptr<FrameReader> reader_;
};

// One end.
struct End {
  End(Fabric* fabric, const char* address, bool dialled, bool strict) {
    inet_pton(AF_INET, address, &nic.address);
    shared.maker = fabric;
    shared.log = &log;
    shared.clock = std::make_shared<Clock>();
    shared.strict = strict;
    stream = std::make_shared<VerbsStream>(&shared, &loop, owner, 0, nic, &traffic, in_addr{1}, dialled);
    stream->Begin(tcp);
  }
  ~End() {
    if (stream != nullptr) stream->Cut();
  }

  Nic nic{"eth0"};
  EventLog log;
  VerbsShared shared;
  Loop loop;
  NicTraffic traffic;
  std::shared_ptr<Owner> owner = std::make_shared<Owner>();
  std::shared_ptr<Held> tcp = std::make_shared<Held>();
  std::shared_ptr<VerbsStream> stream;
};

struct TwoEnds {
  explicit TwoEnds(bool strict = false)
      : dialler(&fabric, "10.0.0.1", true, strict), acceptor(&fabric, "10.0.0.2", false, strict) {
    acceptor.stream->Start();
  }
  static Status Carry(End& from, End& to) { return to.tcp->Take(std::exchange(from.tcp->said, "")); }

  // Until the test messages are in the acceptor's slots.
  void Offer() {
    ASSERT_TRUE(dialler.tcp->Take(EncodeHelloAck(0, 1, 0, 0, kTakesRdma)).ok());
    ASSERT_TRUE(Carry(dialler, acceptor).ok());
    ASSERT_TRUE(Carry(acceptor, dialler).ok());
  }
  void GoOver() {
    Offer();
    acceptor.loop.Run();
    dialler.loop.Run();
    ASSERT_TRUE(Carry(dialler, acceptor).ok());
    ASSERT_TRUE(Carry(acceptor, dialler).ok());
    ASSERT_EQ(dialler.traffic.rdma_streams + acceptor.traffic.rdma_streams, 2);
  }

  Fabric fabric;
  End dialler, acceptor;
};

// A sender whose bytes were all acknowledged, and which has no slot, would else never hear that the other host is gone.
TEST(VerbsStream, TcpAsksForThePeerAsSoonAsEitherDirectionHasGoneOver) {
  TwoEnds ends;
  ends.Offer();
  ends.acceptor.loop.Run();
  EXPECT_EQ(ends.dialler.tcp->kept_alive + ends.acceptor.tcp->kept_alive, 0);
  ends.dialler.loop.Run();
  EXPECT_EQ(ends.dialler.traffic.rdma_streams, 1);
  EXPECT_EQ(ends.dialler.tcp->kept_alive, 1) << "what it sends has gone over";
  ends.acceptor.tcp->is_sending = true;  // so that its own direction stays
  ASSERT_TRUE(ends.Carry(ends.dialler, ends.acceptor).ok());
  EXPECT_EQ(ends.acceptor.traffic.rdma_streams, 0);
  EXPECT_EQ(ends.acceptor.tcp->kept_alive, 1) << "what it receives has";
}

// The dialler will say nothing more by TCP: to go on as if nothing had been said would wait for ever.
TEST(VerbsStream, ASwitchToAQueueThatIsLostEndsThePath) {
  TwoEnds ends;
  ends.fabric.tells_ends = false;
  ends.Offer();
  ends.acceptor.loop.Run();
  ends.fabric.FailPort(ends.acceptor.nic.address);
  EXPECT_EQ(ends.acceptor.owner->lost, "") << "until then it was an attempt";
  ends.dialler.loop.Run();
  Status status = ends.Carry(ends.dialler, ends.acceptor);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(status.message(), "RDMA: lost before the switch to it came");
}

TEST(VerbsStream, WhatIsSaidOfAnAttemptThatIsOverIsIgnored) {
  TwoEnds ends;
  ends.Offer();
  ends.fabric.FailPort(ends.acceptor.nic.address);
  EXPECT_TRUE(ends.acceptor.tcp->Take(EncodeRdma(RdmaStep::kWithdraw, 1)).ok());
  EXPECT_EQ(ends.acceptor.owner->lost, "");
}

// Where TCP is to carry nothing, frames wait for the switch; one may be in the middle of coming then.
TEST(VerbsStream, AFrameInWhoseMiddleItGoesOverIsGivenBehindThoseThatWereHeld) {
  TwoEnds ends(true);
  ends.Offer();
  ends.acceptor.loop.Run();
  std::string frame = EncodeAck(3, {{1, 0, 2}});
  ASSERT_TRUE(ends.dialler.tcp->Take(EncodeControl(FrameType::kPing)).ok());
  ASSERT_TRUE(ends.dialler.tcp->Take(frame.substr(0, kHeaderBytes + 4)).ok());
  EXPECT_TRUE(ends.dialler.owner->began.empty());
  ends.dialler.loop.Run();
  ASSERT_EQ(ends.dialler.traffic.rdma_streams, 1);
  ASSERT_TRUE(ends.dialler.tcp->Take(frame.substr(kHeaderBytes + 4)).ok());
  EXPECT_EQ(ends.dialler.owner->began,
            (std::vector<FrameType>{FrameType::kHelloAck, FrameType::kPing, FrameType::kAck}));
  EXPECT_EQ(ends.dialler.owner->ended, 3u);
}

// The peer's program has what was sent, and has told of it by another path before it returns the slots of this one.
TEST(VerbsStream, AnEndWhosePeerHasReturnedNoSlotSaysFarewellByTcp) {
  TwoEnds ends;
  ends.GoOver();
  while (ends.dialler.stream->has_room()) ends.dialler.stream->Say(EncodeControl(FrameType::kPing));
  ends.dialler.stream->HangUp(EncodeClose(0));
  EXPECT_EQ(ends.dialler.tcp->said, EncodeClose(0));
  ASSERT_TRUE(ends.Carry(ends.dialler, ends.acceptor).ok());
  ASSERT_FALSE(ends.acceptor.owner->began.empty());
  EXPECT_EQ(ends.acceptor.owner->began.back(), FrameType::kClose);
  EXPECT_EQ(ends.acceptor.owner->lost, "");
}

// The sending end has used all slots, and no more words come that would show it that it lost some. What was lost, or
// only has not come yet, the ends find out by what both count.
TEST(VerbsStream, WordsThatWereLostWithTheSlotsThatTheyGaveBackAreMissedByCounting) {
  for (bool lost : {false, true}) {
    TwoEnds ends;
    ends.GoOver();
    auto clock = std::make_shared<SetClock>();
    ends.dialler.shared.clock = clock;
    while (ends.dialler.stream->has_room()) ends.dialler.stream->Say(EncodeControl(FrameType::kPing));
    if (lost) {
      ends.fabric.loses_completions_of = ends.dialler.nic.address.s_addr;
      ends.acceptor.loop.Run();
      ends.fabric.loses_completions_of = INADDR_NONE;
    }
    int counts = 0;
    for (int tick = 0; tick < 200 && ends.dialler.owner->lost.empty(); ++tick) {
      clock->now_ns += 5 * kMillisecond;
      Progress progress;
      ASSERT_TRUE(ends.dialler.stream->ReadProgress(&progress));
      counts += ends.dialler.tcp->said.empty() ? 0 : 1;
      ASSERT_TRUE(ends.Carry(ends.dialler, ends.acceptor).ok());
      ASSERT_TRUE(ends.Carry(ends.acceptor, ends.dialler).ok());
    }
    EXPECT_EQ(ends.dialler.owner->lost, lost ? "RDMA: the device lost the completion of a message" : "");
    EXPECT_EQ(counts, lost ? 2 : 3) << "one that was sent just now may still come";
    EXPECT_EQ(ends.acceptor.owner->lost, "");
  }
}

// Who asks has waited for so long that the other end has lost what it does not have.
TEST(VerbsStream, AMessageThatWasLostIsMissedAsSoonAsTheSendingEndCounts) {
  TwoEnds ends;
  ends.GoOver();
  ends.fabric.loses_completions_of = ends.acceptor.nic.address.s_addr;
  ends.dialler.stream->Say(EncodeControl(FrameType::kPing));
  uint64_t sent = 3;  // with the test messages
  std::string count(reinterpret_cast<const char*>(&sent), sizeof sent);
  ASSERT_TRUE(ends.acceptor.tcp->Take(EncodeRdma(RdmaStep::kCount, 1, count)).ok());
  EXPECT_EQ(ends.acceptor.owner->lost, "RDMA: the device lost the completion of a message");
}

// Of two ends that close at once neither hears from the other, and the device's own word is all that they wait for.
TEST(VerbsStream, AFarewellWhoseCompletionTheDeviceLostIsNotWaitedForForEver) {
  TwoEnds ends;
  ends.GoOver();
  auto clock = std::make_shared<SetClock>();
  ends.dialler.shared.clock = clock;
  ends.fabric.largest = 0;  // its queue says nothing more
  ends.dialler.stream->HangUp(EncodeClose(0));
  ends.dialler.loop.Run();
  Farewells& farewells = ends.dialler.shared.farewells;
  farewells.Tick(clock->now_ns += Farewells::kPatienceNs);
  EXPECT_FALSE(farewells.empty()) << "it may still be on its way";
  std::weak_ptr<VerbsStream> stream = std::exchange(ends.dialler.stream, nullptr);
  farewells.Tick(++clock->now_ns);
  EXPECT_TRUE(farewells.empty());
  ends.dialler.loop.Run();
  EXPECT_TRUE(stream.expired());
}

// What TCP says must not take the place of the frame that comes by RDMA.
TEST(VerbsStream, AFarewellInTheMiddleOfAFrameIsALoss) {
  TwoEnds ends;
  ends.GoOver();
  std::vector<char> body(1 << 20);
  Frame frame;
  frame.type = FrameType::kData;
  frame.body_bytes = frame.d = 1 << 20;
  frame.b = frame.d;
  ends.dialler.stream->Send(frame, body.data());
  ASSERT_TRUE(ends.dialler.stream->sending());
  EXPECT_EQ(ends.acceptor.tcp->Take(EncodeClose(0)).code(), Code::kPeerLost);
  EXPECT_EQ(ends.acceptor.owner->began.back(), FrameType::kData);
}

// Zero copy --------------------------------------------------------------------------------------------------

constexpr size_t kBodyBytes = 100'000;  // four writes

// No two of its pages are alike.
std::vector<char> Body() {
  std::vector<char> body(kBodyBytes);
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 7 + i / 4096);
  return body;
}

// A body of DATA that goes from the dialler's memory into the acceptor's.
struct Written : TwoEnds {
  explicit Written(bool registers_send = true, bool registers_receive = true) {
    dialler.shared.write_bytes = acceptor.shared.write_bytes = 4096;
    if (registers_send) fabric.AddMemory(from.data(), from.size());
    if (registers_receive) fabric.AddMemory(to.data(), to.size());
    EXPECT_TRUE(dialler.tcp->Take(EncodeHelloAck(0, 1, 0, 0, acceptor.stream->abilities())).ok());
    Carry(dialler, acceptor).ok();
    Carry(acceptor, dialler).ok();
    acceptor.loop.Run();
    dialler.loop.Run();
    Carry(dialler, acceptor).ok();
    Carry(acceptor, dialler).ok();
    EXPECT_EQ(dialler.traffic.rdma_streams + acceptor.traffic.rdma_streams, 2);
    acceptor.owner->place = to.data();
  }
  void Send() {
    Frame frame;
    frame.type = FrameType::kData;
    frame.body_bytes = kBodyBytes;
    frame.b = frame.d = kBodyBytes;
    dialler.stream->Send(frame, from.data());
  }
  // Until nothing more is due.
  void Run() {
    for (int i = 0; i < 8; ++i) {
      acceptor.loop.Run();
      dialler.loop.Run();
    }
  }
  bool arrived() const { return acceptor.owner->ended == 1 && to == sent; }

  std::vector<char> from = Body();
  std::vector<char> to = std::vector<char>(kBodyBytes, '-');
  const std::vector<char> sent = Body();
};

TEST(VerbsWrite, ABodyGoesFromTheOneMemoryIntoTheOther) {
  Written ends;
  ends.Send();
  EXPECT_TRUE(ends.dialler.stream->sending());
  ends.Run();
  EXPECT_TRUE(ends.arrived());
  EXPECT_FALSE(ends.dialler.stream->sending());
  EXPECT_TRUE(ends.dialler.stream->has_room());
  EXPECT_EQ(ends.dialler.traffic.rdma_written_bytes, kBodyBytes);
  EXPECT_EQ(ends.acceptor.traffic.received_bytes, kBodyBytes);
  Progress progress;
  ASSERT_TRUE(ends.dialler.stream->ReadProgress(&progress));
  EXPECT_EQ(progress.bytes_acked, ends.dialler.stream->end());
}

TEST(VerbsWrite, WithoutRegisteredMemoryAtEitherEndItIsCopied) {
  for (bool sends : {true, false}) {
    Written ends(sends, !sends);
    ends.Send();
    ends.Run();
    EXPECT_TRUE(ends.arrived()) << sends;
    EXPECT_EQ(ends.dialler.traffic.rdma_written_bytes, 0u);
    EXPECT_FALSE(ends.dialler.stream->sending());
  }
}

// A GPU's memory: nothing but its mapping can be touched by the processor, and nothing but its own address is known to
// devices.
struct GpuMemory {
  GpuMemory() : fd(memfd_create("gpu", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd.get(), kBodyBytes), 0);
    device = Map(PROT_NONE);
    data = Map(PROT_READ | PROT_WRITE);
    bus = Map(PROT_READ | PROT_WRITE);
  }
  ~GpuMemory() {
    for (char* one : {device, data, bus}) munmap(one, kBodyBytes);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  char* Map(int protection) const {
    return static_cast<char*>(mmap(nullptr, kBodyBytes, protection, MAP_SHARED, fd.get(), 0));
  }
  // `address`: by which devices are told to know it.
  void Register(Fabric* fabric, const char* address) const {
    fabric->AddDevice(reinterpret_cast<uint64_t>(device), bus, kBodyBytes);
    fabric->AddDeviceMemory(data, kBodyBytes, DeviceMemory{reinterpret_cast<uint64_t>(address)});
  }
  const Fd fd;
  char* device;
  char* data;
  char* bus;
};

struct GpuWritten : Written {
  explicit GpuWritten(bool right = true) : Written(false, false) {
    source.Register(&fabric, source.device);
    target.Register(&fabric, right ? target.device : target.data);
    std::copy(sent.begin(), sent.end(), source.data);
    acceptor.owner->place = target.data;
  }
  void Send() {
    Frame frame;
    frame.type = FrameType::kData;
    frame.body_bytes = frame.b = frame.d = kBodyBytes;
    dialler.stream->Send(frame, source.data);
  }
  bool arrived() const { return acceptor.owner->ended == 1 && std::equal(sent.begin(), sent.end(), target.bus); }
  GpuMemory source, target;
};

TEST(VerbsWrite, GpuMemoryIsWrittenByItsOwnAddressAndHasToBeFlushed) {
  GpuWritten ends;
  ends.Send();
  ends.Run();
  EXPECT_TRUE(ends.arrived());
  EXPECT_EQ(ends.dialler.traffic.rdma_written_bytes, kBodyBytes);
  EXPECT_EQ(ends.fabric.noted, 1);
}

// The negative control: no device knows the place at which the processor sees it.
TEST(VerbsWrite, GpuMemoryIsNotWrittenByItsMappingsAddress) {
  GpuWritten ends(false);
  ends.Send();
  ends.Run();
  EXPECT_FALSE(ends.arrived());
}

TEST(VerbsWrite, GpuMemoryThatMayHaveBeenWrittenIsFlushedToo) {
  GpuWritten ends;
  ends.fabric.holds_writes = true;
  ends.Send();
  ends.Run();
  EXPECT_EQ(ends.fabric.noted, 0);
  ends.acceptor.stream->Cut();  // its queue is fenced with the place granted
  EXPECT_EQ(ends.fabric.noted, 1);
}

// By TCP, or the ring, the processor moves it through its mapping, and nothing has to be flushed.
TEST(VerbsWrite, GpuMemoryIsCopiedThroughItsMapping) {
  GpuWritten ends;
  ends.acceptor.shared.write_bytes = 0;
  ends.Send();
  ends.Run();
  EXPECT_TRUE(ends.arrived());
  EXPECT_EQ(ends.dialler.traffic.rdma_written_bytes, 0u);
  EXPECT_EQ(ends.fabric.noted, 0);
}

TEST(VerbsWrite, WhatNobodyWantsDoesNotCome) {
  Written ends;
  ends.acceptor.owner->place = nullptr;
  ends.Send();
  ends.Run();
  EXPECT_EQ(ends.acceptor.owner->ended, 1u);
  EXPECT_EQ(ends.dialler.traffic.rdma_written_bytes, 0u);
  EXPECT_EQ(ends.to, std::vector<char>(kBodyBytes, '-'));
  Progress progress;
  ASSERT_TRUE(ends.dialler.stream->ReadProgress(&progress));
  EXPECT_EQ(progress.bytes_acked, ends.dialler.stream->end());
}

// The late write: it is on its way, and its place is wanted back.
struct Late : Written {
  Late() {
    fabric.holds_writes = true;
    Send();
    Run();
    EXPECT_TRUE(dialler.stream->sending());
    EXPECT_EQ(to, std::vector<char>(kBodyBytes, '-'));
  }
  // The network gives up what it had.
  void Land() {
    fabric.LandWrites();
    Run();
  }
};

TEST(VerbsWrite, ALateWriteLandsWhereItsPlaceIsStillGranted) {
  Late ends;
  ends.Land();
  EXPECT_TRUE(ends.arrived());
}

TEST(VerbsWrite, ALateWriteDoesNotLandOnceItsPlaceWasTakenBack) {
  Late ends;
  ends.acceptor.stream->DropBody();
  ends.fabric.LandWrites();
  EXPECT_EQ(ends.to, std::vector<char>(kBodyBytes, '-'));
  EXPECT_EQ(ends.acceptor.owner->lost, "") << "in the owner's own call";
  ends.Run();
  EXPECT_EQ(ends.acceptor.owner->lost, "RDMA: another path brought a chunk that the peer might still write");
  EXPECT_EQ(ends.acceptor.owner->ended, 0u);
}

TEST(VerbsWrite, ALateWriteDoesNotLandAfterTheReceivingEndHasHungUp) {
  for (bool cut : {true, false}) {
    Late ends;
    cut ? ends.acceptor.stream->Cut() : ends.acceptor.stream->HangUp(EncodeClose(0));
    ends.Land();
    EXPECT_EQ(ends.to, std::vector<char>(kBodyBytes, '-')) << cut;
  }
}

TEST(VerbsWrite, ASendsMemoryIsNotReadOnceItWasTakenBack) {
  Late ends;
  ends.dialler.stream->KeepBody();
  EXPECT_FALSE(ends.dialler.stream->Touches(ends.from.data(), ends.from.size()));
  ends.from.assign(kBodyBytes, '!');
  ends.Land();
  EXPECT_EQ(ends.to, std::vector<char>(kBodyBytes, '-'));
  EXPECT_EQ(ends.dialler.owner->lost, "RDMA: another path brought a chunk whose writes were under way");
}

TEST(VerbsWrite, BeforeItIsGrantedTheRestIsCopied) {
  Written ends;
  ends.Send();
  ends.dialler.stream->KeepBody();
  ends.from.assign(kBodyBytes, '!');
  ends.Run();
  EXPECT_TRUE(ends.arrived());
  EXPECT_EQ(ends.dialler.traffic.rdma_written_bytes, 0u);
  EXPECT_EQ(ends.dialler.owner->lost, "");
}

TEST(VerbsWrite, OneThatTakesNoneIsNotAsked) {
  Written ends;
  ends.acceptor.shared.write_bytes = 0;
  EXPECT_EQ(ends.acceptor.stream->abilities(), kTakesRdma);
  EXPECT_TRUE(ends.dialler.tcp->Take(EncodeHelloAck(0, 1, 0, 0, kTakesRdma)).code() == Code::kProtocol)
      << "behind the switch TCP says nothing";
  ends.Send();  // it knows of the ability that was told first
  ends.Run();
  EXPECT_TRUE(ends.arrived()) << "and is told to send it as messages";
  EXPECT_EQ(ends.dialler.traffic.rdma_written_bytes, 0u);
}

// A peer that speaks of writes, and is not ours or has lost its mind: its queue pair and rings are right, and what it
// says of places is right, out of turn, changed, or of another length.
class Mad {
 public:
  Mad(Fabric* fabric, End* end, const RcShape& shape, uint64_t seed) : end_(end), random_(seed) {
    fabric->AddMemory(memory.data(), memory.size());
    std::unique_ptr<RcQueue> queue;
    EXPECT_TRUE(fabric->Make({}, shape, 0, {}, &queue).ok());
    pipe_ = std::make_unique<RcPipe>(std::move(queue), shape);
    EXPECT_TRUE(pipe_->Prepare().ok());
  }
  uint64_t Below(uint64_t limit) { return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random_); }
  std::string Address() { return EncodeRcAddress(pipe_->queue().address()); }
  // By what the end said last on TCP.
  void Connect() {
    std::string said = std::exchange(end_->tcp->said, "");
    RcAddress address;
    EXPECT_TRUE(DecodeRcAddress({said.begin() + kHeaderBytes, said.end()}, &address).ok());
    EXPECT_TRUE(pipe_->Connect(address, 0).ok());
  }
  // As a peer of ours does, so that the end goes over.
  void Echo() { EXPECT_TRUE(pipe_->Send(RcKind::kEcho, 0, 0).ok()); }
  // The end has dialled this peer, which takes writes.
  void TakeOver() {
    ASSERT_TRUE(end_->tcp->Take(EncodeHelloAck(0, 1, 0, 0, kTakesRdma | kTakesWrites)).ok());
    Connect();
    ASSERT_TRUE(end_->tcp->Take(EncodeRdma(RdmaStep::kAnswer, 1, Address())).ok());
    Hear([&](RcKind kind, const std::string&) { kind == RcKind::kTest ? Echo() : void(); });
    end_->loop.Run();
    ASSERT_TRUE(end_->tcp->Take(EncodeRdma(RdmaStep::kSwitch, 1)).ok());
  }
  void Post(RcKind kind, const std::string& words) {
    size_t most = 0;
    char* place = pipe_->Room(&most, 0);
    if (place == nullptr) return;
    std::memcpy(place, words.data(), words.size());
    EXPECT_TRUE(pipe_->Send(kind, words.size(), 0).ok());
  }
  void Say(RcKind kind, std::string words, bool summed) {
    uint32_t sum = Crc32c(words.data(), words.size());
    if (summed) words.append(reinterpret_cast<const char*>(&sum), sizeof sum);
    if (Below(6) == 0 && !words.empty()) words[Below(words.size())] ^= static_cast<char>(1 << Below(8));
    if (Below(12) == 0) words.resize(Below(words.size() + 9));
    Post(kind, words);
  }
  // What it says without a thought.
  void Babble(uint64_t number) {
    std::string words(Below(80), 'x');
    for (char& one : words) one = static_cast<char>(Below(256));
    if (Below(2) == 0) words.assign(reinterpret_cast<const char*>(&number), sizeof number);
    constexpr RcKind kKinds[] = {RcKind::kAsk, RcKind::kGrant, RcKind::kLanded, RcKind::kBytes, RcKind::kSlots};
    Say(kKinds[Below(5)], words, Below(3) != 0);
  }
  // What the end has said since, by RDMA. An error ends it, as it would a peer of ours.
  template <typename Take>
  void Hear(Take take) {
    end_->loop.Run();
    if (!pipe_->Reap(0).ok()) return;
    while (const RcPipe::Arrival* arrival = pipe_->front()) {
      take(arrival->kind, std::string(arrival->data, arrival->bytes));
      EXPECT_TRUE(pipe_->DropFront().ok());
    }
    EXPECT_TRUE(pipe_->ReturnSlots(0).ok());
  }
  bool goes_on() const { return end_->owner->lost.empty(); }
  void CheckReason() const {
    const std::string& lost = end_->owner->lost;
    EXPECT_TRUE(lost.empty() || lost.starts_with("RDMA: ") || lost.starts_with("wire: ")) << lost;
  }

  std::vector<char> memory = std::vector<char>(kBodyBytes, '-');

 private:
  End* const end_;
  std::mt19937_64 random_;
  std::unique_ptr<RcPipe> pipe_;
};

struct Granted {
  uint64_t number;
  uint64_t place;  // 1: there
  uint64_t address;
  uint64_t key;
};

TEST(VerbsWrite, NoWordOfAnAskingPeerBreaksIt) {
  size_t granted = 0;
  size_t ended = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Fabric fabric;
    End end(&fabric, "10.0.0.2", false, false);
    end.shared.write_bytes = 4096;
    std::vector<char> to(kBodyBytes, '-');
    fabric.AddMemory(to.data(), to.size());
    end.owner->place = to.data();
    end.owner->room = to.size();
    end.stream->Start();
    Mad peer(&fabric, &end, kDialledShape, seed);
    ASSERT_TRUE(end.tcp->Take(EncodeRdma(RdmaStep::kOffer, 1, peer.Address())).ok());
    peer.Connect();
    ASSERT_TRUE(end.tcp->Take(EncodeRdma(RdmaStep::kSwitch, 1)).ok());
    uint64_t number = 0;
    for (int step = 0; step < 40 && peer.goes_on(); ++step) {
      Frame frame;
      frame.type = peer.Below(20) == 0 ? FrameType::kPing : FrameType::kData;
      frame.body_bytes = frame.d = static_cast<uint32_t>(peer.Below(kBodyBytes));
      frame.b = frame.d;
      std::string ask(kHeaderBytes, 0);
      EncodeFrame(frame, reinterpret_cast<uint8_t*>(ask.data()));
      number += peer.Below(8) == 0 ? 0 : 1;
      ask.append(reinterpret_cast<const char*>(&number), sizeof number);
      peer.Say(RcKind::kAsk, ask, true);
      if (peer.Below(4) == 0) peer.Babble(number);
      peer.Hear([&](RcKind kind, const std::string& words) {
        if (kind != RcKind::kGrant) return;
        Granted grant;
        ASSERT_GE(words.size(), sizeof grant);
        std::memcpy(&grant, words.data(), sizeof grant);
        if (grant.place != 1) return;
        ++granted;
        EXPECT_GE(grant.address, reinterpret_cast<uintptr_t>(to.data()));  // some of it may have come as bytes
        EXPECT_LT(grant.address, reinterpret_cast<uintptr_t>(to.data() + to.size())) << "and nowhere else";
      });
      if (peer.Below(8) == 0) peer.Babble(number);
      peer.Say(RcKind::kLanded, std::string(reinterpret_cast<const char*>(&number), sizeof number), true);
      peer.Hear([](RcKind, const std::string&) {});
    }
    peer.CheckReason();
    EXPECT_LE(end.owner->ended, end.owner->began.size());
    ended += end.owner->ended;
  }
  EXPECT_GT(granted, 300u) << "some of it made sense";
  EXPECT_GT(ended, 100u);
}

// The other way round: it grants what it was not asked for, places that are not its own or that nobody knows, twice, or
// never. What it does get is what was sent, and nothing else is read.
TEST(VerbsWrite, NoWordOfAGrantingPeerBreaksIt) {
  size_t asked = 0;
  size_t landed = 0;
  size_t ended = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Fabric fabric;
    End end(&fabric, "10.0.0.1", true, false);
    end.shared.write_bytes = 4096;
    const std::vector<char> from = Body();
    fabric.AddMemory(from.data(), from.size());
    Mad peer(&fabric, &end, kAcceptedShape, seed);
    ASSERT_NO_FATAL_FAILURE(peer.TakeOver());
    uint64_t number = 0;
    size_t bytes = 0;
    bool whole = false;  // the place that it was granted last is ours, and large enough
    auto take = [&](RcKind kind, const std::string& words) {
      if (kind == RcKind::kLanded && whole) {
        ++landed;
        EXPECT_EQ(std::memcmp(peer.memory.data(), from.data(), bytes), 0);
      }
      if (kind != RcKind::kAsk) return;
      ++asked;
      ASSERT_EQ(words.size(), kHeaderBytes + sizeof number + sizeof(uint32_t));
      std::memcpy(&number, words.data() + kHeaderBytes, sizeof number);
    };
    for (int step = 0; step < 40 && peer.goes_on(); ++step) {
      if (!end.stream->sending()) {
        Frame frame;
        frame.type = FrameType::kData;
        bytes = 4096 + peer.Below(kBodyBytes - 4096);
        frame.body_bytes = frame.d = static_cast<uint32_t>(bytes);
        frame.b = frame.d;
        end.stream->Send(frame, from.data());
      }
      peer.Hear(take);
      if (peer.Below(4) == 0) peer.Babble(number);
      Granted grant{number, 1, reinterpret_cast<uintptr_t>(peer.memory.data()), 2};
      whole = peer.Below(4) != 0;
      if (!whole) {
        switch (peer.Below(5)) {
          case 0:
            grant.number += peer.Below(3);
            break;
          case 1:
            grant.place = peer.Below(5);
            break;
          case 2:
            grant.address += peer.Below(2 * kBodyBytes);
            break;
          case 3:
            grant.address = peer.Below(UINT64_MAX);
            break;
          default:
            grant.key = peer.Below(4);
        }
      }
      peer.Say(RcKind::kGrant, std::string(reinterpret_cast<const char*>(&grant), sizeof grant), true);
      if (peer.Below(16) == 0) end.stream->KeepBody();
      peer.Hear(take);
      if (peer.Below(8) == 0) peer.Babble(number);
    }
    peer.CheckReason();
    ended += peer.goes_on() ? 0 : 1;
    if (peer.Below(2) == 0) end.stream->DropBody();
  }
  EXPECT_GT(asked, 300u) << "some of it made sense";
  EXPECT_GT(landed, 100u);
  EXPECT_GT(ended, 100u) << "and some did not";
}

// A place with any bit changed would be somebody else's memory, or none although there is one.
TEST(VerbsWrite, NothingIsWrittenToAPlaceThatWasChangedOnItsWay) {
  constexpr size_t kUnchanged = 8 * sizeof(Granted);
  for (size_t bit = 0; bit <= kUnchanged; ++bit) {
    Fabric fabric;
    End end(&fabric, "10.0.0.1", true, false);
    end.shared.write_bytes = 4096;
    const std::vector<char> from = Body();
    fabric.AddMemory(from.data(), from.size());
    Mad peer(&fabric, &end, kAcceptedShape, 1);
    ASSERT_NO_FATAL_FAILURE(peer.TakeOver());
    Frame frame;
    frame.type = FrameType::kData;
    frame.body_bytes = frame.d = 4096;
    frame.b = frame.d;
    end.stream->Send(frame, from.data());
    peer.Hear([](RcKind, const std::string&) {});
    Granted grant{1, 1, reinterpret_cast<uintptr_t>(peer.memory.data()), 2};
    std::string words(reinterpret_cast<const char*>(&grant), sizeof grant);
    uint32_t sum = Crc32c(words.data(), words.size());
    words.append(reinterpret_cast<const char*>(&sum), sizeof sum);
    if (bit < kUnchanged) words[bit / 8] ^= static_cast<char>(1 << bit % 8);
    peer.Post(RcKind::kGrant, words);
    peer.Hear([](RcKind, const std::string&) {});
    EXPECT_EQ(peer.goes_on(), bit == kUnchanged) << "bit " << bit;
    bool empty = peer.memory == std::vector<char>(kBodyBytes, '-');
    EXPECT_EQ(empty, bit < kUnchanged) << "bit " << bit;
  }
}

// A connection that is refused lets go of what came in.
TEST(VerbsStream, OneThatNeverStartedEndsWithItsOwnersLastWord) {
  Fabric fabric;
  End end(&fabric, "10.0.0.2", false, false);
  std::weak_ptr<VerbsStream> weak = end.stream;
  std::weak_ptr<Held> tcp = end.tcp;
  end.stream.reset();
  end.tcp.reset();
  EXPECT_TRUE(weak.expired());
  EXPECT_TRUE(tcp.expired());
}

TEST(VerbsStream, OneThatStartedLivesUntilItIsCut) {
  TwoEnds ends;
  ends.GoOver();
  std::weak_ptr<VerbsStream> weak = ends.acceptor.stream;
  auto stream = std::exchange(ends.acceptor.stream, nullptr);
  stream->Cut();
  stream.reset();
  EXPECT_TRUE(weak.expired());
  EXPECT_EQ(ends.acceptor.traffic.rdma_streams, 0);
  EXPECT_EQ(ends.fabric.queues(), 1u);
}

// What a peer that is not ours, or has lost its mind, may say: words in any order, of any attempt, with addresses that
// are right, changed or of another length.
TEST(VerbsStream, NoWordOfAPeerBreaksIt) {
  std::mt19937_64 random(1);
  auto below = [&random](uint64_t limit) { return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random); };
  size_t switched = 0;
  for (int i = 0; i < 400; ++i) {
    bool strict = below(4) == 0;
    Fabric fabric;
    End end(&fabric, "10.0.0.1", i % 2 == 0, strict);
    if (i % 2 == 0) end.tcp->SetOwner({end.stream, end.stream.get()});
    if (i % 2 != 0) end.stream->Start();
    std::unique_ptr<RcQueue> other;
    RcShape shape = i % 2 == 0 ? kAcceptedShape : kDialledShape;
    ASSERT_TRUE(fabric.Make({}, shape, 0, {}, &other).ok());
    for (int step = 0; step < 40; ++step) {
      std::string body;
      if (below(3) != 0) body = EncodeRcAddress(other->address());
      if (!body.empty() && below(4) == 0) body[below(body.size())] ^= static_cast<char>(1 << below(8));
      if (below(6) == 0) body.resize(below(100));
      if (below(6) == 0) body = std::string(1, static_cast<char>(below(256))) + std::string(7, '\0');
      std::string frame = EncodeRdma(static_cast<RdmaStep>(below(9)), static_cast<uint32_t>(below(3)), body);
      if (below(5) == 0) frame = EncodeHelloAck(0, 1, 0, 0, below(2));
      if (below(8) == 0) frame = EncodeControl(FrameType::kPing);
      if (!end.tcp->Take(frame).ok()) break;
      if (below(3) == 0) end.loop.Run();
      switched += end.traffic.rdma_streams > 0 ? 1 : 0;
    }
    EXPECT_LE(fabric.queues(), 2u) << "one of its own, and ours";
    end.stream->Cut();
    EXPECT_EQ(fabric.queues(), 1u);
    EXPECT_EQ(end.traffic.rdma_streams, 0);
  }
  EXPECT_GT(switched, 0u) << "some of it made sense";
}

// The device -------------------------------------------------------------------------------------------------

// A device of the test's own, which has so many events to tell.
struct Card {
  ibv::Device device{};
  ibv::Device* list[1] = {&device};
  ibv::Context context{};
  char domain = 0;
  std::vector<ibv::AsyncEvent> events;
  int asked = 0;
};
Card* card = nullptr;

ibv::Library LibraryOfTheCard() {
  ibv::Library library;
  library.get_device_list = [](int* count) {
    *count = 1;
    return card->list;
  };
  library.free_device_list = [](ibv::Device**) {};
  library.open_device = [](ibv::Device*) { return &card->context; };
  library.close_device = [](ibv::Context*) { return 0; };
  library.alloc_pd = [](ibv::Context*) { return reinterpret_cast<ibv::Pd*>(&card->domain); };
  library.dealloc_pd = [](ibv::Pd*) { return 0; };
  library.get_async_event = [](ibv::Context*, ibv::AsyncEvent* event) {
    ++card->asked;
    if (card->events.empty()) return -1;
    *event = card->events.back();
    card->events.pop_back();
    return 0;
  };
  library.ack_async_event = [](ibv::AsyncEvent*) {};
  return library;
}

struct OpenCard {
  OpenCard() {
    card = &made;
    int pipe_ends[2] = {};
    EXPECT_EQ(pipe(pipe_ends), 0);
    events = Fd(pipe_ends[0]);
    driver = Fd(pipe_ends[1]);
    made.context.async_fd = events.get();
    std::snprintf(made.device.name, sizeof made.device.name, "card0");
    device = std::make_shared<RdmaDevice>(LibraryOfTheCard(), "card0");
    EXPECT_EQ(device->Open(&loop, &log).message(), "");
  }
  Card made;
  Fd events, driver;
  Loop loop;
  EventLog log;
  std::shared_ptr<RdmaDevice> device;
};

// Its descriptor reports an error for ever, which would keep a thread busy for as long.
TEST(RdmaDevice, OneThatIsGoneIsNotWatchedAnyMore) {
  OpenCard open;
  ASSERT_EQ(open.loop.watched.size(), 1u);
  uint64_t id = open.loop.watched[0].id;
  open.device->OnEvents(id, 0, EPOLLIN);
  EXPECT_FALSE(open.device->is_gone()) << "another thread may have taken the event";
  EXPECT_EQ(open.loop.watched.size(), 1u);
  open.device->OnEvents(id, 0, EPOLLIN | EPOLLERR);
  EXPECT_TRUE(open.device->is_gone());
  EXPECT_TRUE(open.loop.watched.empty());
}

TEST(RdmaDevice, OneThatSaysThatItFailedIsNotWatchedAnyMore) {
  OpenCard open;
  uint64_t id = open.loop.watched[0].id;
  ibv::AsyncEvent event{};
  event.type = ibv::kEventPortActive;
  open.made.events = {event};
  open.device->OnEvents(id, 0, EPOLLIN);
  EXPECT_FALSE(open.device->is_gone());
  event.type = ibv::kEventDeviceFatal;
  open.made.events = {event};
  open.device->OnEvents(id, 0, EPOLLIN);
  EXPECT_TRUE(open.device->is_gone());
  EXPECT_TRUE(open.loop.watched.empty());
  ASSERT_EQ(open.log.Snapshot(10).size(), 1u);
  EXPECT_EQ(open.log.Snapshot(10)[0].detail, "card0: the device failed (DEVICE_FATAL)");
}

}  // namespace
}  // namespace r2ccl
