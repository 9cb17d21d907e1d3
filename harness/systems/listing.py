"""``harness systems``: the catalogue for people. Pure."""

from collections.abc import Iterator

from harness.systems.base import System
from harness.systems.catalogue import ENTRIES


def lines() -> Iterator[str]:
    """A paragraph an entry, and how an experiment names one."""
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
    yield "on a fault", "goes on" if entry.expect_on_fault == "ok" else "stops"


def _network(entry: System) -> str:
    """What a trial must show, or it counts as failed."""
    if entry.backends[0] == "perf":
        return "every byte on the hosts' NICs, as the core tells"
    if entry.network == "gloo":
        return "the bytes of the collectives on the hosts' NICs, by their counters"
    if entry.path == "plugin" and entry.network is None:
        return "NCCL's log names a network that it has not inside"
    return f"NCCL's log names {entry.network or 'the network that it used'}"
