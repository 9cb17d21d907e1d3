"""Broadcast and Reduce along a pipelined chain, which meets their lower bound for any bandwidths.

Every host but the root must receive the vector once, whatever the route, so nothing beats a chain for large messages.
For small ones a binomial tree has fewer messages in a row.
"""

from r2ccl_core.model.schedule import NOBODY, Lane, Schedule, copied, lane
from r2ccl_core.schedules.timed import compile_schedule
from r2ccl_core.schedules.tree import Tree, binomial, down, path, up


def broadcast(nranks: int, root: int = 0, *, slices: int = 16, tree: bool = False) -> Schedule:
    """The root's vector to everybody, in ``slices`` chunks along a chain (or down a binomial tree)."""
    if nranks == 1:
        return copied("broadcast", "broadcast")
    messages = down(_shape(nranks, root, tree), 0, 0, slices)
    schedule = compile_schedule(_name(tree), "broadcast", nranks, slices, 1, messages, root=root)
    return schedule.followed(lambda rank, _: _copy(slices) if rank == root else lane([]))


def reduce(nranks: int, root: int = 0, *, slices: int = 16, tree: bool = False) -> Schedule:
    """The sum of all vectors at the root, in ``slices`` chunks along a chain (or up a binomial tree)."""
    if nranks == 1:
        return copied("reduce", "reduce")
    messages = up(_shape(nranks, root, tree), 0, 0, slices)
    return compile_schedule(_name(tree), "reduce", nranks, slices, 1, messages, root=root)


def _shape(nranks: int, root: int, tree: bool) -> Tree:
    return binomial(nranks, root) if tree else path(nranks, root)


def _name(tree: bool) -> str:
    return "tree" if tree else "chain"


def _copy(slices: int) -> Lane:
    return lane([(NOBODY, NOBODY, 0, slices, 0)])
