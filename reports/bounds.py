"""Compares a run with the bounds of its experiment. Pure, except for `held_in`.

A bound applies to cells: one system, one size, one fault, one point of the axes. It holds if every cell that it selects
is within it, either by the metric's aggregate over repeats (`reports.metrics`) or by its worst repeat. If all trials of
a cell stayed inconclusive, the cell was not measured; the bound is then "not measured", unless another cell already
misses it. So is a bound on the worst repeat if one repeat was not measured, and one on a median if the trials that have
no value, since they stayed inconclusive or something else slowed their healthy iterations, could lie to either side of
it and so decide it. A total is open if such trials could add to it what breaks the bound. A time from an effect that is
not known well enough lies between known ends, as does a recovery time: a bound that holds, or is missed, at both is
decided. Time lost of which a trial saw only a part is at least that. A value that a cell need not have, such as the
T/T0 of a system that is supposed to stop, does not count as missing; what only some faults have is missing where the
system has it under the same fault at another size, and what no trial of a scenario has (`Metric.not_of`) where the
system went on.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pandas as pd

from reports import stats
from reports.bound_places import Bound, bounds_of, is_selected, named, narrowed, speaks_of
from reports.effect import uncertain_effects
from reports.load import load_folder
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.metrics.metric import Metric
from reports.targets import NOTHING_MEASURED, Target
from reports.trial import SIMULATED
from reports.wording import HIT_UNTIL_REPAIR, at_size, exactly, has, number, plural

EVERYTHING: Mapping[str, Sequence[str]] = MappingProxyType({})


@dataclass(frozen=True)
class Held:
    """One bound and its result. `met` is None if something was not measured and nothing measured misses the bound."""

    what: str
    wanted: str
    measured: str
    met: bool | None
    detail: str
    source: str = "measured"

    @property
    def line(self) -> str:
        """One line for people: ``bound missed: ...``."""
        unknown = "not measured" if self.measured == NOTHING_MEASURED else "not measured everywhere"
        word = {True: "held", False: "missed", None: unknown}[self.met]
        return f"bound {word}: {self.what}: {self.wanted}; {self.source} {self.measured} ({self.detail})"

    def target(self) -> Target:
        """The bound as a line of the headline table."""
        came_to = self.measured if self.source == "measured" else f"{self.measured} ({self.source})"
        return Target(self.what, self.wanted, came_to, self.met, self.detail)


@dataclass(frozen=True)
class _Cell:
    """One cell's value, and where it lies whatever the values are that something else made unknown."""

    name: str
    value: float
    least: float
    most: float
    end: str = ""
    """``at most `` or ``at least ``, if the value is one of the ends."""

    def surely_outside(self, low: float | None, high: float | None) -> bool:
        return (high is not None and self.least > high) or (low is not None and self.most < low)

    def surely_within(self, low: float | None, high: float | None) -> bool:
        return max(_excess(self.least, low, high), _excess(self.most, low, high)) <= 0

    def by_its_ends(self, low: float | None, high: float | None) -> "_Cell":
        """The cell with the end that decides it as its value, if the known values do not come to one between both."""
        within = self.surely_within(low, high)
        if self.least <= self.value <= self.most or not (within or self.surely_outside(low, high)):
            return self
        ends = {self.most: "at most ", self.least: "at least "}
        value = (max if within else min)(ends, key=lambda end: _excess(end, low, high))
        return replace(self, value=value, end=ends[value])

    def by_its_least(self) -> "_Cell":
        """The cell with its lower end as its value, if that is all that is known of it."""
        if not math.isnan(self.value) or not math.isfinite(self.least):
            return self
        return replace(self, value=self.least, end="at least ")

    def told(self, low: float | None, high: float | None, metric: Metric) -> str:
        return self.end + _told(self.value, low, high, metric)


def held_in(folder: Path) -> list[Held]:
    """Every bound of the run in `folder`. Raises `ReportError` if the folder cannot be read."""
    loaded = load_folder(folder)
    return held(trial_frame([loaded]), loaded.run.experiment, loaded.incomplete, loaded.run.only)


def held(
    frame: pd.DataFrame,
    experiment: Mapping[str, Any],
    incomplete: str = "",
    only: Mapping[str, Sequence[str]] = EVERYTHING,
) -> list[Held]:
    """Compares every bound of `experiment` (as stored in run.json) with the trials (`reports.measures.trial_frame`).

    A bound on trials that this run did not select (by `only`) is left out, and `reports.bound_places.not_judged` tells
    it; one on trials of which it selected some says so. None holds if trials may be missing
    (`reports.load.LoadedRun.incomplete`).
    """
    found = []
    for bound in bounds_of(experiment):
        one = _held(frame, bound, bool(incomplete) and is_selected(bound, only))
        if one is not None:
            on = narrowed(bound, only) if one.measured != NOTHING_MEASURED else ""
            one = replace(one, detail="; ".join(filter(None, (one.detail, on))))
            found.append(without_all(one, incomplete))
    return found


