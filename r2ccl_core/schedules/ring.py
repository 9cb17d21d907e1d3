"""Ring AllReduce: a reduce-scatter around the ring, then an all-gather.

Each rank sends and receives ``2 (p-1)/p`` of the vector, which is optimal when all ports are equal
(Patarasuk & Yuan, 2009). With a slow host the whole ring runs at that host's rate.
"""

from r2ccl_core.schedule import NOBODY, Lane, Schedule, lane


def all_reduce(nranks: int, *, slices: int = 1, lanes: int = 1) -> Schedule:
    """A ring over ranks 0..p-1, each of its p sections pipelined in ``slices`` pieces, on ``lanes`` lanes.

    Section ``j`` starts at rank ``j`` and is complete at rank ``j-1``.
    """
    nchunks = lanes * nranks * slices
    programs = tuple(
        tuple(_ring_lane(nranks, rank, slices, index * nranks * slices) for index in range(lanes))
        for rank in range(nranks)
    )
    return Schedule("ring", "all_reduce", nranks, nchunks, programs)


def _ring_lane(nranks: int, rank: int, slices: int, base: int) -> Lane:
    before, after = (rank - 1) % nranks, (rank + 1) % nranks
    steps: list[tuple[int, int, int, int, int]] = []

    def section(number: int, recv: int, send: int, reduce: int) -> None:
        first = base + (number % nranks) * slices
        steps.extend((recv, send, chunk, chunk + 1, reduce) for chunk in range(first, first + slices))

    if nranks == 1:
        section(0, NOBODY, NOBODY, 0)
        return lane(steps)
    section(rank, NOBODY, after, 0)
    for hop in range(1, nranks):
        section(rank - hop, before, after, 1)
    for hop in range(nranks - 2):
        section(rank - hop, before, after, 0)
    section(rank + 2, before, NOBODY, 0)
    return lane(steps)
