"""What the first screen of a report shows, by kind of workload: the columns of its table, the panels of its figure, the
columns of the terminal's table, and the words for what runs. A workload has one record, from which all of these derive.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from reports import cells, served
from reports.cells import Cell
from reports.headline import Line
from reports.metrics import METRICS
from reports.metrics.metric import ALIKE

if TYPE_CHECKING:
    import pandas as pd

REPAIRED = "repaired"
"""The column of the speed after the repair, where a trial has one."""
_OF_REPAIR = ("After the fault", "Repaired")
"""The terms that are told only beside it."""
Shown = Callable[[Sequence[Line], Sequence[Line]], Cell]
"""A system's number: of its cells that the table shows, and of all its lines."""


@dataclass(frozen=True)
class Column:
    """A column of the first table."""

    name: str
    heading: str
    under: str
    """The line below the heading."""
    of: Shown
    label: str = ""
    """The heading on a phone, if it is another."""
    needs: str = ""
    """The metric that one of the lines must have for the column to stand there; empty: it always does."""

    @property
    def on_a_phone(self) -> str:
        """What stands above the number on a phone."""
        return self.label or self.heading


@dataclass(frozen=True)
class Panel:
    """A panel of the first figure, with a row for each cell."""

    axis: str
    full: str
    """The metric of the full mark, or of the bar."""
    hollow: str = ""
    """The metric of the hollow mark; empty: the panel has bars."""
    tick: str = ""
    """The metric of a third mark, which few rows have."""
    none: str = ""
    """What is said if nothing is known."""
    told: tuple[str, str] = ("", "")
    """What the hollow and the full mark are, in words that follow their numbers."""
    hollow_alone: bool = False
    """Whether the hollow marks are the result, with their intervals, because nothing follows a fault."""

    @property
    def percent(self) -> bool:
        """Whether its values are differences in percent, around 0."""
        return METRICS[self.full].percent


@dataclass(frozen=True)
class Screen:
    """The first screen of a kind of workload."""

    workloads: tuple[str, ...]
    """The kinds of workloads whose lines have numbers there."""
    columns: tuple[Column, ...]
    panels: tuple[Panel, ...]
    title: str
    """Of the figure."""
    caption: str
    marks: tuple[str, str, str]
    """What a hollow mark, a full one and a tick are."""
    terms: Mapping[str, str]
    """What the note below says of the columns' terms."""
    unit: str = ""
    """Of the speeds, if it has any."""
    struck: str = "a step"
    """What a fault strikes."""
    counts: str = "iterations"
    """What is timed; also the key of ``workload`` that says how many."""
    remarks: Callable[[Sequence[Line]], list[str]] = lambda lines: []
    """What a reader has to know about these numbers."""
    terminal: Mapping[str, str] = field(default_factory=dict)
    """The columns of the terminal's table, by metric; empty: every metric with a short name."""
    uncompared: Mapping[str, str] = field(default_factory=dict)
    """Of these columns, which compare with other trials, the metric that stands there if there is nothing to compare
    with."""
    compared: bool = True
    """Whether iterations after the fault are compared with those before it."""
    healthy: "Screen | None" = None
    """The same of trials without a fault; None: this is it."""


_OTHER = (
    "are steps, and final weights trials, whose bits are not those of the run without failures. A system that rounds "
    "otherwise after a fault, because it then adds in another order or over other ranks, counts, too: its last bits "
    "differ by design."
)


