"""The NIC is taken down by its own host: the kernel reports the loss at once, the peer loses the carrier."""

from typing import ClassVar

from faults import link
from faults.base import Effect, Fault, LinkDown, Quiet, Recipe, Sign, Target


class NicDown(Fault):
    """``ip link set dev NIC down``; no parameters."""

    kind: ClassVar[str] = "nic_down"

    def recipe(self, target: Target) -> Recipe:
        """Down, and up again; a link that is up stays so."""
        return link.taken_down(target)

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """No carrier, and both counters stand still."""
        host, nic = target.host, target.nic
        return LinkDown(host, nic), Quiet(host, nic, "tx"), Quiet(host, nic, "rx")

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in both directions."""
        return (Effect(target.host, target.nic, rate_factor=0.0),)
