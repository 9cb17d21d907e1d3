// Sockets: an owned descriptor and the few ways this project opens TCP connections. All are non-blocking.
#ifndef R2CCL_NET_SOCKET_H_
#define R2CCL_NET_SOCKET_H_

#include <netinet/in.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"
#include "net/nic.h"
#include "net/progress.h"

namespace r2ccl {

// Owns a file descriptor, which no forked child keeps (CloseInChildren). Movable, not copyable, not thread-safe.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) { Note(fd, true); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset() {
    if (fd_ < 0) return;
    Note(fd_, false);
    close(fd_);
    fd_ = -1;
  }

 private:
  static void Note(int fd, bool ours);

  int fd_ = -1;
};

// From now on a child that the process forks closes every Fd that is open, before fork() returns in it. A child that
// kept streams would hide the death of its parent from the peers, for as long as it lives.
void CloseInChildren();

// Listens on every address of this host, on a port of the kernel's choice (host order in `port`).
Status ListenAnywhere(Fd* fd, uint16_t* port);

// Starts connecting from `nic` to `remote`. The socket leaves through `nic` alone, so traffic cannot move to
// another interface behind our back when routes change.
Status StartConnect(const Nic& nic, in_addr remote, uint16_t port, Fd* fd);

// The kernel asks a peer that is silent for a second whether it is there, once a second; what stays without an answer
// counts in `Progress::unanswered`.
void EnableKeepAlive(int fd);

// What StartConnect does to a connected socket, for one that was accepted on `nic`.
void TuneAccepted(int fd, const Nic& nic);

// Drops whatever the kernel still holds and resets the connection: nothing sent before may arrive late.
void ResetConnection(Fd* fd);

// From now on a peek continues where the one before it ended. False before Linux 6.9.
bool KeepPeeks(int fd);

// Progress of a connection as its kernel sees it; `delivered` is 0 before Linux 4.18.
struct TcpProgress : Progress {
  uint32_t unsent_bytes = 0;  // in the socket, and not on their way yet
};
bool ReadProgress(int fd, TcpProgress* progress);

// Has the kernel try again at once to send what waits in the socket. When the NIC's own queue is full while nothing of
// the connection is under way, it would not do so for 200 ms or more.
void PushUnsent(int fd);

// Lets the process have up to 65536 descriptors, where its hard limit allows it: 30 connections of NCCL's with two
// stripes over 8 NICs each have more than the 1024 that are usual, and the program would be the one to miss them. And
// makes room for `count` at once in the process's table; `fd` is any that is open. Else the one who opens one too many
// for the table, which doubles, waits while other threads run until every processor has passed a quiescent state: 7 to
// 20 ms were measured, in an I/O thread that others wait for.
void ReserveDescriptors(int fd, uint64_t count);

}  // namespace r2ccl

#endif  // R2CCL_NET_SOCKET_H_
