"""Which rounds an AllReduce runs under which losses, made ahead of time: the file that a preloaded library reads.

A table is made for a number of ranks, one rank and so many NICs a host. For every combination of lost NICs up to a
total, and every class of sizes, it holds the rounds that are predicted to beat NCCL's ring; where nothing does, there
is no entry, and NCCL's own AllReduce runs.

The file, little-endian, is what native/cuda/table.cc reads: the magic ``R2CCLG01``; ranks, NICs per rank, entries
(u32); then per entry: the NICs left, by rank (u32); from how many bytes on and below how many (u64); chunks and pipes
(u32); a name of 32 bytes; then by rank the number of its operations (u32) and these, 7 i32 each, as in `rounds.Op`.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb

import numpy as np

from r2ccl_core.errors import ScheduleError, UsageError
from r2ccl_core.gpu.rounds import Kind, Op, Rounds, in_rounds, predicted_s
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.planning.algorithms import ALGORITHMS, AUTO, on_gpus
from r2ccl_core.schedules.algorithm import LEAST_MESSAGE_BYTES, Algorithm, Problem

MAGIC = b"R2CCLG01"
NAME_BYTES = 32
SIZES = (4 << 20, 16 << 20, 64 << 20, 256 << 20)
"""Each class of sizes begins here and ends at the next; the last has no end."""

MOST_ENTRIES = 20_000
"""Each takes from milliseconds to seconds to make."""

NO_END = 1 << 62
MARGIN = 0.05
"""What leaves NCCL's own ring must promise so much more."""


def names() -> tuple[str, ...]:
    """What `entries` takes as its algorithm."""
    return (AUTO, *on_gpus())


@dataclass(frozen=True)
class Network:
    """One rank's share of it: how many NICs a host has, what each carries, what a round costs beside its bytes."""

    nranks: int
    nics: int
    nic_bytes_s: float
    alpha_s: float = 200e-6
    pipes: int = 4

    @property
    def host_bytes_s(self) -> float:
        """What all NICs of a healthy host carry in each direction."""
        return self.nics * self.nic_bytes_s


@dataclass(frozen=True)
class Entry:
    """The rounds for one loss, by the NICs that are `left` on each rank, and for sizes in ``[least, most)``."""

    left: tuple[int, ...]
    least_bytes: int
    most_bytes: int
    rounds: Rounds


def losses(nranks: int, nics: int, most: int) -> Iterator[tuple[int, ...]]:
    """The NICs left by rank, for every loss of up to `most` NICs in all that leaves every rank one; none lost first.

    `UsageError` where so many cannot be lost, and where the table would have no end."""
    if not 0 <= most <= nranks * (nics - 1):
        raise UsageError(f"{most} NICs lost: with {nranks} hosts of {nics} NICs give 0 to {nranks * (nics - 1)}")
    ways = 0
    for total in range(most + 1):
        ways += comb(nranks + total - 1, total)
        if ways * len(SIZES) > MOST_ENTRIES:
            raise UsageError(
                f"{most} NICs lost: with {nranks} hosts that makes more than {MOST_ENTRIES} entries; "
                f"give {total - 1} or less"
            )
    for total in range(most + 1):
        for hit in combinations_with_replacement(range(nranks), total):
            left = tuple(nics - hit.count(rank) for rank in range(nranks))
            if min(left) > 0:
                yield left


def entries(network: Network, lefts: Sequence[tuple[int, ...]], algorithm: str = AUTO) -> Iterator[Entry]:
    """The table's entries; with another `algorithm` than auto that one in every place that it can serve, pay or not."""
    if network.nranks < 3:
        raise UsageError(f"{network.nranks} ranks: with fewer than three no schedule beats a ring")
    if algorithm not in names():
        raise UsageError(f"{algorithm}: no such algorithm; use one of {', '.join(names())}")
    for left in lefts:
        shares = tuple(one / network.nics for one in left)
        for least, most in zip(SIZES, (*SIZES[1:], NO_END), strict=True):
            typical = 2 * least
            if algorithm == AUTO:
                rounds = _paying(network, shares, typical)
            else:
                schedule = _schedule(network, shares, typical, on_gpus()[algorithm])
                rounds = None if schedule is None else in_rounds(schedule, network.pipes)
            if rounds is not None:
                yield Entry(left, least if algorithm == AUTO or least > SIZES[0] else 0, most, rounds)


