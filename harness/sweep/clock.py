"""Compares two clocks: how far a host's clock is from ours, and how large the error can be. Pure.

A question asked at `asked_ns` and answered at `answered_ns` on our clock carries the host's time `theirs_ns` in the
answer. The host read its clock somewhere in between, so its clock minus ours lies between ``theirs - answered`` and
``theirs - asked``, however asymmetric the two directions are. Several exchanges narrow this down to the interval that
all of them allow.

Between two measurements the offset is interpolated. The only assumption is that drift stays below `MAX_DRIFT`, so the
error is the largest that both measurements allow: it grows with the distance to the nearest one.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

MAX_DRIFT = 200e-6
"""The largest drift between two clocks: crystals stay below 100 millionths, and a time service adds its slew."""


class Exchange(NamedTuple):
    """One question for the time, and its answer."""

    asked_ns: int
    theirs_ns: int
    answered_ns: int


class Offset(NamedTuple):
    """A host's clock minus ours, at `at_ns` of ours: within `error_ns` of `offset_ns`."""

    at_ns: int
    offset_ns: int
    error_ns: int


def offset_of(exchanges: Sequence[Exchange]) -> Offset:
    """The offset by one or more exchanges made within a second or so.

    The offset is 0 if the exchanges allow it: a clock must not seem to differ from itself.
    """
    began_ns, ended_ns = exchanges[0].asked_ns, exchanges[-1].answered_ns
    low = max(e.theirs_ns - e.answered_ns for e in exchanges)
    high = min(e.theirs_ns - e.asked_ns for e in exchanges)
    if low > high:  # a clock was set meanwhile, or drifts: only the last exchange counts, and the error says so
        last = exchanges[-1]
        low, high = last.theirs_ns - last.answered_ns - (low - high), last.theirs_ns - last.asked_ns + (low - high)
    offset_ns = 0 if low <= 0 <= high else (low + high) // 2
    drift_ns = _drift_ns(ended_ns - began_ns)
    return Offset(ended_ns, offset_ns, max(high - offset_ns, offset_ns - low) + drift_ns)


@dataclass(frozen=True)
class Clock:
    """A host's clock against ours, from measurements in order of time. Without any, it is ours."""

    offsets: tuple[Offset, ...] = ()

    def measured(self, offset: Offset) -> "Clock":
        """The clock with one more measurement."""
        return Clock((*self.offsets, offset))

    def stood_still(self, since_ns: int, until_ns: int, now: Offset) -> "Clock":
        """The clock with a measurement after it stood still between these times of ours: earlier measurements hold
        until then, and `now` holds from then on."""
        before = self.at(since_ns)
        return self.measured(before).measured(now._replace(at_ns=until_ns)).measured(now)

    def since(self, ours_ns: int) -> "Clock":
        """The clock without the measurements that do not affect any time from `ours_ns` on: a sweep has many."""
        earlier = [o for o in self.offsets if o.at_ns <= ours_ns]
        return Clock((*earlier[-1:], *(o for o in self.offsets if o.at_ns > ours_ns)))

    def at(self, ours_ns: int) -> Offset:
        """The offset at a time of our clock, with the largest error that the measurements allow."""
        if not self.offsets:
            return Offset(ours_ns, 0, 0)
        if ours_ns <= self.offsets[0].at_ns or ours_ns >= self.offsets[-1].at_ns:
            near = self.offsets[0] if ours_ns <= self.offsets[0].at_ns else self.offsets[-1]
            return Offset(ours_ns, near.offset_ns, near.error_ns + _drift_ns(ours_ns - near.at_ns))
        before, after = next(pair for pair in pairwise(self.offsets) if pair[1].at_ns > ours_ns)
        return _between(before, after, ours_ns)

    def ours_ns(self, theirs_ns: int) -> int:
        """Converts a time of the host's clock to ours."""
        theirs, offsets = self._knots, self.offsets
        if not theirs:
            return theirs_ns
        after = bisect_right(theirs, theirs_ns)
        if after in (0, len(theirs)):
            return theirs_ns - offsets[max(0, after - 1)].offset_ns
        share = (theirs_ns - theirs[after - 1]) / max(1, theirs[after] - theirs[after - 1])
        first, last = offsets[after - 1].offset_ns, offsets[after].offset_ns
        return theirs_ns - first - round(share * (last - first))

    @cached_property
    def _knots(self) -> list[int]:
        """The host's clock at each measurement."""
        return [o.at_ns + o.offset_ns for o in self.offsets]

    @property
    def worst_error_ns(self) -> int:
        """The largest error of any measurement."""
        return max((o.error_ns for o in self.offsets), default=0)

    @property
    def drift_ppm(self) -> float | None:
        """The host clock's gain on ours from the first measurement to the last, in millionths; None with fewer than
        two."""
        if len(self.offsets) < 2:
            return None
        first, last = self.offsets[0], self.offsets[-1]
        return 1e6 * (last.offset_ns - first.offset_ns) / max(1, last.at_ns - first.at_ns)


def _between(before: Offset, after: Offset, ours_ns: int) -> Offset:
    share = (ours_ns - before.at_ns) / (after.at_ns - before.at_ns)
    offset_ns = before.offset_ns + round(share * (after.offset_ns - before.offset_ns))
    widths = [(o, o.error_ns + _drift_ns(ours_ns - o.at_ns)) for o in (before, after)]
    low = max(o.offset_ns - width for o, width in widths)
    high = min(o.offset_ns + width for o, width in widths)
    if low > high:  # more than drift: a clock was set between the two, at an unknown time
        low, high = (
            edge(o.offset_ns + sign * o.error_ns for o in (before, after)) for edge, sign in ((min, -1), (max, 1))
        )
    return Offset(ours_ns, offset_ns, max(high - offset_ns, offset_ns - low, 0))


def _drift_ns(distance_ns: int) -> int:
    return int(abs(distance_ns) * MAX_DRIFT) + 1


def not_before(window_ns: tuple[int, int], counted: Sequence[tuple[int, int]], slack_bytes: int) -> int:
    """The earliest time in `window_ns` at which the traffic in `counted` (time, bytes so far) can have ended.

    Traffic that grew by more than `slack_bytes` between two readings had not ended at the first. Traffic that pauses by
    itself proves nothing, so the end of the window stays as it is.
    """
    first, last = window_ns
    grew = [at_ns for (at_ns, was), (_, now) in pairwise(counted) if at_ns < last and now - was > slack_bytes]
    return max([first, *grew])


@dataclass(frozen=True)
class Moment:
    """When something took effect: within `error_ns` of `t_ns`, all errors included."""

    t_ns: int
    error_ns: int


def narrowed(window_ns: tuple[int, int], carrier: Sequence[tuple[int, bool]]) -> tuple[int, int]:
    """`window_ns`, narrowed by the NIC's carrier: `carrier` is (time of the reading, whether up), in order of time.

    A reading is over by the time of the next one. If the carrier stayed up, as with faults that leave it alone, the
    window stays as it is.
    """
    first, last = window_ns
    for (before_ns, was_up), (_, is_up), (over_ns, _) in zip(carrier, carrier[1:], carrier[2:], strict=False):
        if was_up and not is_up and first <= over_ns and before_ns <= last:
            return max(first, before_ns), min(last, over_ns)
    return window_ns


def moment_of(window_ns: tuple[int, int], clock_error_ns: int) -> Moment:
    """The moment of an event at some time in `window_ns`, read from a clock whose error is `clock_error_ns`."""
    first, last = window_ns
    half = -(-(last - first) // 2)
    return Moment(first + half, half + clock_error_ns)
