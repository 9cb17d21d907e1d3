// The real receiving end, fed by streams that are written by hand: what it says, and when.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pair.h"

namespace r2ccl {
namespace {

constexpr uint32_t kChunkBytes = 4096;
constexpr uint64_t kConnection = 4711;

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
      if (frame.type == FrameType::kAck) {
        ++words_;
        posted_ = frame.a;
      }
      heard_.erase(0, kHeaderBytes + frame.body_bytes);
    }
    return newest;
  }

  // How many acknowledgements `Newest` has seen.
  int words() const { return words_; }
  // The receives that the newest of them told of.
  uint64_t posted() const { return posted_; }

 private:
  Fd fd_;
  std::string heard_;
  int words_ = 0;
  uint64_t posted_ = 0;
};

// The last piece of a message may come by a faster path than one that said that its acknowledgement has time. The
// sender waits for the word all the same: it is on its way before the receive is done, and not only with a tick.
TEST(Receiver, AWholeMessageIsAcknowledgedAtOnceWhateverCameLast) {
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

// Who says that it will ask for it has one acknowledgement sent for many messages whose sender has time.
TEST(Receiver, WhoTellsLaterHasManyMessagesAcknowledgedTogether) {
  constexpr uint64_t kMessages = 200;
  for (bool tells : {false, true}) {
    SCOPED_TRACE(tells);
    std::shared_ptr<Net> net;
    std::shared_ptr<Listener> listener;
    std::shared_ptr<RecvComm> recv;
    ASSERT_TRUE(Net::Create(PatientParams(2), LoopbackNics(2, 1), &net).ok());
    ASSERT_TRUE(net->Listen(&listener).ok());
    HandmadeStream path(listener->handle(), 0);
    path.Say(EncodeHello(0, 1, kConnection, 1, listener->handle().secret));
    ASSERT_TRUE(Until([&] { return path.Newest().has_value(); }));
    ASSERT_TRUE(Until([&] { return (recv = listener->Accept()) != nullptr; }));
    if (tells) recv->ExpectTell();
    std::vector<char> buffers((kMessages + 1) * 64);
    std::vector<Request*> requests(kMessages + 1);  // one more than come
    for (uint64_t i = 0; i <= kMessages; ++i) {
      ASSERT_TRUE(recv->Irecv(buffers.data() + i * 64, 64, &requests[i]).ok());
    }
    // Each receive has a word of its own before anything has come.
    ASSERT_TRUE(Until([&] { return (void)path.Newest(), path.posted() == kMessages + 1; }));
    std::string all;
    for (uint64_t message = 0; message < kMessages; ++message) {
      Frame frame{.type = FrameType::kData, .path = 0, .epoch = 1, .body_bytes = 64, .a = message};
      frame.b = 64;
      frame.d = kChunkBytes;
      frame.flags = kPatientFlag | kEarlyFlag;
      std::string bytes(kHeaderBytes, '\0');
      EncodeFrame(frame, reinterpret_cast<uint8_t*>(bytes.data()));
      all += bytes + std::string(64, 'x');
    }
    int before = path.words();
    path.Say(all);
    for (uint64_t i = 0; i < kMessages; ++i) {
      bool done = false;
      while (!done) ASSERT_TRUE(recv->Test(requests[i], &done, nullptr).ok());
    }
    recv->Tell();
    ASSERT_TRUE(Until([&] {
      auto newest = path.Newest();
      return newest && (*newest)[0].chunks == kMessages;
    }));
    int words = path.words() - before;
    EXPECT_EQ(words < static_cast<int>(kMessages) / 2, tells) << words;
    recv->Close();
    net->Shutdown();
  }
}

}  // namespace
}  // namespace r2ccl
