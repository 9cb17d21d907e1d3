// The process-wide half: threads, the listening socket, greeting of streams, link events.
#include "transport/net.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>

#include "base/clock.h"

namespace r2ccl {
namespace {

constexpr int kListenTag = 0;
constexpr int kLinkTag = 1;
constexpr int kGuestTag = 2;
constexpr size_t kMaxGuests = 1024;
constexpr size_t kMostEnded = 4096;
constexpr size_t kMostPeers = 4096;
constexpr uint64_t kManyDescriptors = 8192;  // 64 KiB of the kernel's memory
constexpr int64_t kAcceptPauseNs = 100 * kMillisecond;

template <typename T>
Status FillRandom(T* value) {
  if (getrandom(value, sizeof *value, 0) != static_cast<ssize_t>(sizeof *value)) {
    return {Code::kSystem, std::string("getrandom: ") + std::strerror(errno)};
  }
  return {};
}

// Tells the sender at the other end that its connection is over, so that it does not try again.
void Refuse(const Fd& fd) {
  std::string close = EncodeClose(0);
  (void)!send(fd.get(), close.data(), close.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Whether it began with the word of a probe, which is shorter than a greeting.
bool IsProbe(const uint8_t* bytes, size_t count) {
  Frame frame;
  return count >= kHeaderBytes && DecodeFrame(bytes, &frame).ok() && frame.type == FrameType::kPing;
}

std::string StateOf(const NicState& state, const NicHealth& health) {
  if (!state.link_up.load()) return "down";
  if (health.up + health.down == 0) return "idle";
  if (health.up > 0) return health.down == 0 ? "up" : "partial";
  return health.held > 0 ? "held" : "down";
}

}  // namespace

std::shared_ptr<RecvComm> Listener::Accept() {
  MutexLock lock(mutex_);
  if (arrived_.empty()) return nullptr;
  std::shared_ptr<RecvComm> comm = std::move(arrived_.front());
  arrived_.pop_front();
  return comm;
}

Status Net::Create(const Params& params, std::vector<Nic> nics, std::shared_ptr<Net>* net, const Net* beside,
                   RcMaker* maker, std::function<int64_t()> on_turn) {
  if (nics.empty()) return {Code::kInvalidArgument, "no NIC given"};
  if (nics.size() > static_cast<size_t>(kMaxPaths)) {
    return {Code::kInvalidArgument, std::to_string(nics.size()) + " NICs given, at most " + std::to_string(kMaxPaths) +
                                        " are supported; name fewer in R2CC_SOCKET_IFNAME"};
  }
  std::shared_ptr<Net> made(new Net());
  auto of_machine = static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  unsigned processors = ProcessorsOfRank(std::thread::hardware_concurrency(), of_machine, RanksOnHost());
  made->environment_.params = Fitting(params, processors);
  made->environment_.SetNics(std::move(nics));
  if (beside != nullptr) made->environment_.notifier = beside->environment_.notifier;
  made->verbs_.maker = maker;
  Status status = made->Start(on_turn);
  if (status.ok()) *net = std::move(made);
  return status;
}

Status Net::Start(const std::function<int64_t()>& on_turn) {
  CloseInChildren();
  Status status = ListenAnywhere(&listen_fd_, &port_);
  if (status.ok()) ReserveDescriptors(listen_fd_.get(), kManyDescriptors);
  link_monitor_ = std::make_unique<LinkMonitor>(environment_.nics);
  if (status.ok()) status = link_monitor_->Open();
  drain_meter_ = std::make_unique<DrainMeter>(&environment_);
  auto threads = static_cast<size_t>(environment_.params.io_threads);
  for (size_t i = 0; i < threads; ++i) pollers_.push_back(std::make_unique<Poller>());
  OpenRdma();
  for (const auto& poller : pollers_) {
    wires_.push_back(verbs_.maker == nullptr ? std::make_unique<TcpWire>(poller.get(), &environment_)
                                             : std::make_unique<VerbsWire>(&verbs_, poller.get(), &environment_));
  }
  // Not where the first senders are, nor, where each has two stripes, their first ones.
  {
    MutexLock lock(mutex_);
    next_receiver_ = threads / 2 | 1;
  }
  prober_ = std::make_unique<Prober>(pollers_[0].get());
  environment_.prober = prober_.get();
  witness_prober_ = std::make_unique<Prober>(pollers_[0].get());
  witness_ = std::make_unique<Witness>(witness_prober_.get(), environment_.clock, environment_.nics);
  environment_.witness = witness_.get();
  environment_.port = port_;
  locator_ = std::make_unique<Locator>(environment_.params.locate_ms * kMillisecond, environment_.nics, port_,
                                       prober_.get(), &environment_.log, [this](int nic) { return ThirdsOn(nic); });
  environment_.locator = locator_.get();
  for (size_t i = 0; i < threads && status.ok(); ++i) status = pollers_[i]->Start([this, i] { OnTick(i); }, on_turn);
  if (status.ok()) status = CheckRdma();
  if (!status.ok()) return status;
  listen_id_ = pollers_[0]->Add(listen_fd_.get(), EPOLLIN, kListenTag, Self());
  uint64_t link_id = pollers_[0]->Add(link_monitor_->fd(), EPOLLIN, kLinkTag, Self());
  if (!pollers_[0]->IsWatched(listen_id_) || !pollers_[0]->IsWatched(link_id)) {
    return {Code::kSystem, "epoll: the kernel watches no more descriptors; see /proc/sys/fs/epoll/max_user_watches"};
  }
  const Params& params = environment_.params;
  if (!params.status_dir.empty()) {
    report_status_ = ReportFile::Create(
        params.status_dir, params.status_ms, &environment_.log, [this] { return EncodeReport(MakeReport()); },
        &report_file_);
  }
  return {};
}

// Whether there is RDMA at all is decided once: devices may come and go, the subsystem does not.
void Net::OpenRdma() {
  const std::string& transport = environment_.params.transport;
  verbs_.log = &environment_.log;
  verbs_.clock = environment_.clock;
  verbs_.strict = transport == "verbs";
  if (transport == "tcp") verbs_.maker = nullptr;
  if (transport != "tcp" && verbs_.maker == nullptr && (transport == "verbs" || HasRdma(kSysfs))) OpenDevices();
  // Where TCP alone carries, slow NICs are tried with copies (SendComm::TryWays).
  if (verbs_.maker == nullptr) environment_.params.zero_copy_bytes = 0;
  verbs_.write_bytes = environment_.params.zero_copy_bytes;
}

void Net::OpenDevices() {
  rdma_status_ = Rdma::Open(pollers_[0].get(), &environment_.log, &rdma_);
  if (!rdma_status_.ok()) environment_.log.Add("rdma_off", "", "", rdma_status_.message());
  verbs_.maker = rdma_.get();
  std::string ignored;
  for (const std::string& name : IgnoredVariables(environ, environment_.params.gdr == 1))
    ignored += (ignored.empty() ? "" : ", ") + name;
  if (!ignored.empty()) environment_.log.Add("rdma_ignores", "", "", ignored + ": set, and of no effect here");
}

void Net::AddMemory(const char* data, size_t bytes) {
  if (verbs_.write_bytes > 0 && verbs_.maker != nullptr && bytes > 0) {
    verbs_.maker->AddMemory(data, bytes);
  }
}

void Net::DropMemory(const char* data, size_t bytes) {
  if (verbs_.write_bytes > 0 && verbs_.maker != nullptr && bytes > 0) {
    verbs_.maker->DropMemory(data, bytes);
  }
}

void Net::AddDeviceMemory(const char* data, size_t bytes, const DeviceMemory& device) {
  if (verbs_.write_bytes > 0 && bytes > 0) verbs_.maker->AddDeviceMemory(data, bytes, device);
}

std::unique_ptr<RcFlush> Net::Flush(const char* data, size_t bytes) { return verbs_.maker->Flush(data, bytes); }

Status Net::WhyNoDeviceMemory() const {
  if (environment_.params.transport == "tcp") {
    return {Code::kInvalidArgument, "R2CC_TRANSPORT is tcp; set it to auto or verbs"};
  }
  if (verbs_.maker != nullptr) return {};
  return rdma_status_.ok() ? Status(Code::kSystem, "this host has no RDMA device") : rdma_status_;
}

bool Net::TakesDmabuf() { return verbs_.maker->TakesDmabuf(environment_.nics); }

// Where nothing else is wanted, a NIC without RDMA is a mistake; one whose port is down may come back.
Status Net::CheckRdma() {
  if (environment_.params.transport != "verbs") return {};
  if (verbs_.maker == nullptr) {
    return {Code::kInvalidArgument, "R2CC_TRANSPORT=verbs: " + rdma_status_.message() + "; or set R2CC_TRANSPORT=auto"};
  }
  for (const Nic& nic : environment_.nics) {
    std::unique_ptr<RcQueue> queue;
    Status status = verbs_.maker->Make(nic, kDialledShape, 0, {}, &queue);
    if (status.ok() || status.code() == Code::kPeerLost) continue;
    return {Code::kInvalidArgument,
            "R2CC_TRANSPORT=verbs: " + nic.name + ": " + status.message() + "; or set R2CC_TRANSPORT=auto"};
  }
  return {};
}

Net::~Net() { Shutdown(); }

void Net::CloseConnections() {
  auto comms = Comms();
  for (const auto& comm : comms) comm->Close();
  for (const auto& comm : comms) {
    while (comm->lingers()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < Farewells::kPatienceNs / kMillisecond && !verbs_.farewells.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Net::Shutdown() {
  {
    MutexLock lock(mutex_);
    if (shut_down_) return;
    shut_down_ = true;
  }
  CloseConnections();
  if (rdma_ != nullptr) rdma_->Unwatch();
  for (auto& poller : pollers_) poller->Stop();
  // Who still dials is told at once that nobody listens; the kernel alone would let everybody in.
  listen_fd_ = Fd();
  {
    MutexLock lock(mutex_);
    guests_.clear();
  }
  report_file_.reset();  // after the last event, and not under our lock, which its thread takes
}

Status Net::Listen(std::shared_ptr<Listener>* listener, int stripes) {
  auto made = std::make_shared<Listener>();
  Status status = FillRandom(&made->handle_.secret);
  if (!status.ok()) return status;
  made->handle_.port = port_;
  made->handle_.stripes = stripes;
  for (const Nic& nic : environment_.nics) made->handle_.addresses.push_back(nic.address);
  MutexLock lock(mutex_);
  listeners_[made->handle_.secret] = made;
  *listener = std::move(made);
  return {};
}

void Net::CloseListener(const std::shared_ptr<Listener>& listener) {
  std::deque<std::shared_ptr<RecvComm>> unwanted;
  {
    MutexLock lock(listener->mutex_);
    listener->closed_ = true;
    unwanted.swap(listener->arrived_);
  }
  for (const auto& comm : unwanted) comm->Close();
}

Status Net::MakeUpConnection(uint64_t* connection) { return FillRandom(connection); }

Status Net::Connect(const Handle& handle, std::shared_ptr<SendComm>* comm, int home) {
  uint64_t connection = 0;
  Status status = MakeUpConnection(&connection);
  return status.ok() ? ConnectAs(connection, handle, comm, home) : status;
}

Status Net::ConnectAs(uint64_t connection, const Handle& handle, std::shared_ptr<SendComm>* comm, int home) {
  std::shared_ptr<SendComm> made;
  {
    MutexLock lock(mutex_);
    if (shut_down_) return {Code::kInvalidArgument, "connect after shutdown"};
    size_t thread = NextThread(&next_sender_);
    made = std::make_shared<SendComm>(&environment_, wires_[thread].get(), handle, home, connection);
    comms_.emplace_back(thread, made);
    senders_[connection] = made;
    for (in_addr address : handle.addresses) NotePeer(address);
  }
  made->Start();
  *comm = std::move(made);
  return {};
}

void Net::OnEvents(uint64_t id, int tag, uint32_t) {
  if (tag == kListenTag) {
    AcceptGuests();
  } else if (tag == kGuestTag) {
    ReadGuest(id);
  } else {
    NoteNics(link_monitor_->Drain());
  }
}

// A guest, which whoever sent it will replace. What is watched from the start on is looked at there.
void Net::OnUnwatched(uint64_t id, int tag, const std::string& reason) {
  MutexLock lock(mutex_);
  if (tag != kGuestTag || !guests_.contains(id)) return;
  environment_.log.Add("not_watched", "", "", reason);
  DropGuest(id, std::nullopt, "");
}

// Links and guests hold no message; the connections that were told of a link end by themselves where they have to.
void Net::OnThrow(const std::string&) {}

void Net::NoteNics(const std::vector<NicChange>& changes) {
  for (const NicChange& change : changes) {
    auto index = static_cast<size_t>(change.nic);
    environment_.nic_states[index].link_up.store(change.running);
    const std::string& name = environment_.nics[index].name;
    if (change.lost) environment_.log.Add("link_down", name, "", change.why);
    if (change.running) environment_.log.Add("link_up", name, "", change.why);
    for (const auto& comm : Comms()) comm->OnNic(change);
  }
}

// Out of descriptors or memory: whoever knocks waits in the kernel, which would wake us for them without end.
void Net::PauseAccept(const std::string& reason) {
  if (!accept_failed_) environment_.log.Add("accept_paused", "", "", reason);
  accept_failed_ = true;
  accept_again_ns_ = NowNs() + kAcceptPauseNs;
  pollers_[0]->Modify(listen_id_, 0);
}

void Net::ResumeAccept(int64_t now_ns) {
  if (accept_again_ns_ == 0 || now_ns < accept_again_ns_) return;
  accept_again_ns_ = 0;
  pollers_[0]->Modify(listen_id_, EPOLLIN);
}

void Net::AcceptGuests() {
  while (true) {
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    Fd fd(accept4(listen_fd_.get(), reinterpret_cast<sockaddr*>(&peer), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd.valid()) {
      if (errno != EAGAIN) PauseAccept(std::strerror(errno));
      return;
    }
    accept_failed_ = false;
    sockaddr_in own{};
    length = sizeof own;
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length);
    const auto& nics = environment_.nics;
    auto nic = std::find_if(nics.begin(), nics.end(),
                            [&own](const Nic& n) { return n.address.s_addr == own.sin_addr.s_addr; });
    MutexLock lock(mutex_);
    if (nic == nics.end() || guests_.size() >= kMaxGuests) {
      bool astray = nic == nics.end();
      NoteStranger(astray ? Stranger::kAstray : Stranger::kCrowd, -1, peer.sin_addr,
                   astray ? "came to " + r2ccl::ToString(own.sin_addr) + ", which is no NIC of ours"
                          : "too many wait to be greeted");
      continue;
    }
    TuneAccepted(fd.get(), *nic);
    auto guest = std::make_unique<Guest>();
    guest->fd = std::move(fd);
    guest->nic = static_cast<int>(nic - nics.begin());
    guest->remote = peer.sin_addr;
    guest->deadline_ns = NowNs() + environment_.params.connect_ms * kMillisecond;
    // Registered under our lock, so that an event that comes at once finds the guest in the map.
    guest->poll_id = pollers_[0]->Add(guest->fd.get(), EPOLLIN, kGuestTag, Self());
    uint64_t id = guest->poll_id;
    guests_[id] = std::move(guest);
  }
}

void Net::ReadGuest(uint64_t id) {
  std::unique_ptr<Guest> admitted;
  {
    MutexLock lock(mutex_);
    auto entry = guests_.find(id);
    if (entry == guests_.end()) return;
    Guest& guest = *entry->second;
    ssize_t received = recv(guest.fd.get(), guest.hello + guest.bytes, sizeof guest.hello - guest.bytes, 0);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (received <= 0) {
      DropGuest(id, Stranger::kSilent, "left without a greeting");
      return;
    }
    guest.bytes += static_cast<size_t>(received);
    Status prefix = CheckPrefix(guest.hello, guest.bytes);
    if (!prefix.ok()) {
      bool other_release = guest.bytes >= 5 && CheckPrefix(guest.hello, 4).ok();
      DropGuest(id, other_release ? Stranger::kVersion : Stranger::kGarbage, prefix.message());
      return;
    }
    if (IsProbe(guest.hello, guest.bytes)) {
      DropGuest(id, std::nullopt, "");
      return;
    }
    if (guest.bytes < sizeof guest.hello) return;
    pollers_[0]->Remove(id);
    admitted = std::move(entry->second);
    guests_.erase(entry);
  }
  Admission admission = Admit(*admitted);
  MutexLock lock(mutex_);
  if (admission.stranger) {
    NoteStranger(*admission.stranger, admitted->nic, admitted->remote, admission.status.message());
  } else if (!admission.status.ok()) {
    ++own_probes_;
  }
}

// REQUIRES: mutex_ held, as do the next two.
void Net::DropGuest(uint64_t id, std::optional<Stranger> kind, const std::string& reason) {
  auto entry = guests_.find(id);
  Guest& guest = *entry->second;
  // A peer's words are lost now and then, with the end of its stream; of others a probe's may be, which is rare.
  bool ours = !kind || (*kind == Stranger::kSilent && peers_.contains(guest.remote.s_addr));
  if (ours) {
    ++own_probes_;
  } else {
    NoteStranger(*kind, guest.nic, guest.remote, reason);
  }
  pollers_[0]->Remove(id);
  guests_.erase(entry);
}

void Net::NoteStranger(Stranger kind, int nic, in_addr from, const std::string& reason) {
  if (!strangers_.Note(kind, from, NowNs())) return;
  std::string name = nic < 0 ? "" : environment_.nics[static_cast<size_t>(nic)].name;
  environment_.log.Add("refused", name, r2ccl::ToString(from), reason + " (more from there are only counted)");
}

void Net::NotePeer(in_addr address) {
  if (peers_.size() < kMostPeers) peers_.insert(address.s_addr);
}

Net::Admission Net::Admit(Guest& guest) {
  Frame frame;
  Status status = DecodeFrame(guest.hello, &frame);
  if (status.ok() && frame.body_bytes == kSecretBytes) status = CheckBody(frame, guest.hello + kHeaderBytes);
  if (status.ok() && frame.type != FrameType::kKnock && frame.type != FrameType::kHello) {
    status = {Code::kProtocol, "wire: stream does not begin with a greeting"};
  }
  if (!status.ok()) return {status, Stranger::kGarbage};
  Secret secret;
  std::memcpy(secret.data(), guest.hello + kHeaderBytes, kSecretBytes);
  if (frame.type == FrameType::kKnock) return AnswerKnock(guest, frame.a, secret);
  std::shared_ptr<RecvComm> comm;
  TcpWire* wire = nullptr;
  {
    MutexLock lock(mutex_);
    auto entry = listeners_.find(secret);
    if (ended_.contains(secret)) {
      Refuse(guest.fd);
      return {{Code::kPeerLost, "the listener is closed"}, std::nullopt};
    }
    if (entry == listeners_.end() || shut_down_) return UnknownSecret();
    NotePeer(guest.remote);
    Listener& listener = *entry->second;
    MutexLock listener_lock(listener.mutex_);
    auto known = listener.connections_.find(frame.a);
    bool is_new = known == listener.connections_.end();
    if (!is_new) {
      comm = known->second.comm.lock();
      wire = known->second.wire;
    }
    if (is_new ? listener.closed_ : comm == nullptr) {
      Refuse(guest.fd);
      return {{Code::kPeerLost, is_new ? "the listener is closed" : "its connection has ended"}, std::nullopt};
    }
    if (is_new) {
      size_t thread = NextThread(&next_receiver_);
      wire = wires_[thread].get();
      comm = std::make_shared<RecvComm>(&environment_, wire, secret, frame);
      comms_.emplace_back(thread, comm);
      listener.connections_[frame.a] = {comm, wire};
      listener.arrived_.push_back(comm);
    }
  }
  auto nic = static_cast<size_t>(guest.nic);
  auto stream = wire->Adopt(comm, frame.path, environment_.nics[nic], &environment_.counters[nic], guest.remote,
                            std::move(guest.fd));
  status = comm->Attach(frame.path, frame.epoch, guest.nic, guest.remote, std::move(stream), frame.d != 0);
  environment_.notifier->Notify();
  return {status, std::nullopt};
}

// A connection that is not known here was ours and has ended, as its number cannot be guessed.
Net::Admission Net::AnswerKnock(Guest& guest, uint64_t connection, const Secret& secret) {
  std::shared_ptr<SendComm> comm;
  {
    MutexLock lock(mutex_);
    auto entry = senders_.find(connection);
    if (entry != senders_.end()) comm = entry->second.lock();
  }
  if (comm != nullptr && comm->secret() != secret) return UnknownSecret();
  bool alive = comm != nullptr && comm->failure().ok();
  std::string answer = alive ? EncodeControl(FrameType::kPing) : EncodeClose(0);
  (void)!send(guest.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return {};
}

std::vector<std::shared_ptr<Comm>> Net::Comms() {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Comm>> comms;
  for (const auto& [thread, weak] : comms_) {
    if (auto comm = weak.lock()) comms.push_back(std::move(comm));
  }
  return comms;
}

// Those whose NIC never answered to ours tell something only where nobody's did.
std::vector<Third> Net::ThirdsOn(int nic) {
  std::vector<Third> thirds;
  for (const auto& comm : Comms()) {
    Third third;
    if (comm->ThirdOn(nic, &third)) thirds.push_back(std::move(third));
  }
  auto was_up = [](const Third& third) { return third.was_up; };
  if (std::any_of(thirds.begin(), thirds.end(), was_up)) std::erase_if(thirds, std::not_fn(was_up));
  return thirds;
}

void Net::ForgetClosedListeners() {
  std::erase_if(comms_, [](const auto& entry) { return entry.second.expired(); });
  std::erase_if(senders_, [](const auto& entry) { return entry.second.expired(); });
  std::erase_if(listeners_, [this](auto& entry) {
    mutex_.AssertHeld();
    Listener& listener = *entry.second;
    MutexLock lock(listener.mutex_);
    if (!listener.closed_) return false;  // remembers connections that ended: their late streams make no new ones
    std::erase_if(listener.connections_, [](const auto& connection) { return connection.second.comm.expired(); });
    if (!listener.connections_.empty()) return false;
    if (ended_.insert(entry.first).second) ended_order_.push_back(entry.first);
    return true;
  });
  for (; ended_order_.size() > kMostEnded; ended_order_.pop_front()) ended_.erase(ended_order_.front());
}

void Net::OnTick(size_t thread) {
  int64_t now_ns = NowNs();
  if (thread == 0) {
    drain_meter_->Sample(now_ns);
    prober_->Tick(now_ns);
    locator_->Tick(now_ns);
    witness_prober_->Tick(now_ns);
    ResumeAccept(now_ns);
    link_monitor_->Tick(now_ns);
    verbs_.farewells.Tick(now_ns);
  }
  std::vector<std::shared_ptr<Comm>> mine;
  {
    MutexLock lock(mutex_);
    if (thread == 0) {
      ForgetClosedListeners();
      std::vector<uint64_t> late;
      for (const auto& [id, guest] : guests_) {
        if (now_ns > guest->deadline_ns) late.push_back(id);
      }
      for (uint64_t id : late) DropGuest(id, Stranger::kSilent, "no greeting came in time");
    }
    for (const auto& [owner, weak] : comms_) {
      if (owner != thread) continue;
      if (auto comm = weak.lock()) mine.push_back(std::move(comm));
    }
  }
  for (const auto& comm : mine) {
    try {
      pollers_[thread]->TickBy(comm->Tick(now_ns));
    } catch (const std::exception& error) {
      comm->OnThrow(error.what());
    }
  }
}

std::vector<NicHealth> Net::Health() {
  std::vector<NicHealth> health(environment_.nics.size());
  for (const auto& comm : Comms()) comm->AddHealth(&health);
  return health;
}

Report Net::MakeReport() {
  Report report;
  report.process = process_;
  report.started_ns = started_ns_;
  report.params = environment_.params;
  auto health = Health();
  for (size_t i = 0; i < environment_.nics.size(); ++i) {
    const Nic& nic = environment_.nics[i];
    const NicTraffic& counters = environment_.counters[i];
    const NicState& state = environment_.nic_states[i];
    report.nics.push_back({nic.name, r2ccl::ToString(nic.address), StateOf(state, health[i]), state.link_up.load(),
                           health[i].up, health[i].down, health[i].held, health[i].never_up, counters.sent_bytes.load(),
                           counters.received_bytes.load(), counters.acknowledged_bytes.load(),
                           state.in_flight_bytes.load(), state.drain_bytes_per_ns.load() * 1e9,
                           counters.rdma_streams.load(), counters.rdma_sent_bytes.load(),
                           counters.rdma_received_bytes.load(), counters.rdma_written_bytes.load()});
  }
  for (const auto& comm : Comms()) comm->AddPeer(&report.peers);
  report.replayed_chunks = environment_.replayed_chunks.load();
  report.trial_chunks = environment_.trial_chunks.load();
  report.duplicate_chunks = environment_.duplicate_chunks.load();
  report.corrupt_chunks = environment_.corrupt_chunks.load();
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < kStrangerKinds; ++i) {
      auto kind = static_cast<Stranger>(i);
      report.strangers.emplace_back(r2ccl::ToString(kind), strangers_.count(kind));
    }
    report.own_probes = own_probes_;
  }
  for (const auto& [key, record] : locator_->Verdicts()) {
    report.verdicts.push_back({record.wall_ns, environment_.nics[static_cast<size_t>(key.first)].name,
                               r2ccl::ToString(in_addr{key.second}), r2ccl::ToString(record.verdict), record.why,
                               record.standing});
  }
  report.events_total = environment_.log.total();
  report.events = environment_.log.Snapshot(kReportEvents);
  report.written_ns = WallNs();
  return report;
}

}  // namespace r2ccl
