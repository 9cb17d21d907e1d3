"""Healed NICs that the core held back, since they had been lost too often: the report must say why they carry nothing.
Pure."""

from collections.abc import Iterable, Sequence

from reports.metrics import METRICS
from reports.metrics.returned import Healed
from reports.metrics.view import View
from reports.trial import Trial
from reports.wording import number, plural


def held_back(trials: Iterable[Trial]) -> str:
    """One sentence about the `trials` whose healed NIC was held back, by system; empty if there are none."""
    held: dict[tuple[str, str, bool, bool], list[float]] = {}
    for trial in trials:
        for nic in _held(trial):
            to_the_end = nic.took_ns is None
            lasted_ns = nic.lasted_ns if nic.took_ns is None else nic.took_ns
            key = trial.shown_system, nic.told, to_the_end, to_the_end and nic.in_part
            held.setdefault(key, []).append(lasted_ns / 1e6)
    if not held:
        return ""
    told = "; ".join(_told(*key, times) for key, times in held.items())
    what = "What was held" if any(in_part for *_, in_part in held) else "It"
    return (
        f"Held back after its heal, because it had been lost too often lately: {told}. {what} carried nothing "
        "meanwhile, and speeds after the repair of a trial to whose end it was held are without it: this is the "
        "damping of NICs that come and go (R2CC_FLAP_*; with R2CC_FLAP_HALF_LIFE_MS = 0 none is held back)."
    )


def _held(trial: Trial) -> Sequence[Healed]:
    """The NICs of a trial that were held back after their heal, until they returned or to its end."""
    view, returned = View(trial), METRICS["return_ms"]
    if returned.value(view) is None and returned.exceeds(view) is None:
        return ()
    return [nic for nic in view.healed_nics if nic.was_held and (nic.not_back or nic.took_ns is not None)]


def _told(system: str, nic: str, to_the_end: bool, in_part: bool, times: list[float]) -> str:
    """``host1 eth1 by balance in 2 trials to their end, 4007 ms or more``; ``some paths of host1 eth1``, where others
    of it carried again."""
    nic = f"some paths of {nic}, while others carried," if in_part else nic
    if to_the_end:
        end = "their end" if len(times) > 1 else "its end"
        return f"{nic} by {system} in {plural(len(times), 'trial')} to {end}, {number(min(times), 4)} ms or more"
    between = " to ".join(dict.fromkeys(number(ms, 4) for ms in (min(times), max(times))))
    return f"{nic} by {system} in {plural(len(times), 'trial')} for {between} ms"
