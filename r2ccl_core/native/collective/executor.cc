// The loop around the machine.
#include "collective/executor.h"

#include <chrono>

#include "base/clock.h"

namespace r2ccl {
namespace {

constexpr int64_t kAskNs = 100 * kMillisecond;  // between two looks whether the user interrupts

}  // namespace

Status Executor::Run(const void* input, void* output, const Operation& operation,
                     const std::function<bool()>& interrupted) {
  Status status = machine_.Begin(input, output, operation);
  int64_t ask_ns = NowNs() + kAskNs;
  while (status.ok()) {
    uint64_t seen = notifier_->Count();
    StepMachine::Look look;
    status = machine_.Advance(NowNs(), &look);
    if (!status.ok() || look.finished) return status;
    if (!look.progress) notifier_->Wait(seen, std::chrono::milliseconds(look.wait_ns / kMillisecond));
    if (NowNs() < ask_ns) continue;
    if (interrupted()) {
      machine_.Break();
      return {Code::kTimeout, "interrupted"};
    }
    ask_ns = NowNs() + kAskNs;
  }
  return status;
}

}  // namespace r2ccl
