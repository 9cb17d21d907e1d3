"""Lowers a schedule to the executor's form: one rank's lanes as flat arrays of element ranges.

Pure. A lowered step is a row ``(recv, send, begin, end, flags, barrier)`` of int64: indices into the tables of
receiving and sending connections (or -1), an element range, flags, and the last earlier step of the lane that touches
an overlapping range (or -1). The executor may overwrite a range only when its barrier step is done and everything sent
up to it is acknowledged.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from r2ccl_core.model.schedule import NOBODY, Lane, Schedule, chunk_offsets

REDUCE = 1
OWN_IS_INPUT = 2
SEND_FROM_INPUT = 4

Connection = tuple[int, int, int]
"""Source rank, destination rank, lane."""

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def connections_of(schedule: Schedule, rank: int) -> tuple[list[Connection], list[Connection]]:
    """The connections over which `rank` sends and those over which it receives, in the schedule's order."""
    sends, receives = [], []
    for connection in schedule.connections():
        if connection[0] == rank:
            sends.append(connection)
        if connection[1] == rank:
            receives.append(connection)
    return sends, receives


def lower(
    schedule: Schedule,
    rank: int,
    count: int,
    send_index: Mapping[Connection, int],
    recv_index: Mapping[Connection, int],
) -> list[Ints]:
    """The lanes of `rank` for arrays of `count` elements, one ``(steps, 6)`` array each.

    The arrays hold the schedule's vector. In sendrecv and alltoall they hold only the blocks that the rank brings (the
    input) and wants (the result), by the number of the other rank; the caller copies the block that it keeps.

    Steps with an empty range (fewer elements than chunks) are dropped; both ends of a message see the same range, so
    they drop the same steps.
    """
    blocks = schedule.nranks if schedule.collective in ("sendrecv", "alltoall") else 1
    offsets = chunk_offsets(schedule.nchunks, count * blocks)
    lanes = []
    for index, steps in enumerate(schedule.programs[rank]):
        senders = _table(schedule.nranks, {c[1]: i for c, i in send_index.items() if c[0] == rank and c[2] == index})
        receivers = _table(schedule.nranks, {c[0]: i for c, i in recv_index.items() if c[1] == rank and c[2] == index})
        rows = lower_lane(steps, offsets, senders, receivers)
        lanes.append(_in_own_blocks(rows, schedule, count) if blocks > 1 else rows)
    return lanes


