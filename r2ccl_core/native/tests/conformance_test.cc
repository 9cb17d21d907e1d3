// The real receiving end against the model's: random walks of streams that open, break, and bring chunks twice, in
// halves and over several paths. After every step both must be in the same state, as its acknowledgements tell it.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "model.h"
#include "pair.h"

namespace r2ccl {
namespace {

constexpr uint32_t kChunkBytes = 4096;
constexpr int kChunks = model::kMostChunks;
constexpr uint64_t kConnection = 4711;

char Right(int chunk) { return static_cast<char>('a' + chunk); }

// A sending end of one stream, written by hand.
class HandmadeStream {
 public:
  HandmadeStream(const Handle& handle, size_t path) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr = handle.addresses[path];
    where.sin_port = htons(handle.port);
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  }
  ~HandmadeStream() { ResetConnection(&fd_); }
  void Say(const std::string& bytes) { (void)!send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // The newest acknowledgement that has come, if one has.
  std::optional<std::vector<AckEntry>> Newest() {
    char buffer[4096];
    for (ssize_t got; (got = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT)) > 0;) {
      heard_.append(buffer, static_cast<size_t>(got));
    }
    std::optional<std::vector<AckEntry>> newest;
    Frame frame;
    while (heard_.size() >= kHeaderBytes) {
      auto* bytes = reinterpret_cast<const uint8_t*>(heard_.data());
      if (!DecodeFrame(bytes, &frame).ok() || heard_.size() < kHeaderBytes + frame.body_bytes) break;
      if (frame.type == FrameType::kAck) newest = DecodeAckEntries(bytes + kHeaderBytes, frame.body_bytes);
      heard_.erase(0, kHeaderBytes + frame.body_bytes);
    }
    return newest;
  }

 private:
  Fd fd_;
  std::string heard_;
};

class Walk {
 public:
  explicit Walk(uint64_t seed, model::Mutation mutation = model::Mutation::kNone)
      : random_(seed), model_(kChunks, 0, 0, mutation) {
    EXPECT_TRUE(Net::Create(PatientParams(2), LoopbackNics(2, model::kPaths), &net_).ok());
    EXPECT_TRUE(net_->Listen(&listener_).ok());
    Open(0);
    EXPECT_TRUE(Until([&] { return (recv_ = listener_->Accept()) != nullptr; }));
    EXPECT_TRUE(recv_->Irecv(buffer_.data(), buffer_.size(), &request_).ok());
  }
  ~Walk() {
    recv_->Close();
    net_->Shutdown();
  }

  std::string Run(double patience_s = 30) {
    for (int step = 0; step < 40; ++step) {
      Step();
      if (!Until([&] { return Agree(); }, patience_s)) return "they differ after" + history_ + ": " + told_;
    }
    bool all = std::all_of(state_.whole.begin(), state_.whole.end(), [](bool whole) { return whole; });
    bool done = false;
    (void)Until([&] { return !recv_->Test(request_, &done, nullptr).ok() || done || !all; });
    if (done != all) return "the request is done: " + std::to_string(done) + history_;
    for (size_t at = 0; all && at < buffer_.size(); ++at) {
      if (buffer_[at] != Right(static_cast<int>(at / kChunkBytes))) return "a wrong byte" + history_;
    }
    return state_.broken == 0 ? "" : "the model broke its own rules" + history_;
  }

  bool complete() const {
    return std::all_of(state_.whole.begin(), state_.whole.end(), [](bool whole) { return whole; });
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }

  void Open(int path) {
    auto index = static_cast<size_t>(path);
    int epoch = state_.receiver[index].epoch + 1;
    clients_[index] = nullptr;  // its end may be noticed before or after the new stream
    clients_[index] = std::make_unique<HandmadeStream>(listener_->handle(), index);
    clients_[index]->Say(EncodeHello(static_cast<uint16_t>(path), static_cast<uint32_t>(epoch), kConnection,
                                     model::kPaths, listener_->handle().secret));
    model_.Attach(state_, path, epoch);
    history_ += " open " + std::to_string(path);
  }

