// Status: how every function of the core reports failure; no exception crosses a module of the data path.
#ifndef R2CCL_BASE_STATUS_H_
#define R2CCL_BASE_STATUS_H_

#include <memory>
#include <string>
#include <utility>

namespace r2ccl {

enum class Code {
  kOk,
  kInvalidArgument,  // the caller's mistake
  kSystem,           // a system call failed for a local reason
  kPeerLost,         // the peer cannot be reached: fail-stop mode, or no path is left
  kProtocol,         // the peer sent something that the wire format forbids
  kTimeout,
  kMismatch,  // the peer was asked for something else than this end
};

// A code and one line for a person. Cheap to copy when ok.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message)
      : code_(code), message_(std::make_shared<const std::string>(std::move(message))) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const {
    static const std::string none;
    return message_ == nullptr ? none : *message_;
  }

 private:
  Code code_ = Code::kOk;
  std::shared_ptr<const std::string> message_;
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_STATUS_H_
