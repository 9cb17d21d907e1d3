"""The input and the expected result of every rank, collective by collective, as pieces of the test pattern.

A piece is a run of elements that holds one rank's values, the combination of all ranks' values, or the previous content
(0xFF in every byte). Blocks that differ in meaning differ in their seed, so a misplaced block is detected. [(ALL,
UNTOUCHED)] In place of a rank: the combination of all ranks' values; the previous content.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from r2ccl_core.model.collective import reduces

ALL, UNTOUCHED = -1, -2
"""In place of a rank: the combination of all ranks' values; what was there before."""

_BLOCK_SEED = 0xC2B2AE35
_FILLER = 0xFF


@dataclass(frozen=True)
class Piece:
    """`count` elements from `begin` on: of which rank, and of which of its blocks."""

    begin: int
    count: int
    rank: int
    block: int = 0


@dataclass(frozen=True)
class Task:
    """One collective on one rank; `count` is the elements of a block, or of the array if there are no blocks."""

    collective: str
    rank: int
    ranks: int
    count: int
    dtype: str
    op: str = "sum"
    root: int = 0
    seed: int = 0

    def counts(self) -> tuple[int, int]:
        """Elements that are sent and received on a rank."""
        whole = self.count * self.ranks
        return {
            "all_gather": (self.count, whole),
            "reduce_scatter": (whole, self.count),
            "alltoall": (whole, whole),
        }.get(self.collective, (self.count, self.count))

    def brings(self) -> list[Piece]:
        """The input."""
        if self.collective in ("reduce_scatter", "alltoall"):
            return [Piece(other * self.count, self.count, self.rank, other) for other in range(self.ranks)]
        if self.collective == "broadcast" and self.rank != self.root:
            return []
        return [Piece(0, self.count, self.rank)]

    def wants(self, in_place: bool) -> list[Piece]:
        """The complete result."""
        if self.collective == "all_gather":
            return [Piece(source * self.count, self.count, source) for source in range(self.ranks)]
        if self.collective == "alltoall":
            return [Piece(source * self.count, self.count, source, self.rank) for source in range(self.ranks)]
        block = self.rank if self.collective == "reduce_scatter" else 0
        return [Piece(0, self.count, self._origin(in_place), block)]

    def _origin(self, in_place: bool) -> int:
        """Whose values make up a result without blocks."""
        if self.collective == "broadcast":
            return self.root
        if self.collective == "sendrecv":
            return (self.rank - 1) % self.ranks
        if self.collective == "reduce" and self.rank != self.root:
            return self.rank if in_place else UNTOUCHED
        return ALL


class Data:
    """Fills and checks a task's arrays. `engine` has `pattern_fill` and `pattern_check`: the native core, or
    `r2ccl_core.perf.pattern`. Arrays are flat arrays of bytes."""

    def __init__(self, engine: Any, task: Task, item_bytes: int) -> None:
        self._engine, self._task, self._item_bytes = engine, task, item_bytes
        self._op = task.op if reduces(task.collective) else "sum"
        self._expected = np.empty(0, np.uint8)

    def fill(self, send: np.ndarray, recv: np.ndarray, iteration: int) -> None:
        """Prepares an iteration: nothing of an earlier one is left."""
        recv[:] = _FILLER  # first: in place, one lies in the other
        for piece in self._task.brings():
            self._values(self._part(send, piece), piece, iteration)

    def wrong(self, recv: np.ndarray, iteration: int, in_place: bool) -> int:
        """The number of elements that differ from the collective's result."""
        return sum(self._differ(self._part(recv, piece), piece, iteration) for piece in self._task.wants(in_place))

    def _part(self, array: np.ndarray, piece: Piece) -> np.ndarray:
        begin = piece.begin * self._item_bytes
        return array[begin : begin + piece.count * self._item_bytes]

    def _values(self, part: np.ndarray, piece: Piece, iteration: int) -> None:
        task, seed = self._task, self._seed(piece)
        self._engine.pattern_fill(part, task.dtype, piece.rank, task.ranks, iteration, seed, self._op)

    def _seed(self, piece: Piece) -> int:
        return (self._task.seed + piece.block * _BLOCK_SEED) & 0xFFFFFFFF

    def _differ(self, part: np.ndarray, piece: Piece, iteration: int) -> int:
        task = self._task
        if piece.rank == ALL:
            wrong: int = self._engine.pattern_check(
                part, task.dtype, task.ranks, iteration, self._seed(piece), self._op
            )
            return wrong
        if len(self._expected) < len(part):
            self._expected = np.empty(len(part), np.uint8)
        want = self._expected[: len(part)]
        if piece.rank == UNTOUCHED:
            want[:] = _FILLER
        else:
            self._values(want, piece, iteration)
        return count_differing(part, want, self._item_bytes)


def count_differing(have: np.ndarray, want: np.ndarray, item_bytes: int) -> int:
    """Elements of `item_bytes` bytes in which two arrays of bytes differ."""
    kind = np.dtype(f"u{item_bytes}")
    return int(np.count_nonzero(have.view(kind) != want.view(kind)))
