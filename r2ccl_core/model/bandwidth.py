"""What a size in bytes means for each collective, and its algorithm and bus bandwidth, as nccl-tests defines them.
Pure.

A size is that of the larger of a rank's two arrays. If that array has a block for every rank (all_gather,
reduce_scatter, alltoall), blocks are rounded down to whole units of 16 bytes, so a little less is moved.
"""

from r2ccl_core.errors import UsageError
from r2ccl_core.model.collective import COLLECTIVES

ITEM_BYTES = {
    "float32": 4,
    "float64": 8,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "uint8": 1,
    "int8": 1,
}
"""Element sizes of the types that are measured, which are those that can hold the test pattern."""

OPERATIONS = ("sum", "min", "max", "prod")
"""The operations that are measured, which are those with exact results."""

BLOCKED = ("all_gather", "reduce_scatter", "alltoall")
"""Collectives whose larger array has a block for every rank."""

_BLOCK_BYTES = 16


def part_count(collective: str, size_bytes: int, dtype: str, ranks: int) -> int:
    """Elements of one block, or of the whole array if there are no blocks: the table's count."""
    item_bytes = ITEM_BYTES[dtype]
    count = size_bytes // item_bytes
    if collective not in BLOCKED:
        return count
    unit = _BLOCK_BYTES // item_bytes
    return count // ranks // unit * unit


def least_bytes(collective: str, dtype: str, ranks: int) -> int:
    """The smallest size for which something is moved."""
    return _BLOCK_BYTES * ranks if collective in BLOCKED else ITEM_BYTES[dtype]


def moved_bytes(collective: str, size_bytes: int, dtype: str, ranks: int) -> int:
    """The size that is actually measured: at most `size_bytes`."""
    blocks = ranks if collective in BLOCKED else 1
    return part_count(collective, size_bytes, dtype, ranks) * blocks * ITEM_BYTES[dtype]


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth: what the busiest port carries in one direction, over the size."""
    others = (ranks - 1) / ranks
    factors = {
        "all_reduce": 2 * others,
        "all_gather": others,
        "reduce_scatter": others,
        "broadcast": 1.0,
        "reduce": 1.0,
        "sendrecv": 1.0,
        "alltoall": others,
    }
    if collective not in factors:
        raise UsageError(f"the collective {collective!r} is unknown; it is one of {', '.join(COLLECTIVES)}")
    return factors[collective]


def bandwidths_gbs(collective: str, size_bytes: int, dtype: str, ranks: int, duration_s: float) -> tuple[float, float]:
    """Algorithm and bus bandwidth in GB/s (1e9 bytes/s); 0 for no time at all."""
    moved = moved_bytes(collective, size_bytes, dtype, ranks)
    algbw = moved / duration_s / 1e9 if duration_s else 0.0
    return algbw, algbw * bus_factor(collective, ranks)
