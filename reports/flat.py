"""Flattens nested tables to lines for people: ``sweep.repeats.min`` and its value. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any


def flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Each value with its dotted path, as an experiment file spells it; empty values are left out."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in value):
        for place, inner in enumerate(value):
            named = inner.get("name", place) if isinstance(inner, Mapping) else place
            yield from flat(inner, f"{key}[{named}]")
    elif value not in (None, "", [], ()):
        yield key, text(value)


def text(value: Any) -> str:
    """A plain value, or a list of them, as text for people."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(text, value)) if isinstance(value, list | tuple) else str(value)
