// Model: the two ends of one connection as a small state machine, in which everything that a network may do to them is
// a choice: order across paths, delay, the loss of a path seen by either end at any time, late words of streams long
// gone.
//
// It moves one message of kChunks chunks over kPaths paths; a chunk's frame is two tokens, so that a path can be lost
// in the middle of one. A chunk in flight may be sent over another path as well, while its own is alive. The decisions
// are those of failover/protocol.h, which the real ends call. What is left out: sizes, time, the posting of receives,
// back-off, held paths (a held path is one over which nothing is sent).
#ifndef R2CCL_TESTS_MODEL_H_
#define R2CCL_TESTS_MODEL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "failover/protocol.h"

namespace r2ccl::model {

constexpr int kPaths = 2;
constexpr int kMostChunks = 3;
constexpr int kMostEpochs = 5;  // streams of one path, from 1
constexpr int kWindow = 2;      // chunks in flight on one path
constexpr int kMostTokens = 2 * kWindow;

// What a mutant does wrong; the model as it is does nothing wrong.
enum class Mutation {
  kNone,
  kAcksOfAnyEpoch,          // the sending end takes counts of earlier streams for those of the present one
  kCopyIsWrittenAtOnce,     // the receiving end writes while another path is in the middle of the chunk
  kWriterIsLeftAlone,       // a copy is put in its place, and who was writing there goes on
  kCopyIsThrownAway,        // a copy that came while another path was in the middle of the chunk counts and is not kept
  kWritesDoneChunks,        // a chunk that comes again is written again
  kInFlightIsForgotten,     // what was in flight on a lost path is not sent again
  kBothCopiesAreForgotten,  // a chunk that was sent twice is not sent again when the last of its paths is lost
  kFrameIsNotKept,          // a frame that is cut short by its message's end is read from the user's memory to its end
  kDoneWhenSent,            // a send completes when its bytes left, not when they arrived
  kCountsAtTheBeginning,    // the receiving end acknowledges a chunk when its first byte came
  kHalfChunkCounts,         // a path lost in the middle of a chunk leaves it as arrived
  kCountSurvivesTheStream,  // the receiving end goes on counting from the stream before
};

struct Token {
  int8_t chunk = 0;
  bool end = false;
};

struct Ack {
  std::array<uint8_t, kPaths> epoch{};
  std::array<uint8_t, kPaths> chunks{};
  std::array<bool, kPaths> down{};
};

// One TCP stream, both directions. Words on their way arrive in order, or never.
struct Stream {
  std::array<Token, kMostTokens> forward{};
  uint8_t forward_count = 0;
  Ack ack{};
  bool has_ack = false;
  bool attached = false;  // the receiving end has taken it over
  bool greeting = false;  // its HELLO_ACK is on the way
  bool sender_cut = false;
  bool receiver_cut = false;
};

struct SenderPath {
  PathState state = PathState::kDown;
  uint8_t epoch = 0;
  std::array<int8_t, kWindow> in_flight{};
  uint8_t in_flight_count = 0;
  bool mid_frame = false;
  bool kept = false;  // the rest of the frame that is under way was copied, as its chunk is done
  uint8_t acknowledged = 0;
};

struct ReceiverPath {
  bool up = false;
  uint8_t epoch = 0;
  uint8_t chunks = 0;
  int8_t writing = -1;     // the chunk whose bytes go into the buffer
  int8_t discarding = -1;  // the chunk whose bytes go nowhere
  int8_t aside = -1;       // the chunk of which a copy is read into memory of its own
};

struct State {
  std::array<SenderPath, kPaths> sender{};
  std::array<ReceiverPath, kPaths> receiver{};
  std::array<std::array<Stream, kMostEpochs>, kPaths> streams{};
  std::array<int8_t, kMostChunks> lane{};
  uint8_t lane_count = 0;
  std::array<bool, kMostChunks> acknowledged{};
  std::array<ChunkState, kMostChunks> chunks{};
  std::array<bool, kMostChunks> whole{};  // the truth: all of its bytes are in the buffer
  bool ack_due = false;
  uint8_t losses_left = 0;
  uint8_t copies_left = 0;
  // The first rule that was broken on the way here, 0: none.
  uint8_t broken = 0;
};

// States are compared byte by byte.
static_assert(std::has_unique_object_representations_v<State>);

enum Broken : uint8_t {
  kNothing,
  kWrittenTwice,        // bytes of a chunk that was done were written again: the buffer may be the user's by now
  kTwoWriters,          // two paths wrote the same chunk at the same time
  kAcknowledgedUnseen,  // the sending end believes in a chunk that did not arrive, at least not whole
  kReadAfterDone,       // the sending end reads a chunk that is done: the memory may be the user's by now
};
const char* ToString(Broken broken);

// One thing that can happen; `fault`: only the network's malice makes it happen.
struct Step {
  std::string name;
  bool fault = false;
  State next;
};

class Model {
 public:
  // `copies`: how often a chunk in flight may be sent over another path as well.
  Model(int chunks, int losses, int copies = 0, Mutation mutation = Mutation::kNone)
      : chunks_(chunks), losses_(losses), copies_(copies), mutation_(mutation) {}

  State Initial() const;
  // Everything that can happen next, in a fixed order.
  std::vector<Step> Steps(const State& state) const;
  bool Finished(const State& state) const;  // every chunk is acknowledged

  // The receiving end's part, for comparison with the real one.
  void Attach(State& state, int path, int epoch) const;
  void Arrive(State& state, int path, Token token) const;
  void ReceiverLoses(State& state, int path) const;
  Ack StateOf(const State& state) const;

 private:
  void Send(State& state, int path) const;
  void Copy(State& state, int path, int at) const;
  void Acknowledge(State& state, int8_t chunk) const;
  bool HasCopy(const State& state, int8_t chunk) const;
  void SenderLoses(State& state, int path) const;
  void TakeAck(State& state, int path) const;
  void Check(State& state) const;
  void Simplify(State& state) const;
  bool Is(Mutation mutation) const { return mutation_ == mutation; }

  const int chunks_;
  const int losses_;
  const int copies_;
  const Mutation mutation_;
};

struct Found {
  size_t states = 0;
  Broken broken = kNothing;
  bool stuck = false;              // a state from which no end can be reached, whatever the network does from then on
  std::vector<std::string> steps;  // that lead there
};

// All that can happen, each state once.
Found Explore(const Model& model);

}  // namespace r2ccl::model

#endif  // R2CCL_TESTS_MODEL_H_
