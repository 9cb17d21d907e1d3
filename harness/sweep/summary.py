"""What a sweep came to: which trials are still to run, the exit code, and a short table. Pure.

Several attempts of one trial count as the last of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from harness.errors import ExitCode
from harness.sweep.plan import Trial
from reports import trial as stored
from reports.after import after
from reports.core_log import core_events
from reports.trial import Phase
from reports.wording import STOPPED


class Line(NamedTuple):
    """One row of the table: a size and a system over all repeats; bandwidths are medians in GB/s."""

    size_bytes: int
    system: str
    points: str
    """On the axes, and the healthy trials beside faulted ones: ``dtype=float16 healthy``."""
    statuses: str
    before_gbs: float | None
    hit_gbs: float | None
    after_gbs: float | None
    repaired_gbs: float | None
    slowdown: float | None
    """Duration after the fault over duration before it."""


def last_attempts(records: Iterable[stored.Trial]) -> dict[str, stored.Trial]:
    """The last attempt of every trial, by the trial's own id."""
    return {record.cell_id: record for record in sorted(records, key=lambda r: r.attempt)}


def next_attempt(trial: Trial, records: Mapping[str, stored.Trial], retries: int) -> int | None:
    """The number of the attempt that `trial` needs next; None if it is through. `records`: last attempts."""
    record = records.get(trial.trial_id)
    if record is None:
        return 1
    again = record.status == "inconclusive" and record.attempt <= retries
    return record.attempt + 1 if again else None


def exit_code(records: Iterable[stored.Trial]) -> ExitCode:
    """The worst that the last attempts say: wrong or unexpected, then inconclusive, then all as expected."""
    last = last_attempts(records).values()
    if any(r.status != "inconclusive" and not r.expected for r in last):
        return ExitCode.WRONG
    return ExitCode.INCONCLUSIVE if any(r.status == "inconclusive" for r in last) else ExitCode.OK


def with_bounds(status: ExitCode, held: Sequence[bool | None]) -> ExitCode:
    """`status` once the bounds have been looked at: a missed one is as wrong as a wrong result."""
    if status is ExitCode.WRONG or False in held:
        return ExitCode.WRONG
    return ExitCode.INCONCLUSIVE if None in held else status


def table(records: Iterable[stored.Trial]) -> list[Line]:
    """One line a size, system and point of the axes, sorted by them."""
    groups: dict[tuple[int, str, str], list[stored.Trial]] = {}
    last = list(last_attempts(records).values())
    several = len({_scenario(record) for record in last}) > 1
    for record in last:
        groups.setdefault((record.size_bytes, record.shown_system, _points(record, several)), []).append(record)
    return [_line(*key, groups[key]) for key in sorted(groups)]


def _scenario(record: stored.Trial) -> str:
    """Healthy trials before and after the others are one thing."""
    return "healthy" if record.scenario.startswith("healthy_") else record.scenario


def _points(record: stored.Trial, several: bool) -> str:
    """What tells a line from others of its size and system: its fault, where there are several, and its axes."""
    points = [f"{axis}={value}" for axis, value in record.axes.items()]
    return " ".join([*([_scenario(record)] if several else []), *points])


def bandwidth_gbs(records: Sequence[stored.Trial], phase: Phase) -> float | None:
    """Median over trials of their median bus bandwidth in `phase`."""
    return _median([_median([i.busbw_gbs for i in in_phase(r, phase)]) for r in records])


def slowdown_of(record: stored.Trial) -> float | None:
    """T/T0 of one trial: the median duration after the fault over that before it."""
    before = _median([i.duration_ns for i in in_phase(record, "before")])
    later = _median([i.duration_ns for i in in_phase(record, "after")])
    return later / before if before and later else None


def shown_status(record: stored.Trial) -> str:
    """Its status for people; what nobody expected ends in an exclamation mark."""
    if record.status == "failed" and record.expected:
        return STOPPED
    surprising = not record.expected and record.status != "inconclusive"
    return record.status + "!" * surprising


def _line(size_bytes: int, system: str, points: str, records: Sequence[stored.Trial]) -> Line:
    statuses = [shown_status(r) for r in records]
    counted = ", ".join(f"{statuses.count(s)} {s}" for s in sorted(set(statuses)))
    return Line(
        size_bytes,
        system,
        points,
        counted,
        bandwidth_gbs(records, "before"),
        bandwidth_gbs(records, "hit"),
        bandwidth_gbs(records, "after"),
        bandwidth_gbs(records, "repaired"),
        _median([slowdown_of(r) for r in records]),
    )


def in_phase(record: stored.Trial, phase: Phase) -> Sequence[stored.Iteration]:
    """Of those after the fault the ones that follow a change of the schedule, as in the report."""
    if phase == "after" and record.fault is not None:
        return after(record, core_events(record)).steady
    return [i for i in record.iterations if i.phase == phase]


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(median(known)) if known else None
