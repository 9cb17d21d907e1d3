// The engine: its memory, its peers, and the thread that moves transfers on.
#include "transfer/engine.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <new>

#include "base/clock.h"
#include "base/process.h"

namespace r2ccl::transfer {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // for what nobody tells of, such as a connection that ended
constexpr double kLongestS = 1e9;                      // that anybody waits
constexpr size_t kGuests = 4096;                       // connections that have not said whose they are
// What the threads of NICs move themselves; above it, the engine's own thread does.
constexpr uint64_t kFewPieces = 16;
constexpr size_t kFewPeers = 16;
constexpr int64_t kInlineBytes = 262144;  // see R2CC_INLINE_BYTES: some messages

template <typename T>
Status MakeUp(T* value) {
  if (getrandom(value, sizeof *value, 0) == static_cast<ssize_t>(sizeof *value)) return {};
  return {Code::kSystem, std::string("getrandom: ") + std::strerror(errno)};
}

// The same for two processes that loopback connects. Where all NICs are addresses of it, each is a host of its own.
std::string ThisNetwork(const std::vector<Nic>& nics) {
  struct stat space{};
  bool only_loopback = std::all_of(nics.begin(), nics.end(), [](const Nic& nic) { return nic.name == "lo"; });
  if (only_loopback || stat("/proc/self/ns/net", &space) != 0) return "";
  return ThisProcess().boot_id + " " + std::to_string(space.st_ino);
}

Status CheckLength(const std::string& notification) {
  if (notification.size() <= kNotificationBytes) return {};
  return {Code::kInvalidArgument, "a notification has at most " + std::to_string(kNotificationBytes) + " bytes"};
}

// Made while there is memory.
const Status& NoMemory() {
  static const Status status{Code::kSystem, "a transfer engine ran out of memory"};
  return status;
}

}  // namespace

Status Engine::Create(const std::string& name, const Params& params, std::vector<Nic> nics,
                      std::shared_ptr<Engine>* engine, RcMaker* maker) {
  if (name.empty() || name.size() > kNameBytes) {
    return {Code::kInvalidArgument, "an engine's name has 1 to " + std::to_string(kNameBytes) + " bytes"};
  }
  std::shared_ptr<Engine> made(new Engine());
  Status status = made->Start(name, params, std::move(nics), maker);
  if (status.ok()) *engine = std::move(made);
  return status;
}

Status Engine::Start(const std::string& name, const Params& given, std::vector<Nic> nics, RcMaker* maker) {
  Params params = given;
  if (params.inline_bytes == 0) params.inline_bytes = kInlineBytes;
  auto on_turn = [this] { return OnTurn(); };
  own_.name = name;
  own_.host = ThisNetwork(nics);
  Status status = MakeUp(&own_.id);
  if (status.ok()) status = Net::Create(params, std::move(nics), &outer_, nullptr, maker, on_turn);
  if (status.ok()) status = outer_->report_status();
  if (status.ok()) status = outer_->Listen(&outer_listener_, static_cast<int>(outer_->environment().params.stripes));
  if (!status.ok()) return status;
  own_.outer = outer_listener_->handle();
  if (!own_.host.empty()) {
    Nic loopback;
    Params inside = params;
    inside.status_dir.clear();  // a process has one status file, about its NICs
    inside.io_threads = 1;
    status = FindNic("lo", "127.0.0.1", &loopback);
    if (status.ok()) status = Net::Create(inside, {loopback}, &inner_, outer_.get(), nullptr, on_turn);
    if (status.ok()) status = inner_->Listen(&inner_listener_, 1);
    if (!status.ok()) return status;
    own_.inner = inner_listener_->handle();
  }
  shared_.address = Encode(own_);
  (void)NoMemory();
  started_.store(true);
  thread_ = std::thread([this] { Run(); });
  return {};
}

