// Guard: the boundary between our code, which may throw when memory or threads run out, and callers that do not know
// exceptions.
#ifndef R2CCL_BASE_GUARD_H_
#define R2CCL_BASE_GUARD_H_

#include <exception>

namespace r2ccl {

// What `call` returns, or `otherwise` where it throws. For functions that C calls.
template <typename Result, typename Call>
Result Guard(Result otherwise, Call call) noexcept {
  try {
    return call();
  } catch (const std::exception&) {
    return otherwise;
  }
}

}  // namespace r2ccl

#endif  // R2CCL_BASE_GUARD_H_
