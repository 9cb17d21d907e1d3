// The relay's sockets and filters.
#include "relay.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

namespace r2ccl {
namespace {

constexpr size_t kHoldBytes = 128 * 1024;
constexpr size_t kTrickleBytes = 4096;  // of a slow path, per turn

sockaddr_in At(in_addr address, uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_addr = address;
  result.sin_port = htons(port);
  return result;
}

// With `drop`, whatever arrives for the socket is lost before TCP sees it.
void SetFilter(int fd, bool drop) {
  sock_filter drop_all{BPF_RET | BPF_K, 0, 0, 0};
  sock_fprog program{1, &drop_all};
  int unused = 0;
  if (drop) {
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
  } else {
    setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused);
  }
}

Fd ListenAt(in_addr address, uint16_t port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in where = At(address, port);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) return {};
  if (listen(fd.get(), 64) != 0) return {};
  return fd;
}

uint16_t PortOf(const Fd& fd) {
  sockaddr_in where{};
  socklen_t length = sizeof where;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &length);
  return ntohs(where.sin_port);
}

}  // namespace

Relay::Relay(const Handle& target) : target_(target), handle_(target) {
  size_t paths = target.addresses.size();
  for (size_t i = 0; i < paths; ++i) {
    handle_.addresses[i].s_addr = inet_addr(("127.0.3." + std::to_string(i + 1)).c_str());
  }
  for (int attempt = 0; attempt < 50 && listeners_.size() < paths; ++attempt) {
    listeners_.clear();
    handle_.port = 0;  // of the kernel's choice for the first; the others need the same
    for (in_addr address : handle_.addresses) {
      Fd fd = ListenAt(address, handle_.port);
      if (!fd.valid()) break;
      handle_.port = PortOf(fd);
      listeners_.push_back(std::move(fd));
    }
  }
  if (listeners_.size() < paths) throw std::runtime_error("the relay found no port");
  wires_.assign(paths, Cable::kGood);
  thread_ = std::thread([this] { Run(); });
}

Relay::~Relay() {
  stopping_ = true;
  thread_.join();
}

void Relay::Set(int path, Cable wire) {
  std::lock_guard lock(mutex_);
  wires_[static_cast<size_t>(path)] = wire;
  SetFilter(listeners_[static_cast<size_t>(path)].get(), wire == Cable::kSilent);
  for (auto& stream : streams_) {
    if (stream->path != path) continue;
    ApplyFilters(*stream);
    if (wire == Cable::kRefused) stream->broken = true;
  }
}

int Relay::good_paths() {
  std::lock_guard lock(mutex_);
  return static_cast<int>(std::count(wires_.begin(), wires_.end(), Cable::kGood));
}

void Relay::Reset(int path) {
  std::lock_guard lock(mutex_);
  for (auto& stream : streams_) stream->broken = stream->broken || stream->path == path;
}

void Relay::SetMangle(Mangle mangle) {
  std::lock_guard lock(mutex_);
  mangle_ = std::move(mangle);
}

void Relay::ApplyFilters(Stream& stream) {
  Cable wire = wires_[static_cast<size_t>(stream.path)];
  SetFilter(stream.sender.get(), wire == Cable::kSilent);
  SetFilter(stream.receiver.get(), wire == Cable::kSilent || wire == Cable::kMute);
}

void Relay::AcceptStreams(int path) {
  while (true) {
    Fd sender(accept4(listeners_[static_cast<size_t>(path)].get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!sender.valid()) return;
    Fd receiver(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where = At(target_.addresses[static_cast<size_t>(path)], target_.port);
    bool refused = wires_[static_cast<size_t>(path)] == Cable::kRefused;
    if (refused || connect(receiver.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) {
      ResetConnection(&sender);
      continue;
    }
    int at_once = 1;  // as a cable passes it on
    for (const Fd* end : {&sender, &receiver}) {
      setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    }
    auto stream = std::make_unique<Stream>();
    stream->path = path;
    stream->sender = std::move(sender);
    stream->receiver = std::move(receiver);
    ApplyFilters(*stream);
    streams_.push_back(std::move(stream));
  }
}

// Reads what fits, passes on what the other side takes, and hands an end on when all of it was passed.
void Relay::Carry(Stream& stream, Direction& direction, int from, int to, bool upwards) {
  char buffer[65536];
  while (!direction.ended && direction.held.size() < kHoldBytes) {
    ssize_t received = recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (received < 0) stream.broken = true;
    if (received <= 0) {
      direction.ended = true;
      break;
    }
    if (upwards && mangle_) mangle_(stream.path, direction.passed, buffer, static_cast<size_t>(received));
    direction.passed += static_cast<uint64_t>(received);
    direction.held.insert(direction.held.end(), buffer, buffer + received);
  }
  bool slow = wires_[static_cast<size_t>(stream.path)] == Cable::kSlow;
  size_t allowance = slow ? kTrickleBytes : direction.held.size();
  while (allowance > 0 && !direction.held.empty()) {
    size_t bytes = std::min(allowance, direction.held.size());
    ssize_t sent = send(to, direction.held.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) stream.broken = true;
    if (sent <= 0) break;
    direction.held.erase(direction.held.begin(), direction.held.begin() + sent);
    allowance -= static_cast<size_t>(sent);
  }
  if (direction.ended && direction.held.empty() && !direction.shut) {
    shutdown(to, SHUT_WR);
    direction.shut = true;
  }
}

void Relay::Run() {
  while (!stopping_) {
    std::vector<pollfd> waits;
    {
      std::lock_guard lock(mutex_);
      for (int path = 0; path < paths(); ++path) AcceptStreams(path);
      for (auto& stream : streams_) {
        Cable wire = wires_[static_cast<size_t>(stream->path)];
        if (wire != Cable::kSilent && wire != Cable::kStuck) {
          Carry(*stream, stream->up, stream->sender.get(), stream->receiver.get(), true);
          if (wire != Cable::kMute) Carry(*stream, stream->down, stream->receiver.get(), stream->sender.get(), false);
        }
        if (!stream->broken) continue;
        ResetConnection(&stream->sender);
        ResetConnection(&stream->receiver);
      }
      std::erase_if(streams_, [](const auto& s) { return s->broken || (s->up.shut && s->down.shut); });
      for (const Fd& listener : listeners_) waits.push_back({listener.get(), POLLIN, 0});
      for (const auto& stream : streams_) {
        Cable wire = wires_[static_cast<size_t>(stream->path)];
        bool flows = wire == Cable::kGood || wire == Cable::kRefused;
        if (flows && !stream->up.ended) waits.push_back({stream->sender.get(), POLLIN, 0});
        if (flows && !stream->down.ended) waits.push_back({stream->receiver.get(), POLLIN, 0});
      }
    }
    poll(waits.data(), waits.size(), 1);  // the time-out is the turn of slow and of full streams
  }
}

}  // namespace r2ccl
