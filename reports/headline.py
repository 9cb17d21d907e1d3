"""The headline table: one line per system, size and fault, over all repeats. Pure.

The input is `reports.measures.trial_frame`. A line holds every metric (`reports.metrics`) with its estimate over
repeats, its worst trial and its aggregate, so every place that shows a metric shows the same number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import stats
from reports.metrics import METRICS
from reports.metrics.metric import Metric
from reports.not_back import in_trials
from reports.stats import Estimate
from reports.wording import NOTHING, not_known, tally

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Line:
    """One row of the headline table."""

    case: str
    setup: str
    """The case without the fault."""
    operation: str
    """What runs: collective, type, reduction, in or out of place."""
    beyond_axes: str
    """What of the operation is the value of no axis."""
    workload: str
    """Its kind: ``collective``, ``training``, ``serving``."""
    scenario: str
    points: Mapping[str, str]
    """The value on each axis."""
    size_bytes: int
    system: str
    """Its name; of several runs, with the run: ``balance (run 2)``."""
    plain_system: str
    """Its name in its experiment."""
    run: int
    """The number of its run in a report of several; 0: there is one run."""
    mode: int
    loses_nic: bool
    """Whether the fault is the permanent loss of one NIC of one host."""
    comes_and_goes: bool
    faulted: bool
    statuses: str
    as_expected: bool | None
    """Whether every conclusive trial ended as expected; None: no trial is conclusive."""
    conclusive: int
    """Trials that are not inconclusive."""
    inconclusive: int
    disturbed: int
    """Trials whose time lost is not known, because something else slowed their healthy iterations."""
    disturbed_slowdown: int
    """Trials whose T/T0 is not known for the same reason."""
    unsure: Mapping[str, int]
    """By metric, trials whose value is not known: because the fault's effect is not known well enough, or for either of
    the reasons for which time lost and T/T0 are not."""
    not_back: int
    """Trials with iterations after the repair that ended before their healed NIC carried again."""
    until_repair: int
    """Trials of which no iteration began between the fault and its repair."""
    to_be_repaired: int
    """Trials that went on in a fault that is repaired."""
    cost_goes_on: int
    """Of these, trials that ended before the cost of their fault was over."""
    back_in_part: int
    """Trials with iterations after the repair to whose end some paths of the healed NIC were held back, while others
    carried."""
    stopped: int
    """Trials that ended with an error."""
    checked: int
    """Iterations that were compared in full."""
    since: int
    """Iterations from the first hit one to the end, in the trial that has the fewest of those with a p99; 0: none."""
    model: float | None
    source: str
    """``simulated`` if no byte was moved."""
    transport: str
    """R2CC_TRANSPORT of the system; empty: not set."""
    rdma_type: str
    """The type of the RDMA devices (``rxe``, ``mlx5``) that perftest measured; empty: it is no system of perftest's."""
    values: Mapping[str, int]
    """How many trials have a value, by metric: also where that is too few for a median."""
    estimates: Mapping[str, Estimate]
    """Median and interval over repeats, by metric."""
    worst: Mapping[str, float]
    """The worst single trial, by metric."""
    ends: Mapping[str, tuple[float, float]]
    """The least and the greatest value of a single trial, by metric."""
    told: Mapping[str, float]
    """The aggregate of each metric: its median or its total."""

    def __getitem__(self, metric: str) -> Estimate:
        """The estimate of a metric; `n` is 0 if it was not measured."""
        return self.estimates[metric]

    def unknown(self, metric: Metric) -> int:
        """The trials whose value of `metric` is not known (`reports.metrics.metric.Metric.not_known`)."""
        if metric.name in self.unsure:
            return self.unsure[metric.name]
        if not metric.against_healthy:
            return 0
        return self.disturbed_slowdown if metric.by_medians else self.disturbed

    def known_in(self, metric: Metric) -> str:
        """``known in 2 of 3``: of how many trials a number is that should have it; empty: of all, or there is none."""
        known = self[metric.name].n
        went_on = self.conclusive - self.stopped if self.faulted else 0
        trials = metric.should_be_known_in(known, self.unknown(metric), went_on)
        return f"known in {known} of {trials}" if 0 < known < trials else ""

    def without_nic(self, metric: Metric) -> str:
        """``NIC not back in 2 of 3``: of how many trials a speed once everything is healed is without the healed NIC,
        or has it in part; empty: of none."""
        known = self.values[metric.name] if metric.name.startswith("repaired_") else 0
        return in_trials(self.not_back, self.back_in_part, known)

    def median_not_known(self, metric: Metric) -> str:
        """What stands for the median of a metric that is known in too few trials, or in none."""
        trials = self.stopped if metric.of == "trials that stopped" else self.conclusive - self.stopped
        return not_known(self.unknown(metric), trials)

    def no_total(self, metric: Metric) -> str:
        """What stands for a total that no trial has: its elements were not checked, or there is nothing to count."""
        return "unchecked" if self.conclusive and metric.name == "wrong" else NOTHING

    @property
    def with_fault(self) -> bool:
        """Whether it is a cell with a fault; of trials that were all inconclusive before their fault, by its name."""
        return self.faulted or (not self.conclusive and not self.scenario.startswith("healthy"))

    @property
    def runs_after(self) -> bool:
        """Whether a speed after the fault is known, in whatever unit; of requests, whether any began after it, be it
        after its repair."""
        return any(self[f"after_{kind}"].n for kind in ("gbs", "tokens_s", "ms", "ttft_p50_ms"))

    @property
    def bad(self) -> bool:
        """Whether an element was wrong or a trial ended unexpectedly; an inconclusive trial is neither."""
        return self.wrong > 0 or self.told["unexpected"] > 0

    @property
    def wrong(self) -> int:
        """Wrong elements over all trials."""
        return int(self.told["wrong"]) if self.checked else 0


