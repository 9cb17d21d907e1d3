// What Net does for TCP: greetings, ticks, links, questions. And what a kernel does: sockets by number, refusals.
#include "wire/simulated/process.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "wire/simulated/socket_stream.h"

namespace r2ccl::simulated {
namespace {

constexpr int64_t kMostWakeNs = 30'000;  // until a process that is woken runs
constexpr int64_t kLookNs = 100 * kMillisecond;

}  // namespace

// A stream that has not yet said whose it is.
struct Process::Guest final : SocketUser {
  Process* process = nullptr;
  std::shared_ptr<Socket> socket;
  int nic = 0;
  in_addr remote{};
  std::string heard;
  int64_t deadline_ns = 0;
  bool woken = false;
  void OnChange() override {
    if (std::exchange(woken, true)) return;
    process->Soon([at = process, number = socket->number()] {
      auto guest = at->guests_.find(number);
      if (guest != at->guests_.end()) at->ReadGuest(guest->second.get());
    });
  }
};

Status SimulatedWire::Dial(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic, NicTraffic* traffic,
                           in_addr remote, uint16_t, std::shared_ptr<Stream>* stream) {
  int rail = RailOf(nic.address.s_addr);
  if (!process_->world_->port(process_->host_, rail).link) return {Code::kSystem, "Network is unreachable"};
  std::string why_not = process_->verbs_.WhyNotDial(nic, remote);
  if (!why_not.empty()) return {Code::kSystem, why_not};
  auto socket = process_->MakeSocket(rail, process_->world_->NextNumber(), remote.s_addr);
  *stream = Make(owner, path, nic, traffic, std::move(socket), remote, true);
  return {};
}

std::shared_ptr<Stream> SimulatedWire::Adopt(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic,
                                             NicTraffic* traffic, std::shared_ptr<Socket> socket, in_addr remote) {
  return Make(owner, path, nic, traffic, std::move(socket), remote, false);
}

std::shared_ptr<Stream> SimulatedWire::Make(const std::shared_ptr<StreamOwner>& owner, int path, const Nic& nic,
                                            NicTraffic* traffic, std::shared_ptr<Socket> socket, in_addr remote,
                                            bool dialled) {
  if (process_->rdma_ == nullptr) {
    auto made = std::make_shared<SocketStream>(process_, owner.get(), path, traffic, std::move(socket));
    dialled ? made->AwaitConnection(owner) : made->SetOwner(owner);
    return made;
  }
  auto made =
      std::make_shared<VerbsStream>(&process_->verbs_, &process_->loop_, owner, path, nic, traffic, remote, dialled);
  made->Begin(std::make_shared<SocketStream>(process_, made.get(), path, traffic, std::move(socket)));
  std::erase_if(process_->verbs_streams_, [](const auto& weak) { return weak.expired(); });
  process_->verbs_streams_.push_back(made);
  return made;
}

uint64_t SimulatedLoop::Add(int fd, uint32_t events, int tag, std::shared_ptr<Pollable> target) {
  watched_[++last_id_] = {fd, events, tag, std::move(target)};
  CallSoon(last_id_);
  return last_id_;
}

void SimulatedLoop::Modify(uint64_t id, uint32_t events) {
  auto known = watched_.find(id);
  if (known == watched_.end()) return;
  known->second.events = events;
  CallSoon(id);
}

void SimulatedLoop::Remove(uint64_t id) {
  auto out = watched_.extract(id);  // what ends with it may remove others
}

void SimulatedLoop::Kick(std::shared_ptr<Kickable> target) {
  process_->Soon([target = std::move(target)] { target->OnKick(); });
}

void SimulatedLoop::OnReadable(int fd) {
  for (const auto& [id, watched] : watched_) {
    if (watched.fd == fd) CallSoon(id);
  }
}

void SimulatedLoop::CallSoon(uint64_t id) {
  Watched& watched = watched_[id];
  if (watched.events == 0 || watched.due || !process_->rdma_->IsReadable(watched.fd)) return;
  watched.due = true;
  process_->Soon([this, id] {
    auto known = watched_.find(id);
    if (known == watched_.end()) return;
    known->second.due = false;
    if (known->second.events == 0 || !process_->rdma_->IsReadable(known->second.fd)) return;
    auto target = known->second.target;
    target->OnEvents(id, known->second.tag, known->second.events);
    if (watched_.contains(id)) CallSoon(id);
  });
}

void SimulatedLoop::Clear() { std::exchange(watched_, {}); }

void SimulatedWire::Kick(std::shared_ptr<Kickable> target) {
  process_->Soon([target = std::move(target)] { target->OnKick(); });
}

Process::Process(World* world, int host, const Params& params, bool program_polls) : world_(world), host_(host) {
  environment_.params = params;
  environment_.clock = std::shared_ptr<const Clock>(std::shared_ptr<void>(), world);
  std::vector<Nic> nics;
  for (int rail = 0; rail < world->rails(); ++rail) nics.push_back(world->port(host, rail).nic);
  environment_.SetNics(std::move(nics));
  environment_.program_polls = program_polls;
  environment_.port = kPort;
  environment_.prober = this;
  locator_ = std::make_unique<Locator>(params.locate_ms * kMillisecond, environment_.nics, kPort, this,
                                       &environment_.log, [this](int nic) { return ThirdsOn(nic); });
  environment_.locator = locator_.get();
  witness_ = std::make_unique<Witness>(this, environment_.clock, environment_.nics);
  environment_.witness = witness_.get();
  drain_meter_ = std::make_unique<DrainMeter>(&environment_);
  if (params.transport != "tcp") {
    rdma_ = std::make_unique<RdmaDevice>(world, host, [this](int fd) { loop_.OnReadable(fd); });
    verbs_.maker = rdma_.get();
    verbs_.log = &environment_.log;
    verbs_.clock = environment_.clock;
    verbs_.random = [world] { return static_cast<uint32_t>(world->Draw(uint64_t{1} << 32)); };
    verbs_.strict = params.transport == "verbs";
    verbs_.write_bytes = params.zero_copy_bytes;
  } else {
    environment_.params.zero_copy_bytes = 0;  // as in Net::OpenRdma
  }
  ListenAnew();
  world->SetReceiver(host, this);
  world->Wait(static_cast<int64_t>(world->Draw(kTickNs)), [this, exists = std::weak_ptr(exists_)] {
    if (!exists.expired()) Tick();
  });
}

Process::~Process() {
  world_->SetReceiver(host_, nullptr);
  alive_ = false;
  ForgetAll();
}

void Process::ForgetAll() {
  loop_.Clear();
  std::vector<std::weak_ptr<SocketStream>> all;  // of which one may be gone with another
  for (SocketStream* stream : streams_) all.push_back(stream->weak_from_this());
  for (const auto& weak : all) {
    if (auto stream = weak.lock()) stream->LetGo();
  }
}

void Process::LoseQueues(int rail, const std::string& reason) {
  if (rdma_ == nullptr) return;
  for (const auto& weak : rdma_->Watchers(rail)) {
    Soon([weak, reason] {
      if (auto watcher = weak.lock()) watcher->OnQueueLost(reason);
    });
  }
}

void Process::SetRdmaGone(int rail, bool gone) {
  if (rdma_ == nullptr || !alive_) return;
  rdma_->SetGone(rail, gone);
  if (gone) LoseQueues(rail, "the device failed (DEVICE_FATAL)");
}

// Those that come to one of a process's listeners.
class Process::ListeningArrivals final : public plugin::Arrivals {
 public:
  ListeningArrivals(Process* process, std::shared_ptr<Listening> listening, int stripes)
      : handle_(process->HandleOf(*listening)), listening_(std::move(listening)) {
    handle_.stripes = stripes;
  }
  Handle handle() const override { return handle_; }
  std::shared_ptr<RecvComm> Accept() override {
    if (listening_->arrived.empty()) return nullptr;
    std::shared_ptr<RecvComm> comm = std::move(listening_->arrived.front());
    listening_->arrived.pop_front();
    return comm;
  }
  void Close() override {
    listening_->closed = true;
    for (const auto& comm : std::exchange(listening_->arrived, {})) comm->Close();
  }

