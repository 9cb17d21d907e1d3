"""What each collective means in the common chunk space: which rank brings which chunks, and which must end with which.

The data is one vector of ``nchunks`` chunks, the same on every rank:

    all_reduce      the vector; every rank brings all of it and ends with the sum
    reduce          every rank brings all of it, the root ends with the sum
    broadcast       the root brings it, every rank ends with it
    reduce_scatter  every rank brings all of it, rank r ends with the sum of its block
    all_gather      rank r brings its block, every rank ends with all blocks
    sendrecv        rank r brings its block, rank ``(r + 1) % p`` ends with it
    alltoall        p*p blocks; block (i, j) = number i*p+j is brought by i and wanted by j

Block r of p is the chunks ``[r*nchunks//p, (r+1)*nchunks//p)``. In the last two, a rank stores only the blocks that it
brings (its input buffer) and those that it wants (its output buffer); `lower` computes where. Names and meanings are
those of nccl-tests.
"""

from r2ccl_core.errors import UsageError

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "sendrecv",
    "alltoall",
)

Span = tuple[int, int]


def block(index: int, nblocks: int, nchunks: int) -> Span:
    """The chunks of block ``index`` of ``nblocks`` nearly equal blocks."""
    return index * nchunks // nblocks, (index + 1) * nchunks // nblocks


def brings(collective: str, rank: int, nranks: int, nchunks: int, root: int = 0) -> tuple[Span, ...]:
    """The spans of chunks that ``rank`` has values for before the collective."""
    _check(collective)
    if collective in ("all_reduce", "reduce", "reduce_scatter"):
        return ((0, nchunks),)
    if collective in ("all_gather", "sendrecv", "alltoall"):
        return (block(rank, nranks, nchunks),)
    return ((0, nchunks),) if rank == root else ()


def wants(collective: str, rank: int, nranks: int, nchunks: int, root: int = 0) -> tuple[Span, ...]:
    """The spans of chunks that must be correct on ``rank`` after the collective."""
    _check(collective)
    if collective in ("all_reduce", "broadcast", "all_gather"):
        return ((0, nchunks),)
    if collective == "reduce_scatter":
        return (block(rank, nranks, nchunks),)
    if collective == "sendrecv":
        return (block((rank - 1) % nranks, nranks, nchunks),)
    if collective == "alltoall":
        blocks = nranks * nranks
        return tuple(block(source * nranks + rank, blocks, nchunks) for source in range(nranks))
    return ((0, nchunks),) if rank == root else ()


def reduces(collective: str) -> bool:
    """Whether the result is the sum over all ranks (else it is the value of the rank that brings it)."""
    _check(collective)
    return collective in ("all_reduce", "reduce", "reduce_scatter")


def _check(collective: str) -> None:
    if collective not in COLLECTIVES:
        raise UsageError(f"the collective {collective!r} is unknown; it is one of {', '.join(COLLECTIVES)}")
