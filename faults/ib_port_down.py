"""The port of an RDMA device goes down, as by a pulled cable."""

from typing import ClassVar

from faults import link
from faults.base import Effect, Fault, Probe, Recipe, Sign, Target
from faults.errors import NotPossibleError


class IbPortDown(Fault):
    """InfiniBand: ``ibportstate ... disable`` on the host's own port, then ``enable``. RoCE: its port follows the
    interface, which is taken down. No parameters."""

    kind: ClassVar[str] = "ib_port_down"
    needs: ClassVar[frozenset[str]] = frozenset({"cat", "ip"})

    def recipe(self, target: Target) -> Recipe:
        """A directed route of length zero is the host itself."""
        device, port = self._rdma(target)
        if target.rdma_over_ethernet:
            return link.taken_down(target)
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
