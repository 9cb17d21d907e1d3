"""Bus bandwidth of a collective by phase, as defined by nccl-tests."""

from collections.abc import Callable

from reports.metrics.metric import NOT_COMPARED, Metric
from reports.metrics.view import IF_HIT, ONCE_HEALED, View
from reports.trial import Phase


def _of(phase: Phase) -> Callable[[View], float | None]:
    return lambda view: view.usual_gbs(phase)


def _share(view: View) -> float | None:
    limit, healthy = view.setting.limit_gbs(view.trial.collective), view.usual_gbs("before")
    if not view.by_rate:
        return None
    return healthy / limit if limit and healthy is not None else None


METRICS = (
    Metric(
        "before_gbs", "GB/s", "higher", "healthy bus bandwidth (of the median iteration)",
        _of("before"), heading="healthy", short="before", workloads=("collective",),
    ),
    Metric(
        "share", "", "higher", "healthy bus bandwidth over what the NICs' rate allows (unknown where a burst matters)",
        _share,
        of="some trials", heading="of NIC limit", percent=True, workloads=("collective",), tolerance=NOT_COMPARED,
    ),
    Metric(
        "hit_gbs", "GB/s", "higher",
        f"bus bandwidth of the iterations that the fault hits (over all their time; {IF_HIT})",
        _of("hit"), of="trials that went on", heading="hit", short="hit", workloads=("collective",),
        tolerance=NOT_COMPARED,
    ),
    Metric(
        "after_gbs", "GB/s", "higher",
        "bus bandwidth after the fault (of the median iteration before its repair, and of several failures after the "
        "last; if it comes and goes, of the mean of all from the first that is hit until the repair; no value if none "
        "begins in between)",
        _of("after"), of="trials that went on", heading="after", short="after", workloads=("collective",),
    ),
    Metric(
        "repaired_gbs", "GB/s", "higher", f"bus bandwidth {ONCE_HEALED}", _of("repaired"),
        of="some trials that went on", heading="repaired", short="repaired", workloads=("collective",),
    ),
)  # fmt: skip