 private:
  Handle handle_;
  const std::shared_ptr<Listening> listening_;
};

std::shared_ptr<Process::Listening> Process::ListenAnew() {
  listening_.push_back(std::make_shared<Listening>());
  for (uint8_t& byte : listening_.back()->secret) byte = static_cast<uint8_t>(world_->Draw(256));
  return listening_.back();
}

Handle Process::HandleOf(const Listening& listening) const {
  Handle made;
  made.port = kPort;
  made.secret = listening.secret;
  for (const Nic& nic : environment_.nics) made.addresses.push_back(nic.address);
  return made;
}

Status Process::Listen(int stripes, std::unique_ptr<plugin::Arrivals>* arrivals) {
  *arrivals = std::make_unique<ListeningArrivals>(this, ListenAnew(), stripes);
  return {};
}

Status Process::MakeUpConnection(uint64_t* connection) {
  *connection = world_->Draw(UINT64_MAX);
  return {};
}

Status Process::ConnectAs(uint64_t connection, const Handle& handle, int home, std::shared_ptr<SendComm>* comm) {
  *comm = Connect(connection, handle, home);
  return {};
}

std::shared_ptr<SendComm> Process::Connect(uint64_t connection, const Handle& to, int home) {
  auto made = std::make_shared<SendComm>(&environment_, &wire_, to, home, connection);
  senders_[connection] = made;
  made->Start();
  return made;
}

int64_t Process::WakeNs() { return 1000 + static_cast<int64_t>(world_->Draw(kMostWakeNs)); }

// Mostly the program looks at once; at times something else comes in between.
void Process::LookSoon() {
  if (world_->Draw(4) == 0) return RunProgramSoon();
  Look();
}

// A program that does not poll looks when something was told, and now and then, as the executor does.
void Process::Look() {
  if (program_ == nullptr) return;
  uint64_t told = environment_.notifier->Count();
  if (!environment_.program_polls && told == seen_ && world_->Now() < look_ns_) return;
  seen_ = told;
  look_ns_ = world_->Now() + kLookNs;
  program_();
}

void Process::RunProgramSoon() {
  if (program_ == nullptr || std::exchange(program_due_, true)) return;
  world_->After(WakeNs(), [this, exists = std::weak_ptr(exists_)] {
    if (exists.expired()) return;
    program_due_ = false;
    if (runs()) Look();
  });
}

void Process::Pause() { paused_ = true; }

void Process::Resume() {
  paused_ = false;
  world_->After(WakeNs(), [this, exists = std::weak_ptr(exists_)] {
    if (exists.expired() || !alive_ || paused_) return;
    std::vector<Task> all = std::exchange(put_off_, {});
    for (Task& what : all) what();
    LookSoon();
  });
}

void Process::Kill() {
  alive_ = false;
  if (rdma_ != nullptr) rdma_->Clear();
  for (auto& [number, socket] : std::exchange(sockets_, {})) socket->Finish();
  guests_.clear();
}

void Process::PowerOff() {
  powered_ = alive_ = false;
  world_->PowerOff(host_);
  if (rdma_ != nullptr) rdma_->Clear();
  for (auto& [number, socket] : sockets_) socket->SetUser(nullptr);
  sockets_.clear();
  guests_.clear();
}

size_t Process::sockets() const {
  return static_cast<size_t>(std::count_if(sockets_.begin(), sockets_.end(), [](const auto& entry) {
    return entry.second.use_count() > 1 || !entry.second->is_closing();
  }));
}

bool Process::has_nothing() const {
  auto lingers = [](const auto& entry) { return entry.second->lingers(); };
  return !alive_ ||
         (sockets_.empty() && guests_.empty() && asked_.empty() && put_off_.empty() &&
          (rdma_ == nullptr || rdma_->is_empty()) && std::none_of(senders_.begin(), senders_.end(), lingers) &&
          std::none_of(receivers_.begin(), receivers_.end(), lingers));
}

bool Process::Touches(const char* data, size_t bytes) const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [=](const SocketStream* stream) { return stream->Touches(data, bytes); }) ||
         std::any_of(verbs_streams_.begin(), verbs_streams_.end(), [=](const auto& weak) {
           auto stream = weak.lock();
           return stream != nullptr && stream->Touches(data, bytes);
         });
}

