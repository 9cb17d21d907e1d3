"""Waiting for a condition, which tests do instead of waiting for a time."""

import time
from collections.abc import Callable

LIMIT_S = 120.0
"""Longer than any wait on a busy machine: reaching it is a failure."""


def until(condition: Callable[[], object], *, every_s: float = 0.01, limit_s: float = LIMIT_S) -> None:
    """Returns once `condition()` is true, checked every `every_s` seconds; fails after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(every_s)
