"""Systems that went on, compared in pairs of trials of one run and repeat, in sentences. Pure."""

from collections.abc import Hashable, Sequence
from itertools import combinations

import pandas as pd

from reports import stats
from reports.metrics.metric import ALIKE
from reports.wording import at_size, beside, percent, plural

MOST_COMPARISONS = 10
"""At most this many comparisons: all pairs of five systems."""

SOUGHT = 0.05
"""The relative difference between systems that the repeats should be able to show."""


def comparisons(frame: pd.DataFrame) -> list[str]:
    """Systems that went on, in pairs, at the largest size: time after the fault in the same run and repeat."""
    # Requests of two systems that began after a failure are not the same ones.
    going = frame[frame["after_ms"].notna() & frame["faulted"] & frame["workload"].isin(ALIKE)]
    told, short, apart = [], list[tuple[int, int]](), 0
    several = going["case"].nunique() > 1
    for name, case in going.groupby("case", sort=False):
        title = case["title"].iloc[0]
        part = case[case["size_bytes"] == case["size_bytes"].max()]
        size_bytes = int(part["size_bytes"].iloc[0])
        ran = frame[(frame["case"] == name) & (frame["size_bytes"] == size_bytes)]
        at = at_size(size_bytes) + (f" ({title})" if several else "")
        for first, second in combinations(dict.fromkeys(part["system"]), 2):
            one, other = _by_repeat(part, first), _by_repeat(part, second)
            if not one.keys() & other.keys():
                apart += 1
                continue
            found = stats.paired(one, other)
            if found.conclusion == "too few pairs":
                short.append((found.n, len(_by_repeat(ran, first).keys() & _by_repeat(ran, second).keys())))
            else:
                told.append(_compared(found, first, second, at))
    elsewhere = "Systems of different runs are not compared here: `harness compare` does that."
    several_runs = apart and frame["run"].nunique() > 1
    more = len(told) - MOST_COMPARISONS
    left_out = [f"{plural(more, 'more comparison')} of two systems: see the table of all numbers."] if more > 0 else []
    return [*told[:MOST_COMPARISONS], *left_out, *_too_few(short), *([elsewhere] if several_runs else [])]


def _too_few(short: Sequence[tuple[int, int]]) -> list[str]:
    """The comparisons that have too few pairs, each with the pairs that are known and those that were run: of few
    repeats in one sentence, of few known ones in another."""
    unknown = [pair for pair in short if pair[1] >= stats.MIN_PAIRS]
    least, few = f"it takes at least {stats.MIN_PAIRS}.", len(short) - len(unknown)
    which = "to say which of two systems is faster after the fault, in"
    pairs = ", ".join(dict.fromkeys(f"{known} of {ran}" for known, ran in unknown))
    told = [f"Too few repeats in one run {which} {plural(few, 'case')}; {least}"] if few else []
    told += [f"Too few pairs {which} {plural(len(unknown), 'case')}: {pairs} are known; {least}"] if unknown else []
    return told


def _compared(found: stats.Difference, first: str, second: str, at: str) -> str:
    what = f"After the fault{at}, pairing trials of one repeat"
    if found.conclusion == "no difference shown":
        return f"{what}: no difference shown between {first} and {second} ({found.n} pairs; {_would_show(found)})."
    ratio, low, high = found.ratio, found.low, found.high
    if found.conclusion == "more":
        slow, fast = first, second
    else:
        slow, fast, ratio, low, high = second, first, 1 / ratio, 1 / high, 1 / low
    return (
        f"{what}, {slow} took {beside(ratio, 1)} times as long as {fast} "
        f"(interval {beside(low, 1)} to {beside(high, 1)}, {found.n} pairs)."
    )


def _would_show(found: stats.Difference) -> str:
    """How many repeats would show a difference, which qualifies `no difference shown`."""
    needed = stats.pairs_to_show(found.spread, SOUGHT)
    if needed is None:
        return f"they differ too much from each other for any number of repeats to show one of {percent(SOUGHT)}"
    if needed <= found.n:
        return f"one of {percent(SOUGHT)} would have shown"
    return f"about {needed} would show one of {percent(SOUGHT)}"


def _by_repeat(part: pd.DataFrame, system: str) -> dict[Hashable, float]:
    own = part[part["system"] == system]
    return dict(zip(zip(own["run"], own["repeat"], strict=True), own["after_ms"].astype(float), strict=True))
