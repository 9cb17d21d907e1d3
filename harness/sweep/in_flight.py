"""Which iterations were in flight on every rank when a fault took effect. Pure.

If iterations are long, one is in flight: it began on every rank before the effect, and ended on none before it.
Collectives of less than some tens of milliseconds end before any command has run, and an application issues them one
after another. Then a batch is in flight, from shortly before the effect until shortly after it. The fault may fall
between two collectives of the batch, if one had ended right before and another followed. A rank that the fault killed
between two follows with none, or cannot tell; then it is enough that all others began the next.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median

from harness.events import RankRecord
from harness.workloads.base import SHORT_S

SHORT_NS = int(SHORT_S * 1e9)
"""Iterations with a smaller median duration are judged in batches."""
BATCH_NS = 50_000_000
"""Length of a batch before the effect, and after it; a longer pause before the effect belongs to no batch."""


@dataclass(frozen=True)
class InFlight:
    """The iterations from `first` to `last`; `struck` is the one that the fault hit: it was in flight, or came next."""

    first: int
    last: int
    struck: int


def in_flight(
    ranks: Sequence[RankRecord], before_ns: int, after_ns: int, killed: Collection[int] = ()
) -> InFlight | None:
    """The iterations in flight on every rank when an effect came between the two times; None if there were none.
    `killed`: the ranks that a fault ended."""
    begun = _begun(ranks)
    one = next((i for i in sorted(begun) if all(_spans(r, i, before_ns, after_ns) for r in ranks)), None)
    if not are_short(ranks):
        return None if one is None else InFlight(one, one, one)
    first = max((i for i in begun if all(r.begun[i] <= before_ns for r in ranks)), default=None)
    following = _begun([r for r in ranks if r.rank not in killed]) or begun
    last = min((i for i in following if all(_end_ns(r, i) >= after_ns for r in ranks)), default=None)
    if last is None:  # ranks drift apart: one may have ended an iteration that a stopped rank never ended
        last = min((i for i in following if any(i not in r.finished for r in ranks)), default=None)
    if first is None or last is None:
        return None
    if any(_end_ns(r, first) < before_ns - BATCH_NS for r in ranks):
        return None
    struck = one if one is not None else last
    first = min(first, last)
    while first - 1 in begun and all(r.begun[first - 1] >= before_ns - BATCH_NS for r in ranks):
        first -= 1
    while last + 1 in begun and all(_end_ns(r, last + 1) <= after_ns + BATCH_NS for r in ranks):
        last += 1
    return InFlight(first, last, struck)


def _begun(ranks: Sequence[RankRecord]) -> set[int]:
    """The iterations that all of these ranks began."""
    return set.intersection(*(set(r.begun) for r in ranks)) if ranks else set()


def are_short(ranks: Sequence[RankRecord]) -> bool:
    """Whether iterations are judged in batches."""
    lasted = [t.duration_ns for record in ranks for i, t in record.finished.items() if i >= 0]
    return bool(lasted) and median(lasted) < SHORT_NS


def _spans(record: RankRecord, iteration: int, before_ns: int, after_ns: int) -> bool:
    return begin_ns(record, iteration) <= before_ns and _end_ns(record, iteration) >= after_ns


def begin_ns(record: RankRecord, iteration: int) -> int:
    """When the rank began it."""
    timed = record.finished.get(iteration)
    return timed.t_ns if timed else record.begun[iteration]


def _end_ns(record: RankRecord, iteration: int) -> float:
    """When the rank ended it; never, if it did not."""
    timed = record.finished.get(iteration)
    return timed.end_ns if timed else float("inf")
