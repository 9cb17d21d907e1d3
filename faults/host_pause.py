"""A virtual machine freezes: its processors, kernel, timers and NICs, as under a hypervisor that is stuck."""

from typing import ClassVar

from faults import qmp
from faults.base import HALTED, Fault, PlotHint, Probe, Recipe, Scope, Sign, Target


class HostPause(Fault):
    """QEMU's ``stop``, then ``cont``; no parameters. Its clock stands still, too. Slow is not dead: nothing may end."""

    kind: ClassVar[str] = "host_pause"
    colour: ClassVar[str | None] = HALTED
    scope: ClassVar[Scope] = "host"
    needs: ClassVar[frozenset[str]] = frozenset({"python3"})
    needs_machine: ClassVar[bool] = True
    stops_clock: ClassVar[bool] = True
    must_end: ClassVar[bool] = True

    def recipe(self, target: Target) -> Recipe:
        """Stop and continue, where QEMU runs."""
        slot = target.machine(self.kind)
        return Recipe((qmp.order(slot, "stop", {}),), (qmp.order(slot, "cont", {}),))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """QEMU reports it, because the host itself cannot."""
        return (Probe(qmp.status(target.machine(self.kind)), '"paused"'),)

    def effects(self, target: Target) -> tuple[()]:
        """The network stays the same."""
        return ()

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"{target.host} paused", self.colour)
