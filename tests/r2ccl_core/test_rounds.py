"""Rounds on NCCL's rules: run with arbitrary delays they end, with NumPy's result, whatever the order of events."""

import random
from collections import deque
from itertools import groupby
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core.errors import ScheduleError
from r2ccl_core.gpu.rounds import Kind, Op, Rounds, in_rounds, rounds_s
from r2ccl_core.gpu.segments import in_order_of_use
from r2ccl_core.model.schedule import NOBODY, Schedule, chunk_offsets, lane
from r2ccl_core.schedules import broadcast, forest, leaf_ring, optcc, owner_skewed_ring, r2cc_all_reduce, ring, tree

SCHEDULES = {
    "one rank": ring.all_reduce(1),
    "ring": ring.all_reduce(3, slices=2, lanes=3),
    "tree": tree.all_reduce(5, slices=3),
    "r2cc": r2cc_all_reduce.all_reduce([1.0, 1.0, 0.67], pipeline=4, chunks=60),
    "forest": forest.all_reduce([1.0, 1.0, 1.0, 0.75], trees=10, chunks=4),
    "deep forest": forest.all_reduce([1.0, 0.5, 1.0, 0.5, 1.0, 1.0, 0.25], trees=5, chunks=6),
    "optcc": optcc.all_reduce([1.0, 1.0, 1.0, 0.5], segments=6),
    "leaf-ring": leaf_ring.all_reduce([1.0, 1.0, 1.0, 0.5], segments=6),
    "owner-skewed ring": owner_skewed_ring.all_reduce([1.0, 1.0, 0.5], lanes=4, slices=4),
}


class Machine:
    """Ranks that run their groups in turn. What one rank sends another in a group is one message, and comes over when
    both are in the groups that have it; which of several possible events comes next is drawn."""

    def __init__(self, rounds: Rounds, inputs: list[np.ndarray], in_place: bool, chance: random.Random) -> None:
        self.offsets = chunk_offsets(rounds.nchunks, len(inputs[0]))
        self.inputs = inputs
        self.outputs = inputs if in_place else [np.full_like(one, -99) for one in inputs]
        self.chance = chance
        self.groups = [
            deque(tuple(ops) for _, ops in groupby(program, attrgetter("round"))) for program in rounds.programs
        ]
        self.pending: dict[int, list[Op]] = {}
        self.bounce: dict[int, dict[Op, np.ndarray]] = {}
        for rank in range(rounds.nranks):
            self.begin(rank)

    def begin(self, rank: int) -> None:
        if self.groups[rank]:
            self.pending[rank] = [op for op in self.groups[rank][0] if op.kind is not Kind.COPY]
            self.bounce[rank] = {}
        else:
            self.pending.pop(rank, None)

    def possible(self) -> list[tuple[int, int | None]]:
        """Ranks whose group can end (with None), and senders with the receivers that they can serve."""
        found: list[tuple[int, int | None]] = []
        for rank, ops in self.pending.items():
            if not ops:
                found.append((rank, None))
            for peer in {op.peer for op in ops if op.kind is Kind.SEND}:
                if any(op.peer == rank and op.kind is not Kind.SEND for op in self.pending.get(peer, ())):
                    found.append((rank, peer))
        return found

    def run(self) -> None:
        while any(self.groups):
            events = self.possible()
            assert events, "deadlock"
            source, target = self.chance.choice(events)
            if target is None:
                self.finish(source)
            else:
                self.transfer(source, target)

    def transfer(self, source: int, target: int) -> None:
        sent = [op for op in self.pending[source] if op.kind is Kind.SEND and op.peer == target]
        taken = [op for op in self.pending[target] if op.kind is not Kind.SEND and op.peer == source]
        assert [(op.begin, op.end) for op in sent] == [(op.begin, op.end) for op in taken]
        for op, came in zip(sent, taken, strict=True):
            values = (self.inputs if op.from_input else self.outputs)[source][self.span(op)].copy()
            if came.kind is Kind.RECEIVE and len(taken) == 1:
                self.outputs[target][self.span(came)] = values
            else:
                self.bounce[target][came] = values
        self.pending[source] = [op for op in self.pending[source] if op not in sent]
        self.pending[target] = [op for op in self.pending[target] if op not in taken]

    def finish(self, rank: int) -> None:
        for op in self.groups[rank].popleft():
            place = self.outputs[rank][self.span(op)]
            own = (self.inputs if op.from_input else self.outputs)[rank][self.span(op)]
            if op.kind is Kind.COPY:
                place[:] = own
            elif op in self.bounce[rank]:
                place[:] = self.bounce[rank][op] + (own if op.kind is Kind.RECEIVE_REDUCE else 0)
        self.begin(rank)

    def span(self, op: Op) -> slice:
        return slice(int(self.offsets[op.begin]), int(self.offsets[op.end]))