uint64_t Engine::Close(double drain_s) {
  {
    MutexLock lock(mutex_);
    if (closing_) return 0;
    closing_ = true;
  }
  uint64_t missing = Drain(drain_s);
  {
    MutexLock lock(mutex_);
    closed_ = true;
    for (const auto& [id, peer] : peers_) peer->Fail({Code::kPeerLost, "the engine was closed"});
    for (const Guest& guest : guests_) guest.comm->Close();
    guests_.clear();
  }
  news_.Notify();
  alarm_.Notify();
  if (thread_.joinable()) thread_.join();
  if (inner_ != nullptr) inner_->Shutdown();
  if (outer_ != nullptr) outer_->Shutdown();
  return missing;
}

// The engine's thread goes on meanwhile, so two that close at once hear each other out. What is said from now on, to a
// peer that goes on writing, does not count.
uint64_t Engine::Drain(double drain_s) {
  if (std::isnan(drain_s) || !thread_.joinable()) return 0;
  int64_t deadline_ns = NowNs() + static_cast<int64_t>(std::clamp(drain_s, 0.0, kLongestS) * 1e9);
  std::vector<std::pair<std::shared_ptr<Peer>, uint64_t>> said;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, peer] : peers_) said.emplace_back(peer, peer->said());
  }
  while (true) {
    uint64_t seen = notifier().Count();
    uint64_t missing = 0;
    {
      MutexLock lock(mutex_);
      for (const auto& [peer, count] : said) missing += peer->Missing(count);
    }
    if (missing == 0 || NowNs() >= deadline_ns) return missing;
    notifier().Wait(seen, kLook);
  }
}

// Memory --------------------------------------------------------------------------------------------------------------

Status Engine::Register(void* data, uint64_t bytes, uint64_t* key) {
  if (data == nullptr || bytes == 0) return {Code::kInvalidArgument, "memory to register has at least one byte"};
  auto region = std::make_shared<Region>();
  Status status = MakeUp(&region->key);
  if (!status.ok()) return status;
  region->data = static_cast<char*>(data);
  region->bytes = bytes;
  *key = region->key;
  MutexLock lock(mutex_);
  if (closing_) return {Code::kInvalidArgument, "the engine is closed"};
  outer_->AddMemory(region->data, bytes);
  shared_.regions.Add(std::move(region));
  return {};
}

Status Engine::Deregister(uint64_t key, double timeout_s) {
  if (std::isnan(timeout_s)) return {Code::kInvalidArgument, "a time-out is a number"};
  int64_t deadline_ns = NowNs() + static_cast<int64_t>(std::clamp(timeout_s, 0.0, kLongestS) * 1e9);
  std::shared_ptr<Region> region;
  {
    MutexLock lock(mutex_);
    region = shared_.regions.Remove(key);
  }
  if (region == nullptr) return {Code::kInvalidArgument, "this memory is not registered"};
  while (true) {
    uint64_t seen = notifier().Count();
    {
      MutexLock lock(mutex_);
      if (region->users == 0) {
        outer_->DropMemory(region->data, region->bytes);
        return {};
      }
      if (NowNs() > deadline_ns) {
        for (const auto& [id, peer] : peers_) {
          if (!peer->Touches(region.get())) continue;
          peer->Fail({Code::kPeerLost, "memory was deregistered, and a transfer did not let go of it"});
        }
        outer_->DropMemory(region->data, region->bytes);
        news_.Notify();
        return {};
      }
    }
    notifier().Wait(seen, kLook);
  }
}

// Peers ---------------------------------------------------------------------------------------------------------------

bool Engine::Together(const Address& address) const {
  return inner_ != nullptr && address.host == own_.host && address.inner.port != 0;
}

Status Engine::Find(const EngineId& id, std::shared_ptr<Peer>* peer) {
  if (closing_) return {Code::kPeerLost, "the engine was closed"};
  auto entry = peers_.find(id);
  if (entry == peers_.end()) return {Code::kInvalidArgument, "no connection with this engine; connect first"};
  *peer = entry->second;
  return (*peer)->loss();
}

