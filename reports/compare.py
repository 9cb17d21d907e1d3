"""Decides by the rules whether NEW is worse than BASE, cell by cell. Pure.

A change is a regression only if its whole 95 % interval lies beyond the tolerance. If the repeats do not show this, the
conclusion says so; it is neither a pass nor a failure. A measure of trials that went on, which NEW lacks because all
its trials now fail, is a regression; if NEW lacks a measure for another reason, nothing is concluded. For a metric
that is a total (`reports.metrics`), totals are shown and judged; of unequal numbers of trials, both as they are and
scaled to the number of NEW, since trials that are missing may be good or bad ones. Of a metric of which trials only
tell between which values it lies (`reports.metrics.metric.Metric.upper`), a change is shown only if it is at both
ends. A metric that a trial may end before (`reports.metrics.metric.Metric.at_least`) counts as long as the trial lasted
there, and one of which a trial may see only a part (`in_part`) as that part: the mean of one side is at least that of
such values, which shows a change in one direction alone.
"""

import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import pandas as pd

from r2ccl_core.student import student_t
from reports import stats
from reports.change import Change, change
from reports.metrics import METRICS
from reports.rules import Rule, Rules
from reports.stats import MIN_EFFECT, Estimate, estimate

Conclusion = Literal[
    "regression", "worse, not beyond the tolerance", "worse, not shown to be beyond it", "no difference shown",
    "better", "same", "too few repeats", "too few known repeats", "too few conclusive repeats", "not measured in NEW",
    "inconclusive in NEW", "not known in NEW", "not run in NEW", "no error in NEW", "not simulated in NEW",
    "not measured in BASE", "inconclusive in BASE", "not known in BASE", "not run in BASE", "no error in BASE",
    "not simulated in BASE", "stopped in BASE",
    "no ratio of such values", "not known closely enough", "on another network",
    "known in neither",
]  # fmt: skip
UNKNOWN = ("not run in NEW", "inconclusive in NEW", "not known in NEW", "on another network")
"""Conclusions after which nothing can be said of NEW as a whole, whatever the metric."""
NEITHER: Conclusion = "known in neither"
"""The conclusion on what both sides should have and neither has."""
FEW = ("too few repeats", "too few known repeats", "too few conclusive repeats")
"""Conclusions that more repeats may change."""
BETWEEN: Conclusion = "not known closely enough"
"""The conclusion where the ends between which the values lie decide."""
WORSE: frozenset[Conclusion] = frozenset(
    {"regression", "worse, not beyond the tolerance", "worse, not shown to be beyond it"}
)

CELL = ("case", "size_bytes", "system")


@dataclass(frozen=True)
class Finding:
    """One rule in one cell: the values of both sides, the change, and the conclusion."""

    case: str
    size_bytes: int
    system: str
    metric: str
    better: str
    tolerance: float
    relative: bool
    base: Estimate
    new: Estimate
    totals: tuple[float, float]
    """Totals over the repeats of each side; meaningful only if the metric is counted."""
    known: tuple[int, int]
    """How many repeats of each side have a value, also where the others are so low that no median is known."""
    not_known: tuple[int, int]
    """How many repeats of each side ran and are in no change, because their value is not known
    (`reports.metrics.metric.Metric.not_known`)."""
    at_least: tuple[float, float]
    """The median of each side at least, with the repeats that ended before their value was known
    (`reports.metrics.metric.Metric.at_least`); NaN: it has none of them."""
    inconclusive: int
    """How many repeats that have a value in BASE are inconclusive in NEW."""
    held_up: int
    """How many of them have none in NEW because what was hit lasted until the repair."""
    change: Change | None
    conclusion: Conclusion
    asked: bool = False
    """Whether somebody wrote the rule: then what cannot be judged leaves its question open."""

    @property
    def regressed(self) -> bool:
        """Whether this finding fails the comparison."""
        return self.conclusion == "regression"

    @property
    def compared(self) -> bool:
        """Whether both sides say something: values, or that every trial of NEW fails."""
        return bool(self.base.n and self.new.n) or self.change is not None or self.regressed

    @property
    def by_lower_ends(self) -> bool:
        """Whether repeats that ended before their value was known decide."""
        return any(least == least for least in self.at_least)

    @property
    def counts(self) -> bool:
        """Whether it compares totals."""
        return METRICS[self.metric].aggregate == "total"

    @property
    def judged(self) -> bool:
        """Whether the values of both sides say something about the change."""
        return self.compared and self.conclusion not in (*FEW, "no ratio of such values", BETWEEN)

    @property
    def unknown(self) -> bool:
        """Whether NEW lacks what it should have, or has it of fewer repeats, for a reason that says nothing of NEW."""
        metric = METRICS[self.metric]
        gap = self.conclusion == "not measured in NEW" and (metric.of_faults or not metric.of.startswith("some"))
        unanswered = self.asked and self.conclusion == NEITHER
        return self.conclusion in UNKNOWN or gap or unanswered or self.inconclusive > 0 or self.held_up > 0

    @property
    def told(self) -> tuple[float, float]:
        """The values shown for BASE and NEW: medians, or totals, which are then also judged."""
        return self.totals if self.counts else (self.base.median, self.new.median)