std::shared_ptr<Socket> Process::MakeSocket(int rail, uint64_t number, in_addr_t remote) {
  auto made = std::make_shared<Socket>(world_, host_, rail, number, remote);
  sockets_[number] = made;
  return made;
}

void Process::Tick() {
  int64_t wait_ns = runs() ? TickAll() : kTickNs;
  world_->Wait(wait_ns, [this, exists = std::weak_ptr(exists_)] {
    if (!exists.expired()) Tick();
  });
}

// Returns how long it takes until the next, as Poller does it.
int64_t Process::TickAll() {
  int64_t now_ns = world_->Now();
  drain_meter_->Sample(now_ns);
  TickQuestions(now_ns);
  locator_->Tick(now_ns);
  verbs_.farewells.Tick(now_ns);
  std::erase_if(guests_, [now_ns](const auto& entry) {
    if (now_ns <= entry.second->deadline_ns) return false;
    entry.second->socket->SetUser(nullptr);
    entry.second->socket->Reset();
    return true;
  });
  std::erase_if(sockets_, [](const auto& entry) { return entry.second->is_over() && entry.second.use_count() == 1; });
  for (const auto& [number, comm] : senders_) ticked_.push_back(comm);
  for (const auto& [number, comm] : receivers_) ticked_.push_back(comm);
  int64_t next_ns = now_ns + kTickNs;
  for (const auto& comm : ticked_) next_ns = std::min(next_ns, comm->Tick(now_ns));
  ticked_.clear();
  RunProgramSoon();
  return std::max(next_ns - now_ns, kMillisecond);
}

