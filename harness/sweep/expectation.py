"""The expected status of a trial, given the faults: pure, the same for real and for simulated ranks."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from faults.base import Effect, severs
from faults.registry import FAULTS
from harness.backends.base import HEALTHY_TIMES
from harness.sweep.plan import Trial
from harness.systems.base import Expectation

HANG_S = 5.0
"""The shortest silence that can be a hang. Systems need some time to end one themselves: libraries that would wait for
ever get 3 s or more (`harness.backends.base.give_up_s`), mode 0 of the core waits 2 s or more for an answer, and TCP
that loses the same segment four times (after 0.2, 0.4, 0.8 and 1.6 s) goes on after 3 s. The rest is for busy
machines."""


class Came(NamedTuple):
    """What broke: the kind and its effects, and for how many seconds (None: until the trial ended)."""

    kind: str
    effects: Sequence[Effect]
    lasts_s: float | None


def expected(trial: Trial, came: Iterable[Came]) -> Expectation:
    """How a trial should end. A fault that only slows ends no system, and a fault that kills a rank ends every system,
    whatever the system's table says. A system that stops at a loss may outlive one that is over before its time-out:
    whether it does depends on what it happened to send meanwhile.
    """
    if trial.fault is not None and (told_of := trial.fault.expected_of(trial.system.name)) is not None:
        return told_of
    told = list(came)
    if any(FAULTS[one.kind].kills for one in told):
        return "failed"
    losses = [one for one in told if severs(one.effects)]
    if not losses:
        return "ok"
    expects, time_out_s = trial.system.expect_on_fault, _time_out_s(trial)
    is_short = all(one.lasts_s is not None and one.lasts_s < time_out_s for one in losses)
    return "either" if expects == "failed" and is_short else expects


def _time_out_s(trial: Trial) -> float:
    """After which every system that stops at a loss has stopped."""
    experiment = trial.variant.experiment
    healthy_s = experiment.expected_duration_s(trial.size_bytes)
    return max(HANG_S, experiment.sweep.limits.give_up_s, HEALTHY_TIMES * healthy_s)
