// What a flow sends and receives, at both ends.
#include "wire/simulated/flow_program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <utility>

#include "failover/own_share.h"
#include "plugin/connections.h"

namespace r2ccl::simulated {
namespace {

// Eight bytes of a message: others at each place, in each message and flow.
constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
uint64_t Mixed(uint64_t product) { return product ^ product >> 29; }
uint64_t RightWord(uint64_t key, size_t place) { return Mixed((key + place) * kFactor); }

uint64_t KeyOf(uint64_t seed, size_t flow, size_t message) {
  return RightWord(seed, flow) ^ RightWord(seed + 1, message) << 1;
}

void FillRight(uint64_t key, const Buffer& buffer) {
  char* data = buffer.data();
  size_t whole = buffer.size() / 8 * 8;
  uint64_t product = key * kFactor;
  for (size_t i = 0; i < whole; i += 8, product += 8 * kFactor) {
    uint64_t word = Mixed(product);
    std::memcpy(data + i, &word, 8);
  }
  uint64_t last = RightWord(key, whole);
  std::memcpy(data + whole, &last, buffer.size() - whole);
}

// The first place of `size` bytes that is wrong; `size` where none is.
size_t FirstWrong(uint64_t key, const char* data, size_t size) {
  // Whole blocks first, with one question for each of them instead of one for each word.
  constexpr size_t kBlock = 512;
  size_t place = 0;
  for (; place + kBlock <= size; place += kBlock) {
    uint64_t differs = 0;
    uint64_t product = (key + place) * kFactor;
    for (size_t i = 0; i < kBlock; i += 8, product += 8 * kFactor) {
      uint64_t word;
      std::memcpy(&word, data + place + i, 8);
      differs |= word ^ Mixed(product);
    }
    if (differs != 0) break;
  }
  for (; place < size; place += 8) {
    uint64_t word = RightWord(key, place);
    if (std::memcmp(data + place, &word, std::min<size_t>(8, size - place)) != 0) return place;
  }
  return size;
}

class DirectSend final : public SendEnd {
 public:
  DirectSend(std::shared_ptr<SendComm> comm, const std::vector<double>& shares) : comm_(std::move(comm)) {
    if (!shares.empty()) shares_ = std::make_shared<const std::vector<double>>(shares);
  }
  Status Ready(bool* ready) override { return comm_->Ready(ready); }
  Status Isend(const void* data, uint64_t size, Request** request) override {
    return comm_->Isend(data, size, request, false, 0, shares_);
  }
  Status failure() const override { return comm_->failure(); }
  void Close() override { comm_->Close(); }
  void AddHealth(std::vector<NicHealth>* health) const override { comm_->AddHealth(health); }

 private:
  const std::shared_ptr<SendComm> comm_;
  NicShares shares_;
};

class DirectRecv final : public RecvEnd {
 public:
  explicit DirectRecv(uint64_t connection) : connection_(connection) {}
  bool Ready() override { return comm_ != nullptr; }
  bool Take(const std::shared_ptr<RecvComm>& comm) override {
    if (comm->connection() != connection_) return false;
    comm_ = comm;
    return true;
  }
  Status Irecv(void* data, uint64_t capacity, Request** request, bool watched) override {
    return comm_->Irecv(data, capacity, request, watched);
  }
  Status failure() const override { return comm_->failure(); }
  void Close() override {
    if (comm_ != nullptr) comm_->Close();
  }
  void AddHealth(std::vector<NicHealth>* health) const override {
    if (comm_ != nullptr) comm_->AddHealth(health);
  }

 private:
  const uint64_t connection_;
  std::shared_ptr<RecvComm> comm_;
};

// What the receiving end gives to the sending one, by a network that is no matter of ours.
using HandleBytes = std::array<char, kHandleBytes>;

class NcclSend final : public SendEnd {
 public:
  NcclSend(plugin::Connections* connections, int device, std::shared_ptr<HandleBytes> handle)
      : connections_(connections), device_(device), handle_(std::move(handle)) {}
  Status Ready(bool* ready) override {
    *ready = false;
    if ((*handle_)[0] == 0) return {};  // the other end does not listen yet
    Status status;
    if (group_ == nullptr) status = connections_->Connect(device_, handle_->data(), &group_);
    *ready = group_ != nullptr;
    return status;
  }
  Status Isend(const void* data, uint64_t size, Request** request) override {
    return group_->Isend(data, size, request);
  }
  Status failure() const override { return group_ == nullptr ? Status() : group_->failure(); }
  void Close() override {
    if (group_ != nullptr) group_->Close();
  }
  void AddHealth(std::vector<NicHealth>* health) const override {
    if (group_ == nullptr) return;
    for (const auto& comm : group_->comms()) comm->AddHealth(health);
  }

