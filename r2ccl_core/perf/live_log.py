"""Reports the core's events while they happen, so that a crash does not lose them.

The core keeps its log in memory, and a rank reports all of it at its end, which a killed or crashed rank never reaches.
Polling the log takes some microseconds (5 us with few events). A thread polls every 20 ms, or less often if the log has
grown long, and takes at most a fiftieth of a core.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from r2ccl_core.perf.events import Events

INTERVAL_S = 0.02
COST_FACTOR = 50


class LiveLog:
    """While it is entered, reports every new event of `log()` as a ``core`` event; the rest when it is left."""

    def __init__(self, log: Callable[[], list[dict[str, Any]]], events: Events) -> None:
        self._log, self._events = log, events
        self._told: set[tuple[Any, ...]] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="live log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _follow(self) -> None:
        with suppress(OSError):  # whoever read has left; the measuring loop notices it, too, and ends the rank
            rest_s = INTERVAL_S
            while not self._stopping.wait(rest_s):
                began_s = time.thread_time()
                self._tell_new()
                rest_s = max(INTERVAL_S, COST_FACTOR * (time.thread_time() - began_s))
            self._tell_new()

    def _tell_new(self) -> None:
        logged = self._log()
        for event in logged:
            if tuple(event.values()) not in self._told:
                self._events.emit("core", **event)
        # Only what is still in the bounded log can come again.
        self._told = {tuple(event.values()) for event in logged}
