"""When a fault fires so that it takes effect inside the collective: pure arithmetic on what ranks said.

A fault is prepared early; it fires once rank 0 has begun the chosen iteration, `into` of the way through
what that iteration should last, minus the time that firing has lately taken to have its effect.
"""

from collections.abc import Mapping
from statistics import median

from harness.experiment import FaultModel
from harness.sweep.events import Timed
from harness.sweep.plan import Trial

FIRST_LATENCY_NS = 3_000_000
"""What is assumed for the first fault of a sweep: a command over an open session and one `ip`."""


def chosen_begin_ns(trial: Trial, fault: FaultModel, begun: Mapping[int, int]) -> int | None:
    """When rank 0 began the iteration to strike; None while it has not.

    With `at_time` that is the first iteration that begins so long after the first timed one.
    """
    iteration = trial.strike_iteration()
    if iteration is not None:
        return begun.get(iteration)
    earliest_ns = begun.get(0, 0) + int((fault.at_time_s or 0.0) * 1e9)
    later = [t_ns for i, t_ns in begun.items() if i >= 0 and t_ns >= earliest_ns]
    return min(later) if 0 in begun and later else None


def expected_ns(finished: Mapping[int, Timed], model_s: float) -> int:
    """What one iteration should last: the median of the timed ones so far, or of all, or the model's word."""
    timed = [t.duration_ns for i, t in finished.items() if i >= 0]
    known = timed or [t.duration_ns for t in finished.values()]
    return int(median(known)) if known else int(model_s * 1e9)


def fire_at_ns(begin_ns: int, into: float, duration_ns: int, latency_ns: int) -> int:
    """The moment to fire."""
    return begin_ns + max(0, int(into * duration_ns) - latency_ns)


def smoothed_ns(old_ns: int, measured_ns: int) -> int:
    """The latency to expect next: half the old, half the new."""
    return (old_ns + measured_ns) // 2