def check(schedule: Schedule, count: int, in_place: bool, seed: int, by_use: bool = False) -> None:
    chance = random.Random(seed)
    inputs = [np.array([chance.randrange(50) for _ in range(count)]) for _ in range(schedule.nranks)]
    expected = np.sum(inputs, axis=0)
    rounds = in_rounds(schedule)
    machine = Machine(in_order_of_use(rounds) if by_use else rounds, inputs, in_place, chance)
    machine.run()
    for result in machine.outputs:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("in_place", [False, True])
def test_any_order_of_events_ends_with_the_sum(name: str, in_place: bool) -> None:
    schedule = SCHEDULES[name]
    for seed in range(9):
        check(schedule, schedule.nchunks + 5, in_place, seed, by_use=seed % 2 == 1)


@settings(max_examples=40)
@given(
    shares=st.lists(st.sampled_from([1.0, 0.75, 0.5, 0.25]), min_size=3, max_size=6),
    trees=st.integers(1, 6),
    chunks=st.integers(1, 4),
    fan=st.sampled_from([2, 3, 4]),
    missing=st.integers(0, 3),
    in_place=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_forests(
    shares: list[float], trees: int, chunks: int, fan: int, missing: int, in_place: bool, seed: int
) -> None:
    """Also where there are fewer elements than chunks: an empty range is a message of no bytes at both its ends."""
    schedule = forest.all_reduce(shares, trees=trees, chunks=chunks, fan=fan)
    check(schedule, max(1, schedule.nchunks - missing), in_place, seed)


def test_what_is_out_of_step_is_found() -> None:
    """The machine is no rubber stamp: one rank that issues two rounds the other way round is caught."""
    rounds = in_rounds(ring.all_reduce(3, slices=2))
    program = rounds.programs[0]
    late = [op for op in program if op.round == 1]
    early = [op for op in program if op.round == 0]
    swapped = (*late, *early, *(op for op in program if op.round > 1))
    broken = Rounds("broken", 3, rounds.nchunks, (swapped, *rounds.programs[1:]))
    inputs = [np.arange(12) for _ in range(3)]
    with pytest.raises(AssertionError):
        Machine(broken, inputs, False, random.Random(1)).run()


def test_a_pipelined_forest_takes_as_many_rounds_as_chunks_pass_each_tree() -> None:
    """One more for the way down: sums of several children are taken in one round."""
    rounds = in_rounds(forest.all_reduce([1.0, 1.0, 1.0, 0.75], trees=10, chunks=16))
    assert rounds.nrounds == 17
    assert sum(rounds_s(rounds, (1.0, 1.0, 1.0, 0.75), 4 << 20, 1e6, 0.0)) < 1.15 * 1.5 * (4 << 20) / 1e6


def test_only_what_can_run_becomes_rounds() -> None:
    with pytest.raises(ScheduleError, match="all_reduce"):
        in_rounds(broadcast.broadcast(3, 0))
    waiting = Schedule(
        "waiting", "all_reduce", 2, 1, ((lane([(1, NOBODY, 0, 1, 1)] * 2),), (lane([(NOBODY, 0, 0, 1, 0)]),))
    )
    with pytest.raises(ScheduleError, match="nobody sends"):
        in_rounds(waiting)
    swap = lane([(NOBODY, 1, 0, 1, 0), (1, NOBODY, 0, 1, 0)])
    other = lane([(NOBODY, 0, 0, 1, 0), (0, NOBODY, 0, 1, 0)])
    with pytest.raises(ScheduleError, match="circle"):
        in_rounds(Schedule("swap", "all_reduce", 2, 1, ((swap,), (other,))))
