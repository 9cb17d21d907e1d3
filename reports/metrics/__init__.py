"""Every metric of a trial, in the order of the tables: the one list from which all outputs derive.

Terminal, report, bounds, comparisons, targets, exports and documents take a metric's name, unit, direction, meaning,
value and aggregate from here. A new metric is a record in a file beside this one, and a line below.
"""

from reports.metrics import bandwidth, correctness, cost, duration, models, schedule_switch, serving, signs, training
from reports.metrics.metric import Metric

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *bandwidth.METRICS,
        *training.METRICS,
        *serving.METRICS,
        *duration.METRICS,
        *cost.METRICS,
        *schedule_switch.METRICS,
        *signs.METRICS,
        *models.METRICS,
        *correctness.METRICS,
    )
}
"""Metrics by name, which is also the column of `reports.measures.trial_frame`."""
