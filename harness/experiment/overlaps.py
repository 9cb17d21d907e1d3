"""Failures that would hit nothing, because another one of the same trial holds their NIC down by then, or would be over
too early, because the heal of another one sets their link up. Pure.

Only what the experiment itself fixes is checked: the NIC, and the time. What is drawn, or looked up by the counters, is
left to the judge.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from faults.base import LinkDown, Target
from faults.errors import FaultError
from faults.registry import FAULTS, create
from harness.experiment.fault_tables import FaultModel, PlaceModel
from harness.experiment.tables import Mistake
from harness.hosts.base import Nic

Hosts = Mapping[str, Sequence[Nic]]


@dataclass(frozen=True)
class _Failure:
    """One failure with its NICs, from `from_s` until `until_s`; `holds`: whether these carry nothing in between, and
    `link_down`: whether their links lose the carrier."""

    key: str
    kind: str
    nics: frozenset[tuple[str, str]]
    from_s: float
    until_s: float
    holds: bool
    link_down: bool

    def hides(self, other: "_Failure") -> bool:
        """Whether nothing of `other`, which begins later, is seen. A silent link may still lose its carrier."""
        stands = other.from_s < self.until_s and other.until_s <= self.until_s
        return self.holds and stands and (self.link_down or not other.link_down)

    def undoes(self, other: "_Failure") -> bool:
        """Whether its heal, which sets a link up, ends `other` as well, which begins later and should last longer."""
        within = other.from_s < self.until_s < other.until_s
        return self.kind == other.kind and self.link_down and within and bool(self.nics & other.nics)


def overlap_mistakes(faults: Sequence[FaultModel], hosts: Hosts) -> Iterator[Mistake]:
    """A mistake for every failure whose NICs are all down when it comes, or set up again before it is over."""
    for index, fault in enumerate(faults):
        failures = sorted(_failures(fault, f"fault[{index}]", hosts), key=lambda failure: failure.from_s)
        for number, failure in enumerate(failures):
            standing = [f for f in failures[:number] if f.hides(failure)]
            down = frozenset[tuple[str, str]]().union(*(f.nics for f in standing))
            if FAULTS[failure.kind].scope in ("nic", "rail") and failure.nics and failure.nics <= down:
                names = ", ".join(f"{host} {nic}" for host, nic in sorted(failure.nics))
                first = next(f for f in standing if f.nics & failure.nics)
                remedy = f"hits nothing: {first.key} holds {names} down by then; choose another NIC or time"
                yield Mistake(failure.key, failure.kind, f"{remedy}, or end that one before it with lasts")
            elif undone := next((f for f in failures[:number] if f.undoes(failure)), None):
                names = ", ".join(f"{host} {nic}" for host, nic in sorted(undone.nics & failure.nics))
                remedy = f"ends too early: the heal of {undone.key} sets {names} up; choose another NIC"
                yield Mistake(failure.key, failure.kind, f"{remedy}, or have that one last as long")


def _failures(fault: FaultModel, key: str, hosts: Hosts) -> Iterator[_Failure]:
    if fault.mtbf_s is not None:
        return
    for number, event in enumerate(fault.events):
        yield from _failure(event, event.kind, f"{key}.trace[{number}]", event.at_s, hosts)
    for time in range(0 if fault.events else fault.times):
        yield from _failure(fault, fault.kind, key, time * (fault.every_s or 0.0), hosts)
    for number, also in enumerate(fault.also):
        yield from _failure(also, also.kind, f"{key}.also[{number}]", also.after_s, hosts)


def _failure(place: PlaceModel, kind: str, key: str, from_s: float, hosts: Hosts) -> Iterator[_Failure]:
    try:
        fault = create(kind, place.parameters)
        nics = frozenset(_nics(place, fault.scope, hosts))
        rates = {(host, nic.name): nic.rate_bit_s for host, of_host in hosts.items() for nic in of_host}
        targets = [Target(host, nic, rate_bit_s=rates.get((host, nic))) for host, nic in nics]
        effects = [effect for target in targets for effect in fault.effects(target)]
        signs = [sign for target in targets for sign in fault.signs(target)]
    except FaultError:  # it is told elsewhere
        return
    silent = {(e.host, e.nic) for e in effects if e.rate_factor == 0.0 and e.direction == "both"}
    links = [sign.always for sign in signs if isinstance(sign, LinkDown)]
    until_s = inf if place.lasts_s is None else from_s + place.lasts_s
    yield _Failure(key, kind, nics, from_s, until_s, holds=nics <= silent and all(links), link_down=bool(links))


def _nics(place: PlaceModel, scope: str, hosts: Hosts) -> Iterator[tuple[str, str]]:
    """The NICs of a place that is fixed; none if it is not, or not known by name yet."""
    if scope == "host":
        yield from ((place.host or "", nic.name) for nic in hosts.get(place.host or "", ()) if nic.name)
        return
    of = hosts if scope == "rail" else {place.host or "": hosts.get(place.host or "", ())}
    rail = place.rail
    if scope == "rail" and place.nic is not None:
        rail = next((nic.rail for nics in hosts.values() for nic in nics if nic.name == place.nic), None)
    for host, nics in of.items():
        for nic in nics if scope in ("nic", "rail") else ():
            if nic.name and (nic.rail == rail if rail is not None else nic.name == place.nic):
                yield host, nic.name
