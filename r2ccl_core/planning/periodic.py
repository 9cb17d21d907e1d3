"""Times large schedules by a few of their periods: a schedule repeats itself, so its time grows evenly with its length.

A `Periodic` makes a schedule of any number of periods. A few short ones are simulated, each about twice as long as the
one before; every two successive ones yield an answer for the whole. The reported error is the distance between the last
two answers, or the last three for a forest with many trees (two may agree by chance there). If it is above the limit,
the lengths double, until in the end the whole schedule is simulated.

For a forest with many trees there is a second source: no period is shorter than the host with the most bytes for its
bandwidth needs for them. If messages cost nothing, its periods are hardly longer (0 to 0.4 %, of 8 to 24 trees on 32 to
256 hosts), so the time lies between the answer with the measured period and the one with the minimum: the middle is
reported, with half the distance as the error.

Where messages cost time, a forest's first periods are unlike the others, and one with many trees is sensitive: ports
that differ by a millionth make up to 5 % of its time, and every change of such a kind another (0.2 to 5 % between runs;
the larger, the less). So what is told of those is the mean over ports that differ by chance (`simulate.UNEVEN`), with
the 95 % interval of that mean as the error. Schedules that are too long for that are simulated for some of their
chunks, once: the mean time at which the hosts are done with a chunk tells the period, between the first quarter of the
run (filling) and the last (ports get free), and half of what the two halves of that window lie apart is the error.
Where the pace still changes too much in that window, it begins at half of the run.

What repeats:

    forest    sends chunk after chunk through the same trees, so k chunks take ``fill + k period`` (also where one tree
              is done before another: then both parts of the time grow evenly)
    ring      does the same at every hop
    others    treat healthy hosts alike: with sections of the same size, each one more adds the same time. So the
              cluster is made smaller, the vector with it, and hosts that differ from the most stay
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import fsum

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.algorithms import ALGORITHMS
from r2ccl_core.planning.simulate import Floats, simulate
from r2ccl_core.schedules import forest, r2cc_all_reduce, ring
from r2ccl_core.schedules.algorithm import Parameters
from r2ccl_core.student import student_t

MOST_ERROR = 0.01
"""Relative error of the extrapolation; the answers must be no further apart."""

TOLERANCE = 0.01
DENSE_LANES = 5
"""From this number of lanes on, most ports depend on each other and a tolerance pays (`simulate`)."""

COSTLY_TOLERANCE = 0.02
TOLERANCE_ERROR = 0.002
"""Where messages cost time: means of 3 to 6 runs with that tolerance and of as many exact ones were 0.16 % apart where
runs differ little (64 hosts, 16 trees), elsewhere not more than their intervals allow."""
WHOLE_MESSAGES = 1_500_000
"""The most in all runs of whole schedules: about 6 s of one processor for dense ones."""
LEAST_RUNS, MOST_RUNS = 3, 32
SINGLE_ERROR = 0.005
"""The error of one run of a dense schedule that is too long for two. Runs differed by 0.5 % on 128 hosts, 0.06 % on 256
and 0.2 % on 1024 (16 trees, 57 to 73 chunks)."""
LEAST_ROUNDS, ROUNDS_PER_HOP = 40, 6
"""Chunks of every tree in the first look at a longer schedule, at least, and for every hop of the highest tree: 2 trees
on 2048 hosts reach their pace after 20 chunks, two for every hop; so do 24 trees on 1024 hosts, which are up to 2.5 %
slower before."""
FIRST_MESSAGES = 1_500_000
"""In the first look, where that is more."""

SIMPLE_LANES = 2
"""Two answers suffice for forests of at most this number of trees: with 3 trees (128 hosts, 5 us per message) they were
2 % off."""
DENSE_ANSWERS = 3
"""Answers for forests with this many trees. Ten of 6 to 24 trees on 16 to 128 hosts were estimated to 0.1 % by this;
two answers within half a percent were up to 3.3 % off, and lengths that grow by half 2.3 %."""

LEAST_HOSTS = 32
"""Similar hosts in the smallest cluster that stands for a large one."""


@dataclass(frozen=True)
class Part:
    """What is simulated for a number of periods: a schedule for a vector of ``size_bytes`` on ``topology``."""

    schedule: Schedule
    topology: Topology
    size_bytes: int


@dataclass(frozen=True)
class Periodic:
    """A schedule of ``periods`` periods. ``part(k)`` makes k of them; ``first`` are enough for the first simulation,
    and this many ``answers`` must agree, or one with the minimum ``least_s`` of a period (None if that is not known).
    """

    name: str
    periods: int
    part: Callable[[int], Part]
    first: int
    answers: int = 2
    least_s: float | None = None
    messages: int = 0
    """Of a forest's period; 0 of others."""
    dense: bool = False


@dataclass(frozen=True)
class Estimate:
    """Seconds of the whole schedule; ``error`` is relative, and 0 if all of it was simulated, exactly or with a
    negligible tolerance."""

    seconds: float
    error: float
    periods: int
    """The most that were simulated at once."""


