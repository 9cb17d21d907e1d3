"""Checks of what a program gives to a `Communicator`: each mistake is one line with a remedy. Pure."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from r2ccl_core.control.rendezvous import parse_root
from r2ccl_core.errors import UsageError


def whole(name: str, value: object) -> int:
    """`value` as an int. Raises `UsageError` for text, fractions and truth values."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise UsageError(f"{name}={value!r}: give a whole number; int() makes one of text")
    return int(value)


def rank_of(name: str, value: object, size: int) -> int:
    """`value` as one of `size` ranks."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise UsageError(f"{name} {value!r}: give the number of a rank")
    if not 0 <= value < size:
        raise UsageError(f"{name} {value}: there is no such rank among {size}")
    return int(value)


def seconds(name: str, value: object) -> float:
    """`value` as a time to wait: more than nothing, less than for ever."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise UsageError(f"{name}={value!r}: give seconds as a number, such as 30.0")
    if not 0 < value < math.inf:  # NaN is neither
        raise UsageError(f"{name}={value:g}: give more than 0 seconds, and not for ever")
    return float(value)


def limit(name: str, value: object) -> float | None:
    """The same, or None for as long as it takes."""
    return None if value is None else seconds(name, value)


def address(value: object) -> str | None:
    """Where rank 0 listens, as text of host:port. A group of one rank, which needs none, refuses a bad one, too."""
    if value is not None and not isinstance(value, str):
        raise UsageError(f"root={value!r}: give text as host:port, such as '10.0.0.1:7000'")
    if value:
        parse_root(value)
    return value


def parameters(value: object) -> dict[str, str | int]:
    """A table of the transport's parameters."""
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(f"options={value!r}: give a table, such as {{'R2CC_CHUNK_BYTES': 262144}}")
    return dict(value or {})


def octets(what: str, value: object) -> bytes:
    """`value`, bytes or memory, as bytes."""
    if isinstance(value, str):
        raise UsageError(f"{what} takes bytes, not text: give its encode()")
    if not isinstance(value, bytes | bytearray | memoryview):
        raise UsageError(f"{what} takes bytes, not {type(value).__name__}: encode it, with json.dumps().encode() say")
    return bytes(value)


def function(name: str, value: object) -> None:
    """Raises `UsageError` unless `value` can be called, or is None."""
    if value is not None and not callable(value):
        raise UsageError(f"{name}={value!r}: give a function, or leave it out")


def fit(what: str, call: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raises `UsageError` unless a method can be called with these arguments."""
    function = getattr(call, "__func__", call)
    own = (call.__self__,) if hasattr(call, "__self__") else ()
    try:
        _signature(function).bind(*own, *given, **named)
    except TypeError as error:
        rest = [str(one) for one in list(_signature(function).parameters.values())[len(own) :]]
        raise UsageError(f"{what}: {error}; it takes {', '.join(rest) or 'none'}") from None


_signature = lru_cache(maxsize=64)(inspect.signature)
