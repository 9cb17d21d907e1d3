"""An interrupt that comes during an import or a line takes effect after it, and never after what it was to
interrupt."""

import gc
import os
import signal
import sys
import time
from io import StringIO
from pathlib import Path
from types import FrameType

import pytest
from rich.console import Console

from harness.cluster.netlink import used_subnets
from harness.interrupt import BLOCKED_S, stoppable, unbroken
from harness.sweep.console import ConsoleProgress


def test_an_import_ends_before_the_interrupt_takes_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupts_its_import.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nX = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt, match="SIGINT"), stoppable():
        import interrupts_its_import  # type: ignore[import-not-found]

        while True:
            signal.pause()
    assert sys.modules["interrupts_its_import"] is interrupts_its_import
    assert interrupts_its_import.X == 1


def test_an_interrupt_that_still_waits_at_the_end_is_not_raised_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupted_at_the_end.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("harness.interrupt.AGAIN_S", 0.0)
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        for _ in range(50):
            sys.modules.pop("interrupted_at_the_end", None)
            try:
                with stoppable():
                    __import__("interrupted_at_the_end")
            except KeyboardInterrupt:
                pass
        assert seen == []
    finally:
        signal.signal(signal.SIGTERM, before)


class Interrupts(StringIO):
    """Sends Ctrl-C once, between writing a line and flushing it."""

    sent = False

    def flush(self) -> None:
        if not self.sent and self.getvalue():
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)
        super().flush()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_that_is_interrupted_is_printed_once(terminal: bool) -> None:
    out = Interrupts()
    progress = ConsoleProgress(Console(file=out, force_terminal=terminal, width=100))
    with pytest.raises(KeyboardInterrupt, match="SIGINT"), stoppable():
        progress.note("a trial")
        while True:
            signal.pause()
    progress.end()
    progress.note("writing the report")
    assert out.getvalue().splitlines() == ["a trial", "writing the report"]


def test_a_line_that_nobody_takes_can_be_interrupted() -> None:
    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), stoppable(), unbroken():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
    assert BLOCKED_S <= time.monotonic() - began_s < 10


def test_a_stop_that_waited_for_an_import_does_not_break_off_what_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first socket to the kernel is made right after the import of its library, which takes longer than a second on
    a busy machine. Its event loop, made by half, ended the command with a complaint."""
    (tmp_path / "slow_to_import.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.6)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("harness.interrupt.BLOCKED_S", 0.5)
    made = []
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), stoppable():
        __import__("slow_to_import")
        with unbroken():
            time.sleep(0.05)
            made.append("socket")
        while True:
            signal.pause()
    assert made == ["socket"]


@pytest.mark.parametrize("where", ["_make_self_pipe", "_run_once", "_close_self_pipe"])
def test_a_socket_to_the_kernel_is_made_used_and_closed_before_the_interrupt_takes_effect(where: str) -> None:
    """Its event loop would complain, of what it lacks or that it is closed, when it is collected."""
    sent = []

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == where and not sent:
            sent.append(where)
            os.kill(os.getpid(), signal.SIGTERM)

    before, ended = sys.getprofile(), []
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), stoppable():
        sys.setprofile(interrupt)
        try:
            used_subnets()
            ended.append(where)
        finally:
            sys.setprofile(before)
        while True:
            signal.pause()
    gc.collect()
    assert sent == ended == [where]
