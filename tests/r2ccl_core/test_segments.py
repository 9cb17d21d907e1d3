"""Segments: what may be reduced and gathered while others are on the network, and the time that is predicted."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core.gpu.rounds import Rounds, in_rounds
from r2ccl_core.gpu.segments import cuts, in_order_of_use, predicted_s
from r2ccl_core.schedules import forest, ring

ROUNDS = in_order_of_use(in_rounds(forest.all_reduce([1.0, 1.0, 1.0, 0.75], trees=10, chunks=16)))


def touched(rounds: Rounds) -> list[set[int]]:
    """The chunks of each round."""
    found: list[set[int]] = [set() for _ in range(rounds.nrounds)]
    for program in rounds.programs:
        for op in program:
            found[op.round].update(range(op.begin, op.end))
    return found


@settings(max_examples=30)
@given(
    shares=st.lists(st.sampled_from([1.0, 0.75, 0.5]), min_size=3, max_size=6),
    trees=st.integers(1, 6),
    chunks=st.integers(1, 9),
    most=st.integers(1, 16),
)
def test_rounds_begin_chunks_in_their_order_and_a_segment_with_those_of_a_round(
    shares: list[float], trees: int, chunks: int, most: int
) -> None:
    rounds = in_order_of_use(in_rounds(forest.all_reduce(shares, trees=trees, chunks=chunks)))
    used: set[int] = set()
    begins = [0]  # the first chunk that a round is the first to touch
    for chunks_of_round in touched(rounds):
        used |= chunks_of_round
        assert used == set(range(len(used)))
        begins.append(len(used))
    assert len(used) == rounds.nchunks
    for segments in cuts(rounds, most):
        assert len(segments) <= most and segments[-1] == rounds.nchunks
        assert all(end in begins for end in segments)
        assert all(before < after for before, after in pairwise((0, *segments)))


def test_vectors_are_cut_into_powers_of_two_as_far_as_rounds_begin_chunks() -> None:
    assert [len(segments) for segments in cuts(ROUNDS, 16)] == [1, 2, 4, 8, 16]
    assert [len(segments) for segments in cuts(ROUNDS, 7)] == [1, 2, 4]


def test_operations_of_several_chunks_are_not_cut() -> None:
    rounds = in_rounds(ring.all_reduce(3))
    wide = Rounds(
        "wide",
        3,
        2 * rounds.nchunks,
        tuple(tuple(op._replace(begin=2 * op.begin, end=2 * op.end) for op in program) for program in rounds.programs),
    )
    assert in_order_of_use(wide) is wide
    assert list(cuts(wide, 16)) == [(wide.nchunks,)]


def test_one_segment_is_hidden_behind_nothing_and_many_are_but_for_the_first_and_the_last() -> None:
    each_s = [1.0] * ROUNDS.nrounds  # 17
    found = {len(segments): predicted_s(ROUNDS, segments, each_s, 4.0, 0.0) for segments in cuts(ROUNDS, 16)}
    assert found[1] == pytest.approx(4 + 17 + 4)
    assert found[16] == pytest.approx(4 / 16 + 17 + 4 / 16)
    assert found[16] < found[8] < found[4] < found[2] < found[1]


def test_slow_hosts_are_limited_by_what_is_inside_them_and_calls_cost_time() -> None:
    each_s = [1.0] * ROUNDS.nrounds
    sixteen = list(cuts(ROUNDS, 16))[-1]
    assert predicted_s(ROUNDS, sixteen, each_s, 100.0, 0.0) == pytest.approx(200)
    assert predicted_s(ROUNDS, sixteen, each_s, 100.0, 1.0) == pytest.approx(232)
    assert predicted_s(ROUNDS, (ROUNDS.nchunks,), each_s, 0.0, 1.0) == pytest.approx(19)
