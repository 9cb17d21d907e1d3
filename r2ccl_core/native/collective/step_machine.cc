// Lanes, receives that are posted ahead, and who waits for whom.
#include "collective/step_machine.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"

namespace r2ccl {
namespace {

constexpr int64_t kLookMs = 100;      // between two looks where nothing happens
constexpr int64_t kStuckMs = 2;       // without progress
constexpr double kLead = 0.1;         // of its steps, by which a lane may be ahead of the last one of its group
constexpr int64_t kPatientSteps = 8;  // a lane that is ahead waits as long as these take on average, then goes on
constexpr int64_t kMostPatienceMs = 100;

// A connection knows its peer by addresses; people know it by its rank.
Status Naming(int64_t rank, const Status& status) {
  if (status.code() != Code::kPeerLost) return status;
  return {Code::kPeerLost, "the connection with rank " + std::to_string(rank) + ": " + status.message()};
}

}  // namespace

StepMachine::StepMachine(std::vector<std::vector<Step>> lanes, const std::vector<int64_t>& abreast,
                         std::vector<std::shared_ptr<SendComm>> senders,
                         std::vector<std::shared_ptr<RecvComm>> receivers, std::vector<int64_t> destinations,
                         std::vector<int64_t> sources, std::shared_ptr<MemoryRegistry> registry,
                         std::vector<NicShares> shares)
    : senders_(std::move(senders)),
      receivers_(std::move(receivers)),
      destinations_(std::move(destinations)),
      sources_(std::move(sources)),
      registry_(std::move(registry)),
      shares_(std::move(shares)) {
  for (auto& steps : lanes) {
    Lane lane;
    if (!abreast.empty()) lane.group = abreast[lanes_.size()];
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].recv < 0) continue;
      lane.largest = std::max(lane.largest, steps[i].end - steps[i].begin);
      lane.inlets[steps[i].recv].steps.push_back(i);
    }
    if (lane.group != kAlone) last_[lane.group] = 1;
    lane.steps = std::move(steps);
    lanes_.push_back(std::move(lane));
  }
}

Status StepMachine::Validate(int64_t elements) const {
  std::vector<const Lane*> sending(senders_.size(), nullptr);
  std::vector<const Lane*> receiving(receivers_.size(), nullptr);
  // Lanes run at their own pace, so a connection of two lanes would have no order of messages.
  auto shared = [](std::vector<const Lane*>& owners, int64_t connection, const Lane& lane) {
    if (connection < 0) return false;
    const Lane*& owner = owners[static_cast<size_t>(connection)];
    if (owner == nullptr) owner = &lane;
    return owner != &lane;
  };
  for (const Lane& lane : lanes_) {
    for (size_t i = 0; i < lane.steps.size(); ++i) {
      const Step& step = lane.steps[i];
      bool peers = step.recv >= -1 && step.recv < static_cast<int64_t>(receivers_.size()) && step.send >= -1 &&
                   step.send < static_cast<int64_t>(senders_.size());
      bool range = 0 <= step.begin && step.begin <= step.end && step.end <= elements;
      bool barrier = step.barrier >= -1 && step.barrier < static_cast<int64_t>(i);
      if (!peers || !range || !barrier) {
        return {Code::kInvalidArgument,
                "step " + std::to_string(i) + " names a peer, range or barrier that is not there"};
      }
      if (shared(sending, step.send, lane) || shared(receiving, step.recv, lane)) {
        return {Code::kInvalidArgument, "step " + std::to_string(i) + " uses a connection of another lane"};
      }
    }
  }
  return {};
}

void StepMachine::Reset(Lane& lane, size_t element_bytes) {
  size_t bytes = static_cast<size_t>(lane.largest) * element_bytes;
  if (bytes > lane.bounce_bytes) {
    lane.bounces.clear();
    lane.bounce_bytes = bytes;
  }
  lane.free_bounces.clear();
  for (const auto& bounce : lane.bounces) lane.free_bounces.push_back(bounce.get());
  lane.done = 0;
  for (auto& [connection, inlet] : lane.inlets) inlet.posted = 0;
}

char* StepMachine::TakeBounce(Lane& lane) const {
  if (lane.free_bounces.empty()) {
    lane.bounces.emplace_back(registry_, lane.bounce_bytes);
    return lane.bounces.back().get();
  }
  char* bounce = lane.free_bounces.back();
  lane.free_bounces.pop_back();
  return bounce;
}

