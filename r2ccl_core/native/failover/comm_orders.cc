// What the program orders and asks of a connection, on its own threads.
#include <utility>

#include "failover/comm.h"

namespace r2ccl {
namespace {

constexpr int64_t kTakenNs = kMillisecond;  // the peer's kernel sends the last of several packets again after two

}  // namespace

Request* Comm::NewRequest() {
  if (free_requests_.empty()) {
    requests_.push_back(std::make_unique<Request>());
    free_requests_.push_back(requests_.back().get());
  }
  Request* request = free_requests_.back();
  free_requests_.pop_back();
  request->owner = this;
  request->size = 0;
  request->state.store(Request::kPending, std::memory_order_relaxed);
  return request;
}

void Comm::Complete(Request* request, Request::State state) {
  request->state.store(state, std::memory_order_release);
  environment_->notifier->Notify();
}

Status Comm::Submit(Order order, Request** request) {
  if (inline_.load(std::memory_order_relaxed) && mutex_.try_lock()) {
    MutexLock lock(mutex_, std::adopt_lock);
    return SubmitHere(order, request);
  }
  bool may_wait = false;
  {
    MutexLock lock(inbox_mutex_);
    if (!inbox_failure_.ok()) return inbox_failure_;
    order.request = *request = NewRequest();
    inbox_.push_back(order);
    has_orders_.store(true, std::memory_order_relaxed);
    may_wait = orders_wait_;
  }
  if (!may_wait && !kicked_.exchange(true)) wire_->Kick(shared_from_this());
  return {};
}

// Who has the mutex, and nothing waits before him, needs no inbox.
Status Comm::SubmitHere(Order order, Request** request) {
  bool at_once = false;
  {
    MutexLock lock(inbox_mutex_);
    if (!inbox_failure_.ok()) return inbox_failure_;
    order.request = *request = NewRequest();
    at_once = inbox_.empty();
    if (!at_once) inbox_.push_back(order);
    has_orders_.store(!at_once, std::memory_order_relaxed);
  }
  if (at_once) {
    Put(order);
    if (failure_.ok()) OnTaken();
  }
  EmptyInbox();
  LeaveToProgram();
  return {};
}

void Comm::LetOrdersWait(bool wait) {
  if (wait == orders_wait_) return;
  {
    MutexLock lock(inbox_mutex_);
    orders_wait_ = wait;
  }
  if (!wait) EmptyInbox();  // nobody is kicked for those that are there
}

void Comm::Put(const Order& order) {
  if (failure_.ok()) {
    Take(order);
  } else {
    Complete(order.request, Request::kFailed);
  }
}

void Comm::EmptyInbox() {
  if (!has_orders_.load(std::memory_order_relaxed)) return;
  std::vector<Order> orders = std::move(taken_);
  {
    MutexLock lock(inbox_mutex_);
    orders.swap(inbox_);
    has_orders_.store(false, std::memory_order_relaxed);
  }
  for (const Order& order : orders) Put(order);
  if (failure_.ok()) OnTaken();
  orders.clear();
  taken_ = std::move(orders);
}

void Comm::OnKick() {
  kicked_.exchange(false);  // sees the orders of whom this kick serves, too
  MutexLock lock(mutex_);
  if (!inline_.load(std::memory_order_relaxed)) StopPolling();
  EmptyInbox();
}

Status Comm::Test(Request* request, bool* done, uint64_t* size, uint32_t* tag, bool reads) {
  *done = false;
  Request::State state = request->state.load(std::memory_order_acquire);
  if (state == Request::kPending && reads && inline_.load(std::memory_order_relaxed) && mutex_.try_lock()) {
    MutexLock lock(mutex_, std::adopt_lock);
    Poll();
    state = request->state.load(std::memory_order_acquire);
  }
  if (state == Request::kPending) return {};
  *done = state == Request::kDone;
  if (size != nullptr) *size = request->size;
  if (tag != nullptr) *tag = request->tag;
  MutexLock lock(inbox_mutex_);
  free_requests_.push_back(request);
  return *done ? Status() : inbox_failure_;
}

// What the wire's thread does when something has arrived, without waiting for it to wake.
void Comm::Poll() {
  EmptyInbox();
  if (environment_->program_polls && ++polls_ % kPollAllEvery != 0) {
    ReadOpen(paths_[static_cast<size_t>(hot_)]);
  } else {
    int64_t now_ns = Now();
    for (Path& path : paths_) {
      ReadOpen(path);
      if (path.stream != nullptr) path.stream->Release(now_ns, kTakenNs);
    }
  }
  LeaveToProgram();
}

void Comm::ReadOpen(Path& path) {
  if (!IsOpen(path.state) || !failure_.ok()) return;
  path.stream->Poll();
  if (failure_.ok()) AfterRead(path);
}

void Comm::ReadHot() {
  Path& hot = paths_[static_cast<size_t>(hot_)];
  if (IsOpen(hot.state) && hot.stream->polled()) hot.stream->Poll();
}

// The program is about to look again, and ticks look in any case.
void Comm::LeaveToProgram() {
  if (!environment_->program_polls || !failure_.ok() || !inline_.load(std::memory_order_relaxed)) return;
  polled_ = true;
  Path& hot = paths_[static_cast<size_t>(hot_)];
  Path& last = paths_[static_cast<size_t>(polled_path_)];
  if (&last != &hot && last.stream != nullptr) last.stream->SetPolled(false);
  polled_path_ = hot_;
  if (IsOpen(hot.state)) hot.stream->SetPolled(true);
}

void Comm::StopPolling() {
  for (Path& path : paths_) {
    if (path.stream != nullptr) path.stream->SetPolled(false);
  }
}

}  // namespace r2ccl
