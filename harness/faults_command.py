"""``harness faults``: every kind of fault, what it does, its parameters, and what it needs."""

import inspect
import json
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from faults.base import Fault
from faults.registry import FAULTS
from harness.errors import ExitCode

ACTS_ON = {
    "nic": "one NIC",
    "rail": "all NICs of a rail",
    "host": "all data NICs of a host",
    "process": "the rank on a host",
}


def list_faults(as_json: bool) -> int:
    """Prints all kinds, for people or as JSON."""
    found = [described(cls) for cls in FAULTS.values()]
    print(json.dumps(found, indent=1) if as_json else "\n".join(line for fault in found for line in _lines(fault)))
    return ExitCode.OK


def described(cls: type[Fault]) -> dict[str, Any]:
    """One kind as plain values."""
    said = inspect.getdoc(import_module(cls.__module__)) or ""
    fields = cls.model_fields.items()
    return {
        "kind": cls.kind,
        "scope": cls.scope,
        "meaning": " ".join(said.split("\n\n")[0].split()),
        "parameters": [{"name": n, "default": f.default, "meaning": f.description or ""} for n, f in fields],
        "needs": sorted(cls.needs),
    }


def _lines(fault: dict[str, Any]) -> Iterator[str]:
    needs = f"; needs {', '.join(fault['needs'])}" if fault["needs"] else ""
    yield f"{fault['kind']}  ({ACTS_ON[fault['scope']]}{needs})"
    yield from textwrap.wrap(fault["meaning"], 100, initial_indent="    ", subsequent_indent="    ")
    for parameter in fault["parameters"]:
        given = "" if parameter["default"] is None else f" = {parameter['default']}"
        yield f"        {parameter['name']}{given}  {parameter['meaning']}"
