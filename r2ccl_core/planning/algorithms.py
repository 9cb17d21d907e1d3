"""Every AllReduce algorithm: the one list from which all that chooses, runs, draws or names them derives.

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
"""Beside the aliases: the planner's choice."""


def by_alias() -> dict[str, Algorithm]:
    """Those that a user can ask for, by R2CC_ALGO's word."""
    return {one.alias: one for one in ALGORITHMS.values() if one.alias}


def for_losses() -> dict[str, Algorithm]:
    """Those of them that a loss calls for."""
    return {alias: one for alias, one in by_alias().items() if one.follows_health}


def on_gpus() -> dict[str, Algorithm]:
    """Those of them that have rounds over NCCL."""
    return {alias: one for alias, one in by_alias().items() if one.on_gpu}
