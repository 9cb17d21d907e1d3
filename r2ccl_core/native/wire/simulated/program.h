// Program: what processes of a history do with their connections, and the rules that it holds those to.
#ifndef R2CCL_WIRE_SIMULATED_PROGRAM_H_
#define R2CCL_WIRE_SIMULATED_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "failover/comm.h"
#include "failover/recv_comm.h"
#include "wire/simulated/explore.h"
#include "wire/simulated/process.h"

namespace r2ccl::simulated {

// Memory of a program's, without a value at first.
class Buffer {
 public:
  explicit Buffer(size_t size) : bytes_(std::make_unique_for_overwrite<char[]>(size)), size_(size) {}
  char* data() const { return bytes_.get(); }
  size_t size() const { return size_; }
  operator std::span<const char>() const { return {data(), size_}; }  // NOLINT: as of a vector

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_;
};

class Program {
 public:
  virtual ~Program() = default;
  // Does on that host what it can now.
  virtual void Run(int host) = 0;
  // A connection came to that host. True: it is this program's.
  virtual bool Take(int host, const std::shared_ptr<RecvComm>& comm) = 0;
  // Whether wherever its process lives all is done, or has ended.
  virtual bool IsOver() const = 0;
  // The rule that its end breaks, else nothing. `doomed`: the hosts that lose their process.
  virtual std::string CheckEnd(const std::vector<bool>& doomed) const = 0;
  // Of connections that should have all their paths.
  virtual void AddHealth(std::vector<NicHealth>* health) const = 0;
  // Of a connection that has failed, no request may wait for ever.
  virtual void CheckNoneWaits() = 0;
  virtual void Close() = 0;
  // Buffers that are the program's again must be as it left them.
  virtual void CheckKept() = 0;
  // More to send, where that is still possible, so that every NIC has something to carry: the host that sends it; -1:
  // none does.
  virtual int Extend() { return -1; }
  virtual uint64_t received() const = 0;  // messages, checked
  // The calls that rank 0 has finished, where there are any, in the world's time.
  virtual const std::vector<CallRecord>& calls() const {
    static const std::vector<CallRecord> kNone;
    return kNone;
  }

  const std::string& wrong() const { return wrong_; }

 protected:
  void Break(const std::string& rule) {
    if (wrong_.empty()) wrong_ = rule;
  }
  // The memory is the program's again.
  void CheckLet(const Process& process, std::span<const char> data, const char* which) {
    if (process.is_alive() && process.Touches(data.data(), data.size())) {
      Break(std::string("the buffer of ") + which + " that is over is still used");
    }
  }
  // A request that is over needs no memory, whatever devices still have of it.
  static void Register(Process* process, bool registers, std::span<const char> data) {
    if (registers && process->rdma() != nullptr) process->rdma()->AddMemory(data.data(), data.size());
  }
  static void Unregister(Process* process, bool registers, std::span<const char> data) {
    if (registers && process->rdma() != nullptr) process->rdma()->DropMemory(data.data(), data.size());
  }
  // What was overwritten when it was let go of.
  static bool IsAsLeft(std::span<const char> data) {
    return data.empty() || (data[0] == kOverwritten && std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0);
  }
  static void Overwrite(const Buffer& buffer) { std::memset(buffer.data(), kOverwritten, buffer.size()); }
  static constexpr char kOverwritten = static_cast<char>(0xee);

 private:
  std::string wrong_;
};

}  // namespace r2ccl::simulated

#endif  // R2CCL_WIRE_SIMULATED_PROGRAM_H_