std::vector<Third> Process::ThirdsOn(int nic) {
  std::vector<Third> thirds;
  Third third;
  for (const auto& [number, comm] : senders_) {
    if (comm->ThirdOn(nic, &third)) thirds.push_back(third);
  }
  for (const auto& [number, comm] : receivers_) {
    if (comm->ThirdOn(nic, &third)) thirds.push_back(third);
  }
  return thirds;
}

void Process::OnLink(int nic, bool running) {
  if (!running && alive_) LoseQueues(nic, "the port went down (PORT_ERR)");
  Soon([this, nic, running] {
    environment_.nic_states[static_cast<size_t>(nic)].link_up.store(running);
    NicChange change{nic, !running, running, running ? "the carrier is back" : "no carrier"};
    for (const auto& [number, comm] : senders_) comm->OnNic(change);
    for (const auto& [number, comm] : receivers_) comm->OnNic(change);
  });
}

void Process::Refuse(const Packet& packet, int nic) {
  PacketPointer answer = world_->NewPacket();
  answer->kind = Packet::Kind::kReset;
  answer->from = packet.to;
  answer->to = packet.from;
  answer->stream = packet.stream;
  answer->last = packet.kind == Packet::Kind::kSyn;
  world_->Send(host_, nic, std::move(answer));
}

void Process::Take(const Packet& packet, int nic) {
  if (!powered_) return;
  if (packet.kind == Packet::Kind::kRdma || packet.kind == Packet::Kind::kRdmaAnswer) {
    if (rdma_ != nullptr) rdma_->Take(packet, nic);
    return;
  }
  if (packet.kind == Packet::Kind::kQuestion) return AnswerQuestion(packet, nic);
  if (packet.kind == Packet::Kind::kAnswer) {
    std::string said = packet.bytes;
    bool refused = packet.last;
    Soon([this, number = packet.stream, said, refused] {
      Settle(number, refused ? Answer::kRefused : Answer::kReached, said);
    });
    return;
  }
  auto known = sockets_.find(packet.stream);
  if (known != sockets_.end()) {
    std::shared_ptr<Socket> socket = known->second;
    if (packet.kind == Packet::Kind::kSyn) return socket->Accept();  // the answer was lost
    return socket->Take(packet);
  }
  if (packet.kind == Packet::Kind::kReset) return;
  if (packet.kind != Packet::Kind::kSyn || !alive_) return Refuse(packet, nic);
  auto guest = std::make_unique<Guest>();
  guest->process = this;
  guest->socket = MakeSocket(nic, packet.stream, packet.from);
  guest->nic = nic;
  guest->remote = in_addr{packet.from};
  guest->deadline_ns = world_->Now() + environment_.params.connect_ms * kMillisecond;
  guest->socket->SetUser(guest.get());
  guest->socket->Accept();
  guests_[packet.stream] = std::move(guest);
}

void Process::ReadGuest(Guest* guest) {
  guest->woken = false;
  uint64_t number = guest->socket->number();
  char buffer[kGreetingBytes];
  size_t read = guest->socket->Read(buffer, kGreetingBytes - guest->heard.size());
  guest->heard.append(buffer, read);
  bool over = guest->socket->state() != Socket::State::kOpen || guest->socket->reached_end();
  if (guest->heard.size() < kGreetingBytes) {
    if (!over) return;
    guest->socket->SetUser(nullptr);
    guest->socket->Reset();
  } else {
    guest->socket->SetUser(nullptr);
    Admit(guest, reinterpret_cast<const uint8_t*>(guest->heard.data()));
  }
  guests_.erase(number);
}

