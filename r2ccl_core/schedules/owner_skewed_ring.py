"""Owner-skewed ring: a plain ring in which the straggler owns more sections than its share.

A section's owner receives it once and sends it once; every other rank does each about twice. So on some lanes all
sections belong to the straggler: they run as a chain that starts and ends at it. Only the plain ring's own connections
are used, which makes this the smallest change to an existing ring. Fluid limit ``max(l, 2(p-1)/(p-2+2/l))`` in units of
n/B, l = 1/b of the straggler.
"""

from collections.abc import Sequence

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.schedules import ring
from r2ccl_core.schedules.algorithm import Algorithm, Prediction, Problem
from r2ccl_core.schedules.timed import Messages, compile_schedule, messages


def all_reduce(shares: Sequence[float], *, lanes: int = 4, slices: int = 16) -> Schedule:
    """``lanes`` lanes of ``p * slices`` chunks, of which `skewed_lanes` belong to the slowest host."""
    p = len(shares)
    if p < 2:
        raise UsageError("an owner-skewed ring needs two hosts or more")
    slow = min(range(p), key=lambda v: shares[v])
    skewed = skewed_lanes(shares, lanes)
    parts = [_chain(p, slow, p * slices, index, lanes) for index in range(skewed)]
    for index in range(skewed, lanes):
        parts.append(ring.gathering(p, slices, index, lanes))
        parts.append(ring.spreading(p, slices, index, lanes, p - 1))
    return compile_schedule("owner_skewed_ring", "all_reduce", p, lanes * p * slices, lanes, Messages.join(parts))


def skewed_lanes(shares: Sequence[float], lanes: int) -> int:
    """The number of lanes to give to the straggler: the one with the least load over bandwidth."""
    return min(range(lanes + 1), key=lambda skewed: load(shares, skewed / lanes))


def load(shares: Sequence[float], skew: float) -> float:
    """Time in n/B when the fraction ``skew`` of the vector belongs to the slowest host."""
    p = len(shares)
    plain = (1.0 - skew) * 2.0 * (p - 1) / p
    others = sorted(shares)[1]
    return max((plain + skew) / min(shares), (plain + 2.0 * skew) / others)


def _chain(p: int, slow: int, chunks: int, index: int, lanes: int) -> Messages:
    """Chunk c leaves the rank after the straggler at time c and goes round twice."""
    turn, hop = (axis.ravel() for axis in np.indices((chunks, 2 * p - 2)))
    first = slow + 1 + hop + (hop >= p - 1) * 0
    leave = 2 * turn + 2 * hop
    section, piece = np.divmod(turn, chunks // p)
    return Messages.join(
        [
            messages(
                leave=leave[way],
                arrive=leave[way] + 1,
                lane=index,
                source=first[way] % p,
                destination=(first[way] + 1) % p,
                chunk=((section * lanes + index) * (chunks // p) + piece)[way],
                reduce=reduce,
                tie=turn[way],
            )
            for way, reduce in ((hop < p - 1, 1), (hop >= p - 1, 0))
        ]
    )


def _predict(problem: Problem) -> Prediction | None:
    """Whole lanes are given to the straggler, and filling the chains costs about half a slice (seen in simulation)."""
    p, lanes = problem.hosts, 4
    if p < 3 or problem.stragglers != 1:
        return None
    skew = skewed_lanes(problem.shares, lanes) / lanes
    work = problem.unit_s * load(problem.shares, skew)

    def seconds(slices: int) -> float:
        return work * (1 + 0.5 / slices) + 2 * (p - 1) * slices * problem.alpha_s

    most = max(1, problem.most_chunks // (lanes * p))
    slices = min((s for s in (1, 2, 4, 8, 16, 32) if s <= most), key=seconds)
    return seconds(slices), {"lanes": lanes, "slices": slices}


def _on_gpu(problem: Problem) -> Schedule | None:
    if problem.stragglers != 1:
        return None
    pieces = min(32, problem.most_chunks // problem.hosts)
    return all_reduce(problem.shares, lanes=4, slices=max(1, min(16, pieces // 4)))


ALGORITHM = Algorithm(
    name="owner_skewed_ring",
    alias="owner_skewed",
    title="owner-skewed ring",
    idea="the straggler owns more sections of a plain ring",
    letter="S",
    color="#999999",
    predict=_predict,
    build=lambda shares, parameters: all_reduce(shares, **parameters),
    on_gpu=_on_gpu,
)
