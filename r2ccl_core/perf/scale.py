"""The cost of simulating and planning large clusters: ``python -m r2ccl_core.perf.scale``.

One line a case: seconds of one processor (and how many it may be), the time over the lower bound, the error that is
told, the true one where the whole schedule is affordable, and the most memory that was used until then. One host of 8
NICs has lost one; a message costs nothing, then ``--alpha`` microseconds. With ``--errors``, forests of 2 to 24 trees
whose messages cost 0, 1, 5 and 20 us, the beginnings of all of them told from, and in how many the told error holds the
true one. The true time is the whole simulation's. Where ports differ by chance that is on the ports of the estimate;
and what is told of others is compared with the mean of whole simulations on other ports.
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import hypot
from statistics import mean, stdev
from typing import TypeVar

from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.bound import bound_s
from r2ccl_core.planning.periodic import (
    Estimate,
    Looped,
    Periodic,
    estimate,
    of_candidate,
    of_forest,
    of_ring,
)
from r2ccl_core.planning.planner import plan
from r2ccl_core.planning.simulate import simulate

T = TypeVar("T")

SIZE_BYTES = 1 << 30
NICS = 8
NIC_BYTES_S = 50e9
CHUNKS_OF_A_TREE = 2048
CHUNKS = 4096
MOST_HOSTS = 1024
"""Above this, only what is required of 16,384 hosts."""
DENSE = (8, 16, 24)
"""Trees of the forests that are hardest to simulate."""
LEAST_TRUE_RUNS, MOST_TRUE_RUNS, TRUE_ERROR = 3, 8, 1e-3
"""So many runs, until the standard error of their mean is at most that."""
FORESTS = (2, 3, 6, 8, 16, 24)
FEW_TREES, FEW_FAN, MANY_FAN = 3, 2, 16
ERROR_ALPHAS_US = (0.0, 1.0, 5.0, 20.0)
ERROR_CHUNKS = (1536, 3072)
PRINTED = 1e-4
"""Where bounds are met, both errors are equal but for what one is relative to."""


@dataclass(frozen=True)
class Row:
    """One case; what was not requested is None."""

    what: str
    hosts: int
    alpha_us: float
    took_s: float
    limit_s: float | None = None
    over_bound: float | None = None
    told_error: float | None = None
    simulated: float | None = None
    true_error: float | None = None
    ports_error: float | None = None
    true_ports_error: float | None = None
    memory_gib: float | None = None

    def __str__(self) -> str:
        limit = f"(at most {self.limit_s:2g})" if self.limit_s is not None else " " * 12
        cells = [f"{self.what:18} {self.hosts:6} hosts {self.alpha_us:3g} us a message {self.took_s:8.2f} s {limit}"]
        if self.over_bound is not None:
            cells.append(f"time/bound {self.over_bound:.4f}")
        if self.told_error is not None:
            cells.append(f"told error {self.told_error:.3%}")
        if self.simulated is not None:
            cells.append(f"{self.simulated:4.0%} simulated")
        if self.true_error is not None:
            cells.append(f"true error {self.true_error:.3%}")
        if self.ports_error:
            cells.append(f"other ports {self.ports_error:.2%}")
        if self.true_ports_error is not None:
            cells.append(f"in truth {self.true_ports_error:.2%}")
        if self.memory_gib is not None:
            cells.append(f"{self.memory_gib:.2f} GiB")
        return "  ".join(cells)


def degraded(hosts: int) -> Topology:
    """One NIC of the first host is lost."""
    return Topology.uniform(hosts, NICS, NIC_BYTES_S).lost(0, 0)


def planning(hosts: int) -> Row:
    """One plan, without any cached results."""
    topology = degraded(hosts)
    _, took_s = _timed(lambda: plan(topology, "all_reduce", SIZE_BYTES, 5e-6))
    return Row("plan", hosts, 5, took_s, 1 if hosts == MOST_HOSTS else None)


def schedules(hosts: int, alpha_us: float, whole: bool) -> Iterator[Row]:
    """The planner's schedules by a few of their periods; with ``whole`` also in full, for the true error."""
    topology = degraded(hosts)
    for one in _schedules(topology, alpha_us * 1e-6):
        yield _told(one, topology, alpha_us, whole)


