// Reads that a device makes of its own memory regions.
#include "wire/verbs/loopback.h"

namespace r2ccl {
namespace {

constexpr uint32_t kReadsAtOnce = 64;
constexpr uint32_t kLoopbackSlotBytes = 256;
constexpr RcShape kLoopbackShape{1, kLoopbackSlotBytes, 1, kLoopbackSlotBytes, 0, kReadsAtOnce};

}  // namespace

Status LoopbackReader::Make(const std::shared_ptr<RdmaDevice>& device, const RcPort& port,
                            const VerbsSettings& settings, uint32_t psn, std::shared_ptr<LoopbackReader>* reader) {
  auto queue = std::make_unique<VerbsQueue>(device, port, settings, kLoopbackShape);
  Status status = queue->Create(psn);
  if (status.ok()) status = queue->Connect(queue->address());
  if (status.ok()) reader->reset(new LoopbackReader(device.get(), std::move(queue)));
  return status;
}

void LoopbackReader::Reap() {
  if (!failure_.ok()) return;
  failure_ = queue_->Poll(&found_);
  for (const RcDone& done : found_) {
    if (failure_.ok() && !done.error.empty()) failure_ = {Code::kPeerLost, "a read of its own memory: " + done.error};
    if (failure_.ok() && done.id != done_ + 1) failure_ = {Code::kProtocol, "another read is done than was due"};
    if (failure_.ok()) done_ = done.id;
  }
  found_.clear();
}

Status LoopbackReader::Start(uint64_t address, uint32_t key, uint64_t* number) {
  MutexLock lock(mutex_);
  Reap();
  *number = 0;
  if (!failure_.ok() || started_ - done_ == kReadsAtOnce) return failure_;
  failure_ = queue_->PostRead(started_ + 1, address, key);
  if (failure_.ok()) *number = ++started_;
  return failure_;
}

Status LoopbackReader::Test(uint64_t number, bool* done) {
  MutexLock lock(mutex_);
  Reap();
  *done = number <= done_;
  return *done ? Status() : failure_;
}

bool LoopbackReader::has_failed() {
  MutexLock lock(mutex_);
  return !failure_.ok();
}

Status LoopbackFlush::TestRead(Read* read, bool* done) {
  Status status(Code::kPeerLost, "the device is gone");
  if (read->reader != nullptr) {
    status = {};
    if (read->number == 0) status = read->reader->Start(read->what.address, read->what.key, &read->number);
    if (status.ok() && read->number != 0) status = read->reader->Test(read->number, done);
  }
  if (status.ok() && *done) memory_->NoteFlushed(read->what, data_, bytes_);
  if (status.ok()) return {};
  *done = true;
  return memory_->RevokeRange(read->what.pd, data_, bytes_);
}

Status LoopbackFlush::Test(bool* done) {
  while (!reads_.empty()) {
    *done = false;
    Status status = TestRead(&reads_.back(), done);
    if (!status.ok() || !*done) return status;
    reads_.pop_back();
  }
  *done = true;
  return {};
}

}  // namespace r2ccl
