"""Proves a schedule symbolically: correct sums, no deadlock with bounded buffers, lanes that do not overlap.

The schedule is run on sets of contributors instead of numbers: a chunk's value is the set of ranks whose inputs it
holds. Adding two values demands disjoint sets, so no contribution counts twice, and the result demands the full set, so
none is missing. Connections hold at most ``slots`` messages: a send into a full one waits. Lanes are deterministic and
meet only in FIFO connections, so whether the run ends does not depend on the order in which lanes are tried (Kahn
1974): one run that ends proves freedom from deadlock for this number of slots and any larger one.
"""

from collections import deque
from collections.abc import Iterator

import numpy as np

from r2ccl_core.errors import ScheduleError
from r2ccl_core.model import collective as meaning
from r2ccl_core.model.schedule import NOBODY, Lane, Schedule

Value = int
"""A set of ranks as a bit mask; 0 is "no value"."""

Steps = list[tuple[int, int, int, int, int]]


def verify(schedule: Schedule, *, slots: int = 2) -> None:
    """Returns if the schedule computes its collective with ``slots`` buffers per connection.

    Raises `ScheduleError` with one line that says where it goes wrong.
    """
    _check_form(schedule)
    _check_lanes_apart(schedule)
    run = _Run(schedule, slots)
    _check_result(schedule, run.values())
    _check_written(schedule, run.written)


def least_slots(schedule: Schedule, most: int = 64) -> int:
    """The fewest buffers per connection with which the schedule does not deadlock."""
    for slots in range(1, most + 1):
        if not _Run(schedule, slots).stuck():
            return slots
    raise ScheduleError(f"{schedule.name}: deadlocks even with {most} buffers per connection")


def _check_form(schedule: Schedule) -> None:
    for rank, index, steps in _lanes(schedule):
        where = f"{schedule.name}: rank {rank} lane {index}"
        if not len(steps):
            continue
        for field in ("recv", "send"):
            peer = steps[field]
            if (peer < NOBODY).any() or (peer >= schedule.nranks).any() or (peer == rank).any():
                raise ScheduleError(f"{where}: a step names itself or a rank that does not exist")
        if (steps["begin"] < 0).any() or (steps["end"] > schedule.nchunks).any():
            raise ScheduleError(f"{where}: a step names chunks outside 0..{schedule.nchunks}")
        if (steps["begin"] >= steps["end"]).any():
            raise ScheduleError(f"{where}: a step names an empty range of chunks")


def _check_lanes_apart(schedule: Schedule) -> None:
    """No two lanes of a rank touch the same chunk."""
    for rank, program in enumerate(schedule.programs):
        owner = np.full(schedule.nchunks, -1, dtype=np.int32)
        for index, steps in enumerate(program):
            touched = _touched(steps, schedule.nchunks)
            if (owner[touched] >= 0).any():
                chunk = int(np.flatnonzero(touched & (owner >= 0))[0])
                raise ScheduleError(
                    f"{schedule.name}: rank {rank} touches chunk {chunk} in lanes {owner[chunk]} and {index}"
                )
            owner[touched] = index