Result = TypeVar("Result", Held, Target)


def without_all(result: Result, incomplete: str) -> Result:
    """The result of a run that is `incomplete` (`reports.load.LoadedRun`): what is missing may miss what the rest
    holds."""
    if not incomplete:
        return result
    told = "; ".join(filter(None, (result.detail, incomplete)))
    return replace(result, met=None if result.met else result.met, detail=told)


def _held(frame: pd.DataFrame, bound: Bound, missing: bool) -> Held | None:
    """The result of one bound; None if it is on no trial, unless such trials may be `missing`."""
    about = (frame[name] for name in ("plain_system", "size_bytes", "scenario", "points"))
    chosen = frame[[speaks_of(bound, *trial) for trial in zip(*about, strict=True)]]
    low, high = _limit(bound.get("min")), _limit(bound.get("max"))
    metric = METRICS[str(bound["metric"])]
    unit = f", {metric.unit}" if metric.unit else ""
    what, wanted = f"{named(bound)}: {metric.in_short}{unit}", _wanted(low, high, metric)
    if chosen.empty:
        return Held(what, wanted, NOTHING_MEASURED, None, "none of its trials is there") if missing else None
    cells, holes, partly, without = _cells(frame, chosen, bound)
    if not cells:
        known, trials = int(chosen[metric.name].notna().sum()), plural(len(chosen), "trial")
        told = f"known in {known} of {trials}, too few for a median" if known else f"none of {trials} measured it"
        why = f"{_held_up(chosen, metric)}{_not_of(frame, chosen, metric, bound)}"
        return Held(what, wanted, NOTHING_MEASURED, None, f"{told}{why}")
    surely = [cell for cell in cells if cell.surely_outside(low, high)]
    worst = max(cells, key=lambda cell: _excess(cell.value, low, high))
    names = f"{worst.name}, the worst of {len(cells)} cells" if len(cells) > 1 else worst.name
    doubtful = [cell for cell in cells if not cell.surely_outside(low, high) and not cell.surely_within(low, high)]
    if doubtful:
        names += f"; {_why_open(doubtful, metric, chosen)}"
    if surely and worst not in surely:
        sure = max(surely, key=lambda cell: _excess(cell.value, low, high))
        names += f", but not in {sure.name}, with {sure.told(low, high, metric)}"
    gaps = [plural(len(holes), "other cell")] if holes else []
    gaps += (
        [f"{plural(sum(partly.values()), 'trial')} of {'these' if len(cells) > 1 else 'this one'}"] if partly else []
    )
    names += f"; not measured: {' and '.join(gaps)}, first {next(iter([*holes, *partly]))}" if gaps else ""
    names += _held_up(chosen, metric) if gaps or doubtful else ""
    names += _not_of(frame, chosen, metric, bound) if gaps else ""
    if without:
        names += f"; {plural(without, 'other cell')} {has(without)} no such value"
    unsure = uncertain_effects(metric.errors_ms(chosen))
    names += f"; {unsure}" if unsure else ""
    source = "simulated" if SIMULATED in worst.name else "measured"
    met = False if surely else None if gaps or doubtful else True
    return Held(what, wanted, worst.told(low, high, metric), met, names, source)


def _held_up(chosen: pd.DataFrame, metric: Metric) -> str:
    """In how many trials a value that they should have is absent since what was hit lasted until the repair."""
    lacking = chosen[metric.held_up(chosen)]
    count = sum(_should_have(_needed(metric, row), chosen, row) for _, row in lacking.iterrows())
    return f"; in {plural(count, 'trial')}, {HIT_UNTIL_REPAIR}" if count else ""


NOT_OF = {"several": "several failures", "comes_and_goes": "a fault that comes and goes"}
"""What `Metric.not_of` excludes, in words."""


def _excluded(metric: Metric, frame: pd.DataFrame, row: "pd.Series[Any]") -> list[str]:
    """What of the scenario of a trial (`row`) excludes the metric. One that stopped does not tell what was to come."""
    alike = frame[(frame["scenario"] == row["scenario"]) & frame["faulted"]]
    return [name for name in metric.not_of if alike[name].any()]


def _not_of(frame: pd.DataFrame, chosen: pd.DataFrame, metric: Metric, bound: Bound) -> str:
    """Why trials can have no value of the metric, and what to do: a bound that names such a fault is on nothing."""
    went_on = chosen[~((chosen["status"] == "failed") & chosen["expected"])] if metric.not_of else chosen[:0]
    names = dict.fromkeys(name for _, row in went_on.iterrows() for name in _excluded(metric, frame, row))
    if not names:
        return ""
    kinds = " or ".join(NOT_OF[name] for name in names)
    remedy = "name the faults that the bound is on" if bound.get("fault") is None else "leave this bound out"
    return f"; {metric.name} is of no scenario of {kinds}: {remedy}"


