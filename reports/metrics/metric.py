"""A metric is one record of its name, unit, direction and meaning, its value for a trial, and its aggregate.

Nothing in this package needs pandas, since the terminal computes the same values while a sweep runs. A trial that
stayed inconclusive has no value of any metric, because nothing can be concluded from it; only `value` implements this.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from reports import effect, stats
from reports.metrics.view import View

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Better = Literal["higher", "lower"]
Aggregate = Literal["median", "total", "worst"]
Of = Literal[
    "every trial", "faulted trials", "trials that went on", "some trials that went on", "trials that stopped",
    "some faulted trials", "some trials",
]  # fmt: skip
NotOf = Literal["several", "comes_and_goes"]
"""What a trial tells of its scenario (`reports.measures.trial_frame`), and may exclude a metric."""

NOT_COMPARED = ""
"""The tolerance of what no comparison judges unless a rules file asks for it."""

ALIKE = ("collective", "training")
"""The workloads whose iterations are alike, so that one after the fault can be compared with one before it. Requests of
a served model are not: they queue."""


@dataclass(frozen=True)
class Metric:
    """One measure of a trial."""

    name: str
    """The name in experiments, rules and files: ``after_gbs``."""
    unit: str
    """``GB/s``, ``ms``, ``elements``; empty for a ratio."""
    better: Better | None
    """Which way is better; None: the closer to 1."""
    meaning: str
    """What is measured, without the unit."""
    of_trial: Callable[[View], float | None]
    """Its value for one conclusive trial; None if the trial does not have it."""
    of: Of = "every trial"
    """The trials that must have a value. A cell of such trials without a value is a gap. With ``some trials`` it is
    not; with some of those that went on, or some faulted ones, it is one where the system has a value under the same
    fault elsewhere."""
    needs_fault: bool = False
    """Of ``some trials``: whether a trial without a fault never has it."""
    aggregate: Aggregate = "median"
    """How the repeats of a cell are combined."""
    heading: str = ""
    """The heading of its column in the report's tables, with a line for the unit; empty: no column."""
    short: str = ""
    """The heading of its column on the terminal; empty: no column."""
    percent: bool = False
    """Whether it is a share, shown as percent."""
    against_healthy: bool = False
    """Whether it may not be known for a trial whose healthy iterations something else slowed."""
    by_medians: bool = False
    """Of those: whether it is known all the same where the medians of the iterations are not changed by that."""
    like_slowdown: bool = False
    """Of those: whether it is also not known where T/T0 of a fault that comes and goes is not."""
    against_after: bool = False
    """Whether it compares with iterations after the fault. A trial without any lacks it as it lacks its T/T0, unless
    the fault comes and goes, of which it is not."""
    not_of: tuple[NotOf, ...] = ()
    """The scenarios with a fault in which no trial has it. A bound on them is not measured."""
    from_effect: bool = False
    """Whether it is a time from the fault's effect, which may not be known well enough (`reports.effect`)."""
    at_most: bool = False
    """Of those: whether it counts from the beginning of the interval in which the effect may lie."""
    upper: str = ""
    """The metric that says what its value is at most; empty: none."""
    at_least: Callable[[View], float | None] | None = None
    """What its value is at least, for a trial that ended before it was known; None: it has no such trial."""
    in_part: bool = False
    """Whether a trial that ended before the cost of its fault was over (`View.cost_goes_on`) has only a part of it."""
    from_zero: str = ""
    """The column that says of which trials its value may be as low as 0, whatever was found; empty: of none."""
    simulated: bool = True
    """Whether a simulated trial may have it. One moves no byte, so that none of it is wrong or right, however often it
    runs."""
    on_any_network: bool = False
    """Whether it says what is right and what is wrong, which no network excuses."""
    tolerance: str | None = None
    """How much worse a comparison accepts without a rules file, as such a file has it: ``50 ms``. By default 5 %, and
    of what is counted, nothing. `NOT_COMPARED` is for what another metric says as well or has as a part, for what
    belongs to the failure and not to the system, and for what is too small or too scattered for a ratio."""
    workloads: tuple[str, ...] = ()
    """The kinds of workloads that have it; empty: all."""
    among: "Callable[[pd.DataFrame], pd.Series] | None" = None
    """For a value that depends on other trials: computes it for all trials at once (`reports.measures.trial_frame`)."""

    @property
    def shown_unit(self) -> str:
        """The unit shown to people."""
        return "%" if self.percent else self.unit

    @property
    def told(self) -> str:
        """Meaning and unit in one phrase."""
        return f"{self.meaning}, {self.unit}" if self.unit else self.meaning

    @property
    def in_short(self) -> str:
        """The meaning without what explains it, in brackets."""
        return self.meaning.partition(" (")[0]

    @property
    def tolerated(self) -> str:
        """The tolerance of a comparison without a rules file; `NOT_COMPARED` if it has none."""
        if self.tolerance is not None or self.better is None:
            return self.tolerance or NOT_COMPARED
        return "0" if self.aggregate == "total" else "5 %"

    def value(self, view: View) -> float | None:
        """The metric's value for one trial; None if there is none, or if it is not known (`is_unsure`)."""
        found = self._computed(view)
        return found if found is None or self._counts(view, found) else None

    def is_unsure(self, view: View) -> bool:
        """Whether its value for a trial is not known because the fault's effect is not known well enough."""
        return self.unsure(view) is not None

    def unsure(self, view: View) -> float | None:
        """What its value for a trial would be, if it is not known because the fault's effect is not known well
        enough. Only `ends` may use it, and what tells it as the most that an `at_most` may be."""
        if not self.from_effect:
            return None
        found = self._computed(view)
        return None if found is None or self._counts(view, found) else found

    def exceeds(self, view: View) -> float | None:
        """What its value for a trial is more than, if the trial ended before it was known (`at_least`)."""
        status = view.trial.status
        if self.at_least is None or status != "ok" or self.value(view) is not None:
            return None
        return stats.finite(self.at_least(view))

    @property
    def known_by_ends(self) -> bool:
        """Whether a trial may tell between which values its value lies, although it is not known itself."""
        return self.from_effect or self.at_least is not None

    def _counts(self, view: View, found: float) -> bool:
        return not self.from_effect or effect.counts(view.trial, found)

    def _computed(self, view: View) -> float | None:
        status = view.trial.status
        if status == "inconclusive" or not self.is_of(view.trial.workload):
            return None
        if status == "failed" and self.of.endswith("went on"):  # it may have done an iteration or two more
            return None
        return stats.finite(self.of_trial(view))

    def is_of(self, workload: str) -> bool:
        """Whether trials of such a workload can have it."""
        return not self.workloads or workload in self.workloads

    def together(self, values: Iterable[float | None], aggregate: Aggregate | None = None, unknown: int = 0) -> float:
        """The aggregate of the known values; NaN if there are none, or if a median could be another with those that are
        `unknown` (`reports.stats.counted`)."""
        how = aggregate or self.aggregate
        known = stats.counted(values, unknown) if how == "median" else stats.known(values)
        if not known.size:
            return float("nan")
        if how == "total":
            return float(known.sum())
        if how == "median":
            return stats.median(known)
        if self.better is None:
            return float(max(known, key=lambda value: abs(value - 1)))
        return float(known.min() if self.better == "higher" else known.max())

    def between(self, values: Iterable[float | None], unknown: int) -> tuple[float, float]:
        """Where the aggregate of the known values and of `unknown` others lies, whatever these are; infinite where they
        decide it. A total only grows."""
        if self.aggregate == "median":
            return stats.median_between(values, unknown)
        told = self.together(values)
        if self.aggregate == "total":
            return told, math.inf if unknown else told
        least = -math.inf if unknown and self.better != "lower" else told
        return least, math.inf if unknown and self.better != "higher" else told

    def should_be_known_in(self, known: int, unknown: int, went_on: int) -> int:
        """In how many trials of a cell, of which so many went on after a fault, it should be known, while it is in
        `known` and is not in `unknown` (`not_known`). What some of these have, all could have."""
        return went_on if went_on and self.of.endswith("went on") else known + unknown

    @property
    def of_faults(self) -> bool:
        """Whether it is of some faults, and of these in every trial that could be watched for it."""
        return self.of in ("some faulted trials", "some trials that went on")

    def reads_low(self, part: "pd.DataFrame") -> "pd.Series[bool]":
        """The trials (`reports.measures.trial_frame`) whose value is not known because it is too low."""
        low = part["slowdown_reads_low" if self.by_medians else "reads_low"].astype(bool)
        return low if self.against_healthy else low & False

    def unknown_in(self, part: "pd.DataFrame") -> int:
        """In how many of the trials a cost is not known, which a median has to bear, or the trial ended before it was.
        Of times from an effect that is not known well enough, words tell beside those that are known, and bounds judge
        their `ends`."""
        return self.count_unknown(self.not_known(part).to_numpy(bool))

    def count_unknown(self, not_known: "NDArray[np.bool_]") -> int:
        """The same, of which trials it is not known."""
        return 0 if self.from_effect else int(not_known.sum())

    def errors_ms(self, part: "pd.DataFrame") -> "pd.Series[float]":
        """By how much the known values may be wrong, because the fault's effect is not known well enough."""
        errors = part["effect_error_ms"].where(part[self.name].notna(), 0.0)
        return errors if self.from_effect else errors * 0

    def ends(self, part: "pd.DataFrame") -> tuple["pd.Series[float]", "pd.Series[float]"]:
        """Between which values that of each trial lies. A time from an effect that is not known well enough has such
        ends even where it is not known itself, and what a trial ended before, or saw a part of, has no upper one."""
        if self.at_least is not None:
            exceeds = _told_of(part["exceeds"], self.name)
            return part[self.name].fillna(exceeds), part[self.name].mask(exceeds.notna(), math.inf)
        if self.in_part:
            return part[self.name], part[self.name].mask(self.seen_in_part(part), math.inf)
        if not self.from_effect:
            return part[self.name], part[self.name]
        found, errors = _even_if_unsure(part, self.name), part["effect_error_ms"]
        most = _even_if_unsure(part, self.upper).fillna(found) if self.upper else found
        least = found.mask(found.notna() & part[self.from_zero], 0.0) if self.from_zero else found
        return (least - errors).clip(lower=0), most if self.at_most else most + errors

    def seen_in_part(self, part: "pd.DataFrame") -> "pd.Series[bool]":
        """The trials whose value is of a part of the cost."""
        return part["cost_goes_on"].astype(bool) & part[self.name].notna() & self.in_part

    def not_known(self, part: "pd.DataFrame") -> "pd.Series[bool]":
        """The trials whose value is not known because something else slowed their healthy iterations, because their
        fault's effect is not known well enough, or because they ended before it was."""
        if self.at_least is not None:
            return _told_of(part["exceeds"], self.name).notna()
        if self.from_effect:
            return part["unsure"].map(lambda names: self.name in names).astype(bool) & part[self.name].isna()
        slowed = part["disturbed_slowdown"].astype(bool) if self.by_medians else part["disturbed"] != ""
        if self.like_slowdown:
            slowed |= part["comes_and_goes"].astype(bool) & part["disturbed_slowdown"].astype(bool)
        slowed &= part[self.name].isna()
        return slowed if self.against_healthy else slowed & False

    def held_up(self, part: "pd.DataFrame") -> "pd.Series[bool]":
        """The trials without a value, and not for being unknown, in which what was hit lasted until the repair."""
        none = part["after_ms"].isna() & part[self.name].isna() & ~self.not_known(part)
        return part["until_repair"].astype(bool) & none

    def can_belong_to(self, *, faulted: bool, failed: bool) -> bool:
        """Whether a trial with this outcome can have a value, though it need not."""
        if self.of.endswith("went on"):
            return faulted and not failed
        if self.of == "trials that stopped":
            return faulted and failed
        return faulted or not (self.needs_fault or "faulted" in self.of)

    def belongs_to(self, *, faulted: bool, failed: bool) -> bool:
        """Whether a trial with this outcome must have a value; only a required value can be missing."""
        asked = {
            "every trial": True,
            "faulted trials": faulted,
            "trials that went on": faulted and not failed,
            "some trials that went on": False,
            "trials that stopped": faulted and failed,
            "some faulted trials": False,
            "some trials": False,
        }
        return asked[self.of]


def _even_if_unsure(part: "pd.DataFrame", name: str) -> "pd.Series[float]":
    """The values of a metric, with those that are not known well enough."""
    return part[name].fillna(_told_of(part["unsure"], name))


def _told_of(told: "pd.Series[Any]", name: str) -> "pd.Series[float]":
    """What the trials tell of a metric, of what they tell by name; NaN: nothing."""
    return told.map(lambda names: names.get(name)).astype(float)
