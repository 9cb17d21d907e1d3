// Steps of the model and their exhaustive exploration.
#include "model.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

namespace r2ccl::model {

const char* ToString(Broken broken) {
  switch (broken) {
    case kNothing:
      return "nothing";
    case kWrittenTwice:
      return "a chunk that was done was written again";
    case kTwoWriters:
      return "two paths wrote the same chunk";
    case kAcknowledgedUnseen:
      return "a chunk was acknowledged that did not arrive";
    case kReadAfterDone:
      return "a chunk that was done was read again";
  }
  return "?";
}

State Model::Initial() const {
  State state;
  for (int path = 0; path < kPaths; ++path) {
    state.receiver[static_cast<size_t>(path)].writing = -1;
    state.receiver[static_cast<size_t>(path)].discarding = -1;
    state.receiver[static_cast<size_t>(path)].aside = -1;
    state.sender[static_cast<size_t>(path)].state = PathState::kUp;
    state.sender[static_cast<size_t>(path)].epoch = 1;
    Attach(state, path, 1);
    state.streams[static_cast<size_t>(path)][1].greeting = false;
  }
  state.ack_due = false;
  for (int chunk = 0; chunk < chunks_; ++chunk) state.lane[state.lane_count++] = static_cast<int8_t>(chunk);
  state.losses_left = static_cast<uint8_t>(losses_);
  state.copies_left = static_cast<uint8_t>(copies_);
  return state;
}

bool Model::Finished(const State& state) const {
  return std::all_of(state.acknowledged.begin(), state.acknowledged.begin() + chunks_, [](bool done) { return done; });
}

void Model::Attach(State& state, int index, int epoch) const {
  auto path = static_cast<size_t>(index);
  ReceiverPath& receiver = state.receiver[path];
  bool newer = IsNewerStream(receiver.epoch, static_cast<uint32_t>(epoch));
  Stream& stream = state.streams[path][static_cast<size_t>(epoch)];
  stream.attached = true;
  if (!newer) {
    stream.receiver_cut = true;  // refused
    return;
  }
  if (receiver.up) ReceiverLoses(state, index);
  receiver.up = true;
  receiver.epoch = static_cast<uint8_t>(epoch);
  if (!Is(Mutation::kCountSurvivesTheStream)) receiver.chunks = 0;
  stream.greeting = true;
  state.ack_due = true;
}

void Model::ReceiverLoses(State& state, int index) const {
  auto path = static_cast<size_t>(index);
  ReceiverPath& receiver = state.receiver[path];
  receiver.up = false;
  state.streams[path][receiver.epoch].receiver_cut = true;
  if (receiver.writing >= 0) {
    ChunkState& chunk = state.chunks[static_cast<size_t>(receiver.writing)];
    chunk = Is(Mutation::kHalfChunkCounts) ? ChunkState::kDone : ChunkState::kMissing;
  }
  receiver.writing = -1;
  receiver.discarding = -1;
  receiver.aside = -1;
  state.ack_due = true;
}

void Model::Arrive(State& state, int index, Token token) const {
  auto path = static_cast<size_t>(index);
  ReceiverPath& receiver = state.receiver[path];
  ChunkState& chunk = state.chunks[static_cast<size_t>(token.chunk)];
  if (token.end) {
    if (receiver.writing >= 0 && chunk == ChunkState::kDone) state.broken = kWrittenTwice;
    bool fills = receiver.writing >= 0 || (receiver.aside >= 0 && chunk != ChunkState::kDone);
    if (receiver.aside >= 0 && fills && !Is(Mutation::kWriterIsLeftAlone)) {
      for (ReceiverPath& other : state.receiver) {
        if (other.writing == token.chunk) other.discarding = std::exchange(other.writing, -1);
      }
    }
    if (fills) {
      chunk = ChunkState::kDone;
      state.whole[static_cast<size_t>(token.chunk)] = true;
    }
    receiver.writing = -1;
    receiver.discarding = -1;
    receiver.aside = -1;
    if (!Is(Mutation::kCountsAtTheBeginning)) ++receiver.chunks;
    state.ack_due = true;
    return;
  }
  if (Is(Mutation::kCountsAtTheBeginning)) {
    ++receiver.chunks;
    state.ack_due = true;
  }
  Placement placement = PlaceChunk(chunk);
  bool nowhere = placement == Placement::kDiscard && !Is(Mutation::kWritesDoneChunks);
  if (nowhere || (placement == Placement::kAside && Is(Mutation::kCopyIsThrownAway))) {
    receiver.discarding = token.chunk;
    return;
  }
  if (chunk == ChunkState::kDone) state.broken = kWrittenTwice;
  if (placement == Placement::kAside && !Is(Mutation::kCopyIsWrittenAtOnce)) {
    receiver.aside = token.chunk;
    return;
  }
  for (size_t other = 0; other < kPaths; ++other) {
    if (other != path && state.receiver[other].writing == token.chunk) state.broken = kTwoWriters;
  }
  chunk = ChunkState::kArriving;
  receiver.writing = token.chunk;
}

Ack Model::StateOf(const State& state) const {
  Ack ack{};
  for (size_t path = 0; path < kPaths; ++path) {
    ack.epoch[path] = state.receiver[path].epoch;
    ack.chunks[path] = state.receiver[path].chunks;
    ack.down[path] = !state.receiver[path].up;
  }
  return ack;
}

void Model::Send(State& state, int index) const {
  auto path = static_cast<size_t>(index);
  SenderPath& sender = state.sender[path];
  Stream& stream = state.streams[path][sender.epoch];
  if (sender.mid_frame) {
    int8_t chunk = sender.in_flight[sender.in_flight_count - 1u];
    stream.forward[stream.forward_count++] = {chunk, true};
    sender.mid_frame = false;
    if (state.acknowledged[static_cast<size_t>(chunk)] && !sender.kept) state.broken = kReadAfterDone;
    sender.kept = false;
    if (Is(Mutation::kDoneWhenSent)) state.acknowledged[static_cast<size_t>(chunk)] = true;
    return;
  }
  int8_t chunk = state.lane[0];
  std::copy(state.lane.begin() + 1, state.lane.end(), state.lane.begin());
  state.lane[--state.lane_count] = 0;
  sender.in_flight[sender.in_flight_count++] = chunk;
  sender.mid_frame = true;
  stream.forward[stream.forward_count++] = {chunk, false};
}

// Somewhere where it will be sent from.
bool Model::HasCopy(const State& state, int8_t chunk) const {
  if (std::find(state.lane.begin(), state.lane.begin() + state.lane_count, chunk) !=
      state.lane.begin() + state.lane_count) {
    return true;
  }
  return std::any_of(state.sender.begin(), state.sender.end(), [chunk](const SenderPath& path) {
    auto end = path.in_flight.begin() + path.in_flight_count;
    return std::find(path.in_flight.begin(), end, chunk) != end;
  });
}

// The path is late with it: another one gets it, too.
void Model::Copy(State& state, int index, int at) const {
  int8_t chunk = state.sender[static_cast<size_t>(index)].in_flight[static_cast<size_t>(at)];
  std::copy_backward(state.lane.begin(), state.lane.end() - 1, state.lane.end());
  state.lane[0] = chunk;
  ++state.lane_count;
  --state.copies_left;
}

void Model::Acknowledge(State& state, int8_t chunk) const {
  state.acknowledged[static_cast<size_t>(chunk)] = true;
  auto end = state.lane.begin() + state.lane_count;
  auto copy = std::find(state.lane.begin(), end, chunk);
  if (copy != end) {
    std::copy(copy + 1, state.lane.end(), copy);
    state.lane[--state.lane_count] = 0;
  }
  if (Is(Mutation::kFrameIsNotKept)) return;
  for (SenderPath& sender : state.sender) {
    if (sender.mid_frame && sender.in_flight[sender.in_flight_count - 1u] == chunk) sender.kept = true;
  }
}

void Model::SenderLoses(State& state, int index) const {
  auto path = static_cast<size_t>(index);
  SenderPath& sender = state.sender[path];
  state.streams[path][sender.epoch].sender_cut = true;
  state.streams[path][sender.epoch].greeting = false;
  state.streams[path][sender.epoch].has_ack = false;
  state.streams[path][sender.epoch].ack = {};
  sender.state = PathState::kDown;
  while (sender.in_flight_count > 0) {
    int8_t chunk = sender.in_flight[--sender.in_flight_count];
    sender.in_flight[sender.in_flight_count] = 0;
    if (Is(Mutation::kInFlightIsForgotten)) continue;
    if (state.acknowledged[static_cast<size_t>(chunk)] || HasCopy(state, chunk)) continue;
    if (Is(Mutation::kBothCopiesAreForgotten) && state.copies_left < copies_) continue;
    std::copy_backward(state.lane.begin(), state.lane.end() - 1, state.lane.end());
    state.lane[0] = chunk;
    ++state.lane_count;
  }
  sender.mid_frame = false;
  sender.kept = false;
  sender.acknowledged = 0;
}

void Model::TakeAck(State& state, int index) const {
  Stream& stream = state.streams[static_cast<size_t>(index)][state.sender[static_cast<size_t>(index)].epoch];
  Ack ack = stream.ack;
  stream.ack = {};
  stream.has_ack = false;
  for (int other = 0; other < kPaths; ++other) {
    auto path = static_cast<size_t>(other);
    SenderPath& sender = state.sender[path];
    bool concerns = ConcernsStream(sender.state, sender.epoch, ack.epoch[path]);
    if (Is(Mutation::kAcksOfAnyEpoch)) concerns = IsOpen(sender.state);
    if (!concerns) continue;
    int complete = sender.in_flight_count - (sender.mid_frame ? 1 : 0);
    int fresh = std::min<int>(ack.chunks[path] - sender.acknowledged, complete);
    for (int i = 0; i < fresh; ++i) {
      int8_t chunk = sender.in_flight[0];
      std::copy(sender.in_flight.begin() + 1, sender.in_flight.end(), sender.in_flight.begin());
      sender.in_flight[--sender.in_flight_count] = 0;
      ++sender.acknowledged;
      Acknowledge(state, chunk);
    }
    if (ack.down[path] && ack.epoch[path] == sender.epoch) SenderLoses(state, other);
  }
}

void Model::Check(State& state) const {
  for (size_t chunk = 0; chunk < kMostChunks; ++chunk) {
    if (state.acknowledged[chunk] && !state.whole[chunk]) state.broken = kAcknowledgedUnseen;
  }
}

// Words that nobody will hear make no difference, nor which of two equal paths is the first.
void Model::Simplify(State& state) const {
  for (size_t path = 0; path < kPaths; ++path) {
    for (int epoch = 1; epoch <= state.sender[path].epoch; ++epoch) {
      Stream& stream = state.streams[path][static_cast<size_t>(epoch)];
      bool refused = !stream.attached && epoch <= state.receiver[path].epoch;
      if (refused) stream.attached = stream.receiver_cut = true;
      if (stream.receiver_cut) {
        stream.forward = {};
        stream.forward_count = 0;
      }
      if (stream.receiver_cut && stream.sender_cut)
        stream = {.attached = true, .sender_cut = true, .receiver_cut = true};
    }
  }
  auto bytes = [&state](size_t path) {
    std::string all(reinterpret_cast<const char*>(&state.sender[path]), sizeof state.sender[path]);
    all.append(reinterpret_cast<const char*>(&state.receiver[path]), sizeof state.receiver[path]);
    return all.append(reinterpret_cast<const char*>(&state.streams[path]), sizeof state.streams[path]);
  };
  if (bytes(0) <= bytes(1)) return;
  std::swap(state.sender[0], state.sender[1]);
  std::swap(state.receiver[0], state.receiver[1]);
  std::swap(state.streams[0], state.streams[1]);
  for (auto& path : state.streams) {
    for (Stream& stream : path) {
      std::swap(stream.ack.epoch[0], stream.ack.epoch[1]);
      std::swap(stream.ack.chunks[0], stream.ack.chunks[1]);
      std::swap(stream.ack.down[0], stream.ack.down[1]);
    }
  }
}

std::vector<Step> Model::Steps(const State& state) const {
  std::vector<Step> steps;
  auto add = [&](const std::string& name, int path, bool fault, const std::function<void(State&)>& change) {
    steps.push_back({name + " " + std::to_string(path), fault, state});
    change(steps.back().next);
    if (fault) --steps.back().next.losses_left;
    Check(steps.back().next);
    Simplify(steps.back().next);
  };
  for (int index = 0; index < kPaths; ++index) {
    auto path = static_cast<size_t>(index);
    const SenderPath& sender = state.sender[path];
    const ReceiverPath& receiver = state.receiver[path];
    const Stream& sending = state.streams[path][sender.epoch];
    const Stream& receiving = state.streams[path][receiver.epoch];
    bool room = sending.forward_count < kMostTokens;
    bool fresh = !sender.mid_frame && state.lane_count > 0 && sender.in_flight_count < kWindow;
    if (sender.state == PathState::kUp && room && (sender.mid_frame || fresh)) {
      add("send", index, false, [&](State& next) { Send(next, index); });
    }
    for (int at = 0; IsOpen(sender.state) && state.copies_left > 0 && at < sender.in_flight_count; ++at) {
      int8_t chunk = sender.in_flight[static_cast<size_t>(at)];
      State without = state;
      without.sender[path].in_flight[static_cast<size_t>(at)] = -1;
      if (state.acknowledged[static_cast<size_t>(chunk)] || HasCopy(without, chunk)) continue;
      add("copies " + std::to_string(chunk) + " of", index, false, [&](State& next) { Copy(next, index, at); });
    }
    if (sender.state == PathState::kDown && sender.epoch + 1 < kMostEpochs) {
      add("dial", index, false, [&](State& next) {
        next.sender[path].state = PathState::kGreeting;
        ++next.sender[path].epoch;
      });
    }
    if (sender.state == PathState::kGreeting && sending.greeting) {
      add("greeted", index, false, [&](State& next) {
        next.sender[path].state = PathState::kUp;
        next.streams[path][sender.epoch].greeting = false;
      });
    }
    if (IsOpen(sender.state) && sending.has_ack) {
      add("acknowledged", index, false, [&](State& next) { TakeAck(next, index); });
    }
    bool opening = sender.state == PathState::kGreeting;
    if ((IsOpen(sender.state) || opening) && (sending.receiver_cut || state.losses_left > 0)) {
      add("the sender loses", index, !sending.receiver_cut, [&](State& next) { SenderLoses(next, index); });
    }
    if (receiver.up && receiving.forward_count > 0) {
      add("arrives", index, false, [&](State& next) {
        Stream& stream = next.streams[path][receiver.epoch];
        Token token = stream.forward[0];
        std::copy(stream.forward.begin() + 1, stream.forward.end(), stream.forward.begin());
        stream.forward[--stream.forward_count] = {};
        Arrive(next, index, token);
      });
    }
    if (receiver.up && (receiving.sender_cut || state.losses_left > 0)) {
      add("the receiver loses", index, !receiving.sender_cut, [&](State& next) { ReceiverLoses(next, index); });
    }
    if (receiver.up && state.ack_due && !receiving.has_ack && !receiving.greeting) {
      add("acknowledges", index, false, [&](State& next) {
        Stream& stream = next.streams[path][receiver.epoch];
        if (!stream.sender_cut) {  // else it goes nowhere
          stream.ack = StateOf(next);
          stream.has_ack = true;
        }
        next.ack_due = false;
      });
    }
    // A greeting may be late: the sender has lost that stream meanwhile, and dialled again.
    for (int epoch = 1; epoch <= sender.epoch; ++epoch) {
      if (state.streams[path][static_cast<size_t>(epoch)].attached) continue;
      add("attaches epoch " + std::to_string(epoch) + " of", index, false,
          [&](State& next) { Attach(next, index, epoch); });
    }
  }
  return steps;
}

namespace {

std::vector<std::string> Trace(size_t at, const std::vector<std::pair<size_t, std::string>>& parents) {
  std::vector<std::string> steps;
  for (; at != 0; at = parents[at].first) steps.push_back(parents[at].second);
  return {steps.rbegin(), steps.rend()};
}

}  // namespace

Found Explore(const Model& model) {
  std::unordered_map<std::string, size_t> numbers;
  std::vector<std::pair<size_t, std::string>> parents;
  std::vector<std::vector<uint32_t>> before;  // by steps that are no faults
  std::deque<std::pair<size_t, State>> open;
  std::vector<size_t> ends;
  Found found;
  auto number = [&](const State& state, size_t parent, const std::string& name) {
    auto [entry, fresh] = numbers.try_emplace({reinterpret_cast<const char*>(&state), sizeof state}, parents.size());
    if (fresh) {
      parents.emplace_back(parent, name);
      before.emplace_back();
      open.emplace_back(entry->second, state);
    }
    return entry->second;
  };
  number(model.Initial(), 0, "");
  while (!open.empty()) {
    auto [at, state] = std::move(open.front());
    open.pop_front();
    if (state.broken != kNothing) {
      found.states = parents.size();
      found.broken = static_cast<Broken>(state.broken);
      found.steps = Trace(at, parents);
      return found;
    }
    if (model.Finished(state)) ends.push_back(at);
    for (Step& step : model.Steps(state)) {
      size_t next = number(step.next, at, step.name);
      if (!step.fault) before[next].push_back(static_cast<uint32_t>(at));
    }
  }
  found.states = parents.size();
  std::vector<bool> can_end(parents.size(), false);
  for (size_t end : ends) can_end[end] = true;
  while (!ends.empty()) {
    size_t at = ends.back();
    ends.pop_back();
    for (uint32_t previous : before[at]) {
      if (can_end[previous]) continue;
      can_end[previous] = true;
      ends.push_back(previous);
    }
  }
  for (size_t at = 0; at < parents.size(); ++at) {
    if (can_end[at]) continue;
    found.stuck = true;
    found.steps = Trace(at, parents);
    break;
  }
  return found;
}

}  // namespace r2ccl::model
