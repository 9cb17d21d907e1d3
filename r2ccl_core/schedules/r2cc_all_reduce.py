"""R2CC-AllReduce: all hosts do what the slowest can, the faster ones do the rest among themselves.

After arXiv 2512.25059, for any number of degraded hosts. Sort the distinct bandwidths r_1 < r_2 < ...; level k
is a ring over the hosts with at least r_k and carries the share ``(r_k - r_{k-1}) / r_max`` of the vector,
which is what its members can move while the levels below use r_{k-1}. One degraded host gives the paper's
two levels: a global ring with 1-X, a partial ring with Y = X.

    stage 1   all rings at once
    stage 2   per level and in K pipeline chunks: hosts outside the ring send their own values to ring
              members, which add them and pass the sums on to everybody

    T / T0 = 1 + (1 + 1/K) n X / (2 (n-1) (1-X))           one degraded host of n, lost fraction X

Fair sharing gives every lane the same part of a port, so each ring gets lanes in proportion to its share of
the vector, as channels are bound to NICs in the paper's system; one lane each would starve the wide ring.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.schedule import Schedule
from r2ccl_core.schedules.timed import Ints, Messages, compile_schedule, messages

MOST_LANES = 12
"""Lanes of all rings together; enough to tell one lost NIC of eight from two."""


@dataclass(frozen=True)
class Level:
    """One ring: its members in rank order, who stays outside, its lanes and its chunks.

    A lane holds ``slices`` chunks of each of the ring's sections.
    """

    members: tuple[int, ...]
    outside: tuple[int, ...]
    lanes: range
    slices: int

    @property
    def lane_chunks(self) -> int:
        """Chunks of the vector that one lane of this level carries."""
        return len(self.members) * self.slices


def all_reduce(shares: Sequence[float], *, pipeline: int = 4, chunks: int = 256) -> Schedule:
    """R2CC-AllReduce in about ``chunks`` chunks, with ``pipeline`` (K) chunks in stage 2."""
    if len(shares) < 2 or pipeline < 1 or chunks < 1:
        raise UsageError("R2CC-AllReduce needs two hosts or more, one pipeline chunk and one chunk or more")
    rings = levels(shares, pipeline, chunks)
    parts, first = [], 0
    for level in rings:
        for lane in level.lanes:
            parts += [_ring(level, lane, first), *_second_stage(level, lane, first, pipeline)]
            first += level.lane_chunks
    return compile_schedule(
        "r2cc_all_reduce", "all_reduce", len(shares), first, rings[-1].lanes.stop, Messages.join(parts)
    )


def predicted_ratio(nhosts: int, lost: float, pipeline: int) -> float:
    """The paper's T/T0 for one degraded host that lost the fraction ``lost``."""
    return 1 + (1 + 1 / pipeline) * nhosts * lost / (2 * (nhosts - 1) * (1 - lost))


def levels(shares: Sequence[float], pipeline: int, chunks: int) -> list[Level]:
    """The rings, widest first. A host alone at the top counts as fast as the second fastest."""
    rates = [min(share, sorted(shares)[-2]) for share in shares]
    distinct = sorted(set(rates))
    parts = [(r - below) / distinct[-1] for r, below in zip(distinct, [0.0, *distinct], strict=False)]
    counts = lane_counts(parts)
    rings, lane = [], 0
    for rate, share, count in zip(distinct, parts, counts, strict=True):
        members = tuple(v for v, own in enumerate(rates) if own >= rate)
        outside = tuple(v for v, own in enumerate(rates) if own < rate)
        least = -(-pipeline // len(members)) if outside else 1
        slices = max(least, round(chunks * share / (len(members) * count)))
        rings.append(Level(members, outside, range(lane, lane + count), slices))
        lane += count
    return rings


def lane_counts(shares: Sequence[float], most: int = MOST_LANES) -> list[int]:
    """Lanes in proportion to the shares: at least one each, the fewest that come closest."""

    def counts(total: int) -> list[int]:
        return [max(1, round(share * total)) for share in shares]

    def error(total: int) -> float:
        given = counts(total)
        return max(abs(n / sum(given) - share) for n, share in zip(given, shares, strict=True))

    totals = range(len(shares), max(most, len(shares)) + 1)
    return counts(min(totals, key=lambda total: (round(error(total), 6), total)))


def _ring(level: Level, lane: int, first: int) -> Messages:
    """Stage 1: the plain ring AllReduce of one lane's chunks."""
    m = len(level.members)
    members = np.array(level.members)
    section, hop, piece = (axis.ravel() for axis in np.indices((m, 2 * m - 2, level.slices)))
    leave = hop * level.slices + piece
    source, chunk = section + 1 + hop, first + section * level.slices + piece
    whole = np.zeros_like(leave)
    return Messages(
        leave,
        leave + 1,
        whole,
        whole + lane,
        members[source % m],
        members[(source + 1) % m],
        chunk,
        chunk + 1,
        (hop < m - 1).astype(leave.dtype),
    )


def _second_stage(level: Level, lane: int, first: int, pipeline: int) -> list[Messages]:
    """Outside hosts' values to the helper in K pipeline chunks, and the sums down a chain to everybody."""
    if not level.outside:
        return []
    count, m = level.lane_chunks, len(level.members)
    start = 2 * m * level.slices
    index = np.arange(count)
    group = index * pipeline // count
    edges = -(-np.arange(pipeline + 1) * count // pipeline)
    wait = edges[group + 1] - edges[group]  # a pipeline chunk is spread once all of it is there
    chain = level.members
    edge_list = [(chain[i], chain[i + 1], i) for i in range(m - 1)]
    for place, host in enumerate(level.outside):
        behind = max(0, m - 1 - place % m)
        edge_list.append((chain[behind], host, behind))
    parts = [
        _column(host, chain[0], start + 2 * index, first + index, 1, place, lane)
        for place, host in enumerate(level.outside)
    ]
    parts += [
        _column(source, target, start + 2 * (index + wait + depth) + 1, first + index, 0, depth, lane)
        for source, target, depth in edge_list
    ]
    return parts


def _column(source: int, target: int, leave: Ints, chunk: Ints, reduce: int, tie: int, lane: int) -> Messages:
    return messages(
        leave=leave,
        arrive=leave + 1 + (1 - reduce),
        lane=lane,
        source=np.full_like(leave, source),
        destination=np.full_like(leave, target),
        chunk=chunk,
        reduce=reduce,
        tie=tie,
    )
