"""The common form of all schedules: per rank and lane, an ordered list of steps.

An algorithm is written once in this form; the simulator times it, `verify` proves it, the CPU runtime and the GPU
executor run it.

The data vector is cut into `nchunks` nearly equal chunks (chunk ``i`` of ``n`` elements is ``[i*n//nchunks,
(i+1)*n//nchunks)``), and every step names a range of chunks; `collective.py` says which chunks a rank brings and wants.
A step does, in this order:

    1. if ``recv >= 0``: receive the range from rank ``recv``; with ``reduce`` set the incoming values are
       combined with this rank's own, otherwise they replace it;
    2. if ``send >= 0``: send the range, as it is now, to rank ``send``.

So the four classic steps and their fusions have one form: send, receive, receive-reduce, receive-send,
receive-reduce-send; with neither peer the step copies the rank's own input into its result. A range's own value is the
rank's input until a step writes it. Whatever a rank must end with is written by some step: a receive, or a copy.

The steps of a lane run in order. Lanes of a rank run side by side, and no two lanes of a rank may touch the same chunk.
The message that rank ``a`` sends to rank ``b`` in lane ``c`` is received by ``b`` in its own lane ``c``; messages of
one (a, b, c) arrive in the order in which they were sent (FIFO).

Lanes of one group in ``abreast`` are planned to advance together: they share every port evenly. An executor whose ports
are not shared fairly should hold back the lanes that get ahead.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from r2ccl_core.errors import ScheduleError

NOBODY = -1

SLOTS = 4
"""Messages of a connection that its receiver accepts without advancing; the runtime can run whatever `verify` proves
with this many (``kSlots`` in collective/step_machine.h)."""

STEP = np.dtype([("recv", np.int32), ("send", np.int32), ("begin", np.int32), ("end", np.int32), ("reduce", np.int32)])
"""One step: peers to receive from and send to (or `NOBODY`), chunk range ``[begin, end)``, reduce flag."""

Lane = np.ndarray
Program = tuple[Lane, ...]


def lane(steps: Iterable[tuple[int, int, int, int, int]]) -> Lane:
    """A lane from ``(recv, send, begin, end, reduce)`` tuples."""
    return np.array(list(steps), dtype=STEP)


@dataclass(frozen=True)
class Schedule:
    """`programs[rank][lane]` is an array of `STEP`; every rank has the same number of lanes."""

    name: str
    collective: str
    nranks: int
    nchunks: int
    programs: tuple[Program, ...]
    root: int = 0
    abreast: tuple[int, ...] = ()
    """The group of each lane; empty: each lane by itself."""
    nic_shares: Mapping[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)
    """For pairs of ranks, sender first: the part of the bytes between them that each NIC of the sender's host is to
    carry. The transport decides for all other pairs."""

    def __post_init__(self) -> None:
        if len(self.programs) != self.nranks:
            raise ScheduleError(f"{self.name}: {len(self.programs)} programs for {self.nranks} ranks")
        if len({len(p) for p in self.programs}) > 1:
            raise ScheduleError(f"{self.name}: ranks have different numbers of lanes")
        if self.abreast and len(self.abreast) != self.nlanes:
            raise ScheduleError(f"{self.name}: {len(self.abreast)} lanes have a group, of {self.nlanes}")
        if not set(self.abreast) <= set(range(self.nlanes)):
            raise ScheduleError(f"{self.name}: groups of lanes are {self.abreast}, not numbers below {self.nlanes}")

    @property
    def nlanes(self) -> int:
        """Lanes per rank."""
        return len(self.programs[0]) if self.programs else 0

    def followed(self, after: Callable[[int, int], Lane]) -> "Schedule":
        """This schedule with the steps ``after(rank, lane)`` appended to every lane."""
        programs = tuple(
            tuple(np.concatenate([steps, after(rank, index)]) for index, steps in enumerate(program))
            for rank, program in enumerate(self.programs)
        )
        return replace(self, programs=programs)

    def connections(self) -> Iterator[tuple[int, int, int]]:
        """Every ``(source, destination, lane)`` over which a message flows, in a fixed order."""
        for rank, program in enumerate(self.programs):
            for index, steps in enumerate(program):
                for peer in np.unique(steps["send"][steps["send"] != NOBODY]):
                    yield rank, int(peer), index


def copied(name: str, collective: str) -> Schedule:
    """The schedule of one rank alone: its input is its result."""
    return Schedule(name, collective, 1, 1, ((lane([(NOBODY, NOBODY, 0, 1, 0)]),),))


def relabelled(schedule: Schedule, order: Sequence[int]) -> Schedule:
    """The same schedule with rank ``order[i]`` in the place of rank ``i``, and so with its block in an all_gather or a
    reduce_scatter.

    In sendrecv and alltoall every message has its ranks, so their order is no choice.
    """
    if sorted(order) != list(range(schedule.nranks)):
        raise ScheduleError(f"{schedule.name}: {list(order)} is no order of {schedule.nranks} ranks")
    if schedule.collective in ("sendrecv", "alltoall"):
        raise ScheduleError(f"{schedule.name}: the order of the ranks is part of what a {schedule.collective} does")
    names = np.array([*order, NOBODY], dtype=np.int32)  # NOBODY is -1, the last entry
    blocks = names[:-1] if schedule.collective in ("all_gather", "reduce_scatter") else None
    programs: list[Program] = [()] * schedule.nranks
    for place, program in enumerate(schedule.programs):
        programs[order[place]] = tuple(_renamed(schedule, steps, names, blocks) for steps in program)
    root = order[schedule.root] if schedule.collective in ("broadcast", "reduce") else schedule.root
    return replace(schedule, programs=tuple(programs), root=root, nic_shares={})


def _renamed(schedule: Schedule, steps: Lane, names: np.ndarray, blocks: np.ndarray | None) -> Lane:
    steps = steps.copy()
    steps["recv"], steps["send"] = names[steps["recv"]], names[steps["send"]]
    if blocks is None or not len(steps):
        return steps
    size, rest = divmod(schedule.nchunks, schedule.nranks)
    block = steps["begin"] // max(1, size)
    if rest or (block != (steps["end"] - 1) // max(1, size)).any():
        raise ScheduleError(f"{schedule.name}: a step or a chunk belongs to several ranks' blocks")
    moved = (blocks[block] - block) * size
    steps["begin"] += moved
    steps["end"] += moved
    return steps


def chunk_offsets(nchunks: int, count: int) -> np.ndarray:
    """Element offset of each chunk boundary: ``nchunks + 1`` values from 0 to ``count``."""
    return np.arange(nchunks + 1, dtype=np.int64) * count // nchunks