std::shared_ptr<Peer> Engine::NewPeer(const Address& address) {
  uint64_t session = 0;
  while (session == 0) {
    if (!MakeUp(&session).ok()) return nullptr;
  }
  auto peer = std::make_shared<Peer>(&shared_, address, session);
  std::shared_ptr<Peer>& known = peers_[address.id];
  if (known != nullptr) {
    known->Fail({Code::kPeerLost, "the transfer engine '" + address.name + "' has connected anew"});
    if (known->is_known_here()) peer->KnowHere();
  }
  known = peer;
  return peer;
}

Status Engine::Dial(Peer& peer) {
  bool together = Together(peer.address());
  const std::shared_ptr<Net>& net = together ? inner_ : outer_;
  const Handle& handle = together ? peer.address().inner : peer.address().outer;
  std::vector<std::shared_ptr<SendComm>> senders(static_cast<size_t>(handle.stripes) + 1);
  for (auto& sender : senders) {
    Status status = net->Connect(handle, &sender);
    if (!status.ok()) return status;
  }
  peer.UseSenders(std::move(senders));
  return {};
}

Status Engine::Connect(const std::string& address, EngineId* id) {
  Address theirs;
  Status status = Decode(address, &theirs);
  if (!status.ok()) return status;
  MutexLock lock(mutex_);
  if (closing_) return {Code::kInvalidArgument, "the engine is closed"};
  *id = theirs.id;
  auto known = peers_.find(theirs.id);
  if (known != peers_.end() && known->second->loss().ok()) {
    known->second->KnowHere();
    return {};
  }
  std::shared_ptr<Peer> peer = NewPeer(theirs);
  if (peer == nullptr) return {Code::kSystem, "getrandom failed"};
  peer->KnowHere();
  status = Dial(*peer);
  if (!status.ok()) peers_.erase(theirs.id);
  return status;
}

Status Engine::Ready(const EngineId& id, bool* ready) {
  MutexLock lock(mutex_);
  std::shared_ptr<Peer> peer;
  Status status = Find(id, &peer);
  if (!status.ok()) return status;
  status = peer->Ready(ready);
  if (!status.ok()) news_.Notify();  // its transfers may have ended
  return status;
}

void Engine::Disconnect(const EngineId& id) {
  MutexLock lock(mutex_);
  auto node = peers_.extract(id);
  if (node.empty()) return;
  node.mapped()->Fail({Code::kPeerLost, "disconnected"});
  news_.Notify();
}

void Engine::TakeGuests(Listener& listener, bool inner) {
  while (auto comm = listener.Accept()) {
    if (guests_.size() >= kGuests) {
      comm->Close();
      continue;
    }
    guests_.push_back({std::move(comm), std::make_unique<char[]>(kMessageBytes), nullptr, inner});
    Guest& guest = guests_.back();
    if (!guest.comm->Irecv(guest.bytes.get(), kMessageBytes, &guest.request).ok()) guests_.pop_back();
  }
}

