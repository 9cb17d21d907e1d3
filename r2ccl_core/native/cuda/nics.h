// How many NICs this process has left, according to the net plugin in this process or to the program.
#ifndef R2CCL_CUDA_NICS_H_
#define R2CCL_CUDA_NICS_H_

namespace r2ccl::cuda {

struct Nics {
  int total = 0;
  int left = 0;
};

// False where there is neither a plugin nor a setting. One that comes back counts after it stayed for a while.
bool OwnNics(Nics* nics);

// From now on the answer; negative: ask the plugin again.
void SetNics(Nics nics);

}  // namespace r2ccl::cuda

#endif  // R2CCL_CUDA_NICS_H_
