// The step machine.
#include "collective/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"

namespace r2ccl {
namespace {

constexpr int64_t kAskNs = 100 * kMillisecond;  // between two looks whether the user interrupts

}  // namespace

Executor::Executor(std::vector<std::vector<Step>> lanes, std::vector<std::shared_ptr<SendComm>> senders,
                   std::vector<std::shared_ptr<RecvComm>> receivers, Notifier* notifier)
    : senders_(std::move(senders)), receivers_(std::move(receivers)), notifier_(notifier) {
  for (auto& steps : lanes) {
    Lane lane;
    for (const Step& step : steps) {
      if ((step.flags & Step::kReduce) != 0) lane.largest_reduce = std::max(lane.largest_reduce, step.end - step.begin);
    }
    lane.steps = std::move(steps);
    lanes_.push_back(std::move(lane));
  }
}

Status Executor::Validate(int64_t elements) const {
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

void Executor::Reset(Lane& lane, size_t element_bytes) {
  size_t bytes = static_cast<size_t>(lane.largest_reduce) * element_bytes;
  if (bytes > lane.bounce_bytes) {
    lane.bounce = std::make_unique<char[]>(bytes * kSlots);
    lane.bounce_bytes = bytes;
  }
  lane.posted = lane.done = lane.reduces_posted = lane.reduces_done = 0;
}

char* Executor::Slot(Lane& lane, size_t number) const {
  return lane.bounce.get() + (number % kSlots) * lane.bounce_bytes;
}

// Whether nothing earlier reads or writes the step's range any more, acknowledgements of its sends included:
// a replay would send what we are about to overwrite.
bool Executor::PlaceIsFree(const Lane& lane, const Step& step) const {
  if (static_cast<int64_t>(lane.done) <= step.barrier) return false;
  return lane.sends.empty() || static_cast<int64_t>(lane.sends.front().step) > step.barrier;
}

Status Executor::PostReceives(Lane& lane, bool* progress) {
  while (lane.posted < lane.steps.size() && lane.posted < lane.done + kAhead) {
    const Step& step = lane.steps[lane.posted];
    if (step.recv >= 0) {
      char* place = output_ + step.begin * element_bytes_;
      if ((step.flags & Step::kReduce) != 0) {
        if (lane.reduces_posted - lane.reduces_done == kSlots) return {};
        place = Slot(lane, lane.reduces_posted++);
      } else if (!PlaceIsFree(lane, step)) {
        return {};
      }
      Request* request = nullptr;
      auto bytes = static_cast<uint64_t>((step.end - step.begin) * element_bytes_);
      Status status = receivers_[static_cast<size_t>(step.recv)]->Irecv(place, bytes, &request);
      if (!status.ok()) return status;
      lane.receives.push_back({lane.posted, step.recv, request});
    }
    ++lane.posted;
    *progress = true;
  }
  return {};
}

void Executor::Apply(Lane& lane, const Step& step) {
  int64_t count = step.end - step.begin;
  int64_t offset = step.begin * element_bytes_;
  const char* own = (step.flags & Step::kOwnIsInput) != 0 ? input_ + offset : output_ + offset;
  if ((step.flags & Step::kReduce) != 0) {
    r2ccl::Reduce(type_, op_, own, Slot(lane, lane.reduces_done++), output_ + offset, static_cast<size_t>(count));
  } else if (step.recv < 0 && step.send < 0 && own != output_ + offset) {
    std::memcpy(output_ + offset, own, static_cast<size_t>(count * element_bytes_));
  }
}

Status Executor::RunSteps(Lane& lane, bool* progress) {
  while (lane.done < lane.posted) {
    const Step& step = lane.steps[lane.done];
    bool writes_own = (step.flags & Step::kReduce) != 0 || (step.recv < 0 && step.send < 0);
    if (writes_own && !PlaceIsFree(lane, step)) return {};
    if (step.recv >= 0) {
      bool arrived = false;
      uint64_t size = 0;
      Status status = receivers_[static_cast<size_t>(step.recv)]->Test(lane.receives.front().request, &arrived, &size);
      if (!status.ok()) return status;
      if (!arrived) return {};
      lane.receives.pop_front();
      auto expected = static_cast<uint64_t>((step.end - step.begin) * element_bytes_);
      if (size != expected) {
        return {Code::kProtocol, "a message has " + std::to_string(size) + " bytes where the schedule has " +
                                     std::to_string(expected) + ": the ranks run different schedules"};
      }
    }
    Apply(lane, step);
    if (step.send >= 0) {
      const char* base = (step.flags & Step::kSendFromInput) != 0 ? input_ : output_;
      Request* request = nullptr;
      Status status = senders_[static_cast<size_t>(step.send)]->Isend(
          base + step.begin * element_bytes_, static_cast<uint64_t>((step.end - step.begin) * element_bytes_),
          &request);
      if (!status.ok()) return status;
      lane.sends.push_back({lane.done, step.send, request});
    }
    ++lane.done;
    *progress = true;
  }
  return {};
}

Status Executor::ReapSends(Lane& lane, bool* progress) {
  while (!lane.sends.empty()) {
    bool done = false;
    const Outstanding& oldest = lane.sends.front();
    Status status = senders_[static_cast<size_t>(oldest.connection)]->Test(oldest.request, &done, nullptr);
    if (!status.ok()) return status;
    if (!done) return {};
    lane.sends.pop_front();
    *progress = true;
  }
  return {};
}

Status Executor::Run(const void* input, void* output, DataType type, ReduceOp op,
                     const std::function<bool()>& interrupted) {
  if (broken_) return {Code::kPeerLost, "an earlier collective failed; the communicator cannot be used any more"};
  input_ = static_cast<const char*>(input);
  output_ = static_cast<char*>(output);
  type_ = type;
  op_ = op;
  element_bytes_ = static_cast<int64_t>(SizeOf(type));
  for (Lane& lane : lanes_) Reset(lane, SizeOf(type));
  Status status = RunLanes(interrupted);
  if (!status.ok()) {
    broken_ = true;
    for (const auto& sender : senders_) sender->Close();
    for (const auto& receiver : receivers_) receiver->Close();
  }
  return status;
}

Status Executor::RunLanes(const std::function<bool()>& interrupted) {
  int64_t ask_ns = NowNs() + kAskNs;
  while (true) {
    uint64_t seen = notifier_->Count();
    bool progress = false;
    bool finished = true;
    for (Lane& lane : lanes_) {
      Status status = PostReceives(lane, &progress);
      if (status.ok()) status = RunSteps(lane, &progress);
      if (status.ok()) status = ReapSends(lane, &progress);
      if (!status.ok()) return status;
      finished = finished && lane.done == lane.steps.size() && lane.sends.empty();
    }
    if (finished) return {};
    if (!progress) notifier_->Wait(seen, std::chrono::milliseconds(100));
    if (int64_t now_ns = NowNs(); now_ns >= ask_ns) {
      if (interrupted()) return {Code::kTimeout, "interrupted"};
      ask_ns = now_ns + kAskNs;
    }
  }
}

}  // namespace r2ccl
