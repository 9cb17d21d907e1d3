// Peer: everything between two engines: their connections, what moves over them, and how it ends.
//
// Each engine has one connection to the other for messages (message.h) and some for data. Data follows in the order of
// the messages that announce it, piece by piece, with the connections taking turns. So the receiving end posts each
// piece's receive right at its destination, and no byte is copied. A write is thus one-sided for the program and
// two-sided for the engines, and it survives everything that connections survive. What fits into a message travels in
// it and is copied: one thread less has to wake at either end. The last message about a write brings its notification
// along, and the last one about a read ends it.
//
// Invariants:
//   1. A piece that the transport holds counts among its region's users and its transfer's pieces, until its request is
//      done or its connection was closed.
//   2. A transfer ends when the peer has sent its last message about it and no piece is left, or when the peer is lost
//      and every connection with it was closed.
//   3. A refused piece is still received, into nowhere, so that the order of the connection is kept.
//
// Every call is made under the engine's mutex.
#ifndef R2CCL_TRANSFER_PEER_H_
#define R2CCL_TRANSFER_PEER_H_

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/notifier.h"
#include "failover/recv_comm.h"
#include "failover/send_comm.h"
#include "transfer/message.h"
#include "transfer/region.h"
#include "transfer/transfer.h"

namespace r2ccl::transfer {

// Of one read, and of all that a peer has under way.
constexpr uint64_t kReadRanges = 1 << 20;

struct Notification {
  std::string from;  // the peer's name
  std::string text;
};

// What an engine's peers share.
struct Shared {
  Regions regions;
  std::deque<Notification> notifications;
  uint64_t notification_bytes = 0;  // about what these take
  std::string address;              // encoded
  uint64_t next_operation = 1;
};

class Peer {
 public:
  Peer(Shared* shared, Address address, uint64_t session)
      : shared_(shared), address_(std::move(address)), session_(session) {}
  ~Peer() { Fail({Code::kPeerLost, "the engine was closed"}); }

  const Address& address() const { return address_; }
  const Status& failure() const { return failure_; }
  // Why nothing can be begun: it has failed, or a connection has ended and only what the peer said last is still taken.
  const Status& loss() const { return failure_.ok() ? ended_ : failure_; }
  // Either engine's name for its half of the connections; the other's is 0 before its first greeting.
  uint64_t their_session() const { return their_session_; }

  uint64_t session() const { return session_; }
  // Before UseSenders, of a peer whose greeting made this one.
  void Answer(uint64_t their_session) { their_session_ = their_session; }

  // The program has asked for it, and may ask about it.
  void KnowHere() { known_here_ = true; }
  bool is_known_here() const { return known_here_; }

  // The sending ends, for messages, then for data. Each says first whose it is.
  void UseSenders(std::vector<std::shared_ptr<SendComm>> senders);
  // A receiving end whose greeting said `role`; `data_ends` will come.
  void TakeReceiver(uint64_t their_session, size_t role, size_t data_ends, std::shared_ptr<RecvComm> comm);
  // Whether both directions are there.
  Status Ready(bool* ready);

  void Begin(std::shared_ptr<Transfer> transfer, Direction direction, std::vector<Range> ranges,
             const std::string* notification);
  void Cancel(Transfer& transfer);
  void Notify(const std::string& text) { Notify(0, text); }

  // Messages that were given to the transport until now, and how many of so many a peer that lives has not taken.
  uint64_t said() const { return said_; }
  uint64_t Missing(uint64_t said) const { return loss().ok() && said > taken_ ? said - taken_ : 0; }

  // Does what can be done. True when something was that a program may wait for. It also looks whether something has
  // come, unless that is left to the wire's threads (`reads`).
  bool Pump(bool reads);
  // Whether the last Pump left something, for other peers' sake.
  bool has_more() const { return has_more_; }
  // Whether the peer has begun a write or a read since this was last asked.
  bool WasAsked() { return std::exchange(asked_, false); }
  // Whether a transfer of either end has ended here since this was last asked.
  bool HasServed() { return std::exchange(served_, false); }
  // Pieces that are under way.
  uint64_t pieces() const { return out_count_ + in_count_; }
  // Ends every transfer with `status`, and touches no memory afterwards.
  void Fail(const Status& status);
  // Lets go of the connections of a peer that was lost. Not while something else is called.
  void Forget() {
    senders_.clear();
    receivers_.clear();
  }
  // Whether a piece of the region is on its way.
  bool Touches(const Region* region) const;

