"""The test data, its exact result, and the check, in NumPy: the definition against which the native form is tested.

Element ``i`` of rank ``r`` at iteration ``t`` is ``1 + (i + offset) mod m`` with ``offset = mix(b ^ mix(r*0x9e3779b9 +
t*0x85ebca6b + seed))`` and ``b = i >> 6``, all modulo 2^32: every run of 64 elements of every rank is shifted at
random, so a chunk that is in the wrong place, from another iteration, or reduced twice is detected. ``m`` is 4 (less if
``ranks * m`` would exceed the integers that bfloat16 holds exactly); for prod it is 2, and ranks beyond the sixth hold
1.
"""

import numpy as np

from r2ccl_core.model.bandwidth import ITEM_BYTES

_U32 = np.uint32
_PROD_RANKS = 6


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> _U32(16))) * _U32(0x7FEB352D)
    x = (x ^ (x >> _U32(15))) * _U32(0x846CA68B)
    mixed: np.ndarray = x ^ (x >> _U32(16))
    return mixed


def _modulus(ranks: int, op: str) -> int:
    return 2 if op == "prod" else max(1, min(4, 256 // ranks))


def pattern_fill(data: np.ndarray, dtype: str, rank: int, ranks: int, iteration: int, seed: int, op: str) -> None:
    """Fills `data`, an array of bytes, with the input of `rank`, like the native function of this name."""
    count = len(data) // ITEM_BYTES[dtype]
    data[:] = _encoded(values(count, rank, ranks, iteration, seed, op), dtype)


def pattern_check(data: np.ndarray, dtype: str, ranks: int, iteration: int, seed: int, op: str) -> int:
    """How many elements of `data` differ from the result over all ranks, like the native function of this name."""
    item_bytes = ITEM_BYTES[dtype]
    want = _encoded(result(len(data) // item_bytes, ranks, iteration, seed, op), dtype)
    kind = np.dtype(f"u{item_bytes}")
    return int(np.count_nonzero(data.view(kind) != want.view(kind)))


def _encoded(small: np.ndarray, dtype: str) -> np.ndarray:
    """Small integers in the bytes of a type; NumPy itself has no bfloat16, whose bytes are float32's upper ones."""
    if dtype == "bfloat16":
        upper: np.ndarray = small.astype(np.float32).view(np.uint16)[1::2].copy().view(np.uint8)
        return upper
    encoded: np.ndarray = small.astype(dtype).view(np.uint8)
    return encoded


def values(count: int, rank: int, ranks: int, iteration: int, seed: int, op: str) -> np.ndarray:
    """The input of `rank`, as int64."""
    if op == "prod" and rank >= _PROD_RANKS:
        return np.ones(count, dtype=np.int64)
    key = (rank * 0x9E3779B9 + iteration * 0x85EBCA6B + seed) & 0xFFFFFFFF
    element = np.arange(count, dtype=np.uint32)
    offset = _mix((element >> _U32(6)) ^ _mix(np.array([key], dtype=np.uint32)))
    modulus = _modulus(ranks, op)
    return 1 + (element.astype(np.int64) % modulus + offset.astype(np.int64) % modulus) % modulus


def result(count: int, ranks: int, iteration: int, seed: int, op: str) -> np.ndarray:
    """What every rank must end with, as int64."""
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}[op]
    total = values(count, 0, ranks, iteration, seed, op)
    for rank in range(1, ranks):
        total = combine(total, values(count, rank, ranks, iteration, seed, op))
    return total
