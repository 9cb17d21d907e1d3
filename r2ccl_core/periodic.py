"""Times large schedules by a few of their periods: a schedule repeats itself, so its time grows evenly with its length.

A `Periodic` makes a schedule of any number of periods. A few short ones are simulated, each twice as long as the one
before; every two that follow each other tell the time of the whole. How far the last two answers lie apart, or the last
three where ports are shared by many lanes (two may agree by chance there), is the error that is told. Where it is above
the limit, the lengths double, until the whole schedule is simulated in the end.

What repeats: a forest sends chunk after chunk through the same trees, so k chunks take ``fill + k period`` (also where
one tree is done before another: then both parts of the time grow evenly). A ring does the same at every hop.
"""

from collections.abc import Callable
from dataclasses import dataclass

from r2ccl_core.errors import UsageError
from r2ccl_core.schedule import Schedule
from r2ccl_core.schedules import forest, ring
from r2ccl_core.simulate import simulate
from r2ccl_core.topology import Topology

MOST_ERROR = 0.01
"""Relative; the answers must be no further apart."""

ANSWERS, DENSE_ANSWERS = 2, 3
"""So many must agree."""

TOLERANCE = 0.01
DENSE_LANES = 5
"""From so many lanes on, most ports depend on each other and a tolerance pays (`simulate`)."""


@dataclass(frozen=True)
class Periodic:
    """A schedule of ``periods`` periods. ``build(k)`` makes one of k of them, whose vector is k/periods as long where
    ``divides`` the vector among them; ``first`` periods are enough for a first look."""

    name: str
    periods: int
    build: Callable[[int], Schedule]
    first: int
    divides: bool

    def size_bytes(self, size_bytes: int, periods: int) -> int:
        """The vector of so many periods, where the whole schedule's is ``size_bytes``."""
        return size_bytes * periods // self.periods if self.divides else size_bytes


@dataclass(frozen=True)
class Estimate:
    """Seconds of the whole schedule; ``error`` is relative and 0 where all of it was simulated."""

    seconds: float
    error: float
    periods: int
    """The most that were simulated at once."""


def of_ring(hosts: int, *, slices: int = 1, ahead: int = 0) -> Periodic:
    """The ring AllReduce by hops."""
    return Periodic(
        "ring",
        max(1, 2 * (hosts - 1)),
        lambda hops: ring.all_reduce(hosts, slices=slices, ahead=ahead, hops=hops),
        first=4,
        divides=False,
    )


def of_forest(shares: tuple[float, ...], *, trees: int = 2, rounds: int = 64, fan: int = 2) -> Periodic:
    """The forest by chunks of every tree."""
    height = max(map(forest.height_of, forest.degrees_of(shares, trees, fan)))
    return Periodic(
        "forest",
        rounds,
        lambda k: forest.all_reduce(shares, trees=trees, rounds=k, fan=fan),
        first=height + 1,
        divides=True,
    )


def estimate(
    schedule: Periodic,
    topology: Topology,
    size_bytes: int,
    *,
    alpha_s: float = 0.0,
    most_error: float = MOST_ERROR,
) -> Estimate:
    """The time of ``schedule`` for a vector of ``size_bytes`` on ``topology``, to ``most_error``.

    Raises `UsageError` for an error of nothing or less, and what `simulate` raises.
    """
    if most_error <= 0:
        raise UsageError(f"an error of {most_error:g} at most cannot be promised; simulate the whole schedule")
    run = _Runs(schedule, topology, size_bytes, alpha_s)
    k = max(1, schedule.first)
    answers: list[float] = []
    while 2 * k <= schedule.periods // 2:
        answers.append(run.extrapolated(k, 2 * k))
        k *= 2
        wanted = DENSE_ANSWERS if run.dense else ANSWERS
        told = answers[-wanted:]
        error = (max(told) - min(told)) / told[-1] if told[-1] else 0.0
        if len(told) == wanted and error <= most_error:
            return Estimate(told[-1], error, k)
    return Estimate(run.seconds(schedule.periods), 0.0, schedule.periods)


class _Runs:
    """Simulations of one schedule's parts, each made once."""

    def __init__(self, schedule: Periodic, topology: Topology, size_bytes: int, alpha_s: float) -> None:
        self._schedule, self._topology = schedule, topology
        self._size_bytes, self._alpha_s = size_bytes, alpha_s
        self._known: dict[int, float] = {}
        self.dense = False

    def extrapolated(self, few: int, more: int) -> float:
        """The time of all periods, from these two lengths."""
        last = self.seconds(more)
        return last + (last - self.seconds(few)) * (self._schedule.periods - more) / (more - few)

    def seconds(self, periods: int) -> float:
        """The time of so many periods."""
        if periods not in self._known:
            part = self._schedule.build(periods)
            self.dense = part.nlanes >= DENSE_LANES
            self._known[periods] = simulate(
                part,
                self._topology,
                self._schedule.size_bytes(self._size_bytes, periods),
                alpha_s=self._alpha_s,
                tolerance=TOLERANCE if self.dense else 0.0,
            ).seconds
        return self._known[periods]
