"""When a fault fires: which iteration is struck, how long it should last, and the moment."""

from pathlib import Path

import pytest

from harness.experiment_file import load
from harness.sweep.events import Timed
from harness.sweep.plan import Trial, plan
from harness.sweep.strike import chosen_begin_ns, expected_ns, fire_at_ns, smoothed_ns

ALLREDUCE = Path(__file__).parents[2] / "experiments" / "allreduce.toml"
S = 1_000_000_000


def trial(when: str) -> Trial:
    return plan(load(ALLREDUCE, [f'fault=[{{kind="nic_down", host="host0", nic="eth0", {when}}}]']))[0]


@pytest.mark.parametrize(
    ("when", "begun", "chosen"),
    [
        ("at_iteration=2", {-1: 1, 0: 5, 1: 9}, None),
        ("at_iteration=2", {-1: 1, 0: 5, 1: 9, 2: 14}, 14),
        ('at_time="2s"', {-1: S}, None),
        ('at_time="2s"', {-1: S, 0: 2 * S, 1: 3 * S}, None),
        ('at_time="2s"', {-1: S, 0: 2 * S, 1: 3 * S, 2: 4 * S, 3: 5 * S}, 4 * S),
        ('at_time="0s"', {0: 2 * S}, 2 * S),
    ],
)
def test_the_iteration_that_is_struck(when: str, begun: dict[int, int], chosen: int | None) -> None:
    made = trial(when)
    assert made.fault is not None
    assert chosen_begin_ns(made, made.fault, begun) == chosen


def test_how_long_an_iteration_should_last() -> None:
    warm, first, second, third = (Timed(0, duration, None) for duration in (900, 100, 140, 120))
    assert expected_ns({}, 0.5) == S // 2
    assert expected_ns({-1: warm}, 0.5) == 900
    assert expected_ns({-1: warm, 0: first, 1: second, 2: third}, 0.5) == 120


def test_the_moment_allows_for_the_latency_but_never_precedes_the_begin() -> None:
    assert fire_at_ns(1000, 0.3, 100, 10) == 1020
    assert fire_at_ns(1000, 0.3, 100, 50) == 1000


def test_the_latency_follows_what_is_measured() -> None:
    assert smoothed_ns(4, 8) == 6
