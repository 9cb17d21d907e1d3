"""Every AllReduce algorithm: the one list from which everything that selects, runs, draws or names them derives.

A new algorithm is a file in schedules/ that ends with its record (`schedules.algorithm.Algorithm`), and a line below.
"""

from r2ccl_core.schedules import forest_shape, leaf_ring, optcc, owner_skewed_ring, r2cc_all_reduce, ring, tree
from r2ccl_core.schedules.algorithm import Algorithm

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        ring.ALGORITHM,
        tree.ALGORITHM,
        r2cc_all_reduce.ALGORITHM,
        optcc.ALGORITHM,
        leaf_ring.ALGORITHM,
        owner_skewed_ring.ALGORITHM,
        forest_shape.ALGORITHM,
        ring.HOT_REPAIR,
    )
}
"""By name, in the order in which ties are broken."""

AUTO = "auto"
"""The value besides the aliases: the planner's choice."""


def by_alias() -> dict[str, Algorithm]:
    """The algorithms that a user can select, by their value of R2CC_ALGO."""
    return {one.alias: one for one in ALGORITHMS.values() if one.alias}


def for_losses() -> dict[str, Algorithm]:
    """Those that are meant for losses."""
    return {alias: one for alias, one in by_alias().items() if one.follows_health}


def on_gpus() -> dict[str, Algorithm]:
    """Those that can run as rounds over NCCL."""
    return {alias: one for alias, one in by_alias().items() if one.on_gpu}
