// Turns errors of the core into the exceptions of r2ccl_core.errors.
#ifndef R2CCL_BINDING_CHECK_H_
#define R2CCL_BINDING_CHECK_H_

#include <nanobind/nanobind.h>

#include "base/status.h"

namespace r2ccl {

inline void Check(const Status& status) {
  if (status.ok()) return;
  nanobind::module_ errors = nanobind::module_::import_("r2ccl_core.errors");
  const char* name = "TransportError";
  if (status.code() == Code::kInvalidArgument) name = "UsageError";
  if (status.code() == Code::kPeerLost) name = "PeerLostError";
  if (status.code() == Code::kMismatch) name = "MismatchedCallError";
  nanobind::object type = errors.attr(name);
  PyErr_SetString(type.ptr(), status.message().c_str());
  throw nanobind::python_error();
}

}  // namespace r2ccl

#endif  // R2CCL_BINDING_CHECK_H_
