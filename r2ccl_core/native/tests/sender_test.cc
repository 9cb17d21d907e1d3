// The real sending end against a receiving end written by hand, which reads in pieces, tells late what it has, posts
// late, and hangs up in the middle of a frame. Whatever it does, the rules of the sending end hold:
//
//   - the epochs of a path only grow, and everything on a stream is of its path and epoch;
//   - no message comes before its receive was posted, but for those that may;
//   - a chunk comes again only when the stream that brought it is gone;
//   - a send is done only when all of it was acknowledged, or copied, and then its memory is not read again;
//   - when the receiving end behaves in the end, everything has come, right, and every send is done.
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "failover/own_share.h"
#include "pair.h"

namespace r2ccl {
namespace {

constexpr int kTwoPaths = 2;
constexpr uint64_t kPieceBytes = 4096;
constexpr char kWornOut = '\xa5';
constexpr char kCameAgain[] = "a chunk came again though its stream is there";

char RightByte(uint64_t message, uint64_t offset) {
  return static_cast<char>(message * 31 + offset * 7 + offset / 251);
}

Params SmallPieces() {
  Params params = PatientParams(2);
  params.chunk_bytes = params.min_chunk_bytes = kPieceBytes;
  params.fast_mbit_s = 0;  // messages of several pieces are early, too
  params.locate_ms = 0;    // no probes
  return params;
}

struct Habits {
  uint64_t eager_bytes = 0;
  uint64_t eager_messages = 0;
  bool lies = false;  // says it has one chunk more than it has
};

// A receiving end that does nothing by itself.
class HandmadeReceiver {
 public:
  HandmadeReceiver(uint64_t seed, Habits habits) : random_(seed), habits_(habits) {
    listen_fd_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    socklen_t length = sizeof where;
    EXPECT_EQ(bind(listen_fd_.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    EXPECT_EQ(listen(listen_fd_.get(), 64), 0);
    EXPECT_EQ(getsockname(listen_fd_.get(), reinterpret_cast<sockaddr*>(&where), &length), 0);
    handle_.port = ntohs(where.sin_port);
    for (const Nic& nic : LoopbackNics(2, kTwoPaths)) handle_.addresses.push_back(nic.address);
    for (uint8_t& byte : handle_.secret) byte = static_cast<uint8_t>(random_());
  }

  const Handle& handle() const { return handle_; }
  const std::string& broken() const { return broken_; }
  int breaks() const { return breaks_; }
  int again() const { return again_; }
  int pings() const { return pings_; }
  int bulk() const { return bulk_; }
  size_t largest_chunk() const { return largest_chunk_; }

  void Expect(uint64_t size) { messages_.push_back({std::string(size, '.'), {}}); }

  void Accept() {
    for (int fd; (fd = accept4(listen_fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
      streams_.push_back({Fd(fd), "", -1, 0});
    }
  }

  // Reads up to so many bytes from one stream, or from all.
  void Read(size_t most) {
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (most < SIZE_MAX && random_() % 2 == 0) continue;
      ReadStream(streams_[i], most);
    }
    std::erase_if(streams_, [](const Stream& stream) { return stream.fd.get() < 0; });
  }

  void Post() { posted_ = std::min<uint64_t>(posted_ + 1, messages_.size()); }
  void PostAll() { posted_ = messages_.size(); }

  // The whole state, over any stream that is up.
  void Acknowledge() {
    std::vector<AckEntry> entries(kTwoPaths);
    for (size_t i = 0; i < kTwoPaths; ++i) {
      entries[i] = {paths_[i].epoch, paths_[i].up ? 0u : 1u, paths_[i].chunks + (habits_.lies ? 1 : 0)};
    }
    std::string frame = EncodeAck(posted_, entries);
    for (Stream& stream : streams_) {
      if (stream.path < 0) continue;
      if (send(stream.fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(frame.size())) {
        for (Message& message : messages_) {
          for (auto& [offset, chunk] : message.chunks) chunk.told |= IsOfNow(chunk);
        }
        return;
      }
    }
  }

  // Hangs up on one stream, wherever it stands.
  void Break() {
    if (streams_.empty()) return;
    Stream& stream = streams_[random_() % streams_.size()];
    ++breaks_;
    Drop(stream);
    std::erase_if(streams_, [](const Stream& one) { return one.fd.get() < 0; });
  }

  void BreakAll() {
    while (!streams_.empty()) Break();
  }

  bool Told(uint64_t number) const {
    const Message& message = messages_[number];
    return IsWhole(message) && std::all_of(message.chunks.begin(), message.chunks.end(),
                                           [](const auto& chunk) { return chunk.second.told; });
  }
  bool HasAll() const { return std::all_of(messages_.begin(), messages_.end(), IsWhole); }
  bool MayBeCopied(uint64_t number) const { return messages_[number].bytes.size() <= habits_.eager_bytes; }

 private:
  struct Stream {
    Fd fd;
    std::string heard;
    int path;
    uint32_t epoch;
  };
  struct Receiving {
    uint32_t epoch = 0;
    bool up = false;
    uint64_t chunks = 0;  // of this epoch
  };
  struct Chunk {
    size_t path;
    uint32_t epoch;
    uint64_t length;
    bool told = false;
  };
  struct Message {
    std::string bytes;
    std::map<uint64_t, Chunk> chunks;  // by offset
  };

  static bool IsWhole(const Message& message) {
    uint64_t bytes = 0;
    for (const auto& [offset, chunk] : message.chunks) bytes += chunk.length;
    return !message.chunks.empty() && bytes == message.bytes.size();
  }

  // Whether an acknowledgement sent now speaks of its stream, which may be broken already.
  bool IsOfNow(const Chunk& chunk) const { return paths_[chunk.path].epoch == chunk.epoch; }

  void Complain(const std::string& what) {
    if (broken_.empty()) broken_ = what;
  }

  void Drop(Stream& stream) {
    if (stream.path >= 0 && paths_[static_cast<size_t>(stream.path)].epoch == stream.epoch) {
      paths_[static_cast<size_t>(stream.path)].up = false;
    }
    ResetConnection(&stream.fd);
    stream.fd = Fd();
  }

  void ReadStream(Stream& stream, size_t most) {
    char buffer[16384];
    bool ended = false;
    // A kernel that takes its time to acknowledge makes the sending end suspicious.
    int yes = 1;
    setsockopt(stream.fd.get(), IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes);
    for (size_t left = most; left > 0;) {
      ssize_t got = recv(stream.fd.get(), buffer, std::min(left, sizeof buffer), MSG_DONTWAIT);
      ended = got == 0 || (got < 0 && errno != EAGAIN);
      if (got <= 0) break;
      stream.heard.append(buffer, static_cast<size_t>(got));
      left -= static_cast<size_t>(got);
    }
    Frame frame;
    while (stream.heard.size() >= kHeaderBytes && broken_.empty()) {
      auto* bytes = reinterpret_cast<const uint8_t*>(stream.heard.data());
      Status status = DecodeFrame(bytes, &frame);
      if (!status.ok()) return Complain(status.message());
      if (stream.heard.size() < kHeaderBytes + frame.body_bytes) break;
      Take(stream, frame, stream.heard.substr(kHeaderBytes, frame.body_bytes));
      stream.heard.erase(0, kHeaderBytes + frame.body_bytes);
    }
    if (ended) Drop(stream);
  }

  void Take(Stream& stream, const Frame& frame, const std::string& body) {
    if ((stream.path < 0) != (frame.type == FrameType::kHello)) return Complain("a stream does not begin with HELLO");
    if (frame.type == FrameType::kHello) return Greet(stream, frame, body);
    if (frame.type == FrameType::kData) return TakeChunk(stream, frame, body);
    if (frame.type == FrameType::kPing) ++pings_;
    bool others =
        frame.type == FrameType::kPathDown || frame.type == FrameType::kClose || frame.type == FrameType::kPing;
    if (!others) Complain("the sending end sent frame " + std::to_string(static_cast<int>(frame.type)));
  }

  void Greet(Stream& stream, const Frame& frame, const std::string& body) {
    if (std::memcmp(body.data(), handle_.secret.data(), kSecretBytes) != 0) return Complain("a wrong secret");
    if (frame.path >= kTwoPaths || frame.b != kTwoPaths) return Complain("a path that is none");
    if (connection_ != 0 && frame.a != connection_) return Complain("another connection");
    connection_ = frame.a;
    Receiving& path = paths_[frame.path];
    if (frame.epoch <= path.epoch) return Complain("an epoch does not grow");
    for (Stream& other : streams_) {
      if (&other != &stream && other.path == frame.path) Drop(other);
    }
    path = {frame.epoch, true, 0};
    stream.path = frame.path;
    stream.epoch = frame.epoch;
    std::string answer = EncodeHelloAck(frame.path, frame.epoch, habits_.eager_bytes, habits_.eager_messages);
    (void)!send(stream.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  }

  void TakeChunk(Stream& stream, const Frame& frame, const std::string& body) {
    if (frame.path != stream.path || frame.epoch != stream.epoch) return Complain("a chunk of another stream");
    if (frame.a >= messages_.size()) return Complain("a message that was not sent");
    Message& message = messages_[frame.a];
    uint64_t ahead = frame.a + 1 - posted_;
    bool early = frame.b <= habits_.eager_bytes && ahead <= habits_.eager_messages;
    early = early && frame.b * ahead <= 8 * habits_.eager_bytes;
    if (frame.a >= posted_ && !early) return Complain("message " + std::to_string(frame.a) + " came too early");
    if (frame.b != message.bytes.size() || frame.c + body.size() > frame.b || frame.d == 0 || frame.c % frame.d != 0) {
      return Complain("a chunk outside of its message");
    }
    if (body.size() != std::min<uint64_t>(frame.d, frame.b - frame.c)) return Complain("a chunk of a wrong length");
    for (uint64_t at = 0; at < body.size(); ++at) {
      if (body[at] != RightByte(frame.a, frame.c + at)) {
        return Complain("message " + std::to_string(frame.a) + " has a wrong byte at " + std::to_string(frame.c + at));
      }
    }
    auto index = static_cast<size_t>(stream.path);
    ++paths_[index].chunks;
    bulk_ += (frame.flags & kBulkFlag) != 0;
    Chunk chunk{index, stream.epoch, body.size()};
    largest_chunk_ = std::max(largest_chunk_, body.size());
    auto known = message.chunks.find(frame.c);
    if (known != message.chunks.end()) {
      const Chunk& first = known->second;
      if (paths_[first.path].up && IsOfNow(first)) return Complain(kCameAgain);
      ++again_;
      chunk.told = first.told;
    }
    message.chunks[frame.c] = chunk;
  }

  std::mt19937_64 random_;
  const Habits habits_;
  Fd listen_fd_;
  Handle handle_;
  std::vector<Stream> streams_;
  std::array<Receiving, kTwoPaths> paths_;
  std::vector<Message> messages_;
  uint64_t posted_ = 0;
  uint64_t connection_ = 0;
  int breaks_ = 0;
  int again_ = 0;
  int pings_ = 0;
  int bulk_ = 0;  // chunks that an I/O thread moves
  size_t largest_chunk_ = 0;
  std::string broken_;
};

// A sending end, and what it sends.
class Sender {
 public:
  explicit Sender(HandmadeReceiver& receiver, const Params& params = SmallPieces()) : receiver_(receiver) {
    EXPECT_TRUE(Net::Create(params, LoopbackNics(1, kTwoPaths), &net_).ok());
    EXPECT_TRUE(net_->Connect(receiver.handle(), &comm_).ok());
  }
  ~Sender() {
    comm_->Close();
    net_->Shutdown();
  }

  NicState& nic_state(int nic) { return net_->environment().nic_states[static_cast<size_t>(nic)]; }

  void Send(uint64_t size, bool announced = false) {
    uint64_t number = buffers_.size();
    buffers_.emplace_back(std::max<uint64_t>(size, 1));
    for (uint64_t at = 0; at < size; ++at) buffers_.back()[at] = RightByte(number, at);
    receiver_.Expect(size);
    Request* request = nullptr;
    EXPECT_TRUE(comm_->Isend(buffers_.back().data(), size, &request, false, 0, nullptr, announced).ok());
    requests_.push_back(request);
  }

  // What is done is overwritten. Empty, or what is wrong.
  std::string Test() {
    for (uint64_t number = 0; number < requests_.size(); ++number) {
      if (requests_[number] == nullptr) continue;
      bool done = false;
      Status status = comm_->Test(requests_[number], &done, nullptr);
      if (!status.ok()) return status.message();
      if (!done) continue;
      if (!receiver_.Told(number) && !receiver_.MayBeCopied(number)) {
        return "send " + std::to_string(number) + " is done and was not acknowledged";
      }
      requests_[number] = nullptr;
      std::fill(buffers_[number].begin(), buffers_[number].end(), kWornOut);
    }
    return "";
  }

  bool AllDone() const {
    return std::all_of(requests_.begin(), requests_.end(), [](Request* request) { return request == nullptr; });
  }

 private:
  HandmadeReceiver& receiver_;
  std::shared_ptr<Net> net_;
  std::shared_ptr<SendComm> comm_;
  std::deque<std::vector<char>> buffers_;
  std::vector<Request*> requests_;
};

struct Outcome {
  std::string wrong;
  int breaks = 0;
  int again = 0;
};

Outcome WalkOfSender(uint64_t seed, Habits habits, double patience_s = 30) {
  std::mt19937_64 random(seed);
  HandmadeReceiver receiver(seed, habits);
  Sender sender(receiver);
  const std::vector<uint64_t> sizes{0, 1, 3000, kPieceBytes, 3 * kPieceBytes + 5, 40000, 300000};
  std::string wrong;
  int sent = 0;
  for (int step = 0; step < 400 && wrong.empty(); ++step) {
    uint64_t kind = random() % 40;
    receiver.Accept();
    if (kind < 3 && sent < 16) {
      sender.Send(sizes[random() % sizes.size()]);
      ++sent;
    } else if (kind < 6) {
      receiver.Post();
    } else if (kind < 14) {
      receiver.Acknowledge();
    } else if (kind == 14) {
      receiver.Break();
    } else if (kind < 20) {
      wrong = sender.Test();
    } else {
      receiver.Read(1 + random() % 30000);
    }
    if (wrong.empty()) wrong = receiver.broken();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  }
  bool well = wrong.empty() && Until(
                                   [&] {
                                     receiver.Accept();
                                     receiver.PostAll();
                                     receiver.Read(SIZE_MAX);
                                     receiver.Acknowledge();
                                     wrong = sender.Test();
                                     if (wrong.empty()) wrong = receiver.broken();
                                     return !wrong.empty() || (receiver.HasAll() && sender.AllDone());
                                   },
                                   patience_s);
  if (wrong.empty() && !well) wrong = "it never came to an end";
  return {wrong, receiver.breaks(), receiver.again()};
}

TEST(Sender, KeepsItsRulesWhateverTheReceivingEndDoes) {
  int breaks = 0, again = 0;
  for (uint64_t i = 0; i < 24; ++i) {
    uint64_t seed = TestSeed() * 1000 + i;
    Habits habits;
    if (i % 4 == 1) habits = {8192, 4, false};
    if (i % 4 == 2) habits = {4096, 64, false};
    if (i % 4 == 3) habits = {1 << 20, 64, false};
    Outcome outcome = WalkOfSender(seed, habits);
    // Where the machine stands still, chunks are late and go over the other path as well, which is as it should be. It
    // does not stand still at the same place again and again.
    for (int more = 0; more < 40 && outcome.wrong == kCameAgain; ++more) outcome = WalkOfSender(seed, habits);
    ASSERT_EQ(outcome.wrong, "") << "walk " << seed;
    breaks += outcome.breaks;
    again += outcome.again;
  }
  EXPECT_GT(breaks, 50);
  EXPECT_GT(again, 5) << "no chunk was ever brought by a stream that broke before it was told";
}

TEST(Sender, AnAcknowledgementOfWhatHasNotComeIsNotFollowed) {
  bool seen = false;
  for (uint64_t seed = 1; seed < 10 && !seen; ++seed) seen = !WalkOfSender(seed, {0, 0, true}, 0.5).wrong.empty();
  EXPECT_TRUE(seen) << "the check cannot fail";
}

constexpr uint64_t kLittle = 12288;

TEST(OwnShare, IsWhatIsLittle) {
  OwnShare share;
  EXPECT_TRUE(share.Takes(0, 8, kLittle, false));
  EXPECT_TRUE(share.Takes(4096, 8192, kLittle, false));
  EXPECT_FALSE(share.Takes(4096, 8193, kLittle, false));
  EXPECT_FALSE(share.Takes(0, 8192, kLittle, false)) << "threads that are awake keep the work";
  EXPECT_TRUE(share.Takes(0, kLittle / 4, kLittle, false)) << "until it is much less";
  EXPECT_TRUE(share.Takes(0, 8192, kLittle, false));
}

TEST(OwnShare, OfOneConnectionThatIsAloneIsMore) {
  OwnShare share;
  EXPECT_TRUE(share.Takes(0, OwnShare::kAloneBytes, kLittle, true));
  EXPECT_TRUE(share.Takes(OwnShare::kAloneFlight - OwnShare::kAloneBytes, OwnShare::kAloneBytes, kLittle, true));
  EXPECT_FALSE(share.Takes(0, OwnShare::kAloneBytes, kLittle, false)) << "others send as well";
  EXPECT_FALSE(share.Takes(0, OwnShare::kAloneBytes + 1, kLittle, true)) << "a large message";
  EXPECT_FALSE(share.Takes(OwnShare::kAloneFlight, 8, kLittle, true)) << "much is in flight";
}

TEST(OwnShare, OfOneConnectionThatIsAloneLeavesSmallPiecesAsTheyWere) {
  OwnShare share;
  EXPECT_FALSE(share.Takes(16384, 8192, kLittle, false));
  EXPECT_TRUE(share.Takes(0, 16384, kLittle, true));
  EXPECT_FALSE(share.Takes(0, 8192, kLittle, true)) << "as if it were not alone";
}

TEST(OwnShare, OfSmallPiecesIsMoreWhereManyInARowAreOfOneConnection) {
  OwnShare share;
  auto run = [&](int count) {
    for (int i = 0; i < count; ++i) EXPECT_FALSE(share.Takes(16384, 8192, kLittle, true)) << i;
  };
  run(OwnShare::kAloneRun - 1);
  EXPECT_TRUE(share.Takes(16384, 8192, kLittle, true));
  EXPECT_TRUE(share.is_alone());
  EXPECT_FALSE(share.Takes(16384, 8192, kLittle, false)) << "another connection sent";
  EXPECT_FALSE(share.is_alone());
  run(OwnShare::kAloneRun - 1);
  EXPECT_FALSE(share.is_alone());
  EXPECT_TRUE(share.Takes(16384, 8192, kLittle, true));
}

// Two connections of a program that polls; each message is answered before the next.
TEST(Sender, TheProgramsThreadMovesMoreWhereOneConnectionAloneSends) {
  constexpr uint64_t kSize = 20000;
  static_assert(kSize > 16384 && kSize <= OwnShare::kAloneBytes, "more than is copied of any connection");
  Params params = PatientParams(2);
  params.inline_bytes = 12288;
  params.locate_ms = 0;
  std::shared_ptr<Net> net;
  ASSERT_TRUE(Net::Create(params, LoopbackNics(1, kTwoPaths), &net).ok());
  net->environment().program_polls = true;
  HandmadeReceiver receivers[2] = {{1, {1 << 20, 64, false}}, {2, {1 << 20, 64, false}}};
  std::shared_ptr<SendComm> comms[2];
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(net->Connect(receivers[i].handle(), &comms[i]).ok());
  std::vector<char> data(kSize);
  uint64_t sent[2] = {0, 0};
  bool copied = false;          // the last one was done before the receiving end had it
  auto send = [&](int which) {  // whether an I/O thread moved it
    HandmadeReceiver& receiver = receivers[which];
    for (uint64_t at = 0; at < kSize; ++at) data[at] = RightByte(sent[which], at);
    receiver.Expect(kSize);
    ++sent[which];
    int before = receiver.bulk();
    Request* request = nullptr;
    EXPECT_TRUE(comms[which]->Isend(data.data(), kSize, &request).ok());
    bool done = false;
    EXPECT_TRUE(comms[which]->Test(request, &done, nullptr).ok());
    copied = done;
    if (copied) std::fill(data.begin(), data.end(), kWornOut);
    EXPECT_TRUE(Until([&] {
      receiver.Accept();
      receiver.PostAll();
      receiver.Read(SIZE_MAX);
      if (receiver.HasAll()) receiver.Acknowledge();
      if (!done) {
        EXPECT_TRUE(comms[which]->Test(request, &done, nullptr).ok());
      }
      return done && receiver.HasAll();
    })) << receiver.broken();
    return receiver.bulk() > before;
  };
  EXPECT_TRUE(send(0)) << "the first one";
  EXPECT_FALSE(send(0));
  EXPECT_FALSE(send(0));
  EXPECT_TRUE(send(1)) << "another connection";
  EXPECT_TRUE(send(0));
  EXPECT_TRUE(send(1));
  EXPECT_FALSE(send(1));
  for (int i = 2; i < OwnShare::kAloneRun; ++i) {
    EXPECT_FALSE(copied) << i;
    EXPECT_FALSE(send(1));
  }
  EXPECT_FALSE(send(1));
  EXPECT_TRUE(copied) << "so many in a row";
  EXPECT_TRUE(send(0));
  EXPECT_FALSE(copied);
  for (auto& comm : comms) comm->Close();
  net->Shutdown();
}

// Whether it asked at once. Where it does not, another PING comes after a quarter of a second, for the quiet of the
// path.
bool AsksSoon() {
  HandmadeReceiver receiver(1, {8192, 64, false});
  Sender sender(receiver);
  auto read = [&] {
    receiver.Accept();
    receiver.Read(SIZE_MAX);
    return receiver.broken().empty();
  };
  // Quiet paths are pinged, too; after the first of those none comes for a while.
  EXPECT_TRUE(Until([&] { return read() && receiver.pings() >= kTwoPaths; }));
  int pings = receiver.pings();
  int64_t begin_ns = NowNs();
  sender.Send(100);
  sender.Send(100000);  // more than may come before its receive
  EXPECT_TRUE(Until([&] { return read() && receiver.pings() > pings; })) << receiver.broken();
  int64_t took_ns = NowNs() - begin_ns;
  EXPECT_FALSE(receiver.HasAll());
  EXPECT_FALSE(sender.AllDone());
  receiver.PostAll();
  EXPECT_TRUE(Until([&] {
    receiver.Acknowledge();
    return read() && receiver.HasAll() && sender.Test().empty() && sender.AllDone();
  })) << receiver.broken();
  return took_ns < kQuietPendingNs / 2;
}

// A NIC that is never full does not show what it drains; what it moved lately says that it is fast.
TEST(Sender, PiecesAreLargerOnFastNics) {
  for (bool fast : {false, true}) {
    HandmadeReceiver receiver(1, {1 << 20, 64, false});
    Params params = SmallPieces();
    params.fast_mbit_s = 8000;
    Sender sender(receiver, params);
    for (int nic = 0; nic < kTwoPaths; ++nic) {
      sender.nic_state(nic).peak_bytes_per_ns = fast ? 8 : 0.9;  // 64 and 7.2 Gbit/s
    }
    sender.Send(1 << 20);
    EXPECT_TRUE(Until([&] {
      receiver.Accept();
      receiver.PostAll();
      receiver.Read(SIZE_MAX);
      receiver.Acknowledge();
      return sender.Test().empty() && sender.AllDone();
    })) << receiver.broken();
    EXPECT_EQ(receiver.largest_chunk(), fast ? Params().window_bytes / 8 : kPieceBytes);
  }
}

// On NICs that are not fast, a message of several pieces waits for its receive unless the peer knows that it comes.
TEST(Sender, WhatIsAnnouncedDoesNotWaitForItsReceive) {
  for (bool announced : {false, true}) {
    HandmadeReceiver receiver(1, {1 << 20, 64, false});
    Params params = SmallPieces();
    params.fast_mbit_s = Params().fast_mbit_s;
    Sender sender(receiver, params);
    sender.Send(1);
    sender.Send(16 * kPieceBytes, announced);
    auto read = [&] {
      receiver.Accept();
      receiver.Read(SIZE_MAX);
      receiver.Acknowledge();
      return sender.Test().empty() && receiver.HasAll();
    };
    EXPECT_TRUE(Until([&] { return read() || receiver.Told(0); }));
    EXPECT_EQ(Until(read, announced ? 120 : 0.1), announced);
    receiver.PostAll();
    EXPECT_TRUE(Until([&] { return read() && sender.AllDone(); })) << receiver.broken();
  }
}

// Other peers are reached over it all the while, and it returns as what it was.
TEST(Sender, WhatANicDrainsIsNotForgottenWithAPath) {
  HandmadeReceiver receiver(1, {1 << 20, 64, false});
  Sender sender(receiver);
  auto read = [&] {
    receiver.Accept();
    receiver.PostAll();
    receiver.Read(SIZE_MAX);
    receiver.Acknowledge();
    return sender.Test().empty() && sender.AllDone();
  };
  sender.Send(1 << 16);
  EXPECT_TRUE(Until(read)) << receiver.broken();
  for (int nic = 0; nic < kTwoPaths; ++nic) {
    sender.nic_state(nic).drain_bytes_per_ns = 8;
  }
  receiver.BreakAll();
  sender.Send(1 << 16);
  EXPECT_TRUE(Until(read)) << receiver.broken();
  for (int nic = 0; nic < kTwoPaths; ++nic) {
    EXPECT_GT(sender.nic_state(nic).drain_bytes_per_ns, 0);  // though it may be measured meanwhile
  }
}

TEST(Sender, AsksAtOnceForTheReceiveOfWhichItWasNotTold) {
  bool soon = false;  // a machine that stands still may be late, but not every time
  for (int i = 0; i < 60 && !soon; ++i) soon = AsksSoon();
  EXPECT_TRUE(soon);
}

}  // namespace
}  // namespace r2ccl
