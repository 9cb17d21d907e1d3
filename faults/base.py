"""What a fault is: a pure turning of one target NIC into commands, a poorer topology, and a plot hint.

Nothing here runs anything. The harness runs the commands on the target's host (heal commands first armed in
a detached healer there), the simulator applies the effects to its topology, the report draws the hint.
A new fault is one file: parameters as dataclass fields with units in their names, `inject`, `heal`,
`effects`, and a line in `faults.registry`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from faults.errors import FaultError, ProtectedNicError

Argv = tuple[str, ...]
"""One command as the list of its words; no shell ever sees it."""

RESERVED_NICS = frozenset({"lo", "mgmt0"})
"""Interfaces that are never a target: loopback, and the one that carries SSH in our own clusters."""

# Linux: up to 15 bytes, no '/' and no white space; a leading '-' would read as an option of `ip`.
_INTERFACE = re.compile(r"(?!-)[A-Za-z0-9_.:-]{1,15}\Z")


@dataclass(frozen=True)
class Target:
    """One NIC of one host. `reserved` holds the names on that host that carry SSH or the default route.

    Raises `ProtectedNicError` for a reserved NIC and `FaultError` for what is no interface name, so that a
    target that exists may be faulted.
    """

    host: str
    nic: str
    reserved: frozenset[str] = field(default=RESERVED_NICS, compare=False)

    def __post_init__(self) -> None:
        if not _INTERFACE.match(self.nic):
            raise FaultError(f"{self.nic!r} is no interface name; name a NIC such as 'eth0'")
        if self.nic in self.reserved | RESERVED_NICS:
            raise ProtectedNicError(f"{self.nic!r} carries management traffic of {self.host}; choose a data NIC")


@dataclass(frozen=True)
class Effect:
    """What a fault does to one NIC in a topology, as plain data: both directions of the NIC's link.

    `rate_factor` scales its rate (0.0: dead), `added_delay_s` is added to its latency, `loss` is the share
    of packets lost.
    """

    host: str
    nic: str
    rate_factor: float = 1.0
    added_delay_s: float = 0.0
    loss: float = 0.0


@dataclass(frozen=True)
class PlotHint:
    """How a report draws the fault's window: a label and a Matplotlib colour (None: no shade)."""

    label: str
    colour: str | None


class Fault(Protocol):
    """One way in which the network can break. `inject` then `heal`, twice too, leaves nothing behind."""

    kind: ClassVar[str]
    """Its name in experiments."""

    needs: ClassVar[frozenset[str]]
    """Programs that its commands call on the target's host, for example ``{'ip'}``."""

    def inject(self, target: Target) -> Sequence[Argv]:
        """Commands that make the fault, in order; the effect comes with the last one at the latest."""
        ...

    def heal(self, target: Target) -> Sequence[Argv]:
        """Commands that undo it; harmless where there is nothing to undo."""
        ...

    def effects(self, target: Target) -> Sequence[Effect]:
        """What a simulated topology sees between inject and heal."""
        ...

    def plot(self, target: Target) -> PlotHint:
        """How the fault's window is drawn."""
        ...
