"""Which interfaces of hosts are data NICs, and which of them form a rail. Pure.

A data NIC is a physical interface (or a veth, as in local clusters and containers) that is up, has an address, and
carries neither SSH nor the default route. NICs of one subnet form a rail; if a host has several in one subnet, the
first of every host form one rail, the second another. NICs that do not answer are on no rail.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

from harness.cluster.gather import Endpoint, Probe, Reached
from harness.cluster.layout import tag_of
from harness.hosts.links import Link, Links

_NEVER = ("docker", "virbr", "br-", "cni", "cali", "flannel", "lxc", "wl", "tun", "tap", "wg", "usb")
"""Names of interfaces that are container bridges, tunnels or radios, whatever their kind says."""


@dataclass(frozen=True)
class DataNic:
    """One data NIC that was found, with its first usable address."""

    endpoint: Endpoint
    network: IPv4Interface | IPv6Interface

    @property
    def subnet(self) -> str:
        """The network that its address lies in."""
        return str(self.network.network)


def data_nics(host: str, links: Links) -> list[DataNic]:
    """Those of one host, by name."""
    reserved = links.reserved()
    found = []
    for name, link in sorted(links.by_name.items(), key=lambda item: item[1].index):
        address = _address(link)
        if address is not None and name not in reserved and why_not(link) is None:
            found.append(DataNic(Endpoint(host, name, str(address.ip), link.mtu), address))
    return found


def why_not(link: Link) -> str | None:
    """Why an interface is no data NIC, regardless of what it carries; None if it is one."""
    if link.loopback or link.name.startswith(_NEVER) or not (link.physical or link.kind == "veth"):
        return "is virtual"
    if tag_of(link.name) is not None:
        return "is the harness's own, of a local cluster"
    if link.master is not None:
        return f"belongs to {link.master}"
    if not (link.up and link.carrier):
        return "is down"
    return None if _address(link) else "has no address"


def group(nics: Sequence[DataNic]) -> list[list[DataNic]]:
    """NICs by rail, by address: one rail per subnet, or several if hosts have several NICs in one."""
    by_place: dict[tuple[int, bytes, int], list[DataNic]] = defaultdict(list)
    counts: Counter[tuple[str, str]] = Counter()
    for nic in nics:
        place = counts[nic.endpoint.host, nic.subnet]
        counts[nic.endpoint.host, nic.subnet] += 1
        by_place[nic.network.version, nic.network.network.network_address.packed, place].append(nic)
    rails = [by_place[key] for key in sorted(by_place)]
    return [rail for rail in rails if len(rail) > 1] + _by_position([rail[0] for rail in rails if len(rail) == 1])


def _by_position(alone: Sequence[DataNic]) -> list[list[DataNic]]:
    """If every NIC has a subnet of its own (routed rails), the n-th NICs of all hosts form a rail."""
    places: dict[int, list[DataNic]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for nic in alone:
        places[counts[nic.endpoint.host]].append(nic)
        counts[nic.endpoint.host] += 1
    return [rail for rail in places.values() if len(rail) > 1]


def pairs(rails: Sequence[Sequence[Endpoint]]) -> list[Probe]:
    """Probes between all NICs of the same rail, through the rail's own NICs."""
    return [Probe(a, b) for rail in rails for a in rail for b in rail if a.host != b.host]


def connected(rail: Sequence[DataNic], answers: Mapping[Probe, Reached]) -> list[list[DataNic]]:
    """The parts of a grouped rail whose members really reach each other, the largest first. A host that reaches no
    other is left out.
    """
    left, parts = list(rail), []
    while left:
        part, new = [left[0]], [left.pop(0)]
        while new:
            near = [nic for nic in left if any(_both_ways(nic.endpoint, other.endpoint, answers) for other in new)]
            left = [nic for nic in left if nic not in near]
            part, new = part + near, near
        parts.append(part)
    return sorted((part for part in parts if len(part) > 1), key=len, reverse=True)


def _both_ways(one: Endpoint, other: Endpoint, answers: Mapping[Probe, Reached]) -> bool:
    there, back = answers.get(Probe(one, other)), answers.get(Probe(other, one))
    return bool(there and back and there.arrived_on == other.nic and back.arrived_on == one.nic)


def _address(link: Link) -> IPv4Interface | IPv6Interface | None:
    known = [ip_interface(address) for address in link.addresses]
    usable = sorted((address for address in known if not address.ip.is_link_local), key=lambda a: a.version)
    return usable[0] if usable else None
