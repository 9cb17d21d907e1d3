"""A key of an experiment document, as people write it, and setting it: ``sweep.seed``, ``fault[0].nic``. Pure.

`--set` sets one key of the file, an axis one for each of its values. A table that the file has several of may stand
without a number: ``system.env.R2CC_IO_THREADS`` is that of every system.
"""

import re
from typing import Any

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_KEY = re.compile(r"[^.\[\]]+(\[\d+\])*(\.[^.\[\]]+(\[\d+\])*)*\Z")


class KeyPathError(ValueError):
    """A key that leads nowhere; the text is the remedy."""


def steps(key: str) -> list[str | int]:
    """``fault[0].nic`` as ``['fault', 0, 'nic']``."""
    if not _KEY.match(key):
        raise KeyPathError("write keys like workload.iterations or fault[0].nic")
    return [int(index) if index else name for name, index in _STEP.findall(key)]


def put(document: dict[str, Any], key: str, value: object) -> None:
    """Sets one key of `document` in place; tables on the way are made, and a list that is named without a number
    stands for each of its entries, at least one. Raises `KeyPathError`."""
    *path, last = steps(key)
    places: list[Any] = [document]
    for step in path:
        places = [_descend(place, step) for place in _entries(places, step)]
    for place in _entries(places, last):
        _set(place, last, value)


def _entries(places: list[Any], step: str | int) -> list[Any]:
    """`places` with every list replaced by its entries, where a name follows."""
    if isinstance(step, int):
        return places
    opened = [entry for place in places for entry in (place if isinstance(place, list) else [place])]
    if not opened:
        raise KeyPathError(f"there is no entry that could have {step!r}")
    return opened


def _descend(place: Any, step: str | int) -> Any:
    if isinstance(place, dict) and isinstance(step, str):
        return place.setdefault(step, {})
    if isinstance(place, list) and isinstance(step, int) and step < len(place):
        return place[step]
    raise KeyPathError(f"there is nothing at {step!r}")


def _set(place: Any, name: str | int, value: object) -> None:
    fits_table = isinstance(place, dict) and isinstance(name, str)
    fits_list = isinstance(place, list) and isinstance(name, int) and name < len(place)
    if not (fits_table or fits_list):
        raise KeyPathError(f"there is nothing at {name!r} to set")
    place[name] = value