// Whether nothing earlier reads or writes the step's range any more, acknowledgements of its sends included:
// a replay would send what we are about to overwrite.
bool StepMachine::PlaceIsFree(const Lane& lane, const Step& step) const {
  if (static_cast<int64_t>(lane.done) <= step.barrier) return false;
  return lane.sends.empty() || static_cast<int64_t>(lane.sends.front().step) > step.barrier;
}

Status StepMachine::PostReceives(Lane& lane, bool stuck, bool* progress) {
  for (auto& [connection, inlet] : lane.inlets) {
    bool posted = true;
    while (posted && inlet.posted < inlet.steps.size()) {
      Status status = PostNext(lane, connection, inlet, stuck, &posted);
      if (!status.ok()) return status;
      *progress = *progress || posted;
    }
  }
  return {};
}

// The connection's next receive, if it is near and there is a place for it. A stuck rank posts what it owes.
Status StepMachine::PostNext(Lane& lane, int64_t connection, Inlet& inlet, bool stuck, bool* posted) {
  *posted = false;
  size_t number = inlet.steps[inlet.posted];
  bool owed = inlet.waiting.size() < kSlots;
  bool near = number < lane.done + kAhead;
  if (!near && !owed) return {};
  const Step& step = lane.steps[number];
  char* place = output_ + step.begin * element_bytes_;
  char* bounce = nullptr;
  bool reduces = (step.flags & Step::kReduce) != 0;
  if (reduces || !PlaceIsFree(lane, step)) {
    bool has_bounce = reduces && near && lane.bounces.size() - lane.free_bounces.size() < kBounces;
    if (!has_bounce && !(stuck && owed)) {
      held_back_ = held_back_ || owed;
      return {};
    }
    place = bounce = TakeBounce(lane);
  }
  Request* request = nullptr;
  auto bytes = static_cast<uint64_t>((step.end - step.begin) * element_bytes_);
  Status status = receivers_[static_cast<size_t>(connection)]->Irecv(place, bytes, &request);
  if (!status.ok()) return Naming(sources_[static_cast<size_t>(connection)], status);
  inlet.waiting.push_back({request, bounce});
  ++inlet.posted;
  *posted = true;
  return {};
}

// Before anything of it is used.
Status StepMachine::CheckMessage(int64_t connection, uint64_t size, uint64_t expected, uint32_t tag) const {
  if (tag == tag_ && size == expected) return {};
  std::string peer = "rank " + std::to_string(sources_[static_cast<size_t>(connection)]);
  std::string theirs = Describe(tag);
  std::string ours = Describe(tag_);
  if (theirs != ours) {
    return {Code::kMismatch, peer + " runs " + theirs + " while this rank runs " + ours};
  }
  if (tag != tag_) {
    return {Code::kMismatch,
            peer + " runs " + ours + " of another number of elements, with another root, or as another call"};
  }
  return {Code::kMismatch, "a message of " + peer + " has " + std::to_string(size) + " bytes where the schedule has " +
                               std::to_string(expected) + ": the ranks run different schedules"};
}

void StepMachine::Apply(const Step& step, const char* bounce) {
  int64_t count = step.end - step.begin;
  int64_t offset = step.begin * element_bytes_;
  auto bytes = static_cast<size_t>(count * element_bytes_);
  const char* own = (step.flags & Step::kOwnIsInput) != 0 ? input_ + offset : output_ + offset;
  if ((step.flags & Step::kReduce) != 0) {
    r2ccl::Reduce(operation_.type, operation_.op, own, bounce, output_ + offset, static_cast<size_t>(count));
  } else if (bounce != nullptr) {
    std::memcpy(output_ + offset, bounce, bytes);
  } else if (step.recv < 0 && step.send < 0 && own != output_ + offset) {
    std::memcpy(output_ + offset, own, bytes);
  }
}

void StepMachine::LookForLast() {
  for (auto& [group, last] : last_) last = 1;
  for (const Lane& lane : lanes_) {
    if (lane.group != kAlone) last_[lane.group] = std::min(last_[lane.group], lane.Done());
  }
}

bool StepMachine::MustWait(const Lane& lane) {
  bool waits = abreast_ && lane.group != kAlone && lane.Done() > last_[lane.group] + kLead;
  held_back_ = held_back_ || waits;
  return waits;
}

// By the pace of the run, as steps take microseconds in one network and milliseconds in another. `busy_ns` ends with
// its last progress: patience that grew with the wait would have no end.
int64_t StepMachine::PatienceNs(int64_t busy_ns) const {
  int64_t steps = 0;
  for (const Lane& lane : lanes_) steps += static_cast<int64_t>(lane.done);
  return std::clamp(kPatientSteps * busy_ns / std::max<int64_t>(1, steps), kStuckMs * kMillisecond,
                    kMostPatienceMs * kMillisecond);
}

