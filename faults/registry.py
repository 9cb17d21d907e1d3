"""Every fault by its name in experiments, and the one place that makes a fault from its parameters."""

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from faults.base import Fault
from faults.errors import UnknownFaultError
from faults.nic_down import NicDown
from faults.noop import Noop

FAULTS: dict[str, type[NicDown] | type[Noop]] = {cls.kind: cls for cls in (NicDown, Noop)}


def create(kind: str, parameters: Mapping[str, Any] | None = None) -> Fault:
    """The fault named `kind`; raises `UnknownFaultError` for a name or parameter that does not exist."""
    if kind not in FAULTS:
        raise UnknownFaultError(f"unknown fault {kind!r}; {_hint(kind, FAULTS)}")
    given = dict(parameters or {})
    known = [f.name for f in fields(FAULTS[kind])]
    for name in given:
        if name not in known:
            raise UnknownFaultError(f"fault {kind!r} has no parameter {name!r}; {_hint(name, known)}")
    return FAULTS[kind](**given)


def _hint(name: str, known: Mapping[str, object] | list[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(known)}" if known else "it takes none"
