"""Statistics of repeats, as pure functions of numbers: medians, intervals, typical durations, paired differences.

Everything is seeded: the same numbers give the same interval on every machine. Missing values (NaN or None) are left
out; without any values the result is NaN.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2ccl_core.student import student_t

LEVEL = 0.95
RESAMPLES = 2000
MIN_BOOTSTRAP = 5
"""Fewer repeats than this are too few for a bootstrap; their range is given instead."""
MIN_PAIRS = 3
"""With fewer pairs than this, no difference is stated."""
MOST_PAIRS = 1000
"""More repeats than this are impractical."""
MEDIAN_OF = 3
"""A median of fewer is a mean, or a single value, and bears no slow iteration."""
MOST_ERROR = 0.1
"""A number that may be wrong by a larger share of itself is not known."""
MIN_EFFECT = 0.01
"""A smaller relative difference is not reported, however steady it is: nobody would act on it."""

ROUNDED_NS = 2.0
"""What four times may come to together that are each rounded to whole ns."""

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A median over `n` repeats with its interval; NaN if there is none."""

    median: float
    low: float
    high: float
    n: int


class Difference(NamedTuple):
    """The mean ratio of `a` to `b` over `n` pairs, its interval, and the conclusion."""

    ratio: float
    low: float
    high: float
    n: int
    conclusion: Literal["more", "less", "no difference shown", "too few pairs"]
    spread: float = float("nan")
    """Standard deviation of the logarithms of the ratios."""


def known(values: Iterable[float | None]) -> Floats:
    """The values that are present, as an array."""
    there = with_infinite(values)
    return there[np.isfinite(there)]


def with_infinite(values: Iterable[float | None]) -> Floats:
    """The same of ends between which values lie, which may be infinite."""
    numbers = values if isinstance(values, np.ndarray) else [np.nan if v is None else v for v in values]
    array = np.asarray(numbers, dtype=np.float64)
    return array[~np.isnan(array)]


def ends(values: Floats) -> tuple[float, float]:
    """The least and the greatest; NaN if there are none."""
    return (float(values.min()), float(values.max())) if values.size else (float("nan"), float("nan"))


def median(values: Iterable[float | None]) -> float:
    """The median."""
    there = known(values)
    return float(np.median(there)) if there.size else float("nan")


def mean(values: Iterable[float | None]) -> float:
    """The mean."""
    there = known(values)
    return float(there.mean()) if there.size else float("nan")


def standard_error(values: Iterable[float | None]) -> float:
    """The standard error of the mean; NaN of fewer than two values."""
    there = known(values)
    return float(there.std(ddof=1) / there.size**0.5) if there.size > 1 else float("nan")


def finite(value: float | None) -> float | None:
    """`value` unless it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def number(value: object) -> float | None:
    """A stored value as a number; None for anything else."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def percentile(values: Iterable[float | None], q: float) -> float:
    """The q-th percentile (0 to 100), linear between neighbours."""
    there = known(values)
    return float(np.percentile(there, q)) if there.size else float("nan")


