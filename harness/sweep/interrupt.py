"""Ctrl-C, SIGTERM and a lost terminal all end a sweep in the same way: once, as an exception, in order."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from harness.errors import ExitCode

ENDED_BY = {"SIGTERM": ExitCode.TERMINATED, "SIGHUP": ExitCode.HUNG_UP}
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """An interrupt of a command that leaves something behind, described by the text. Its cause is the stop."""


def status_of(stop: KeyboardInterrupt) -> ExitCode:
    """The exit status after an interrupt: 128 plus the number of the signal."""
    first = stop.__cause__ if isinstance(stop, Interrupted) else stop
    name = str(first.args[0]) if isinstance(first, KeyboardInterrupt) and first.args else ""
    return ENDED_BY.get(name, ExitCode.INTERRUPTED)


@contextmanager
def told_of(left: Callable[[], str]) -> Iterator[None]:
    """An interrupt inside the context carries the text that `left` returns at that time."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(left()) from stop


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside the context the first of `STOPS` raises `KeyboardInterrupt`; later ones let the healing finish."""
    stopping = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            raise KeyboardInterrupt(signal.Signals(number).name)

    earlier = {number: signal.signal(number, stop) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
