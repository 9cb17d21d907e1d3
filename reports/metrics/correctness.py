"""Whether results are right and trials ended as expected: counted things, of which one is already too many."""

from reports.metrics.metric import Metric
from reports.metrics.view import View


def checked(view: View) -> int:
    """Iterations whose every element was compared, warm-ups included."""
    return sum(i.wrong is not None for i in view.trial.iterations)


def _wrong(view: View) -> float | None:
    """Wrong elements; None if nothing was compared."""
    return float(sum(i.wrong or 0 for i in view.trial.iterations)) if checked(view) else None


METRICS = (
    Metric(
        "wrong", "elements", "lower", "wrong elements over all ranks and checked iterations, warm-ups included", _wrong,
        aggregate="total", heading="wrong", simulated=False, on_any_network=True,
    ),
    Metric(
        "unexpected", "trials", "lower", "trials that did not end as the experiment expects",
        lambda view: float(not view.trial.expected), aggregate="total", on_any_network=True,
    ),
)  # fmt: skip