 private:
  plugin::Connections* const connections_;
  const int device_;
  const std::shared_ptr<HandleBytes> handle_;
  std::unique_ptr<plugin::SendGroup> group_;
};

class NcclRecv final : public RecvEnd {
 public:
  NcclRecv(plugin::Connections* connections, std::shared_ptr<HandleBytes> handle)
      : connections_(connections), handle_(std::move(handle)) {}
  bool Ready() override {
    if (group_ != nullptr || closed_) return group_ != nullptr;
    if (listener_ == nullptr && !connections_->Listen(handle_->data(), &listener_).ok()) return false;
    group_ = plugin::Connections::Accept(listener_.get());
    if (group_ != nullptr) connections_->CloseListen(std::move(listener_));
    return group_ != nullptr;
  }
  bool Take(const std::shared_ptr<RecvComm>&) override { return false; }
  Status Irecv(void* data, uint64_t capacity, Request** request, bool watched) override {
    return group_->Irecv(data, capacity, request, watched);
  }
  Status failure() const override { return group_ == nullptr ? Status() : group_->failure(); }
  void Close() override {
    closed_ = true;
    if (group_ != nullptr) group_->Close();
    if (listener_ != nullptr) connections_->CloseListen(std::move(listener_));
  }
  void AddHealth(std::vector<NicHealth>* health) const override {
    if (group_ == nullptr) return;
    for (const auto& comm : group_->comms()) comm->AddHealth(health);
  }

