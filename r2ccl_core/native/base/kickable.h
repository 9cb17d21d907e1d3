// Kickable: an object that another thread can wake, so that it is called soon.
#ifndef R2CCL_BASE_KICKABLE_H_
#define R2CCL_BASE_KICKABLE_H_

#include <string>

namespace r2ccl {

class Kickable {
 public:
  virtual ~Kickable() = default;
  virtual void OnKick() = 0;
  // OnKick was left by an exception: what it worked on is in no known state.
  virtual void OnThrow(const std::string& reason) = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_BASE_KICKABLE_H_
