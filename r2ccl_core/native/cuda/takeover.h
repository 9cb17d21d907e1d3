// Takeover: decides which AllReduces of a program run as our rounds, and keeps the groups of its communicators.
#ifndef R2CCL_CUDA_TAKEOVER_H_
#define R2CCL_CUDA_TAKEOVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/group.h"

namespace r2ccl::cuda {

// What the environment says:
//   R2CC_SCHEDULES        the table; without it nothing is taken over
//   R2CC_AR_MIN_BYTES     smaller AllReduces are always NCCL's (4 MiB); a table may begin later
//   R2CC_AGREE_EVERY      operations between two agreements (4)
struct Settings {
  std::string table_path;
  uint64_t min_bytes = uint64_t{4} << 20;
  int every = 4;
  std::vector<std::string> mistakes;  // values that cannot be read: the default holds
};
Settings ReadSettings();

// What a program passes to ncclAllReduce.
struct Call {
  const void* input;
  void* output;
  size_t count;
  int type;
  int op;
  Comm comm;
  Stream stream;
};

class Takeover {
 public:
  using AskNics = std::function<bool(Nics*)>;
  using Say = std::function<void(const std::string&, bool mistake)>;
  Takeover(const Nccl& nccl, Device& device, Settings settings, uint64_t host, AskNics ask, Say say);

  // As ncclAllReduce.
  int AllReduce(const Call& call);
  // Whether an AllReduce between ncclGroupStart and ncclGroupEnd must wait until NCCL has ended the group, for
  // RunGroup.
  bool Waits(const Call& call) const { return call.comm != nullptr && Concerns(call); }
  // The AllReduces that waited, each communicator's in their order.
  int RunGroup(const std::vector<Call>& calls);
  // Before NCCL aborts the communicator. It never waits for an operation that is under way: that ends with an error,
  // and so does whatever begins until what is returned is let go. To be let go as soon as NCCL has aborted: another
  // communicator may have the address from then on. Not before: it frees what was ours on the device, which waits for
  // everything that runs there. Only what was aborted is forgotten then, never what has the same address by that time.
  [[nodiscard]] std::shared_ptr<void> Abort(Comm comm);
  // Before NCCL destroys the communicator: another one may have its address.
  void Forget(Comm comm);
  // What ran last on the communicator: "nccl", or an algorithm's name. Valid as long as the Takeover.
  const char* Choice(Comm comm);

 private:
  struct Place {
    std::mutex mutex;              // held through an operation
    std::shared_ptr<Group> group;  // set with the Takeover's mutex held as well
    bool aborted = false;          // under the Takeover's mutex
    bool failed = false;
    int device = -1;                           // negative: not known
    uint64_t graph = 0;                        // the last for which all ranks agreed
    std::atomic<const char*> choice = "nccl";  // or the name in an entry of the table
    std::string said;
  };

  int ByNccl(const Call& call) const;
  bool Concerns(const Call& call) const;
  int RunOn(const std::vector<Call>& calls);
  int Decide(Place& place, const Call& call, uint64_t graph, const Entry** entry);
  int Run(Place& place, Call call, uint64_t graph, const Entry& entry);
  int Open(Place& place, Comm comm, Stream stream, const Nics& own);
  bool IsAborted(const Place& place);
  bool Show(Place& place, std::shared_ptr<Group> group);
  void Tell(Place& place, const Entry* entry);
  std::shared_ptr<Place> Find(Comm comm);
  std::shared_ptr<Place> Remove(Comm comm, const Place* only = nullptr);

  const Nccl& nccl_;
  Device& device_;
  const Settings settings_;
  const uint64_t host_;
  const AskNics ask_;
  const Say say_;
  Table table_;
  uint64_t digest_ = 0;
  std::mutex mutex_;
  std::map<Comm, std::shared_ptr<Place>> places_;
};

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_TAKEOVER_H_
