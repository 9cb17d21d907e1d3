"""Quantities with units, as people write them: sizes, rates and durations.

Sizes are bytes (``64MiB``, ``1G``), rates are bits per second (``500 Mbit/s``, ``10Gbps``), durations are seconds
(``150ms``, ``2 s``). Plain numbers are accepted only if the unit is beyond doubt.
"""

import re

from r2ccl_core.errors import UnitError

_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ/]*)\s*\Z")

# nccl-tests reads K, M and G as powers of 1024, so that is what they mean here as well.
_SIZES = {"": 1, "b": 1}
for _i, _p in enumerate("kmgt", start=1):
    _SIZES |= {_p: 1024**_i, f"{_p}ib": 1024**_i, f"{_p}b": 1000**_i}

_RATES: dict[str, float] = {}
for _i, _p in enumerate(["", "k", "m", "g", "t"]):
    _RATES |= dict.fromkeys((f"{_p}bit/s", f"{_p}bps", f"{_p}bit"), 1000.0**_i)

_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def _parse(text: object, table: dict[str, float] | dict[str, int], kind: str, example: str) -> float:
    match = _NUMBER.match(str(text))
    if match is None:
        raise UnitError(f"{text!r} is not a {kind}; write it like {example!r}")
    number, unit = match.groups()
    if not unit and "" not in table:
        raise UnitError(f"{text!r} has no unit for a {kind}; write it like {example!r}")
    if unit.lower() not in table:
        raise UnitError(f"{text!r} has the unknown unit {unit!r} for a {kind}; write it like {example!r}")
    value = float(number) * table[unit.lower()]
    if value == float("inf"):
        raise UnitError(f"{str(text)[:40]!r} is too large for a {kind}; write it like {example!r}")
    return value


def parse_size(text: str | int) -> int:
    """Bytes in ``text``: ``'64MiB'`` and ``'64M'`` are 64 * 2**20, ``'64MB'`` is 64 * 10**6."""
    bits = re.fullmatch(r"\s*([0-9.]+)\s*([kKmMgGtT])b\s*", str(text))
    if bits is not None:
        number, prefix = bits[1], bits[2].upper()
        raise UnitError(f"{text!r} may mean bits; did you mean {number}{prefix}B or {number}{prefix}iB?")
    value = _parse(text, _SIZES, "size", "64MiB")
    if value != int(value):
        raise UnitError(f"{text!r} is not a whole number of bytes; write it like '64MiB'")
    return int(value)


def parse_rate(text: str) -> float:
    """Bits per second in ``text``: ``'500 Mbit/s'``, ``'10Gbps'``."""
    if str(text).rstrip().endswith("Bps"):
        raise UnitError(f"{text!r} reads as bytes per second; write it like '500 Mbit/s'")
    return _parse(text, _RATES, "rate", "500 Mbit/s")


def parse_duration(text: str) -> float:
    """Seconds in ``text``: ``'150ms'``, ``'2 s'``."""
    return _parse(text, _TIMES, "duration", "150ms")


def format_size(size_bytes: int) -> str:
    """The shortest exact form: ``'64MiB'``, ``'1000B'``."""
    for factor, name in ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{name}"
    return f"{size_bytes}B"


def format_rate(bits_per_s: float) -> str:
    """A rate for people, three significant digits: ``'500 Mbit/s'``."""
    for factor, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits_per_s >= factor:
            return f"{bits_per_s / factor:.3g} {name}"
    return f"{bits_per_s:.3g} bit/s"
