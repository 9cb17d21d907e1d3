"""Converts nccl-tests' rows, as they arrive, to our events. Pure.

nccl-tests runs cycles (``-N``) of one iteration each and prints a row after every cycle. A cycle contains more than its
timed collective: one collective before it, one for the check, and the same again in place. An iteration is therefore in
flight from one row to the next, which is its `duration_ns`; `measured_ns` is the time in the row. If a cycle took much
longer than usual, something happened in it, either within the timed collective or beside it: the excess is added to its
time.
"""

from statistics import median
from typing import Any

from harness.backends.nccl_tests_text import Place, Row

MUCH_LONGER = 1.5
"""A cycle that takes this many times the usual time is too long."""


class Cycles:
    """The iterations of one run, counted from ``-warmup``; `place` is ``out`` or ``in``."""

    def __init__(self, size_bytes: int, warmup: int, iterations: int, place: str) -> None:
        self._size_bytes, self._iterations, self._place = size_bytes, iterations, place
        self._iteration, self._begun_ns = -warmup, 0
        self._beside_ns: list[int] = []  # excess over the timed collective, by cycle so far
        self._lasted_ns: list[int] = []
        self.wrong = 0

    @property
    def left(self) -> int:
        """The number of iterations that have not ended."""
        return self._iterations - self._iteration

    @property
    def iteration(self) -> int | None:
        """The iteration in progress."""
        return self._iteration if self._begun_ns and self.left > 0 else None

    def begin(self, t_ns: int) -> list[dict[str, Any]]:
        """Everything is connected: the first iteration begins."""
        self._begun_ns = t_ns
        return [{"event": "ready", "t_ns": t_ns}, self._begin()]

    def row(self, row: Row, t_ns: int) -> list[dict[str, Any]]:
        """A cycle ended at `t_ns`, and the next begins."""
        place = row.in_place if self._place == "in" else row.out
        if place is None or self.left <= 0:
            return []
        ended = self._end(row, place, t_ns)
        self._iteration, self._begun_ns = self._iteration + 1, t_ns
        return [ended, self._begin()] if self.left > 0 else [ended]

    def _begin(self) -> dict[str, Any]:
        return {"event": "begin", "t_ns": self._begun_ns, **self._at()}

    def _end(self, row: Row, place: Place, t_ns: int) -> dict[str, Any]:
        lasted_ns, timed_ns = t_ns - self._begun_ns, round(place.time_us * 1e3)
        checked = [side.wrong for side in (row.out, row.in_place) if side is not None and side.wrong is not None]
        wrong = sum(checked) if checked else None
        self.wrong += wrong or 0
        told = {
            "duration_ns": lasted_ns,
            "measured_ns": timed_ns + self._longer_ns(lasted_ns, timed_ns),
            "wrong": wrong,
        }
        self._lasted_ns.append(lasted_ns)
        self._beside_ns.append(lasted_ns - timed_ns)
        return {"event": "iteration", "t_ns": self._begun_ns, **self._at(), **told}

    def _longer_ns(self, lasted_ns: int, timed_ns: int) -> int:
        if not self._lasted_ns or lasted_ns < MUCH_LONGER * median(self._lasted_ns):
            return 0
        return max(0, lasted_ns - timed_ns - round(median(self._beside_ns)))

    def _at(self) -> dict[str, Any]:
        return {"size_bytes": self._size_bytes, "iteration": self._iteration, "place": self._place}
