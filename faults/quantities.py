"""Durations and rates as parameters: text with a unit, or a plain number, read for pydantic."""

from collections.abc import Callable
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, model_validator

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


SECONDS = "s"
"""The unit of the limits of a duration."""

Seconds = Annotated[float, BeforeValidator(_reader(parse_duration)), SECONDS]
"""A duration, ``'10 ms'``."""

BitRate = Annotated[float, BeforeValidator(_reader(parse_rate))]
"""Bits per second, ``'50 Mbit/s'``."""


class ShareOrRate(BaseModel):
    """Base of faults with the parameters `share` and `rate`: giving both is refused, since one would have no effect."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        # Values stored with all parameters contain the default share beside the rate.
        given = {name: getattr(self, name) for name in ("share", "rate")}
        if all(value != type(self).model_fields[name].default for name, value in given.items()):
            raise ValueError("give share or rate, not both")
        return self
