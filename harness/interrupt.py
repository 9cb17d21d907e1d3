"""Ctrl-C, SIGTERM and a lost terminal all end a command in the same way: once, as an exception, in order."""

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from harness.errors import ExitCode

ENDED_BY = {"SIGTERM": ExitCode.TERMINATED, "SIGHUP": ExitCode.HUNG_UP}
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S = 0.01
"""How often it is tried again to interrupt an import, which takes two seconds at most, or what is `unbroken`."""
BLOCKED_S = 1.0
"""What is `unbroken` for longer after a stop is stuck, such as a line for a terminal that has stopped, and is broken
off."""
_unbroken: list[float] = []  # when each context that is open began


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
def unbroken() -> Iterator[None]:
    """A stop inside the context takes effect after it. For the main thread, and threads for which it waits."""
    _unbroken.append(time.monotonic())
    try:
        yield
    finally:
        _unbroken.pop()


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside the context the first of `STOPS` raises `KeyboardInterrupt`; later ones let the healing finish.

    One that comes during an import takes effect after it. A module whose import was broken off often cannot be imported
    again, as those of NumPy and pandas, and the report that ends an interrupted sweep needs them.
    """
    stopping, over, lock = False, False, _thread.allocate_lock()
    main, imports = threading.get_ident(), _imports(sys._getframe())
    first_s: float | None = None

    def waits(frame: FrameType | None) -> bool:
        nonlocal first_s
        first_s = time.monotonic() if first_s is None else first_s
        if _imports(frame) > imports:
            return True
        # The stop may have waited for an import before, which says nothing of what is unbroken since.
        return bool(_unbroken) and time.monotonic() - max(first_s, _unbroken[0]) < BLOCKED_S

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if not stopping and waits(frame):
            # Not a `threading.Thread`: its locks may be held by what was interrupted.
            _thread.start_new_thread(again, (number,))
        elif not stopping:
            stopping = True
            raise KeyboardInterrupt(signal.Signals(number).name)

    def again(number: int) -> None:
        time.sleep(AGAIN_S)
        with lock:
            if not over:
                signal.pthread_kill(main, number)

    earlier = {number: signal.signal(number, stop) for number in STOPS}
    try:
        yield
    finally:
        with lock:
            over = True
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _imports(frame: FrameType | None) -> int:
    """How many imports, each within another, are under way in `frame`."""
    found = 0
    while frame is not None:
        found += frame.f_code.co_name == "_find_and_load"
        frame = frame.f_back
    return found