def ring_s(network: Network, shares: Sequence[float], nbytes: int) -> float:
    """NCCL's ring: as slow as the slowest host."""
    return 2 * (network.nranks - 1) / network.nranks * nbytes / (network.host_bytes_s * min(shares))


def _paying(network: Network, shares: tuple[float, ...], nbytes: int) -> Rounds | None:
    """The best of the guaranteed forms, whose rounds are near the bound for all losses; None where the ring is as
    good."""
    best, least_s = None, (1 - MARGIN) * ring_s(network, shares, nbytes)
    for algorithm in ALGORITHMS.values():
        schedule = _schedule(network, shares, nbytes, algorithm) if algorithm.guaranteed else None
        if schedule is not None:
            rounds = in_rounds(schedule, network.pipes)
            seconds = predicted_s(rounds, shares, nbytes, network.host_bytes_s, network.alpha_s)
            if seconds < least_s:
                best, least_s = rounds, seconds
    return best


def _schedule(network: Network, shares: tuple[float, ...], nbytes: int, algorithm: Algorithm) -> Schedule | None:
    """None where the algorithm has no form for these losses."""
    if algorithm.on_gpu is None:
        return None
    chunks = max(1, nbytes // LEAST_MESSAGE_BYTES)
    problem = Problem(shares, nbytes / network.host_bytes_s, network.alpha_s, chunks)
    return algorithm.on_gpu(problem, network.pipes)


def to_bytes(nranks: int, nics: int, table: Sequence[Entry]) -> bytes:
    """The file."""
    parts = [MAGIC, struct.pack("<III", nranks, nics, len(table))]
    for entry in table:
        rounds = entry.rounds
        parts.append(struct.pack(f"<{nranks}I", *entry.left))
        parts.append(struct.pack("<QQII", entry.least_bytes, entry.most_bytes, rounds.nchunks, rounds.npipes))
        parts.append(rounds.name.encode()[: NAME_BYTES - 1].ljust(NAME_BYTES, b"\0"))
        for program in rounds.programs:
            parts.append(struct.pack("<I", len(program)))
            parts.append(np.array(program, dtype="<i4").tobytes())
    return b"".join(parts)


def from_bytes(data: bytes) -> list[Entry]:
    """What `to_bytes` wrote; `ScheduleError` for anything else."""
    if data[: len(MAGIC)] != MAGIC:
        raise ScheduleError(f"not a table of rounds of this version: it begins with {data[: len(MAGIC)]!r}")
    at = len(MAGIC)

    def take(form: str) -> tuple[int, ...]:
        nonlocal at
        values = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return values

    try:
        nranks, _nics, count = take("III")
        found = []
        for _ in range(count):
            left = take(f"{nranks}I")
            least, most, nchunks, npipes = take("QQII")
            (name,) = struct.unpack_from(f"{NAME_BYTES}s", data, at)
            at += NAME_BYTES
            programs = tuple(_program(take(f"{7 * take('I')[0]}i")) for _ in range(nranks))
            rounds = Rounds(name.rstrip(b"\0").decode(), nranks, nchunks, npipes, programs)
            found.append(Entry(left, least, most, rounds))
    except (struct.error, ValueError) as error:
        raise ScheduleError(f"a table of rounds is damaged: {error}") from error
    return found


def _program(words: Sequence[int]) -> tuple[Op, ...]:
    rows = np.array(words, dtype=np.int64).reshape(-1, 7).tolist()
    return tuple(Op(a, b, Kind(c), d, e, f, bool(g)) for a, b, c, d, e, f, g in rows)
