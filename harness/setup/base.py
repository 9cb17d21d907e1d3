"""A stage of the set-up: decides from what one host shows whether the stage is done, and if not, what is to do. Pure.

Nothing here runs anything, and nothing is remembered: each stage is judged by what its host shows. A set-up that was
interrupted continues where it was, and a complete one changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from faults.base import Device
from harness.cluster.inventory import InventoryHost, InventoryNic
from harness.hosts.base import Argv
from harness.hosts.links import Link
from harness.setup.core_source import Core

SENT = "<sent>"
"""In a command: the place of the file that was sent before it."""


@dataclass(frozen=True)
class Run:
    """A command on the host, and why it is run."""

    argv: tuple[str, ...]
    why: str
    limit_s: float = 60.0


@dataclass(frozen=True)
class Once:
    """Commands that run on one of the hosts that share a file system: under a lock, unless `marker` holds `value`."""

    marker: str
    value: str
    runs: tuple[Run, ...]
    sends: Path | None = None
    """A file of ours that is put on the host meanwhile, at `SENT`."""

    @property
    def limit_s(self) -> float:
        """For all of them, on the last of a few hosts."""
        return sum(run.limit_s for run in self.runs)


@dataclass(frozen=True)
class Reboot:
    """A restart of the host, awaited: the kernel must name another boot afterwards."""

    argv: tuple[str, ...]
    why: str


Step = Run | Once | Reboot


@dataclass(frozen=True)
class Done:
    """The host is as it should be."""

    what: str


@dataclass(frozen=True)
class Unneeded:
    """There is nothing to be done on such a host."""

    what: str


@dataclass(frozen=True)
class Refused:
    """Not to be done on this host, because of what the host is; the rest of the set-up does not need it."""

    what: str
    remedy: str


@dataclass(frozen=True)
class Stuck:
    """It should be done and cannot be."""

    what: str
    remedy: str


@dataclass(frozen=True)
class ToDo:
    """What is not as it should be, and what makes it so."""

    what: str
    steps: tuple[Step, ...]


State = Done | Unneeded | Refused | Stuck | ToDo


@dataclass(frozen=True)
class Options:
    """What the user wants beside what the inventory says."""

    core: Core | None = None
    site_packages: str | None = None
    mtu: int | None = None
    nccl_tests: str | None = None


@dataclass(frozen=True)
class Port:
    """One NIC of the inventory on its host: its interface and what hangs there."""

    entry: InventoryNic
    link: Link
    device: Device
    speed_bit_s: float | None = None
    """Of the link itself, as far as its driver knows it."""
    arp_ignore: int = 0
    arp_announce: int = 0
    """What is in effect: the larger one of the NIC's own value and that for all."""


@dataclass(frozen=True)
class Seen:
    """All that is known of one host."""

    entry: InventoryHost
    options: Options
    facts: Mapping[str, Any] = field(default_factory=dict)
    """As `harness.setup.look` prints them."""
    ports: tuple[Port, ...] = ()
    missing: tuple[str, ...] = ()
    """A line, with its remedy, for every NIC of the inventory that may not be touched, or is not there."""

    @property
    def prefix(self) -> str | None:
        """The folder of the environment that the inventory's Python is in; None where it names no such Python."""
        return prefix_of(self.entry.python)


def prefix_of(python: str) -> str | None:
    """``/opt/r2ccl`` of ``/opt/r2ccl/bin/python``; None for a Python that is found by its name."""
    path = Path(python)
    inside = path.is_absolute() and path.parent.name == "bin" and path.name.startswith("python")
    return str(path.parent.parent) if inside else None


@dataclass(frozen=True)
class Stage:
    """One stage; `judge` is pure."""

    name: str
    about: str
    """What it does, in a few words."""
    lasts: Literal["stays", "until a reboot"]
    judge: Callable[[Seen], State]
    needs: tuple[str, ...] = ()
    """Stages that must not have failed on the host."""
    hardware: bool = False
    """Whether it is about the machine itself, which a namespace or a container is not."""
    software: bool = False
    """Whether it asks which Pythons the host has, and what is in them, which takes a second."""

    def look(self, seen: Seen) -> State:
        """What this host is in need of."""
        why = seen.facts.get("no_machine")
        if self.hardware and why:
            return Refused(f"{why}, so its hardware is not its own", "set up the machine that it is on")
        return self.judge(seen)


def words(argv: Argv, sent: str) -> list[str]:
    """A command with the place of the sent file in it."""
    return [word.replace(SENT, sent) for word in argv]
