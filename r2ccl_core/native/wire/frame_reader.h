// FrameReader: extracts the frames from a stream of bytes, and passes them to the stream's owner as they arrive.
#ifndef R2CCL_WIRE_FRAME_READER_H_
#define R2CCL_WIRE_FRAME_READER_H_

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "failover/stream.h"
#include "net/wire.h"

namespace r2ccl {

// Under the owner's lock, as the stream that it belongs to.
class FrameReader {
 public:
  FrameReader(StreamOwner* owner, int path, NicTraffic* traffic) : owner_(owner), path_(path), traffic_(traffic) {}

  // Takes bytes that lie somewhere else. An error: the stream cannot be read any further.
  Status Feed(const char* data, size_t bytes);

  // Where the next bytes belong, so that they need no copy: the rest of the body (`scratch`, where nobody wants it) and
  // the header behind it. Returns how many of the two parts there are, and their size.
  int Places(iovec* parts, char* scratch, size_t scratch_bytes, size_t* wanted);
  // `bytes` came there.
  Status Filled(size_t bytes);

  // The rest of the body that is being read; 0 between bodies.
  size_t body_left() const { return in_body_ ? body_left_ : 0; }
  // Of the frame that is being read, or was last.
  size_t body_bytes() const { return frame_.body_bytes; }
  // The rest of the body goes nowhere.
  void DropBody() {
    if (in_body_ && frame_.type == FrameType::kData) body_ = nullptr;
  }
  // Where the next byte of a body goes; nullptr: nowhere.
  const char* place() const { return in_body_ ? body_ : nullptr; }
  // Whether the next byte is the first of a frame.
  bool at_frame() const { return !in_body_ && header_bytes_ == 0; }
  // Whether it is one of a body of DATA.
  bool in_data() const { return in_body_ && frame_.type == FrameType::kData; }
  // The rest of the body is in its place already, or has gone nowhere without having come.
  Status Landed();
  // The owner has given the stream up: nothing more is given to it.
  void Stop() { stopped_ = true; }

 private:
  Status TakeHeader();
  Status FinishBody();
  void CountBody(size_t bytes);

  StreamOwner* const owner_;
  const int path_;
  NicTraffic* const traffic_;
  bool stopped_ = false;
  uint8_t header_[kHeaderBytes] = {};
  size_t header_bytes_ = 0;
  Frame frame_;
  bool in_body_ = false;
  char* body_ = nullptr;  // where the rest of the body goes; nullptr: nowhere
  size_t body_left_ = 0;
  size_t body_place_ = 0;  // how much of the last Places is body
  std::vector<uint8_t> control_;
};

}  // namespace r2ccl

#endif  // R2CCL_WIRE_FRAME_READER_H_