 private:
  plugin::Connections* const connections_;
  const std::shared_ptr<HandleBytes> handle_;
  std::unique_ptr<plugin::ListenComm> listener_;
  std::unique_ptr<plugin::RecvGroup> group_;
  bool closed_ = false;
};

}  // namespace

FlowProgram::FlowProgram(const Scenario& scenario, size_t number, World* world, Process* from, Process* to)
    : params_(scenario.params),
      seed_(scenario.seed),
      has_troubles_(!scenario.troubles.empty()),
      flow_(scenario.flows[number]),
      number_(number),
      world_(world),
      from_(from),
      to_(to) {
  if (flow_.by_nccl) {
    auto handle = std::make_shared<HandleBytes>();
    sender_ = std::make_unique<NcclSend>(&from->connections(), flow_.home, handle);
    receiver_ = std::make_unique<NcclRecv>(&to->connections(), handle);
    return;
  }
  uint64_t connection = 0x1000 * (number + 1);
  sender_ = std::make_unique<DirectSend>(from->Connect(connection, to->handle()), flow_.shares);
  receiver_ = std::make_unique<DirectRecv>(connection);
}

FlowProgram::~FlowProgram() = default;

void FlowProgram::Run(int host) {
  if (host == flow_.from) RunSender();
  if (host == flow_.to) RunReceiver();
}

void FlowProgram::RunSender() {
  if (send_ended_) return;
  bool ready = false;
  if (!sender_->Ready(&ready).ok()) return EndSender();
  bool later = false;
  while (ready && !later && next_send_ < flow_.sizes.size() && sends_.size() < flow_.ahead &&
         world_->Now() >= next_send_ns_) {
    if (!Send(&later)) return EndSender();
  }
  for (size_t i = 0; i < sends_.size();) {
    bool done = false;
    uint64_t size = 0;
    Status status = sends_[i].request->owner->Test(sends_[i].request, &done, &size);
    if (!status.ok()) return EndSender();
    if (!done) {
      ++i;
      continue;
    }
    CheckLet(*from_, sends_[i].data, "a send");
    CheckArrived(sends_[i]);
    Unregister(from_, flow_.registers_sends, sends_[i].data);
    Overwrite(sends_[i].data);
    sends_.erase(sends_.begin() + static_cast<ptrdiff_t>(i));
    ++sent_;
  }
  if (all_sent() && flow_.closes_early) {
    sender_->Close();
    send_ended_ = true;
  }
}

void FlowProgram::RunReceiver() {
  if (receive_ended_ || !receiver_->Ready()) return;
  received_any_ = true;
  bool later = false;
  while (!later && next_receive_ < flow_.sizes.size() && receives_.size() < flow_.ahead &&
         world_->Now() >= next_receive_ns_) {
    if (!Receive(&later)) return EndReceiver();
  }
  while (!receives_.empty()) {
    bool done = false;
    uint64_t size = 0;
    Request* request = receives_.front().request;
    Status status = request->owner->Test(request, &done, &size);
    if (!status.ok()) return EndReceiver();
    if (!done) return;
    CheckReceived(receives_.front().data, size);
    Keep(std::move(receives_.front().data));
    receives_.pop_front();
    if (++received_ == flow_.leaves_after) return Leave();
  }
}

// Of a flow whose peer has ended only the end that lives is asked.
bool FlowProgram::IsOver() const {
  bool sent = all_sent() || send_ended_ || !from_->is_alive();
  bool received = all_received() || receive_ended_ || !to_->is_alive();
  return sent && received;
}

std::string FlowProgram::State() const {
  std::ostringstream text;
  text << "flow " << number_ << " host" << flow_.from << ">host" << flow_.to << ": " << sent_ << " sent"
       << (send_ended_ ? " (ended: " + sender_->failure().message() + ")" : "") << ", " << received_ << " received"
       << (receive_ended_ ? " (ended: " + receiver_->failure().message() + ")" : "") << " of " << flow_.sizes.size();
  return text.str();
}

std::string FlowProgram::CheckEnd(const std::vector<bool>& doomed) const {
  bool from_doomed = doomed[static_cast<size_t>(flow_.from)];
  bool to_doomed = doomed[static_cast<size_t>(flow_.to)];
  if (from_doomed || to_doomed) {
    bool sender_waits = !from_doomed && !all_sent() && !send_ended_ && received_any_;
    bool receiver_waits = !to_doomed && received_any_ && !all_received() && !receive_ended_;
    if (!flow_.by_nccl) sender_waits = !from_doomed && !all_sent() && !send_ended_;
    return sender_waits || receiver_waits ? "a peer's end was not noticed within the limit: " + State() : "";
  }
  if (has_left_) {
    return all_sent() || send_ended_ ? "" : "a receiver that left was not noticed: " + State();
  }
  if (all_sent() && all_received()) return "";
  // Of a sender that has closed, copies are delivered for a second only.
  bool may_fail = has_troubles_ && (params_.mode == 0 || (flow_.closes_early && all_sent()));
  if (!may_fail) return "a connection did not do all its messages: " + State();
  bool is_over = (all_sent() || send_ended_) && (all_received() || receive_ended_ || !received_any_);
  return is_over ? "" : "a failed connection left requests waiting: " + State();
}

void FlowProgram::AddHealth(std::vector<NicHealth>* health) const {
  if (flow_.closes_early || has_left_) return;
  sender_->AddHealth(health);
  receiver_->AddHealth(health);
}

void FlowProgram::Close() {
  sender_->Close();
  EndSends();
  receiver_->Close();
  while (!receives_.empty()) {
    Keep(std::move(receives_.front().data));
    receives_.pop_front();
  }
}

void FlowProgram::CheckNoneWaits() {
  auto waits = [](const Pending& pending) {
    bool done = false;
    Comm& owner = *pending.request->owner;
    return !owner.failure().ok() && owner.Test(pending.request, &done, nullptr).ok() && !done;
  };
  for (const Pending& send : sends_) {
    if (from_->is_alive() && !flow_.closes_early && waits(send)) Break("a send of a failed connection waits for ever");
  }
  for (const Pending& receive : receives_) {
    if (to_->is_alive() && waits(receive)) Break("a receive of a failed connection waits for ever");
  }
}

void FlowProgram::CheckKept() {
  for (const auto& data : kept_) {
    if (!IsAsLeft(data)) Break("a buffer was written after its receive had completed");
  }
}

int FlowProgram::Extend() {
  constexpr size_t kMessages = 2;
  constexpr int64_t kPieces = 8;  // at least, so that each NIC can get one
  // Twice as much as is copied: copies keep to one NIC.
  uint64_t bytes = std::max(2 * OwnShare::kAloneBytes, static_cast<uint64_t>(kPieces * params_.min_chunk_bytes));
  bool open = all_sent() && all_received() && !send_ended_ && !receive_ended_ && flow_.leaves_after == 0;
  if (!open || flow_.by_nccl || !flow_.shares.empty()) return -1;  // who has a home or shares need not use all NICs
  flow_.sizes.insert(flow_.sizes.end(), kMessages, bytes);
  flow_.ahead = kMessages;
  flow_.pause_ns = next_send_ns_ = next_receive_ns_ = 0;
  flow_.late_receives = false;
  from_->WakeProgram();
  to_->WakeProgram();
  return flow_.from;
}

void FlowProgram::Keep(Buffer data) {
  CheckLet(*to_, data, "a receive");
  Unregister(to_, flow_.registers_receives, data);
  Overwrite(data);
  kept_.push_back(std::move(data));
}

// What is neither copied nor early has arrived in its place when its send is done.
void FlowProgram::CheckArrived(const Pending& send) {
  if (flow_.sizes[send.message] <= static_cast<uint64_t>(params_.eager_bytes)) return;
  bool arrived = send.message < received_ || arrived_before_.contains(send.message) ||
                 std::any_of(
                     receives_.begin(), receives_.end(),
                     [&send](const Pending& receive) {
                       return receive.message == send.message && receive.request->state.load() == Request::kDone;
                     });
  if (!arrived) Break("a send was told done that did not arrive");
}

// The program has what it wants and closes, whatever the other end still has to send.
void FlowProgram::Leave() {
  for (const Pending& receive : receives_) {
    if (receive.request->state.load() == Request::kDone) arrived_before_.insert(receive.message);
  }
  receiver_->Close();
  has_left_ = receive_ended_ = true;
  for (Pending& receive : receives_) Keep(std::move(receive.data));
  receives_.clear();
}

bool FlowProgram::Send(bool* later) {
  size_t size = flow_.sizes[next_send_];
  if (!unsent_) FillRight(KeyOf(seed_, number_, next_send_), unsent_.emplace(size));
  Register(from_, flow_.registers_sends, *unsent_);
  Request* request = nullptr;
  Status status = sender_->Isend(unsent_->data(), size, &request);
  if (request == nullptr) Unregister(from_, flow_.registers_sends, *unsent_);
  if (!status.ok()) return false;
  *later = request == nullptr;
  if (*later) return true;
  sends_.push_back({std::move(*unsent_), request, next_send_});
  unsent_.reset();
  ++next_send_;
  if (flow_.pause_ns > 0) {
    next_send_ns_ = world_->Now() + flow_.pause_ns;
    world_->At(next_send_ns_, [process = from_] { process->WakeProgram(); });
  }
  return true;
}

bool FlowProgram::Receive(bool* later) {
  if (!unposted_) Overwrite(unposted_.emplace(flow_.sizes[next_receive_] + next_receive_ % 3));
  Register(to_, flow_.registers_receives, *unposted_);
  Request* request = nullptr;
  bool watched = flow_.by_nccl && next_receive_ % 5 == 0;
  Status status = receiver_->Irecv(unposted_->data(), unposted_->size(), &request, watched);
  if (request == nullptr) Unregister(to_, flow_.registers_receives, *unposted_);
  if (!status.ok()) return false;
  *later = request == nullptr;
  if (*later) return true;
  receives_.push_back({std::move(*unposted_), request, next_receive_});
  unposted_.reset();
  ++next_receive_;
  if (flow_.late_receives) {
    next_receive_ns_ = world_->Now() + 2 * flow_.pause_ns + kMillisecond;
    world_->At(next_receive_ns_, [process = to_] { process->WakeProgram(); });
  }
  return true;
}

void FlowProgram::CheckReceived(const Buffer& data, uint64_t size) {
  bool as_sent = size == flow_.sizes[received_];
  size_t place = as_sent ? FirstWrong(KeyOf(seed_, number_, received_), data.data(), size) : 0;
  if (as_sent && place == size) return;
  std::string which = "message " + std::to_string(received_) + " of flow " + std::to_string(number_);
  std::string bytes = std::to_string(size);
  if (as_sent) return Break(which + " is wrong near byte " + std::to_string(place) + " of " + bytes);
  Break(which + " came with " + bytes + " bytes instead of " + std::to_string(flow_.sizes[received_]));
}

void FlowProgram::EndSender() {
  send_ended_ = true;
  EndSends();
}

// A group of NCCL's ends with the first of its stripes; the requests of the others end with their next tick.
void FlowProgram::EndSends() {
  for (const Pending& send : sends_) {
    if (send.request->state.load() == Request::kPending) continue;
    CheckLet(*from_, send.data, "a send");
    Unregister(from_, flow_.registers_sends, send.data);
  }
}

void FlowProgram::EndReceiver() {
  receive_ended_ = true;
  for (const Pending& receive : receives_) {
    if (receive.request->state.load() == Request::kPending) continue;
    Unregister(to_, flow_.registers_receives, receive.data);
  }
}

}  // namespace r2ccl::simulated
