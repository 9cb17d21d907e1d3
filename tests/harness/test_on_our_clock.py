"""What came from clocks that are off, told on ours: samples, ranks' events, logs."""

import json

from harness.events import EventLog
from harness.hosts.base import Sample
from harness.sweep.clock import Clock, Offset, narrowed, not_before
from harness.sweep.on_our_clock import event_rows, on_our_clock
from harness.sweep.record import _core

MS = 1_000_000
T = 1_790_000_000_000_000_000
DRIFTING = Clock((Offset(T, 1000 * MS, 0), Offset(T + 10_000 * MS, 1002 * MS, 0)))
"""A clock that is a second ahead and gains 2 ms in 10 s."""


def line(**event: object) -> str:
    return json.dumps(event)


def test_samples_and_events_of_a_drifting_clock_meet_ours() -> None:
    at = T + 5000 * MS
    theirs = at + 1001 * MS
    (moved,) = on_our_clock({"h": [Sample(theirs, "eth0", 1, 2, True)]}, {"h": DRIFTING})["h"]
    assert moved == Sample(at, "eth0", 1, 2, True)

    log = EventLog([1000 * MS])
    log.feed(0, "stdout", line(event="ready", t_ns=theirs))
    log.feed(0, "stdout", line(event="begin", t_ns=theirs, iteration=0))
    log.feed(0, "stdout", line(event="iteration", t_ns=theirs, iteration=0, duration_ns=5))
    log.feed(0, "stdout", line(event="error", t_ns=theirs, message="x"))
    (record,) = log.ranks
    assert record.begun[0] == at + MS, "meanwhile told by the offset that was known at the start"
    record.reclock(DRIFTING.ours_ns)
    assert record.error is not None
    assert {record.ready_ns, record.begun[0], record.finished[0].t_ns, record.error.t_ns} == {at}


def test_logs_of_nccl_and_of_the_core_become_rows() -> None:
    log = EventLog([0])
    log.feed(0, "stderr", "n1:7:8 [0] NCCL INFO Using network r2ccl")
    core = {"t_ns": T + 1000 * MS, "kind": "path_down", "nic": "eth1", "peer": "10.0.0.2", "detail": "stalled"}
    log.feed(0, "stdout", line(event="core", rank=0, **core))
    nccl, lost = event_rows(log.ranks, ["h"], {"h": DRIFTING})
    assert nccl[1:7] == ("h", 0, "nccl", "network", "INFO", "Using network r2ccl")
    assert json.loads(nccl[7]) == {"name": "r2ccl"}
    assert (nccl[8], lost[8]) == (False, None)
    assert lost[:7] == (T, "h", 0, "core", "path_down", None, "stalled")
    assert json.loads(lost[7]) == {"nic": "eth1", "peer": "10.0.0.2"}


def test_what_a_crashed_rank_told_before_is_kept_and_the_last_word_replaces_it() -> None:
    log = EventLog([0, 0])
    for rank in (0, 1):
        log.feed(
            rank, "stdout", line(event="core", rank=rank, t_ns=T, kind="path_down", nic="eth1", peer="", detail="")
        )
    whole = {"mode": 2, "events": []}
    log.feed(1, "stdout", line(event="done", rank=1, t_ns=T, core=whole))
    crashed, done = map(_core, log.ranks)
    assert crashed == {
        "events": [{"t_ns": T, "kind": "path_down", "nic": "eth1", "peer": "", "detail": ""}],
        "cut_short": True,
    }
    assert done == whole


def test_a_nic_that_comes_and_goes_is_no_progress() -> None:
    log = EventLog([0])
    log.last_event_s -= 100
    log.feed(0, "stdout", line(event="core", t_ns=T, kind="path_down"))
    assert log.idle_s() > 99
    log.feed(0, "stdout", line(event="begin", t_ns=T, iteration=0))
    assert log.idle_s() < 50


def test_the_carrier_narrows_the_moment_of_effect() -> None:
    carrier = [(0, True), (10, True), (11, True), (12, True), (13, False), (14, False), (24, False)]
    assert narrowed((10, 16), carrier) == (12, 14)
    assert narrowed((13, 16), carrier) == (13, 14)
    assert narrowed((30, 40), carrier) == (30, 40), "it went at another time, by something else"
    assert narrowed((10, 16), [(t, True) for t, _ in carrier]) == (10, 16)
    assert narrowed((10, 16), []) == (10, 16)


def test_a_nic_that_still_carried_was_not_silent_yet() -> None:
    counted = [(0, 0), (10, 100), (11, 200), (12, 300), (13, 304), (14, 304), (15, 500)]
    assert not_before((10, 14), counted, 10) == 11, "between 11 and 12 it carried, between 12 and 13 a few frames"
    assert not_before((10, 14), counted, 1000) == 10
    assert not_before((10, 14), [], 10) == 10
