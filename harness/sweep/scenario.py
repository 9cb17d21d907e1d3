"""From a fault table of an experiment to the injections of one trial: what breaks, where, when, and for how long. Pure.

Random choices are seeded by experiment, table and repeat, not by system or size: every system meets the same failures.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from faults.base import Scope
from faults.registry import FAULTS
from harness.experiment.fault_tables import MIN_LASTS_S, AlsoModel, FaultModel, TraceEvent
from harness.hosts.base import Nic

Hosts = Mapping[str, Sequence[Nic]]
"""The data NICs of every host, in the order of ranks."""

RANDOM, BUSIEST = "random", "busiest"

PAUSE_S = 0.05
"""Pause between two random failures of one NIC."""


@dataclass(frozen=True)
class Injection:
    """One failure. `offset_s` counts from the anchor: the effect of the aimed one, or the first timed iteration."""

    kind: str
    host: str
    nic: str
    """``busiest`` is resolved by the counters, shortly before the injection comes."""
    offset_s: float = 0.0
    lasts_s: float | None = None
    """None: until the end of the trial."""
    aimed: bool = False
    """Whether it waits for its moment inside an iteration."""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scope(self) -> Scope:
        """How far its target extends: a NIC, a rail, a host or a process."""
        return FAULTS[self.kind].scope

    def is_like(self, other: "Injection") -> bool:
        """Whether both break the same things in the same way, at whatever time."""
        return self == replace(other, offset_s=self.offset_s, lasts_s=self.lasts_s, aimed=self.aimed)

    def is_over_by(self, offset_s: float) -> bool:
        """Whether the scenario has it healed by then."""
        return self.lasts_s is not None and self.offset_s + self.lasts_s <= offset_s


def injections(fault: FaultModel, hosts: Hosts, seed: str, horizon_s: float) -> tuple[Injection, ...]:
    """The injections of one trial by time, none later than `horizon_s` after the anchor."""
    chance = random.Random(seed)
    if fault.events:
        found = [_traced(event, hosts, chance) for event in fault.events]
    elif fault.mtbf_s is not None:
        found = list(_poisson(fault, hosts, chance, horizon_s))
    else:
        found = list(_aimed(fault, hosts, chance))
    return tuple(sorted((s for s in found if s.offset_s <= horizon_s), key=lambda s: s.offset_s))


def _aimed(fault: FaultModel, hosts: Hosts, chance: random.Random) -> Iterator[Injection]:
    host, nic = _choose(fault.kind, fault.host, fault.nic, fault.rail, hosts, chance)
    first = Injection(fault.kind, host, nic, 0.0, fault.lasts_s, True, fault.parameters)
    yield first
    for number in range(1, fault.times):
        yield replace(first, offset_s=number * (fault.every_s or 0.0), aimed=False)
    for also in fault.also:
        yield _also(also, hosts, chance)


def _also(also: AlsoModel, hosts: Hosts, chance: random.Random) -> Injection:
    host, nic = _choose(also.kind, also.host, also.nic, also.rail, hosts, chance)
    return Injection(also.kind, host, nic, also.after_s, also.lasts_s, False, also.parameters)


def _traced(event: TraceEvent, hosts: Hosts, chance: random.Random) -> Injection:
    host, nic = _choose(event.kind, event.host, event.nic, event.rail, hosts, chance)
    return Injection(event.kind, host, nic, event.at_s, event.lasts_s, False, event.parameters)


def _poisson(fault: FaultModel, hosts: Hosts, chance: random.Random, horizon_s: float) -> Iterator[Injection]:
    """Failures with exponential gaps and repairs, a pause between two of one NIC, and always one NIC of a host
    intact."""
    assert fault.mtbf_s is not None
    until: dict[tuple[str, str], float] = {}
    now_s = 0.0
    while True:
        now_s += chance.expovariate(1 / fault.mtbf_s)
        if now_s > horizon_s:
            return
        chosen = chance.choices(fault.choices, [c.weight for c in fault.choices])[0] if fault.choices else fault
        host, nic = _choose(chosen.kind, fault.host or RANDOM, fault.nic or RANDOM, fault.rail, hosts, chance)
        lasts_s = max(MIN_LASTS_S, chance.expovariate(1 / (fault.mttr_s or fault.mtbf_s)))
        injection = Injection(chosen.kind, host, nic, now_s, lasts_s, False, chosen.parameters)
        touched = held(injection, hosts)
        if fits(touched, [nic for nic, end_s in until.items() if end_s + PAUSE_S >= now_s], hosts):
            until |= dict.fromkeys(touched, now_s + lasts_s)
            yield injection


def fits(touched: Sequence[tuple[str, str]], broken: Collection[tuple[str, str]], hosts: Hosts) -> bool:
    """Whether nothing of `touched` is broken already, and every host keeps a NIC if `touched` breaks, too."""
    lost = {(host, name) for host, name in (*broken, *touched) if name}
    whole = all(sum(of == host for of, _ in lost) < len(nics) for host, nics in hosts.items())
    return whole and not set(touched) & set(broken)


def named(injection: Injection, hosts: Hosts) -> tuple[Injection, ...]:
    """The injection on every NIC that it may strike: the busiest one may be any NIC of its host."""
    if injection.nic != BUSIEST:
        return (injection,)
    return tuple(replace(injection, nic=nic.name) for nic in hosts[injection.host])


def held(injection: Injection, hosts: Hosts) -> tuple[tuple[str, str], ...]:
    """Everything else that may not break while the injection lasts; a process takes no NIC, and has an empty name."""
    return ((injection.host, ""),) if injection.scope == "process" else reach(injection, hosts)


def reach(injection: Injection, hosts: Hosts) -> tuple[tuple[str, str], ...]:
    """Host and NIC of everything that an injection breaks; for a process, the first NIC stands for the host."""
    if injection.scope == "host":
        return tuple((injection.host, nic.name) for nic in hosts[injection.host])
    if injection.scope == "rail":
        rail = next((nic.rail for nic in hosts[injection.host] if nic.name == injection.nic), 0)
        return tuple((host, nic.name) for host, nics in hosts.items() for nic in nics if nic.rail == rail)
    return ((injection.host, injection.nic),)


def _choose(
    kind: str, host: str | None, nic: str | None, rail: int | str | None, hosts: Hosts, chance: random.Random
) -> tuple[str, str]:
    """A host and a NIC for the names in the experiment; every call draws the same numbers, whatever is random."""
    draws = chance.random(), chance.random()
    names = list(hosts)
    scope = FAULTS[kind].scope
    if host is None or host == RANDOM:
        host = names[int(draws[0] * len(names))]
    if scope in ("host", "process"):
        return host, hosts[host][0].name if hosts[host] else ""
    if nic == BUSIEST:
        return host, BUSIEST
    if nic not in (None, RANDOM):
        return host, str(nic)
    if isinstance(rail, int):
        return host, next(n.name for n in hosts[host] if n.rail == rail)
    return host, hosts[host][int(draws[1] * len(hosts[host]))].name
