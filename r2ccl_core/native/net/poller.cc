// The epoll loop.
#include "net/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace r2ccl {

Status Poller::Start(std::function<void()> on_tick) {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_.valid() || !wake_.valid()) return {Code::kSystem, std::string("epoll: ") + std::strerror(errno)};
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // so that nobody has to read it
  event.data.u64 = 0;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  on_tick_ = std::move(on_tick);
  thread_ = std::thread([this] { Run(); });
  return {};
}

void Poller::Stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  eventfd_write(wake_.get(), 1);
  thread_.join();
  std::unordered_map<uint64_t, Registration> dropped;
  std::vector<std::shared_ptr<Pollable>> kicked;
  {
    std::lock_guard lock(mutex_);
    dropped.swap(registrations_);
    kicked.swap(kicked_);
  }
}

uint64_t Poller::Add(int fd, uint32_t events, int tag, std::shared_ptr<Pollable> target) {
  epoll_event event{};
  event.events = events;
  std::lock_guard lock(mutex_);
  event.data.u64 = next_id_;
  registrations_[next_id_] = {fd, tag, std::move(target)};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  return next_id_++;
}

void Poller::Modify(uint64_t id, uint32_t events) {
  std::lock_guard lock(mutex_);
  auto entry = registrations_.find(id);
  if (entry == registrations_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  int fd = entry->second.fd;
  // A socket that nobody waits for costs who sends to it less.
  if (events == 0) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  } else if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

void Poller::Remove(uint64_t id) {
  std::shared_ptr<Pollable> released;  // destroyed after the lock: its destructor may call back
  std::lock_guard lock(mutex_);
  auto entry = registrations_.find(id);
  if (entry == registrations_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->second.fd, nullptr);
  released = std::move(entry->second.target);
  registrations_.erase(entry);
}

void Poller::Kick(std::shared_ptr<Pollable> target) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    wake = kicked_.empty();
    kicked_.push_back(std::move(target));
  }
  if (wake) eventfd_write(wake_.get(), 1);
}

void Poller::RunKicks() {
  std::vector<std::shared_ptr<Pollable>> kicked;
  {
    std::lock_guard lock(mutex_);
    kicked.swap(kicked_);
  }
  for (const auto& target : kicked) target->OnKick();
}

void Poller::Run() {
  constexpr int kBatch = 64;
  epoll_event events[kBatch];
  int64_t next_tick = NowNs() + kTickMs * kMillisecond;
  while (!stopping_.load()) {
    int64_t wait_ns = next_tick - NowNs();
    int wait_ms = wait_ns <= 0 ? 0 : static_cast<int>((wait_ns + kMillisecond - 1) / kMillisecond);
    int count = epoll_wait(epoll_.get(), events, kBatch, wait_ms);
    for (int i = 0; i < count; ++i) {
      uint64_t id = events[i].data.u64;
      if (id == 0) {
        RunKicks();
        continue;
      }
      std::shared_ptr<Pollable> target;
      int tag = 0;
      {
        std::lock_guard lock(mutex_);
        auto entry = registrations_.find(id);
        if (entry == registrations_.end()) continue;
        target = entry->second.target;
        tag = entry->second.tag;
      }
      target->OnEvents(id, tag, events[i].events);
    }
    if (NowNs() >= next_tick) {
      on_tick_();
      next_tick = NowNs() + kTickMs * kMillisecond;
    }
  }
}

}  // namespace r2ccl
