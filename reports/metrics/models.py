"""Measurements compared with bounds, schedules and the simulator."""

from typing import TYPE_CHECKING

from reports import stats
from reports.metrics.metric import NOT_COMPARED, Metric
from reports.metrics.view import View

if TYPE_CHECKING:
    import pandas as pd


def _bound_share(view: View) -> float | None:
    """The lower bound over all schedules with the NIC lost (`reports.model.floor`), divided by the time measured after
    it."""
    if not view.loses_a_nic or not view.setting.nics_gbs or not view.by_rate:
        return None
    from reports.model import floor

    least, after_gbs = floor(view.trial.collective, view.setting), view.usual_gbs("after")
    return after_gbs * least / view.setting.nics_gbs if least is not None and after_gbs is not None else None


def _gap(view: View) -> float | None:
    limit_s = stats.number((view.trial.simulated or {}).get("bound_s"))
    last_ns = stats.median(view.durations_ns("after") or view.durations_ns("before"))
    return last_ns / 1e9 / limit_s - 1 if limit_s else None


def _remaining(view: View) -> float | None:
    about = view.trial.simulated or {}
    told = stats.number(about.get("bound_s")) and (view.durations_ns("after") or view.durations_ns("before"))
    return stats.number(about.get("remaining")) if told else None


def _over_schedule(view: View) -> float | None:
    if not view.received:
        return None
    from reports.traffic import over_schedule

    return over_schedule(view.received)


def _over_simulated(frame: "pd.DataFrame") -> "pd.Series":
    """Measured over simulated time, for measured trials whose experiment also simulates the same system."""
    keys, columns = ["alike", "case", "size_bytes"], ["before_ms", "after_ms"]
    simulated = frame[frame["source"] == "simulated"].groupby(keys)[columns].median()
    beside = frame.join(simulated.add_suffix("_simulated"), on=keys)
    before, after = (beside[name] / beside[f"{name}_simulated"] for name in columns)
    farther = (after - 1).abs().fillna(-1) > (before - 1).abs().fillna(-1)
    worst: pd.Series = after.where(farther, before)
    return worst.where(frame["source"] == "measured")


METRICS = (
    Metric(
        "bound_share", "", "higher", "the least time of any schedule with the NIC lost over the time measured",
        _bound_share, of="some trials", heading="of the bound", percent=True, workloads=("collective",),
        tolerance=NOT_COMPARED,
    ),
    Metric(
        "gap", "", "lower", "simulated: time over the lower bound for what is left, minus 1", _gap, of="some trials",
        tolerance=NOT_COMPARED,
    ),
    Metric(
        "remaining", "", "higher", "simulated: the share of the slowest host's bandwidth that is left", _remaining,
        of="some trials", tolerance=NOT_COMPARED,
    ),
    Metric(
        "over_simulated", "", None, "measured over simulated time, healthy or after the fault: the one farther "
        "from 1",
        lambda view: None, of="some trials", among=_over_simulated,
    ),
    Metric(
        "over_schedule", "", None, "bytes that a host received over those of the schedule: the host and phase "
        "farthest from 1",
        _over_schedule, of="some trials", workloads=("collective",),
    ),
)  # fmt: skip
