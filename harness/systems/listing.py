"""``harness systems``: the catalogue for people and for programs."""

import json
from collections.abc import Iterator
from typing import Any

from harness.errors import ExitCode
from harness.systems.base import System
from harness.systems.catalogue import ENTRIES
from harness.terminal import say


def list_systems(as_json: bool) -> ExitCode:
    """Prints all entries, for people or as JSON."""
    if as_json:
        print(json.dumps([described(entry) for entry in ENTRIES], indent=1))
        return ExitCode.OK
    for line in lines():
        say(line, style="bold" if line[:1].islower() else "", indent=" " * 12)
    return ExitCode.OK


def described(entry: System) -> dict[str, Any]:
    """One entry as plain values."""
    return {
        "use": entry.name,
        "meaning": entry.what,
        "needs": entry.needs,
        "backends": list(entry.backends),
        "mode": entry.mode,
        "expect_on_fault": entry.expect_on_fault,
        "env": dict(entry.env),
        "network": entry.network,
        "nics_in_turn": entry.nics_in_turn,
        "path": None if entry.path == "none" else entry.path,
    }


def lines() -> Iterator[str]:
    """One paragraph per entry, and how an experiment names one."""
    yield 'In an experiment: [[system]] with use = "NAME"; keys beside it win over what the catalogue says.'
    for entry in ENTRIES:
        yield ""
        yield f"{entry.name}: {entry.what}"
        yield from (f"    {title:<12}{text}" for title, text in _facts(entry) if text)


def _facts(entry: System) -> Iterator[tuple[str, str]]:
    yield "backends", ", ".join(entry.backends)
    yield "needs", entry.needs
    yield "environment", " ".join(f"{name}={value}" for name, value in entry.env.items())
    yield "network", _network(entry)
    yield "NICs", "one carries each operation, and the next NIC the next one" if entry.nics_in_turn else ""
    yield "on a fault", "goes on" if entry.expect_on_fault == "ok" else "stops"


def _network(entry: System) -> str:
    """The network that a trial must show; otherwise it counts as failed."""
    if entry.backends[0] == "perf":
        return "every byte on the hosts' NICs, as the core tells"
    if entry.network == "gloo":
        return "the bytes of the collectives on the hosts' NICs, by their counters"
    if entry.path == "plugin" and entry.network is None:
        return "NCCL's log names a network that it has not inside"
    return f"NCCL's log names {entry.network or 'the network that it used'}"
