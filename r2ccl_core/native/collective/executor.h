// Executor: the thread of a step machine, which waits for what happens and asks whether the user interrupts.
#ifndef R2CCL_COLLECTIVE_EXECUTOR_H_
#define R2CCL_COLLECTIVE_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/notifier.h"
#include "base/status.h"
#include "collective/step_machine.h"

namespace r2ccl {

// Not thread-safe, and after an error of no use, as the machine.
class Executor {
 public:
  // See StepMachine.
  Executor(std::vector<std::vector<Step>> lanes, const std::vector<int64_t>& abreast,
           std::vector<std::shared_ptr<SendComm>> senders, std::vector<std::shared_ptr<RecvComm>> receivers,
           std::vector<int64_t> destinations, std::vector<int64_t> sources, Notifier* notifier,
           std::shared_ptr<MemoryRegistry> registry = nullptr, std::vector<NicShares> shares = {})
      : machine_(std::move(lanes), abreast, std::move(senders), std::move(receivers), std::move(destinations),
                 std::move(sources), std::move(registry), std::move(shares)),
        notifier_(notifier) {}

  Status Validate(int64_t elements) const { return machine_.Validate(elements); }

  // Computes `output` from `input` (as many elements each as `operation` has; the same pointer for in place). Returns
  // when every step is done and every send is acknowledged: both buffers are the caller's again. A peer that runs
  // another operation is an error. `interrupted` is asked a few times a second; when it says true the run ends with
  // one.
  Status Run(const void* input, void* output, const Operation& operation, const std::function<bool()>& interrupted);

 private:
  StepMachine machine_;
  Notifier* const notifier_;
};

}  // namespace r2ccl

#endif  // R2CCL_COLLECTIVE_EXECUTOR_H_
