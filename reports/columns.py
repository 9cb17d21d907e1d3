"""The columns of the tables by size and system, derived from the metrics' records. Pure."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from reports import palette
from reports.headline import Line
from reports.metrics import METRICS
from reports.metrics.metric import Metric


def about(lines: Sequence[Line]) -> list[tuple[str, Callable[[Line], str]]]:
    """The columns that distinguish the lines besides size and system: collective, fault, and every axis."""
    axes = dict.fromkeys(axis for line in lines for axis in line.points)
    # Where axes say all that differs, as collective and dtype do together, the operation would say it again.
    differs = len({line.beyond_axes for line in lines}) > 1
    heading = "operation" if "collective" in axes else "collective"
    found: list[tuple[str, Callable[[Line], str]]] = [
        *([(heading, lambda line: line.operation)] if differs else []),
        ("fault", lambda line: line.scenario),
        *((axis, partial(_point, axis)) for axis in axes),
    ]
    told: dict[tuple[str, ...], tuple[str, Callable[[Line], str]]] = {}
    for name, of in found:
        told.setdefault(tuple(map(of, lines)), (name, of))  # an axis may say what a column before it says
    return [column for texts, column in told.items() if len(set(texts)) > 1]


def _point(axis: str, line: Line) -> str:
    return line.points.get(axis, "")


def places(lines: Sequence[Line]) -> dict[str, palette.Place]:
    """The place of each system of `lines`, everywhere in a report."""
    if not any(line.run for line in lines):
        return palette.places({line.system for line in lines})
    found = palette.places_by_run((line.plain_system, line.run) for line in lines)
    return {line.system: found[line.plain_system, line.run] for line in lines}


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key that compares numbers within names as numbers: k2 comes before k16."""
    parts = re.findall(r"[0-9]{1,15}|[^0-9]+|[0-9]+", name)
    return [(not p.isascii() or not p.isdigit(), int(p) if p.isascii() and p.isdigit() else 0, p) for p in parts]


def shown(lines: Sequence[Line]) -> list[Metric]:
    """The metrics that have a column: those with a heading and a value in any of `lines`."""
    return [m for m in METRICS.values() if m.heading and any(known(line, m) for line in lines)]


def known(line: Line, metric: Metric) -> bool:
    """Whether `line` has a value of `metric`."""
    return line[metric.name].n > 0


def heading(metric: Metric) -> str:
    """The heading with its unit: ``healthy (GB/s)``."""
    return f"{metric.heading} ({metric.shown_unit})" if metric.shown_unit else metric.heading
