"""The cost of a failure: the time that a trial loses, and the part of it due to its first iteration after the fault."""

from reports import stats
from reports.metrics.metric import ALIKE, NOT_COMPARED, Metric
from reports.metrics.view import DIFFER, DOUBTFUL, IF_HIT, View
from reports.wording import plural

GAIN = (
    "Time lost below 0 means that the iterations since the fault were faster than those before it: the ranks changed "
    "to a schedule that is faster at that size, or something else slowed the iterations before. Repeats on a quieter "
    "machine tell which."
)


def _lost(view: View) -> float | None:
    if view.trial.fault is None or not view.since or view.disturbed:
        return None
    return view.lost_ns / 1e6


def _is_compared(view: View) -> bool:
    """Whether it went on after a fault, and does the same again and again."""
    went_on = view.trial.fault is not None and view.trial.status in ("ok", "wrong")
    return went_on and view.trial.workload in ALIKE


def disturbed(view: View) -> str:
    """Why the time that a trial lost is not known although it went on; empty if it is known."""
    return view.disturbed if _is_compared(view) else ""


def disturbed_slowdown(view: View) -> bool:
    """Whether its T/T0 is not known for the same reason."""
    return _is_compared(view) and view.disturbed_slowdown


def reads_low(view: View, by_medians: bool = False) -> bool:
    """Whether the time lost (`by_medians`: T/T0) is not known because it is too low."""
    if by_medians:
        return disturbed_slowdown(view) and view.slowdown_reads_low
    return bool(disturbed(view)) and view.reads_low


def not_known(view: View) -> str:
    """The same as a statement about the trial."""
    lost, slowdown = disturbed(view), disturbed_slowdown(view)
    what = " and ".join(["time lost"] * bool(lost) + ["T/T0"] * slowdown)
    why = lost or view.slower_by_medians or DIFFER
    return f"{what} not known: {why}" if what else ""


def unknown_costs(trials: int, slowdowns: int) -> str:
    """The same as a statement about so many trials, of so many of which T/T0 is not known either."""
    what = f"What {plural(trials, 'trial')} lost" if trials else f"The T/T0 of {plural(slowdowns, 'trial')}"
    nor = f", nor is the T/T0 of {slowdowns}" if slowdowns and trials else ""
    return (
        f"{what} is not known{nor}: something other than the fault slowed some of the iterations before it, with "
        "which those after it are compared. The other numbers of these trials count. A median is of the known ones, "
        "and is not known either where the others could make it another by more than a tenth. The machine may also "
        "have slowed iterations after the fault, which looks like a cost: on such a machine, read the costs of short "
        "operations as upper limits. Repeat the trials on a quieter machine, or with more iterations before the fault."
    )


def is_gain(lost_share: float) -> bool:
    """Whether a cell of this share lost so much less than nothing that `GAIN` is told."""
    return lost_share < -DOUBTFUL


def _lost_share(view: View) -> float | None:
    """Of a fault that comes and goes to the end this is T/T0 - 1, and no better known."""
    lost, healthy_ms = _lost(view), len(view.since) * view.healthy_mean_ns / 1e6
    if view.comes_and_goes and view.disturbed_slowdown:
        return None
    return lost / healthy_ms if lost is not None and healthy_ms > 0 else None


def _same_schedule_ns(view: View) -> list[float]:
    """Iterations comparable to the hit one: if the ranks switched schedules, those before the switch."""
    return view.durations_ns("after") if view.rest.switch is None else [float(i.duration_ns) for i in view.rest.old]


def _stops_next(view: View) -> bool:
    """Whether the fault did not stop the iterations that it hit, but may have stopped the next one: those were no
    longer than the longest healthy one, and this one was, and longer than all that follow."""
    hit, before, after = view.durations_ns("hit"), view.durations_ns("before"), _same_schedule_ns(view)
    if view.several or not (hit and before and after):
        return False
    return max(hit) <= max(before) < after[0] and after[0] > max(after[1:], default=0)


def _hit_cost(view: View) -> float | None:
    """Where the next iteration was stopped and no other follows under the fault, nothing says what it would have
    taken."""
    if view.comes_and_goes or not view.knows_hit:
        return None
    hit, after = view.durations_ns("hit"), _same_schedule_ns(view)
    if _stops_next(view):
        hit, after = [*hit, after[0]], after[1:]
    return stats.hit_cost_ns(hit, after) / 1e6


def _stall(view: View) -> float | None:
    hit, fault = view.in_phase("hit"), view.trial.fault
    if fault is None or view.several or view.comes_and_goes or len(hit) != 1:
        return None
    after = _same_schedule_ns(view)
    if _stops_next(view):
        return stats.stall_ns(after[0], 0, view.healthy_ns, stats.typical(after[1:])) / 1e6
    usual_ns = view.healthy_ns, stats.typical(after)
    return stats.stall_ns(float(hit[0].duration_ns), fault.t_before_ns - hit[0].t_ns, *usual_ns) / 1e6


METRICS = (
    Metric(
        "lost_ms", "ms", "lower", "time lost: additional time of all iterations from the first hit one to the end of "
        "the trial, against as many healthy ones (of their mean), and between them where that was longer than the "
        "longest healthy iteration and the longest healthy time between two together, beside a hit one, where a "
        "repair begins in it or, if the fault is not the loss of NICs, before its repair",
        _lost, of="trials that went on", heading="time lost", short="lost", workloads=ALIKE, against_healthy=True,
        in_part=True, tolerance=NOT_COMPARED,
    ),
    Metric(
        "lost_share", "", "lower",
        "time lost from the first hit iteration to the end of the trial, over the time of as many healthy iterations",
        _lost_share,
        of="trials that went on", percent=True, workloads=ALIKE, against_healthy=True, like_slowdown=True,
        tolerance=NOT_COMPARED,
    ),
    Metric(
        "hit_cost_ms", "ms", "lower",
        "additional time of the hit iteration, or of all together if several are hit, against ones after them (with "
        "the next one, if the hit ones were no longer than a healthy one, and the next was longer than every healthy "
        "and every later one; not known if nothing follows that; "
        f"{IF_HIT})",
        _hit_cost,
        of="some trials that went on", heading="hit cost", workloads=ALIKE, against_after=True,
        not_of=("comes_and_goes",), tolerance=NOT_COMPARED,
    ),
    Metric(
        "stall_ms", "ms", "lower", "stall of the hit iteration that lost bandwidth does not explain (of the next "
        "one, where only that was stopped, as for hit_cost_ms)", _stall,
        of="some trials that went on", workloads=ALIKE, against_after=True, not_of=("several", "comes_and_goes"),
        tolerance="50 ms",
    ),
)  # fmt: skip
