"""Statistics on numbers small enough to check by hand."""

import math
from collections.abc import Hashable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2ccl_core.student import student_t
from reports import stats

VALUES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=12)


def test_missing_values_are_left_out() -> None:
    assert stats.known([1.0, None, math.nan, math.inf, 2.0]).tolist() == [1.0, 2.0]
    assert stats.median([3.0, None, 1.0]) == 2.0
    assert math.isnan(stats.median([]))
    assert stats.percentile([0.0, 10.0], 25) == 2.5
    assert math.isnan(stats.percentile([None], 50))


def test_one_value_has_no_interval_and_few_have_their_range() -> None:
    assert all(math.isnan(x) for x in stats.interval([4.0]))
    assert stats.interval([4.0, 1.0, 2.0]) == (1.0, 4.0)
    assert stats.estimate([4.0, 1.0, 2.0]) == (2.0, 1.0, 4.0, 3)


@given(VALUES)
def test_an_interval_is_seeded_and_holds_the_median(values: list[float]) -> None:
    found = stats.estimate(values)
    assert found.n == len(values)
    if found.n > 1:
        assert stats.estimate(values) == found
        assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_a_bootstrap_interval_narrows_with_more_repeats() -> None:
    rng = np.random.default_rng(3)
    few, many = (stats.interval(rng.normal(10, 1, n)) for n in (8, 400))
    assert few[1] - few[0] > 3 * (many[1] - many[0])


def test_how_many_pairs_would_show_a_difference() -> None:
    ratios = (1.02, 0.97, 1.03, 0.99, 1.01)
    found = stats.paired(dict(enumerate(ratios)), dict.fromkeys(range(5), 1.0))
    assert found.conclusion == "no difference shown"
    needed = stats.pairs_to_show(found.spread, 0.02)
    assert needed is not None
    # With the spread that was seen, so many pairs have an interval just narrower than the difference; one less has not.
    half = [student_t(n - 1) * found.spread / n**0.5 for n in (needed - 1, needed)]
    assert half[1] < math.log(1.02) <= half[0]
    assert stats.pairs_to_show(10.0, 0.01) is None


def test_what_is_typical_and_the_cost_of_the_hit() -> None:
    assert [stats.typical(some) for some in ([30, 10, 20], [270, 30], [5])] == [20, 30, 5]
    assert math.isnan(stats.typical([]))
    assert stats.hit_cost_ns([50, 35], [30, 30]) == 25
    assert math.isnan(stats.hit_cost_ns([], [30]))


def test_a_stall_is_what_the_bandwidth_does_not_explain() -> None:
    # A third of the iteration at 90 an iteration, two thirds at 150, and 12 of standing still.
    assert stats.stall_ns(30 + 100 + 12, 30, 90, 150) == pytest.approx(12)
    assert str(stats.stall_ns(129, 30, 90, 150)) == "0.0", "durations are rounded to whole ns: nothing was lost"
    assert str(stats.stall_ns(0.1 + 0.7, 0.1, 0.3, 1.05)) == "0.0", "no noise of the arithmetic, and no sign of it"


def ratios(*values: float) -> tuple[dict[Hashable, float], dict[Hashable, float]]:
    return dict(enumerate(values)), dict.fromkeys(range(len(values)), 1.0)


@pytest.mark.parametrize(
    ("values", "conclusion"),
    [
        ((1.3, 1.31, 1.32, 1.3, 1.33), "more"),
        ((0.7, 0.71, 0.72, 0.7, 0.73), "less"),
        ((0.98, 1.03, 1.01, 0.97, 1.02), "no difference shown"),
        ((1.002, 1.003, 1.002, 1.003, 1.002), "no difference shown"),
        ((2.0, 2.0), "too few pairs"),
    ],
)
def test_a_difference_is_claimed_only_where_it_shows(values: tuple[float, ...], conclusion: str) -> None:
    found = stats.paired(*ratios(*values))
    assert (found.conclusion, found.n) == (conclusion, len(values))


def test_only_repeats_that_both_have_are_paired() -> None:
    found = stats.paired({0: 2.0, 1: 2.0, 2: 2.0, 3: math.nan}, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 9.0})
    assert (found.ratio, found.n) == (pytest.approx(2.0), 3)


def test_a_ratio_and_its_inverse_say_the_same() -> None:
    there, back = ratios(1.3, 1.4, 1.5), tuple(reversed(ratios(1.3, 1.4, 1.5)))
    more, less = stats.paired(*there), stats.paired(*back)
    assert (more.conclusion, less.conclusion) == ("more", "less")
    assert 1 / less.ratio == pytest.approx(more.ratio)
    assert (1 / less.high, 1 / less.low) == pytest.approx((more.low, more.high))


def test_equal_systems_are_seldom_told_apart() -> None:
    """Of 400 comparisons of equal systems, about 5 % may be wrong; a bootstrap over 5 pairs has twice that."""
    rng = np.random.default_rng(7)
    draws = np.exp(rng.normal(0, 0.05, (400, 5)))
    told = sum(stats.paired(*ratios(*row)).conclusion != "no difference shown" for row in draws)
    assert told <= 0.07 * len(draws)


@pytest.mark.parametrize(("degrees", "t"), [(1, 12.706), (4, 2.776), (20, 2.086), (30, 2.042), (120, 1.980)])
def test_students_t(degrees: int, t: float) -> None:
    assert student_t(degrees) == pytest.approx(t, abs=0.002)


@pytest.mark.parametrize(
    ("values", "unknown", "middle"),
    [([1.0, 2.0, 3.0], 0, 2.0), ([20.0, 21.0], 1, 20.5), ([20.0, 30.0], 1, math.nan), ([117.0], 0, 117.0),
     ([117.0], 1, math.nan), ([117.0, 117.0], 1, 117.0), ([117.0, 117.0], 2, math.nan), ([-10.0, 287.5], 1, math.nan),
     ([-20.0, -21.0], 1, -20.5), ([20.0, 21.0, 22.0, 23.0], 3, 21.5), ([20.0, 21.0, 22.0, 24.0], 3, math.nan),
     ([], 1, math.nan)],
)  # fmt: skip
def test_a_median_is_known_if_values_that_are_not_cannot_make_it_another(
    values: list[float], unknown: int, middle: float
) -> None:
    found = stats.estimate(values, unknown)
    assert found.median == pytest.approx(middle, nan_ok=True) and found.n == (0 if math.isnan(middle) else len(values))


def test_a_median_lies_between_those_with_the_unknown_values_at_either_end() -> None:
    assert stats.median_between([23.0, 1681.0], 1) == (23.0, 1681.0)
    assert stats.median_between([343.0], 2) == (-math.inf, math.inf)
    assert stats.median_between([1.0, 3.0], 0) == (2.0, 2.0)
    assert stats.median_between([2.0, math.inf], 1) == (2.0, math.inf), "an end may be infinite"
