"""The result of a sweep: which trials are still to run, the exit status, and a short table. Pure.

If a trial has several attempts, the last one counts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from harness.errors import ExitCode
from harness.sweep.plan import Trial
from reports import trial as stored
from reports.metrics import METRICS, cost
from reports.metrics.metric import Metric
from reports.metrics.view import View
from reports.wording import tally

SHORT = [metric for metric in METRICS.values() if metric.short]
"""The metrics that the terminal shows of a trial, and in its table of collectives."""
SHORT_NAMES: Mapping[str, str] = MappingProxyType({metric.name: metric.short for metric in SHORT})


class Line(NamedTuple):
    """One row of the table: a size and a system over all repeats."""

    size_bytes: int
    system: str
    points: str
    """The label of the fault, if there are several, and the values on the axes: ``nic_down dtype=float16``."""
    statuses: str
    values: Mapping[str, float]
    """The metrics that the terminal shows, each by its aggregate; unknown ones are left out."""
    known_in: Mapping[str, tuple[int, int]] = MappingProxyType({})
    """Of metrics that something else made unknown in some trials, because it slowed their healthy iterations: in how
    many trials of how many they are known."""
    columns: Mapping[str, str] = SHORT_NAMES
    """The headings of the metrics that the table shows."""
    comes_and_goes: bool = False
    """Whether its fault comes and goes, so that *after* and T/T0 are of means."""


def last_attempts(records: Iterable[stored.Trial]) -> dict[str, stored.Trial]:
    """The last attempt of every trial, by the trial's own id."""
    return {record.cell_id: record for record in sorted(records, key=lambda r: r.attempt)}


def next_attempt(trial: Trial, records: Mapping[str, stored.Trial], retries: int) -> int | None:
    """The number of the attempt that `trial` needs next; None if it is finished. `records`: last attempts."""
    record = records.get(trial.trial_id)
    if record is None:
        return 1
    again = record.status == "inconclusive" and record.attempt <= retries
    return record.attempt + 1 if again else None


def exit_code(records: Iterable[stored.Trial]) -> ExitCode:
    """The worst result of the last attempts: wrong or unexpected, then inconclusive, then all as expected."""
    last = last_attempts(records).values()
    if any(r.status != "inconclusive" and not r.expected for r in last):
        return ExitCode.WRONG
    return ExitCode.INCONCLUSIVE if any(r.status == "inconclusive" for r in last) else ExitCode.OK


def with_bounds(status: ExitCode, held: Sequence[bool | None]) -> ExitCode:
    """`status` after the bounds are checked: a missed one counts like a wrong result."""
    if status is ExitCode.WRONG or False in held:
        return ExitCode.WRONG
    return ExitCode.INCONCLUSIVE if None in held else status


def table(records: Iterable[stored.Trial]) -> list[Line]:
    """One line per size, system and point of the axes, sorted by them."""
    groups: dict[tuple[int, str, str], list[stored.Trial]] = {}
    last = list(last_attempts(records).values())
    several = len({record.shown_scenario for record in last}) > 1
    for record in last:
        groups.setdefault((record.size_bytes, record.shown_system, _points(record, several)), []).append(record)
    columns, found = _columns(last)
    lines = [_line(*key, groups[key], columns) for key in sorted(groups)]
    beside = [
        {name: METRICS[name].together(values.get(record.trial_id) for record in groups[key])
         for name, values in found.items()}
        for key in sorted(groups)
    ]  # fmt: skip
    known = [{name: value for name, value in told.items() if value == value} for told in beside]
    return [line._replace(values={**line.values, **more}) for line, more in zip(lines, known, strict=True)]


def _columns(records: Sequence[stored.Trial]) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, float]]]:
    """The columns of the workload's first screen in the report, and of those that compare a trial with others the
    values by trial; where there is nothing to compare with, what a trial has by itself. Of collectives, the short
    metrics, which a trial has by itself, too."""
    kinds = {record.workload for record in records}
    if kinds <= {"collective"}:
        return SHORT_NAMES, {}
    from reports.measures import among_trials
    from reports.screens import screen_for

    views = [View(record) for record in records]
    screen = screen_for(kinds, lambda metric: any(METRICS[metric].value(view) is not None for view in views))
    columns = screen.terminal or SHORT_NAMES
    values = among_trials(records, list(columns))
    lacking = {name: other for name, other in screen.uncompared.items() if name in values and values[name].isna().all()}
    columns = {lacking.get(name, name): heading for name, heading in columns.items()}
    ids = [record.trial_id for record in records]
    return columns, {str(n): dict(zip(ids, values[n], strict=True)) for n in values if n not in lacking}


def _points(record: stored.Trial, several: bool) -> str:
    """The label of a line among others of its size and system: its fault, if there are several, and its axes."""
    points = [f"{axis}={value}" for axis, value in record.axes.items()]
    return " ".join([*([record.shown_scenario] if several else []), *points])


def told(records: Iterable[stored.Trial], metrics: Iterable[Metric]) -> dict[str, float]:
    """Each of `metrics` over `records`, as in the report; unknown ones are left out."""
    views = [View(record) for record in records]
    found = {m.name: m.together(map(m.value, views), unknown=_unknown(m, views)) for m in metrics}
    return {name: value for name, value in found.items() if value == value}


def _unknown(metric: Metric, views: Sequence[View]) -> int:
    """In how many trials its value is not known, as `Metric.unknown_in` counts them."""

    def slowed(view: View) -> bool:
        slowdown = metric.by_medians or (metric.like_slowdown and view.comes_and_goes)
        lost = not metric.by_medians and bool(cost.disturbed(view))
        return lost or (slowdown and cost.disturbed_slowdown(view))

    return sum(slowed(v) and metric.value(v) is None for v in views) if metric.against_healthy else 0


def _line(
    size_bytes: int, system: str, points: str, records: Sequence[stored.Trial], columns: Mapping[str, str]
) -> Line:
    counted = tally((r.status, r.expected) for r in records)
    values = told(records, [METRICS[name] for name in columns])
    comes_and_goes = any(View(record).comes_and_goes for record in records)
    return Line(size_bytes, system, points, counted, values, dict(_known_in(records)), columns, comes_and_goes)


def _known_in(records: Sequence[stored.Trial]) -> Iterator[tuple[str, tuple[int, int]]]:
    """As the report counts them (`reports.headline.Line.unknown`)."""
    views = [View(record) for record in records]
    faulted = any(record.fault for record in records)
    went_on = sum(record.status not in ("failed", "inconclusive") for record in records) if faulted else 0
    for metric in SHORT:
        unknown = _unknown(metric, views)
        known = sum(metric.value(view) is not None for view in views)
        trials = metric.should_be_known_in(known, unknown, went_on)
        if unknown or 0 < known < trials:
            yield metric.name, (known, trials)
