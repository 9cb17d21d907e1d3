"""What was in flight when a fault came: one long collective, or a batch of short ones, on ranks made by hand."""

from dataclasses import replace

import pytest

from harness.events import RankRecord, Timed
from harness.sweep.in_flight import InFlight, in_flight

MS = 1_000_000


def ranks(length_ms: float, pause_ms: float, count: int = 200, skew_ms: float = 0.0) -> list[RankRecord]:
    """Two ranks with iterations of one length and pauses between them, one rank a little late."""
    made = []
    for rank in range(2):
        record = RankRecord(rank)
        for i in range(count):
            t_ns = round((i * (length_ms + pause_ms) + rank * skew_ms) * MS)
            record.begun[i] = t_ns
            record.finished[i] = Timed(t_ns, round(length_ms * MS), 0)
        made.append(record)
    return made


def at(found: list[RankRecord], before_ms: float, after_ms: float) -> InFlight | None:
    return in_flight(found, round(before_ms * MS), round(after_ms * MS))


def test_a_long_collective_must_hold_the_whole_effect() -> None:
    long = ranks(100, 10)
    assert at(long, 230, 240) == InFlight(2, 2, 2)
    assert at(long, 300, 340) is None, "from one into the next"
    assert at(long, 322, 328) is None, "between two"
    assert at(ranks(100, 10, skew_ms=15), 230, 240) is None, "one rank had not begun"


def test_of_short_collectives_a_batch_is_in_flight() -> None:
    """2 ms each with pauses of 3 ms: a batch has those that began 50 ms before and those that ended 50 ms after."""
    short = ranks(2, 3)
    inside, between, long = at(short, 500.5, 501), at(short, 503, 504), at(short, 500.5, 517)
    assert inside == InFlight(91, 109, 100)
    assert between == InFlight(91, 110, 101), "the next one pays"
    assert long is not None and (long.first, long.struck, long.last) == (91, 103, 113)


@pytest.mark.parametrize("skew_ms", [0, 1, 4])
def test_ranks_that_run_apart_are_in_one_batch(skew_ms: float) -> None:
    found = at(ranks(2, 3, skew_ms=skew_ms), 500.5, 506)
    assert found is not None and found.first <= 93 and found.last >= 109


def test_ranks_that_stop_apart_were_in_the_last_iteration_that_one_of_them_never_ended() -> None:
    """A fail-stop system: the fault comes while one rank is in iteration 100, and the other has just ended it."""
    short = ranks(2, 3)
    for record, last in zip(short, (100, 101), strict=True):
        record.begun = {i: t_ns for i, t_ns in record.begun.items() if i <= last}
        record.finished = {i: timed for i, timed in record.finished.items() if i < last}
    assert at(short, 501.9, 506) == InFlight(91, 100, 100)
    assert at(short, 560, 561) is None, "both had stood still for long"
    ended = ranks(2, 3)
    assert at(ended, 998, 999) is None, "an iteration that all have ended is not in flight"


def test_a_fault_before_the_first_after_the_last_or_in_a_long_pause_missed() -> None:
    short = ranks(2, 3)
    assert at(short, -5, -4) is None
    assert at(short, 998, 999) is None, "the last has ended"
    assert at(ranks(2, 80), 60, 61) is None, "nothing had been in flight for 58 ms"
    assert at(ranks(2, 80), 40, 41) == InFlight(0, 1, 1)


def test_a_stall_that_the_fault_itself_made_parts_no_batch() -> None:
    found = ranks(2, 3)
    for record in found:
        for i in range(101, 200):
            late = record.begun[i] + 90 * MS
            record.begun[i] = late
            record.finished[i] = replace(record.finished[i], t_ns=late)
    assert at(found, 503, 504) == InFlight(91, 101, 101)


def test_short_collectives_of_which_the_last_ends_a_rank() -> None:
    found = ranks(2, 3)
    for record in found:
        for i in range(101, 200):
            del record.finished[i]
            if i > 101:
                del record.begun[i]
    assert at(found, 503, 504) == InFlight(91, 101, 101), "it had begun, and never ended"


def killed_at(ms: float, lost: bool = False) -> list[RankRecord]:
    """Rank 1 is killed at that time: it begins and ends nothing any more, and the other one ends nothing that needs it.
    Its last beginning may be lost, too."""
    found = ranks(2, 3)
    other, killed = found
    killed.finished = {i: timed for i, timed in killed.finished.items() if timed.end_ns <= ms * MS}
    killed.begun = {i: t_ns for i, t_ns in killed.begun.items() if t_ns <= ms * MS}
    through = max(killed.finished)
    if lost:
        killed.begun = {i: t_ns for i, t_ns in killed.begun.items() if i <= through}
    other.finished = {i: timed for i, timed in other.finished.items() if i <= through}
    other.begun = {i: t_ns for i, t_ns in other.begun.items() if i <= through + 1}
    return found


def at_kill(found: list[RankRecord], before_ms: float, after_ms: float) -> InFlight | None:
    return in_flight(found, round(before_ms * MS), round(after_ms * MS), {1})


def test_a_rank_that_is_killed_between_two_short_collectives_begins_no_other() -> None:
    """An application that stops there has lost its rank in the middle of its work, as one inside a collective."""
    assert at_kill(killed_at(503), 502.5, 504) == InFlight(91, 101, 101)
    assert at(killed_at(503), 502.5, 504) is None, "another fault leaves all ranks able to follow"
    assert at_kill(killed_at(505.5, lost=True), 505, 506) == InFlight(91, 101, 101), "nor told that it had begun one"
    assert at_kill(killed_at(501), 500.5, 502) == InFlight(91, 100, 100), "inside one"


def test_a_kill_with_nothing_in_flight_and_nothing_to_follow_missed() -> None:
    others = killed_at(503)
    del others[0].begun[101]
    assert at_kill(others, 502.5, 504) is None, "no rank began another"
    assert at_kill(killed_at(503), 560, 561) is None, "long after the last one had ended"
    assert at_kill(ranks(2, 3), 998, 999) is None, "all were through"
    assert at_kill(ranks(100, 10), 322, 328) is None, "between two long ones"


def test_nothing_said_is_nothing_in_flight() -> None:
    assert in_flight([], 0, 1) is None
    assert in_flight([RankRecord(0), RankRecord(1)], 0, 1) is None