def _speeds(
    kind: str,
    workloads: tuple[str, ...],
    axis: str,
    struck: str,
    counts: str,
    wrong: tuple[str, str, str] = ("wrong", "elements", "wrong elements"),
    terminal: Mapping[str, str] = MappingProxyType({}),
) -> Screen:
    """Iterations that are alike: speed before and after the fault, T/T0, and time lost."""
    unit = METRICS[f"before_{kind}"].unit
    what = f"Time of {axis}" if unit == "ms" else "Speed"

    def cost(metric: str, of_cells: Callable[[Sequence[Line]], Cell]) -> Shown:
        return lambda some, own: cells.with_unknown(
            cells.with_smaller(cells.with_stopped(of_cells(some), some), own, metric), some, own, metric
        )

    def since(metric: str) -> Shown:
        return lambda some, own: cells.with_stopped(cells.spread(some, metric), some)

    before = Column(
        "healthy", "healthy", unit, lambda some, own: cells.healthy(some, f"before_{kind}"), f"healthy, {unit}"
    )
    was_wrong = Column("wrong", *wrong[:2], lambda some, own: cells.wrong(own), wrong[2])
    speeds = Panel(f"{axis} ({unit})", f"after_{kind}", f"before_{kind}", f"repaired_{kind}")
    other = {"Other losses": _OTHER} if "training" in workloads else {}
    healthy = Screen(
        workloads, (before, was_wrong), (replace(speeds, hollow_alone=True),), what, f"Healthy {what.lower()}",
        ("healthy", "", ""), other, unit, struck, counts, terminal=terminal,
    )  # fmt: skip
    return Screen(
        workloads,
        (
            before,
            Column("after", "after the fault", unit, lambda some, own: cells.after(some, own, f"after_{kind}"),
                   f"after, {unit}"),
            Column(REPAIRED, "repaired", unit, lambda some, own: cells.repaired(some, f"repaired_{kind}"),
                   f"repaired, {unit}", f"repaired_{kind}"),
            Column("slowdown", "T/T0", "time after / before", cost("slowdown", cells.slowdown)),
            Column("mean", "mean", "ms since the fault", since("mean_ms"), "mean, ms"),
            Column("p99", "p99", "ms since the fault", since("p99_ms"), "p99, ms"),
            Column("lost", "time lost", "against healthy", cost("lost_ms", cells.lost)),
            was_wrong,
        ),
        (
            speeds,
            Panel("time lost against healthy (ms)", "lost_ms", none="no median of it is known"),
        ),
        f"{what} and time lost",
        f"{what}, healthy (hollow) and after the fault (full), and the time lost",
        ("healthy", "after the fault", "after the repair"),
        {
            "After the fault": "is until its repair; none: the iteration that was hit lasted until then.",
            "Repaired": "is once everything is healed and the NIC carries again; where it does not before the trial "
            "ends, without it.",
            "T/T0": "is the time of an iteration after the fault over its time before: at 1.5 the system keeps two "
            "thirds of its speed.",
            "Mean and p99": "are of all iterations from the first that the fault hits to the end of the trial.",
            "Time lost": "is how much longer all iterations from the fault to the end of the trial took than as many "
            "healthy ones.",
        } | other,
        unit, struck, counts, terminal=terminal, healthy=healthy,
    )  # fmt: skip


def _requests(compared: bool) -> Screen:
    """Requests, each against itself in the healthy trials; where none is `compared` so, their times."""
    times = {"ttft": "first token", "tpot": "each later token"}
    under = "% over healthy" if compared else "ms"
    of = served.over if compared else served.took
    times_since = [
        Column(f"{name}_{phase}", f"{name.upper()} {phase}", under, partial(of, name, phase),
               f"{name.upper()} {phase}, {under}")
        for name in times for phase in served.PHASES
    ]  # fmt: skip
    metric, unit = ("over", ", over healthy (%)") if compared else ("p50_ms", " (ms)")
    none = "no healthy trial to compare with" if compared else "no such request"
    panels = [
        Panel(f"{axis}{unit}", f"after_{name}_{metric}", f"during_{name}_{metric}", none=none,
              told=("during", "after"))
        for name, axis in (("ttft", "time to first token"), ("tpot", "time per later token"))
    ]  # fmt: skip
    counts = {
        "requests_hurt": ("hurt", "requests, median", False),
        "requests_again": ("again", "requests", False),
        "requests_unanswered": ("no answer", "requests", True),
    }
    against = ", over those of the same requests in the healthy trials" if compared else ""
    each = " Each request is compared with itself in the healthy trials, since requests queue." if compared else ""
    usual = Column("usual", "TTFT healthy", "ms", served.usual, "TTFT healthy, ms")
    other = Column("answers_differ", "other", "answers", served.answers, "other answers")
    screen = Screen(
        ("serving",),
        (
            usual,
            *times_since,
            *(
                Column(metric, heading, under, partial(served.counted, metric, is_bad), f"{heading}, {under}")
                for metric, (heading, under, is_bad) in counts.items()
            ),
            other,
        ),
        tuple(panels),
        "Times to tokens over those of healthy trials" if compared else "Times to tokens",
        f"Time to the first token and time per later token{against}: requests under way when the fault came (hollow), "
        "and those that began after it (full)",
        ("under way when the fault came", "began after it", ""),
        {
            "TTFT": "is the time from a request's arrival to its first token, TPOT the time per token after it; "
            f"during: of requests under way when the fault came; after: of those that began after it.{each}",
            "Hurt": "are requests since the fault that were slower than the slowest healthy one, in a median trial; "
            "again, no answer, other: over all trials, requests of which some work was repeated, that a healthy trial "
            "answered and this one did not, and whose answer is another one.",
        },
        struck="a request",
        counts="requests",
        remarks=served.noise,
        terminal={
            "before_ttft_p50_ms": "TTFT before", "during_ttft_over": "TTFT during", "after_ttft_over": "TTFT after",
            "during_tpot_over": "TPOT during", "after_tpot_over": "TPOT after", "requests_hurt": "hurt",
            "requests_again": "again", "requests_unanswered": "no answer", "answers_differ": "other",
        },
        uncompared={f"{phase}_{name}_over": f"{phase}_{name}_p50_ms" for name in times for phase in served.PHASES},
        compared=False,
    )  # fmt: skip
    terms = {"TTFT": "is the time from a request's arrival to its first token."}
    return replace(screen, healthy=replace(screen, columns=(usual, other), terms=terms))


