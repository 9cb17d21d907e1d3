// Socket: one end of a reliable stream of bytes over packets that get lost, like the TCP of a host's kernel: in order,
// with windows, retransmission of losses, and a timer that backs off. It continues by itself while its program sleeps.
#ifndef R2CCL_WIRE_SIMULATED_SOCKET_H_
#define R2CCL_WIRE_SIMULATED_SOCKET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "net/progress.h"
#include "wire/simulated/byte_queue.h"
#include "wire/simulated/world.h"

namespace r2ccl::simulated {

// The program's side of a socket.
class SocketUser {
 public:
  virtual ~SocketUser() = default;
  virtual void OnChange() = 0;  // there may be something to read, room to write, or an end
};

class Socket : public std::enable_shared_from_this<Socket> {
 public:
  static constexpr size_t kOutBytes = 256 * 1024;
  enum class State { kOpening, kOpen, kRefused, kReset, kClosed };

  Socket(World* world, int host, int rail, uint64_t number, in_addr_t remote)
      : world_(world), host_(host), rail_(rail), number_(number), remote_(remote) {}

  void Connect();
  void Accept();

  State state() const { return state_; }
  bool reached_end() const { return peer_ended_ && in_.empty(); }
  uint64_t number() const { return number_; }
  void SetUser(SocketUser* user) { user_ = user; }

  // How many bytes it took.
  size_t Write(const char* data, size_t bytes);
  bool has_room() const;
  // Up to `most` of what has arrived in order.
  size_t Read(char* to, size_t most);
  size_t readable() const { return in_.size(); }
  bool ReadProgress(Progress* progress) const;
  // From now on asks a peer that is silent for a second whether it is there.
  void KeepAlive();

  void Reset();   // drops all, and tells the other end once
  void Finish();  // sends what is there, then ends
  // Its program has left, and what it said is still on its way.
  bool is_closing() const { return closing_; }
  // Nothing comes of it any more; its host forgets it.
  bool is_over() const {
    return state_ == State::kReset || state_ == State::kRefused || (closing_ && out_.empty() && ended_acked_);
  }

  void Take(const Packet& packet);

 private:
  void TakeWord(const Packet& packet);
  void TakeBytes(const Packet& packet);
  void SendWaiting();
  bool SendSegment(uint64_t first, size_t bytes, bool again);
  void SendLater();
  void TakeAhead(const Packet& packet);
  uint64_t SkipAhead(uint64_t place) const;
  void SendMissing();
  void SendProbe();
  void SendProbeOfWindow();
  void AskWhetherThere();
  void SendWord();
  void SendWordSoon();
  PacketPointer Segment(uint64_t first) const;
  void NoteHeld();
  void ArmTimer();
  void AwaitTimer();
  void OnTimer();
  void Tell() {
    if (user_ != nullptr) user_->OnChange();
  }
  uint64_t window() const;
  size_t segment_bytes() const { return world_->segment_bytes; }

  World* const world_;
  const int host_;
  const int rail_;
  const uint64_t number_;
  const in_addr_t remote_;
  SocketUser* user_ = nullptr;
  State state_ = State::kOpening;
  int tries_ = 0;

  // Sending. Places count from 0.
  ByteQueue out_;  // from unacked_ on
  size_t most_out_ = kOutBytes;
  uint64_t unacked_ = 0;
  uint64_t next_ = 0;  // the first byte that was not sent, or is to be sent again
  uint64_t most_sent_ = 0;
  uint64_t peer_window_ = 65536;
  double congestion_ = 10.0;                // segments
  bool probed_ = false;                     // since it last heard that the other end has more
  std::map<uint64_t, uint64_t> has_;        // what the other end has behind gaps: ends by first places
  std::map<uint64_t, int64_t> sent_again_;  // by place, when that was sent again last, since the recovery began
  uint64_t recover_ = 0;
  bool recovering_ = false;
  bool closing_ = false;
  bool ended_acked_ = false;
  uint32_t segments_ = 0;
  uint32_t resent_ = 0;
  uint32_t delivered_ = 0;
  int probes_ = 0;
  int64_t rtt_ns_ = 0;
  int64_t rtt_variance_ns_ = 0;
  uint64_t timed_ = 0;  // the end of the segment whose round trip is measured; 0: none
  int64_t timed_ns_ = 0;
  int backoff_ = 0;
  int64_t shortest_rtt_ns_ = 0;
  bool keeps_alive_ = false;
  int64_t heard_ns_ = 0;
  int64_t word_ns_ = 0;  // when it last heard that the other end had more
  // For how long the other end's window was what kept it from sending, but for the time since held_since_ns_, 0: it is
  // not.
  int64_t held_ns_ = 0;
  int64_t held_since_ns_ = 0;
  // It is set anew with each acknowledgement, and only the latest time counts: one event is under way, which goes on
  // waiting where it comes too early.
  bool timer_armed_ = false;
  int64_t timer_ns_ = 0;
  int64_t timer_event_ns_ = 0;  // 0: none
  bool waits_for_nic_ = false;  // whose queue was full

  // Receiving.
  ByteQueue in_;  // in order, not read
  uint64_t expected_ = 0;
  std::map<uint64_t, std::string> ahead_;
  uint32_t again_ = 0;       // packets whose bytes had come before
  uint32_t told_again_ = 0;  // the same, of the other end
  uint32_t taken_ = 0;
  bool peer_ends_ = false;
  uint64_t peer_end_ = 0;
  bool peer_ended_ = false;
  uint64_t words_ = 0;      // put off so far
  bool owes_word_ = false;  // one is put off
};

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_SOCKET_H_
