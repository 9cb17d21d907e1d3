"""Keys and values in pages of 16 tokens, each with a checksum, as one host holds them for its heads."""

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from harness.backends.serving.model import Shape

PAGE = 16
"""Tokens per page."""


class Pages:
    """`count` pages for `heads` of the model's heads: float32 of (pages, layers, 2, `PAGE`, heads, depth)."""

    def __init__(self, shape: Shape, heads: int, count: int) -> None:
        self.memory = np.zeros((count, shape.layers, 2, PAGE, heads, shape.depth), np.float32)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, which are contiguous."""
        return int(self.memory[0].nbytes)

    def put(self, pages: Sequence[int], made: np.ndarray) -> None:
        """Stores the keys and values of a sequence from its first token on, as `Model.prefill` returns them."""
        for number, page in enumerate(pages):
            part = made[number * PAGE : (number + 1) * PAGE]
            self.memory[page, :, :, : len(part)] = part.transpose(1, 2, 0, 3, 4)
            self.memory[page, :, :, len(part) :] = 0

    def add(self, pages: Sequence[int], place: int, layer: int, key: np.ndarray, value: np.ndarray) -> None:
        """Stores those of the token at `place`: (heads, depth) each."""
        page, row = pages[place // PAGE], place % PAGE
        self.memory[page, layer, 0, row], self.memory[page, layer, 1, row] = key, value

    def read(self, pages: Sequence[int], tokens: int, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Those of the first `tokens`: (tokens, heads, depth) each."""
        used = self.memory[list(pages[: pages_for(tokens)]), layer]
        both = used.transpose(1, 0, 2, 3, 4).reshape(2, -1, *used.shape[3:])
        return both[0, :tokens], both[1, :tokens]

    def checksum(self, page: int) -> int:
        """CRC-32 of a page's bytes."""
        return crc32(self.memory[page].data)


class FreePages:
    """The free pages among `count`."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))

    def take(self, count: int) -> list[int]:
        """Takes `count` pages, or none at all if fewer are free."""
        taken, left = self._free[:count], self._free[count:]
        if len(taken) < count:
            return []
        self._free = left
        return taken

    def give(self, pages: Sequence[int]) -> None:
        """Returns pages."""
        self._free += pages


def pages_for(tokens: int) -> int:
    """The number of pages for `tokens` tokens."""
    return -(-tokens // PAGE)
