"""Joins the ranks' iterations, and classifies each by its place relative to the faults. Pure.

before     ended on every rank before the first fault could take effect
hit        a fault took effect while some rank was in it
after      a fault was present, but no fault took effect in it
repaired   began on every rank after all faults were healed
warmup     negative numbers; not part of the timed record
"""

from collections.abc import Collection, Sequence

from harness.events import RankRecord, Timed
from harness.sweep.judge import Injected
from reports.trial import Phase


def joined(ranks: Sequence[RankRecord]) -> dict[int, list[Timed]]:
    """The iterations that ended on every rank, in order: one `Timed` per rank."""
    common = set.intersection(*(set(r.finished) for r in ranks)) if ranks else set()
    return {i: [r.finished[i] for r in ranks] for i in sorted(common)}


def phase_of(
    iteration: int, timed: Sequence[Timed], injections: Sequence[Injected], struck: Collection[int] = ()
) -> Phase:
    """The phase of one joined iteration; `struck` are those that a fault hit, also in the pause before them."""
    if iteration < 0:
        return "warmup"
    begin_ns, end_ns = min(t.t_ns for t in timed), max(t.end_ns for t in timed)
    came = [s for s in injections if s.t_before_ns < end_ns]
    if not came:
        return "before"
    if iteration in struck or any(s.t_after_ns > begin_ns for s in came):
        return "hit"
    healed = all(s.heal_ns is not None and s.heal_ns <= begin_ns for s in came)
    return "repaired" if healed else "after"