def errors(hosts: int) -> Iterator[Row]:
    """Forests by their beginning, however short they are, and in full."""
    topology = degraded(hosts)
    for trees in FORESTS:
        for chunks in ERROR_CHUNKS:
            fan = FEW_FAN if trees <= FEW_TREES else MANY_FAN
            one = of_forest(topology, SIZE_BYTES, trees=trees, chunks=chunks // trees, fan=fan)
            named = replace(one, name=f"{trees} trees, {chunks // trees}")
            for alpha_us in ERROR_ALPHAS_US:
                yield _told(named, topology, alpha_us, whole=True, beginning=True)


def _told(one: Periodic, topology: Topology, alpha_us: float, whole: bool, beginning: bool = False) -> Row:
    found, took_s = _timed(partial(estimate, one, alpha_s=alpha_us * 1e-6, beginning=beginning))
    limit_s = _limit_s(topology.nhosts, one.name)
    row = Row(one.name, topology.nhosts, alpha_us, took_s, limit_s, found.seconds / _bound_s(topology), found.error)
    memory_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    simulated = found.periods / one.periods
    row = replace(row, simulated=simulated, ports_error=found.ports_error, memory_gib=memory_gib)
    return _checked(row, one, found) if whole and found.error else row


def _limit_s(hosts: int, name: str) -> float | None:
    if hosts == MOST_HOSTS:
        return 1 if name == "ring" else 10
    return 60 if hosts > MOST_HOSTS else None


def _schedules(topology: Topology, alpha_s: float) -> Iterator[Periodic]:
    """Ring and forests for any number of hosts, the others up to `MOST_HOSTS`."""
    yield of_ring(topology, SIZE_BYTES, slices=max(1, min(8, CHUNKS // topology.nhosts)))
    yield of_forest(topology, SIZE_BYTES, trees=2, chunks=CHUNKS_OF_A_TREE)
    if topology.nhosts > MOST_HOSTS:
        return
    for trees in DENSE:
        dense = of_forest(topology, SIZE_BYTES, trees=trees, chunks=CHUNKS // trees, fan=16)
        yield replace(dense, name=f"forest, {trees} trees")
    for one in plan(topology, "all_reduce", SIZE_BYTES, alpha_s).candidates:
        if one.name in ("hot_repair", "ring") or (one.name == "forest" and not alpha_s):
            continue  # as above; hot repair is a ring
        made = of_candidate(one.name, one.parameters, topology, SIZE_BYTES)
        yield replace(made, name="forest, as planned") if one.name == "forest" else made


def _checked(row: Row, schedule: Periodic, found: Estimate) -> Row:
    alpha_s = row.alpha_us * 1e-6
    if schedule.forest is None:
        part = schedule.part(schedule.periods)
        true_s = simulate(part.schedule, part.topology, part.size_bytes, alpha_s=alpha_s).seconds
        return replace(row, true_error=found.seconds / true_s - 1)
    run = Looped(schedule)
    if found.periods < schedule.periods:
        true_s = mean(run(alpha_s, seed=seed).seconds for seed in range(found.runs))
        row = replace(row, true_error=found.seconds / true_s - 1)
    if found.ports_error:
        row = replace(row, true_ports_error=found.seconds / _true_mean_s(run, alpha_s) - 1)
    return row


def _true_mean_s(run: Looped, alpha_s: float) -> float:
    """Of runs on other ports than those of the estimate."""
    runs_s: list[float] = []
    while len(runs_s) < LEAST_TRUE_RUNS or (
        len(runs_s) < MOST_TRUE_RUNS and stdev(runs_s) / len(runs_s) ** 0.5 > TRUE_ERROR * mean(runs_s)
    ):
        runs_s.append(run(alpha_s, seed=100 + len(runs_s)).seconds)
    return mean(runs_s)


def _bound_s(topology: Topology) -> float:
    return bound_s("all_reduce", topology.rates_bytes_s, SIZE_BYTES)


def _timed(run: Callable[[], T]) -> tuple[T, float]:
    start_s = time.process_time()
    result = run()
    return result, time.process_time() - start_s


def main() -> None:
    """Prints the rows as they come."""
    parser = argparse.ArgumentParser(prog="python -m r2ccl_core.perf.scale", description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[64, 256, 1024, 16384], help="numbers of hosts")
    parser.add_argument("--whole", type=int, default=256, help="up to so many hosts, also in full (the true error)")
    parser.add_argument("--alpha", type=float, default=5, help="microseconds that a message costs, in the second half")
    parser.add_argument("--errors", action="store_true", help="only how often the told error of forests holds")
    given = parser.parse_args()
    if min(given.hosts) < 3 or given.alpha <= 0:
        parser.error("--hosts: 3 or more; --alpha: more than 0")
    if given.errors:
        _print_errors(given.hosts)
        return
    for hosts in given.hosts:
        print(planning(hosts), flush=True)
        for alpha_us in (0.0, given.alpha):
            for row in schedules(hosts, alpha_us, hosts <= given.whole):
                print(row, flush=True)


def _print_errors(hosts: list[int]) -> None:
    """Every case, and for each cost of a message how many held."""
    rows = []
    for row in (row for one in hosts for row in errors(one)):
        print(row, flush=True)
        rows.append(row)
    for alpha_us in ERROR_ALPHAS_US:
        these = [row for row in rows if row.alpha_us == alpha_us]
        checked = [row for row in these if row.told_error and row.true_error is not None]
        held = sum(abs(row.true_error or 0) <= (row.told_error or 0) + PRINTED for row in checked)
        simulated = sum(row.simulated or 0 for row in checked) / max(1, len(checked))
        line = f"{alpha_us:3g} us a message: {held} of {len(checked)} told errors hold, {simulated:.0%} simulated"
        chance = [row for row in these if row.true_ports_error is not None]
        held = sum(abs(row.true_ports_error or 0) <= hypot(row.ports_error or 0, row.told_error or 0) for row in chance)
        print(line + (f"; {held} of {len(chance)} hold of other ports" if chance else ""))


if __name__ == "__main__":
    main()
