"""The watchdog of ``-T``: reports an iteration that takes longer than the limit. Without a limit it does nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Watchdog:
    """Calls `bark` with one line when what `watch` surrounds takes longer than `limit_s` (0: never)."""

    def __init__(self, limit_s: float, bark: Callable[[str], object]) -> None:
        self._limit_s, self._bark = limit_s, bark

    @contextmanager
    def watch(self, what: str) -> Iterator[None]:
        """Surrounds one thing."""
        if self._limit_s <= 0:
            yield
            return
        timer = threading.Timer(self._limit_s, self._bark, [f"{what} took longer than {self._limit_s:g} s (-T)"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
