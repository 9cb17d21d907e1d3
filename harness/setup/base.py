"""A stage of the set-up: decides from the facts of one host whether the stage is done, and if not, what to do. Pure.

Nothing here runs anything, and nothing is remembered: each stage is judged by the present state of its host. An
interrupted set-up continues at the point of interruption, and a complete one changes nothing.
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
"""Placeholder in a command for the path of the file that was sent before it."""


@dataclass(frozen=True)
class Run:
    """A command on the host, and its purpose."""

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
    """A file of this machine that exists on the host while the commands run, at `SENT`."""

    @property
    def limit_s(self) -> float:
        """The time limit for all of them, on the last of a few hosts."""
        return sum(run.limit_s for run in self.runs)


@dataclass(frozen=True)
class Reboot:
    """A restart of the host, which is awaited: afterwards the kernel must report another boot ID."""

    argv: tuple[str, ...]
    why: str


Step = Run | Once | Reboot


@dataclass(frozen=True)
class Done:
    """The host is as it should be."""

    what: str


@dataclass(frozen=True)
class Unneeded:
    """Such a host does not need this stage."""

    what: str


@dataclass(frozen=True)
class Refused:
    """The stage must not be done on this host, because of the kind of host; the rest of the set-up does not need it."""

    what: str
    remedy: str


@dataclass(frozen=True)
class Stuck:
    """The stage is needed and cannot be done."""

    what: str
    remedy: str


@dataclass(frozen=True)
class ToDo:
    """The differences from the wanted state, and the steps that remove them."""

    what: str
    steps: tuple[Step, ...]


State = Done | Unneeded | Refused | Stuck | ToDo


@dataclass(frozen=True)
class Options:
    """The user's choices in addition to the inventory."""

    core: Core | None = None
    site_packages: str | None = None
    mtu: int | None = None
    nccl_tests: str | None = None


@dataclass(frozen=True)
class Port:
    """One NIC of the inventory on its host: its interface and the devices attached to it."""

    entry: InventoryNic
    link: Link
    device: Device
    speed_bit_s: float | None = None
    """Speed of the link itself, as far as its driver knows it."""
    arp_ignore: int = 0
    arp_announce: int = 0
    """The value in effect: the larger of the NIC's own value and that for all interfaces."""


@dataclass(frozen=True)
class Seen:
    """All known facts of one host."""

    entry: InventoryHost
    options: Options
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The output of `harness.setup.look`."""
    ports: tuple[Port, ...] = ()
    missing: tuple[str, ...] = ()
    """A line, with its remedy, for every NIC of the inventory that must not be changed, or does not exist."""

    @property
    def prefix(self) -> str | None:
        """The folder of the environment that contains the inventory's Python; None if the inventory names no such
        Python."""
        return prefix_of(self.entry.python)


def prefix_of(python: str) -> str | None:
    """``/opt/r2ccl`` for ``/opt/r2ccl/bin/python``; None for a Python that is found by its name."""
    path = Path(python)
    inside = path.is_absolute() and path.parent.name == "bin" and path.name.startswith("python")
    return str(path.parent.parent) if inside else None


@dataclass(frozen=True)
class Stage:
    """One stage; `judge` is pure."""

    name: str
    about: str
    """Its purpose, in a few words."""
    lasts: Literal["stays", "until a reboot"]
    judge: Callable[[Seen], State]
    needs: tuple[str, ...] = ()
    """Stages that must not have failed on the host."""
    hardware: bool = False
    """Whether it concerns the machine itself; a namespace or a container is no machine."""
    software: bool = False
    """Whether it needs the host's Pythons and their packages; listing them takes a second."""

    def look(self, seen: Seen) -> State:
        """The state of this host for the stage."""
        why = seen.facts.get("no_machine")
        if self.hardware and why:
            return Refused(f"{why}, so its hardware is not its own", "set up the machine that it is on")
        return self.judge(seen)


def words(argv: Argv, sent: str) -> list[str]:
    """A command with the sent file's path in place of `SENT`."""
    return [word.replace(SENT, sent) for word in argv]
