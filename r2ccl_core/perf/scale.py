"""What simulating and planning large clusters costs: ``python -m r2ccl_core.perf.scale``.

One line a case: seconds of one processor, the time over the lower bound, the error that is told, and where the whole
schedule is affordable the true one. One host of 8 NICs has lost one.
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from r2ccl_core.errors import UsageError
from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.bound import bound_s
from r2ccl_core.planning.periodic import Estimate, Periodic, estimate, of_candidate, of_forest, of_ring
from r2ccl_core.planning.planner import plan
from r2ccl_core.planning.simulate import simulate

T = TypeVar("T")

SIZE_BYTES = 1 << 30
NICS = 8
NIC_BYTES_S = 50e9
ROUNDS = 2048
CHUNKS = 4096
MOST_HOSTS = 1024
"""Above, only what is asked of 16,384 hosts."""
DENSE = (8, 16, 24)
"""Trees of the forests that are hardest to simulate."""


@dataclass(frozen=True)
class Row:
    """One case; what was not asked for is None."""

    what: str
    hosts: int
    took_s: float
    over_bound: float | None = None
    told_error: float | None = None
    true_error: float | None = None

    def __str__(self) -> str:
        cells = [f"{self.what:18} {self.hosts:6} hosts {self.took_s:8.2f} s"]
        if self.over_bound is not None:
            cells.append(f"time/bound {self.over_bound:.4f}")
        if self.told_error is not None:
            cells.append(f"told error {self.told_error:.3%}")
        if self.true_error is not None:
            cells.append(f"true error {self.true_error:.3%}")
        return "  ".join(cells)


def degraded(hosts: int) -> Topology:
    """One NIC of the first host is lost."""
    return Topology.uniform(hosts, NICS, NIC_BYTES_S).lost(0, 0)


def planning(hosts: int) -> Row:
    """One plan, without anything kept from before."""
    topology = degraded(hosts)
    _, took_s = _timed(lambda: plan(topology, "all_reduce", SIZE_BYTES, 5e-6))
    return Row("plan", hosts, took_s)


def schedules(hosts: int, whole: bool) -> Iterator[Row]:
    """The planner's schedules by a few of their periods; with ``whole`` also in full, for the true error."""
    topology = degraded(hosts)
    for one in _schedules(topology):
        found, took_s = _timed(partial(estimate, one))
        told = Row(one.name, hosts, took_s, found.seconds / _bound_s(topology), found.error)
        yield _checked(told, one, found) if whole and found.error else told


def _schedules(topology: Topology) -> Iterator[Periodic]:
    """Ring and forests for any number of hosts, the others up to `MOST_HOSTS`."""
    yield of_ring(topology, SIZE_BYTES, slices=max(1, min(8, CHUNKS // topology.nhosts)))
    yield of_forest(topology, SIZE_BYTES, trees=2, rounds=ROUNDS)
    if topology.nhosts > MOST_HOSTS:
        return
    for trees in DENSE:
        dense = of_forest(topology, SIZE_BYTES, trees=trees, rounds=CHUNKS // trees, fan=16)
        yield replace(dense, name=f"forest, {trees} trees")
    for one in plan(topology, "all_reduce", SIZE_BYTES).candidates:
        if one.name not in ("hot_repair", "ring", "forest"):  # hot repair is a ring
            yield of_candidate(one.name, one.settings, topology, SIZE_BYTES)


def _checked(row: Row, schedule: Periodic, found: Estimate) -> Row:
    part = schedule.part(schedule.periods)
    full_s = simulate(part.schedule, part.topology, part.size_bytes).seconds
    return replace(row, true_error=found.seconds / full_s - 1)


def _bound_s(topology: Topology) -> float:
    return bound_s("all_reduce", topology.rates_bytes_s, SIZE_BYTES)


def _timed(run: Callable[[], T]) -> tuple[T, float]:
    start_s = time.process_time()
    result = run()
    return result, time.process_time() - start_s


def main() -> None:
    """Prints the rows, as they come, and the memory that was used."""
    parser = argparse.ArgumentParser(prog="python -m r2ccl_core.perf.scale", description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[64, 256, 1024, 16384], help="numbers of hosts")
    parser.add_argument("--whole", type=int, default=256, help="up to so many hosts, also in full (the true error)")
    given = parser.parse_args()
    if min(given.hosts) < 3:
        raise UsageError("numbers of hosts must be 3 or more")
    for hosts in given.hosts:
        print(planning(hosts), flush=True)
        for row in schedules(hosts, hosts <= given.whole):
            print(row, flush=True)
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20):.2f} GiB at most")


if __name__ == "__main__":
    main()
