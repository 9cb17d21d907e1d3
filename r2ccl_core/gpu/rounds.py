"""Turns a schedule into rounds: the operations of every rank, in an order in which NCCL's point-to-point calls cannot
deadlock.

Pure. NCCL runs the calls of one group together and the groups of a stream in turn, and two ranks must issue their
mutual calls in the same order. So every message of the schedule gets a number, its *round*, by a rule that all ranks
evaluate alike: later than every message whose data it forwards or overwrites, and later than the previous one on its
connection. A rank issues its rounds in order, each as one group followed by the reductions of the received data.

This cannot deadlock, whatever the delays: take the unfinished message of the lowest round. Everything that its two ends
issue before it is of lower rounds, hence finished; so both ends have issued its group, or will without waiting.

All that a rank sends to another in a round travels as one message: NCCL runs the messages between two ranks one after
another, each with its own delay.
"""

from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from r2ccl_core.errors import ScheduleError
from r2ccl_core.model.schedule import NOBODY, Schedule
from r2ccl_core.planning.lower import OWN_IS_INPUT, REDUCE, SEND_FROM_INPUT, Connection, lower


class Kind(IntEnum):
    """What an operation does with its range of chunks."""

    SEND = 0
    RECEIVE = 1
    """Receives straight into its place in the result."""
    RECEIVE_REDUCE = 2
    """Receives into a bounce buffer, which is combined with the rank's own value after the round's transfers."""
    COPY = 3
    """Copies the rank's own input into its result, after the round's transfers."""


class Op(NamedTuple):
    """One operation of a rank, on the chunks ``[begin, end)``; `from_input`: the own value is still in the input."""

    round: int
    kind: Kind
    peer: int
    begin: int
    end: int
    from_input: bool


@dataclass(frozen=True)
class Rounds:
    """`programs[rank]` is in the order of issue. Within a round, transfers between two ranks are in the same order at
    both, and the operations after them are in the order in which they must run."""

    name: str
    nranks: int
    nchunks: int
    programs: tuple[tuple[Op, ...], ...]

    @property
    def nrounds(self) -> int:
        """How many there are."""
        return 1 + max((op.round for program in self.programs for op in program), default=-1)


@dataclass
class _Node:
    """A message, or a copy within a rank. `after` holds the nodes that must precede it, and by how many rounds."""

    begin: int
    end: int
    ends: list[tuple[int, Kind, int, bool]]
    """Rank, operation, peer, and whether the rank's own value is still the input."""
    after: list[tuple[int, int]]


def in_rounds(schedule: Schedule) -> Rounds:
    """The rounds of an AllReduce `schedule`. Raises `ScheduleError` if messages wait for each other in a circle."""
    if schedule.collective != "all_reduce":
        raise ScheduleError(f"{schedule.name}: rounds are for all_reduce, not for {schedule.collective}")
    nodes = _nodes(schedule)
    rounds, order = _longest_paths(schedule.name, nodes)
    programs: list[list[Op]] = [[] for _ in range(schedule.nranks)]
    for index in sorted(order, key=lambda n: rounds[n]):
        node = nodes[index]
        for rank, kind, peer, from_input in node.ends:
            programs[rank].append(Op(rounds[index], kind, peer, node.begin, node.end, from_input))
    return Rounds(schedule.name, schedule.nranks, schedule.nchunks, tuple(map(tuple, programs)))


def _nodes(schedule: Schedule) -> list[_Node]:
    """Every message and copy; nodes that touch a chunk on one rank are numbered in the order in which they do so."""
    numbers = {connection: number for number, connection in enumerate(schedule.connections())}
    nodes: list[_Node] = []
    lanes = [lower(schedule, rank, schedule.nchunks, numbers, numbers) for rank in range(schedule.nranks)]
    for index in range(schedule.nlanes):
        programs = [lanes[rank][index].tolist() for rank in range(schedule.nranks)]
        _Lane(schedule, index, numbers, nodes).add(programs)
    return nodes


