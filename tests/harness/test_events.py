"""Event lines become records; everything else is log only; waiting ends with the event or the time."""

import json
import threading

import pytest

from harness.events import EventLog, RankError, Timed, parse


@pytest.mark.parametrize("line", ["", "# a table", "{broken", "[1]", '{"t_ns": 1}', '{"event": "ready"}', "{}"])
def test_what_is_no_event(line: str) -> None:
    assert parse(line) is None


def feed(log: EventLog, of: int, /, **event: object) -> None:
    log.feed(of, "stdout", json.dumps(event))


def test_a_rank_from_ready_to_done() -> None:
    log = EventLog([0, 100])
    feed(log, 1, event="ready", rank=1, t_ns=1100)
    feed(log, 1, event="begin", rank=1, t_ns=1200, iteration=0)
    feed(log, 1, event="iteration", rank=1, t_ns=1200, duration_ns=50, iteration=0, wrong=0)
    feed(log, 1, event="surprise", rank=1, t_ns=1300)
    feed(log, 1, event="done", rank=1, t_ns=1400, core={"mode": 2})
    log.ended(1, 0)
    record = log.ranks[1]
    assert record.ready_ns == 1000
    assert (record.begun, record.finished) == ({0: 1100}, {0: Timed(1100, 50, 0)})
    assert (record.done, record.core, record.returncode) == (True, {"mode": 2}, 0)
    assert not log.any_failed()
    assert not log.all_ended()


def test_the_first_error_of_a_rank_counts() -> None:
    log = EventLog([0])
    feed(log, 0, event="error", rank=0, t_ns=5, kind="PeerLostError", message="peer lost", iteration=3)
    feed(log, 0, event="error", rank=0, t_ns=6, message="another", iteration=3)
    assert log.ranks[0].error == RankError("peer lost", 5, 3, "PeerLostError")
    assert log.any_failed()


def test_events_on_stderr_are_log_only() -> None:
    log = EventLog([0])
    log.feed(0, "stderr", '{"event": "ready", "t_ns": 1}')
    assert log.ranks[0].ready_ns is None
    assert log.ranks[0].log == ['[stderr] {"event": "ready", "t_ns": 1}']


def test_waiting_ends_with_the_event() -> None:
    log = EventLog([0])
    speaker = threading.Thread(target=feed, args=(log, 0), kwargs={"event": "ready", "rank": 0, "t_ns": 1})
    speaker.start()
    assert log.wait_for(log.all_ready, 10)
    speaker.join()


@pytest.mark.parametrize("given_up", [False, True])
def test_what_ranks_that_are_given_up_say_of_each_other_is_no_error(given_up: bool) -> None:
    log = EventLog([0, 0])
    log.close(given_up=given_up)
    feed(log, 1, event="error", rank=1, t_ns=5, message="another rank has ended", iteration=3, core={"mode": 2})
    assert log.any_failed() is not given_up
    assert log.ranks[1].core == {"mode": 2}


def test_nothing_is_fed_while_somebody_looks() -> None:
    log = EventLog([0])
    feed(log, 0, event="iteration", rank=0, t_ns=1, duration_ns=1, iteration=0)
    iteration = {"event": "iteration", "rank": 0, "t_ns": 2, "duration_ns": 1, "iteration": 1}
    speaker = threading.Thread(target=feed, args=(log, 0), kwargs=iteration)

    def read() -> list[int]:
        found = []
        for number in log.ranks[0].finished:
            if not found:
                speaker.start()
                speaker.join(0.05)
            found.append(number)
        return found

    assert log.look(read) == [0]
    speaker.join()
    assert set(log.ranks[0].finished) == {0, 1}


def test_waiting_ends_with_the_time() -> None:
    log = EventLog([0])
    assert not log.wait_for(log.all_ready, 0.01)
    assert not log.wait_for(log.all_ready, -1)