void Process::Admit(Guest* guest, const uint8_t* greeting) {
  Frame frame;
  Secret said;
  std::memcpy(said.data(), greeting + kHeaderBytes, kSecretBytes);
  auto listening =
      std::find_if(listening_.begin(), listening_.end(), [&said](const auto& one) { return one->secret == said; });
  bool is_hello = DecodeFrame(greeting, &frame).ok() && frame.type == FrameType::kHello;
  if (!is_hello || listening == listening_.end()) return guest->socket->Reset();
  bool is_new = !receivers_.contains(frame.a);
  if (is_new && (*listening)->closed) {
    std::string close = EncodeClose(0);
    guest->socket->Write(close.data(), close.size());
    return guest->socket->Finish();
  }
  std::shared_ptr<RecvComm>& comm = receivers_[frame.a];
  if (is_new) {
    comm = std::make_shared<RecvComm>(&environment_, &wire_, said, frame);
    (*listening)->arrived.push_back(comm);
    environment_.notifier->Notify();
  }
  NicTraffic* traffic = &environment_.counters[static_cast<size_t>(guest->nic)];
  const Nic& nic = environment_.nics[static_cast<size_t>(guest->nic)];
  auto stream = wire_.Adopt(comm, frame.path, nic, traffic, guest->socket, guest->remote);
  (void)comm->Attach(frame.path, frame.epoch, guest->nic, guest->remote, std::move(stream), frame.d != 0);
}

void Process::Ask(Question question, OnAnswer on_answer) {
  Asked& asked = asked_[world_->NextNumber()];
  asked.deadline_ns = world_->Now() + question.patience_ns;
  asked.question = std::move(question);
  asked.on_answer = std::move(on_answer);
}

void Process::TickQuestions(int64_t now_ns) {
  std::vector<uint64_t> late;
  for (auto& [number, asked] : asked_) {
    if (now_ns > asked.deadline_ns) {
      late.push_back(number);
    } else if (asked.attempts_left > 0 && now_ns >= asked.next_attempt_ns) {
      --asked.attempts_left;
      asked.next_attempt_ns = now_ns + asked.question.patience_ns / 3;
      PacketPointer packet = world_->NewPacket();
      packet->kind = Packet::Kind::kQuestion;
      packet->from = asked.question.nic.address.s_addr;
      packet->to = asked.question.target.address.s_addr;
      packet->stream = number;
      packet->bytes = asked.question.greeting;
      question_bytes_ += packet->size();
      world_->Send(host_, RailOf(asked.question.nic.address.s_addr), std::move(packet));
    }
  }
  for (uint64_t number : late) Settle(number, Answer::kSilent, "");
}

void Process::Settle(uint64_t number, Answer answer, const std::string& said) {
  auto entry = asked_.find(number);
  if (entry == asked_.end()) return;
  OnAnswer on_answer = std::move(entry->second.on_answer);
  asked_.erase(entry);
  Frame frame;
  bool has_said =
      said.size() >= kHeaderBytes && DecodeFrame(reinterpret_cast<const uint8_t*>(said.data()), &frame).ok();
  on_answer(answer, has_said ? &frame : nullptr);
}

// The kernel answers a question without words by itself, the process a greeting.
void Process::AnswerQuestion(const Packet& packet, int nic) {
  PacketPointer answer = world_->NewPacket();
  answer->kind = Packet::Kind::kAnswer;
  answer->from = packet.to;
  answer->to = packet.from;
  answer->stream = packet.stream;
  answer->last = !alive_;
  if (packet.bytes.empty() || !alive_) {
    question_bytes_ += answer->size();
    world_->Send(host_, nic, std::move(answer));
    return;
  }
  Soon([this, answer = std::move(answer), nic, asked = packet.bytes]() mutable {
    Frame frame;
    if (!DecodeFrame(reinterpret_cast<const uint8_t*>(asked.data()), &frame).ok()) return;
    auto sender = senders_.find(frame.a);
    bool lives = sender != senders_.end() && !sender->second->has_ended();
    answer->bytes = lives ? EncodeControl(FrameType::kPing) : EncodeClose(0);
    question_bytes_ += answer->size();
    world_->Send(host_, nic, std::move(answer));
  });
}

}  // namespace r2ccl::simulated
