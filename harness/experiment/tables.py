"""The building blocks of all tables of an experiment file: quantities, names, mistakes.

Quantities are written with units and are held as bytes, bit/s and seconds.
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Annotated, NamedTuple, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from faults.numbers import Strict
from r2ccl_core.errors import UnitError
from r2ccl_core.units import format_size, parse_duration, parse_rate, parse_size

Q = TypeVar("Q", int, float)

MAX_DURATION_S = 1e6
"""Eleven days. Timers of the kernel and of libraries hold at most 2**31 ms, which is 24 days; longer waits overflow."""


def _size(value: object) -> int:
    return _read(parse_size, value)


def read_rate(value: object) -> float:
    """Bits per second; raises the ValueError that pydantic attaches to the key."""
    return _read(parse_rate, value)


def read_duration(value: object) -> float:
    """Seconds; raises the ValueError that pydantic attaches to the key."""
    return _read(parse_duration, value)


def _duration(value: object) -> float:
    seconds = read_duration(value)
    if seconds > MAX_DURATION_S:
        raise ValueError(f"must be at most {MAX_DURATION_S:.0f} s, which is 11 days")
    return seconds


def read_share(value: object) -> object:
    """``"5 %"`` as 0.05, a number as it is; raises the ValueError that pydantic attaches to the key."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if not isinstance(value, str):
        return value
    number, percent, rest = value.partition("%")
    try:
        if rest.strip():
            raise ValueError
        return float(number) / (100 if percent else 1)
    except ValueError:
        raise ValueError('must be a number, or a share in quotes like "5 %"') from None


def _read(parse: Callable[[str], Q], value: object) -> Q:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("write a number with its unit in quotes")
    try:
        return parse(str(value))
    except UnitError as error:
        raise ValueError(str(error)) from error


def _rate_text(rate_bit_s: float) -> str:
    """The exact rate, in the largest unit in which it is a whole number."""
    for factor, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if rate_bit_s % factor == 0:
            return f"{rate_bit_s / factor:.0f} {unit}"
    return f"{rate_bit_s!r} bit/s"


Size = Annotated[int, BeforeValidator(_size), PlainSerializer(format_size)]
Rate = Annotated[float, BeforeValidator(read_rate), PlainSerializer(_rate_text)]
Duration = Annotated[float, BeforeValidator(_duration), Field(ge=0), PlainSerializer(lambda v: f"{v:.15g} s")]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=40)]


class Model(Strict):
    """Frozen; an unknown key is a mistake, and so is true instead of a number."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Mistake(NamedTuple):
    """One mistake: the key in the file, its value, and the remedy."""

    key: str
    value: object
    remedy: str


MAX_SHOWN = 24
"""The most known names that a remedy lists in full."""


def nearest(name: str, known: Sequence[str]) -> str:
    """A remedy for an unknown name: the nearest known one, or the known names."""
    close = get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = known if len(known) <= MAX_SHOWN else [known[0], known[1], "...", known[-1]]
    return f"known: {', '.join(shown)}"
