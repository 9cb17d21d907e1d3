"""The GID of a RoCE port is gone: the address that it is made of leaves the interface, whose link stays up."""

from typing import ClassVar

from faults import link
from faults.base import SILENT, Effect, Fault, Probe, Recipe, Sign, Target
from faults.errors import NotPossibleError


class GidRemoved(Fault):
    """Removes the NIC's IPv4 addresses, and restores them with their routes. TCP loses the NIC too, since its
    connections use an address that the host no longer has. No parameters."""

    kind: ClassVar[str] = "gid_removed"
    colour: ClassVar[str | None] = SILENT

    def recipe(self, target: Target) -> Recipe:
        """Every IPv4 address, the last first: with the first of a network Linux removes its others."""
        ours = [address for address in target.addresses if ":" not in address]
        if not target.rdma_over_ethernet or not ours:
            raise NotPossibleError(
                f"{self.kind}: {target.host} {target.nic} has no RoCE device, or no IPv4 address for a GID; use "
                "ib_port_down for InfiniBand"
            )
        removed = tuple(target.here("ip", "addr", "del", address, "dev", target.nic) for address in reversed(ours))
        return Recipe(removed, link.configured(target, ours))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The interface has no IPv4 address."""
        return (Probe(target.here("ip", "-4", "-o", "addr", "show", "dev", target.nic), r"\A\s*\Z"),)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in both directions."""
        return (Effect(target.host, target.nic, rate_factor=0.0),)
