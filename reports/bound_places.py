"""The trials that a bound of an experiment is on, and the bounds that a run is silent about. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from r2ccl_core.errors import UnitError
from r2ccl_core.units import parse_size
from reports.metrics import METRICS
from reports.trial import SIMULATED, Run, Trial

Bound = Mapping[str, Any]
"""One of an experiment's bounds, as stored in run.json."""


def bounds_of(experiment: Mapping[str, Any]) -> list[Bound]:
    """The bounds of `experiment` on metrics that this program knows."""
    bounds = experiment.get("bound")
    stored = bounds if isinstance(bounds, list) else []
    return [bound for bound in stored if isinstance(bound, dict) and bound.get("metric") in METRICS]


def speaks_of(bound: Bound, system: str, size_bytes: int, scenario: str, points: Mapping[str, str]) -> bool:
    """Whether `bound` is on such a trial."""
    return (
        bound.get("system") in (None, system.removesuffix(SIMULATED))
        and _size(bound.get("size")) in (None, size_bytes)
        and bound.get("fault") in (None, scenario)
        and all(points.get(axis) == value for axis, value in _points(bound).items())
    )


def is_selected(bound: Bound, only: Mapping[str, Sequence[str]]) -> bool:
    """Whether a run of `only` these values, by dimension, can have trials of `bound`."""
    places = {**_grid_places(bound), **_points(bound)}
    return all(places.get(axis) in (None, *values) for axis, values in only.items())


def narrowed(bound: Bound, only: Mapping[str, Sequence[str]]) -> str:
    """``judged on size=64MiB alone, as --only selected``: what `bound` itself leaves open; empty: nothing."""
    places = {**_grid_places(bound), **_points(bound)}
    chosen = [f"{axis}={v}" for axis, values in only.items() if axis not in places for v in dict.fromkeys(values)]
    return f"judged on {', '.join(chosen)} alone, as --only selected" if chosen else ""


def named(bound: Bound) -> str:
    """``slowdown (balance, 64MiB), every trial``."""
    places = list(_grid_places(bound).values())
    places += [f"{axis}={value}" for axis, value in _points(bound).items()]
    worst = ", every trial" if bound.get("of") == "worst" else ""
    where = f" ({', '.join(places)})" if places else ""
    return f"{bound['metric']}{where}{worst}"


def not_judged(run: Run, trials: Iterable[Trial], incomplete: str = "") -> str:
    """The bounds of `run` that are on none of its `trials`, in one sentence with the reason; empty: there are none.

    Those of an `incomplete` run (`reports.load.LoadedRun`) whose trials may be missing are judged as not measured.
    """
    ran = {(t.shown_system, t.size_bytes, t.shown_scenario, tuple(t.axes.items())) for t in trials}
    silent = [
        named(bound)
        for bound in bounds_of(run.experiment)
        if not (incomplete and is_selected(bound, run.only))
        and not any(speaks_of(bound, system, size, scenario, dict(at)) for system, size, scenario, at in ran)
    ]
    if not silent:
        return ""
    why = "--only selected none of their trials" if run.only else "the run has none of their trials"
    return f"Bounds that were not judged, because {why}: {'; '.join(silent)}."


def _grid_places(bound: Bound) -> dict[str, str]:
    return {key: str(bound[key]) for key in ("system", "size", "fault") if bound.get(key) is not None}


def _points(bound: Bound) -> Mapping[str, str]:
    points = bound.get("axes")
    return points if isinstance(points, dict) else {}


def _size(value: object) -> int | None:
    try:
        return None if value is None else parse_size(str(value))
    except UnitError:
        return -1
