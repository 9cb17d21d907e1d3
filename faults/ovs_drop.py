"""A silent failure on a SmartNIC: a rule in the card's Open vSwitch drops passing packets, and no link goes down.

The NIC's switch port is then a port of a bridge on the card (``pf0hpf``, the host's side of a BlueField's first port),
and the switch is the card itself, which runs Linux on its own cores. The host sees a healthy link.
"""

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from faults.base import QUEUED_BYTES, SILENT, TAG, Device, Direction, Effect, Fault, Probe, Quiet, Recipe, Sign, Target
from faults.blackhole import RESENT_BYTES
from faults.errors import NotPossibleError

COOKIE = f"0x{TAG}"
"""Identifies our rules; they are removed by nothing else."""

ANY_OF_OURS = f"cookie={COOKIE}/-1"

PRIORITY = 65535
"""Above every other rule."""


class OvsDrop(Fault):
    """Drops packets that enter the bridge by the host's port (tx), by the cable's (rx), or by both."""

    kind: ClassVar[str] = "ovs_drop"
    colour: ClassVar[str | None] = SILENT
    needs: ClassVar[frozenset[str]] = frozenset({"ovs-ofctl", "ovs-vsctl"})

    direction: Direction = Field(default="both", description="as the host sees it: tx, rx or both")

    @property
    def uses_port(self) -> bool:
        """Always: it is a rule on the card."""
        return True

    def recipe(self, target: Target) -> Recipe:
        """One rule for each port by which dropped packets arrive; each is removed by its cookie and port."""
        device, bridge, numbers = self._ports(target)
        drop = f"cookie={COOKIE},priority={PRIORITY}"
        inject = [
            device.run("ovs-ofctl", "add-flow", bridge, f"{drop},in_port={number},actions=drop") for number in numbers
        ]
        heal = [device.run("ovs-ofctl", "del-flows", bridge, f"{ANY_OF_OURS},in_port={number}") for number in numbers]
        return Recipe(tuple(inject), tuple(heal))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """Every rule is there; the host receives nothing more, and sends only retransmissions."""
        device, bridge, numbers = self._ports(target)
        shown = (device.run("ovs-ofctl", "dump-flows", bridge, f"{ANY_OF_OURS},in_port={number}") for number in numbers)
        rules = (Probe(order, r"actions=drop") for order in shown)
        return (*rules, *self._quiet(target))

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in that direction."""
        return (Effect(target.host, target.nic, rate_factor=0.0, direction=self.direction),)

    def _quiet(self, target: Target) -> Iterator[Quiet]:
        if self.direction != "rx":
            yield Quiet(target.host, target.nic, "tx", RESENT_BYTES)
        if self.direction != "tx":
            yield Quiet(target.host, target.nic, "rx", QUEUED_BYTES)

    def _ports(self, target: Target) -> tuple[Device, str, tuple[int, ...]]:
        """The port, its bridge, and the numbers of the ports at which packets are dropped."""
        device = target.port(self.kind)
        port = device.ovs
        if port is None:
            raise NotPossibleError(
                f"{self.kind}: {device.name} is not known to be a port of an Open vSwitch bridge on {device.place}; "
                "name the card as switch and the host's port on it (such as pf0hpf) as switch_port, or use blackhole"
            )
        if port.number is None:
            raise NotPossibleError(
                f"{self.kind}: Open vSwitch cannot open {device.name} on {device.place}, so the card is in NIC mode "
                "and its rules see no traffic; on the host: mlxconfig -d PCI_ADDRESS -y reset, then power-cycle it"
            )
        if self.direction != "tx" and len(port.others) != 1:
            raise NotPossibleError(
                f"{self.kind}: the bridge {port.bridge} on {device.place} has {len(port.others)} ports beside "
                f"{device.name}, so what comes for this NIC alone cannot be told; use direction = 'tx'"
            )
        entering = {"tx": (port.number,), "rx": port.others, "both": (port.number, *port.others)}
        return device, port.bridge, entering[self.direction]
