"""R2CC-AllReduce: all hosts together do as much as the slowest can, and the faster ones do the rest among themselves.

After arXiv 2512.25059, for any number of degraded hosts. Sort the distinct bandwidths r_1 < r_2 < ...; level k is a
ring over the hosts with at least r_k and carries the share ``(r_k - r_{k-1}) / r_max`` of the vector, which is what its
members can move while the levels below use r_{k-1}. One degraded host gives the paper's two levels: a global ring with
1-X, a partial ring with Y = X.

    stage 1   all rings at once
    stage 2   per level and in K pipeline chunks: hosts outside the ring send their own values to ring
              members, which add them and pass the sums on to everybody

    T / T0 = 1 + (1 + 1/K) n X / (2 (n-1) (1-X))           one degraded host, lost fraction X, n ranks

With several ranks per host a ring passes through all ranks of a host in turn, and an outside host sums its own values
before it sends them.

Fair sharing gives every lane the same part of a port. So each ring gets lanes in proportion to its share of the vector,
as channels are bound to NICs in the paper's system; one lane each would starve the wide ring. [(LEAST_LANES,
MOST_LANES)] Limits on the lanes of all rings together. If there are few, one late lane delays all; 12 distinguish one
lost NIC of eight from two. T/T0 as measured on 3 hosts with one NIC of 9 lost, K = 4 and 16: with 3 lanes 1.52 and
1.45, with 6 to 9 1.49 and 1.43.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.schedules.algorithm import (
    AHEAD,
    LEAST_MESSAGE_BYTES,
    MOST_CHUNKS,
    Algorithm,
    OnCpu,
    Parameters,
    Prediction,
    Problem,
)
from r2ccl_core.schedules.timed import Ints, Messages, compile_schedule, messages

LEAST_LANES, MOST_LANES = 6, 12
"""Lanes of all rings together: one of few that is late delays all, and 12 tell one lost NIC of eight from two. T/T0 as
measured on 3 hosts with one NIC of 9 lost, K = 4 and 16: with 3 lanes 1.52 and 1.45, with 6 to 9 1.49 and 1.43."""

UPWARDS = 0.5 + 1e-9
"""Slices are rounded with halves upwards, even if a value is a half except for the last digit."""


@dataclass(frozen=True)
class Level:
    """One ring: its ranks in order, those of each host that stays outside, its lanes and its chunks.

    A lane holds ``slices`` chunks of each of the ring's sections.
    """

    ring: tuple[int, ...]
    outside: tuple[tuple[int, ...], ...]
    lanes: range
    slices: int

    @property
    def lane_chunks(self) -> int:
        """Chunks of the vector that one lane of this level carries."""
        return len(self.ring) * self.slices


def all_reduce(
    shares: Sequence[float], *, gpus: int = 1, pipeline: int = 4, chunks: float = 256, ahead: int = 0
) -> Schedule:
    """R2CC-AllReduce in about ``chunks`` chunks, with ``pipeline`` (K) chunks in stage 2.

    ``shares`` are of hosts with ``gpus`` ranks each. In a ring a rank may be ``ahead`` slices ahead, as in
    `ring.all_reduce`.
    """
    if len(shares) < 2 or min(gpus, pipeline, chunks) < 1:
        raise UsageError("R2CC-AllReduce needs two hosts or more, one rank, pipeline chunk and chunk or more")
    rings = levels(shares, pipeline, chunks, gpus)
    parts, first = [], 0
    for level in rings:
        for lane in level.lanes:
            parts += [_ring(level, lane, first, ahead), *_second_stage(level, lane, first, pipeline)]
            first += level.lane_chunks
    nranks = len(shares) * gpus
    return compile_schedule("r2cc_all_reduce", "all_reduce", nranks, first, rings[-1].lanes.stop, Messages.join(parts))


def predicted_ratio(nranks: int, lost: float, pipeline: int) -> float:
    """The paper's T/T0 for one degraded host that lost the fraction ``lost``, in rings of ``nranks``."""
    return 1 + (1 + 1 / pipeline) * nranks * lost / (2 * (nranks - 1) * (1 - lost))


