"""The event stream: one JSON object per line on standard output, for a harness."""

import json
import os
import sys
import threading
import time
from typing import Any, TextIO


def own_stream() -> TextIO:
    """Standard output, for events alone: whatever else this process writes there goes to standard error.

    NCCL writes its log there, and an event that came in the middle of a log line would end up inside that line.
    """
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


class Events:
    """Writes one JSON object per line; silent without --stream."""

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
