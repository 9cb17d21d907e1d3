"""The NIC is taken from its driver: for the host this looks as if the card had been pulled out."""

from typing import ClassVar

from faults import link
from faults.base import Effect, Fault, Probe, Recipe, Sign, Target
from faults.errors import NotPossibleError

# No shell and no redirection: the path and the word are arguments.
_WRITE = ("python3", "-I", "-S", "-c", "import sys; open(sys.argv[1], 'w').write(sys.argv[2])")
_LISTED = """\
import os, sys
print("bound" if os.path.exists(os.path.join(sys.argv[1], sys.argv[2])) else "unbound")
"""


class NicUnbind(Fault):
    """Writes the card's bus address to its driver's ``unbind``, later to ``bind``; no parameters.

    The interface is gone meanwhile. When it is back, its MTU, rate limit, addresses and routes are restored.
    """

    kind: ClassVar[str] = "nic_unbind"
    needs: ClassVar[frozenset[str]] = frozenset({"ip", "python3", "tc"})

    def recipe(self, target: Target) -> Recipe:
        """Unbind; bind, wait for the interface, restore its configuration."""
        folder, bus = self._driver(target)
        bind = target.here("-" + _WRITE[0], *_WRITE[1:], f"{folder}/bind", bus)
        return Recipe((target.here(*_WRITE, f"{folder}/unbind", bus),), (bind, *link.new_again(target)))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """Its driver has no such device. The interface is gone too, so there are no counters to check."""
        folder, bus = self._driver(target)
        listed = target.here("python3", "-I", "-S", "-c", _LISTED, folder, bus)
        return (Probe(listed, "^unbound"),)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in both directions."""
        return (Effect(target.host, target.nic, rate_factor=0.0),)

    def _driver(self, target: Target) -> tuple[str, str]:
        if target.bus_address is None or target.driver is None:
            raise NotPossibleError(
                f"{self.kind}: {target.host} {target.nic} is not a PCI device that has a driver of its own; "
                "choose a physical NIC, or nic_down"
            )
        return f"/sys/bus/pci/drivers/{target.driver}", target.bus_address