void Engine::Admit(Guest& guest, uint64_t size) {
  Message hello;
  Address theirs;
  Status status = Decode(guest.bytes.get(), size, &hello);
  if (status.ok() && hello.kind != Kind::kHello) status = {Code::kProtocol, "no greeting"};
  if (status.ok()) status = Decode(hello.text, &theirs);
  auto known = status.ok() ? peers_.find(theirs.id) : peers_.end();
  std::shared_ptr<Peer> peer = known == peers_.end() ? nullptr : known->second;
  uint64_t answers = hello.pieces.empty() ? 0 : hello.pieces.front().key;
  bool changed = peer != nullptr && peer->their_session() != 0 && peer->their_session() != hello.operation;
  bool is_stale = answers != 0 && (peer == nullptr || peer->session() != answers);
  if (changed && !is_stale) {
    peer->Fail({Code::kPeerLost, "the transfer engine '" + theirs.name + "' has connected anew"});
    news_.Notify();
  }
  bool lives = peer != nullptr && peer->failure().ok();
  if (status.ok() && hello.operation == 0) status = {Code::kProtocol, "a greeting without a session"};
  // Only who was not asked begins a session here, so two engines cannot make each other begin anew for ever.
  if (is_stale || (answers != 0 && !lives)) status = {Code::kPeerLost, "that session is over"};
  if (peer != nullptr && !lives && !changed && peer->their_session() == hello.operation) status = peer->failure();
  bool is_new = !lives || (!peer->loss().ok() && answers == 0 && peer->their_session() == 0);
  if (status.ok() && is_new) {
    peer = NewPeer(theirs);
    if (peer != nullptr) peer->Answer(hello.operation);
    status = peer != nullptr ? Dial(*peer) : Status(Code::kSystem, "getrandom failed");
    if (!status.ok()) peers_.erase(theirs.id);
  }
  if (!status.ok()) {
    guest.comm->Close();
    return;
  }
  int stripes = guest.inner ? own_.inner.stripes : own_.outer.stripes;
  peer->TakeReceiver(hello.operation, hello.code, static_cast<size_t>(stripes), std::move(guest.comm));
}

// Transfers -----------------------------------------------------------------------------------------------------------

Status Engine::Begin(const EngineId& id, Direction direction, const std::vector<Range>& ranges,
                     const std::string* notification, std::shared_ptr<Transfer>* transfer) {
  MutexLock lock(mutex_);
  std::shared_ptr<Peer> peer;
  Status status = Find(id, &peer);
  if (status.ok() && notification != nullptr) status = CheckLength(*notification);
  if (status.ok() && direction == Direction::kRead && ranges.size() > kReadRanges) {
    status = {Code::kInvalidArgument, "a read has at most " + std::to_string(kReadRanges) + " ranges; make several"};
  }
  std::vector<Range> kept;
  for (size_t i = 0; i < ranges.size() && status.ok(); ++i) {
    const Range& range = ranges[i];
    std::shared_ptr<Region> region;
    Status found = shared_.regions.Find(range.local_key, range.local_offset, range.bytes, &region);
    if (!found.ok()) status = {found.code(), "range " + std::to_string(i) + ", here: " + found.message()};
    if (range.bytes == 0) continue;
    Range* last = kept.empty() ? nullptr : &kept.back();
    bool continues = last != nullptr && last->local_key == range.local_key && last->remote_key == range.remote_key &&
                     last->local_offset + last->bytes == range.local_offset &&
                     last->remote_offset + last->bytes == range.remote_offset;
    if (continues) {
      last->bytes += range.bytes;
    } else {
      kept.push_back(range);
    }
  }
  if (!status.ok()) return status;
  auto made = std::make_shared<Transfer>();
  made->peer_ = peer;
  NoteBegin();
  peer->Begin(made, direction, std::move(kept), notification);
  PumpNow(*peer);
  *transfer = std::move(made);
  return {};
}

Transfer::State Engine::Look(const Transfer& transfer) {
  if (transfer.state() != Transfer::kPending || !mutex_.try_lock()) return transfer.state();
  {
    MutexLock lock(mutex_, std::adopt_lock);
    looking_.store(true);
    if (std::shared_ptr<Peer> peer = transfer.peer_.lock()) PumpNow(*peer, true);
    looking_.store(false);
  }
  if (missed_.exchange(false)) OnTurn();
  return transfer.state();
}

void Engine::Cancel(Transfer& transfer) {
  MutexLock lock(mutex_);
  std::shared_ptr<Peer> peer = transfer.peer_.lock();
  if (peer == nullptr) return;
  peer->Cancel(transfer);
  PumpNow(*peer);
  if (transfer.state() != Transfer::kPending) news_.Notify();  // at once, where it had not begun
}

// What it moves another thread may wait for.
void Engine::PumpNow(Peer& peer, bool reads) {
  if (PumpSafely(peer, reads) || !peer.failure().ok()) news_.Notify();
  if (peer.has_more()) alarm_.Notify();
}

