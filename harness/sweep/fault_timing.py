"""When a fault fires so that it takes effect inside the collective: pure arithmetic on what ranks have reported.

A fault is prepared in advance. It fires once rank 0 has begun the chosen iteration and the share `into` of its expected
duration has passed, minus the time that firing has lately taken to have its effect. Where the iteration is too short
for that (its begin is also reported with a delay), the begin of an earlier iteration and the mean distance between
begins predict when it will begin.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import ceil
from statistics import median

from harness.events import Timed
from harness.experiment.fault_tables import FaultModel
from harness.sweep.plan import Trial

FIRST_LATENCY_NS = 3_000_000
"""What is assumed for the first fault of a sweep: a command over an open session and one `ip`."""

NEWS_NS = 3_000_000
"""What an event takes at most, as a rule, from a rank to the harness."""


def chosen_begin_ns(trial: Trial, fault: FaultModel, begun: Mapping[int, int], lead: int = 0) -> int | None:
    """When rank 0 began, or with a `lead` will begin, the iteration to injection; None while that is not known.

    With `at_time` that is the first iteration that begins so long after the first timed one. A `lead` of n
    tells it from the n-th iteration before, if there is a rhythm by then.
    """
    iteration = trial.fault_iteration()
    if iteration is None:
        earliest_ns = begun.get(0, 0) + int((fault.at_time_s or 0.0) * 1e9)
        later = [t_ns for i, t_ns in begun.items() if i >= 0 and t_ns >= earliest_ns]
        return min(later) if 0 in begun and later else None
    known = iteration - lead
    if lead <= 0 or known < 2:
        return begun.get(iteration)
    if known not in begun:
        return None
    rhythm = median(b - a for a, b in pairwise(begun[i] for i in range(known + 1)))
    return begun[known] + int(lead * rhythm)


def lead_of(into: float, duration_ns: int, latency_ns: int) -> int:
    """How many iterations ahead the fault must be decided on."""
    missing_ns = latency_ns + NEWS_NS - into * duration_ns
    return max(0, ceil(missing_ns / duration_ns)) if duration_ns else 0


def expected_ns(finished: Mapping[int, Timed], model_s: float) -> int:
    """What one iteration should last: the median of the timed ones so far, or of all, or the model's word."""
    timed = [t.duration_ns for i, t in finished.items() if i >= 0]
    known = timed or [t.duration_ns for t in finished.values()]
    return int(median(known)) if known else int(model_s * 1e9)


def fire_at_ns(begin_ns: int, into: float, duration_ns: int, latency_ns: int) -> int:
    """The moment to fire; it may be over, then at once."""
    return begin_ns + int(into * duration_ns) - latency_ns


def smoothed_ns(old_ns: int, measured_ns: int) -> int:
    """The latency to expect next: half the old, half the new."""
    return (old_ns + measured_ns) // 2
