"""PyTorch work handles for the operations that a group has started, and the monitoring of their time-outs."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

from r2ccl_core.errors import R2cclError
from r2ccl_core.runtime.pending import Line

_LOSES_PYTHON_PART = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9)
_unclaimed: set["Running"] = set()
"""Works that nobody has waited for. Before 2.9, C++ callers (functional collectives, DDP) hold only the C++ part of a
work: once its Python part is gone, `wait` is that of C++, which never ends, and `get_future` raises an error. A call
that ends before its caller waits would lose its Python part here."""


class Running(Work):  # type: ignore[misc]  # torch is not typed here
    """One call. Several threads may wait for it, in any order."""

    def __init__(self, result: list[Any]) -> None:
        super().__init__()
        self._result = result
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._ended = False
        self._source: Any = None
        self._future: Any = None
        if _LOSES_PYTHON_PART:
            _unclaimed.add(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Returns when it has ended; raises its error, or a time-out of this wait alone."""
        limit_s = timeout.total_seconds() if timeout is not None and timeout > timedelta(0) else None
        if not self.is_completed() and not self._over.wait(limit_s):
            raise torch.distributed.DistBackendError(f"the work has not ended after {limit_s:g} s")
        _unclaimed.discard(self)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """As `wait`: there is no stream."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it has ended, successfully or not."""
        # A callback of the future runs before those that wait are told; it may ask, and wait.
        return self._over.is_set() or (self._future is not None and bool(self._future.done()))

    def is_success(self) -> bool:
        """Whether it has ended successfully."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Its error."""
        return self._error

    def result(self) -> list[Any]:
        """The tensors that it fills."""
        return self._result

    def get_future(self) -> Any:
        """Completes with `result`, or with the error."""
        with self._lock:
            if self._future is None:
                self._source = torch.futures.Future()
                # An exception that is set in Python is a result to C++, which DDP would take for tensors; one that is
                # raised by a callback is an error there, too.
                self._future = self._source.then(self._told)
                ended = self._ended
            else:
                ended = False
        if ended:
            self._source.set_result(None)
        _unclaimed.discard(self)  # the future holds it until it has ended
        return self._future

    getFuture = get_future  # noqa: N815  # of older versions

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self._error, self._ended = error, True
            source = self._source
        # The future first: who has waited finds it complete.
        try:
            if source is not None:
                source.set_result(None)
        finally:
            self._over.set()

    def _told(self, _: Any) -> list[Any]:
        if self._error is None:
            return self._result
        # A future takes no interrupt; who waits for the work gets it all the same.
        own = isinstance(self._error, Exception)
        raise self._error if own else torch.distributed.DistBackendError(repr(self._error))


class Watch:
    """Ends a group whose call exceeds its time limit. Thread-safe."""

    def __init__(self, late: Callable[[str], object]) -> None:
        self._late = late
        self._changed = threading.Condition()
        self._open: dict[int, tuple[float, str, float, Callable[[], str]]] = {}
        self._number = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def begin(self, name: str, limit_s: float, why: Callable[[], str]) -> int:
        """From now on `name` has `limit_s`; returns its number. `why` is asked for the reason if that passes."""
        with self._changed:
            self._number += 1
            self._open[self._number] = (time.monotonic() + limit_s, name, limit_s, why)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="r2ccl-timeouts", daemon=True)
                self._thread.start()
            return self._number

    def end(self, number: int) -> None:
        """It has ended in time."""
        with self._changed:
            self._open.pop(number, None)

    def close(self) -> None:
        """Stops watching."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _look(self) -> None:
        """Checks every second: limits are seconds and more."""
        while True:
            with self._changed:
                if self._closed:
                    return
                due = sorted(self._open.values(), key=lambda call: call[0])[:1]
                now_s = time.monotonic()
                late = due[0] if due and due[0][0] <= now_s else None
                if late is None:
                    self._changed.wait(min(1.0, due[0][0] - now_s) if due else 1.0)
                    continue
                self._open.clear()
            self._late(f"{late[1]} has not ended after {late[2]:g} s{late[3]()}")


def run(
    line: Line,
    watch: Watch,
    name: str,
    limit_s: float,
    call: Callable[[], object],
    result: list[Any],
    waits: bool = False,
    why: Callable[[], str] = str,
) -> Running:
    """Starts `call` on `line`, or runs it on the program's own thread if the program `waits` for it and the line is
    free. The core's errors become PyTorch's `DistBackendError`."""
    work = Running(result)
    number = watch.begin(name, limit_s, why)
    # A thread has both modes to itself: without them the line's thread cannot write to parameters or to tensors of
    # inference, and its copies become part of the program's graph.
    mode = torch.inference_mode if torch.is_inference_mode_enabled() else torch.no_grad

    def guarded() -> None:
        error: BaseException | None = None
        try:
            with mode():
                call()
        except R2cclError as raised:
            error = torch.distributed.DistBackendError(f"{name}: {raised}")
        except BaseException as raised:
            error = raised
        watch.end(number)
        work._end(error)

    try:
        if not (waits and line.run(guarded)):
            line.begin(guarded)
    except R2cclError as raised:
        watch.end(number)
        _unclaimed.discard(work)
        raise torch.distributed.DistBackendError(f"{name}: {raised}") from None
    return work
