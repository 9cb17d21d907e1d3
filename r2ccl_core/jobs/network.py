"""The time of a collective on degraded hosts, by how a system treats lost NICs. Pure, and cached by loss.

Hosts with several GPUs: data is reduced or distributed inside the host over NVLink, then goes between hosts over all
rails at once. Which GPU's NIC is gone does not matter if GPUs may use each other's NICs (PXN); without PXN a NUMA
domain has only its own remaining NICs. For equal hosts, only how many of them lost how much matters, so times are
cached by that.

If rails are isolated, a NIC reaches only those of its own rail, and two neighbours in the ring that have lost different
ones have few in common. Then it does matter which NIC is gone, and only rings are modelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from r2ccl_core.errors import UsageError
from r2ccl_core.model.topology import Host, Topology, hot_repaired
from r2ccl_core.planning.algorithms import AUTO, for_losses
from r2ccl_core.planning.bound import bound_s
from r2ccl_core.planning.planner import Plan, plan
from r2ccl_core.schedules import rerank

ALPHA_S = 5e-6
"""The cost of a message between hosts."""

STRATEGIES = ("hot_repair", "balance", "reranked", *for_losses(), "recursive", AUTO)
"""One back-up NIC; all NICs and a ring; the ring in an order in which neighbours share rails; the schedules for losses,
if they beat the ring; R2CC-AllReduce with a ring for each distinct bandwidth, where the plain form distinguishes only
healthy hosts and others; the planner's choice."""
ON_RAILS = ("balance", "reranked")
"""The strategies that are modelled on isolated rails."""


@dataclass(frozen=True)
class Network:
    """Hosts in their present state, the reaction to lost NICs, and whether GPUs use each other's NICs."""

    topology: Topology
    strategy: str = "auto"
    pxn: bool = True
    alpha_s: float = ALPHA_S

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise UsageError(f"strategy {self.strategy!r} is unknown; it is one of {', '.join(STRATEGIES)}")
        if self.topology.isolated_rails and self.strategy not in ON_RAILS:
            raise UsageError(f"strategy {self.strategy} is not modelled on isolated rails; {', '.join(ON_RAILS)} are")

    @property
    def gpus_per_host(self) -> int:
        """The same number on all hosts."""
        return self.topology.hosts[0].gpus

    def seconds(self, collective: str, hosts: Sequence[int], size_bytes: float) -> float:
        """One collective of ``size_bytes`` per host, over ``hosts``."""
        if len(hosts) < 2 or size_bytes <= 0:
            return 0.0
        own = [self._reduced(self.topology.hosts[h]) for h in hosts]
        if not self.topology.isolated_rails:
            own.sort(key=lambda host: host.usable_bytes_s)
        dead = [h for h in hosts if self.topology.hosts[h].usable_bytes_s <= 0]
        if dead:
            raise UsageError(f"host {dead[0]} has no NIC left; no schedule can reach it")
        if self.topology.isolated_rails:
            own = list(_as_on_rails(tuple(replace(host, gpus=1) for host in own), self.strategy == "reranked"))
        return _seconds(collective, tuple(own), int(size_bytes), self.strategy, self.alpha_s)

    def point_to_point_s(self, source: int, target: int, size_bytes: float) -> float:
        """One host's whole traffic to another."""
        hosts = tuple(self._reduced(self.topology.hosts[host]) for host in (source, target))
        if self.strategy == "hot_repair":
            hosts = hot_repaired(Topology(hosts)).hosts
        rate = min(host.usable_bytes_s for host in hosts)
        if rate <= 0:
            raise UsageError(f"host {source} or {target} has no NIC left; no schedule can reach it")
        return size_bytes / rate + self.alpha_s

    def inner_s(self, collective: str, gpus: int, size_bytes: float) -> float:
        """The same inside one host, over NVLink."""
        passes = {"all_reduce": 2.0, "alltoall": 1.0, "all_gather": 1.0, "reduce_scatter": 1.0}[collective]
        rate = min(host.inner_rate_bytes_s for host in self.topology.hosts)
        return passes * (gpus - 1) / gpus * size_bytes / rate

    def _reduced(self, host: Host) -> Host:
        """The host as its slowest NUMA domain allows, if GPUs keep to their own domain's NICs."""
        if self.pxn or all(nic.remaining == 1.0 for nic in host.nics):
            return host
        domains: dict[int, tuple[float, float]] = {}
        for nic in host.nics:
            usable, nominal = domains.get(nic.numa, (0.0, 0.0))
            domains[nic.numa] = usable + nic.usable_bytes_s, nominal + nic.rate_bytes_s
        left = [usable / nominal for usable, nominal in domains.values()]
        if min(left) <= 0:  # a domain without any NIC must use the others'
            return host
        nics = tuple(
            replace(nic, remaining=nic.remaining * min(left) * _nominal(domains, nic.numa)) for nic in host.nics
        )
        return replace(host, nics=nics)


