// Damping: keeps a flapping path from carrying data, as BGP does with flapping routes (RFC 2439).
//
// Every loss adds a penalty, which decays by halves. Above the suppress limit a returning path is held: it is open but
// carries no data until the penalty has decayed to the reuse limit. The more recent losses there are, the longer that
// takes; a path whose last loss is long ago is used again at once. The gap between the limits is the hysteresis.
#ifndef R2CCL_FAILOVER_DAMPING_H_
#define R2CCL_FAILOVER_DAMPING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/clock.h"
#include "base/params.h"

namespace r2ccl {

constexpr double kFlapPenalty = 1000;

class FlapDamper {
 public:
  void Lose(const Params& params, int64_t now_ns) {
    if (params.flap_half_life_ms == 0) return;
    double most = std::max(static_cast<double>(params.flap_reuse) * std::exp2(Ratio(params.flap_max_ms, params)),
                           static_cast<double>(params.flap_suppress));
    penalty_ = std::min(Penalty(params, now_ns) + kFlapPenalty, most);
    since_ns_ = now_ns;
    if (penalty_ >= static_cast<double>(params.flap_suppress)) held_ = true;
  }

  double Penalty(const Params& params, int64_t now_ns) const {
    if (penalty_ == 0) return 0;
    return penalty_ * std::exp2(-Ratio((now_ns - since_ns_) / kMillisecond, params));
  }

  // Whether the path is to be held now. It stays held until the penalty has decayed to the reuse limit.
  bool Holds(const Params& params, int64_t now_ns) {
    held_ = held_ && Penalty(params, now_ns) > static_cast<double>(params.flap_reuse) &&
            now_ns - since_ns_ < params.flap_max_ms * kMillisecond;
    return held_;
  }

  // For how long from now on, without further losses.
  int64_t HoldMs(const Params& params, int64_t now_ns) {
    if (!Holds(params, now_ns)) return 0;
    double halves = std::log2(Penalty(params, now_ns) / static_cast<double>(params.flap_reuse));
    auto faded_ms = static_cast<int64_t>(halves * static_cast<double>(params.flap_half_life_ms));
    return std::min(faded_ms, params.flap_max_ms - (now_ns - since_ns_) / kMillisecond);
  }

 private:
  static double Ratio(int64_t ms, const Params& params) {
    return static_cast<double>(ms) / static_cast<double>(params.flap_half_life_ms);
  }

  double penalty_ = 0;
  int64_t since_ns_ = 0;
  bool held_ = false;
};

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_DAMPING_H_
