"""The cable is pulled out of a virtual machine's NIC: the guest loses the carrier, and nobody else is notified."""

from typing import ClassVar

from faults import qmp
from faults.base import Effect, Fault, LinkDown, Quiet, Recipe, Sign, Target


class CablePull(Fault):
    """QEMU's ``set_link off``, then ``on``; no parameters. The switch's port stays up, as behind a media converter."""

    kind: ClassVar[str] = "cable_pull"
    needs: ClassVar[frozenset[str]] = frozenset({"python3"})
    needs_machine: ClassVar[bool] = True

    def recipe(self, target: Target) -> Recipe:
        """Off and on, where QEMU runs."""
        slot = target.machine(self.kind)
        return Recipe((qmp.set_link(slot, up=False),), (qmp.set_link(slot, up=True),))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """No carrier, and both counters stand still."""
        host, nic = target.host, target.nic
        return LinkDown(host, nic), Quiet(host, nic, "tx"), Quiet(host, nic, "rx")

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in both directions."""
        return (Effect(target.host, target.nic, rate_factor=0.0),)
