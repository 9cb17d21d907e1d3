"""Lowering: the fast form against a plain one, and what it refuses."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2ccl_core.errors import ScheduleError
from r2ccl_core.lower import OWN_IS_INPUT, REDUCE, SEND_FROM_INPUT, connections_of, lower
from r2ccl_core.schedule import NOBODY, Schedule, chunk_offsets, lane
from r2ccl_core.schedules import ring


def tables(schedule: Schedule, rank: int) -> tuple[dict[Any, int], dict[Any, int]]:
    sends, receives = connections_of(schedule, rank)
    return {c: i for i, c in enumerate(sends)}, {c: i for i, c in enumerate(receives)}


def plain(schedule: Schedule, rank: int, count: int) -> list[list[tuple[int, ...]]]:
    """Element by element: who touched it last, and was it written."""
    sends, receives = tables(schedule, rank)
    offsets = chunk_offsets(schedule.nchunks, count).tolist()
    lanes = []
    for index, steps in enumerate(schedule.programs[rank]):
        touched, written = [-1] * count, [False] * count
        rows: list[tuple[int, ...]] = []
        for recv, send, begin, end, reduce in steps.tolist():
            low, high = offsets[begin], offsets[end]
            if low == high:
                continue
            fresh = not any(written[low:high])
            flags = REDUCE if reduce else 0
            if fresh and (reduce or recv == NOBODY):
                flags |= OWN_IS_INPUT
            if fresh and recv == NOBODY and send != NOBODY:
                flags |= SEND_FROM_INPUT
            source = receives[(recv, rank, index)] if recv != NOBODY else -1
            target = sends[(rank, send, index)] if send != NOBODY else -1
            rows.append((source, target, low, high, flags, max(touched[low:high])))
            for element in range(low, high):
                touched[element] = len(rows) - 1
                written[element] = written[element] or recv != NOBODY or send == NOBODY
        lanes.append(rows)
    return lanes


@given(
    nranks=st.integers(1, 6),
    slices=st.integers(1, 4),
    lanes=st.integers(1, 3),
    count=st.integers(0, 200),
    data=st.data(),
)
def test_lower_agrees_with_the_plain_form(nranks: int, slices: int, lanes: int, count: int, data: Any) -> None:
    schedule = ring.all_reduce(nranks, slices=slices, lanes=lanes)
    rank = data.draw(st.integers(0, nranks - 1))
    lowered = lower(schedule, rank, count, *tables(schedule, rank))
    assert [list(map(tuple, rows.tolist())) for rows in lowered] == plain(schedule, rank, count)


def test_both_ends_of_every_message_agree_on_its_size() -> None:
    schedule = ring.all_reduce(4, slices=3, lanes=2)
    for count in (0, 1, 5, 23, 24, 1000):
        sizes: dict[Any, list[int]] = {}
        for rank in range(4):
            sends, receives = connections_of(schedule, rank)
            for rows in lower(schedule, rank, count, *tables(schedule, rank)):
                for recv, send, low, high, _, _ in rows.tolist():
                    if send >= 0:
                        sizes.setdefault(("sent", sends[send]), []).append(high - low)
                    if recv >= 0:
                        sizes.setdefault(("received", receives[recv]), []).append(high - low)
        for connection in schedule.connections():
            assert sizes.get(("sent", connection)) == sizes.get(("received", connection))


def test_a_step_that_mixes_input_and_result_is_refused() -> None:
    programs = ((lane([(1, NOBODY, 0, 1, 0), (NOBODY, 1, 0, 2, 0)]),), (lane([(NOBODY, 0, 0, 1, 0)]),))
    schedule = Schedule("mixed", "all_reduce", 2, 2, programs)
    with pytest.raises(ScheduleError, match="mixes input and result"):
        lower(schedule, 0, 10, {(0, 1, 0): 0}, {(1, 0, 0): 0})


def test_lowered_rows_are_what_the_native_executor_takes() -> None:
    schedule = ring.all_reduce(2)
    rows = lower(schedule, 0, 10, *tables(schedule, 0))[0]
    assert rows.dtype == np.int64 and rows.shape[1] == 6 and rows.flags.c_contiguous
