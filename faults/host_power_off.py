"""A virtual machine loses its power, and gets it back when the fault is healed; then it boots again."""

from typing import ClassVar

from faults import qmp
from faults.base import GONE, Fault, PlotHint, Probe, Recipe, Scope, Sign, Target


class HostPowerOff(Fault):
    """QEMU's ``stop`` and ``system_reset``, then ``cont``; no parameters. Its rank is lost; the others must say so."""

    kind: ClassVar[str] = "host_power_off"
    colour: ClassVar[str | None] = GONE
    scope: ClassVar[Scope] = "host"
    needs: ClassVar[frozenset[str]] = frozenset({"python3"})
    needs_machine: ClassVar[bool] = True
    kills: ClassVar[bool] = True
    restarts: ClassVar[bool] = True

    def recipe(self, target: Target) -> Recipe:
        """A machine that is reset while stopped holds nothing and does nothing until it may continue."""
        slot = target.machine(self.kind)
        off = qmp.orders(slot, [("stop", {}), ("system_reset", {})], until="RESET")
        return Recipe((off,), (qmp.order(slot, "cont", {}),))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """QEMU reports that it is stopped before its first instruction."""
        return (Probe(qmp.status(target.machine(self.kind)), '"prelaunch"'),)

    def effects(self, target: Target) -> tuple[()]:
        """The network is as it was once it is back."""
        return ()

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"{target.host} without power", self.colour)