  void Half(int path, model::Token token) {
    auto index = static_cast<size_t>(path);
    Frame frame;
    frame.type = FrameType::kData;
    frame.path = static_cast<uint16_t>(path);
    frame.epoch = state_.receiver[index].epoch;
    frame.body_bytes = kChunkBytes;
    frame.b = kChunks * kChunkBytes;
    frame.c = static_cast<uint64_t>(token.chunk) * kChunkBytes;
    frame.d = kChunkBytes;
    std::string header(token.end ? 0 : kHeaderBytes, '\0');
    if (!token.end) EncodeFrame(frame, reinterpret_cast<uint8_t*>(header.data()));
    bool nowhere = token.end && state_.receiver[index].discarding >= 0;
    model_.Arrive(state_, path, token);
    if (!token.end) nowhere = state_.receiver[index].discarding >= 0;
    // What is to be read into nowhere is wrong on purpose.
    clients_[index]->Say(header + std::string(kChunkBytes / 2, nowhere ? '!' : Right(token.chunk)));
    bytes_[index] += kChunkBytes / 2;
    history_ += (token.end ? " end " : " begin ") + std::to_string(token.chunk) + "@" + std::to_string(path);
  }

  void Step() {
    int path = static_cast<int>(Draw(model::kPaths));
    const model::ReceiverPath& receiver = state_.receiver[static_cast<size_t>(path)];
    uint64_t kind = Draw(10);
    if (!receiver.up) {
      if (receiver.epoch + 1 < model::kMostEpochs) Open(path);
    } else if (kind == 0) {
      clients_[static_cast<size_t>(path)] = nullptr;
      model_.ReceiverLoses(state_, path);
      history_ += " lose " + std::to_string(path);
    } else if (receiver.writing >= 0 || receiver.discarding >= 0 || receiver.aside >= 0) {
      Half(path, {std::max({receiver.writing, receiver.discarding, receiver.aside}), true});
    } else {
      Half(path, {static_cast<int8_t>(Draw(kChunks)), false});
    }
  }

  // Whether all that was sent was read, and the newest acknowledgement says what the model says.
  bool Agree() {
    for (size_t path = 0; path < model::kPaths; ++path) {
      if (net_->environment().counters[path].received_bytes.load() < bytes_[path]) return false;
    }
    for (auto& client : clients_) {
      std::optional<std::vector<AckEntry>> heard;
      if (client != nullptr && (heard = client->Newest())) candidates_.push_back(*heard);
    }
    auto health = net_->Health();
    model::Ack expected = model_.StateOf(state_);
    bool any_up = !expected.down[0] || !expected.down[1];
    told_ = std::to_string(candidates_.size()) + " acknowledgements";
    for (size_t path = 0; path < model::kPaths; ++path) {
      bool known = state_.receiver[path].epoch > 0;
      if (known && (health[path].up == 1) != !expected.down[path]) return false;
    }
    if (!any_up || candidates_.empty()) return !any_up || !candidates_.empty();
    return std::any_of(candidates_.end() - std::min<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(candidates_.size())),
                       candidates_.end(), [&](const std::vector<AckEntry>& entries) {
                         for (size_t path = 0; path < model::kPaths; ++path) {
                           bool same = entries[path].epoch == expected.epoch[path] &&
                                       entries[path].chunks == expected.chunks[path] &&
                                       (entries[path].down != 0) == expected.down[path];
                           if (!same) return false;
                         }
                         return true;
                       });
  }

  std::mt19937_64 random_;
  const model::Model model_;
  model::State state_ = [] {
    model::State state;
    for (auto& receiver : state.receiver) receiver.writing = receiver.discarding = receiver.aside = -1;
    return state;
  }();
  std::shared_ptr<Net> net_;
  std::shared_ptr<Listener> listener_;
  std::shared_ptr<RecvComm> recv_;
  std::vector<char> buffer_ = std::vector<char>(kChunks * kChunkBytes, '.');
  Request* request_ = nullptr;
  std::array<std::unique_ptr<HandmadeStream>, model::kPaths> clients_;
  std::array<uint64_t, model::kPaths> bytes_{};
  std::vector<std::vector<AckEntry>> candidates_;
  std::string history_;
  std::string told_;
};

