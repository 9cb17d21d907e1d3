"""Runs calls in the background, one after another in the order in which they were started, on a separate thread.

The thread waits in the C++ core and does not hold the interpreter's lock.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from r2ccl_core.errors import TransportError

T = TypeVar("T")
_IDLE_S = 1.0
"""An idle thread ends then. A program may use each tag once, and a tag has a thread of its own; to start one anew
takes half a millisecond on a busy machine."""


class Pending(Generic[T]):
    """A call that was started. Any thread."""

    def __init__(self, why: Callable[[], str] = str) -> None:
        self._over = threading.Event()
        self._why = why
        self._value: T | None = None
        self._error: BaseException | None = None

    def done(self, within_s: float = 0.0) -> bool:
        """Whether it has ended, successfully or not, or ends in this time."""
        return self._over.wait(within_s)

    def wait(self, timeout_s: float | None = None) -> T:
        """Its result, as soon as it exists; may be called in any order, and repeatedly. Raises what the call raised,
        and `TransportError` if it has not ended after `timeout_s`; the call then continues."""
        if not self._over.wait(timeout_s):
            raise TransportError(f"the call has not ended after {timeout_s:g} s{self._why()}")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set before the event is

    def _end(self, value: "T | None", error: BaseException | None) -> None:
        self._value, self._error = value, error
        self._why = str  # the other may hold a communicator, which nobody else may
        self._over.set()


class Line:
    """A thread and its queue of calls. Thread-safe; the thread starts with the first call and ends when idle."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._pending = 0
        self._beside = 0  # the thread whose call `run` runs
        self._closed = False

    def run(self, call: Callable[[], None]) -> bool:
        """Runs `call` on the caller's own thread, which saves two hand-overs; calls started meanwhile wait. Returns
        False and runs nothing if something is pending."""
        me = threading.get_ident()
        if self._beside == me:
            return False
        try:  # all of it: an interrupt may come anywhere on the program's own thread
            with self._changed:
                if self._closed:
                    raise TransportError("this communicator is closed")
                if self._pending or self._beside:
                    return False
                self._beside = me
            call()
        finally:
            with self._changed:
                if self._beside == me:
                    self._beside = 0
                    self._changed.notify_all()
        return True

    def begin(self, call: Callable[[], T], why: Callable[[], str] = str) -> Pending[T]:
        """Runs `call` after all that were started before it. `why` is asked for the reason if that takes too long."""
        pending: Pending[T] = Pending(why)

        def run() -> None:
            value, error = None, None
            try:
                value = call()
            except BaseException as raised:
                error = raised
            with self._changed:
                self._pending -= 1
            pending._end(value, error)

        with self._changed:
            if self._closed:
                raise TransportError("this communicator is closed")
            self._calls.append(run)
            self._pending += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
        return pending

    @property
    def pending(self) -> int:
        """Calls that have not ended, as seen by threads other than the line's own, which is inside one of them."""
        return 0 if threading.current_thread() is self._thread else self._pending + bool(self._beside)

    def close(self, timeout_s: float) -> None:
        """Accepts no more calls, and waits for those that were started. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._beside, timeout_s)
            thread = self._thread
        if thread is not None and threading.current_thread() is not thread:
            thread.join(timeout_s)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._beside and (self._calls or self._closed), _IDLE_S)
                if not self._calls:
                    self._thread = None
                    return
                if self._beside:
                    continue
                call = self._calls.popleft()
            call()
            del call  # it holds arrays and a communicator, which nobody else may
