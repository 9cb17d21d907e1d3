"""A limit for the steps of a rank whose GPU may wait for ever.

NCCL waits without a limit for a network that is gone. PyTorch's limit does not reach it: PyTorch hands a collective to
the GPU and returns at once, and the program waits for the GPU. A library that keeps a limit that we gave it ends by an
error, which one rank tells as a time-out and others as a lost connection: all of them say whose limit it was.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_ABORT_S = 2.0
_NEARLY = 0.9
"""Of a library's limit: ranks begin a collective at different times, and those that lose a peer by its limit end with
it."""
_KEY = "sweep.limits.give_up"
_LOOKS = 15
"""In one limit, so that a step ends at most a fifteenth later than it should."""


class StepLimit:
    """Calls `leave` from a thread of its own, with one line, if a step lasts longer than `limit_s` seconds; None is no
    limit. An error after `library_s`, the limit that the library keeps itself, is raised as what it is."""

    def __init__(self, limit_s: float | None, leave: Callable[[str], object], library_s: float | None = None) -> None:
        self._leave, self._library_s = leave, library_s
        self._step: tuple[str, float] | None = None
        self._over = False
        self._lock = threading.Lock()
        if limit_s is not None:
            threading.Thread(target=self._watch, args=[limit_s], name="step limit", daemon=True).start()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """What is done inside is the step `name`. A step that lasted too long has no end: what it was to compute is not
        there, although NCCL lets the program go on once it was aborted."""
        begin_s = time.monotonic()
        self._step = name, begin_s
        try:
            yield
        except RuntimeError as error:
            if self._library_s is None or time.monotonic() - begin_s < _NEARLY * self._library_s:
                raise
            raise RuntimeError(_over(name, self._library_s)) from error
        finally:
            with self._lock:
                self._step = None
                over = self._over
            while over:  # until `leave` has ended the process
                time.sleep(1)

    def _watch(self, limit_s: float) -> None:
        while True:
            time.sleep(limit_s / _LOOKS)
            with self._lock:
                step = self._step
                self._over = step is not None and time.monotonic() - step[1] > limit_s
            if step is not None and self._over:
                self._leave(f"{_over(step[0], limit_s)}: NCCL still waits for its network")
                return


def _over(step: str, limit_s: float) -> str:
    return f"{step} did not end within {limit_s:g} s ({_KEY})"


def abort_nccl() -> None:
    """Ends what torch's groups have under way, in at most two seconds. A process that ends while its kernels wait takes
    others along that share the GPU by the Multi-Process Service."""

    def abort() -> None:
        with suppress(Exception):  # a private name; without it the process ends as it is
            import torch.distributed

            torch.distributed.distributed_c10d._abort_process_group()

    thread = threading.Thread(target=abort, daemon=True)
    thread.start()
    thread.join(_ABORT_S)
