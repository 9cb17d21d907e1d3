"""What a metric is: one record that says its name, unit, direction and meaning, its value for a trial, its aggregate.

Nothing here or beside it needs pandas: the terminal computes the same values while a sweep runs. A trial that stayed
inconclusive has no value of any metric, since nothing can be said about it; `value` is the one place that knows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from reports import stats
from reports.metrics.view import View

if TYPE_CHECKING:
    import pandas as pd

Better = Literal["higher", "lower"]
Aggregate = Literal["median", "total", "worst"]
Of = Literal["every trial", "faulted trials", "trials that went on", "trials that stopped", "some trials"]


@dataclass(frozen=True)
class Metric:
    """One measure of a trial."""

    name: str
    """As experiments, rules and files name it: ``after_gbs``."""
    unit: str
    """``GB/s``, ``ms``, ``elements``; empty for a ratio."""
    better: Better | None
    """Which way is better; None: the nearer to 1."""
    meaning: str
    """What is measured, without the unit."""
    of_trial: Callable[[View], float | None]
    """Its value for one trial that can be judged; None where that trial does not tell."""
    of: Of = "every trial"
    """The trials that must have a value. A cell of such trials without any is a hole, of ``some trials`` it is none."""
    aggregate: Aggregate = "median"
    """What stands for the repeats of a cell."""
    heading: str = ""
    """Of its column in the report's tables, with a line for the unit; empty: no column."""
    short: str = ""
    """Of its column on the terminal; empty: no column."""
    percent: bool = False
    """A share that is shown as percent."""
    workloads: tuple[str, ...] = ()
    """The kinds of workloads that it is of; empty: of all."""
    among: "Callable[[pd.DataFrame], pd.Series] | None" = None
    """For a value that depends on other trials: of all trials at once (`reports.measures.trial_frame`)."""

    @property
    def shown_unit(self) -> str:
        """The unit in which people read it."""
        return "%" if self.percent else self.unit

    @property
    def told(self) -> str:
        """Meaning and unit in one phrase."""
        return f"{self.meaning}, {self.unit}" if self.unit else self.meaning

    def value(self, view: View) -> float | None:
        """The metric of one trial; None where nothing can be said."""
        status = view.trial.status
        if status == "inconclusive" or not self.is_of(view.trial.workload):
            return None
        if status == "failed" and self.of == "trials that went on":  # it may have done an iteration or two more
            return None
        return stats.finite(self.of_trial(view))

    def is_of(self, workload: str) -> bool:
        """Whether trials of such a workload can have it."""
        return not self.workloads or workload in self.workloads

    def together(self, values: Iterable[float | None], aggregate: Aggregate | None = None) -> float:
        """The aggregate of the values that are known; NaN where there are none."""
        known = stats.known(values)
        if not known.size:
            return float("nan")
        how = aggregate or self.aggregate
        if how == "total":
            return float(known.sum())
        if how == "median":
            return stats.median(known)
        if self.better is None:
            return float(max(known, key=lambda value: abs(value - 1)))
        return float(known.min() if self.better == "higher" else known.max())

    def belongs_to(self, *, faulted: bool, failed: bool) -> bool:
        """Whether a trial that ended like this must have a value; what need not have one is never missing."""
        asked = {
            "every trial": True,
            "faulted trials": faulted,
            "trials that went on": faulted and not failed,
            "trials that stopped": faulted and failed,
            "some trials": False,
        }
        return asked[self.of]
