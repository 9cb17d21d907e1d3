"""Gathers all evidence for the checks, in a few passes over all hosts at once; changes nothing there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from harness.cluster.find_nics import look_up
from harness.cluster.gather import Endpoint, Probe, Reached, Remains, Surveyed, looking_at
from harness.cluster.inventory import Inventory
from harness.cluster.rails import pairs
from harness.errors import HostError
from harness.hosts.base import Nic
from harness.hosts.links import Links

FULL_SIZE_PEERS = 4
"""Number of NICs of its rail to which each NIC sends full-size packets; one success shows that all would arrive."""


@dataclass(frozen=True)
class Evidence:
    """The evidence by host. A host is in `surveys` or in `errors`."""

    inventory: Inventory
    surveys: Mapping[str, Surveyed] = field(default_factory=dict)
    errors: Mapping[str, HostError] = field(default_factory=dict)
    nics: Mapping[str, tuple[Nic, ...]] = field(default_factory=dict)
    """The NICs that match the inventory."""
    wrong_nics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """A line for each NIC that does not."""
    answers: Mapping[Probe, Reached] = field(default_factory=dict)
    switches: Mapping[str, Links] = field(default_factory=dict)
    remains: Mapping[str, Remains] = field(default_factory=dict)
    """Remains of faults, by host and switch."""
    faults: frozenset[str] = frozenset()
    """The kinds of faults that are planned; if a host lacks what they need, that is an error."""

    def endpoint(self, host: str, nic: Nic) -> Endpoint:
        """That NIC as one end of a probe."""
        return Endpoint(host, nic.name, nic.address, self.surveys[host].links.by_name[nic.name].mtu)

    def rails(self) -> dict[int, list[Endpoint]]:
        """The NICs of every rail, in the order of hosts."""
        found: dict[int, list[Endpoint]] = {}
        for host, nics in self.nics.items():
            for nic in nics:
                found.setdefault(nic.rail, []).append(self.endpoint(host, nic))
        return dict(sorted(found.items()))

    def rail_name(self, rail: int) -> str:
        """The rail's name in the inventory."""
        return self.inventory.rails[rail] if rail < len(self.inventory.rails) else f"rail{rail}"


def gather(inventory: Inventory, faults: frozenset[str] = frozenset()) -> Evidence:
    """Logs in, surveys, then tests all pairs of every rail, paths from each rail to each other, and the path to rank
    0."""
    with looking_at(inventory) as place:
        surveys, switches, remains = place.survey(), place.links(), place.remains()
        looked = {name: look_up(place.entries[name], survey.links) for name, survey in surveys.items()}
        nics = {name: found for name, (found, _) in looked.items()}
        wrong = {name: lines for name, (_, lines) in looked.items()}
        seen = Evidence(inventory, surveys, place.errors, nics, wrong, {}, switches, remains, faults)
        return replace(seen, answers=place.probe(probes(seen)))


def probes(seen: Evidence) -> list[Probe]:
    """The probes to send. Across rails, one host probes the next, which is enough to know a network's shape."""
    rails = list(seen.rails().values())
    small = pairs(rails)
    return [*small, *_full_size(rails), *_across(seen), *to_root(seen)]


def _full_size(rails: Sequence[Sequence[Endpoint]]) -> list[Probe]:
    """Full-size probes from each NIC to the next ones around its rail."""
    found = []
    for rail in rails:
        for i, source in enumerate(rail):
            others = [*rail[i + 1 :], *rail[:i]][:FULL_SIZE_PEERS]
            found += [Probe(source, target, size=min(source.mtu, 65_000)) for target in others]
    return found


def _across(seen: Evidence) -> list[Probe]:
    found = []
    for (one, nics), (other, others) in pairwise(seen.nics.items()):
        for a in nics:
            for b in others:
                if a.rail != b.rail:
                    found.append(Probe(seen.endpoint(one, a), seen.endpoint(other, b)))
    return found


def to_root(seen: Evidence) -> list[Probe]:
    """Probes from every host to the first, by management addresses and the routing table, as ranks find each other."""
    hosts = [host.name for host in seen.inventory.hosts if host.name in seen.surveys]
    root = _management(hosts[0], seen.surveys[hosts[0]]) if hosts[:1] == [seen.inventory.hosts[0].name] else None
    if root is None:
        return []
    others = (_management(name, seen.surveys[name]) for name in hosts[1:])
    return [Probe(end, root, bound=False) for end in others if end and (":" in end.address) == (":" in root.address)]


def _management(name: str, survey: Surveyed) -> Endpoint | None:
    """The host's management endpoint; None if the address is not the host's own: it is behind an address translation,
    or a DNS name."""
    try:
        link = next((link for link in survey.links.by_name.values() if link.has_address(survey.address)), None)
    except ValueError:
        return None
    return None if link is None else Endpoint(name, link.name, survey.address, link.mtu)
