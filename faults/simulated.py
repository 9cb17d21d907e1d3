"""The poorer topology that a simulator sees while a fault lasts."""

from collections.abc import Iterable, Mapping

from faults.base import Effect
from r2ccl_core.model.topology import Topology

Nics = Mapping[tuple[str, str], tuple[int, int]]
"""Names of host and NIC to their numbers in a topology."""


def degraded(topology: Topology, effects: Iterable[Effect], nics: Nics) -> Topology:
    """`topology` with every effect on its NIC's rate.

    A topology has one rate for both directions: a fault in one direction is applied to the whole NIC. Delay and loss do
    not change rates.
    """
    for effect in effects:
        host, nic = nics[effect.host, effect.nic]
        remaining = topology.hosts[host].nics[nic].remaining
        topology = topology.slowed(host, nic, remaining * min(1.0, effect.rate_factor))
    return topology
