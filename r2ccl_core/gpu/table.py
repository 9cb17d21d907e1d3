"""Which rounds an AllReduce runs under which losses, computed in advance: the file that a preloaded library reads.

A table is made for a number of hosts, GPUs per host (one rank each) and NICs per host. For every combination of lost
NICs up to a total, and every class of sizes, it holds the rounds that are predicted to beat NCCL's ring. If nothing
does, there is no entry, and NCCL's own AllReduce runs. Rounds are built from hosts: if hosts have several GPUs, each
GPU runs the rounds with its part of the vector, after a ReduceScatter and before an AllGather inside the host, segment
by segment (`segments`).

The file, little-endian, is what native/cuda/table.cc reads: the magic ``R2CCLG04``; hosts, GPUs per host, NICs per
host, entries (u32); then per entry: the NICs left, by host (u32); the range of bytes, from and below (u64); chunks
(u32); a name of 32 bytes; the number of segments and the chunk that each ends before (u32); then by host the number of
its operations (u32) and these, 6 i32 each, as in `rounds.Op`.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement, product
from math import comb

import numpy as np

from r2ccl_core import spread
from r2ccl_core.errors import ScheduleError, UsageError
from r2ccl_core.gpu.rounds import Kind, Op, Rounds, in_rounds, rounds_s
from r2ccl_core.gpu.segments import MOST_SEGMENTS, Segments, cuts, in_order_of_use, predicted_s
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.planning.algorithms import ALGORITHMS, AUTO, on_gpus
from r2ccl_core.schedules.algorithm import LEAST_MESSAGE_BYTES, Algorithm, Problem

MAGIC = b"R2CCLG04"
NAME_BYTES = 32
SIZES = tuple(mib << 20 for mib in (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048))
"""Each class of sizes begins here and ends at the next; the last has no end."""

MOST_ENTRIES = 20_000
"""Each entry takes from milliseconds to seconds to make."""

INNER_BYTES_S = 350e9
"""The bus bandwidth of NCCL's ReduceScatter and AllGather among the eight H100s of a host, whose NVLink has 450 GB/s:
331 to 362 GB/s for 256 MiB to 8 GiB, and 350 (NVIDIA/nccl, issues 1047 and 1281)."""

NO_END = 1 << 62
MARGIN = 0.05
"""A schedule that replaces NCCL's own ring must promise this much more."""


def names() -> tuple[str, ...]:
    """The names that `entries` accepts as its algorithm."""
    return (AUTO, *on_gpus())


@dataclass(frozen=True)
class Network:
    """The number of NICs of a host, the rate of each, the cost of a round besides its bytes; a host's GPUs, the rate at
    which each sends to the others of its host, and into how many segments a vector may be cut."""

    nhosts: int
    nics: int
    nic_bytes_s: float
    alpha_s: float = 100e-6
    gpus: int = 1
    inner_bytes_s: float = INNER_BYTES_S
    most_segments: int = MOST_SEGMENTS

    @property
    def host_bytes_s(self) -> float:
        """What all NICs of a healthy host carry in each direction."""
        return self.nics * self.nic_bytes_s

    @property
    def nranks(self) -> int:
        """One for each GPU."""
        return self.nhosts * self.gpus

    def inner_s(self, nbytes: int) -> float:
        """The time of a ReduceScatter or an AllGather inside the hosts, besides `alpha_s`."""
        return (self.gpus - 1) / self.gpus * nbytes / self.inner_bytes_s


@dataclass(frozen=True)
class Entry:
    """The rounds for one loss, by the NICs that are `left` on each host, and for sizes in ``[least, most)``."""

    left: tuple[int, ...]
    least_bytes: int
    most_bytes: int
    rounds: Rounds
    segments: Segments


def losses(nhosts: int, nics: int, most: int) -> Iterator[tuple[int, ...]]:
    """The NICs left by host, for every loss of up to `most` NICs in total that leaves every host one; no loss comes
    first.

    Raises `UsageError` if so many cannot be lost, and if the table would be endless.
    """
    if not 0 <= most <= nhosts * (nics - 1):
        raise UsageError(f"{most} NICs lost: with {nhosts} hosts of {nics} NICs give 0 to {nhosts * (nics - 1)}")
    ways = 0
    for total in range(most + 1):
        ways += comb(nhosts + total - 1, total)
        if ways * len(SIZES) > MOST_ENTRIES:
            raise UsageError(
                f"{most} NICs lost: with {nhosts} hosts that makes more than {MOST_ENTRIES} entries; "
                f"give {total - 1} or less"
            )
    for total in range(most + 1):
        for hit in combinations_with_replacement(range(nhosts), total):
            left = tuple(nics - hit.count(host) for host in range(nhosts))
            if min(left) > 0:
                yield left


def entries(network: Network, lefts: Sequence[tuple[int, ...]], algorithm: str = AUTO) -> list[Entry]:
    """The table's entries. With an `algorithm` other than auto, that one for every loss that it supports, whether it
    pays or not."""
    if network.nhosts < 3:
        raise UsageError(f"{network.nhosts} hosts: with fewer than three no schedule beats a ring")
    if algorithm not in names():
        raise UsageError(f"{algorithm}: no such algorithm; use one of {', '.join(names())}")
    sizes = zip(SIZES, (*SIZES[1:], NO_END), strict=True)
    pieces = [(left, least, most) for left, (least, most) in product(lefts, sizes)]
    found = spread.results(f"rounds of {network} by {algorithm}", partial(_entry, network, algorithm), pieces)
    return [entry for entry in found if entry is not None]


