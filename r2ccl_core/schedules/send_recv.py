"""Send/recv: one rank's vector to the next rank, in slices."""

from r2ccl_core.errors import UsageError
from r2ccl_core.schedule import NOBODY, Schedule, lane


def send_recv(nranks: int, root: int = 0, *, slices: int = 16) -> Schedule:
    """The vector of ``root`` to rank ``root + 1``; the others have nothing to do."""
    if nranks < 2:
        raise UsageError("send_recv needs two ranks or more")
    target = (root + 1) % nranks
    peers = {root: (NOBODY, target), target: (root, NOBODY)}
    programs = tuple(
        (lane((*peers[rank], chunk, chunk + 1, 0) for chunk in range(slices) if rank in peers),)
        for rank in range(nranks)
    )
    return Schedule("send_recv", "send_recv", nranks, slices, programs, root)