def _touched(steps: Lane, nchunks: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    edges = np.zeros(nchunks + 1, dtype=np.int64)
    np.add.at(edges, steps["begin"], 1)
    np.add.at(edges, steps["end"], -1)
    return np.cumsum(edges[:-1]) > 0


def _lanes(schedule: Schedule) -> Iterator[tuple[int, int, Lane]]:
    for rank, program in enumerate(schedule.programs):
        for index, steps in enumerate(program):
            yield rank, index, steps


class _Run:
    """One symbolic run; `stuck` says who waits for ever, `values` what every rank ends with."""

    def __init__(self, schedule: Schedule, slots: int) -> None:
        self._schedule = schedule
        self._slots = slots
        self.written = [bytearray(schedule.nchunks) for _ in range(schedule.nranks)]
        self._chunks = [_own(schedule, rank) for rank in range(schedule.nranks)]
        self._queues: dict[tuple[int, int, int], deque[tuple[int, int, list[Value]]]] = {}
        self._readers: dict[tuple[int, int, int], int] = {}
        self._writers: dict[tuple[int, int, int], int] = {}
        self._steps: list[Steps] = [steps.tolist() for _, _, steps in _lanes(schedule)]
        self._next = [0] * len(self._steps)
        self._received = [False] * len(self._steps)
        self._ready = list(range(len(self._steps)))
        while self._ready:
            self._advance(self._ready.pop())

    def stuck(self) -> str:
        """Which rank waits for which, or empty."""
        for number, steps in enumerate(self._steps):
            at = self._next[number]
            if at < len(steps):
                rank, index = divmod(number, self._schedule.nlanes)
                recv, send, begin, end, _ = steps[at]
                waits = f"rank {send} to take" if recv < 0 or self._received[number] else f"rank {recv} to send"
                return f"rank {rank} lane {index} step {at} waits for {waits} chunks [{begin}, {end})"
        return ""

    def values(self) -> list[list[Value]]:
        """The final value of every chunk on every rank."""
        if reason := self.stuck():
            raise ScheduleError(f"{self._schedule.name}: deadlock with {self._slots} slots: {reason}")
        for (source, destination, index), queue in self._queues.items():
            if queue:
                raise ScheduleError(
                    f"{self._schedule.name}: rank {destination} never receives {len(queue)} messages "
                    f"of rank {source} in lane {index}"
                )
        return self._chunks

    def _advance(self, number: int) -> None:
        rank, index = divmod(number, self._schedule.nlanes)
        steps = self._steps[number]
        mine = self._chunks[rank]
        while self._next[number] < len(steps):
            recv, send, begin, end, reduce = steps[self._next[number]]
            if recv >= 0 or send < 0:
                self.written[rank][begin:end] = b"\1" * (end - begin)
            if recv >= 0 and not self._received[number]:
                if not self._receive((recv, rank, index), number, mine, begin, end, reduce):
                    return
                self._received[number] = True
            if send >= 0 and not self._send((rank, send, index), number, mine, begin, end):
                return
            self._received[number] = False
            self._next[number] += 1

    def _receive(
        self, link: tuple[int, int, int], number: int, mine: list[Value], begin: int, end: int, reduce: int
    ) -> bool:
        queue = self._queues.get(link)
        if not queue:
            self._readers[link] = number
            return False
        first, last, values = queue.popleft()
        if (first, last) != (begin, end):
            raise ScheduleError(
                f"{self._schedule.name}: rank {link[1]} expects chunks [{begin}, {end}) from rank {link[0]} "
                f"in lane {link[2]}, but [{first}, {last}) arrive"
            )
        if reduce:
            values = [self._sum(link[1], begin + i, a, values[i]) for i, a in enumerate(mine[begin:end])]
        mine[begin:end] = values
        if (writer := self._writers.pop(link, None)) is not None:
            self._ready.append(writer)
        return True

    def _sum(self, rank: int, chunk: int, mine: Value, incoming: Value) -> Value:
        if mine & incoming:
            raise ScheduleError(f"{self._schedule.name}: rank {rank} adds to chunk {chunk} what it already holds")
        if not mine:
            raise ScheduleError(f"{self._schedule.name}: rank {rank} adds to chunk {chunk} before it has one")
        return mine | incoming

    def _send(self, link: tuple[int, int, int], number: int, mine: list[Value], begin: int, end: int) -> bool:
        queue = self._queues.setdefault(link, deque())
        if len(queue) >= self._slots:
            self._writers[link] = number
            return False
        values = mine[begin:end]
        if not all(values):
            raise ScheduleError(
                f"{self._schedule.name}: rank {link[0]} sends chunks [{begin}, {end}) before it has them"
            )
        queue.append((begin, end, values))
        if (reader := self._readers.pop(link, None)) is not None:
            self._ready.append(reader)
        return True


def _own(schedule: Schedule, rank: int) -> list[Value]:
    values = [0] * schedule.nchunks
    for begin, end in meaning.brings(schedule.collective, rank, schedule.nranks, schedule.nchunks, schedule.root):
        values[begin:end] = [1 << rank] * (end - begin)
    return values


def _check_result(schedule: Schedule, values: list[list[Value]]) -> None:
    arguments = (schedule.nranks, schedule.nchunks, schedule.root)
    expected = [(1 << schedule.nranks) - 1] * schedule.nchunks
    if not meaning.reduces(schedule.collective):
        for rank in range(schedule.nranks):
            for begin, end in meaning.brings(schedule.collective, rank, *arguments):
                expected[begin:end] = [1 << rank] * (end - begin)
    for rank, mine in enumerate(values):
        for begin, end in meaning.wants(schedule.collective, rank, *arguments):
            if mine[begin:end] != expected[begin:end]:
                chunk = next(c for c in range(begin, end) if mine[c] != expected[c])
                missing = expected[chunk] & ~mine[chunk]
                raise ScheduleError(
                    f"{schedule.name}: rank {rank} ends with the wrong chunk {chunk}: "
                    f"{missing.bit_count()} contributions missing, "
                    f"{(mine[chunk] & ~expected[chunk]).bit_count()} that do not belong"
                )


def _check_written(schedule: Schedule, written: list[bytearray]) -> None:
    """Results lie in the output buffer, which only receives and copies write."""
    for rank, mine in enumerate(written):
        for begin, end in meaning.wants(schedule.collective, rank, schedule.nranks, schedule.nchunks, schedule.root):
            if 0 in mine[begin:end]:
                chunk = begin + mine[begin:end].index(0)
                raise ScheduleError(f"{schedule.name}: no step of rank {rank} writes its result chunk {chunk}")
