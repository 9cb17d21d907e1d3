"""Lowering: against an obvious reference, and by running what was lowered in a tiny executor."""

from collections import deque

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from r2ccl_core.model.schedule import NOBODY, Schedule, chunk_offsets, lane
from r2ccl_core.planning.lower import (
    OWN_IS_INPUT,
    REDUCE,
    SEND_FROM_INPUT,
    Connection,
    connections_of,
    lower,
    lower_lane,
)
from r2ccl_core.schedules import broadcast, forest, optcc, owner_skewed_ring, r2cc_all_reduce, ring, tree

CHUNKS = 7
Steps = list[tuple[int, int, int, int, int]]

SCHEDULES = {
    "ring": ring.all_reduce(3, slices=2, lanes=2),
    "ring of one": ring.all_reduce(1, slices=3),
    "ring of five": ring.all_reduce(5),
    "tree": tree.all_reduce(5, slices=3),
    "r2cc": r2cc_all_reduce.all_reduce([1.0, 1.0, 0.67], pipeline=4, chunks=60),
    "forest": forest.all_reduce([1.0, 1.0, 1.0, 0.5], chunks=8),
    "optcc": optcc.all_reduce([1.0, 1.0, 1.0, 0.5], segments=8),
    "owner-skewed ring": owner_skewed_ring.all_reduce([1.0, 1.0, 0.5], lanes=2, slices=4),
    "broadcast": broadcast.broadcast(4, 2, slices=3),
    "reduce": broadcast.reduce(4, 1, slices=3),
}


def lowered(schedule: Schedule, rank: int, count: int) -> list[np.ndarray]:
    sends, receives = connections_of(schedule, rank)
    return lower(
        schedule,
        rank,
        count,
        {connection: index for index, connection in enumerate(sends)},
        {connection: index for index, connection in enumerate(receives)},
    )


@st.composite
def lanes(draw: st.DrawFn) -> Steps:
    peer = st.integers(NOBODY, 2)
    step = st.tuples(peer, peer, st.integers(0, CHUNKS - 1), st.integers(1, CHUNKS), st.booleans())
    return [
        (recv, send, begin, max(end, begin + 1), int(reduce and recv != NOBODY))
        for recv, send, begin, end, reduce in draw(st.lists(step, max_size=12))
    ]


def reference(steps: Steps, offsets: np.ndarray) -> list[list[int]]:
    """Chunk by chunk, without any array: rows as `lower_lane` gives them, connections named by peer."""
    rows: list[list[int]] = []
    written: set[int] = set()

    def full(begin: int, end: int) -> list[int]:
        return [chunk for chunk in range(begin, end) if offsets[chunk] < offsets[chunk + 1]]

    def add(recv: int, send: int, begin: int, end: int, reduce: int) -> None:
        low, high = int(offsets[begin]), int(offsets[end])
        overlapping = [i for i, row in enumerate(rows) if row[2] < high and low < row[3]]
        fresh = not written & set(full(begin, end))
        own = OWN_IS_INPUT if fresh and (reduce or recv < 0) else 0
        sent = SEND_FROM_INPUT if fresh and recv < 0 <= send else 0
        rows.append([recv, send, low, high, REDUCE * reduce + own + sent, max(overlapping, default=-1)])
        if recv >= 0 or send < 0:
            written.update(full(begin, end))

    for recv, send, begin, end, reduce in steps:
        if offsets[begin] == offsets[end]:
            continue
        present = full(begin, end)
        unwritten = [chunk for chunk in present if chunk not in written]
        if (reduce or recv < 0) and 0 < len(unwritten) < len(present):
            runs: list[list[int]] = []
            for before, chunk in zip([None, *present], present, strict=False):
                if chunk in unwritten:
                    runs.append([chunk]) if before not in unwritten else runs[-1].append(chunk)
            for run in runs:
                add(NOBODY, NOBODY, run[0], run[-1] + 1, 0)
        add(recv, send, begin, end, reduce)
    return rows


@settings(max_examples=400)
@given(steps=lanes(), count=st.integers(0, 40))
@example(steps=[(0, 0, 0, 1, 0), (0, 0, 0, 5, 0), (0, 0, 4, 7, 0)], count=2)
def test_a_lane_is_lowered_as_the_reference_says(steps: Steps, count: int) -> None:
    peers = np.array([0, 1, 2, NOBODY])
    offsets = chunk_offsets(CHUNKS, count)
    assert lower_lane(lane(steps), offsets, peers, peers).tolist() == reference(steps, offsets)


@pytest.mark.parametrize("count", [0, 1, 5, 23, 24, 1000])
@pytest.mark.parametrize("name", SCHEDULES)
def test_both_ends_of_every_message_agree_on_its_size(name: str, count: int) -> None:
    schedule = SCHEDULES[name]
    sent: dict[Connection, list[int]] = {connection: [] for connection in schedule.connections()}
    received: dict[Connection, list[int]] = {connection: [] for connection in schedule.connections()}
    for rank in range(schedule.nranks):
        sends, receives = connections_of(schedule, rank)
        for recv, send, low, high, _, _ in np.concatenate(lowered(schedule, rank, count)).tolist():
            assert low < high
            if send >= 0:
                sent[sends[send]].append(high - low)
            if recv >= 0:
                received[receives[recv]].append(high - low)
    assert sent == received


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 61, 500])
@pytest.mark.parametrize("name", SCHEDULES)
def test_what_was_lowered_computes_the_collective(name: str, count: int, in_place: bool) -> None:
    schedule = SCHEDULES[name]
    inputs = [np.random.default_rng(rank).integers(1, 100, count) for rank in range(schedule.nranks)]
    outputs = run(schedule, [data.copy() for data in inputs], in_place)
    right = inputs[schedule.root] if schedule.collective == "broadcast" else np.sum(inputs, axis=0)
    for rank in [schedule.root] if schedule.collective == "reduce" else range(schedule.nranks):
        np.testing.assert_array_equal(outputs[rank], right)


def run(schedule: Schedule, inputs: list[np.ndarray], in_place: bool) -> list[np.ndarray]:
    """Runs all ranks' lowered lanes turn by turn, with copying queues for connections."""
    outputs = inputs if in_place else [np.full_like(data, -1) for data in inputs]
    queues: dict[Connection, deque[np.ndarray]] = {connection: deque() for connection in schedule.connections()}
    lanes = [
        (rank, *connections_of(schedule, rank), deque(rows.tolist()))
        for rank in range(schedule.nranks)
        for rows in lowered(schedule, rank, len(inputs[rank]))
    ]
    while left := sum(len(rows) for *_, rows in lanes):
        for rank, sends, receives, rows in lanes:
            while rows and (rows[0][0] < 0 or queues[receives[rows[0][0]]]):
                recv, send, begin, end, flags, _ = rows.popleft()
                span = slice(begin, end)
                own = (inputs if flags & OWN_IS_INPUT else outputs)[rank][span]
                if recv >= 0:
                    message = queues[receives[recv]].popleft()
                    outputs[rank][span] = own + message if flags & REDUCE else message
                elif send < 0:
                    outputs[rank][span] = own
                if send >= 0:
                    source = (inputs if flags & SEND_FROM_INPUT else outputs)[rank]
                    queues[sends[send]].append(source[span].copy())
        assert sum(len(rows) for *_, rows in lanes) < left, "deadlock"
    assert not any(queues.values())
    return outputs


def test_lowered_rows_are_what_the_native_executor_takes() -> None:
    (rows,) = lowered(ring.all_reduce(2), 0, 10)
    assert rows.dtype == np.int64 and rows.shape[1] == 6 and rows.flags.c_contiguous