def _in_own_blocks(rows: Ints, schedule: Schedule, count: int) -> Ints:
    """The rows with their places in the arrays of a rank that stores only its own blocks; its copies are made empty."""
    moves = (rows[:, 0] != NOBODY) | (rows[:, 1] != NOBODY)
    width = np.where(moves, rows[:, 3] - rows[:, 2], 0)
    if schedule.collective == "alltoall":
        block = max(1, count // schedule.nranks)
        source, target = np.divmod(rows[:, 2] // block, schedule.nranks)
        other = np.where(rows[:, 0] != NOBODY, source, target)
        begin = other * block + rows[:, 2] % block
    else:
        begin = rows[:, 2] % max(1, count)
    rows[:, 2] = np.where(moves, begin, 0)
    rows[:, 3] = rows[:, 2] + width
    return rows


def lower_lane(steps: Lane, offsets: Ints, senders: Ints, receivers: Ints) -> Ints:
    """One lane; `senders` and `receivers` give a peer's connection, by rank, with -1 at the end for nobody."""
    steps, offsets = _without_empty_chunks(steps, offsets)
    if not len(steps):
        return np.empty((0, 6), dtype=np.int64)
    touches = _Touches(steps)
    if touches.mixed().any():
        steps = _split_mixed(steps)
        touches = _Touches(steps)
    rows = np.empty((len(steps), 6), dtype=np.int64)
    rows[:, 0], rows[:, 1] = receivers[steps["recv"]], senders[steps["send"]]
    rows[:, 2], rows[:, 3] = offsets[steps["begin"]], offsets[steps["end"]]
    rows[:, 4], rows[:, 5] = touches.flags(), touches.barriers()
    return rows


def _without_empty_chunks(steps: Lane, offsets: Ints) -> tuple[Lane, Ints]:
    """The same lane over the chunks that hold elements: an empty one overlaps nothing and belongs to nobody."""
    bounds, at = np.unique(offsets, return_inverse=True)
    kept = steps.copy()
    kept["begin"], kept["end"] = at[steps["begin"]], at[steps["end"]]
    return kept[kept["begin"] < kept["end"]], bounds


def _table(nranks: int, connection: Mapping[int, int]) -> Ints:
    table = np.full(nranks + 1, NOBODY, dtype=np.int64)
    table[list(connection)] = list(connection.values())
    return table


def _writes(steps: Lane) -> Bools:
    written: Bools = (steps["recv"] != NOBODY) | (steps["send"] == NOBODY)
    return written


def _reads_own(steps: Lane) -> Bools:
    reads: Bools = (steps["reduce"] != 0) | (steps["recv"] == NOBODY)
    return reads


class _Touches:
    """Which step touches which atom, and what happened to the atom before.

    Atoms are the pieces into which the bounds of all steps cut the chunks. Every (step, atom) pair is one entry; sorted
    by atom and then by step, an entry's neighbour is the atom's previous touch.
    """

    def __init__(self, steps: Lane) -> None:
        self._steps = steps
        bounds = np.unique(np.concatenate([steps["begin"], steps["end"]]))
        first = np.searchsorted(bounds, steps["begin"])
        widths = np.searchsorted(bounds, steps["end"]) - first
        self._start = np.cumsum(widths) - widths
        self._step = np.repeat(np.arange(len(steps)), widths)
        atom = np.arange(len(self._step)) + np.repeat(first - self._start, widths)
        self._order = np.argsort(atom, kind="stable")
        ordered = atom[self._order]
        self._opens = np.ones(len(ordered), dtype=bool)  # first entry of its atom
        self._opens[1:] = ordered[1:] != ordered[:-1]
        self._written = self._written_before()

    def barriers(self) -> Ints:
        """Per step, the last earlier step that touches one of its atoms, or -1."""
        previous = np.empty(len(self._order), dtype=np.int64)
        steps = self._step[self._order]
        previous[self._order] = np.where(self._opens, -1, np.roll(steps, 1))
        barriers: Ints = np.maximum.reduceat(previous, self._start).astype(np.int64)
        return barriers

    def flags(self) -> Ints:
        """Per step, the executor's flags."""
        steps = self._steps
        fresh = ~np.logical_or.reduceat(self._written, self._start)
        sends_input = fresh & (steps["recv"] == NOBODY) & (steps["send"] != NOBODY)
        own_is_input = fresh & _reads_own(steps)
        flags: Ints = REDUCE * (steps["reduce"] != 0) + OWN_IS_INPUT * own_is_input + SEND_FROM_INPUT * sends_input
        return flags

    def mixed(self) -> Bools:
        """Per step, whether the own values it reads lie partly in the input and partly in the result."""
        some = np.logical_or.reduceat(self._written, self._start)
        every = np.logical_and.reduceat(self._written, self._start)
        mixed: Bools = _reads_own(self._steps) & some & ~every
        return mixed

    def _written_before(self) -> Bools:
        """Per entry, whether an earlier step wrote the atom."""
        writes = _writes(self._steps)[self._step[self._order]].astype(np.int64)
        before = np.cumsum(writes) - writes
        at_opening = before[np.flatnonzero(self._opens)][np.cumsum(self._opens) - 1]
        written = np.empty(len(before), dtype=bool)
        written[self._order] = before > at_opening
        return written


def _split_mixed(steps: Lane) -> Lane:
    """The same lane, with a copy of the part that is still input in front of every step that would read from both
    places."""
    written = np.zeros(int(steps["end"].max()), dtype=bool)
    result: list[tuple[int, int, int, int, int]] = []
    for step, writes, reads in zip(steps.tolist(), _writes(steps), _reads_own(steps), strict=True):
        begin, end = step[2], step[3]
        span = written[begin:end]
        if reads and span.any() and not span.all():
            result.extend((NOBODY, NOBODY, begin + low, begin + high, 0) for low, high in _gaps(span))
            span[:] = True
        result.append(step)
        span |= writes
    return np.array(result, dtype=steps.dtype)


def _gaps(written: Bools) -> Iterator[tuple[int, int]]:
    """The runs of False."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], written, [True]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