def _nominal(domains: dict[int, tuple[float, float]], numa: int) -> float:
    usable, nominal = domains[numa]
    return nominal / usable


def ratio(network: Network, size_bytes: float = 1 << 30) -> float:
    """T/T0 of an AllReduce over all hosts, T0 that of the same strategy without a loss."""
    hosts = range(network.topology.nhosts)
    healthy = replace(network, topology=network.topology.healthy)
    return network.seconds("all_reduce", hosts, size_bytes) / healthy.seconds("all_reduce", hosts, size_bytes)


@lru_cache(maxsize=1 << 16)
def _seconds(collective: str, hosts: tuple[Host, ...], size_bytes: int, strategy: str, alpha_s: float) -> float:
    topology = Topology(tuple(replace(host, gpus=1) for host in hosts))
    whole = topology == topology.healthy
    if collective == "all_reduce":
        found = _plan(topology, size_bytes, alpha_s)
        ring_s = _named(found, "ring")
        if strategy == AUTO:
            return found.candidates[0].seconds
        if strategy == "hot_repair":
            return ring_s if whole else _named(found, "hot_repair", ring_s)
        if strategy == "r2cc":
            found = _plan(_one_level(topology), size_bytes, alpha_s)
        own = for_losses().get("r2cc" if strategy == "recursive" else strategy)
        # One that is guaranteed beats the ring on healthy hosts as well.
        if own is None or (whole and not own.guaranteed):
            return ring_s
        return min(ring_s, _named(found, own.name, ring_s))
    if strategy == "hot_repair":
        topology = hot_repaired(topology)
    steps = {"broadcast": len(hosts) - 1, "sendrecv": 1}.get(collective, len(hosts) - 1)
    return bound_s(collective, topology.rates_bytes_s, size_bytes) + steps * alpha_s


def _one_level(topology: Topology) -> Topology:
    """All hosts that have lost anything, treated like the one that has lost most: a single level distinguishes no
    others."""
    slowest = min(topology.hosts, key=lambda host: host.usable_bytes_s)
    full = max(topology.rates_bytes_s)
    return replace(topology, hosts=tuple(h if h.usable_bytes_s == full else slowest for h in topology.hosts))


@lru_cache(maxsize=1 << 14)
def _as_on_rails(hosts: tuple[Host, ...], reranked: bool) -> tuple[Host, ...]:
    """Hosts of which the slowest moves as much as the weakest edge of their ring, the slowest first."""
    topology = Topology(hosts, isolated_rails=True)
    order = rerank.ring_order(topology) if reranked else tuple(range(len(hosts)))
    edge = rerank.ring_rate_bytes_s(topology, order)
    if edge <= 0:
        raise UsageError("two neighbours in the ring have no rail in common; no ring can pass there")
    first, *others = sorted(hosts, key=lambda host: host.usable_bytes_s)
    part = min(1.0, edge / first.usable_bytes_s)
    nics = tuple(replace(nic, remaining=nic.remaining * part) for nic in first.nics)
    return (replace(first, nics=nics), *others)


@lru_cache(maxsize=1 << 14)
def _plan(topology: Topology, size_bytes: int, alpha_s: float) -> Plan:
    return plan(topology, "all_reduce", size_bytes, alpha_s)


def _named(found: Plan, name: str, otherwise: float = float("inf")) -> float:
    return next((one.seconds for one in found.candidates if one.name == name), otherwise)
