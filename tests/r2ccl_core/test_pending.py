"""Calls beside the program: their order, and calls that run on the program's own thread instead."""

import threading

import pytest

from r2ccl_core.errors import TransportError, UsageError
from r2ccl_core.runtime.pending import Line
from r2ccl_core.runtime.turn import Turn


def test_a_call_runs_on_the_programs_thread_only_while_nothing_is_pending() -> None:
    line, threads, go = Line("line"), [], threading.Event()
    assert line.run(lambda: threads.append(threading.current_thread()))
    pending = line.begin(lambda: go.wait(60))
    assert not line.run(lambda: threads.append(threading.current_thread()))
    go.set()
    assert pending.wait(60)
    assert line.run(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()] * 2
    line.close(60)


def test_what_is_begun_during_such_a_call_comes_after_it() -> None:
    line, order = Line("line"), []
    line.begin(lambda: None).wait(60)  # so that its thread is there, and waits

    def call() -> None:
        began.append(line.begin(lambda: order.append("begun")))
        assert not began[0].done()
        order.append("own")

    began: list = []
    assert line.run(call)
    began[0].wait(60)
    assert order == ["own", "begun"]
    line.close(60)


def test_closing_waits_for_such_a_call() -> None:
    line, order = Line("line"), []
    inside, go = threading.Event(), threading.Event()

    def call() -> None:
        inside.set()
        go.wait(60)
        order.append("call")

    other = threading.Thread(target=lambda: line.run(call))
    closing = threading.Thread(target=lambda: (line.close(60), order.append("closed")))
    other.start()
    assert inside.wait(60)
    closing.start()
    go.set()
    closing.join(60)
    other.join(60)
    assert order == ["call", "closed"]
    with pytest.raises(TransportError, match="closed"):
        line.run(lambda: None)


def test_a_call_that_fails_leaves_the_line_free() -> None:
    def divide() -> None:
        raise ZeroDivisionError

    line = Line("line")
    with pytest.raises(ZeroDivisionError):
        line.run(divide)
    assert line.pending == 0
    assert line.begin(lambda: 7).wait(60) == 7
    line.close(60)


def test_an_idle_thread_ends_and_the_next_call_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r2ccl_core.runtime.pending._IDLE_S", 0.05)
    line, inside, go = Line("line"), threading.Event(), threading.Event()
    first = line.begin(threading.current_thread).wait(60)
    first.join(60)
    assert not first.is_alive()
    second = line.begin(threading.current_thread).wait(60)
    assert second is not first

    def call() -> None:  # on the program's own thread, for longer than the other waits
        inside.set()
        go.wait(60)

    other = threading.Thread(target=lambda: line.run(call))
    other.start()
    assert inside.wait(60)
    begun = line.begin(lambda: "begun")
    with pytest.raises(TransportError, match="not ended"):
        begun.wait(0.2)
    go.set()
    assert begun.wait(60) == "begun"
    other.join(60)
    line.close(60)


def test_a_turn_waits_for_anothers_call_only_as_long_as_it_is_told_to() -> None:
    turn, order = Turn(), []
    inside, go = threading.Event(), threading.Event()

    def call() -> None:
        with turn.of("all_reduce"):
            inside.set()
            go.wait(60)
            order.append("all_reduce")

    other = threading.Thread(target=call)
    other.start()
    assert inside.wait(60)
    with pytest.raises(UsageError, match="while all_reduce runs on thread"), turn.of("barrier"):
        pass
    threading.Timer(0.05, go.set).start()
    with turn.of("close", 60):
        order.append("close")
    other.join(60)
    assert order == ["all_reduce", "close"]
