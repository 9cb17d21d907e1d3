"""The precision of every cell: the width of the interval of its median speed over the repeats. Pure."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from harness.sweep.plan import Trial
from reports import stats
from reports import trial as stored
from reports.metrics import METRICS
from reports.metrics.view import View


class Width(NamedTuple):
    """One cell: half the width of the 95 % interval over the median, of its widest phase.

    NaN if there are too few repeats.
    """

    cell: str
    half_width: float
    repeats: int


def widths(trials: Iterable[Trial], records: Mapping[str, stored.Trial]) -> list[Width]:
    """One `Width` for every cell of `trials` with measurements, except healthy trials in a sweep with faults."""
    cells: dict[str, list[stored.Trial]] = {}
    for trial in trials:
        record = records.get(trial.trial_id)
        if record is not None and not trial.when:
            cells.setdefault(trial.cell, []).append(record)
    found = [_width(cell, own) for cell, own in cells.items()]
    return [width for width in found if width is not None]


def is_narrow(width: Width, until: float) -> bool:
    """Whether the interval is narrow enough; False for NaN."""
    return width.half_width <= until


def _width(cell: str, records: list[stored.Trial]) -> Width | None:
    halves, repeats = [], 0
    views = [View(record) for record in records]
    for phase in ("before", "after"):
        names = f"{phase}_gbs", f"{phase}_ms"  # workloads other than collectives have no bandwidth
        found = (stats.known(METRICS[name].value(view) for view in views) for name in names)
        medians = next((values for values in found if values.size), np.empty(0))
        if medians.size:
            middle, low, high, n = stats.estimate(medians)
            halves.append((high - low) / 2 / middle if middle > 0 else math.nan)
            repeats = max(repeats, n)
    if not halves:
        return None
    return Width(cell, math.nan if any(map(math.isnan, halves)) else max(halves), repeats)
