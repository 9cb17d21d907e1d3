"""All-to-all: every rank has a block for every rank; in turn k rank r sends to r+k and receives from r-k.

Every port is busy in every turn, so equal hosts meet the bound. A slow host needs its own share of time in any
schedule, since its blocks come from and go to everybody.
"""

from collections.abc import Iterator

from r2ccl_core.model.schedule import NOBODY, Schedule, lane


def all_to_all(nranks: int, *, slices: int = 1) -> Schedule:
    """p*p blocks of ``slices`` chunks each; block ``i*p + j`` goes from rank i to rank j."""

    def steps(rank: int) -> Iterator[tuple[int, int, int, int, int]]:
        def span(source: int, target: int) -> tuple[int, int]:
            first = (source * nranks + target) * slices
            return first, first + slices

        yield (NOBODY, NOBODY, *span(rank, rank), 0)
        for distance in range(1, nranks):
            to, origin = (rank + distance) % nranks, (rank - distance) % nranks
            for piece in range(slices):
                begin = span(rank, to)[0] + piece
                yield (NOBODY, to, begin, begin + 1, 0)
                begin = span(origin, rank)[0] + piece
                yield (origin, NOBODY, begin, begin + 1, 0)

    programs = tuple((lane(steps(rank)),) for rank in range(nranks))
    return Schedule("alltoall", "alltoall", nranks, nranks * nranks * slices, programs)
