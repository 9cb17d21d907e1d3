"""Clocks: the error that is told holds for any delays, however unlike both ways are, and any drift in the limit."""

from hypothesis import given
from hypothesis import strategies as st

from harness.sweep.clock import MAX_DRIFT, Clock, Exchange, Offset, moment_of, offset_of

MS = 1_000_000
DELAYS = st.integers(0, 80 * MS)
EXCHANGES = st.lists(st.tuples(DELAYS, DELAYS, st.integers(0, 5 * MS)), min_size=1, max_size=8)
OFFSETS = st.one_of(st.just(0), st.integers(-(10**15), 10**15), st.integers(-5 * MS, 5 * MS))
DRIFTS = st.floats(-0.99 * MAX_DRIFT, 0.99 * MAX_DRIFT)
BEGIN = 1_790_000_000_000_000_000


def exchanged(
    delays: list[tuple[int, int, int]], begin_ns: int, offset_ns: int, drift: float
) -> tuple[list[Exchange], int]:
    """Exchanges with these delays (there, back, pause) against a clock that is off and drifts; when they ended."""
    now, made = begin_ns, []
    for there, back, pause in delays:
        read = now + there
        theirs = read + offset_ns + round(drift * (read - BEGIN))
        made.append(Exchange(now, theirs, read + back))
        now = read + back + pause
    return made, now


def true_offset(at_ns: int, offset_ns: int, drift: float) -> int:
    return offset_ns + round(drift * (at_ns - BEGIN))


@given(EXCHANGES, OFFSETS, DRIFTS)
def test_the_error_of_one_measurement_holds(delays: list[tuple[int, int, int]], offset_ns: int, drift: float) -> None:
    made, _ = exchanged(delays, BEGIN, offset_ns, drift)
    found = offset_of(made)
    assert abs(found.offset_ns - true_offset(found.at_ns, offset_ns, drift)) <= found.error_ns + 1


@given(EXCHANGES, OFFSETS)
def test_it_is_never_worse_than_half_the_best_round_trip_unless_that_hides_the_offset(
    delays: list[tuple[int, int, int]], offset_ns: int
) -> None:
    made, ended = exchanged(delays, BEGIN, offset_ns, 0.0)
    best = min(e.answered_ns - e.asked_ns for e in made)
    found = offset_of(made)
    drift = MAX_DRIFT * (ended - BEGIN) + 2
    assert found.error_ns <= (best / 2 if found.offset_ns else best) + drift


@given(
    st.lists(EXCHANGES, min_size=1, max_size=5),
    st.lists(st.integers(0, 600_000 * MS), min_size=5, max_size=5),
    OFFSETS,
    DRIFTS,
    st.floats(-0.2, 1.2),
)
def test_the_error_holds_between_before_and_after_the_measurements(
    measurements: list[list[tuple[int, int, int]]], pauses: list[int], offset_ns: int, drift: float, where: float
) -> None:
    clock, now = Clock(), BEGIN
    for delays, pause in zip(measurements, pauses, strict=False):
        made, now = exchanged(delays, now, offset_ns, drift)
        clock = clock.measured(offset_of(made))
        now += pause
    at_ns = BEGIN + round(where * (now - BEGIN))
    found = clock.at(at_ns)
    truth = true_offset(at_ns, offset_ns, drift)
    assert abs(found.offset_ns - truth) <= found.error_ns + 4
    ours = clock.ours_ns(at_ns + truth)
    # What the offset changes over its own error is beyond counting.
    assert abs(ours - at_ns) <= clock.at(ours).error_ns + MAX_DRIFT * abs(found.error_ns) + 8


def test_equal_clocks_seem_equal() -> None:
    slow = [Exchange(BEGIN, BEGIN + 9 * MS, BEGIN + 10 * MS)]
    found = offset_of(slow)
    assert (found.offset_ns, found.error_ns) == (0, 9 * MS + int(10 * MS * MAX_DRIFT) + 1)


def test_a_late_exchange_is_corrected_by_a_quick_one() -> None:
    made = [Exchange(0, 1_000_000 + 50, 100), Exchange(1000, 1_000_000 + 1005, 1010), Exchange(2000, 1_002_400, 2500)]
    found = offset_of(made)
    assert found.offset_ns == 1_000_000
    assert found.error_ns <= 7


def test_a_clock_that_was_set_is_told_and_not_hidden() -> None:
    clock = Clock((Offset(0, 0, 1000), Offset(10**10, 500 * MS, 1000)))
    half = clock.at(5 * 10**9)
    assert half.offset_ns == 250 * MS
    assert half.error_ns >= 250 * MS
    jumped = offset_of([Exchange(0, 5, 10), Exchange(100, 105 + 9 * MS, 110)])
    assert abs(jumped.offset_ns - 9 * MS) <= jumped.error_ns


def test_a_clock_that_stood_still_is_known_before_and_after() -> None:
    clock = Clock((Offset(0, 5_000, 10),)).stood_still(1_000_000, 3_000_000, Offset(4_000_000, 5_000 - 2_000_000, 10))
    assert clock.at(900_000).offset_ns == 5_000
    assert clock.at(3_500_000).offset_ns == 5_000 - 2_000_000
    assert clock.ours_ns(900_000 + 5_000) == 900_000
    assert clock.ours_ns(3_500_000 + 5_000 - 2_000_000) == 3_500_000
    assert clock.at(999_999).error_ns < 1_000


def test_old_measurements_can_be_left_out() -> None:
    clock = Clock(tuple(Offset(t, 0, 5) for t in range(0, 100, 10)))
    assert [o.at_ns for o in clock.since(55).offsets] == [50, 60, 70, 80, 90]
    assert clock.since(55).at(57) == clock.at(57)


def test_without_a_measurement_it_is_our_own_clock() -> None:
    assert Clock().ours_ns(123) == 123
    assert Clock().drift_ppm is None


def test_drift_is_what_was_gained() -> None:
    assert Clock((Offset(0, 100, 5), Offset(10**9, 10_100, 5))).drift_ppm == 10.0


def test_the_uncertainty_of_an_effect_is_half_its_window_and_the_clocks_error() -> None:
    moment = moment_of((1000, 3001), 50)
    assert (moment.t_ns, moment.error_ns) == (2001, 1051)
