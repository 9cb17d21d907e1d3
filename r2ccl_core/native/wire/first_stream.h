// FirstStream: a stream over a kernel socket, as which a stream of another kind may begin (wire/verbs/). It keeps its
// owner alive from the moment it waits for anything until it is cut or hung up.
#ifndef R2CCL_WIRE_FIRST_STREAM_H_
#define R2CCL_WIRE_FIRST_STREAM_H_

#include <memory>

#include "failover/stream.h"

namespace r2ccl {

class FirstStream : public Stream {
 public:
  // Waits for the connection that was dialled.
  virtual void AwaitConnection(std::shared_ptr<StreamOwner> owner) = 0;
  // For one that came in, before Start().
  virtual void SetOwner(std::shared_ptr<StreamOwner> owner) = 0;
  // The kernel asks an idle peer whether it is there; an answer that is missing is unanswered, as a packet's is.
  virtual void KeepAlive() = 0;
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_FIRST_STREAM_H_
