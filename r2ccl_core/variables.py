"""The core's environment variables by name: what a rank would refuse at its start, or would not see.

What concerns schedules is `selection.read_settings`' to judge; here are the names of all, and the limits of those
that C++ reads.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from r2ccl_core import native, nics, selection

PREFIX = "R2CC_"


def refused(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each variable of `environ` that begins with R2CC_ and is unknown, or no number within its limits: its name, and
    what is wrong with it. `TransportError` where the native core was not built."""
    limits: dict[str, tuple[int, int] | None] = native.load().limits()
    known = [name for name in (*selection.VARIABLES, *nics.VARIABLES, *limits) if name.startswith(PREFIX)]
    for name, value in environ.items():
        if not name.startswith(PREFIX):
            continue
        if name not in known:
            yield name, f"no such variable; {_nearest(name, known)}"
        elif value and (limit := limits.get(name)) and not _within(value, *limit):
            yield name, f"give a whole number from {limit[0]} to {limit[1]}"


def _nearest(name: str, known: list[str]) -> str:
    # All are alike in how they begin.
    words = {one.removeprefix(PREFIX): one for one in known}
    close = get_close_matches(name.removeprefix(PREFIX), words, n=1)
    return f"did you mean {words[close[0]]}?" if close else "see r2ccl_core/PARAMETERS.md"


def _within(text: str, low: int, high: int) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and low <= int(text) <= high