def _needed(metric: Metric, row: "pd.Series[Any]") -> Metric:
    """The metric, of every trial that went on if it compares with what follows the fault of a trial (`row`)."""
    return replace(metric, of="trials that went on") if metric.against_after and not row["comes_and_goes"] else metric


def _why_open(doubtful: Sequence[_Cell], metric: Metric, chosen: pd.DataFrame) -> str:
    """What leaves a bound open in some cells."""
    cells = plural(len(doubtful), "cell")
    least, most = min(cell.least for cell in doubtful), max(cell.most for cell in doubtful)
    if metric.at_least is not None and math.isfinite(least):
        return f"trials that ended before {metric.name} was known decide it in {cells}"
    if metric.seen_in_part(chosen).any():
        unknown = "whose value is not known, or " if metric.not_known(chosen).any() else ""
        return f"trials {unknown}that ended before the cost was over decide it in {cells}"
    if not metric.upper or math.isinf(most):
        return f"the trials whose value is not known, or not well enough, decide it in {cells}"
    return (
        f"what their values may be decides it in {cells}: {metric.name} is {number(least)} or more there, and "
        f"{metric.upper} up to {number(most)}"
    )


def _may_lack(part: pd.DataFrame, metric: Metric) -> bool:
    """Whether a cell without a value is told although it need not have one: its trials are of those that can have the
    metric, but for example nothing followed the fault before its heal."""
    conclusive = part[part["status"] != "inconclusive"]
    ends = zip(conclusive["faulted"], conclusive["status"] == "failed", strict=True)
    return any(metric.can_belong_to(faulted=faulted, failed=failed) for faulted, failed in ends)


def _told(value: float, low: float | None, high: float | None, metric: Metric) -> str:
    """Formats `value` with as many digits as it takes to see on which side of its limits it lies."""
    if metric.percent:
        return f"{_digits(100 * value, *(None if limit is None else 100 * limit for limit in (low, high)))} %"
    return _digits(value, low, high)


def _digits(value: float, low: float | None, high: float | None) -> str:
    met = _excess(value, low, high) <= 0
    digits = next((n for n in range(4, 9) if (_excess(float(f"{value:.{n}g}"), low, high) <= 0) == met), 9)
    return number(value, digits)


def _cells(
    frame: pd.DataFrame, chosen: pd.DataFrame, bound: Bound
) -> tuple[list[_Cell], list[str], dict[str, int], int]:
    """Every cell that measured the metric, with its value; the cells that should have measured it but did not; if the
    bound is on each trial, those of which some trials did not, and how many; and how many others have no value."""
    metric = METRICS[str(bound["metric"])]
    low, high = _limit(bound.get("min")), _limit(bound.get("max"))
    cells, holes, partly, lacking = [], [], {}, 0
    names = chosen["system"] + chosen["size_bytes"].map(lambda size: at_size(int(size)))
    for name, part in chosen.groupby(names + ", " + chosen["case"], sort=False):
        known = stats.known(part[metric.name])
        slowed = metric.not_known(part)
        without = part[part[metric.name].isna() & ~slowed]
        elsewhere = metric.of_faults and _has_value_under(metric, frame, part)
        elsewhere |= metric.of.startswith("some") and _was_not_watched(metric, frame, part)
        unsure = int(slowed.sum()) if metric.known_by_ends else 0
        gaps = [_is_gap(metric, frame, row, elsewhere, beside=known.size > 0) for _, row in without.iterrows()]
        missing = int(slowed.sum()) + sum(gaps)
        every = bound.get("of") == "worst"
        if not known.size and not unsure:
            holes += [str(name)] if missing else []
            lacking += not missing and _may_lack(part, metric)
            continue
        together = metric.together(known, unknown=metric.unknown_in(part))
        counted = _farthest(known, low, high) if every and known.size else together
        of = f"{known.size or 'none'} of " if missing else ""
        told = f"{name}, {of}{plural(int(known.size) + missing, 'trial')}"
        cell = _Cell(told, counted, *_ends(part, metric, every, missing - unsure, low, high))
        cell = cell.by_its_ends(low, high) if metric.known_by_ends or math.isnan(cell.value) else cell
        cell = cell.by_its_least() if metric.at_least is not None else cell
        if math.isnan(cell.value):
            holes.append(str(name))
            continue
        cells.append(cell)
        if missing > unsure and every:
            partly[str(name)] = missing - unsure
    return cells, holes, partly, lacking


