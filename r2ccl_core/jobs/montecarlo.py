"""Simulates many patterns of failures. Every trial has its own seed, so the results do not depend on where trials run
(`spread`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from r2ccl_core import spread
from r2ccl_core.errors import UsageError
from r2ccl_core.jobs.failures import Rates, Trace, concurrent, draw
from r2ccl_core.jobs.goodput import CAUSES, Job, lost_hours, slowdown
from r2ccl_core.jobs.systems import SYSTEMS, System

BATCHES = 32
"""Number of batches that go to the workers, so that all are busy to the end and each keeps its cached results."""


@dataclass(frozen=True)
class Spread:
    """A mean over trials with their 5th and 95th percentile."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one value."""
        ordered = sorted(values)
        return cls(fmean(ordered), _at(ordered, 0.05), _at(ordered, 0.95))


@dataclass(frozen=True)
class Overhead:
    """Additional time of an iteration with a number of concurrent failures, relative, by system."""

    system: str
    failures: int
    spread: Spread


@dataclass(frozen=True)
class Goodput:
    """The useful part of a job's time, and GPU hours lost per day by cause (means over trials)."""

    system: str
    goodput: Spread
    gpu_hours_a_day: dict[str, float]


def overheads(
    job: Job,
    failures: Sequence[int],
    *,
    patterns: int = 1000,
    seed: int = 0,
    systems: Sequence[System] = SYSTEMS,
) -> list[Overhead]:
    """``patterns`` draws, spread evenly over the numbers of concurrent ``failures``."""
    if patterns < len(failures) or not failures:
        raise UsageError(f"{patterns} patterns do not suffice for {len(failures)} numbers of failures")
    each = patterns // len(failures)
    trials = [(k, f"{seed}/{k}/{number}") for k in failures for number in range(each)]
    work, run = f"overheads {job} {systems}", partial(_overheads_of, job, tuple(systems))
    values = spread.results(work, run, trials, batch=-(-len(trials) // BATCHES))
    return [
        Overhead(
            system.name,
            k,
            Spread.of([row[at] for (own, _), row in zip(trials, values, strict=True) if own == k]),
        )
        for k in failures
        for at, system in enumerate(systems)
    ]


def goodputs(
    job: Job,
    rates: Rates | Trace,
    *,
    days: int = 54,
    trials: int = 100,
    seed: int = 0,
    systems: Sequence[System] = SYSTEMS,
) -> list[Goodput]:
    """``trials`` jobs of this many days; all systems see the same failures."""
    if trials < 1:
        raise UsageError(f"{trials} trials: give 1 or more")
    seeds = [f"{seed}/{number}" for number in range(trials)]
    work, run = f"goodputs {job} {systems} {rates} {days}", partial(_goodputs_of, job, tuple(systems), rates, days)
    found = spread.results(work, run, seeds, batch=-(-len(seeds) // BATCHES))
    return [
        Goodput(
            system.name,
            Spread.of([row[at][0] for row in found]),
            {cause: fmean(row[at][1][cause] for row in found) * job.gpus / days for cause in CAUSES},
        )
        for at, system in enumerate(systems)
    ]


def _overheads_of(job: Job, systems: tuple[System, ...], trial: tuple[int, str]) -> tuple[float, ...]:
    lost = concurrent(job.hosts, job.nics, *trial)
    return tuple(slowdown(job, system, lost) - 1 for system in systems)


def _goodputs_of(
    job: Job, systems: tuple[System, ...], rates: Rates | Trace, days: int, seed: str
) -> tuple[tuple[float, dict[str, float]], ...]:
    events = draw(rates, job.hosts, job.nics, days, seed)
    found = (lost_hours(job, system, events, days) for system in systems)
    return tuple((one.goodput, one.by_cause) for one in found)


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
