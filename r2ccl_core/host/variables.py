"""Checks the core's environment variables for misspelled names and values out of range, before a rank starts.

`selection.read_policy` checks the variables of schedules. This module knows the names of all variables, and the
limits of those that C++ reads.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import FrameType

from r2ccl_core import native

_OURS = __name__.partition(".")[0]
PREFIX = "R2CC_"
DIRECTORY = "R2CCL_CORE_LIB"
"""Read by `native.plugin_path`."""
PLACE = ("R2CC_RANK", "R2CC_SIZE", "R2CC_ROOT")
"""A rank's identity, which whoever starts the ranks provides."""
OF_THE_PRELOADED = ("R2CC_SCHEDULES", "R2CC_AGREE_EVERY", "R2CC_HOSTID")
"""Read only by the library in front of NCCL's AllReduce."""


def refused(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each variable of `environ` that is meant for a rank but that a rank would ignore or refuse as out of its limits,
    with what is wrong with it. Raises `TransportError` if the native core was not built."""
    ours = {name: value for name, value in environ.items() if _may_be_ours(name)}
    if not ours:
        return
    limits: dict[str, tuple[int, int] | None] = native.load().limits()
    for name, value in ours.items():
        limit = None if name == "R2CC_MODE" else limits.get(name)  # mode 3 is for the selection, and not C++'s
        if name in PLACE:
            yield name, "whoever starts the ranks sets it"
        elif name in OF_THE_PRELOADED:
            yield name, "only the library that is preloaded before NCCL reads it"
        elif name not in limits:
            if _is_meant(name, limits):
                yield name, _no_such(name, limits)
        elif value and limit and not _within(value, *limit):
            yield name, f"give a whole number from {limit[0]} to {limit[1]}"


def unknown(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each variable of `environ` that is meant for us but that nobody reads, with what is wrong with it."""
    known = native.load().limits()
    for name in environ:
        if _may_be_ours(name) and name not in known and _is_meant(name, known):
            yield name, _no_such(name, known)


def warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Issues a `RuntimeWarning` for each of them, at the line outside this package that led here."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == _OURS:
        frame, level = frame.f_back, level + 1
    for name, remedy in unknown(environ):
        warnings.warn(f"{name}: {remedy}", RuntimeWarning, stacklevel=level)


def _may_be_ours(name: str) -> bool:
    return name.upper().startswith(PREFIX.rstrip("_")) and name != DIRECTORY


def _is_meant(name: str, known: Iterable[str]) -> bool:
    """Whether the name has our prefix, in whatever case, or is close to one of our names; other programs have R2CC...,
    too."""
    return name.upper().startswith(PREFIX) or bool(get_close_matches(name.upper(), known, n=1, cutoff=0.85))


def _no_such(name: str, known: Iterable[str]) -> str:
    if not name.startswith(PREFIX):  # in lower case, or R2CCL_...
        close = get_close_matches(name.upper(), list(known), n=1)
        return f"no such variable; did you mean {close[0]}?" if close else "no such variable; names are in upper case"
    # All are alike in how they begin.
    words = {one.removeprefix(PREFIX): one for one in known}
    close = get_close_matches(name.removeprefix(PREFIX), words, n=1)
    hint = f"did you mean {words[close[0]]}?" if close else "see r2ccl_core/PARAMETERS.md"
    return f"no such variable; {hint}"


def _within(text: str, low: int, high: int) -> bool:
    unsigned = text.removeprefix("-")
    if not (unsigned.isascii() and unsigned.isdecimal()):
        return False
    digits = unsigned.lstrip("0") or "0"
    return len(digits) <= len(str(high)) and low <= int(text[: len(text) - len(unsigned)] + digits) <= high