def of_candidate(name: str, parameters: Parameters, topology: Topology, size_bytes: int) -> Periodic:
    """The planner's schedule of that name (`planner.Candidate`), by whatever repeats in it."""
    algorithm = ALGORITHMS[name]
    if name == "ring":
        return of_ring(topology, size_bytes, **parameters)
    if name == "forest":
        return of_forest(topology, size_bytes, **parameters)
    if name == "tree":
        return Periodic(name, 1, lambda _: Part(algorithm.build(topology.shares, parameters), topology, size_bytes), 1)

    if name == "r2cc_all_reduce":
        return of_r2cc(topology, size_bytes, **parameters)
    return of_hosts(name, topology, size_bytes, lambda smaller: algorithm.build(smaller.shares, parameters))


def of_ring(topology: Topology, size_bytes: int, *, slices: int = 1, ahead: int = 0) -> Periodic:
    """The ring AllReduce by hops."""
    hosts = topology.nhosts

    def part(hops: int) -> Part:
        return Part(ring.all_reduce(hosts, slices=slices, ahead=ahead, hops=hops), topology, size_bytes)

    return Periodic("ring", max(1, 2 * (hosts - 1)), part, first=4)


def of_forest(topology: Topology, size_bytes: int, *, trees: int = 2, chunks: int = 64, fan: int = 2) -> Periodic:
    """The forest by chunks of every tree."""
    shares = topology.shares
    height = max(map(forest.height_of, forest.degrees_of(shares, trees, fan)))

    def part(k: int) -> Part:
        return Part(forest.all_reduce(shares, trees=trees, chunks=k, fan=fan), topology, size_bytes * k // chunks)

    answers = 2 if trees <= SIMPLE_LANES else DENSE_ANSWERS
    messages = 2 * trees * (topology.nhosts - 1)
    sparse = Periodic("forest", chunks, part, first=height + 1, answers=answers, messages=messages)
    if trees < DENSE_LANES:
        return sparse
    loads = zip(forest.integer_degrees(shares, trees), topology.rates_bytes_s, strict=True)
    least_s = max(degree / rate for degree, rate in loads) * size_bytes / (trees * chunks)
    return replace(sparse, least_s=least_s, dense=True)


def of_r2cc(topology: Topology, size_bytes: int, *, pipeline: int = 4, chunks: int = 256) -> Periodic:
    """R2CC-AllReduce by hosts; a smaller cluster has fewer sections, so fewer chunks."""

    def build(smaller: Topology) -> Schedule:
        fewer = chunks * smaller.nhosts / topology.nhosts
        return r2cc_all_reduce.all_reduce(smaller.shares, pipeline=pipeline, chunks=fewer)

    return of_hosts("r2cc_all_reduce", topology, size_bytes, build)


def of_hosts(name: str, topology: Topology, size_bytes: int, build: Callable[[Topology], Schedule]) -> Periodic:
    """Any schedule that treats similar hosts alike, by pairs of hosts, because some depend on a ring's parity.

    ``build`` makes the schedule of a smaller cluster, with sections cut into as many pieces as in the large one.
    """
    alike, count = Counter(topology.hosts).most_common(1)[0]
    places = [index for index, host in enumerate(topology.hosts) if host == alike]

    def part(pairs: int) -> Part:
        wanted = 2 * pairs + count % 2
        kept = {places[index * count // wanted] for index in range(wanted)}
        hosts = tuple(host for index, host in enumerate(topology.hosts) if host != alike or index in kept)
        smaller = replace(topology, hosts=hosts)
        return Part(build(smaller), smaller, size_bytes * len(hosts) // topology.nhosts)

    return Periodic(name, count // 2, part, first=LEAST_HOSTS // 2)


def estimate(schedule: Periodic, *, alpha_s: float = 0.0, most_error: float = MOST_ERROR) -> Estimate:
    """The time of ``schedule``, to ``most_error`` plus the error of a simulation's tolerance (`TOLERANCE_ERROR`).

    Raises `UsageError` for a limit of zero or less, and whatever `simulate` raises.
    """
    if most_error <= 0:
        raise UsageError(f"an error of {most_error:g} at most cannot be promised; simulate the whole schedule")
    if schedule.messages and alpha_s > 0:
        return _of_costly(schedule, alpha_s, most_error)
    run = _Runs(schedule, alpha_s)
    k = max(1, schedule.first)
    answers: list[float] = []
    while 2 * k <= schedule.periods // 2:
        answers.append(run.extrapolated(k, 2 * k))
        k *= 2
        if schedule.least_s is not None:
            least_s = run.seconds(k) + (schedule.periods - k) * schedule.least_s
            middle_s = (answers[-1] + least_s) / 2
            error = abs(answers[-1] - least_s) / 2 / middle_s
            if error <= most_error:
                return Estimate(middle_s, error, k)
        told = answers[-schedule.answers :]
        error = (max(told) - min(told)) / told[-1] if told[-1] else 0.0
        if len(told) == schedule.answers and error <= most_error:
            return Estimate(told[-1], error, k)
    return Estimate(run.seconds(schedule.periods), 0.0, schedule.periods)


def _of_costly(schedule: Periodic, alpha_s: float, most_error: float) -> Estimate:
    """The time of a forest whose messages cost time: of the whole, or by the pace of its chunks."""
    periods = schedule.periods
    if periods * schedule.messages <= WHOLE_MESSAGES:
        return _of_several(schedule, alpha_s, most_error)
    single = SINGLE_ERROR if schedule.dense else 0.0
    k = max(LEAST_ROUNDS, ROUNDS_PER_HOP * (schedule.first - 1), FIRST_MESSAGES // schedule.messages)
    while 3 * k <= 2 * periods:
        run_s, done_s = _chunks(schedule, k, alpha_s)
        for first in (k // 4, k // 2):
            last = k - k // 4
            middle = (first + last) // 2
            found_s = run_s + (periods - k) * _pace(done_s[first:last])
            half_s = (periods - k) * abs(_pace(done_s[first:middle]) - _pace(done_s[middle:last])) / 2
            if half_s / found_s + single <= most_error:
                return Estimate(found_s, half_s / found_s + single, k)
        k *= 2
    run_s, _ = _chunks(schedule, periods, alpha_s)
    return Estimate(run_s, single, periods)


def _of_several(schedule: Periodic, alpha_s: float, most_error: float) -> Estimate:
    """The whole schedule: exactly, or the mean over ports that differ by chance where it is dense."""
    whole = schedule.part(schedule.periods)
    if not schedule.dense:
        seconds = simulate(whole.schedule, whole.topology, whole.size_bytes, alpha_s=alpha_s).seconds
        return Estimate(seconds, 0.0, schedule.periods)
    most = max(1, min(MOST_RUNS, WHOLE_MESSAGES // (schedule.periods * schedule.messages)))
    found: list[float] = []
    while len(found) < most and not (len(found) >= LEAST_RUNS and _error(found) <= most_error):
        found.append(
            simulate(
                whole.schedule,
                whole.topology,
                whole.size_bytes,
                alpha_s=alpha_s,
                tolerance=COSTLY_TOLERANCE,
                seed=len(found),
            ).seconds
        )
    return Estimate(float(np.mean(found)), _error(found), schedule.periods)


def _error(runs_s: list[float]) -> float:
    """Of the mean of these runs, relative."""
    if len(runs_s) < 2:
        return SINGLE_ERROR
    interval_s = student_t(len(runs_s) - 1) * np.std(runs_s, ddof=1) / len(runs_s) ** 0.5
    return float(interval_s / np.mean(runs_s)) + TOLERANCE_ERROR


def _chunks(schedule: Periodic, chunks: int, alpha_s: float) -> tuple[float, Floats]:
    """Seconds of a forest of so many chunks, and the mean time at which hosts were done with each of them."""
    part = schedule.part(chunks)
    timing = simulate(
        part.schedule,
        part.topology,
        part.size_bytes,
        alpha_s=alpha_s,
        tolerance=COSTLY_TOLERANCE if schedule.dense else 0.0,
        steps=True,
        seed=0 if schedule.dense else None,
    )
    ends = np.concatenate([lane for lanes in timing.step_end_s or () for lane in lanes])
    of_chunk = np.concatenate([lane["begin"] for lanes in part.schedule.programs for lane in lanes]) % chunks
    return timing.seconds, np.bincount(of_chunk, weights=ends) / np.bincount(of_chunk)


def _pace(done_s: Floats) -> float:
    """Seconds from one of them to the next, by least squares. Its sums are exact: what it says decides whether more is
    simulated, which has to be the same on every machine."""
    middle = (len(done_s) - 1) / 2
    offsets = [index - middle for index in range(len(done_s))]
    moment = fsum(offset * done for offset, done in zip(offsets, done_s.tolist(), strict=True))
    return moment / fsum(offset * offset for offset in offsets)


class _Runs:
    """Simulations of one schedule's parts, each made once."""

    def __init__(self, schedule: Periodic, alpha_s: float) -> None:
        self._schedule, self._alpha_s = schedule, alpha_s
        self._known: dict[int, float] = {}

    def extrapolated(self, few: int, more: int) -> float:
        """The time of all periods, from these two lengths."""
        first, last = self.seconds(few), self.seconds(more)
        return last + (last - first) * (self._schedule.periods - more) / (more - few)

    def seconds(self, periods: int) -> float:
        """The time of so many periods."""
        if periods not in self._known:
            part = self._schedule.part(periods)
            self._known[periods] = simulate(
                part.schedule,
                part.topology,
                part.size_bytes,
                alpha_s=self._alpha_s,
                tolerance=TOLERANCE if part.schedule.nlanes >= DENSE_LANES else 0.0,
            ).seconds
        return self._known[periods]
