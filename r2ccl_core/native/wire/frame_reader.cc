// Headers and bodies in turn.
#include "wire/frame_reader.h"

#include <algorithm>
#include <cstring>

namespace r2ccl {

void FrameReader::CountBody(size_t bytes) {
  if (body_ != nullptr) body_ += bytes;
  body_left_ -= bytes;
  if (frame_.type == FrameType::kData) traffic_->received_bytes += bytes;
}

Status FrameReader::Feed(const char* data, size_t bytes) {
  Status status;
  while (bytes > 0 && status.ok() && !stopped_) {
    size_t count;
    if (in_body_) {
      count = std::min(bytes, body_left_);
      if (body_ != nullptr) std::memcpy(body_, data, count);
      CountBody(count);
      if (body_left_ == 0) status = FinishBody();
    } else {
      count = std::min(bytes, kHeaderBytes - header_bytes_);
      std::memcpy(header_ + header_bytes_, data, count);
      header_bytes_ += count;
      if (header_bytes_ == kHeaderBytes) status = TakeHeader();
    }
    data += count;
    bytes -= count;
  }
  return status;
}

Status FrameReader::Landed() {
  if (body_ != nullptr) traffic_->received_bytes += body_left_;
  body_left_ = 0;
  return FinishBody();
}

int FrameReader::Places(iovec* parts, char* scratch, size_t scratch_bytes, size_t* wanted) {
  int count = 0;
  body_place_ = 0;
  if (in_body_) {
    body_place_ = body_ == nullptr ? std::min(body_left_, scratch_bytes) : body_left_;
    parts[count++] = {body_ == nullptr ? scratch : body_, body_place_};
  }
  *wanted = body_place_;
  if (!in_body_ || body_place_ == body_left_) {
    parts[count++] = {header_ + header_bytes_, kHeaderBytes - header_bytes_};
    *wanted += kHeaderBytes - header_bytes_;
  }
  return count;
}

Status FrameReader::Filled(size_t bytes) {
  size_t body = std::min(bytes, body_place_);
  header_bytes_ += bytes - body;
  Status status;
  if (in_body_) {
    CountBody(body);
    if (body_left_ == 0) status = FinishBody();
  }
  if (status.ok() && !stopped_ && !in_body_ && header_bytes_ == kHeaderBytes) status = TakeHeader();
  return status;
}

Status FrameReader::TakeHeader() {
  header_bytes_ = 0;
  Status status = DecodeFrame(header_, &frame_);
  if (!status.ok()) return status;
  body_left_ = frame_.body_bytes;
  body_ = nullptr;
  in_body_ = true;
  status = owner_->OnFrameBegins(path_, frame_, &body_);
  if (!status.ok() || stopped_) return status;
  if (frame_.type != FrameType::kData) {
    control_.resize(body_left_);
    body_ = reinterpret_cast<char*>(control_.data());
  }
  return body_left_ == 0 ? FinishBody() : Status();
}

Status FrameReader::FinishBody() {
  in_body_ = false;
  if (frame_.type != FrameType::kData) {
    Status status = CheckBody(frame_, control_.data());
    if (!status.ok()) return status;
  }
  return owner_->OnFrameEnds(path_, control_);
}

}  // namespace r2ccl