TEST(Conformance, TheRealReceiverFollowsTheModel) {
  int complete = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    uint64_t seed = TestSeed() * 1000 + i;
    Walk walk(seed);
    ASSERT_EQ(walk.Run(), "") << "walk " << seed;
    complete += walk.complete() ? 1 : 0;
  }
  EXPECT_GT(complete, 3);
}

TEST(Conformance, AnotherModelIsNotFollowed) {
  for (model::Mutation mutation : {model::Mutation::kCountsAtTheBeginning, model::Mutation::kCountSurvivesTheStream}) {
    bool differs = false;
    for (uint64_t seed = 1; seed < 10 && !differs; ++seed) differs = !Walk(seed, mutation).Run(0.5).empty();
    EXPECT_TRUE(differs) << static_cast<int>(mutation);
  }
}

// The last piece of a message may come by a faster path than one that said that its acknowledgement has time. The
// sender waits for the word all the same: it is on its way before the receive is done, and not only with a tick.
TEST(Conformance, AWholeMessageIsAcknowledgedAtOnceWhateverCameLast) {
  constexpr int kMessages = 20;
  constexpr int kMostLate = 5;  // a starved kernel may hand over what was sent a little later
  std::shared_ptr<Net> net;
  std::shared_ptr<Listener> listener;
  std::shared_ptr<RecvComm> recv;
  ASSERT_TRUE(Net::Create(PatientParams(2), LoopbackNics(2, 2), &net).ok());
  net->environment().program_polls = true;
  ASSERT_TRUE(net->Listen(&listener).ok());
  std::vector<std::unique_ptr<HandmadeStream>> paths;
  for (uint16_t path = 0; path < 2; ++path) {
    paths.push_back(std::make_unique<HandmadeStream>(listener->handle(), path));
    paths.back()->Say(EncodeHello(path, 1, kConnection, 2, listener->handle().secret));
    ASSERT_TRUE(Until([&] { return paths.back()->Newest().has_value(); }));
  }
  ASSERT_TRUE(Until([&] { return (recv = listener->Accept()) != nullptr; }));
  auto send = [&](uint16_t path, uint64_t message, uint64_t offset, uint32_t flags) {
    Frame frame{.type = FrameType::kData, .path = path, .epoch = 1, .body_bytes = kChunkBytes, .a = message};
    frame.b = 2 * kChunkBytes;
    frame.c = offset;
    frame.d = kChunkBytes;
    frame.flags = kBulkFlag | flags;
    std::string bytes(kHeaderBytes, '\0');
    EncodeFrame(frame, reinterpret_cast<uint8_t*>(bytes.data()));
    paths[path]->Say(bytes + std::string(kChunkBytes, 'x'));
  };
  int late = 0;
  for (uint64_t message = 0; message < kMessages; ++message) {
    std::vector<char> buffer(2 * kChunkBytes);
    Request* request = nullptr;
    ASSERT_TRUE(recv->Irecv(buffer.data(), buffer.size(), &request).ok());
    auto seen = [&](int path, uint64_t chunks) {
      bool has = false;
      for (auto& stream : paths) {
        auto newest = stream->Newest();
        has = has || (newest && (*newest)[static_cast<size_t>(path)].chunks >= chunks);
      }
      return has;
    };
    send(0, message, kChunkBytes, 0);
    ASSERT_TRUE(Until([&] { return seen(0, message + 1); }));
    send(1, message, 0, kPatientFlag);
    bool done = false;
    while (!done) ASSERT_TRUE(recv->Test(request, &done, nullptr).ok());
    if (seen(1, message + 1)) continue;
    ++late;
    ASSERT_TRUE(Until([&] { return seen(1, message + 1); }));
  }
  EXPECT_LE(late, kMostLate);
  paths.clear();
  recv->Close();
  net->Shutdown();
}

}  // namespace
}  // namespace r2ccl
