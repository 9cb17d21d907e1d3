"""Ring: AllReduce, ReduceScatter and AllGather around a ring of all ranks.

Each rank sends and receives ``2 (p-1)/p`` of the vector in an AllReduce, which is optimal when all ports
are equal (Patarasuk & Yuan, 2009). With a slow host the whole ring runs at that host's rate.

Section j of the vector starts at rank j+1, gathers contributions hop by hop, and is complete at its
owner, rank j; from there it goes round once more. A section travels in ``slices``, and a rank receives
one slice before it sends the next, so that one buffer per connection is enough. With more buffers it may be ``ahead``
slices ahead, fewer than there are: then the NICs have work while a slice is on its way or waits for its last piece.
"""

import numpy as np

from r2ccl_core.schedule import NOBODY, Lane, Schedule, copied, lane
from r2ccl_core.schedules.timed import Ints, Messages, compile_schedule


def all_reduce(nranks: int, *, slices: int = 1, lanes: int = 1, ahead: int = 0, hops: int | None = None) -> Schedule:
    """A ring over ranks 0..p-1, each of its p sections in ``slices`` pieces, on each of ``lanes`` lanes.

    Only the first ``hops`` of the 2(p-1) of every section, where that is given: for a simulation (`periodic.py`), as
    that reduces nothing to the end.
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
    """Every section from the rank after its owner to its owner (or for so many ``hops``), summed up on the way."""
    owner, hop, piece = _grid(nranks, nranks - 1 if hops is None else hops, slices)
    return _messages(nranks, owner, owner + 1 + hop, hop, piece, slices, index, lanes, 1, ahead)


def spreading(
    nranks: int, slices: int, index: int, lanes: int, start: int, ahead: int = 0, hops: int | None = None
) -> Messages:
    """Every section from its owner to the rank before it (or for so many ``hops``), beginning at hop ``start``."""
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
