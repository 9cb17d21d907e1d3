"""What a GPT learns from: words that are made from a seed, or a file that every host has.

The bytes of a step and a replica depend on the seed, the step and the replica alone, so they are the same in every life
of a rank and in every system.
"""

import os
from typing import Protocol

import torch

_WORDS = 200

Batch = tuple[torch.Tensor, torch.Tensor]
"""Bytes and those that follow them: (sequences, context) each."""


class Source(Protocol):
    """Where batches come from."""

    def batch(self, step: int, replica: int, sequences: int, context: int) -> Batch:
        """A replica's batch of a step. Raises `OSError` with one line if it cannot be read."""
        ...


def source(path: str, seed: int) -> Source:
    """The file at `path`, or words if that is empty."""
    return File(path, seed) if path else Words(seed)


class Words:
    """Words of letters in a random order, some of them often: enough to learn from, and the same everywhere."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        draw = torch.Generator().manual_seed(seed)
        lengths = torch.randint(2, 9, (_WORDS,), generator=draw).tolist()
        self._words = [torch.randint(97, 123, (n,), generator=draw).tolist() for n in lengths]
        self._weights = 1.0 / torch.arange(1, _WORDS + 1)

    def batch(self, step: int, replica: int, sequences: int, context: int) -> Batch:
        """Made anew for each call."""
        needed = sequences * (context + 1)
        draw = _draw(self._seed, step, replica)
        chosen = torch.multinomial(self._weights, needed, replacement=True, generator=draw)
        text = [letter for number in chosen.tolist() for letter in (*self._words[number], 32)][:needed]
        return _cut(text, sequences, context)


class File:
    """Pieces of a file, at places that are drawn. It is read step by step, so it may be larger than the memory."""

    def __init__(self, path: str, seed: int) -> None:
        self._path, self._seed = path, seed
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # as long as the process lives
        except OSError as error:
            raise OSError(f"the text {path} cannot be read: {error.strerror}; it must be on every host") from None
        self._bytes = os.fstat(self._file).st_size

    def batch(self, step: int, replica: int, sequences: int, context: int) -> Batch:
        """Read from the file as it is now."""
        needed = context + 1
        if self._bytes < needed:
            raise OSError(f"the text {self._path} has {self._bytes} bytes, and a sequence needs {needed}")
        draw = _draw(self._seed, step, replica)
        places = torch.randint(0, self._bytes - needed + 1, (sequences,), generator=draw).tolist()
        return _cut([byte for place in places for byte in self._read(place, needed)], sequences, context)

    def _read(self, place: int, needed: int) -> bytes:
        try:
            found = os.pread(self._file, needed, place)
        except OSError as error:
            raise OSError(f"the text {self._path} cannot be read at byte {place}: {error.strerror}") from None
        if len(found) < needed:
            raise OSError(f"the text {self._path} has become shorter: byte {place + len(found)} is gone")
        return found


def _draw(seed: int, step: int, replica: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + step) * 1_009 + replica)


def _cut(text: list[int], sequences: int, context: int) -> Batch:
    rows = torch.tensor(text).view(sequences, context + 1)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()  # a stage refuses strides that it did not expect