def levels(shares: Sequence[float], pipeline: int, chunks: float, gpus: int = 1) -> list[Level]:
    """The rings, widest first. A host alone at the top counts as fast as the second fastest."""
    rates = [min(share, sorted(shares)[-2]) for share in shares]
    distinct = sorted(set(rates))
    parts = [(r - below) / distinct[-1] for r, below in zip(distinct, [0.0, *distinct], strict=False)]
    counts = lane_counts(parts)
    hosts = [tuple(range(host * gpus, (host + 1) * gpus)) for host in range(len(shares))]
    rings, lane = [], 0
    for rate, share, count in zip(distinct, parts, counts, strict=True):
        ring = tuple(rank for ranks, own in zip(hosts, rates, strict=True) if own >= rate for rank in ranks)
        outside = tuple(ranks for ranks, own in zip(hosts, rates, strict=True) if own < rate)
        least = -(-pipeline // len(ring)) if outside else 1
        slices = max(least, int(chunks * share / (len(ring) * count) + UPWARDS))
        rings.append(Level(ring, outside, range(lane, lane + count), slices))
        lane += count
    return rings


def lane_counts(shares: Sequence[float], most: int = MOST_LANES) -> list[int]:
    """Lanes in proportion to the shares: at least one each, and the smallest numbers that come closest."""

    def counts(total: int) -> list[int]:
        return [max(1, round(share * total)) for share in shares]

    def error(total: int) -> float:
        given = counts(total)
        return max(abs(n / sum(given) - share) for n, share in zip(given, shares, strict=True))

    totals = range(max(LEAST_LANES, len(shares)), max(most, len(shares)) + 1)
    return counts(min(totals, key=lambda total: (round(error(total), 6), total)))


def _ring(level: Level, lane: int, first: int, ahead: int) -> Messages:
    """Stage 1: the plain ring AllReduce of one lane's chunks."""
    m = len(level.ring)
    ring = np.array(level.ring)
    section, hop, piece = (axis.ravel() for axis in np.indices((m, 2 * m - 2, level.slices)))
    leave = hop * level.slices + piece
    source, chunk = section + 1 + hop, first + section * level.slices + piece
    whole = np.zeros_like(leave)
    made = Messages(
        leave,
        leave + 1 + min(ahead, level.slices - 1),
        whole,
        whole + lane,
        ring[source % m],
        ring[(source + 1) % m],
        chunk,
        chunk + 1,
        (hop < m - 1).astype(leave.dtype),
    )
    return made.narrow()


def _second_stage(level: Level, lane: int, first: int, pipeline: int) -> list[Messages]:
    """Sends outside hosts' values to the helper in K pipeline chunks, and the sums down a chain to everybody."""
    if not level.outside:
        return []
    count, ring = level.lane_chunks, level.ring
    index = np.arange(count)
    wait = -(-count // pipeline)  # a pipeline chunk's time: then all that came in with a chunk is spread
    hop = 2  # what a message takes; inwards they stand at even times, outwards at odd ones
    up = hop * (len(ring) * level.slices + index)
    down = up + hop * (wait + len(level.outside[0])) - 1

    def column(source: int, target: int, begin: Ints, depth: int, tie: int, reduce: int) -> Messages:
        leave = begin + depth * hop
        return messages(
            leave=leave,
            arrive=leave + hop,
            lane=lane,
            source=np.full_like(leave, source),
            destination=np.full_like(leave, target),
            chunk=first + index,
            reduce=reduce,
            tie=tie,
        )

    parts = [column(a, b, down, depth, depth, 0) for depth, (a, b) in enumerate(pairwise(ring))]
    for place, host in enumerate(level.outside):
        behind = max(0, len(ring) - 1 - place % len(ring))
        inwards, outwards = (*reversed(host), ring[0]), (ring[behind], *host)
        parts += [column(a, b, up, depth, place, 1) for depth, (a, b) in enumerate(pairwise(inwards))]
        parts += [column(a, b, down, behind + depth, behind, 0) for depth, (a, b) in enumerate(pairwise(outwards))]
    return parts


def _predict(problem: Problem) -> Prediction | None:
    """The paper's T/T0; several degraded hosts may be limited by the helper that adds all their values.

    A lane that holds s slices of each section fills its ring in 2 (p-1) messages and moves all its p s chunks in stage
    2, in and out alternately; it ends one and a half of its chunks later than a fluid would. Both as seen in
    simulations of p = 3 to 16.
    """
    p, lost = problem.hosts, 1 - problem.slowest
    if p < 3 or not 0 < lost < 1 or p - problem.stragglers < 2:
        return None
    ideal = 2 * (p - 1) / p * problem.unit_s

    helper = sum(1 - share for share in problem.shares) * (problem.stragglers > 1)
    second = max(lost / (1 - lost), helper) * problem.unit_s
    whole = p * LEAST_LANES  # chunks, if every lane holds one slice of each section

    def seconds(form: tuple[int, int]) -> float:
        pipeline, slices = form
        in_a_row = 2 * (p - 1) + 2 * p * slices + 2 * pipeline
        late = 1.5 / (p * slices) * problem.unit_s
        return ideal + second * (1 + 1 / pipeline) + late + in_a_row * problem.alpha_s

    most = max(1, problem.most_chunks // whole)
    cuts = [s for s in (1, 2, 4, 8, 16, 32, 64) if s < most] + [most]
    pipeline, slices = min(((k, s) for k in (1, 2, 4, 8, 16) for s in cuts if k <= p * s), key=seconds)
    chunks = min(slices * whole, max(p, problem.most_chunks))
    return seconds((pipeline, slices)), {"pipeline": pipeline, "chunks": chunks}


def _on_cpu(asked: OnCpu, parameters: Parameters) -> Schedule:
    """As fine as possible: here messages overlap, which the planner's model does not know."""
    chunks = max(asked.nranks, min(MOST_CHUNKS, asked.nbytes // LEAST_MESSAGE_BYTES))
    return all_reduce(asked.shares, gpus=asked.gpus, pipeline=asked.pipeline, chunks=chunks, ahead=AHEAD)


def _on_gpu(problem: Problem) -> Schedule | None:
    if problem.stragglers == 0 or problem.hosts - problem.stragglers < 2:
        return None
    return all_reduce(problem.shares, pipeline=8, chunks=max(problem.hosts, min(problem.most_chunks, 512)))


ALGORITHM = Algorithm(
    name="r2cc_all_reduce",
    alias="r2cc",
    title="R2CC-AllReduce",
    idea="a global ring, a partial ring, and a second stage",
    letter="2",
    color="#CC79A7",
    predict=_predict,
    build=lambda shares, parameters: all_reduce(shares, **parameters),
    keeps_small_on_ring=True,
    on_cpu=_on_cpu,
    on_gpu=_on_gpu,
    slowdown=predicted_ratio,
    pause_s=1.2,  # the AllReduce that is hit: 0.9 to 1.5 s in the authors' logs
)
