"""The change of a measure between two groups of repeats, with its interval. Pure.

Relative changes are ratios. They are computed on logarithms, so that a change and its reverse are symmetric. Absolute
changes are differences in the measure's own unit. Repeats of one run are paired by their number. Repeats of two runs
are independent, so their means are compared by Welch's interval, which does not assume equal variances.
"""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np

from r2ccl_core.student import student_t
from reports import stats
from reports.stats import Floats

MIN_PAIRS = stats.MIN_PAIRS
MIN_REPEATS = 2
"""Least number of repeats on each side, if they are not paired."""


class Change(NamedTuple):
    """The change from base to new: a ratio or a difference with its 95 % interval (NaN: too few repeats), the number of
    repeats, and the means whose change it is (of a ratio, geometric ones)."""

    value: float
    low: float
    high: float
    base_n: int
    new_n: int
    paired: bool
    base_mean: float
    new_mean: float


def change(
    base: Mapping[Hashable, float], new: Mapping[Hashable, float], *, relative: bool, paired: bool
) -> Change | None:
    """The change of a measure given by repeat; None if a ratio is requested of values that are not positive."""
    if paired:
        keys = [key for key in base if key in new]
        base, new = {k: base[k] for k in keys}, {k: new[k] for k in keys}
    ours, theirs = stats.known(new.values()), stats.known(base.values())
    if relative and (np.any(ours <= 0) or np.any(theirs <= 0)):
        return None
    if relative:
        ours, theirs = np.log(ours), np.log(theirs)
    middle, half = (_paired if paired and ours.size == theirs.size else _welch)(theirs, ours)
    back = np.exp if relative else float
    value, low, high = (float(back(middle + step)) for step in (0.0, -half, half))
    means = (float(back(stats.mean(side))) for side in (theirs, ours))
    return Change(value, low, high, int(theirs.size), int(ours.size), paired, *means)


def _paired(base: Floats, new: Floats) -> tuple[float, float]:
    """The mean difference and half the width of its interval."""
    steps = new - base
    n = int(steps.size)
    middle = float(steps.mean()) if n else float("nan")
    if n < MIN_PAIRS:
        return middle, float("nan")
    return middle, student_t(n - 1) * float(steps.std(ddof=1)) / n**0.5


def _welch(base: Floats, new: Floats) -> tuple[float, float]:
    """The difference of the means and half the width of its interval, with degrees of freedom by Welch and
    Satterthwaite."""
    if not base.size or not new.size:
        return float("nan"), float("nan")
    middle = float(new.mean() - base.mean())
    if min(base.size, new.size) < MIN_REPEATS:
        return middle, float("nan")
    parts = [float(side.var(ddof=1)) / side.size for side in (base, new)]
    spread = sum(parts)
    if spread == 0:
        return middle, 0.0
    degrees = spread**2 / sum(p**2 / (side.size - 1) for p, side in zip(parts, (base, new), strict=True))
    return middle, student_t(max(1, int(degrees))) * spread**0.5