class _Lane:
    """One lane of all ranks, executed in some order that its messages allow, to learn the dependencies."""

    def __init__(self, schedule: Schedule, index: int, numbers: dict[Connection, int], nodes: list[_Node]) -> None:
        self._name = schedule.name
        self._ends = {number: connection for connection, number in numbers.items() if connection[2] == index}
        self._nodes = nodes
        self._sent: dict[int, list[int]] = defaultdict(list)  # nodes under way, by connection
        self._last: dict[int, int] = {}  # by connection
        self._written: dict[tuple[int, int], int] = {}  # by rank and chunk, the node that wrote it last
        self._readers: dict[tuple[int, int], list[int]] = defaultdict(list)  # who has sent that value since

    def add(self, programs: list[list[list[int]]]) -> None:
        """Runs the lane: a send never waits, a receive waits for its message."""
        at = [0] * len(programs)
        moved = True
        while moved:
            moved = False
            for rank, steps in enumerate(programs):
                while at[rank] < len(steps) and self._step(rank, *steps[at[rank]]):
                    at[rank] += 1
                    moved = True
        if any(done < len(steps) for done, steps in zip(at, programs, strict=True)):
            raise ScheduleError(f"{self._name}: a rank waits for a message that nobody sends")

    def _step(self, rank: int, recv: int, send: int, begin: int, end: int, flags: int, _barrier: int) -> bool:
        if recv != NOBODY and not self._sent[recv]:
            return False
        own_is_input = bool(flags & OWN_IS_INPUT)
        if recv != NOBODY:
            node = self._sent[recv].pop(0)
            kind = Kind.RECEIVE_REDUCE if flags & REDUCE else Kind.RECEIVE
            self._write(node, rank, kind, begin, end)
            self._nodes[node].ends.append((rank, kind, self._ends[recv][0], own_is_input))
        elif send == NOBODY:
            node = self._new(begin, end)
            self._write(node, rank, Kind.COPY, begin, end)
            self._nodes[node].ends.append((rank, Kind.COPY, NOBODY, True))
        if send != NOBODY:
            self._send(rank, send, begin, end, bool(flags & SEND_FROM_INPUT))
        return True

    def _new(self, begin: int, end: int) -> int:
        self._nodes.append(_Node(begin, end, [], []))
        return len(self._nodes) - 1

    def _send(self, rank: int, connection: int, begin: int, end: int, from_input: bool) -> None:
        node = self._new(begin, end)
        after = self._nodes[node].after
        if connection in self._last:
            after.append((self._last[connection], 1))
        self._last[connection] = node
        for chunk in range(begin, end):
            if (rank, chunk) in self._written:
                after.append((self._written[rank, chunk], 1))
            self._readers[rank, chunk].append(node)
        self._nodes[node].ends.append((rank, Kind.SEND, self._ends[connection][1], from_input))
        self._sent[connection].append(node)

    def _write(self, node: int, rank: int, kind: Kind, begin: int, end: int) -> None:
        """Data written after a round's transfers may share the round with whatever read or wrote the place before."""
        later = 1 if kind is Kind.RECEIVE else 0
        after = self._nodes[node].after
        for chunk in range(begin, end):
            after.extend((reader, later) for reader in self._readers.pop((rank, chunk), ()) if reader != node)
            if (rank, chunk) in self._written:
                after.append((self._written[rank, chunk], later))
            self._written[rank, chunk] = node


def _longest_paths(name: str, nodes: list[_Node]) -> tuple[list[int], list[int]]:
    """The round of every node, and all nodes in an order in which each comes after those that it must follow."""
    rounds = [0] * len(nodes)
    followers: list[list[tuple[int, int]]] = [[] for _ in nodes]
    waits = [0] * len(nodes)
    for index, node in enumerate(nodes):
        for before, by in set(node.after):
            followers[before].append((index, by))
            waits[index] += 1
    ready = [index for index, count in enumerate(waits) if not count]
    for index in ready:
        for follower, by in followers[index]:
            rounds[follower] = max(rounds[follower], rounds[index] + by)
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    if len(ready) < len(nodes):
        raise ScheduleError(f"{name}: messages wait for each other in a circle")
    return rounds, ready


def rounds_s(
    rounds: Rounds, shares: tuple[float, ...], nbytes: int, host_bytes_s: float, alpha_s: float
) -> tuple[float, ...]:
    """The approximate time of each round: that of its busiest port, and `alpha_s` for the round itself."""
    loads: dict[tuple[int, int, bool], int] = defaultdict(int)
    for rank, program in enumerate(rounds.programs):
        for op in program:
            if op.kind is not Kind.COPY:
                loads[op.round, rank, op.kind is Kind.SEND] += op.end - op.begin
    longest = [0.0] * rounds.nrounds
    for (number, rank, _), chunks in loads.items():
        longest[number] = max(longest[number], chunks / shares[rank])
    return tuple(chunks * nbytes / rounds.nchunks / host_bytes_s + alpha_s for chunks in longest)
