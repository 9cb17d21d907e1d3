"""Leaf-ring: the fast hosts form a ring, and every slow host is attached to it as a leaf.

Per element a leaf sends once (its raw value, to the section's owner) and receives once (the result), where a ring
member sends and receives about ``1 + (p-2)/h`` times with h members. In segment k of K, leaves send while the ring
reduces segment k; the ring spreads it and the owners answer the leaves while segment k+1 is reduced. So ``T = max((1 +
(p-2)/h)/b_h, 1/min b) (1 + 1/K)`` in units of n/B. Best for one straggler among many hosts; p-1 peers.
"""

from collections.abc import Sequence
from math import gcd

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.schedules.algorithm import Algorithm, Parameters, Prediction, Problem, Shares, segmented
from r2ccl_core.schedules.timed import Ints, Messages, compile_schedule, messages


def all_reduce(shares: Sequence[float], *, segments: int = 16, members: int | None = None, lanes: int = 1) -> Schedule:
    """A ring of the ``members`` fastest hosts (default: all at full rate) in ``segments`` segments."""
    p = len(shares)
    ring, leaves = split(shares, members)
    if len(ring) < 2:
        raise UsageError("a leaf-ring needs two hosts or more at full rate; use a forest")
    parts = []
    for index in range(lanes):
        parts += _ring_messages(ring, segments, index) + _leaf_messages(ring, leaves, segments, index)
    return compile_schedule("leaf_ring", "all_reduce", p, lanes * segments * len(ring), lanes, Messages.join(parts))


def split(shares: Sequence[float], members: int | None = None) -> tuple[list[int], list[int]]:
    """Ring members and leaves, both in rank order."""
    order = sorted(range(len(shares)), key=lambda v: (-shares[v], v))
    count = members or list(shares).count(max(shares))
    return sorted(order[:count]), sorted(order[count:])


def _ring_messages(ring: list[int], segments: int, index: int) -> list[Messages]:
    """Segment k is reduced from time 4 h k on, with four units per hop, and spread one segment later."""
    h = len(ring)
    members = np.array(ring)
    segment, owner, hop = (axis.ravel() for axis in np.indices((segments, h, h - 1)))
    chunk = (index * segments + segment) * h + owner
    start = 4 * h * segment
    return [
        messages(
            leave=start + 4 * hop + phase,
            arrive=start + 4 * hop + phase + 4,
            lane=index,
            source=members[(owner + shift + hop) % h],
            destination=members[(owner + shift + hop + 1) % h],
            chunk=chunk,
            reduce=reduce,
        )
        for start, phase, shift, reduce in ((start, 0, 1, 1), (start + 4 * h, 2, 0, 0))
    ]


def _leaf_messages(ring: list[int], leaves: list[int], segments: int, index: int) -> list[Messages]:
    """Raw sections go to their owners during the segment, results come back during the next."""
    h = len(ring)
    segment, owner, leaf = (axis.ravel() for axis in np.indices((segments, h, len(leaves))))
    chunk = (index * segments + segment) * h + owner
    host = np.array(leaves, dtype=np.int64)[leaf]
    member = np.array(ring)[owner]
    start = 4 * h * segment
    to_owner, to_leaf = _turns(h, -2)[owner], _turns(h, -1)[owner]
    return [
        messages(
            leave=start + 4 * to_owner - 1,
            arrive=start + 4 * h,
            lane=index,
            source=host,
            destination=member,
            chunk=chunk,
            reduce=1,
            tie=to_owner,
        ),
        messages(
            leave=start + 4 * h + 4 * to_leaf + 1,
            arrive=start + 4 * h + 4 * to_leaf + 12,
            lane=index,
            source=member,
            destination=host,
            chunk=chunk,
            reduce=0,
            tie=to_leaf,
        ),
    ]


def _turns(h: int, stride: int) -> Ints:
    """The turn of every owner if each next one is ``stride`` members on (or the next that reaches all).

    Turns run against the ring's direction: a turn in its direction would delay the same message hop by hop.
    """
    while gcd(stride % h, h) != 1:
        stride += 1
    return np.arange(h) * pow(stride % h, -1, h) % h


def _predict(problem: Problem) -> Prediction | None:
    members = problem.hosts - problem.stragglers
    if problem.stragglers == 0 or members < 2:
        return None
    fluid = max(1 / problem.slowest, 1 + (problem.hosts - 2) / members)
    loss = 1.01 if problem.slowest <= 0.5 else 1.07
    return segmented(problem, members, fluid * (loss if problem.stragglers == 1 else 1.3))


def _build(shares: Shares, parameters: Parameters) -> Schedule:
    return all_reduce(shares, **parameters)


def _on_gpu(problem: Problem) -> Schedule | None:
    if problem.stragglers == 0 or problem.hosts - problem.stragglers < 2:
        return None
    return _build(problem.shares, {"segments": max(1, min(32, problem.most_chunks // problem.hosts))})


ALGORITHM = Algorithm(
    name="leaf_ring",
    alias="leaf_ring",
    title="leaf-ring",
    idea="slow hosts are leaves of a ring of the others",
    letter="L",
    color="#882255",
    predict=_predict,
    build=_build,
    on_gpu=_on_gpu,
)
