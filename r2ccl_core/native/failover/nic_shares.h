// NicShares: which part of a connection's bytes each NIC of this host is to carry, as a planned schedule wants it.
#ifndef R2CCL_FAILOVER_NIC_SHARES_H_
#define R2CCL_FAILOVER_NIC_SHARES_H_

#include <memory>
#include <vector>

namespace r2ccl {

// By NIC; nullptr where nothing is planned.
using NicShares = std::shared_ptr<const std::vector<double>>;

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_NIC_SHARES_H_
