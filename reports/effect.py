"""The moment at which a fault took effect, how well it is known, and which times from it count. Pure.

A trial records the moment and its uncertainty (`harness.sweep.record`): on a busy machine the commands that inject a
fault may take 200 ms, and the effect lies somewhere in them. A time from an effect that is not known well enough counts
only if it is more than twice as long as the interval in which the effect may lie. Otherwise it would tell how busy the
machine was, not how fast the system is.
"""

from typing import TYPE_CHECKING, TypeGuard

from reports.trial import Trial
from reports.wording import number, plural

if TYPE_CHECKING:
    import pandas as pd

BASELINE_NS = 500_000_000
"""How long before a fault its host's counters are sampled closely, so that its healthy pauses are known."""
UNCERTAIN_NS = 5_000_000
"""A larger uncertainty of the time of effect is pointed out."""
UNCERTAIN = "not known well enough"
"""How it is pointed out."""


def effect_text(trial: Trial, fault: int = 0) -> str | None:
    """When a fault took effect, as text: ``effect at 1.234 s ± 2.1 ms`` since the first timed iteration.

    `fault` 0 is the first fault of the trial, 1 the next.
    """
    effect = _effect(trial, fault)
    if effect is None:
        return None
    t_ns, error_ns = effect
    begin_ns = min((i.t_ns for i in trial.iterations if i.iteration >= 0), default=None)
    when = f"effect at {(t_ns - begin_ns) / 1e9:.3f} s" if begin_ns is not None else "effect known"
    text = f"{when} \N{PLUS-MINUS SIGN} {error_ns / 1e6:.1f} ms"
    return text + (f" (more than 5 ms: {UNCERTAIN})" if error_ns > UNCERTAIN_NS else "")


def effect_error_ms(trial: Trial) -> float:
    """By how much times from the first fault's effect may be wrong, if the effect is not known well enough; otherwise
    0, as where an older program recorded no uncertainty."""
    effect = _effect(trial, 0)
    # Its moment is in the middle of the interval in which it may lie; the metrics take any moment in there.
    return 2 * effect[1] / 1e6 if effect is not None and effect[1] > UNCERTAIN_NS else 0.0


def counts(trial: Trial, since_effect_ms: float) -> bool:
    """Whether a time from the first fault's effect counts as known."""
    error_ms = effect_error_ms(trial)
    return not error_ms or 2 * error_ms < since_effect_ms


def error_text(trial: Trial) -> str:
    """When the error of a trial came, as its reason says it: ``5.64 ms after the fault``, with ``at most`` where it may
    as well have come at once; empty: not known."""
    after_ns = trial.error.after_fault_ns if trial.error else None
    if after_ns is None:
        return ""
    if after_ns < 0:
        return "before the fault"
    at_most = "" if counts(trial, after_ns / 1e6) else "at most "
    return f"{at_most}{number(after_ns / 1e6)} ms after the fault"


def uncertain_effects(errors_ms: "pd.Series[float]", left_out: int = 0) -> str:
    """In how many trials (by `effect_error_ms`) times from the fault's effect may be wrong, and by how much, and how
    many are left out for that; empty: none is."""
    wrong = errors_ms[errors_ms > 0]
    told = [f"times from it may be wrong by {number(wrong.max())} ms"] if len(wrong) else []
    told += [f"{plural(left_out, 'trial')} left out, whose times are therefore not known"] if left_out else []
    trials = plural(len(wrong) + left_out, "trial")
    return f"the effect is {UNCERTAIN} in {trials}: {'; '.join(told)}" if told else ""


def _effect(trial: Trial, fault: int) -> tuple[int, int] | None:
    """The moment of a fault's effect and its uncertainty, in ns; None if they were not recorded."""
    effects = (trial.evidence.model_extra or {}).get("effects")
    effect = effects[fault] if isinstance(effects, list) and fault < len(effects) else None
    if not isinstance(effect, dict):
        return None
    t_ns, error_ns = effect.get("t_ns"), effect.get("error_ns")
    return (t_ns, error_ns) if _is_whole(t_ns) and _is_whole(error_ns) else None


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62
