"""Ring: AllReduce, ReduceScatter and AllGather around a ring of all ranks.

Each rank sends and receives ``2 (p-1)/p`` of the vector in an AllReduce, which is optimal if all ports are equal
(Patarasuk & Yuan, 2009). With a slow host the whole ring runs at that host's rate.

Section j of the vector starts at rank j+1, gathers contributions hop by hop, and is complete at its owner, rank j; from
there it travels around the ring again. A section travels in ``slices``, and a rank receives one slice before it sends
the next, so that one buffer per connection is enough. With more buffers it may be ``ahead`` slices ahead, fewer than
there are slices: the NICs then have work while a slice is in flight or waits for its last piece.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from r2ccl_core.model.schedule import NOBODY, Lane, Schedule, copied, lane
from r2ccl_core.schedules import hierarchical
from r2ccl_core.schedules.algorithm import Algorithm, OnCpu, Parameters, Prediction, Problem, Shares
from r2ccl_core.schedules.timed import Ints, Messages, compile_schedule


def all_reduce(nranks: int, *, slices: int = 1, lanes: int = 1, ahead: int = 0, hops: int | None = None) -> Schedule:
    """A ring over ranks 0..p-1, each of its p sections in ``slices`` pieces, on each of ``lanes`` lanes.

    With ``hops``, only this number of the 2(p-1) hops of every section: for a simulation (`periodic.py`), since that
    does not complete the reduction.
    """
    if nranks == 1:
        return copied("ring", "all_reduce")
    once = nranks - 1
    there, back = (once, once) if hops is None else (min(hops, once), max(0, hops - once))
    parts = [gathering(nranks, slices, index, lanes, ahead, there) for index in range(lanes)]
    parts += [spreading(nranks, slices, index, lanes, once, ahead, back) for index in range(lanes)]
    return compile_schedule("ring", "all_reduce", nranks, nranks * slices * lanes, lanes, Messages.join(parts))


def reduce_scatter(nranks: int, *, slices: int = 1, lanes: int = 1, ahead: int = 0) -> Schedule:
    """The first half of the ring AllReduce: rank r ends with block r of p."""
    if nranks == 1:
        return copied("ring", "reduce_scatter")
    parts = [gathering(nranks, slices, index, lanes, ahead) for index in range(lanes)]
    return compile_schedule("ring", "reduce_scatter", nranks, nranks * slices * lanes, lanes, Messages.join(parts))


def all_gather(nranks: int, *, slices: int = 1, lanes: int = 1, ahead: int = 0) -> Schedule:
    """The second half of the ring AllReduce: block r starts at rank r."""
    if nranks == 1:
        return copied("ring", "all_gather")
    parts = [spreading(nranks, slices, index, lanes, 0, ahead) for index in range(lanes)]
    schedule = compile_schedule("ring", "all_gather", nranks, nranks * slices * lanes, lanes, Messages.join(parts))
    return schedule.followed(lambda rank, index: _own_block(rank, index, slices, lanes))


def gathering(nranks: int, slices: int, index: int, lanes: int, ahead: int = 0, hops: int | None = None) -> Messages:
    """Moves every section from the rank after its owner to its owner (or for this many ``hops``), summing on the
    way."""
    owner, hop, piece = _grid(nranks, nranks - 1 if hops is None else hops, slices)
    return _messages(nranks, owner, owner + 1 + hop, hop, piece, slices, index, lanes, 1, ahead)


def spreading(
    nranks: int, slices: int, index: int, lanes: int, start: int, ahead: int = 0, hops: int | None = None
) -> Messages:
    """Moves every section from its owner to the rank before it (or for this many ``hops``), beginning at hop
    ``start``."""
    owner, hop, piece = _grid(nranks, nranks - 1 if hops is None else hops, slices)
    return _messages(nranks, owner, owner + hop, start + hop, piece, slices, index, lanes, 0, ahead)


def _grid(nranks: int, hops: int, slices: int) -> tuple[Ints, Ints, Ints]:
    shape = (nranks, hops, slices)
    owner, hop, piece = (axis.ravel() for axis in np.indices(shape, dtype=np.int32))
    return owner, hop, piece


def _messages(
    nranks: int,
    owner: Ints,
    source: Ints,
    hop: Ints,
    piece: Ints,
    slices: int,
    index: int,
    lanes: int,
    reduce: int,
    ahead: int,
) -> Messages:
    """Slices of one lane; block r of p is contiguous over all lanes, as ReduceScatter and AllGather want."""
    leave = hop * slices + piece
    chunk = (owner * lanes + index) * slices + piece
    same = np.ones_like(leave)
    return Messages(
        leave,
        leave + 1 + min(ahead, slices - 1),
        0 * same,
        index * same,
        source % nranks,
        (source + 1) % nranks,
        chunk,
        chunk + 1,
        reduce * same,
    )


def _own_block(rank: int, index: int, slices: int, lanes: int) -> Lane:
    first = (rank * lanes + index) * slices
    return lane([(NOBODY, NOBODY, first, first + slices, 0)])


def _predict(problem: Problem) -> Prediction:
    """Sections are cut as long as that costs at most 2 %: the reduction then overlaps the transfer."""
    p = problem.hosts
    section_s = problem.unit_s / (p * problem.slowest_edge)
    free = 0.02 * section_s / problem.alpha_s if problem.alpha_s > 0 else 8
    slices = max(1, min(int(min(8, free)), problem.most_chunks // p))  # infinite for the least costs
    return 2 * (p - 1) * (section_s + slices * problem.alpha_s), {"slices": slices}


def _predict_repaired(problem: Problem) -> Prediction | None:
    return None if problem.repaired is None else _predict(replace(problem, shares=problem.repaired))


def _build(shares: Shares, parameters: Parameters) -> Schedule:
    return all_reduce(len(shares), **parameters)


def _on_cpu(asked: OnCpu, parameters: Parameters) -> Schedule:
    """Also what runs while nothing is lost; its slices are the user's."""
    return _of_ranks(asked.ring, asked.nbytes // asked.gpus, len(asked.shares), asked.gpus)


@lru_cache(maxsize=64)
def _of_ranks(ring: Callable[[int, int], Schedule], nbytes: int, nhosts: int, gpus: int) -> Schedule:
    """The same object whatever is lost: it is no other schedule."""
    return hierarchical.of_ranks(ring(nbytes, nhosts), gpus)


def _on_gpu(problem: Problem) -> Schedule:
    pieces = min(32, problem.most_chunks // problem.hosts)
    return all_reduce(problem.hosts, slices=max(1, min(4, pieces)))


ALGORITHM = Algorithm(
    name="ring",
    alias="ring",
    title="ring",
    idea="one ring, load balanced over the surviving NICs",
    letter="R",
    color="#EFEFEF",
    predict=_predict,
    build=_build,
    follows_health=False,
    on_cpu=_on_cpu,
    on_gpu=_on_gpu,
)
HOT_REPAIR = Algorithm(
    name="hot_repair",
    alias=None,  # R2CC_MODE=1: what the transport does, whatever the schedule
    title="hot repair",
    idea="one ring, the lost NIC's load on one other NIC",
    letter="H",
    color="#E69F00",
    predict=_predict_repaired,
    build=_build,
    on_cpu=_on_cpu,
    pause_s=1.2,  # the AllReduce that is hit: 0.9 to 1.5 s in the authors' logs
)
