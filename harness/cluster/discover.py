"""Completes an inventory with the facts of its hosts: data NICs by rail, their speeds, RDMA devices, GPUs.

The inventory's own values stay: a NIC that it names keeps its rail, and only missing values are filled in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.cluster.gather import Place, Surveyed
from harness.cluster.inventory import Inventory, InventoryHost, InventoryNic
from harness.cluster.rails import DataNic, connected, data_nics, group, pairs, why_not
from harness.errors import HostError
from harness.hosts.links import Link


@dataclass(frozen=True)
class Discovered:
    """The inventory with the usable hosts, and remarks about the other hosts and NICs."""

    inventory: Inventory | None
    notes: tuple[str, ...]
    errors: Mapping[str, HostError]


def discover(place: Place) -> Discovered:
    """Surveys every host that can be reached. `errors` names the others, which stay as they were.

    Hosts without any known NIC are of no use and are left out.
    """
    surveys = place.survey()
    found = [nic for name, survey in surveys.items() for nic in data_nics(name, survey.links)]
    grouped = group(found)
    answers = place.probe(pairs([[nic.endpoint for nic in rail] for rail in grouped]))
    rails = [part for rail in grouped for part in connected(rail, answers)]
    on_rails = {nic.endpoint for rail in rails for nic in rail}
    notes = [_silent_note(nic) for nic in found if nic.endpoint not in on_rails]
    notes += [note for name, survey in surveys.items() for note in _unused(name, survey)]
    looked = [completed(h, surveys[h.name], rails) if h.name in surveys else h for h in place.inventory.hosts]
    hosts = [host for host in looked if host.nics or host.name in surveys]
    count = 1 + max((nic.rail for host in hosts for nic in host.nics), default=-1)
    known = place.inventory.rails
    names = (*known, *(f"rail{number}" for number in range(len(known), count)))
    made = place.inventory.model_copy(update={"hosts": tuple(hosts), "rails": names}) if hosts else None
    return Discovered(made, tuple(notes), place.errors)


def completed(host: InventoryHost, survey: Surveyed, rails: Sequence[Sequence[DataNic]]) -> InventoryHost:
    """The host, completed from its survey."""
    gpus = survey.facts["gpus"].get("count") if host.gpus is None else host.gpus
    if host.nics:
        nics = tuple(_filled(nic, survey) for nic in host.nics)
    else:
        own = [(rail, nic) for rail, members in enumerate(rails) for nic in members if nic.endpoint.host == host.name]
        nics = tuple(_filled(InventoryNic(rail=rail, name=nic.endpoint.nic), survey) for rail, nic in own)
    return host.model_copy(update={"gpus": gpus, "nics": nics})


def _filled(nic: InventoryNic, survey: Surveyed) -> InventoryNic:
    """A NIC with its name, addresses, rate and RDMA device, as far as the host knows them."""
    link = _link_of(nic, survey)
    if link is None:
        return nic
    shown = survey.facts["nics"].get(link.name, {}) if isinstance(survey.facts["nics"], dict) else {}
    speed = shown.get("speed_bit_s")
    seen = {
        "name": link.name,
        "mac": link.permanent_mac or link.mac,
        "ipv4": next((a for a in link.addresses if ":" not in a), None),
        "ipv6": next((a for a in link.addresses if ":" in a and not a.startswith("fe80")), None),
        "rate": f"{speed} bit/s" if speed and link.kind != "veth" else None,  # a veth's 10 Gbit/s mean nothing
        "rdma": next(iter(shown.get("rdma", ())), None) or _soft_rdma(link.name, survey.facts["rdma"]),
    }
    told = nic.model_dump(by_alias=True, exclude_none=True)
    return InventoryNic.model_validate({name: value for name, value in seen.items() if value} | told)


def _soft_rdma(nic: str, facts: Mapping[str, Any]) -> str | None:
    """The RDMA device that sends over a NIC without being on its card, as Soft-RoCE's does."""
    return next((port["device"] for port in facts.get("ports", ()) if port.get("netdev") == nic), None)


def _link_of(nic: InventoryNic, survey: Surveyed) -> Link | None:
    links = survey.links.by_name.values()
    if nic.name is not None:
        return survey.links.by_name.get(nic.name)
    if nic.mac is not None:
        return next((link for link in links if nic.mac in (link.permanent_mac or link.mac, link.mac)), None)
    return next((link for link in links if nic.address and link.has_address(nic.address)), None)


def _silent_note(nic: DataNic) -> str:
    place = nic.endpoint
    return f"{place.host}: {place.nic} ({nic.network}) is on no rail: no other host's NIC answers it there"


def _unused(name: str, survey: Surveyed) -> list[str]:
    """Physical interfaces that are no data NICs for a reason that the user may want to remove."""
    reserved, links = survey.links.reserved(), survey.links.by_name.values()
    notes = [
        f"{name}: {link.name} {reason}"
        for link in links
        if link.physical and link.name not in reserved and (reason := why_not(link)) and reason != "is virtual"
    ]
    if not data_nics(name, survey.links):
        carrying = ", ".join(sorted(reserved - {"lo"})) or "nothing else"
        notes.append(f"{name}: has no data NIC; {carrying} carries SSH or the default route, which no fault may touch")
    return notes
