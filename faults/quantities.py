"""Durations and rates as parameters: text with a unit, or a plain number, read for pydantic."""

from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator

from r2ccl_core.errors import UnitError
from r2ccl_core.units import parse_duration, parse_rate


def _reader(parse: Callable[[str], float]) -> Callable[[object], object]:
    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except UnitError as error:
            raise ValueError(str(error)) from error

    return read


Seconds = Annotated[float, BeforeValidator(_reader(parse_duration))]
"""A duration, ``'10 ms'``."""

BitRate = Annotated[float, BeforeValidator(_reader(parse_rate))]
"""Bits per second, ``'50 Mbit/s'``."""
