"""Keys of an experiment in text form, and how one is set. Pure.

Examples are ``sweep.seed``, ``fault[0].nic`` and ``system[balance].mode``. `--set` sets one key of the file, an axis
sets one for each of its values. A number or a name in brackets chooses one of several tables. Without brackets, all
tables are meant: ``system.env.R2CC_IO_THREADS`` is the variable of every system.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.experiment.tables import nearest

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]|\[([A-Za-z][\w-]*)\]")
_INDEX = r"(\[(\d+|[A-Za-z][\w-]*)\])*"
_KEY = re.compile(rf"[^.\[\]]+{_INDEX}(\.[^.\[\]]+{_INDEX})*\Z")
_NAMED_BY = ("name", "use", "kind")
"""The keys that may name an entry of a list; the first one present counts: systems by name or use, faults by name or
kind."""


class KeyPathError(ValueError):
    """A key that does not exist; the text is the remedy."""


class Named(NamedTuple):
    """A step to the entry of a list that has this name."""

    name: str


Step = str | int | Named


def steps(key: str) -> list[Step]:
    """``fault[0].nic`` as ``['fault', 0, 'nic']``; a name in brackets is a `Named`."""
    if not _KEY.match(key):
        raise KeyPathError("write keys like workload.iterations, fault[0].nic or system[balance].mode")
    return [int(index) if index else Named(name) if name else word for word, index, name in _STEP.findall(key)]


def put(document: dict[str, Any], key: str, value: object) -> list[str]:
    """Sets one key of `document` in place. Missing tables on the way are made, and a list without brackets stands for
    each of its entries, at least one; a text in place of a list of values becomes a list of this one. Returns the
    names of those entries if there are several. Raises `KeyPathError`.
    """
    *path, last = steps(key)
    places: list[Any] = [document]
    all_of: list[str] = []
    for step in path:
        entries = _entries(places, step)
        all_of = _names(places, entries) or all_of
        places = [_descend(place, step) for place in entries]
    entries = _entries(places, last)
    for place in entries:
        _set(place, last, value)
    return _names(places, entries) or all_of


def _names(places: Sequence[Any], entries: Sequence[Any]) -> list[str]:
    opened = len(entries) > 1 and any(isinstance(place, list) for place in places)
    return [_name(entry) or f"[{index}]" for index, entry in enumerate(entries)] if opened else []


def _name(entry: Any) -> str:
    known = (str(entry[key]) for key in _NAMED_BY if entry.get(key)) if isinstance(entry, dict) else iter(())
    return next(known, "")


def _entries(places: list[Any], step: Step) -> list[Any]:
    """`places` with every list replaced by its entries, if the next step is a word."""
    if not isinstance(step, str):
        return places
    opened = [entry for place in places for entry in (place if isinstance(place, list) else [place])]
    if not opened:
        raise KeyPathError(f"there is no entry that could have {step!r}")
    return opened


def _descend(place: Any, step: Step) -> Any:
    if isinstance(place, dict) and isinstance(step, str):
        return place.setdefault(step, {})
    if isinstance(place, list) and isinstance(step, Named):
        step = _index(place, step.name)
    if isinstance(place, list) and isinstance(step, int) and step < len(place):
        return place[step]
    raise KeyPathError(_nothing(place, step))


def _set(place: Any, step: Step, value: object) -> None:
    if isinstance(place, list) and isinstance(step, Named):
        step = _index(place, step.name)
    fits_table = isinstance(place, dict) and isinstance(step, str)
    fits_list = isinstance(place, list) and isinstance(step, int) and step < len(place)
    if not (fits_table or fits_list):
        raise KeyPathError(_nothing(place, step))
    place[step] = [value] if isinstance(value, str) and fits_table and _lists_values(place.get(step)) else value


def _lists_values(before: Any) -> bool:
    """Whether a text in place of `before` can only mean a list of this one: not tables, which no text can be."""
    return isinstance(before, list) and not any(isinstance(entry, dict | list) for entry in before)


def _index(entries: Sequence[Any], name: str) -> int:
    names = [_name(entry) for entry in entries]
    if not any(names):
        raise KeyPathError(f"no entry is called {name!r}, as none has a name; give a number, such as 0")
    if name not in names:
        raise KeyPathError(f"no entry is called {name!r}; {nearest(name, [one for one in names if one])}")
    if names.count(name) > 1:
        raise KeyPathError(f"{names.count(name)} entries are called {name!r}; give a number")
    return names.index(name)


def _nothing(place: Any, step: Step) -> str:
    shown = step.name if isinstance(step, Named) else step
    if isinstance(place, list) and isinstance(step, int):
        return f"there is no entry {step}; entries count from 0 to {len(place) - 1}" if place else "there is no entry"
    return f"there is nothing at {shown!r}"
