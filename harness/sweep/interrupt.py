"""Ctrl-C, SIGTERM and a lost terminal all end a sweep in the same way: once, as an exception, in order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable() -> Iterator[None]:
    """While it lasts the first of `STOPS` raises `KeyboardInterrupt`; later ones let the healing finish."""
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