def headline(frame: pd.DataFrame) -> list[Line]:
    """The table, ordered by case, size, then mode."""
    lines = frame.groupby(["case", "size_bytes", "mode", "system"], sort=False)
    # Of all trials at once, and as arrays: what pandas does with the few trials of one line takes ten times as long.
    values = {name: frame[name].to_numpy(float) for name in METRICS}
    lacking = {name: metric.not_known(frame).to_numpy(bool) for name, metric in METRICS.items()}
    return [
        _line(frame.take(rows), _at(rows, values), _at(rows, lacking))
        for rows in map(np.asarray, lines.indices.values())
    ]


def _at(rows: "NDArray[np.intp]", columns: "Mapping[str, NDArray[Any]]") -> "dict[str, NDArray[Any]]":
    return {name: column[rows] for name, column in columns.items()}


def at_largest(lines: Sequence[Line]) -> list[Line]:
    """The lines with the largest size of their system in their setup, where bandwidth, not latency, decides. Another
    system, as of another run, may have a larger one."""
    largest: dict[tuple[str, str], int] = {}
    for line in lines:
        key = line.setup, line.system
        largest[key] = max(line.size_bytes, largest.get(key, 0))
    return [line for line in lines if line.size_bytes == largest[line.setup, line.system]]


def healthy_shares(lines: Sequence[Line]) -> dict[str, dict[str, float]]:
    """By setup and system: healthy bandwidth over the NICs' limit, from measured lines at the largest size.

    A later fault does not affect the healthy part, so a system has one number: the median over its scenarios.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for line in at_largest([line for line in lines if line.source == "measured"]):
        if line["share"].n:
            found.setdefault(line.setup, {}).setdefault(line.system, []).append(line["share"].median)
    return {setup: {name: stats.median(each) for name, each in own.items()} for setup, own in found.items()}


def _line(
    part: pd.DataFrame, values: "Mapping[str, NDArray[np.float64]]", lacking: "Mapping[str, NDArray[np.bool_]]"
) -> Line:
    """Of the trials in `part`; of these the values of each metric, and whether they are not known."""
    first: Any = part.iloc[0]
    conclusive = part["status"] != "inconclusive"
    known = {name: column[~np.isnan(column)] for name, column in values.items()}
    unknown = {name: metric.count_unknown(lacking[name]) for name, metric in METRICS.items()}
    out = lacking["return_ms"] & ~np.isnan(values["repaired_ms"])
    in_part = part["back_in_part"].to_numpy(bool)
    return Line(
        case=str(first["case"]),
        setup=str(first["setup"]),
        operation=str(first["operation"]),
        beyond_axes=str(first["beyond_axes"]),
        workload=str(first["workload"]),
        scenario=str(first["scenario"]),
        points=first["points"],
        size_bytes=int(first["size_bytes"]),
        system=str(first["system"]),
        plain_system=str(first["plain_system"]),
        run=int(first["run_number"]),
        mode=int(first["mode"]),
        loses_nic=bool(part["loses_nic"].any()),
        comes_and_goes=bool(part["comes_and_goes"].any()),
        faulted=bool(part["faulted"].any()),
        statuses=tally(zip(part["status"], part["expected"], strict=True)),
        as_expected=bool(part.loc[conclusive, "expected"].all()) if conclusive.any() else None,
        conclusive=int(conclusive.sum()),
        inconclusive=int((~conclusive).sum()),
        disturbed=int((part["disturbed"] != "").sum()),
        disturbed_slowdown=int(part["disturbed_slowdown"].sum()),
        unsure={
            name: int(lacking[name].sum())
            for name, metric in METRICS.items()
            if metric.known_by_ends or metric.like_slowdown
        },
        until_repair=int(part["until_repair"].sum()),
        to_be_repaired=int(part["to_be_repaired"].sum()),
        cost_goes_on=int(part["cost_goes_on"].sum()),
        not_back=int((out & ~in_part).sum()),
        back_in_part=int((out & in_part).sum()),
        stopped=int((part["status"] == "failed").sum()),
        checked=int(part["checked"].sum()),
        since=int(part.loc[part["p99_ms"].notna(), "since"].min()) if part["p99_ms"].notna().any() else 0,
        model=None if pd.isna(first["model"]) else float(first["model"]),
        source=str(first["source"]),
        transport=str(first["transport"]),
        rdma_type="+".join(sorted({kind for kind in part["rdma_type"] if kind})),
        values={name: column.size for name, column in known.items()},
        estimates={name: stats.estimate(column, unknown[name]) for name, column in known.items()},
        worst={name: metric.together(known[name], "worst") for name, metric in METRICS.items()},
        ends={name: stats.ends(column) for name, column in known.items()},
        told={name: metric.together(known[name], unknown=unknown[name]) for name, metric in METRICS.items()},
    )
