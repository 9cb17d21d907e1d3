"""``harness faults``: every kind of fault, its action, its parameters, and its requirements."""

import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from faults.base import Fault
from faults.registry import FAULTS
from harness.errors import ExitCode
from harness.terminal import say

ACTS_ON = {
    "nic": "one NIC",
    "rail": "all NICs of a rail",
    "host": "all data NICs of a host",
    "process": "the rank on a host",
}


def list_faults(as_json: bool) -> int:
    """Prints all kinds, for people or as JSON."""
    found = [described(cls) for cls in FAULTS.values()]
    if as_json:
        print(json.dumps(found, indent=1))
        return ExitCode.OK
    for fault in found:
        for line in _lines(fault):
            say(line, style="" if line.startswith(" ") else "bold", indent="    " if line.startswith(" " * 8) else "")
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
    yield f"    {fault['meaning']}"
    for parameter in fault["parameters"]:
        given = "" if parameter["default"] is None else f" = {parameter['default']}"
        yield f"        {parameter['name']}{given}  {parameter['meaning']}"