def would_show(finding: Finding) -> int | None:
    """About how many repeats of each side would show a difference as large as the tolerance; None: not practical."""
    found = finding.change
    if found is None or found.low != found.low:
        return None
    repeats = min(found.base_n, found.new_n)
    ends = (math.log(found.low), math.log(found.high)) if finding.relative else (found.low, found.high)
    degrees = repeats - 1 if found.paired else found.base_n + found.new_n - 2
    half, wanted = (ends[1] - ends[0]) / 2, math.log1p(finding.tolerance) if finding.relative else finding.tolerance
    if half < wanted:
        return repeats  # they already would, also where they do not vary at all
    return stats.repeats_to_show(half * repeats**0.5 / student_t(max(1, degrees)), wanted)


def compare(
    base: pd.DataFrame, new: pd.DataFrame, rules: Rules, *, paired: bool = False, asked: bool = False
) -> list[Finding]:
    """Applies every rule to every cell (case, size, system) of either frame (`reports.measures.trial_frame` of one
    run). `asked`: somebody wrote the rules."""
    ours, theirs = _cells(new), _cells(base)
    findings: list[Finding] = []
    for cell in dict.fromkeys([*theirs, *ours]):
        sides = theirs.get(cell, base.head(0)), ours.get(cell, new.head(0))
        about = _about(*sides)
        for rule in rules.rules:
            if rule.applies(cell[2], cell[1], *about):
                findings += _finding(rule, cell, *sides, paired)
    return [replace(finding, asked=asked) for finding in findings]


def _cells(frame: pd.DataFrame) -> dict[tuple[str, int, str], pd.DataFrame]:
    """The trials of every cell, in the order of the frame."""
    groups = frame.groupby(list(CELL), sort=False)
    return {(str(case), int(str(size)), str(system)): part for (case, size, system), part in groups}


def _about(base: pd.DataFrame, new: pd.DataFrame) -> tuple[str, str]:
    row = (new if base.empty else base).iloc[0]
    return str(row["collective"]), str(row["scenario"])


def _finding(
    rule: Rule, cell: tuple[str, int, str], base: pd.DataFrame, new: pd.DataFrame, paired: bool
) -> Iterator[Finding]:
    """Yields nothing if neither side has the measure, nor should have it: it does not apply to such trials."""
    ours, theirs = _values(new, rule.metric), _values(base, rule.metric)
    at_least = _median_at_least(base, rule.metric), _median_at_least(new, rule.metric)
    if ours or theirs or any(least == least for least in at_least):
        found, conclusion = _judged(rule, theirs, ours, base, new, paired)
    elif _should_have(base, rule.metric) and _should_have(new, rule.metric):
        found, conclusion = None, NEITHER
    else:
        return
    tolerance = rule.tolerance
    yield Finding(
        *cell, rule.metric, rule.better, tolerance.amount, tolerance.relative,
        _estimate(base, rule.metric), _estimate(new, rule.metric), (sum(theirs.values()), sum(ours.values())),
        (_known(base, rule.metric), _known(new, rule.metric)),
        (_not_known(base, rule.metric), _not_known(new, rule.metric)), at_least,
        _inconclusive(base, new, rule.metric), _held_up(base, new, rule.metric), found, conclusion,
    )  # fmt: skip


