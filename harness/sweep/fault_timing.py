"""When a fault fires so that it takes effect inside the collective: pure arithmetic on the ranks' reports.

A fault is prepared in advance. It fires once rank 0 has begun the chosen iteration and the share `into` of its expected
duration has passed, minus the recent latency of that kind of fault from firing to effect. If the iteration is too short
for that (the report of its beginning is also delayed), its beginning is predicted from that of an earlier iteration and
the mean interval between beginnings.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import ceil
from statistics import median

from harness.events import Timed
from harness.experiment.fault_tables import FaultModel
from harness.sweep.plan import Trial
from reports.effect import BASELINE_NS

FIRST_LATENCY_NS = 3_000_000
"""Latency assumed for the first fault of a sweep: a command over an open session and one `ip`."""

LAST = 5
"""So many latencies of a kind are remembered."""

SOON_NS = 2 * BASELINE_NS
"""How long before a fault that begins: iterations may come faster than expected."""

NEWS_NS = 3_000_000
"""Usual upper limit of an event's delay from a rank to the harness."""


def chosen_begin_ns(trial: Trial, fault: FaultModel, begun: Mapping[int, int], lead: int = 0) -> int | None:
    """When rank 0 began, or with a `lead` will begin, the iteration to hit; None while that is not known.

    With `at_time` it is the first iteration that begins that long after the first timed one. With a `lead` of n the
    time is predicted from the n-th iteration before, if the interval between beginnings is known by then.
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


def is_near(trial: Trial, fault: FaultModel, begun: Mapping[int, int], shortest_ns: int, now_ns: int) -> bool:
    """Whether the iteration to hit may begin within `SOON_NS`, if iterations take `shortest_ns` or more."""
    if not begun:
        return False
    chosen = trial.fault_iteration()
    target = 0 if chosen is None else chosen
    last = max(begun)
    begins_ns = begun[target] if target in begun else begun[last] + (target - last) * shortest_ns
    later_ns = int((fault.at_time_s or 0.0) * 1e9) if chosen is None else 0
    return begins_ns + later_ns - now_ns < SOON_NS


def shortest_ns(finished: Mapping[int, Timed], model_s: float) -> int:
    """How long one iteration takes at least, by those so far and the model's estimate."""
    return min([int(model_s * 1e9), *(t.duration_ns for t in finished.values())])


def lead_of(into: float, duration_ns: int, latency_ns: int) -> int:
    """How many iterations ahead the fault must be decided."""
    missing_ns = latency_ns + NEWS_NS - into * duration_ns
    return max(0, ceil(missing_ns / duration_ns)) if duration_ns else 0


def expected_ns(finished: Mapping[int, Timed], model_s: float) -> int:
    """The expected duration of one iteration: the median of the timed ones so far, or of all, or the model's
    estimate."""
    timed = [t.duration_ns for i, t in finished.items() if i >= 0]
    known = timed or [t.duration_ns for t in finished.values()]
    return int(median(known)) if known else int(model_s * 1e9)


def fire_at_ns(begin_ns: int, into: float, duration_ns: int, latency_ns: int) -> int:
    """The time to fire; if it has passed, fire at once."""
    return begin_ns + int(into * duration_ns) - latency_ns


@dataclass
class Latencies:
    """From firing to effect, by kind of fault: to unplug a NIC takes ten times as long as to take it down.

    The next one is expected to take the median of the last ones. On a busy machine one of 3 ms takes 60 ms now and
    then, and by a mean the next one fired 30 ms too early. A kind that has not fired yet is expected to take as long as
    the quickest. A fault that takes effect late is still inside its collective; one that was fired too early is not.
    """

    last_ns: dict[str, deque[int]] = field(default_factory=lambda: defaultdict(partial(deque, maxlen=LAST)))

    def expected_ns(self, kind: str) -> int:
        """How long the next fault of that kind should take."""
        known_ns = {fired: int(median(taken_ns)) for fired, taken_ns in self.last_ns.items()}
        return known_ns.get(kind, min(known_ns.values(), default=FIRST_LATENCY_NS))

    def measured(self, kind: str, latency_ns: int) -> None:
        """How long one took."""
        self.last_ns[kind].append(latency_ns)