Status StepMachine::RunSteps(Lane& lane, bool* progress) {
  for (; lane.done < lane.steps.size() && !MustWait(lane); ++lane.done) {
    const Step& step = lane.steps[lane.done];
    Inlet* inlet = step.recv >= 0 ? &lane.inlets.at(step.recv) : nullptr;
    if (inlet != nullptr && inlet->waiting.empty()) return {};
    char* bounce = inlet != nullptr ? inlet->waiting.front().bounce : nullptr;
    bool writes_own = bounce != nullptr || (step.recv < 0 && step.send < 0);
    if (writes_own && !PlaceIsFree(lane, step)) return {};
    if (inlet != nullptr) {
      bool arrived = false;
      uint64_t size = 0;
      uint32_t tag = 0;
      RecvComm& receiver = *receivers_[static_cast<size_t>(step.recv)];
      Status status = receiver.Test(inlet->waiting.front().request, &arrived, &size, &tag);
      if (!status.ok()) return Naming(sources_[static_cast<size_t>(step.recv)], status);
      if (!arrived) return {};
      inlet->waiting.pop_front();
      auto expected = static_cast<uint64_t>((step.end - step.begin) * element_bytes_);
      status = CheckMessage(step.recv, size, expected, tag);
      if (!status.ok()) return status;
    }
    Apply(step, bounce);
    if (bounce != nullptr) lane.free_bounces.push_back(bounce);
    if (step.send >= 0) {
      const char* base = (step.flags & Step::kSendFromInput) != 0 ? input_ : output_;
      Request* request = nullptr;
      auto sender = static_cast<size_t>(step.send);
      Status status = senders_[sender]->Isend(base + step.begin * element_bytes_,
                                              static_cast<uint64_t>((step.end - step.begin) * element_bytes_), &request,
                                              false, tag_, shares_.empty() ? nullptr : shares_[sender]);
      if (!status.ok()) return Naming(destinations_[static_cast<size_t>(step.send)], status);
      lane.sends.push_back({lane.done, step.send, request});
    }
    *progress = true;
  }
  return {};
}

Status StepMachine::ReapSends(Lane& lane, bool* progress) {
  while (!lane.sends.empty()) {
    bool done = false;
    const Outstanding& oldest = lane.sends.front();
    Status status = senders_[static_cast<size_t>(oldest.connection)]->Test(oldest.request, &done, nullptr);
    if (!status.ok()) return Naming(destinations_[static_cast<size_t>(oldest.connection)], status);
    if (!done) return {};
    lane.sends.pop_front();
    *progress = true;
  }
  return {};
}

Status StepMachine::Begin(const void* input, void* output, const Operation& operation) {
  if (broken_) return {Code::kPeerLost, "an earlier collective failed; the communicator cannot be used any more"};
  input_ = static_cast<const char*>(input);
  output_ = static_cast<char*>(output);
  operation_ = operation;
  tag_ = TagOf(operation);
  element_bytes_ = static_cast<int64_t>(SizeOf(operation.type));
  for (Lane& lane : lanes_) Reset(lane, SizeOf(operation.type));
  progressed_ = true;
  start_ns_ = 0;
  return {};
}

// How long nothing has happened is counted from the end of the last look that came to something, when this one begins.
Status StepMachine::Advance(int64_t now_ns, Look* look) {
  if (start_ns_ == 0) start_ns_ = now_ns;
  if (progressed_) progress_ns_ = now_ns;
  stuck_ = now_ns - progress_ns_ >= kStuckMs * kMillisecond;
  abreast_ = now_ns - progress_ns_ < PatienceNs(progress_ns_ - start_ns_);
  Status status = AdvanceLanes(look);
  progressed_ = look->progress;
  if (!status.ok()) Break();
  return status;
}

Status StepMachine::AdvanceLanes(Look* look) {
  *look = {.finished = true};
  held_back_ = false;
  LookForLast();
  for (Lane& lane : lanes_) {
    Status status = PostReceives(lane, stuck_, &look->progress);
    if (status.ok()) status = RunSteps(lane, &look->progress);
    if (status.ok()) status = ReapSends(lane, &look->progress);
    if (!status.ok()) return status;
    look->finished = look->finished && lane.done == lane.steps.size() && lane.sends.empty();
  }
  look->wait_ns = (held_back_ ? kStuckMs : kLookMs) * kMillisecond;
  return {};
}

void StepMachine::Break() {
  broken_ = true;
  for (const auto& sender : senders_) sender->Close();
  for (const auto& receiver : receivers_) receiver->Close();
}

}  // namespace r2ccl
