// Making of pairs, and the traffic.
#include "pair.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/clock.h"

namespace r2ccl {
namespace {

constexpr char kOverwritten = '\xa5';
constexpr auto kPause = std::chrono::microseconds(200);

uint64_t Scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The last events of one end: the first thing one wants to know of a failed test.
void PrintLog(const char* name, Net& net) {
  constexpr size_t kEvents = 30;
  auto events = net.environment().log.Snapshot();
  for (size_t i = events.size() > kEvents ? events.size() - kEvents : 0; i < events.size(); ++i) {
    const Event& event = events[i];
    std::printf("%s %.3f ms %s %s %s\n", name, static_cast<double>(event.wall_ns % 1'000'000'000'000) / 1e6,
                event.kind.c_str(), event.peer.c_str(), event.detail.c_str());
  }
}

void Must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

}  // namespace

uint64_t TestSeed() {
  const char* text = std::getenv("R2CCL_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

bool Until(const std::function<bool()>& condition, double seconds) {
  int64_t deadline_ns = NowNs() + static_cast<int64_t>(seconds * 1e9);
  while (!condition()) {
    if (NowNs() > deadline_ns) return condition();
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

std::vector<Nic> LoopbackNics(int host, int count) {
  std::vector<Nic> nics(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    std::string address = "127.0." + std::to_string(host) + "." + std::to_string(i + 1);
    Must(FindNic("lo", address, &nics[static_cast<size_t>(i)]));
  }
  return nics;
}

Params QuickParams(int mode) {
  Params params;
  params.mode = mode;
  params.stall_min_ms = 40;
  params.probe_ms = 5;
  params.probe_max_ms = 50;
  params.connect_ms = mode == 0 ? 2000 : 200;  // mode 0 does not try twice
  params.give_up_ms = 20000;
  params.flap_half_life_ms = 20;
  return params;
}

Params PatientParams(int mode) {
  Params params = QuickParams(mode);
  params.stall_min_ms = 10000;
  params.connect_ms = 10000;
  return params;
}

size_t CountEvents(Net& net, const std::string& kind) {
  auto events = net.environment().log.Snapshot();
  return static_cast<size_t>(
      std::count_if(events.begin(), events.end(), [&](const Event& event) { return event.kind == kind; }));
}

bool AnyEvent(Net& net, const std::string& kind, const std::string& text) {
  auto events = net.environment().log.Snapshot();
  return std::any_of(events.begin(), events.end(), [&](const Event& event) {
    return event.kind == kind && event.detail.find(text) != std::string::npos;
  });
}

Pair::Pair(const Params& sender_params, const Params& receiver_params, int paths) {
  Must(Net::Create(sender_params, LoopbackNics(1, paths), &sender));
  Must(Net::Create(receiver_params, LoopbackNics(2, paths), &receiver));
  Must(receiver->Listen(&listener));
  relay = std::make_unique<Relay>(listener->handle());
}

Pair::~Pair() {
  if (testing::Test::HasFailure()) PrintLogs();
  if (send) send->Close();
  if (recv) recv->Close();
  sender->Shutdown();
  receiver->Shutdown();
}

void Pair::PrintLogs() {
  PrintLog("sender", *sender);
  PrintLog("receiver", *receiver);
}

Status Pair::Open(double seconds) {
  Status status = sender->Connect(relay->handle(), &send);
  bool ready = false;
  auto opened = [&] {
    if (status.ok() && !ready) status = send->Ready(&ready);
    if (recv == nullptr) recv = listener->Accept();
    return !status.ok() || (ready && recv != nullptr);
  };
  if (status.ok() && !Until(opened, seconds)) return {Code::kTimeout, "the pair did not open"};
  // Ready means that one is up. What is still being connected would hold descriptors, and be missed by who counts.
  auto all_up = [&] { return PathsUp() == relay->good_paths() || !send->failure().ok(); };
  if (status.ok() && !Until(all_up, seconds)) return {Code::kTimeout, "a path did not come up"};
  return status;
}

int Pair::PathsUp() {
  auto up = [](Net& net) {
    int total = 0;
    for (const NicHealth& health : net.Health()) total += health.up;
    return total;
  };
  return std::min(up(*sender), up(*receiver));
}

void Traffic::FillMessage(uint64_t number, std::vector<char>* out) const {
  uint64_t key = Scramble(options_.seed * 1000003 + number);
  size_t size = options_.sizes[number];
  out->resize(size);
  for (size_t at = 0; at < size; at += 8) {
    uint64_t word = Scramble(key + at);
    std::memcpy(out->data() + at, &word, std::min<size_t>(8, size - at));
  }
}

bool Traffic::PostSends() {
  while (next_send_ < options_.sizes.size() && sends_.size() < options_.sends_ahead) {
    Slot slot{next_send_++, {}, nullptr};
    FillMessage(slot.number, &slot.buffer);
    send_status = isend_(slot.buffer.data(), slot.buffer.size(), &slot.request);
    if (!send_status.ok()) return false;
    sends_.push_back(std::move(slot));
  }
  return true;
}

bool Traffic::PostReceives() {
  while (next_receive_ < options_.sizes.size() && receives_.size() < options_.receives_ahead) {
    Slot slot{next_receive_, {}, nullptr};
    slot.buffer.assign(options_.sizes[slot.number] + options_.extra_capacity, kOverwritten);
    recv_status = irecv_(slot.buffer.data(), slot.buffer.size(), &slot.request);
    if (!recv_status.ok()) return false;
    if (slot.request == nullptr) break;  // later
    ++next_receive_;
    receives_.push_back(std::move(slot));
  }
  return true;
}

// Sends complete in any order; each is overwritten at once.
bool Traffic::ReapSends() {
  for (auto slot = sends_.begin(); slot != sends_.end();) {
    bool done = false;
    send_status = slot->request->owner->Test(slot->request, &done, nullptr);
    if (!send_status.ok()) return false;
    if (!done) {
      ++slot;
      continue;
    }
    std::fill(slot->buffer.begin(), slot->buffer.end(), kOverwritten);
    slot = sends_.erase(slot);
  }
  return true;
}

bool Traffic::ReapReceives(std::string* wrong) {
  std::vector<char> expected;
  for (auto slot = receives_.begin(); slot != receives_.end();) {
    bool done = false;
    uint64_t size = 0;
    recv_status = slot->request->owner->Test(slot->request, &done, &size);
    if (!recv_status.ok()) return false;
    if (!done) {
      ++slot;
      continue;
    }
    FillMessage(slot->number, &expected);
    expected.resize(slot->buffer.size(), kOverwritten);  // nothing is written beyond the message
    if (size != options_.sizes[slot->number] || expected != slot->buffer) {
      *wrong = "message " + std::to_string(slot->number) + " came wrong";
      return false;
    }
    received_bytes_ += size;
    std::fill(slot->buffer.begin(), slot->buffer.end(), kOverwritten);
    finished_.push_back(std::move(slot->buffer));
    slot = receives_.erase(slot);
  }
  return true;
}

std::string Traffic::Run(const During& during) {
  std::string wrong;
  int64_t deadline_ns = NowNs() + static_cast<int64_t>(options_.seconds * 1e9);
  while (next_send_ < options_.sizes.size() || next_receive_ < options_.sizes.size() || !sends_.empty() ||
         !receives_.empty()) {
    size_t before = sends_.size() + receives_.size();
    bool sending = PostSends() && ReapSends();
    bool receiving = PostReceives() && ReapReceives(&wrong);
    if (!wrong.empty()) return wrong;
    if (!sending) return "send: " + send_status.message();
    if (!receiving) return "receive: " + recv_status.message();
    if (during) during(received_bytes_);
    if (NowNs() > deadline_ns) {
      return "hangs: " + std::to_string(sends_.size()) + " sends and " + std::to_string(receives_.size()) +
             " receives are open";
    }
    if (sends_.size() + receives_.size() == before) std::this_thread::sleep_for(kPause);
  }
  for (const auto& buffer : finished_) {
    auto same = [](char byte) { return byte == kOverwritten; };
    if (!std::all_of(buffer.begin(), buffer.end(), same)) return "a buffer was touched after its receive was done";
  }
  return {};
}

}  // namespace r2ccl
