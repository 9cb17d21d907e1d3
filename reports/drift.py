"""Whether the machine drifted: healthy trials before and after the others that differ. Pure.

If healthy trials ran around at least three blocks, pairs of them are compared (`reports.stats.paired`). Otherwise the
intervals of their iterations must lie further apart than one trial usually differs from the next.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from reports.load import LoadedRun
from reports.trial import Trial
from reports.wording import at_size

MOST_TOLD = 2
"""Of more drifts, which then are the machine's as a whole, only the range is told."""
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

    @property
    def where(self) -> str:
        """The cell in words."""
        points = "".join(f", {axis}={value}" for axis, value in self.axes.items())
        return f"{self.system}{at_size(self.size_bytes)}{points}"

    def __str__(self) -> str:
        what = "bus bandwidth" if self.size_bytes else "speed"
        more = "more" if self.ratio > 1 else "less"
        return (
            f"The machine drifted: {self.where}: healthy {what} afterwards is "
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
    """A sentence for each drift of `run`, or one for many, with the run's number if a report has several runs."""
    found = drifts(run.final_trials)
    told = [*map(str, found)] if len(found) <= MOST_TOLD else [_together(found)]
    return [f"{run.called}: {one}" if run.called else one for one in told]


def _together(found: Sequence[Drift]) -> str:
    ratios = [one.ratio for one in found]
    low, high = (f"{100 * (ratio - 1):+.1f}".replace("-", "\N{MINUS SIGN}") for ratio in (min(ratios), max(ratios)))
    worst = max(found, key=lambda one: abs(log(one.ratio)))
    return (
        f"The machine drifted: healthy speeds of {len(found)} cells changed by {low} to {high} % from before to after, "
        f"that of {worst.where} most; summary.json has each."
    )


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
