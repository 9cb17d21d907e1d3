"""Send/recv: every rank's block to the next rank, in slices; all ports send and receive at once."""

from collections.abc import Iterator

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import NOBODY, Schedule, lane


def send_recv(nranks: int, *, slices: int = 16, ahead: int = 0) -> Schedule:
    """Block r, ``slices`` chunks, goes from rank r to rank r + 1; up to ``ahead`` more chunks are sent than were
    received."""
    if nranks < 2:
        raise UsageError("sendrecv needs two ranks or more")

    def steps(rank: int) -> Iterator[tuple[int, int, int, int, int]]:
        following, previous = (rank + 1) % nranks, (rank - 1) % nranks
        for turn in range(slices + ahead):
            mine, other = rank * slices + turn, previous * slices + turn - ahead
            if turn < slices:
                yield (NOBODY, following, mine, mine + 1, 0)
            if turn >= ahead:
                yield (previous, NOBODY, other, other + 1, 0)

    programs = tuple((lane(steps(rank)),) for rank in range(nranks))
    return Schedule("sendrecv", "sendrecv", nranks, nranks * slices, programs)
