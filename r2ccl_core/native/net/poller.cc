// The epoll loop.
#include "net/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "base/clock.h"

namespace r2ccl {
namespace {

// What an exception says by which `call` is left; empty when there is none.
template <typename Call>
std::string WhatLeaves(const Call& call) {
  try {
    call();
    return "";
  } catch (const std::exception& error) {
    return error.what();  // short: it needs no memory
  }
}

}  // namespace

Status Poller::Start(std::function<void()> on_tick, std::function<int64_t()> on_turn) {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_.valid() || !wake_.valid()) return {Code::kSystem, std::string("epoll: ") + std::strerror(errno)};
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // so that nobody has to read it
  event.data.u64 = 0;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return {Code::kSystem, std::string("epoll: ") + std::strerror(errno)};
  }
  on_tick_ = std::move(on_tick);
  on_turn_ = std::move(on_turn);
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return {Code::kSystem, std::string("a thread for the NICs: ") + error.what()};
  }
  return {};
}

void Poller::Stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  eventfd_write(wake_.get(), 1);
  thread_.join();
  std::unordered_map<uint64_t, Registration> dropped;
  std::vector<std::shared_ptr<Kickable>> kicked;
  {
    MutexLock lock(mutex_);
    dropped.swap(registrations_);
    kicked.swap(kicked_);
  }
}

uint64_t Poller::Add(int fd, uint32_t events, int tag, std::shared_ptr<Pollable> target) {
  epoll_event event{};
  event.events = events;
  MutexLock lock(mutex_);
  event.data.u64 = next_id_;
  registrations_[next_id_] = {fd, tag, std::move(target)};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) NoteUnwatched(next_id_);
  return next_id_++;
}

void Poller::Modify(uint64_t id, uint32_t events) {
  MutexLock lock(mutex_);
  auto entry = registrations_.find(id);
  if (entry == registrations_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  int fd = entry->second.fd;
  // A socket that nobody waits for costs who sends to it less.
  if (events == 0) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  } else if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0 &&
             epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    NoteUnwatched(id);
  }
}

// The owner is told by the poller's thread, as it may hold its own lock now.
void Poller::NoteUnwatched(uint64_t id) {
  unwatched_.push_back({id, errno});
  eventfd_write(wake_.get(), 1);
}

void Poller::TickBy(int64_t time_ns) { next_tick_ns_ = std::min(next_tick_ns_, time_ns); }

bool Poller::IsWatched(uint64_t id) {
  MutexLock lock(mutex_);
  return registrations_.contains(id) && std::none_of(unwatched_.begin(), unwatched_.end(),
                                                     [id](const Unwatched& unwatched) { return unwatched.id == id; });
}

void Poller::Remove(uint64_t id) {
  std::shared_ptr<Pollable> released;  // destroyed after the lock: its destructor may call back
  MutexLock lock(mutex_);
  auto entry = registrations_.find(id);
  if (entry == registrations_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->second.fd, nullptr);
  released = std::move(entry->second.target);
  registrations_.erase(entry);
}

void Poller::Kick(std::shared_ptr<Kickable> target) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    wake = kicked_.empty();
    kicked_.push_back(std::move(target));
  }
  if (wake) eventfd_write(wake_.get(), 1);
}

void Poller::RunKicks() {
  std::vector<std::shared_ptr<Kickable>> kicked;
  {
    MutexLock lock(mutex_);
    kicked.swap(kicked_);
  }
  for (const auto& target : kicked) {
    std::string thrown = WhatLeaves([&] { target->OnKick(); });
    if (!thrown.empty()) WhatLeaves([&] { target->OnThrow(thrown); });
  }
}

bool Poller::Find(uint64_t id, Registration* found) {
  MutexLock lock(mutex_);
  auto entry = registrations_.find(id);
  if (entry == registrations_.end()) return false;
  *found = entry->second;
  return true;
}

void Poller::RunUnwatched() {
  std::vector<Unwatched> unwatched;
  {
    MutexLock lock(mutex_);
    unwatched.swap(unwatched_);
  }
  for (const Unwatched& one : unwatched) {
    Registration found;
    if (!Find(one.id, &found)) continue;
    std::string reason = std::string("the kernel does not watch it: ") + std::strerror(one.error);
    std::string thrown = WhatLeaves([&] { found.target->OnUnwatched(one.id, found.tag, reason); });
    if (!thrown.empty()) WhatLeaves([&] { found.target->OnThrow(thrown); });
  }
}

void Poller::Dispatch(uint64_t id, uint32_t events) {
  if (id == 0) {
    RunKicks();
    RunUnwatched();
    return;
  }
  Registration found;
  if (!Find(id, &found)) return;
  std::string thrown = WhatLeaves([&] { found.target->OnEvents(id, found.tag, events); });
  if (!thrown.empty()) WhatLeaves([&] { found.target->OnThrow(thrown); });
}

// An exception that left the thread would end the job.
void Poller::Run() {
  constexpr int kBatch = 64;
  epoll_event events[kBatch];
  next_tick_ns_ = NowNs() + kTickMs * kMillisecond;
  while (!stopping_.load()) {
    int64_t now_ns = NowNs();
    int64_t wait_ns = now_ns < awake_until_ns_ ? 0 : next_tick_ns_ - now_ns;
    int wait_ms = wait_ns <= 0 ? 0 : static_cast<int>((wait_ns + kMillisecond - 1) / kMillisecond);
    int count = epoll_wait(epoll_.get(), events, kBatch, wait_ms);
    for (int i = 0; i < count; ++i) {
      WhatLeaves([&] { Dispatch(events[i].data.u64, events[i].events); });
      TakeTurn();
    }
    if (NowNs() >= next_tick_ns_) {
      next_tick_ns_ = NowNs() + kTickMs * kMillisecond;
      WhatLeaves(on_tick_);
      next_tick_ns_ = std::max(next_tick_ns_, NowNs() + kMillisecond);
    }
    TakeTurn();
  }
}

void Poller::TakeTurn() {
  if (!on_turn_) return;
  int64_t awake_ns = 0;
  WhatLeaves([&] { awake_ns = on_turn_(); });
  if (awake_ns > 0) awake_until_ns_ = NowNs() + awake_ns;
}

}  // namespace r2ccl