def _should_have(part: pd.DataFrame, name: str) -> bool:
    """Whether there are trials that should have a measure of which no value is known: what it is, or whether they went
    on, is not known, or nothing of them can be compared."""
    metric = METRICS[name]
    if part.empty or not metric.is_of(str(part["workload"].iloc[0])):
        return False
    if part[name].notna().any() or metric.not_known(part).any():
        return True
    unsure = part["status"] == "inconclusive"
    went_on = metric.of == "trials that went on" and part["faulted"] & ~part["status"].isin(["failed", "inconclusive"])
    return bool(unsure.all() and metric.belongs_to(faulted=True, failed=False)) or bool(pd.Series(went_on).any())


def _values(part: pd.DataFrame, metric: str) -> dict[Hashable, float]:
    """The known values of the measure by repeat; healthy trials before and after the others are two of each. None if
    those that are not known are so many that the median is not known either."""
    return _by_repeat(part, part[metric]) if _estimate(part, metric).n else {}


def _with_low(part: pd.DataFrame, metric: str) -> dict[Hashable, float]:
    """The same, with the values that are too low to be known as the lowest known one."""
    low = METRICS[metric].reads_low(part) & part[metric].isna()
    return _by_repeat(part, part[metric].where(~low, part[metric].min()))


def _by_repeat(part: pd.DataFrame, values: "pd.Series[float]") -> dict[Hashable, float]:
    return {planned: float(value) for planned, value in zip(part["planned"], values, strict=True) if value == value}


def _known(part: pd.DataFrame, metric: str) -> int:
    return int(part[metric].notna().sum())


def _not_known(part: pd.DataFrame, metric: str) -> int:
    return int(METRICS[metric].not_known(part).sum())


def _median_at_least(part: pd.DataFrame, metric: str) -> float:
    return stats.median(METRICS[metric].ends(part)[0]) if _ended_before(part, metric) else math.nan


def _ended_before(part: pd.DataFrame, name: str) -> bool:
    """Whether trials ended before their value was known, or when a part of it was."""
    metric = METRICS[name]
    return bool(metric.at_least and _not_known(part, name)) or bool(metric.seen_in_part(part).any())


def _inconclusive(base: pd.DataFrame, new: pd.DataFrame, metric: str) -> int:
    """How many repeats that have a value in BASE are inconclusive in NEW."""
    lost = set(new.loc[new["status"] == "inconclusive", "planned"])
    return len(lost & set(base.loc[base[metric].notna(), "planned"]))


def _held_up(base: pd.DataFrame, new: pd.DataFrame, metric: str) -> int:
    """How many repeats that have a value in BASE have none in NEW because what was hit lasted until the repair."""
    if not METRICS[metric].of.endswith("went on"):
        return 0
    lost = set(new.loc[METRICS[metric].held_up(new), "planned"])
    return len(lost & set(base.loc[base[metric].notna(), "planned"]))


def _estimate(part: pd.DataFrame, metric: str) -> Estimate:
    """The same as in the report."""
    return estimate(part[metric], METRICS[metric].unknown_in(part))


