"""From a schedule to what the executor runs: one rank's lanes as flat arrays of element ranges.

Pure. A lowered step is a row ``(recv, send, begin, end, flags, barrier)`` of int64: indices into the tables of
receiving and sending connections (or -1), an element range, flags, and the last earlier step of the lane that
touches an overlapping range (or -1). The executor may overwrite a range only when its barrier step is done and
everything sent up to it is acknowledged.
"""

from collections.abc import Mapping

import numpy as np

from r2ccl_core.errors import ScheduleError
from r2ccl_core.schedule import NOBODY, Lane, Schedule, chunk_offsets

REDUCE = 1
OWN_IS_INPUT = 2
SEND_FROM_INPUT = 4

Connection = tuple[int, int, int]
"""Source rank, destination rank, lane."""


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
) -> list[np.ndarray]:
    """The lanes of `rank` for a vector of `count` elements, one ``(steps, 6)`` array each.

    Steps whose range is empty (fewer elements than chunks) are dropped; both ends of a message see the same
    range, so they drop the same steps. Raises `ScheduleError` where a step mixes chunks that are still input
    with chunks that were written: the executor reads a range from one place.
    """
    offsets = chunk_offsets(schedule.nchunks, count)
    return [
        _lower_lane(schedule, rank, index, steps, offsets, send_index, recv_index)
        for index, steps in enumerate(schedule.programs[rank])
    ]


def _lower_lane(
    schedule: Schedule,
    rank: int,
    index: int,
    steps: Lane,
    offsets: np.ndarray,
    send_index: Mapping[Connection, int],
    recv_index: Mapping[Connection, int],
) -> np.ndarray:
    last_touch = np.full(schedule.nchunks, -1, dtype=np.int64)
    written = np.zeros(schedule.nchunks, dtype=bool)
    rows: list[tuple[int, int, int, int, int, int]] = []
    for recv, send, begin, end, reduce in steps.tolist():
        low, high = int(offsets[begin]), int(offsets[end])
        if low == high:
            continue
        flags = _flags(schedule, rank, recv, send, reduce, written[begin:end])
        source = recv_index[(recv, rank, index)] if recv != NOBODY else NOBODY
        target = send_index[(rank, send, index)] if send != NOBODY else NOBODY
        rows.append((source, target, low, high, flags, int(last_touch[begin:end].max())))
        last_touch[begin:end] = len(rows) - 1
        if recv != NOBODY or send == NOBODY:
            written[begin:end] = True
    return np.array(rows, dtype=np.int64).reshape(-1, 6)


def _flags(schedule: Schedule, rank: int, recv: int, send: int, reduce: int, written: np.ndarray) -> int:
    reads_own = bool(reduce) or recv == NOBODY
    if reads_own and written.any() and not written.all():
        raise ScheduleError(
            f"{schedule.name}: a step of rank {rank} mixes input and result; split it into two steps"
        )
    fresh = not written.any()
    flags = REDUCE if reduce else 0
    if reads_own and fresh:
        flags |= OWN_IS_INPUT
    if recv == NOBODY and send != NOBODY and fresh:
        flags |= SEND_FROM_INPUT
    return flags
