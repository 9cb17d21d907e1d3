"""The cost of a schedule switch, if the ranks make one after a loss (`reports.after`)."""

from reports import stats
from reports.metrics.metric import NOT_COMPARED, Metric
from reports.metrics.view import View


def _lasted(view: View) -> float | None:
    switch = view.rest.switch
    return None if switch is None else switch.duration_ns / 1e6


def _cost(view: View) -> float | None:
    switch = view.rest.switch
    steady_ns = [float(i.duration_ns) for i in view.rest.steady]
    return None if switch is None else stats.hit_cost_ns([float(switch.duration_ns)], steady_ns) / 1e6


METRICS = (
    Metric(
        "switch_ms", "ms", "lower", "the operation in which the ranks change their schedule", _lasted,
        of="some trials", heading="schedule switch", tolerance=NOT_COMPARED,
    ),
    Metric(
        "switch_cost_ms", "ms", "lower",
        "additional time of the operation that changes the schedule, against one after it",
        _cost, of="some trials", tolerance=NOT_COMPARED,
    ),
)  # fmt: skip