 private:
  // Something that this end sends: a write of its own, or what the peer reads.
  struct Job {
    uint64_t operation = 0;
    std::shared_ptr<Transfer> transfer;  // of a write
    std::deque<Range> ranges;            // of a read: remote_key is the number of the peer's range
    uint64_t next_range = 0;             // of a read
    bool complete = false;               // no more ranges come
    bool ended = false;                  // the peer was told that nothing more comes
    bool stopped = false;
    Outcome outcome = Outcome::kOk;
    std::string why;
  };
  // A write of the peer's.
  struct Inbound {
    uint64_t operation = 0;
    uint64_t pieces = 0;
    bool last = false;
    Outcome outcome = Outcome::kOk;
    std::string why;
    bool has_notification = false;
    std::string notification;
  };
  struct OutMessage {
    std::string bytes;
    Request* request;
    uint64_t within = 0;  // of its bytes, those of pieces
  };
  struct OutPiece {
    Request* request;
    uint64_t bytes;
    Use use;
    std::shared_ptr<Transfer> transfer;  // of a write
  };
  struct InPiece {
    Request* request;
    uint64_t bytes;
    Use use;
    std::shared_ptr<Inbound> inbound;    // of the peer's write
    std::shared_ptr<Transfer> transfer;  // of a read
  };
  struct InMessage {
    std::unique_ptr<char[]> bytes;
    Request* request;
  };

  bool IsComplete() const;
  bool HasMet();
  bool StartWaiting();
  bool HasRoomFor(const Transfer& transfer) const;
  void Start(std::shared_ptr<Transfer> transfer);
  bool PumpMessages();
  bool PumpArrivals();
  bool PumpSent();
  bool PumpJobs();
  bool SendBurst(Job& job);
  bool SendWithin(Job& job);
  void CloseWith(Job& job, Message* message);
  void FinishJob(Job& job);
  bool CheckAlive();
  void Lose(const Status& status);
  bool Test(Comm& comm, Request** request, uint64_t* size);

  Status Take(const Message& message);
  Status TakeWrite(const Message& message);
  Status TakeRead(const Message& message);
  Status TakeReply(const Message& message);
  Status TakeDone(const Message& message);
  Status TakeNotify(const Message& message);
  static Status AddNotification(Inbound& inbound, const std::string& text);
  void Stop(uint64_t operation, Outcome outcome);

  void Say(const Message& message) { Say(0, Encode(message)); }
  void Say(size_t sender, std::string bytes, uint64_t within = 0);
  void SayDone(uint64_t operation, bool last, Outcome outcome, const std::string& why);
  void Notify(uint64_t operation, const std::string& text);
  void PostMessage(std::unique_ptr<char[]> bytes);
  void Receive(InPiece piece, char* data);
  void Refuse(Inbound& inbound, const std::string& why);
  void FinishInbound(Inbound& inbound);
  void Deliver(std::string text);
  void FinishTransfer(const std::shared_ptr<Transfer>& transfer);
  void EndTransfer(Transfer& transfer, Transfer::State state, Status status);
  char* Nowhere(size_t connection);
  std::shared_ptr<Inbound> FindInbound(uint64_t operation);

  Shared* const shared_;
  const Address address_;
  const uint64_t session_;
  uint64_t their_session_ = 0;
  bool known_here_ = false;
  Status failure_;
  Status ended_;  // of the first connection that has
  int64_t ended_ns_ = 0;

  std::vector<std::shared_ptr<SendComm>> senders_;
  std::vector<std::shared_ptr<RecvComm>> receivers_;
  std::vector<std::deque<OutMessage>> out_messages_;  // by sender
  uint64_t said_ = 0;                                 // by all of them
  uint64_t taken_ = 0;
  std::vector<std::deque<OutPiece>> out_pieces_;  // by data connection, as the next
  std::vector<std::deque<InPiece>> in_pieces_;
  std::deque<InMessage> in_messages_;
  bool looks_ = false;  // see Pump
  bool has_more_ = false;
  bool met_ = false;     // both directions were there
  bool asked_ = false;   // see WasAsked
  bool served_ = false;  // see HasServed
  bool heard_ = false;   // a message was taken since the peer's transport was told of the last
  size_t next_out_ = 0;  // data connection of the next piece
  size_t next_in_ = 0;
  uint64_t out_bytes_ = 0;  // of pieces that the transport has, those within messages too
  uint64_t out_count_ = 0;
  uint64_t in_count_ = 0;  // pieces that were announced and are not here

  std::deque<std::shared_ptr<Job>> jobs_;           // take turns
  std::map<uint64_t, std::shared_ptr<Job>> reads_;  // of the peer's, whose end was not said
  uint64_t read_ranges_ = 0;                        // of these
  uint64_t own_ranges_ = 0;                         // of reads of ours that the peer knows of
  std::map<uint64_t, std::shared_ptr<Inbound>> inbound_;
  std::map<uint64_t, std::shared_ptr<Transfer>> transfers_;
  std::deque<std::shared_ptr<Transfer>> waiting_;  // of these, until others are over
  std::string partial_;                            // of a notification that is still coming
  std::vector<std::unique_ptr<char[]>> nowhere_;   // where refused pieces land
};

}  // namespace r2ccl::transfer

#endif  // R2CCL_TRANSFER_PEER_H_
