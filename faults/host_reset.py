"""A virtual machine is reset, as by its button: everything that ran on it is gone without notice, and it boots
again."""

from typing import ClassVar

from faults import qmp
from faults.base import GONE, Fault, PlotHint, Recipe, Scope, Sign, Target


class HostReset(Fault):
    """QEMU's ``system_reset``; no parameters. Its rank is lost; the others must say so and end."""

    kind: ClassVar[str] = "host_reset"
    colour: ClassVar[str | None] = GONE
    scope: ClassVar[Scope] = "host"
    needs: ClassVar[frozenset[str]] = frozenset({"python3"})
    needs_machine: ClassVar[bool] = True
    kills: ClassVar[bool] = True
    restarts: ClassVar[bool] = True

    def recipe(self, target: Target) -> Recipe:
        """It comes back by itself; QEMU's event reports that it was reset."""
        return Recipe((qmp.order(target.machine(self.kind), "system_reset", {}, until="RESET"),))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """Its kernel's boot id is different afterwards, which is checked for every fault that restarts a host."""
        return ()

    def effects(self, target: Target) -> tuple[()]:
        """The network is as it was once it is back."""
        return ()

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"{target.host} reset", self.colour)