def _ends(
    part: pd.DataFrame, metric: Metric, every: bool, unknown: int, low: float | None, high: float | None
) -> tuple[float, float]:
    """Between which values that of a cell lies, whatever those are that are not known well enough and `unknown` others.
    Of a bound on every trial, these are told apart."""
    ends = metric.ends(part)
    if every:
        return _farthest(ends[0], low, high), _farthest(ends[1], low, high)
    return metric.between(ends[0], unknown)[0], metric.between(ends[1], unknown)[1]


def _farthest(values: Iterable[float | None], low: float | None, high: float | None) -> float:
    """The value that misses the limits most, or holds them least."""
    return float(max(stats.with_infinite(values), key=lambda value: _excess(float(value), low, high)))


def _was_not_watched(metric: Metric, frame: pd.DataFrame, part: pd.DataFrame) -> bool:
    """Whether every trial of a cell (`part`) is inconclusive, of a system that has the metric elsewhere, or of one of
    which no other trial says whether it has what another system has under the same fault."""
    if not (part["status"] == "inconclusive").all():
        return False
    if (metric.of != "some trials" or metric.needs_fault) and str(part["scenario"].iloc[0]).startswith("healthy"):
        return False
    own = frame[(frame["system"] == part["system"].iloc[0]) & (frame["status"] != "inconclusive")]
    stops = own[(own["scenario"] == part["scenario"].iloc[0]) & own["faulted"]]
    if metric.of.endswith("went on") and len(stops) and (stops["status"] == "failed").all():
        return False
    alike = frame[(frame["scenario"] == part["scenario"].iloc[0]) & (frame["status"] != "inconclusive")]
    others = metric.of_faults and not len(stops) and alike[metric.name].notna().any()
    return bool(others or own[metric.name].notna().any())


def _has_value_under(metric: Metric, frame: pd.DataFrame, part: pd.DataFrame) -> bool:
    """Whether the system of a cell (`part`) has a value of `metric` anywhere under the fault of the cell."""
    alike = (frame["system"] == part["system"].iloc[0]) & (frame["scenario"] == part["scenario"].iloc[0])
    return bool(frame.loc[alike, metric.name].notna().any())


def _is_gap(metric: Metric, frame: pd.DataFrame, row: "pd.Series[Any]", elsewhere: bool, beside: bool) -> bool:
    """Whether a trial without a value should have one; `elsewhere`: its system has one under the same fault; `beside`:
    another repeat of its cell has one."""
    if _excluded(metric, frame, row) or (metric.against_after and pd.isna(row["after_ms"])):
        return _should_have(replace(metric, of="trials that went on"), frame, row)
    unwatched = beside and row["status"] == "inconclusive" and metric.of.startswith("some")
    return elsewhere or unwatched or _should_have(metric, frame, row)


def _should_have(metric: Metric, frame: pd.DataFrame, row: "pd.Series[Any]") -> bool:
    """Whether a trial without a value, and not for being unknown, is a gap; for an inconclusive trial,
    the conclusive ones of its cell decide, or of its fault, or of its system."""
    # Healed before an iteration began: none lies after the fault. If one was hit, and lasted until then, that is worse.
    if pd.isna(row["after_ms"]) and not pd.isna(row["repaired_ms"]) and not row["until_repair"]:
        return False
    if row["status"] == "inconclusive":
        alike = frame[(frame["system"] == row["system"]) & frame["faulted"] & (frame["status"] != "inconclusive")]
        of_fault = alike[alike["scenario"] == row["scenario"]]
        of_cell = of_fault[(of_fault["case"] == row["case"]) & (of_fault["size_bytes"] == row["size_bytes"])]
        alike = next((some for some in (of_cell, of_fault) if len(some)), alike)
        ended = (alike["status"] == "failed") & alike["expected"]
        # Of one that stops under some faults, a trial under another may have stopped or not: either way it is missing.
        stops = bool(ended.any() if metric.of == "trials that stopped" else len(ended) and ended.all())
    else:
        stops = bool((row["status"] == "failed") == row["expected"])
    if not metric.is_of(row["workload"]):
        return False
    if metric.of == "trials that stopped" and row["status"] == "failed":
        return True  # it hung, or was killed
    return metric.belongs_to(faulted=row["scenario"] != "healthy", failed=stops)


def _excess(value: float, low: float | None, high: float | None) -> float:
    """How far `value` lies outside its limits; negative inside, and the more negative the safer."""
    return max(value - high if high is not None else -float("inf"), low - value if low is not None else -float("inf"))


def _limit(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _limit_text(limit: float, metric: Metric) -> str:
    return f"{exactly(100 * limit)} %" if metric.percent else exactly(limit)


def _wanted(low: float | None, high: float | None, metric: Metric) -> str:
    parts = [f"at least {_limit_text(low, metric)}"] if low is not None else []
    parts += [f"at most {_limit_text(high, metric)}"] if high is not None else []
    return " and ".join(parts)
