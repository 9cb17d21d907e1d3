"""What a Python says about its PyTorch, before anything is started on the hosts."""

import subprocess
from functools import lru_cache
from typing import NamedTuple

_MOST_S = 180.0
"""A limit, not a pause: importing PyTorch takes two seconds, or a minute on a machine whose processors are twenty times
overbooked."""


class Answer(NamedTuple):
    """How a Python ended that ran some code, what it printed, and its errors."""

    status: int
    words: tuple[str, ...]
    errors: str


def ask(python: str, code: str) -> Answer | None:
    """The answer of `python` to `code`, asked once for all trials; None if it cannot be run or says nothing."""
    try:
        return _asked(python, code)
    except (OSError, subprocess.TimeoutExpired):
        return None


@lru_cache(maxsize=16)
def _asked(python: str, code: str) -> Answer:
    probe = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=_MOST_S)
    return Answer(probe.returncode, tuple(probe.stdout.split()), probe.stderr)
