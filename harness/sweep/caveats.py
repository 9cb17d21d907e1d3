"""Caveats about a sweep that are shown beside its table: drift of the machine, cells with too wide an interval. Pure.

Drift is judged by healthy trials before and after the others. If they ran around at least three blocks, pairs of them
are compared (`reports.stats.paired`). Otherwise the intervals of their iterations must lie further apart than one trial
usually differs from the next.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from harness.experiment.sweep import SweepModel
from harness.sweep.plan import Trial
from harness.sweep.precision import is_narrow, widths
from reports import trial as stored
from reports.metrics import cost
from reports.metrics.view import View
from reports.wording import at_size

MIN_DRIFT = 0.03
"""Relative differences below this between single trials do not count: two trials of one minute differ by as much."""


def precision_caveats(trials: Sequence[Trial], sweep: SweepModel, records: Mapping[str, stored.Trial]) -> Iterator[str]:
    """A line for every cell whose interval stayed wider than the sweep asks for."""
    until = sweep.repeats.until
    if until is None:
        return
    wide = [width for width in widths(trials, records) if not is_narrow(width, until)]
    for width in wide:
        shown = "not known" if width.half_width != width.half_width else f"{100 * width.half_width:.1f} %"
        repeats = f"{width.repeats} repeat{'s' * (width.repeats != 1)}"
        yield f"not known within {100 * until:g} %: {width.cell}: interval +-{shown} after {repeats}"


def cost_caveats(records: Iterable[stored.Trial]) -> Iterator[str]:
    """A line about the trials whose cost is not known, if there are any."""
    slowed = [view for view in map(View, records) if cost.disturbed(view)]
    if slowed:
        yield cost.unknown_costs(len(slowed), sum(map(cost.disturbed_slowdown, slowed)))


def drift_caveats(records: Mapping[str, stored.Trial]) -> Iterator[str]:
    """A line for every system, size and point of the axes whose healthy trials differ before and after."""
    pairs: dict[tuple[str, int, str], dict[str, list[stored.Trial]]] = {}
    for record in records.values():
        when = record.scenario.removeprefix("healthy_")
        if when in ("before", "after") and record.status != "inconclusive":
            points = "".join(f", {axis}={value}" for axis, value in record.axes.items())
            sides = pairs.setdefault((record.system, record.size_bytes, points), {"before": [], "after": []})
            sides[when].append(record)
    for (system, size, points), sides in sorted(pairs.items()):
        what = "bus bandwidth" if size else "speed"
        ratio = _drift(sides["before"], sides["after"])
        if ratio is not None:
            more = "more" if ratio > 1 else "less"
            yield (
                f"the machine drifted: {system}{at_size(size)}{points}: healthy {what} afterwards is "
                f"{100 * abs(ratio - 1):.1f} % {more} than before"
            )


def _drift(before: Sequence[stored.Trial], after: Sequence[stored.Trial]) -> float | None:
    """Ratio of after to before; None if no difference is shown."""
    # Not at the top: NumPy takes a tenth of a second, and few sweeps have such trials.
    from reports import stats

    found = stats.paired(_by_repeat(after), _by_repeat(before))
    if found.n >= stats.MIN_PAIRS:
        return found.ratio if found.conclusion in ("more", "less") else None
    old, new = (stats.estimate(_speed(i) for r in side for i in _timed(r)) for side in (before, after))
    if not old.n or not new.n or not (new.low > old.high or new.high < old.low):
        return None
    ratio = new.median / old.median
    return ratio if abs(ratio - 1) > MIN_DRIFT else None


def _by_repeat(records: Sequence[stored.Trial]) -> dict[Hashable, float]:
    timed = {r.repeat: _timed(r) for r in records}
    return {repeat: median(map(_speed, own)) for repeat, own in timed.items() if own}


def _speed(iteration: stored.Iteration) -> float:
    """Bus bandwidth; iterations per second if there is none."""
    return iteration.busbw_gbs if iteration.busbw_gbs is not None else 1e9 / iteration.duration_ns


def _timed(record: stored.Trial) -> list[stored.Iteration]:
    return [i for i in record.iterations if i.phase != "warmup"]
