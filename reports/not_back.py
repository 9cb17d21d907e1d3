"""Healed NICs that did not carry again before their trial ended: what is told of the time after the repair is without
them, and says so. Pure."""

from collections.abc import Iterable

from reports.held_back import held_back
from reports.metrics import METRICS
from reports.metrics.view import View
from reports.trial import Trial
from reports.wording import number, plural


def not_back(trials: Iterable[Trial]) -> str:
    """One sentence about the `trials` whose NIC was not back, by system; empty if there are none. Those whose NIC was
    held back to the end have their own (`reports.held_back`)."""
    out: dict[tuple[str, str, bool], list[float]] = {}
    for trial in trials:
        view = View(trial)
        if trial.fault is not None and (ms := _out_for(view)) is not None and not held_back([trial]):
            nic = f"{trial.fault.host} {trial.fault.nic}"
            told_of = f"some paths of {nic}, while others did," if view.back_in_part else nic
            out.setdefault((trial.shown_system, told_of, view.back_in_part), []).append(ms)
    told = [
        f"{nic} by {system} in {plural(len(times), 'trial')}, {_ends(times)} ms after the heal"
        for (system, nic, _), times in out.items()
    ]
    if not told:
        return ""
    what = "what did not" if any(in_part for *_, in_part in out) else "it"
    return (
        f"Did not carry again before the trial ended: {'; '.join(told)}. Speeds once everything is healed are without "
        f"{what} there; a trial that goes on for longer shows its return."
    )


def not_back_within(trial: Trial) -> str:
    """``eth1 not back within 34 ms``, of one trial; ``eth1 back in part only``, where other paths of it carry."""
    view = View(trial)
    ms = _out_for(view)
    if trial.fault is None or ms is None:
        return ""
    how = "back in part only" if view.back_in_part else "not back"
    return f"{trial.fault.nic} {how} within {number(ms)} ms"


def in_trials(not_back: int, in_part: int, of: int) -> str:
    """``NIC not back in 2 of 3``, and ``NIC back in part in 1 of 3``; empty of none."""
    told = {"not back": not_back, "back in part": in_part} if of else {}
    return "; ".join(f"NIC {how} in {count} of {of}" for how, count in told.items() if count)


def _out_for(view: View) -> float | None:
    """From the heal to the end of a trial that has iterations after it, but no return of its NIC."""
    if not any(i.phase == "repaired" for i in view.trial.iterations):
        return None
    return METRICS["return_ms"].exceeds(view)


def _ends(times: list[float]) -> str:
    return " to ".join(dict.fromkeys(number(ms) for ms in (min(times), max(times))))
