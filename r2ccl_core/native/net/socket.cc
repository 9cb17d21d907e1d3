// TCP sockets bound to one NIC each.
#include "net/socket.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace r2ccl {
namespace {

constexpr rlim_t kMostDescriptors = 65536;  // more, and who closes all that there may be takes long
// A bit for each descriptor of an Fd. A forked child may look at nothing that another thread might have been changing.
std::atomic<uint64_t> owned[kMostDescriptors / 64];

void CloseOwned() {
  for (size_t word = 0; word < std::size(owned); ++word) {
    uint64_t bits = owned[word].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) close(static_cast<int>(word * 64) + std::countr_zero(bits));
  }
}

constexpr int kTcpRtoMinUs = 45;  // TCP_RTO_MIN_US, newer than most systems' headers
constexpr int kBindToIndex = 62;  // SO_BINDTOIFINDEX, of Linux 5.0

Status SystemError(const std::string& what) { return {Code::kSystem, what + ": " + std::strerror(errno)}; }

sockaddr_in Address(in_addr address, uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_addr = address;
  result.sin_port = htons(port);
  return result;
}

void SetOption(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

// By its index, as its name may change. Refused without the right on kernels before 5.7; the source address then
// decides alone, as it does where the NIC is nowhere.
void BindToInterface(int fd, int index) {
  if (index == 0 || setsockopt(fd, SOL_SOCKET, kBindToIndex, &index, sizeof index) == 0) return;
  char name[IF_NAMESIZE];
  if (if_indextoname(static_cast<unsigned>(index), name) == nullptr) return;
  setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, static_cast<socklen_t>(std::strlen(name)));
}

void Tune(int fd, const Nic& nic) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // Keep what waits in the kernel short: bytes there can no longer move to another NIC.
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 256 * 1024);
  // A lost tail costs 50 ms instead of 200, more than the 40 that a receiver may delay its acknowledgement; older
  // kernels know no such option. Few segments in flight and lost again: the timer does not back off at once.
  SetOption(fd, IPPROTO_TCP, kTcpRtoMinUs, 50'000);
  SetOption(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  BindToInterface(fd, nic.ifindex.get());
}

}  // namespace

void Fd::Note(int fd, bool ours) {
  auto bit = static_cast<uint64_t>(fd);
  if (fd < 0 || bit >= kMostDescriptors) return;
  uint64_t mask = uint64_t{1} << (bit % 64);
  if (ours) {
    owned[bit / 64].fetch_or(mask, std::memory_order_relaxed);
  } else {
    owned[bit / 64].fetch_and(~mask, std::memory_order_relaxed);
  }
}

void CloseInChildren() {
  static const int result = pthread_atfork(nullptr, nullptr, CloseOwned);
  (void)result;
}

Status ListenAnywhere(Fd* fd, uint16_t* port) {
  Fd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) return SystemError("socket");
  sockaddr_in address = Address(in_addr{htonl(INADDR_ANY)}, 0);
  socklen_t length = sizeof address;
  if (bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return SystemError("bind");
  if (listen(socket_fd.get(), SOMAXCONN) != 0) return SystemError("listen");
  if (getsockname(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return SystemError("getsockname");
  }
  *port = ntohs(address.sin_port);
  *fd = std::move(socket_fd);
  return {};
}

Status StartConnect(const Nic& nic, in_addr remote, uint16_t port, Fd* fd) {
  Fd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) return SystemError("socket");
  Tune(socket_fd.get(), nic);
  SetOption(socket_fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  sockaddr_in source = Address(nic.address, 0);
  if (bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&source), sizeof source) != 0) {
    return SystemError("bind to " + nic.name + " " + ToString(nic.address));
  }
  sockaddr_in target = Address(remote, port);
  if (connect(socket_fd.get(), reinterpret_cast<sockaddr*>(&target), sizeof target) != 0 && errno != EINPROGRESS) {
    return SystemError("connect from " + nic.name + " to " + ToString(remote));
  }
  *fd = std::move(socket_fd);
  return {};
}

void EnableKeepAlive(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

void TuneAccepted(int fd, const Nic& nic) { Tune(fd, nic); }

void ResetConnection(Fd* fd) {
  if (!fd->valid()) return;
  linger now{1, 0};
  setsockopt(fd->get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  fd->Reset();
}

bool KeepPeeks(int fd) {
  int from = 0;
  int now = -1;
  socklen_t length = sizeof now;
  // Asked back, as some systems take any option and know none.
  return setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &from, sizeof from) == 0 &&
         getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &now, &length) == 0 && now == from;
}

// The option is set already; setting it again sends what waits.
void PushUnsent(int fd) { SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1); }

void ReserveDescriptors(int fd, uint64_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlim_t wanted = std::min<rlim_t>(kMostDescriptors, limit.rlim_max);
  if (limit.rlim_cur < wanted) {
    rlimit raised{wanted, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  uint64_t most = std::min<uint64_t>(count, limit.rlim_cur);
  if (most == 0) return;
  Fd last(fcntl(fd, F_DUPFD_CLOEXEC, static_cast<int>(most - 1)));  // the table stays as large when it is closed
}

bool ReadProgress(int fd, TcpProgress* progress) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  progress->bytes_acked = info.tcpi_bytes_acked;
  progress->delivered = info.tcpi_delivered;
  progress->unanswered = info.tcpi_unacked + info.tcpi_probes;
  progress->unsent_bytes = info.tcpi_notsent_bytes;
  progress->rtt_ns = int64_t{info.tcpi_rtt} * 1000;
  progress->rtt_by_kernel = true;
  progress->rtt_variance_ns = int64_t{info.tcpi_rttvar} * 1000;
  progress->timeout_ns = (int64_t{info.tcpi_rto} * 1000) >> info.tcpi_backoff;
  bool has_rtt = info.tcpi_min_rtt != ~0u;
  progress->shortest_rtt_ns = has_rtt ? int64_t{info.tcpi_min_rtt} * 1000 : 0;
  progress->held_ns = static_cast<int64_t>(info.tcpi_rwnd_limited) * 1000;
  progress->since_ack_ns = int64_t{info.tcpi_last_ack_recv} * 1'000'000;
  progress->packet_bytes = info.tcpi_snd_mss;
  progress->segments = info.tcpi_segs_out;
  progress->resent = info.tcpi_total_retrans - std::min(info.tcpi_total_retrans, info.tcpi_dsack_dups);
  return true;
}

}  // namespace r2ccl