_STEPS = ("other losses", "steps", "other losses, steps")
_TRAINED = {metric.name: metric.short for metric in METRICS.values() if metric.short} | {
    "steps_differ": "other losses",
    "weights_differ": "other weights",
}
SCREENS: Mapping[str, tuple[Screen, ...]] = {
    "collective": (
        _speeds("gbs", ("collective",), "bus bandwidth", "a collective", "iterations"),
        _speeds("ms", ("collective",), "an iteration", "a collective", "iterations"),
    ),
    "training": (
        _speeds("tokens_s", ("training",), "trained", "a step", "steps", _STEPS, _TRAINED),
        _speeds("ms", ("training",), "a step", "a step", "steps", _STEPS, _TRAINED),
    ),
    "serving": (_requests(compared=True), _requests(compared=False)),
}
"""By kind of workload, of several the first that has a number."""
MIXED = _speeds("ms", ALIKE, "an iteration", "an operation", "iterations", terminal=_TRAINED)
"""The figure and the words of several kinds in one report: durations, which all but requests have. Each kind has a
table of its own."""
UNTRAINED = _speeds("ms", ("collective",), "an iteration", "an operation", "iterations")
"""The same if no run trains."""


def screen_of(lines: Sequence[Line]) -> Screen:
    """The screen of a report's lines; where none has a fault, nothing there is of one."""
    screen = screen_for((line.workload for line in lines), lambda metric: any(line[metric].n for line in lines))
    return screen if any(line.with_fault for line in lines) else screen.healthy or screen


def columns_of(screen: Screen, lines: Sequence[Line]) -> list[Column]:
    """The columns of a table of `lines`: the speed after the repair only where one of the cells has it."""
    shown = cells.cells_of(lines)
    return [one for one in screen.columns if not one.needs or any(line[one.needs].n for line in shown)]


def terms_of(screen: Screen, columns: Sequence[Column]) -> dict[str, str]:
    """What the note says of the terms of these columns."""
    repaired = any(column.name == REPAIRED for column in columns)
    return {term: told for term, told in screen.terms.items() if repaired or term not in _OF_REPAIR}


def screen_for(workloads: Iterable[str], is_known: Callable[[str], bool]) -> Screen:
    """The screen of trials of these kinds of workloads: the first of theirs of whose metrics one `is_known`."""
    kinds = set(workloads)
    alone = SCREENS.get(next(iter(kinds))) if len(kinds) == 1 else None
    found = alone or (MIXED if not kinds or "training" in kinds else UNTRAINED,)
    has_one = (one for one in found if is_known(one.panels[0].hollow) or is_known(one.panels[0].full))
    return next(has_one, found[0])


def screen_of_trials(frame: "pd.DataFrame") -> Screen:
    """The screen of these trials."""
    return screen_for(frame["workload"], lambda metric: bool(frame[metric].notna().any()))
