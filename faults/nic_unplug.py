"""The card is unplugged from a running virtual machine, and plugged in again: PCI hot plug, as in a server's slot."""

from typing import ClassVar

from faults import link, qmp
from faults.base import Effect, Fault, Probe, Recipe, Sign, Target


class NicUnplug(Fault):
    """QEMU's ``device_del``, then ``device_add``; no parameters. When the NIC is back its configuration is restored."""

    kind: ClassVar[str] = "nic_unplug"
    needs: ClassVar[frozenset[str]] = frozenset({"ip", "python3", "tc"})
    needs_machine: ClassVar[bool] = True

    def recipe(self, target: Target) -> Recipe:
        """The guest releases the card before it is gone: the order ends once it has."""
        slot = target.machine(self.kind)
        pull = qmp.order(slot, "device_del", {"id": slot.device}, until="DEVICE_DELETED")
        plug = qmp.order(slot, "device_add", slot.arguments, lenient=True)
        return Recipe((pull,), (plug, *link.new_again(target)))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The interface does not exist, so there are no counters to check."""
        return (Probe(link.presence(target), "^absent"),)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in both directions."""
        return (Effect(target.host, target.nic, rate_factor=0.0),)
