"""The network of a simulated trial: a topology that failures degrade for a while. Pure.

Every failure of the fault table has a beginning and an end in simulated time; in between its effects hold
(`faults.simulated`). NICs reach NICs of their own rail only, as in our transport.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from faults.base import Effect, severs
from faults.registry import create
from faults.simulated import Nics, degraded
from harness.hosts.base import Nic
from harness.sweep.scenario import BUSIEST, Injection
from harness.sweep.targets import planned
from r2ccl_core.model import topology
from r2ccl_core.model.health import RETURN_S, Health
from r2ccl_core.model.topology import Topology, hot_repaired
from r2ccl_core.planning.simulate import Change

Hosts = Mapping[str, Sequence[Nic]]

FOREVER_S = float("inf")


@dataclass(frozen=True)
class Outage:
    """One injection at its time, with its effects on NICs."""

    injection: Injection
    begin_s: float
    end_s: float
    effects: tuple[Effect, ...]

    @property
    def severs(self) -> bool:
        """Whether a NIC is dead during the outage."""
        return severs(self.effects)


@dataclass(frozen=True)
class Network:
    """The whole topology, the numbers of its NICs by name, and the outages.

    `hot_repair`: the share of a lost NIC goes to one other NIC (mode 1).
    """

    whole: Topology
    numbers: Nics
    outages: tuple[Outage, ...] = ()
    hot_repair: bool = False

    def at(self, t_s: float) -> Topology:
        """The topology that is left at that time."""
        effects = [e for o in self.outages if o.begin_s <= t_s < o.end_s for e in o.effects]
        left = degraded(self.whole, effects, self.numbers)
        return hot_repaired(left) if self.hot_repair else left

    def changes(self, begin_s: float, end_s: float) -> list[Change]:
        """The changes after `begin_s`, on a clock that begins there; at least all that come before `end_s`."""
        moments = sorted({t for o in self.outages for t in (o.begin_s, o.end_s) if begin_s < t < FOREVER_S})
        if not moments or moments[0] >= end_s:
            return []
        return [Change(t - begin_s, self.at(t)) for t in moments]

    def health(self, t_s: float) -> Health:
        """The health that the ranks agree on by then. Dead NICs count again a moment after they came back."""
        lost: list[set[int]] = [set() for _ in self.whole.hosts]
        for outage in self.outages:
            if outage.begin_s <= t_s < outage.end_s + RETURN_S:
                for effect in outage.effects:
                    host, nic = self.numbers[effect.host, effect.nic]
                    lost[host] |= {nic} if effect.rate_factor == 0.0 else set()
        healthy = health_of(self.whole)
        return replace(healthy, lost=tuple(tuple(sorted(one)) for one in lost))


def health_of(whole: Topology) -> Health:
    """The health of a cluster that has lost nothing; all hosts have equally many ranks."""
    return Health.whole([len(host.nics) for host in whole.hosts], whole.hosts[0].gpus)


def topology_of(hosts: Hosts, nic_bytes_s: Mapping[tuple[str, str], float], gpus: int = 1) -> tuple[Topology, Nics]:
    """The cluster as the simulator sees it, `gpus` ranks on each host, and the number of each NIC."""
    made = [
        topology.Host(tuple(topology.Nic(nic.rail, nic_bytes_s[name, nic.name]) for nic in nics), gpus)
        for name, nics in hosts.items()
    ]
    numbers = {(name, nic.name): (h, n) for h, (name, nics) in enumerate(hosts.items()) for n, nic in enumerate(nics)}
    return Topology(tuple(made), isolated_rails=any(len(nics) > 1 for nics in hosts.values())), numbers


def outages_of(injections: Sequence[Injection], anchor_s: float, hosts: Hosts) -> tuple[Outage, ...]:
    """The injections on the clock of the trial, whose anchor is at `anchor_s`; the busiest NIC is the first one, since
    all carry the same load."""
    found = []
    for injection in injections:
        if injection.nic == BUSIEST:
            injection = replace(injection, nic=hosts[injection.host][0].name)
        fault = create(injection.kind, injection.parameters)
        effects = tuple(effect for target in planned(injection, hosts) for effect in fault.effects(target))
        begin_s = anchor_s + injection.offset_s
        lasts_s = FOREVER_S if injection.lasts_s is None else injection.lasts_s
        found.append(Outage(injection, begin_s, begin_s + lasts_s, effects))
    return tuple(found)
