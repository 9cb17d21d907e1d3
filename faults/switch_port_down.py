"""The switch's port is taken down: the host loses the carrier without having done anything."""

from typing import ClassVar

from faults import qmp
from faults.base import Effect, Fault, LinkDown, Quiet, Recipe, Sign, Target


class SwitchPortDown(Fault):
    """``ip link set dev PORT down`` on the switch; no parameters."""

    kind: ClassVar[str] = "switch_port_down"

    @property
    def uses_port(self) -> bool:
        """Always."""
        return True

    def recipe(self, target: Target) -> Recipe:
        """Down, and up again, on the switch."""
        port = target.port(self.kind)
        words = ("ip", "link", "set", "dev", port.name)
        # A virtual machine does not notice when its tap goes down, so QEMU removes the carrier.
        lost, back = ((qmp.set_link(target.slot, up=up),) if target.slot else () for up in (False, True))
        return Recipe((port.run(*words, "down"), *lost), (port.run(*words, "up"), *back))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The host's NIC has no carrier, and its counters stand still."""
        host, nic = target.host, target.nic
        return LinkDown(host, nic), Quiet(host, nic, "tx"), Quiet(host, nic, "rx")

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in both directions."""
        return (Effect(target.host, target.nic, rate_factor=0.0),)
