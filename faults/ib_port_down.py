"""The port of an RDMA device is disabled by the subnet management agent, as by a pulled InfiniBand cable."""

from typing import ClassVar

from faults.base import Effect, Fault, Probe, Recipe, Sign, Target
from faults.errors import NotPossibleError


class IbPortDown(Fault):
    """``ibportstate ... disable`` on the host's own port, then ``enable``; no parameters."""

    kind: ClassVar[str] = "ib_port_down"
    needs: ClassVar[frozenset[str]] = frozenset({"ibportstate", "cat"})

    def recipe(self, target: Target) -> Recipe:
        """A directed route of length zero is the host itself."""
        device, port = self._rdma(target)
        words = ("ibportstate", "-C", device, "-P", str(port), "-D", "0", str(port))
        return Recipe((target.here(*words, "disable"),), (target.here(*words, "enable"),))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The port is not active."""
        device, port = self._rdma(target)
        state = target.here("cat", f"/sys/class/infiniband/{device}/ports/{port}/state")
        return (Probe(state, "DOWN|INIT|ARMED"),)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in both directions."""
        return (Effect(target.host, target.nic, rate_factor=0.0),)

    def _rdma(self, target: Target) -> tuple[str, int]:
        if target.rdma is None:
            raise NotPossibleError(
                f"{self.kind}: {target.host} {target.nic} has no RDMA device; use nic_down for Ethernet"
            )
        return target.rdma
