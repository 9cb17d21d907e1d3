"""``harness metrics``: every metric of a trial, from the records of `reports.metrics`."""

import json
from typing import Any

from harness.errors import ExitCode
from harness.terminal import say
from reports.metrics import METRICS
from reports.metrics.metric import Metric

TOGETHER = {"median": "their median", "total": "their sum", "worst": "the worst of them"}
"""How the repeats of a cell are combined."""


def list_metrics(as_json: bool) -> ExitCode:
    """Prints all metrics, for people or as JSON."""
    found = [described(metric) for metric in METRICS.values()]
    if as_json:
        print(json.dumps(found, indent=1))
        return ExitCode.OK
    for one in found:
        unit = f" ({one['unit']})" if one["unit"] else ""
        say(f"{one['name']}{unit}", style="bold")
        say(f"    {one['meaning']}")
        say(f"    {one['better']} is better; of {one['of']}; of repeats {TOGETHER[one['aggregate']]}", indent="    ")
    return ExitCode.OK


def described(metric: Metric) -> dict[str, Any]:
    """One metric as plain values."""
    return {
        "name": metric.name,
        "unit": metric.unit,
        "better": metric.better or "nearer to 1",
        "meaning": metric.meaning,
        "of": metric.of,
        "aggregate": metric.aggregate,
    }
