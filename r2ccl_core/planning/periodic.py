"""Times large schedules by a few of their periods: a schedule repeats itself, so its time grows evenly with its length.

What repeats:

    forest    sends chunk after chunk through the same trees, so k chunks take ``fill + k period``
    ring      does the same at every hop
    others    treat healthy hosts alike: with sections of the same size, each one more adds the same time. So the
              cluster is made smaller, the vector with it, and hosts that differ from the most stay

Rings and others take exactly as much for each period. A few short ones are simulated, each about twice as long as the
one before; every two successive ones yield an answer for the whole. The reported error is the distance between the last
two answers. If it is above the limit, the lengths double, until in the end the whole schedule is simulated.

The pace of a forest's chunks changes as long as it runs, where three trees or more meet at the ports: within the 5 to
10 % between the least and the most that a period can take it drifts, goes up and down, or keeps one value for half of
the run and then jumps to another. What has been simulated does not tell of such a jump, so no spread of it is an honest
error. Two things limit what the chunks to come can take:

    bounds    no period is shorter than the host with the most bytes for its bandwidth needs for them, and none longer
              than that and the cost of a message (`forest.py`)
    changes   how far the pace of the rest was from the pace so far in 95 % of many whole simulations (`PACE_ERROR`)

So a forest is simulated once, chunk after chunk. After each one the rest lies between two paces; once the middle is
known well enough for what is left, no host begins another chunk, and those that are under way come to their end. That
is the time of a forest of fewer chunks, and the middle pace tells what the others add (with two trees, which keep it,
the pace so far). If that never comes, the whole is simulated.

Where messages cost time, a forest of many trees is sensitive: ports that differ by a millionth make up to 5 % of its
time. It keeps step, or leaves it after a time that chance decides and then takes up to the cost of a message longer for
each chunk. Of 6 trees of 512 chunks on 320 hosts, 20 us a message, three of six runs took 27.86 us for every chunk to
their end, and the others 29.5 to 30.5 us from the 36th, 38th or 104th chunk on. Neither the spread of the paces nor any
beginning tells that. So ports differ by chance there (`simulate.UNEVEN`), and two errors are told:

    error         from the whole simulation of the same ports
    ports_error   beyond that, from the mean over all such ports, 95 %: from how much the runs differ, and, since few
                  are affordable, from how much runs of many other forests did (`error_of_mean`)

The second is what the time itself is uncertain by: no simulation of one cluster tells less.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import hypot, inf, sqrt

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.algorithms import ALGORITHMS
from r2ccl_core.planning.simulate import UNEVEN, Loop, Timing, looped_steps, simulate
from r2ccl_core.schedules import forest, r2cc_all_reduce, ring
from r2ccl_core.schedules.algorithm import Parameters
from r2ccl_core.student import student_t

MOST_ERROR = 0.01
"""Relative error of the extrapolation; the answers must be no further apart."""

TOLERANCE = 0.01
DENSE_LANES = 5
"""From this number of lanes on, most ports depend on each other and a tolerance pays (`simulate`)."""

COSTLY_TOLERANCE, MANY_LANES, MANY_TOLERANCE = 0.02, 20, 0.05
TOLERANCE_ERROR, COSTLY_TOLERANCE_ERROR = 0.001, 0.003
"""The second where messages cost time, the third from `MANY_LANES` on, where one message is a small part of what a port
does. The errors are those from smaller tolerances. With 1 to 5 % and messages that cost nothing: 24 trees 0.1 %, fewer
0.004 % (64 hosts, once each). Where they cost 20 us, means of runs were so far apart, or as far as their intervals
allow: 8 trees on 64 hosts 0.1 % with 2 % instead of 0.5 % (6 runs each), 24 trees on 256 hosts 0.3 % with 5 % instead
of 2 % (4 and 7 runs). With 10 %, 8 trees would be 1.4 % too fast, and 24 trees 0.9 % too slow."""
WHOLE_MESSAGES = 1_500_000
"""The most in all runs of whole schedules whose messages cost time: 1 to 3 s of one processor for dense ones."""
LEAST_RUNS, MOST_RUNS = 3, 32
MOST_MESSAGES = 8_000_000
"""The most in all runs of larger ones: a message on 1024 hosts takes 0.6 to 1.3 us of a busy processor."""
SPREAD, SPREAD_COSTS, SPREAD_DEGREES = 0.005, 2.0, 2
"""The standard deviation of whole runs on ports that differ by chance: so many costs of a message, at most that part of
the time; and how many degrees of freedom that is worth (`error_of_mean`). Of 4 runs each of 74 forests (6 to 24 trees,
1 or 2 lengths, 128 to 512 hosts): 0.04 % with 1 us (1 GiB at 400 GB/s), 0.2 % with 5 us and 0.5 % with 20 us, and up
to 1.1 and 1.4 % of some: that differs as if by 1.8 to 4 degrees of freedom. Of 3 runs on 1024 hosts 0.3 to 1.1 % with 5
us, of 6 on 320 hosts up to 3.6 % with 20 us."""
LEAST_PART = 0.2
SIMPLE_TREES = 2
SIMPLE_PACE_ERROR, PACE_ERROR, COSTLY_PACE_ERROR, PACE_COSTS = 0.008, 0.02, 0.04, 20.0
"""From this part of the run on: how far the pace of the rest of a forest may be from its pace so far, of at most
`SIMPLE_TREES` trees, and of more: so many costs of a message, within these limits. After 20 to 70 % of whole
simulations it was so far in 95 % of the cases: 0.02 to 0.09 % with 2 trees (others reach their pace later, and were 0.7
% away); of 6 to 24 trees 0.5 % with 1 us a message (64 runs), 1.8 to 2.1 % with 5 us (88), 2.8 to 3.9 % with 20 us
(184 runs, 128 to 512 hosts)."""
LARGE_HOSTS = 256
"""On fewer the pace changes more (by up to 5 %), and all of a forest takes a few seconds."""
LEAST_ROUNDS, ROUNDS_PER_HOP = 40, 6
"""Chunks of every tree before the pace is believed, at least, and for every hop of the highest tree: 2 trees on 2048
hosts reach their pace after 20 chunks, two for every hop; so do 24 trees on 1024 hosts, which are up to 2.5 % slower
before."""

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
    """A schedule of ``periods`` periods. ``part(k)`` makes k of them.

    The first simulation is of ``first``. From that many chunks on, one more adds the same steps to a forest.
    """

    name: str
    periods: int
    part: Callable[[int], Part]
    first: int
    forest: "Forest | None" = None


@dataclass(frozen=True)
class Forest:
    """Of a forest and its period, which is a chunk of every tree: the ``messages`` of a period, the least time that it
    takes, and whether the most is that and the cost of a message."""

    chunks: int
    hosts: int
    trees: int
    hops: int
    messages: int
    least_s: float
    limited: bool

    @property
    def dense(self) -> bool:
        """Whether most ports depend on each other."""
        return self.trees >= DENSE_LANES

    @property
    def simple(self) -> bool:
        """Whether it keeps the pace that it has reached."""
        return self.trees <= SIMPLE_TREES

    def tolerance(self, alpha_s: float) -> float:
        """With which it is simulated."""
        if not self.dense:
            return 0.0
        if self.trees >= MANY_LANES:
            return MANY_TOLERANCE
        return COSTLY_TOLERANCE if alpha_s else TOLERANCE

    def tolerance_error(self, alpha_s: float) -> float:
        """How wrong that makes the time."""
        if not self.dense:
            return 0.0
        return COSTLY_TOLERANCE_ERROR if alpha_s else TOLERANCE_ERROR

    def spread(self, alpha_s: float) -> float:
        """The standard deviation, relative, that whole runs are expected to have on ports that differ by chance."""
        return min(SPREAD, SPREAD_COSTS * self.cost(alpha_s)) if self.dense else 0.0

    def pace_error(self, alpha_s: float) -> float:
        """How far the pace of the rest may be from the pace so far."""
        if self.simple:
            return SIMPLE_PACE_ERROR
        return min(COSTLY_PACE_ERROR, max(PACE_ERROR, PACE_COSTS * self.cost(alpha_s)))

    def cost(self, alpha_s: float) -> float:
        """Of one message, relative to the least time of the whole."""
        return alpha_s / (self.chunks * self.least_s)


@dataclass(frozen=True)
class Estimate:
    """Seconds of the whole schedule; ``error`` is relative to a whole and exact simulation, and 0 if that was made."""

    seconds: float
    error: float
    periods: int
    """So many were simulated, the most at once."""
    ports_error: float = 0.0
    """How far, beyond ``error``, the mean over ports that differ by chance may be."""
    runs: int = 1
    """On so many such ports, of seeds 0, 1, ..."""


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

    loads = zip(forest.integer_degrees(shares, trees), topology.rates_bytes_s, strict=True)
    least_s = max(degree / rate for degree, rate in loads) * size_bytes / (trees * chunks)
    messages = 2 * trees * (topology.nhosts - 1)
    limited = not topology.isolated_rails  # else two hosts may share rails for less than each has
    of = Forest(chunks, topology.nhosts, trees, height, messages, least_s, limited)
    return Periodic("forest", chunks, part, 2 * height, of)


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


def estimate(
    schedule: Periodic,
    *,
    alpha_s: float = 0.0,
    most_error: float = MOST_ERROR,
    beginning: bool = False,
) -> Estimate:
    """The time of ``schedule``, to ``most_error`` where `MOST_MESSAGES` suffice for it.

    Small forests whose messages cost time are simulated to their end, dense ones several times, unless the
    ``beginning`` shall do. Raises `UsageError` for a limit of zero or less, and whatever `simulate` raises.
    """
    if most_error <= 0:
        raise UsageError(f"an error of {most_error:g} at most cannot be promised; simulate the whole schedule")
    forest = schedule.forest
    if forest is None:
        return _of_lengths(schedule, alpha_s, most_error)
    run, messages = Looped(schedule), schedule.periods * forest.messages
    whole = alpha_s > 0 and not beginning and (messages <= WHOLE_MESSAGES or forest.hosts < LARGE_HOSTS)
    if forest.spread(alpha_s):
        return _of_several(run, forest, alpha_s, most_error, whole)
    found = _of_beginning(run, forest, alpha_s, 0.0 if whole else most_error)
    return replace(found, error=hypot(found.error, forest.tolerance_error(alpha_s)))


class Looped:
    """A forest as a loop over its chunks, so that no step has to be made for each of them."""

    def __init__(self, schedule: Periodic) -> None:
        self.periods, self._forest = schedule.periods, schedule.forest
        self.before = min(schedule.first, schedule.periods)
        """Chunks whose steps, the first ones and the last ones, lie beside the loop."""
        few = schedule.part(self.before)
        self._part = few if self.before == self.periods else schedule.part(self.before + 1)
        self._places = looped_steps(few.schedule, self._part.schedule)

    def __call__(self, alpha_s: float, *, seed: int = 0, enough: Callable[[float], bool] | None = None) -> Timing:
        """The schedule, or the beginning that is ``enough`` (`simulate.Loop`). Ports of dense ones differ by chance
        where messages cost time."""
        dense = self._forest is not None and self._forest.dense
        seeded = dense and alpha_s > 0
        return simulate(
            self._part.schedule,
            self._part.topology,
            self._part.size_bytes,
            alpha_s=alpha_s,
            tolerance=self._forest.tolerance(alpha_s) if self._forest else 0.0,
            seed=seed if seeded else None,
            loop=Loop(*self._places, max(1, self.periods - self.before), enough),
        )


def _of_beginning(
    run: Looped, forest: Forest, alpha_s: float, most_error: float, *, seed: int = 0, most_periods: float = inf
) -> Estimate:
    """By as many chunks as it takes until the pace of the others is known well enough, or by ``most_periods``."""
    done_s: list[float] = []

    def added(rounds: int) -> tuple[float, float]:
        """Seconds of so many more, and how wrong that may be."""
        low_s, pace_s, high_s = _paces(done_s, run.periods, forest, alpha_s)
        told_s = pace_s if forest.simple else (low_s + high_s) / 2
        return rounds * told_s, rounds * max(high_s - told_s, told_s - low_s)

    def enough(now_s: float) -> bool:
        done_s.append(now_s)
        if len(done_s) < max(LEAST_ROUNDS, ROUNDS_PER_HOP * forest.hops):
            return False
        if run.before + len(done_s) >= most_periods:
            return True
        rest_s, half_s = added(run.periods - run.before - len(done_s))
        return half_s <= most_error * (now_s + rest_s)

    timing = run(alpha_s, seed=seed, enough=enough if most_error or most_periods < run.periods else None)
    left = run.periods - run.before - timing.rounds
    if left <= 0:
        return Estimate(timing.seconds, 0.0, run.periods)
    rest_s, half_s = added(left)
    return Estimate(timing.seconds + rest_s, half_s / (timing.seconds + rest_s), run.periods - left)


def _paces(done_s: list[float], periods: int, forest: Forest, alpha_s: float) -> tuple[float, float, float]:
    """What each further chunk adds on average: the least, as much as those so far, and the most. The first third of the
    run fills the trees."""
    first = len(done_s) // 3
    pace_s = (done_s[-1] - done_s[first]) / (len(done_s) - 1 - first)
    uneven = UNEVEN if forest.spread(alpha_s) else 0.0
    low_s = forest.least_s * (1 - uneven)
    high_s = forest.least_s * (1 + uneven) + alpha_s if forest.limited else inf
    if len(done_s) >= LEAST_PART * periods:
        error = forest.pace_error(alpha_s)
        low_s, high_s = max(low_s, pace_s * (1 - error)), min(high_s, pace_s * (1 + error))
    return min(low_s, pace_s), pace_s, max(high_s, pace_s)


def _of_several(run: Looped, forest: Forest, alpha_s: float, most_error: float, whole: bool) -> Estimate:
    """The mean over ports that differ by chance, by as many runs as it takes, or by as many as there may be.

    Runs leave open what the tolerance leaves of ``most_error``, and are ``whole`` if that is nothing.
    """
    most_periods = MOST_MESSAGES // forest.messages
    least = max(1, min(LEAST_RUNS, WHOLE_MESSAGES // (run.periods * forest.messages))) if whole else 1
    tolerance_error = forest.tolerance_error(alpha_s)
    open_error = 0.0 if whole else sqrt(max(0.0, most_error**2 - tolerance_error**2))
    runs: list[Estimate] = []
    while True:
        most = inf if whole else most_periods
        runs.append(_of_beginning(run, forest, alpha_s, open_error, seed=len(runs), most_periods=most))
        found = [one.seconds for one in runs]
        ports_error = error_of_mean(found, forest.spread(alpha_s))
        affordable = (len(runs) + 1) * runs[0].periods <= most_periods and len(runs) < MOST_RUNS
        if not affordable or (len(runs) >= least and ports_error <= most_error):
            error = hypot(tolerance_error, max(one.error for one in runs))
            return Estimate(float(np.mean(found)), error, max(one.periods for one in runs), ports_error, len(runs))


def error_of_mean(runs_s: list[float], spread: float) -> float:
    """Of the mean of these runs, relative: the 95 % interval where they have the ``spread`` that was expected, with the
    weight of `SPREAD_DEGREES`, and their own (the variance is a scaled inverse chi-squared)."""
    degrees = SPREAD_DEGREES + len(runs_s) - 1
    squares = SPREAD_DEGREES * spread**2 + float(np.sum((np.array(runs_s) / np.mean(runs_s) - 1) ** 2))
    return student_t(degrees) * sqrt(squares / degrees / len(runs_s))


def _of_lengths(schedule: Periodic, alpha_s: float, most_error: float) -> Estimate:
    """By two lengths, of which the answer agrees with that of the two before."""
    found: dict[int, float] = {}

    def seconds(periods: int) -> float:
        if periods not in found:
            part = schedule.part(periods)
            tolerance = TOLERANCE if part.schedule.nlanes >= DENSE_LANES else 0.0
            simulated = simulate(part.schedule, part.topology, part.size_bytes, alpha_s=alpha_s, tolerance=tolerance)
            found[periods] = simulated.seconds
        return found[periods]

    k = max(1, schedule.first)
    before_s = None
    while 2 * k <= schedule.periods // 2:
        told_s = seconds(2 * k) + (seconds(2 * k) - seconds(k)) * (schedule.periods - 2 * k) / k
        k *= 2
        error = abs(told_s - before_s) / told_s if before_s is not None and told_s else 0.0
        if before_s is not None and error <= most_error:
            return Estimate(told_s, error, k)
        before_s = told_s
    return Estimate(seconds(schedule.periods), 0.0, schedule.periods)
