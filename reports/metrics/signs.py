"""When each sign of a failure appeared: noticed, moved to other NICs, traffic back, stopped, in use again."""

from collections.abc import Callable, Container, Mapping, Sequence
from math import inf
from typing import Any

from reports import stats
from reports.metrics.ends import Ends
from reports.metrics.metric import NOT_COMPARED, Metric
from reports.metrics.view import View
from reports.trial import Fault

NOTICED = ("path_down", "path_held", "copied")
"""The kinds of the core's events that say that it noticed a loss."""


def _sign(*kinds: str) -> Callable[[View], float | None]:
    """Time from the fault's effect to the first event of these `kinds`, and of its NIC, within its first loss; one that
    comes before the effect comes at once. What the core tells once traffic is back by the counters began before that:
    it goes round a NIC before it is sure of its loss."""

    def sign(view: View) -> float | None:
        told_ns = _told_ns(view, kinds)
        if told_ns is None:
            return None
        back_ns = view.recovery.took_ns if view.recovery is not None and view.recovery.took_ns > 0 else inf
        return min(told_ns, back_ns) / 1e6

    return sign


def _told_ns(view: View, kinds: Container[str]) -> float | None:
    """From the fault's effect to the first event of these `kinds` and of its NIC, within its first loss."""
    fault, effect_ns = view.trial.fault, view.effect_ns
    if fault is None or effect_ns is None:
        return None
    own = _own_events(view, fault)
    end_ns = _first_loss_end_ns(view, fault, own)
    first = next((e["t_ns"] for e in own if e.get("kind") in kinds and e["t_ns"] < end_ns), None)
    return None if first is None else max(0.0, float(first - effect_ns))


def _own_events(view: View, fault: Fault) -> Sequence[Mapping[str, Any]]:
    """What the cores told since `fault` of its NIC, or of none; of a path whose other end was struck, too, until then:
    it may be a sign of that."""
    since = [e for e in view.events if e["t_ns"] >= fault.t_before_ns]
    if not fault.nic:
        return since
    ends = Ends(view.trial)
    others = [f for f in view.trial.further_faults if f.nic and (f.host, f.nic) != (fault.host, fault.nic)]
    return [
        e
        for e in since
        if not e.get("nic")
        or (
            ends.may_be_of(e, fault.host, fault.nic)
            and not any(e["t_ns"] >= f.t_before_ns and ends.may_be_of(e, f.host, f.nic) for f in others)
        )
    ]


def _first_loss_end_ns(view: View, fault: Fault, own: Sequence[Mapping[str, Any]]) -> float:
    """When the struck NIC was healed, carried again in any core, or was lost again; infinite if it was none of these.

    A link that is up again ends no loss: until a path returns, cores still notice the loss and move chunks.
    """
    link_was_up = False
    again = (f.t_before_ns for f in view.trial.further_faults if (f.host, f.nic) == (fault.host, fault.nic))
    end_ns = min(*again, inf if fault.heal_ns is None else fault.heal_ns, inf)
    for event in own:
        if fault.nic and not event.get("nic"):
            continue
        kind = str(event.get("kind"))
        if kind == "path_returned" or (kind == "link_down" and link_was_up):
            return min(float(event["t_ns"]), end_ns)
        link_was_up |= kind == "link_up"
    return end_ns


def _returned(view: View) -> float | None:
    """The longest of all healed NICs; None as well if one of them is not back."""
    took = [nic.took_ns for nic in view.healed_nics if nic.took_ns is not None]
    return max(took) / 1e6 if took and not view.nics_not_back else None


def _not_returned_for(view: View) -> float | None:
    """What the longest return is more than: from the heal to the end of the trial, or what another NIC took."""
    least = [nic.lasted_ns if nic.took_ns is None else nic.took_ns for nic in view.healed_nics if nic.was_used]
    return max(least) / 1e6 if view.nics_not_back else None


def _recovered(view: View) -> float | None:
    return None if view.recovery is None else view.recovery.took_ns / 1e6


def _recovered_at_most(view: View) -> float | None:
    """Where no stop is known, traffic may have been down until the loss was noticed, whatever else was sent before."""
    found = view.recovery
    if found is None:
        return None
    noticed_ns = _told_ns(view, NOTICED) if found.took_ns == 0 else None
    return max(found.most_ns, noticed_ns or 0.0) / 1e6


