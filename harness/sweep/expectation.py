"""The expected status of a trial, given the faults: pure, the same for real and for simulated ranks."""

from collections.abc import Iterable, Sequence

from faults.base import Effect, severs
from faults.registry import FAULTS
from harness.sweep.plan import Trial
from harness.systems.base import Expectation

Came = Iterable[tuple[str, Sequence[Effect]]]
"""Kind and effects of everything that broke."""


def expected(trial: Trial, came: Came) -> Expectation:
    """How a trial should end. A fault that only slows ends no system, and a fault that kills a rank ends every system,
    whatever the system's table says.
    """
    if trial.fault is not None and (told_of := trial.fault.expected_of(trial.system.name)) is not None:
        return told_of
    told = list(came)
    if any(FAULTS[kind].kills for kind, _ in told):
        return "failed"
    return trial.system.expect_on_fault if any(severs(effects) for _, effects in told) else "ok"