def interval(values: Iterable[float | None], seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile-bootstrap interval of the median; the range of fewer than `MIN_BOOTSTRAP` values.

    A single value has no interval: NaN.
    """
    there = known(values)
    if there.size < 2:
        return float("nan"), float("nan")
    if there.size < MIN_BOOTSTRAP:
        return float(there.min()), float(there.max())
    picks = np.random.default_rng(seed).integers(0, there.size, (RESAMPLES, there.size))
    medians = np.median(there[picks], axis=1)
    low, high = np.percentile(medians, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def typical(durations: Iterable[float]) -> float:
    """The median; of an even number the faster of the two in the middle, so that it is one that occurred.

    The mean of a usual iteration and one that stood still is neither. What stood still shows in totals.
    """
    there = np.sort(known(durations))
    return float(there[(there.size - 1) // 2]) if there.size else float("nan")


def counted(values: Iterable[float | None], unknown: int = 0) -> Floats:
    """The values that a median is of: the known ones. None are left if it might be wrong by more than `MOST_ERROR` of
    itself, whatever `unknown` others are."""
    there = known(values)
    middle = median(there)
    off = max(abs(end - middle) for end in median_between(there, unknown)) if there.size else 0.0
    return there[:0] if off > MOST_ERROR * abs(middle) * (1 + 1e-9) else there  # rounding decides nothing


def median_between(values: Iterable[float | None], unknown: int) -> tuple[float, float]:
    """Where the median of the known values and of `unknown` others lies, whatever these are; infinite where they decide
    it. NaN if there are none. A value may itself be infinite, as an end."""
    there = with_infinite(values)
    if not there.size + unknown:
        return float("nan"), float("nan")
    return _median_with(there, -math.inf, unknown), _median_with(there, math.inf, unknown)


def _median_with(there: Floats, value: float, count: int) -> float:
    ordered = np.sort(np.concatenate([there, np.full(count, value)]))
    ends = ordered[[(ordered.size - 1) // 2, ordered.size // 2]]
    if np.isinf(ends).all():
        return value  # between opposite infinities the unknown ones decide
    return float(ends.mean())


def estimate(values: Iterable[float | None], unknown: int = 0, seed: int = 0) -> Estimate:
    """Median and interval over repeats, `unknown` more of which have a value that is not known (`counted`)."""
    there = counted(values, unknown)
    return Estimate(median(there), *interval(there, seed), int(there.size))


def hit_cost_ns(hit_ns: Sequence[float], after_ns: Sequence[float]) -> float:
    """How much longer the hit iteration took than those after it; several hit iterations (a slow fault) add up."""
    usual = typical(after_ns)
    return float(sum(duration - usual for duration in hit_ns)) if hit_ns else float("nan")


def stall_ns(lasted_ns: float, until_fault_ns: float, before_ns: float, after_ns: float) -> float:
    """The time that the hit iteration lost to the failure itself, beyond the effect of the lower bandwidth.

    Until the fault the iteration ran at the old speed (`before_ns` per iteration); its rest would take the same share
    of `after_ns`. The stall is the time beyond that, in whole ns as durations are. Negative values are noise; what the
    rounding of four times to whole ns makes is none.
    """
    done = min(1.0, max(0.0, until_fault_ns / before_ns)) if before_ns > 0 else float("nan")
    stall = lasted_ns - done * before_ns - (1 - done) * after_ns
    if not math.isfinite(stall):
        return stall
    return 0.0 if abs(stall) < ROUNDED_NS else float(round(stall))


def paired(a: Mapping[Hashable, float], b: Mapping[Hashable, float]) -> Difference:
    """The ratio a/b over the keys (repeats of one run) that both have: geometric mean with a 95 % t interval.

    The interval is computed on logarithms, so that a/b and b/a agree, and by Student's t, because a bootstrap over five
    pairs is too narrow. The conclusion is `more` or `less` only if the whole interval lies on one side of 1 and the
    ratio differs from 1 by at least `MIN_EFFECT`.
    """
    ratios = known(a[k] / b[k] for k in a if k in b and a[k] > 0 and b[k] > 0)
    n, logs = int(ratios.size), np.log(ratios)
    middle = float(logs.mean()) if n else float("nan")
    if n < MIN_PAIRS:
        return Difference(float(np.exp(middle)), float("nan"), float("nan"), n, "too few pairs")
    spread = float(logs.std(ddof=1))
    half = student_t(n - 1) * spread / n**0.5
    ratio, low, high = (float(np.exp(middle + d)) for d in (0.0, -half, half))
    conclusion: Literal["more", "less", "no difference shown"] = "no difference shown"
    if low > 1 and ratio > 1 + MIN_EFFECT:
        conclusion = "more"
    elif high < 1 and ratio < 1 - MIN_EFFECT:
        conclusion = "less"
    return Difference(ratio, low, high, n, conclusion, spread)


def pairs_to_show(spread: float, effect: float) -> int | None:
    """How many pairs it takes to show a relative difference of `effect`, by Student's t; None above `MOST_PAIRS`.

    `spread` is the standard deviation of the logarithms of the ratios (`Difference.spread`).
    """
    return repeats_to_show(spread, math.log1p(effect))


def repeats_to_show(spread: float, wanted: float) -> int | None:
    """The same of a difference of `wanted` in the unit of `spread`, the standard deviation."""
    enough = (n for n in range(MIN_PAIRS, MOST_PAIRS + 1) if student_t(n - 1) * spread / n**0.5 < wanted)
    return next(enough, None)
