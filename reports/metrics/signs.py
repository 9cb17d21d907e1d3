"""When each sign of a failure appeared: noticed, moved to other NICs, traffic back, stopped, in use again."""

from collections.abc import Callable

from reports import stats
from reports.metrics.metric import Metric
from reports.metrics.view import View


def _first_ms(view: View, kind: str, from_ns: int | None, since_ns: float | None) -> float | None:
    """Time from `since_ns` to the first such event at or after `from_ns`; one in between comes at once."""
    if from_ns is None or since_ns is None:
        return None
    times = (e["t_ns"] for e in view.events if e["t_ns"] >= from_ns and str(e.get("kind")) == kind)
    first = next(times, None)
    return None if first is None else max(0.0, float(first - since_ns)) / 1e6


def _sign(kind: str) -> Callable[[View], float | None]:
    def sign(view: View) -> float | None:
        return _first_ms(view, kind, view.trial.fault.t_before_ns if view.trial.fault else None, view.effect_ns)

    return sign


def _returned(view: View) -> float | None:
    healed_ns = view.trial.fault.heal_ns if view.trial.fault else None
    return _first_ms(view, "path_returned", healed_ns, healed_ns)


def _recovered(view: View) -> float | None:
    """By the counters: from the fault's effect until the struck host again sends at its later speed."""
    trial, hit = view.trial, view.in_phase("hit")
    later = [i for i in trial.iterations if i.phase == "after"]
    # Several failures cause several dips; only the first dip belongs to the first failure.
    if trial.fault is None or trial.further_faults or not hit or not later:
        return None
    if view.struck_rates is None or view.effect_ns is None:
        return None
    from reports.recovery import recovery_ns, without

    span = later[0].t_ns, later[-1].t_ns + later[-1].duration_ns
    hit_end_ns = hit[-1].t_ns + hit[-1].duration_ns
    rates = without(view.struck_rates, trial.fault.nic)
    took = recovery_ns(rates, trial.fault.host, view.effect_ns, hit_end_ns, span)
    return None if took is None else took / 1e6


def _stopped(view: View) -> float | None:
    after_ns = view.trial.error.after_fault_ns if view.trial.error else None
    return after_ns / 1e6 if after_ns is not None and after_ns >= 0 else None


def _replayed(view: View) -> float | None:
    if view.trial.fault is None:
        return None
    told = [stats.number(core.get("replayed_chunks")) for core in view.trial.core.values() if isinstance(core, dict)]
    return float(sum(stats.known(told))) if told else None


METRICS = (
    Metric(
        "detect_ms", "ms", "lower", "from the fault's effect to its first sign in any core", _sign("path_down"),
        of="some trials",
    ),
    Metric(
        "migrate_ms", "ms", "lower", "from the fault's effect to the first chunk moved", _sign("migrated"),
        of="some trials",
    ),
    Metric(
        "recover_ms", "ms", "lower",
        "from the fault's effect until the struck host's other NICs send at their later speed (0: they did not stop "
        "for as long as a sample takes, 1 ms)",
        _recovered, of="some trials",
    ),
    Metric("return_ms", "ms", "lower", "from the heal until the NIC carries again", _returned, of="some trials"),
    Metric(
        "error_after_ms", "ms", "lower", "from the fault to the error", _stopped,
        of="trials that stopped", heading="fault to error",
    ),
    Metric("replayed_chunks", "chunks", "lower", "chunks that were sent again", _replayed, of="some trials"),
)  # fmt: skip
