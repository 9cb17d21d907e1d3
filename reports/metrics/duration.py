"""The duration of an iteration, by phase and relative to the healthy one."""

from collections.abc import Callable

from reports import stats
from reports.metrics.metric import ALIKE, NOT_COMPARED, Metric
from reports.metrics.view import IF_HIT, ONCE_HEALED, View
from reports.trial import Phase


def _of(phase: Phase) -> Callable[[View], float | None]:
    return lambda view: view.usual_ns(phase) / 1e6


def _slowdown(view: View) -> float | None:
    healthy = view.healthy_ns
    if view.disturbed_slowdown:
        return None
    return view.usual_ns("after") / healthy if healthy > 0 else None


def _mean(view: View) -> float | None:
    return stats.mean(i.duration_ns for i in view.since) / 1e6


def _p99(view: View) -> float | None:
    return stats.percentile((i.duration_ns for i in view.since), 99) / 1e6


RATIO_OF_MEANS = (
    "the mean of all iterations from the first that is hit until the repair over the mean of those before the fault"
)
"""What T/T0 is if the fault comes and goes."""

METRICS = (
    Metric("before_ms", "ms", "lower", "a healthy iteration (median)", _of("before"), tolerance=NOT_COMPARED),
    Metric(
        "hit_ms", "ms", "lower", f"an iteration that the fault hits (mean; {IF_HIT})", _of("hit"),
        of="trials that went on", tolerance=NOT_COMPARED,
    ),
    Metric(
        "after_ms", "ms", "lower",
        "an iteration after the fault (median of those before its repair, and of several failures after the last; if "
        "it comes and goes, the mean of all from the first that is hit until the repair; no value if none begins in "
        "between)",
        _of("after"), of="trials that went on", tolerance=NOT_COMPARED,
    ),
    Metric(
        "repaired_ms", "ms", "lower", f"an iteration {ONCE_HEALED}", _of("repaired"),
        of="some trials that went on", tolerance=NOT_COMPARED,
    ),
    Metric(
        "slowdown", "", "lower",
        "T/T0: an iteration after the fault over one before it (medians, of several failures after the last, of an "
        "even number the faster middle one, without the iteration in which the ranks change their schedule; if the "
        "fault comes and goes, the means of all before and of all from the first that is hit until the repair)",
        _slowdown, of="trials that went on", heading="T/T0", short="T/T0", workloads=ALIKE, against_healthy=True,
        by_medians=True,
    ),
    Metric(
        "mean_ms", "ms", "lower", "mean of all iterations from the first that is hit to the end of the trial", _mean,
        of="trials that went on", heading="mean since the fault", short="mean",
    ),
    Metric(
        "p99_ms", "ms", "lower",
        "99th percentile of all iterations from the first that is hit to the end of the trial", _p99,
        of="trials that went on", heading="p99 since the fault", short="p99", tolerance=NOT_COMPARED,
    ),
)  # fmt: skip