def _judged(
    rule: Rule,
    base: dict[Hashable, float],
    new: dict[Hashable, float],
    base_part: pd.DataFrame,
    new_part: pd.DataFrame,
    paired: bool,
) -> tuple[Change | None, Conclusion]:
    by_lower_ends = _by_lower_ends(rule, base_part, new_part, paired)
    if by_lower_ends is not None:
        return by_lower_ends
    if not base:
        return None, _all_failed(rule.metric, base_part, "stopped in BASE") or _missing(rule.metric, base_part, "BASE")
    if not new:
        return None, _all_failed(rule.metric, new_part, "regression") or _missing(rule.metric, new_part, "NEW")
    if METRICS[rule.metric].aggregate == "total":
        return None, _counts(rule, base, new)
    found = change(base, new, relative=rule.tolerance.relative, paired=paired)
    by_ends = METRICS[rule.metric].upper
    least, most = _at_ends(rule, base_part, new_part, paired) if by_ends else (found, found)
    if found is None or least is None or most is None:
        return None, "no ratio of such values"
    found, told = found._replace(low=least.low, high=most.high), _between(least, most, rule)
    if told == "regression":
        filled = (_with_low(part, rule.metric) for part in (base_part, new_part))
        even_so = change(*filled, relative=rule.tolerance.relative, paired=paired)
        # Perhaps only because the values that are too low to be known are missing.
        return found, told if _is_beyond(even_so, rule) else "worse, not shown to be beyond it"
    if told != "too few repeats":
        return found, told
    both = pd.concat([base_part, new_part])
    if METRICS[rule.metric].not_known(both).any():
        return found, "too few known repeats"
    return found, "too few conclusive repeats" if (both["status"] == "inconclusive").any() else told


def _by_lower_ends(
    rule: Rule, base: pd.DataFrame, new: pd.DataFrame, paired: bool
) -> tuple[Change | None, Conclusion] | None:
    """The judgement if trials of a side ended before their value was known; None if none did, or if a side has nothing.

    Their values are replaced by what they are more than, so that the change is at least the one found if they are of
    NEW, and at most if of BASE: it may be shown in this direction only. If they are of both, it may be any.
    """
    open_base, open_new = (_ended_before(part, rule.metric) for part in (base, new))
    theirs, ours = (_by_repeat(part, METRICS[rule.metric].ends(part)[0]) for part in (base, new))
    if not (open_base or open_new) or not theirs or not ours:
        return None
    unknown: Conclusion = "not known in NEW" if open_new else "not known in BASE"
    if open_base and open_new:
        return None, unknown
    found = change(theirs, ours, relative=rule.tolerance.relative, paired=paired)
    if found is None:
        return None, "no ratio of such values"
    told = conclusion(found, rule)
    if open_new == (rule.better == "lower"):  # it may be worse than found
        told = "worse, not shown to be beyond it" if told in WORSE - {"regression"} else told
        shown = told in WORSE
    else:
        shown = told == "better"
    found = (
        found._replace(high=math.inf) if open_new else found._replace(low=0.0 if rule.tolerance.relative else -math.inf)
    )
    return (found, told) if shown else (None, unknown)


def _at_ends(rule: Rule, base: pd.DataFrame, new: pd.DataFrame, paired: bool) -> tuple[Change | None, Change | None]:
    """The least and the greatest change that the ends of the values leave."""
    (base_least, base_most), (new_least, new_most) = (_ends(part, rule.metric) for part in (base, new))
    relative = rule.tolerance.relative
    least = change(base_most, new_least, relative=relative, paired=paired)
    return least, change(base_least, new_most, relative=relative, paired=paired)


def _between(least: Change, most: Change, rule: Rule) -> Conclusion:
    """What is true of the least change and of the greatest."""
    told = {conclusion(each, rule) for each in (least, most)}
    if len(told) == 1:
        return told.pop()
    return "worse, not shown to be beyond it" if told <= WORSE else BETWEEN


def _ends(part: pd.DataFrame, metric: str) -> tuple[dict[Hashable, float], dict[Hashable, float]]:
    """Between which values the known ones lie, by repeat."""
    least, most = (_by_repeat(part, end.where(part[metric].notna())) for end in METRICS[metric].ends(part))
    return least, most


def _unknown(part: pd.DataFrame, metric: str) -> "pd.Series[bool]":
    """The trials that ran and of which the measure stays unknown: they are inconclusive, or it is not
    known (`reports.metrics.metric.Metric.not_known`)."""
    unknown = (part["status"] == "inconclusive") | METRICS[metric].not_known(part)
    return unknown & part[metric].isna()