def by_mean(view: View) -> bool:
    """Whether the mean of 10 ms alone tells the recovery: the time may be anything from 0 to the most."""
    return view.trial.status != "inconclusive" and view.recovery is not None and view.recovery.by_mean


def _stopped(view: View) -> float | None:
    after_ns = view.trial.error.after_fault_ns if view.trial.error else None
    return after_ns / 1e6 if after_ns is not None and after_ns >= 0 else None


def _replayed(view: View) -> float | None:
    if view.trial.fault is None:
        return None
    told = [stats.number(core.get("replayed_chunks")) for core in view.trial.core.values() if isinstance(core, dict)]
    return float(sum(stats.known(told))) if told else None


UNSURE = "not known if the effect may lie anywhere in more than 10 ms and in half of this time or more"
"""The rule of `reports.effect`, as the metrics say it."""

METRICS = (
    Metric(
        "detect_ms", "ms", "lower",
        "from the fault's effect to its first sign in any core: a path lost or held, or chunks sent over another NIC "
        "as well (at most recover_ms, where traffic stopped; no value if the NIC was healed, carried again or was "
        f"lost again first; {UNSURE})",
        _sign(*NOTICED), of="some faulted trials", from_effect=True, tolerance=NOT_COMPARED,
    ),
    Metric(
        "migrate_ms", "ms", "lower",
        "from the fault's effect to the first chunk moved, or sent over another NIC as well (at most recover_ms, where "
        "traffic stopped; no value if the NIC was healed, carried again or was lost again first; "
        f"{UNSURE})",
        _sign("migrated", "copied"), of="some faulted trials", from_effect=True, tolerance=NOT_COMPARED,
    ),
    Metric(
        "recover_ms", "ms", "lower",
        "from the fault's effect until the struck host's other NICs send at their later speed again, or the struck NIC "
        "where a system uses only that one (in the mean of 10 ms, and after every stop; a stop that begins more than "
        "10 ms after the effect counts up to the end of the next iteration, if it was longer than the longest healthy "
        "iteration and pause together; 0: no pause right after the effect was longer than each of the healthy traffic "
        "shortly before it, so at most recover_most_ms; with less "
        "than 0.2 s of healthy iterations before that were read every millisecond, what the mean alone tells, which "
        "misses stops of less than 10 ms and takes pauses for them, so anything from 0 to recover_most_ms; no value "
        "where the NIC sends on, only later, nor where the host sends only keep-alives later, nor where no iteration "
        "begins between the failure and its repair, because what was hit, or a pause after it, lasted until then: it "
        "would say how long the fault was, and lost_ms has that time, between iterations as well; nor in a scenario of "
        "several failures)",
        _recovered, of="some faulted trials", not_of=("several",), from_effect=True, upper="recover_most_ms",
        from_zero="by_mean", tolerance=NOT_COMPARED,
    ),
    Metric(
        "recover_most_ms", "ms", "lower",
        "what recover_ms is at most (where that is 0: until the end of the longest pause right after the effect, which "
        "may be a stop, or the time between samples if there was none, and not before the loss was noticed; where the "
        "mean alone tells: what it tells, or the 10 ms of the mean if that is more, or until the end of a hit "
        "iteration that ended within 20 ms; in any case until the end of a pause that was longer than every healthy "
        "iteration and began before the next iteration ended)",
        _recovered_at_most, of="some faulted trials", not_of=("several",), from_effect=True, tolerance=NOT_COMPARED,
    ),
    Metric(
        "return_ms", "ms", "lower", "from the heal until the NIC carries again, with every path of it that was lost "
        "(of one that is struck several times, from its last heal; of several NICs, the longest of those healed; "
        "0: it did when the heal was over; one that was lost too often lately is held back: until the hold is over; a "
        "probation that begins once it carries again does not count; where a NIC that was used does not carry again "
        "before the trial ends, or only some of its paths do, it is not known, but more than the time from the heal to "
        "the end; no value where the NIC was not used)",
        _returned, of="some faulted trials", at_least=_not_returned_for, tolerance=NOT_COMPARED,
    ),
    Metric(
        "error_after_ms", "ms", "lower",
        f"from the fault to the error (counted from the beginning of its injection, so at most; {UNSURE})", _stopped,
        of="trials that stopped", heading="fault to error", from_effect=True, at_most=True, tolerance="100 ms",
    ),
    Metric(
        "replayed_chunks", "chunks", "lower", "chunks that were sent again", _replayed, of="some trials",
        tolerance=NOT_COMPARED,
    ),
)  # fmt: skip
