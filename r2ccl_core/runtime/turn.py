"""Admits one thread at a time: a call from a second thread raises an error that names both calls."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from r2ccl_core.errors import UsageError


class Turn:
    """Held by the thread whose call runs. Nested calls belong to the same turn."""

    def __init__(self) -> None:
        self._held = threading.RLock()
        self.current = "", ""
        """The running call and its thread; empty if there is none."""

    @contextmanager
    def of(self, call: str, patience_s: float = 0.0) -> Iterator[None]:
        """Admits `call`. Raises `UsageError` if another thread's call runs, and does not end within `patience_s`."""
        thread = threading.current_thread().name
        if not self._held.acquire(timeout=patience_s):
            other, its = self.current
            raise UsageError(
                f"{call} on thread {thread!r} while {other} runs on thread {its!r}: a communicator is for one "
                "thread at a time; give each its own, or take turns"
            )
        before, self.current = self.current, (call, thread)
        try:
            yield
        finally:
            self.current = before
            self._held.release()
