"""What the ranks' iterations were together, and where each lies relative to the fault. Pure.

before   ended on every rank before the fault's effect could come
hit      everything else: the effect came while some rank was in it
after    began on every rank after the effect had come
warmup   negative numbers; not timed for the record
"""

from collections.abc import Sequence

from harness.sweep.events import RankRecord, Timed
from harness.sweep.judge import Injected
from reports.trial import Phase


def joined(ranks: Sequence[RankRecord]) -> dict[int, list[Timed]]:
    """The iterations that ended on every rank, in order: one `Timed` per rank."""
    common = set.intersection(*(set(r.finished) for r in ranks)) if ranks else set()
    return {i: [r.finished[i] for r in ranks] for i in sorted(common)}


def phase_of(iteration: int, timed: Sequence[Timed], fault: Injected | None) -> Phase:
    """Where one joined iteration lies."""
    if iteration < 0:
        return "warmup"
    if fault is None or max(t.end_ns for t in timed) <= fault.t_before_ns:
        return "before"
    return "after" if min(t.t_ns for t in timed) >= fault.t_after_ns else "hit"
