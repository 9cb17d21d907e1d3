"""The NIC is taken down by its own host: the kernel reports the loss at once, the peer loses the carrier.

The address stays on the interface, so taking it up again brings its connected route back by itself.
"""

from dataclasses import dataclass
from typing import ClassVar

from faults.base import Argv, Effect, PlotHint, Target


@dataclass(frozen=True)
class NicDown:
    """``ip link set dev NIC down``; no parameters."""

    kind: ClassVar[str] = "nic_down"
    needs: ClassVar[frozenset[str]] = frozenset({"ip"})

    def inject(self, target: Target) -> tuple[Argv, ...]:
        """Take the link down."""
        return (("ip", "link", "set", "dev", target.nic, "down"),)

    def heal(self, target: Target) -> tuple[Argv, ...]:
        """Take the link up; a link that is up stays so."""
        return (("ip", "link", "set", "dev", target.nic, "up"),)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in both directions."""
        return (Effect(target.host, target.nic, rate_factor=0.0),)

    def plot(self, target: Target) -> PlotHint:
        """A red window."""
        return PlotHint(f"{target.host} {target.nic} down", "tab:red")
