"""Whether the machine drifted: healthy trials before and after the others that differ. Pure.

If healthy trials ran around at least three blocks, pairs of them are compared (`reports.stats.paired`). Otherwise the
intervals of their iterations must lie further apart than one trial usually differs from the next.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reports.load import LoadedRun
from reports.trial import Trial
from reports.wording import at_size

MIN_DRIFT = 0.03
"""Relative differences below this between single trials do not count: two trials of one minute differ by as much."""


@dataclass(frozen=True)
class Drift:
    """Healthy trials of one system, size and point of the axes that became faster or slower during the sweep."""

    system: str
    size_bytes: int
    axes: Mapping[str, str]
    ratio: float
    """Healthy speed afterwards over that before."""

    def __str__(self) -> str:
        points = "".join(f", {axis}={value}" for axis, value in self.axes.items())
        what = "bus bandwidth" if self.size_bytes else "speed"
        more = "more" if self.ratio > 1 else "less"
        return (
            f"The machine drifted: {self.system}{at_size(self.size_bytes)}{points}: healthy {what} afterwards is "
            f"{100 * abs(self.ratio - 1):.1f} % {more} than before."
        )


def drifts(trials: Iterable[Trial]) -> list[Drift]:
    """Every system, size and point of the axes whose healthy trials differ before and after. `trials`: the last
    attempts of one run."""
    sides: dict[tuple[str, int, tuple[tuple[str, str], ...]], dict[str, list[Trial]]] = {}
    for trial in trials:
        when = trial.scenario.removeprefix("healthy_")
        if when in ("before", "after") and trial.status != "inconclusive":
            key = trial.shown_system, trial.size_bytes, tuple((axis, str(at)) for axis, at in trial.axes.items())
            sides.setdefault(key, {"before": [], "after": []})[when].append(trial)
    found = []
    for (system, size_bytes, axes), of in sorted(sides.items(), key=lambda one: one[0]):
        ratio = _ratio(of["before"], of["after"])
        if ratio is not None:
            found.append(Drift(system, size_bytes, dict(axes), ratio))
    return found


def drift_lines(run: LoadedRun) -> list[str]:
    """A sentence for each drift of `run`, with its number if a report has several runs."""
    return [f"{run.called}: {one}" if run.called else str(one) for one in drifts(run.final_trials)]


def _ratio(before: Sequence[Trial], after: Sequence[Trial]) -> float | None:
    """Speed after over speed before; None if no difference is shown."""
    # Not at the top: NumPy takes a tenth of a second, and few sweeps have such trials.
    from reports import stats

    found = stats.paired(_by_repeat(before), _by_repeat(after))
    if found.n >= stats.MIN_PAIRS:
        return found.ratio if found.conclusion in ("more", "less") else None
    old_ns, new_ns = ([i.duration_ns for r in side for i in r.timed] for side in (before, after))
    old, new = stats.estimate(old_ns), stats.estimate(new_ns)
    if not old.n or not new.n or not (new.low > old.high or new.high < old.low):
        return None
    ratio = stats.typical(old_ns) / stats.typical(new_ns)
    return ratio if abs(ratio - 1) > MIN_DRIFT else None


def _by_repeat(trials: Sequence[Trial]) -> dict[Hashable, float]:
    """How long the typical iteration takes, which is as fast as the healthy speed that trials tell."""
    from reports import stats

    return {trial.repeat: stats.typical(i.duration_ns for i in trial.timed) for trial in trials if trial.timed}
