"""Healed NICs that did not carry again before their trial ended: what is told of the time after the repair is without
them, and says so. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from reports.metrics import METRICS
from reports.metrics.returned import Healed
from reports.metrics.view import View
from reports.trial import Trial
from reports.wording import number, plural


def not_back(trials: Iterable[Trial]) -> str:
    """One sentence about the `trials` whose NICs were not back, by system; empty if there are none. Those that were
    held back to the end have their own (`reports.held_back`)."""
    out: dict[tuple[str, str, bool], list[float]] = {}
    for trial in trials:
        for nic in _not_back(trial):
            if not nic.was_held:
                told_of = f"some paths of {nic.told}, while others did," if nic.in_part else nic.told
                out.setdefault((trial.shown_system, told_of, nic.in_part), []).append(nic.lasted_ns / 1e6)
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
    """``eth1 not back within 34 ms``, of one trial, with the host where another one has a struck NIC of that name;
    ``eth1 back in part only``, where other paths of it carry."""
    named = Counter(nic.nic for nic in View(trial).healed_nics)
    return ", ".join(
        f"{nic.nic if named[nic.nic] == 1 else nic.told} {'back in part only' if nic.in_part else 'not back'} within "
        f"{number(nic.lasted_ns / 1e6)} ms"
        for nic in _not_back(trial)
    )


def in_trials(not_back: int, in_part: int, of: int) -> str:
    """``NIC not back in 2 of 3``, and ``NIC back in part in 1 of 3``; empty of none."""
    told = {"not back": not_back, "back in part": in_part} if of else {}
    return "; ".join(f"NIC {how} in {count} of {of}" for how, count in told.items() if count)


def _not_back(trial: Trial) -> Sequence[Healed]:
    """Of a trial that has iterations after the heal, its NICs that did not carry again."""
    view = View(trial)
    if METRICS["return_ms"].exceeds(view) is None or not any(i.phase == "repaired" for i in trial.iterations):
        return ()
    return view.nics_not_back


def _ends(times: list[float]) -> str:
    return " to ".join(dict.fromkeys(number(ms) for ms in (min(times), max(times))))
