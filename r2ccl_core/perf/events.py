"""The event stream: one JSON object a line on standard output, for a harness."""

import json
import os
import sys
import threading
import time
from typing import Any, TextIO


def own_stream() -> TextIO:
    """Standard output, for events alone: what anything else in this process writes there goes to standard error.

    NCCL writes its log there, and an event that comes while half of a line is written would end up in that line.
    """
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


class Events:
    """Writes one JSON object a line; silent without --stream."""

    def __init__(self, rank: int, enabled: bool, out: TextIO | None = None) -> None:
        self._rank, self._enabled, self._out = rank, enabled, out or sys.stdout
        self._lock = threading.Lock()

    def emit(self, event: str, t_ns: int | None = None, **fields: Any) -> None:
        """One event, stamped with CLOCK_REALTIME in ns unless `t_ns` is given."""
        if not self._enabled:
            return
        stamp = time.time_ns() if t_ns is None else t_ns
        text = json.dumps({"event": event, "rank": self._rank, "t_ns": stamp, **fields})
        with self._lock:
            self._out.write(text + "\n")
            self._out.flush()
