"""Checks the arrays of each collective: how many elements, which may overlap, and where; and what single messages tell
of theirs. Pure.

Counts are nccl-tests': a rank's part of all_gather and reduce_scatter is one of `ranks` equal blocks of the larger
array, and in place means inside it. sendrecv and alltoall have no in-place form.

For bool, max is the logical or, min and prod are the logical and; there is no sum. avg is the sum divided by the number
of ranks, for floating-point types only; the sum is formed first and can overflow like any sum.
"""

from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.model.collective import reduces

DTYPES = ("float32", "float64", "int32", "int64", "float16", "bfloat16", "uint8", "int8", "bool")
OPS = ("sum", "min", "max", "prod", "avg")
FLOATING = ("float32", "float64", "float16", "bfloat16")
APART = ("sendrecv", "alltoall")
"""Collectives that need two separate arrays."""
MOVED = (
    "int16", "uint16", "uint32", "uint64", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
"""Further types, which every collective that does not reduce moves as well."""
_CODE_BITS = 24  # of a message's tag, kMostTag


@lru_cache(maxsize=64)
def name_of(dtype: np.dtype[Any]) -> str:
    """A data type's name, which NumPy composes anew each time."""
    return dtype.name


@lru_cache(maxsize=64)
def type_code(dtype: np.dtype[Any]) -> int:
    """What a message tells of the data type of its elements: one number for each, the order of their bytes included."""
    return _code(str(dtype))


def type_named(code: int) -> str:
    """The data type that `type_code` tells, where it is a usual one."""
    return next((name for name in (*DTYPES, *MOVED) if _code(name) == code), "another data type")


def _code(name: str) -> int:
    return crc32(name.encode()) >> 32 - _CODE_BITS


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8)


def for_core(array: np.ndarray) -> np.ndarray:
    """A contiguous array as the core takes it, which knows only `DTYPES`: others as their bytes."""
    return array if name_of(array.dtype) in DTYPES else as_bytes(array)


def block(array: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """A flat view of block `rank` of `ranks` equal ones."""
    count = array.size // ranks
    return array.reshape(-1)[rank * count : (rank + 1) * count]


def check_arrays(collective: str, send: object, recv: object) -> None:
    """Raises `UsageError` unless both are arrays; `recv` may be None."""
    check_array(collective, "send", send)
    if isinstance(recv, str) and recv in OPS:
        raise UsageError(f"{collective} takes NumPy arrays; recv is {recv!r}: to reduce by it, write op={recv!r}")
    if recv is not None:
        check_array(collective, "recv", recv)


def check_array(call: str, name: str, given: object) -> None:
    """Raises `UsageError`, one line that speaks of `name`, unless `given` is an array."""
    if not isinstance(given, np.ndarray | np.generic):
        raise UsageError(f"{call} takes NumPy arrays; {name} is {type(given).__name__}: use numpy.asarray")
    if isinstance(given, np.ma.MaskedArray):
        raise UsageError(f"{call}: {name} is a masked array, whose mask would be lost; give its filled()")


def result_like(collective: str, send: np.ndarray, ranks: int) -> np.ndarray:
    """A new array for the result of `send`."""
    if collective == "all_gather":
        return np.empty((ranks, *send.shape), send.dtype)
    if collective == "reduce_scatter":
        return np.empty(send.size // ranks, send.dtype)
    return np.empty_like(send, order="C")


def check(collective: str, send: np.ndarray, recv: np.ndarray, op: str, rank: int, ranks: int) -> None:
    """Raises a one-line `UsageError` unless `rank` may run `collective` from `send` into `recv`."""
    known = DTYPES if reduces(collective) else (*DTYPES, *MOVED)
    if name_of(send.dtype) not in known or not send.dtype.isnative:
        raise UsageError(f"{collective}: data type {send.dtype!r} is not supported; use one of {', '.join(known)}")
    if op not in OPS:
        raise UsageError(f"operation {op!r} is not supported; use one of {', '.join(OPS)}")
    if reduces(collective):
        _check_operation(name_of(send.dtype), op)
    check_result(collective, recv)
    _check_shapes(collective, send, recv, ranks)
    if np.may_share_memory(send, recv) and not is_in_place(collective, send, recv, rank, ranks):
        remedy = "use two arrays" if collective in APART else "use the same memory for in place"
        raise UsageError(f"send and recv overlap; {remedy}")


def check_result(collective: str, result: np.ndarray, name: str = "recv ") -> None:
    """Raises a one-line `UsageError` about `name` unless a result may be put into `result`."""
    if not result.flags.c_contiguous:
        raise UsageError(f"{collective}: {name}is not contiguous; give an np.ascontiguousarray and copy from it")
    if not result.flags.writeable:
        raise UsageError(f"{collective}: {name}may not be written to; give an array that is writeable")


def operations(dtype: str) -> tuple[str, ...]:
    """The operations available for a data type."""
    if dtype == "bool":
        return tuple(op for op in OPS if op not in ("sum", "avg"))
    return OPS if dtype in FLOATING else tuple(op for op in OPS if op != "avg")


def divide(sums: np.ndarray, ranks: int) -> None:
    """Turns sums into averages, in place."""
    wide = sums.astype(np.float32) if sums.itemsize == 2 else sums  # not every number of ranks is a float16
    sums[...] = wide / wide.dtype.type(ranks)


def _check_operation(dtype: str, op: str) -> None:
    if op in operations(dtype):
        return
    if op == "avg" and dtype != "bool":
        raise UsageError(f"avg of {dtype} is not supported; use sum and divide it, or a floating-point type")
    raise UsageError(f"{op} of bool is not supported; use max (or), min or prod (and), or convert it to integers")


def is_in_place(collective: str, send: np.ndarray, recv: np.ndarray, rank: int, ranks: int) -> bool:
    """Whether the smaller of the two arrays is this rank's place in the larger."""
    if collective in APART:
        return False
    if collective == "all_gather":
        recv = block(recv, rank, ranks)
    if collective == "reduce_scatter":
        send = block(send, rank, ranks)
    return send.ctypes.data == recv.ctypes.data


def _check_shapes(collective: str, send: np.ndarray, recv: np.ndarray, ranks: int) -> None:
    if collective in ("reduce_scatter", "alltoall") and send.size % ranks:
        raise UsageError(f"{collective} of {send.size} elements: {ranks} ranks need as many equal blocks")
    if send.dtype != recv.dtype:
        raise UsageError(f"{collective}: send is {send.dtype} and recv is {recv.dtype}; give both one data type")
    if collective == "all_gather":
        needs, fits = f"{send.size * ranks} elements", recv.size == send.size * ranks
    elif collective == "reduce_scatter":
        needs, fits = f"{send.size // ranks} elements", send.size == recv.size * ranks
    else:
        needs, fits = f"the shape {send.shape}", send.shape == recv.shape
    if not fits:
        has = f"{recv.size} elements" if "elements" in needs else f"the shape {recv.shape}"
        raise UsageError(f"{collective} over {ranks} ranks: recv has {has}; give one of {needs}")