// One peer's transfers may need more than there is; the others' go on.
bool Engine::PumpSafely(Peer& peer, bool reads) {
  try {
    return peer.Pump(reads);
  } catch (const std::bad_alloc&) {
    peer.Fail(NoMemory());
    return true;
  }
}

Status Engine::Notify(const EngineId& id, const std::string& text) {
  MutexLock lock(mutex_);
  std::shared_ptr<Peer> peer;
  Status status = Find(id, &peer);
  if (status.ok()) status = CheckLength(text);
  if (!status.ok()) return status;
  peer->Notify(text);
  return peer->loss();
}

std::deque<Notification> Engine::TakeNotifications() {
  MutexLock lock(mutex_);
  shared_.notification_bytes = 0;
  return std::exchange(shared_.notifications, {});
}

// Its own thread ------------------------------------------------------------------------------------------------------

void Engine::Run() {
  while (true) {
    uint64_t seen = alarm_.Count();
    {
      MutexLock lock(mutex_);
      if (closed_) return;
      PumpAll();
    }
    alarm_.Wait(seen, kLook);
  }
}

// On the thread of a NIC that may have brought something. Who has the lock may have looked before that came.
//
// Where one small transfer follows another, either end waits less for a thread that looks than for one that has to be
// woken, and who sends need not wake it. One that comes now and then wakes it.
int64_t Engine::OnTurn() {
  if (!started_.load() || outer_->environment().notifier->Count() == looked_.load()) return 0;
  if (has_own_turn_.load()) {
    alarm_.Notify();
    return 0;
  }
  missed_.store(true);
  if (!mutex_.try_lock()) {
    if (!looking_.load()) alarm_.Notify();
    return 0;
  }
  MutexLock lock(mutex_, std::adopt_lock);
  if (closed_) return 0;
  return PumpAll() && in_a_row_ ? SpinNs() : 0;
}

int64_t Engine::SpinNs() const { return outer_->environment().params.transfer_spin_us * 1000; }

void Engine::NoteBegin() {
  int64_t now_ns = NowNs();
  in_a_row_ = now_ns - std::exchange(begun_ns_, now_ns) < SpinNs();
}

void Engine::LookAtGuests() {
  TakeGuests(*outer_listener_, false);
  if (inner_listener_ != nullptr) TakeGuests(*inner_listener_, true);
  for (size_t i = 0; i < guests_.size();) {
    bool done = false;
    uint64_t size = 0;
    Status status = guests_[i].comm->Test(guests_[i].request, &done, &size);
    if (status.ok() && !done) {
      ++i;
      continue;
    }
    if (done) Admit(guests_[i], size);
    guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool Engine::PumpAll() {
  missed_.store(false);
  looked_.store(outer_->environment().notifier->Count());
  try {
    if (!closing_) LookAtGuests();
  } catch (const std::bad_alloc&) {
    for (const Guest& guest : guests_) guest.comm->Close();
    guests_.clear();
  }
  bool moved = false;
  bool has_more = false;
  bool quick = false;
  uint64_t pieces = 0;
  for (auto entry = peers_.begin(); entry != peers_.end();) {
    Peer& peer = *entry->second;
    moved |= PumpSafely(peer, false);
    has_more |= peer.has_more();
    pieces += peer.pieces();
    bool asked = peer.WasAsked();
    if (asked) NoteBegin();
    quick |= peer.HasServed() || asked;
    bool over = !peer.failure().ok();
    if (over) peer.Forget();
    // Nobody here can ask for the end of one that only its own greeting has made.
    entry = over && !peer.is_known_here() ? peers_.erase(entry) : std::next(entry);
  }
  has_own_turn_.store(pieces > kFewPieces || peers_.size() > kFewPeers);
  if (moved) news_.Notify();
  if (has_more) alarm_.Notify();
  return quick && !has_own_turn_.load();
}

}  // namespace r2ccl::transfer