def _entry(network: Network, algorithm: str, piece: tuple[tuple[int, ...], int, int]) -> Entry | None:
    """That for one loss and one class of sizes; None if there is none."""
    left, least, most = piece
    shares = tuple(one / network.nics for one in left)
    typical = least + least // 2
    if algorithm == AUTO:
        # Nothing lost: what a ring of hosts wins over NCCL's of all ranks is not ours to take.
        plan = _paying(network, shares, least, typical) if min(shares) < 1 else None
    else:
        plan = _plan(network, shares, typical, on_gpus()[algorithm])
    return None if plan is None else Entry(left, least if algorithm == AUTO or least > SIZES[0] else 0, most, *plan)


def ring_s(network: Network, shares: Sequence[float], nbytes: int) -> float:
    """NCCL's ring: as slow as the slowest host, or as what is inside the hosts if that is slower."""
    passes = 2 * (network.nranks - 1) / network.nranks
    return passes * max(nbytes / (network.host_bytes_s * min(shares)), network.inner_s(nbytes))


Plan = tuple[Rounds, Segments]


def _paying(network: Network, shares: tuple[float, ...], least: int, typical: int) -> Plan | None:
    """The best of the guaranteed forms, whose rounds are near the bound for all losses; None if the ring is as good,
    or better where the class of sizes begins."""
    sure = [algorithm for algorithm in ALGORITHMS.values() if algorithm.guaranteed]
    plans = [plan for plan in (_plan(network, shares, typical, algorithm) for algorithm in sure) if plan is not None]
    best = min(plans, key=lambda plan: run_s(network, shares, typical, *plan), default=None)
    if best is None or run_s(network, shares, typical, *best) >= (1 - MARGIN) * ring_s(network, shares, typical):
        return None
    return best if run_s(network, shares, least, *best) < ring_s(network, shares, least) else None


def _plan(network: Network, shares: tuple[float, ...], nbytes: int, algorithm: Algorithm) -> Plan | None:
    """The algorithm's rounds, and the segments with which they take the least time; None if it has no form for these
    losses."""
    schedule = _schedule(network, shares, nbytes, algorithm)
    if schedule is None:
        return None
    rounds = in_rounds(schedule)
    if network.gpus == 1:
        return rounds, (rounds.nchunks,)
    rounds = in_order_of_use(rounds)
    return rounds, min(
        cuts(rounds, network.most_segments), key=lambda segments: run_s(network, shares, nbytes, rounds, segments)
    )


def run_s(network: Network, shares: tuple[float, ...], nbytes: int, rounds: Rounds, segments: Segments) -> float:
    """The approximate time of an AllReduce by these rounds."""
    each_s = rounds_s(rounds, shares, nbytes, network.host_bytes_s, network.alpha_s)
    if network.gpus == 1:
        return sum(each_s)
    return predicted_s(rounds, segments, each_s, network.inner_s(nbytes), network.alpha_s)


def _schedule(network: Network, shares: tuple[float, ...], nbytes: int, algorithm: Algorithm) -> Schedule | None:
    """None if the algorithm has no form for these losses."""
    if algorithm.on_gpu is None:
        return None
    chunks = max(1, nbytes // network.gpus // LEAST_MESSAGE_BYTES)
    problem = Problem(shares, nbytes / network.host_bytes_s, network.alpha_s, chunks)
    return algorithm.on_gpu(problem)


def to_bytes(nhosts: int, gpus: int, nics: int, table: Sequence[Entry]) -> bytes:
    """The file."""
    parts = [MAGIC, struct.pack("<IIII", nhosts, gpus, nics, len(table))]
    for entry in table:
        rounds = entry.rounds
        parts.append(struct.pack(f"<{nhosts}I", *entry.left))
        parts.append(struct.pack("<QQI", entry.least_bytes, entry.most_bytes, rounds.nchunks))
        parts.append(rounds.name.encode()[: NAME_BYTES - 1].ljust(NAME_BYTES, b"\0"))
        parts.append(struct.pack(f"<I{len(entry.segments)}I", len(entry.segments), *entry.segments))
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
        nhosts, _gpus, _nics, count = take("IIII")
        found = []
        for _ in range(count):
            left = take(f"{nhosts}I")
            least, most, nchunks = take("QQI")
            (name,) = struct.unpack_from(f"{NAME_BYTES}s", data, at)
            at += NAME_BYTES
            segments = take(f"{take('I')[0]}I")
            programs = tuple(_program(take(f"{6 * take('I')[0]}i")) for _ in range(nhosts))
            rounds = Rounds(name.rstrip(b"\0").decode(), nhosts, nchunks, programs)
            found.append(Entry(left, least, most, rounds, segments))
    except (struct.error, ValueError) as error:
        raise ScheduleError(f"a table of rounds is damaged: {error}") from error
    return found


def _program(words: Sequence[int]) -> tuple[Op, ...]:
    rows = np.array(words, dtype=np.int64).reshape(-1, 6).tolist()
    return tuple(Op(a, Kind(b), c, d, e, bool(f)) for a, b, c, d, e, f in rows)