def _all_failed(metric: str, part: pd.DataFrame, otherwise: Conclusion) -> Conclusion | None:
    """`otherwise` if the measure is one of trials that go on, and every conclusive one of `part` failed."""
    ended = part[part["status"] != "inconclusive"]
    failed = not ended.empty and METRICS[metric].of.endswith("went on") and (ended["status"] == "failed").all()
    return otherwise if failed else None


def _missing(metric: str, part: pd.DataFrame, side: Literal["BASE", "NEW"]) -> Conclusion:
    """Why one side, whose trials of the cell are `part`, has no value."""
    if part.empty:
        why = "not run in"
    elif (part["status"] == "inconclusive").all():
        why = "inconclusive in"
    elif (_unknown(part, metric) | part[metric].notna()).all():
        why = "not known in"
    elif not METRICS[metric].simulated and (part["source"] == "simulated").all():
        why = "not simulated in"
    else:
        why = "no error in" if METRICS[metric].of == "trials that stopped" else "not measured in"
    return cast(Conclusion, f"{why} {side}")


def _counts(rule: Rule, base: dict[Hashable, float], new: dict[Hashable, float]) -> Conclusion:
    """For counted things, totals are compared directly: one wrong element is one too many. Of unequal numbers of
    trials, only what is worse or better both as it is and for equal numbers is so for sure."""
    total, sign = sum(base.values()), 1 if rule.better == "lower" else -1
    as_it_is, scaled = (sign * (sum(new.values()) - each) for each in (total, total * len(new) / len(base)))
    least, most = min(as_it_is, scaled), max(as_it_is, scaled)
    if least > rule.tolerance.amount:
        return "regression"
    if least > 0:
        return "worse, not beyond the tolerance"
    if most < 0:
        return "better"
    if least == most:
        return "same"
    return "worse, not shown to be beyond it" if scaled > 0 else "no difference shown"


def conclusion(found: Change, rule: Rule) -> Conclusion:
    """What the interval of a change shows against the rule's tolerance."""
    if found.low != found.low:
        return "too few repeats"
    neutral = 1.0 if rule.tolerance.relative else 0.0
    if rule.better == "lower":
        low, high = found.low - neutral, found.high - neutral
    else:
        low, high = neutral - found.high, neutral - found.low
    if low > rule.tolerance.amount:
        return "regression"
    if rule.tolerance.relative and abs(found.value - 1) < MIN_EFFECT:
        return "no difference shown"
    if low > 0:
        within = high <= rule.tolerance.amount
        return "worse, not beyond the tolerance" if within else "worse, not shown to be beyond it"
    return "better" if high < 0 else "no difference shown"


def _is_beyond(found: Change | None, rule: Rule) -> bool:
    """Whether the change, whatever its interval, is for the worse by more than the tolerance."""
    if found is None:
        return False
    worse = (found.value - (1.0 if rule.tolerance.relative else 0.0)) * (1 if rule.better == "lower" else -1)
    return worse > rule.tolerance.amount


def regressions(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that fail the comparison."""
    return [finding for finding in findings if finding.regressed]


def unjudgeable(findings: Sequence[Finding]) -> list[Finding]:
    """The findings with the values of both sides and no judgement on speed: they are of different networks."""
    return [
        finding if METRICS[finding.metric].on_any_network else replace(finding, conclusion="on another network")
        for finding in findings
    ]


def is_open(findings: Sequence[Finding], lacks: Collection[str] = ()) -> bool:
    """Whether nothing can be concluded: NEW did not run, or did not measure, a part of BASE, or some of its repeats are
    inconclusive, it `lacks` trials, which may be the worse ones, or no measure could be judged."""
    return "NEW" in lacks or any(finding.unknown for finding in findings) or unjudged(findings)


def unjudged(findings: Sequence[Finding]) -> bool:
    """Whether there are measures, and none could be judged: only one side has them, or there are too few repeats.
    Counts, which need no repeats, do not speak for them."""
    measured = [finding for finding in findings if not finding.counts]
    return bool(measured) and not any(finding.judged for finding in measured)
