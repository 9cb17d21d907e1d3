"""From an inventory's entries for a host's NICs to the interfaces that the host really has. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_interface

from harness.cluster.inventory import InventoryHost, InventoryNic
from harness.errors import HostError
from harness.experiment.tables import nearest
from harness.hosts.base import Nic
from harness.hosts.links import Link, Links


def find_nics(host: InventoryHost, links: Links, switches: Mapping[str, Links]) -> tuple[Nic, ...]:
    """Its data NICs by rail. Raises `HostError` with every difference from the inventory.

    `switches` has the interfaces of those that could be reached.
    """
    nics, wrong = look_up(host, links)
    wrong += port_mistakes(nics, switches)
    if wrong:
        raise HostError(host.name, "; ".join(wrong))
    return nics


def look_up(host: InventoryHost, links: Links) -> tuple[tuple[Nic, ...], list[str]]:
    """Its data NICs by rail as far as they match the inventory, and a line for each that does not."""
    if not host.nics:
        return (), ["has no NICs in the inventory; let `harness cluster discover` find them"]
    reserved = links.reserved()
    nics, wrong = [], []
    for entry in sorted(host.nics, key=lambda nic: nic.rail):
        found = link_of(entry, links)
        told = found if isinstance(found, str) else next(_objections(entry, found, reserved), None)
        if told is not None:
            wrong.append(f"rail {entry.rail}: {told}")
        elif isinstance(found, Link):
            address = entry.address or address_of(found) or ""
            known = Nic(found.name, entry.rail, address, entry.rate_bit_s, entry.switch, entry.switch_port)
            nics.append(replace(known, rdma=entry.rdma))
    counted = Counter(nic.name for nic in nics)
    wrong += [f"{name} is there for two rails; a NIC lies on one" for name, count in counted.items() if count > 1]
    return tuple(nics), wrong


def port_mistakes(nics: Sequence[Nic], switches: Mapping[str, Links]) -> list[str]:
    """A line for each NIC whose switch port does not exist, or must not be changed because it carries SSH."""
    found = []
    for nic in nics:
        links = switches.get(nic.switch or "")
        if links is not None and nic.switch_port not in links.by_name:
            ports = sorted(links.by_name)
            found.append(
                f"{nic.name}: {nic.switch} has no port {nic.switch_port}; {nearest(nic.switch_port or '', ports)}"
            )
        elif links is not None and nic.switch_port in links.reserved():
            what = f"{nic.name}: port {nic.switch_port} carries SSH or the default route of {nic.switch}"
            found.append(f"{what}, and no fault may touch it; correct switch_port")
    return found


def address_of(link: Link) -> str | None:
    """The address that its traffic would use: the first IPv4 one, else the first routed IPv6 one."""
    known = [ip_interface(address) for address in link.addresses]
    usable = sorted((a for a in known if not a.ip.is_link_local), key=lambda a: a.version)
    return str(usable[0].ip) if usable else None


def link_of(entry: InventoryNic, links: Links) -> Link | str:
    """The interface that the entry means, or why there is none."""
    if entry.name is not None:
        link = links.by_name.get(entry.name)
        if link is None:
            return f"no interface {entry.name!r}; {nearest(entry.name, sorted(links.by_name))}"
        macs = {link.mac, link.permanent_mac}
        if entry.mac is not None and entry.mac not in macs:
            return f"{link.name} has the MAC address {link.mac}, the inventory says {entry.mac}; correct one of them"
        return link
    if entry.mac is not None:
        return _by_mac(entry, links)
    assert entry.address is not None
    having = [link for link in links.by_name.values() if link.has_address(entry.address)]
    return having[0] if having else f"no interface has {entry.address}; a reboot may have lost it: set it again"


def _by_mac(entry: InventoryNic, links: Links) -> Link | str:
    """VLANs and bonds share the MAC address of the interface below: the one with the address is meant, then the
    lowest."""
    having = [link for link in links.by_name.values() if entry.mac in (link.permanent_mac or link.mac, link.mac)]
    if not having:
        return f"no interface has the MAC address {entry.mac}; compare with `ip link`"
    addressed = [link for link in having if entry.address is not None and link.has_address(entry.address)]
    return min(addressed or having, key=lambda link: (not link.physical, link.index))


def _objections(entry: InventoryNic, link: Link, reserved: frozenset[str]) -> Iterator[str]:
    if link.name in reserved:
        yield f"{link.name} carries SSH or the default route, and no fault may touch it; leave it out"
    for wanted in (entry.ipv4, entry.ipv6):
        if wanted is not None and not link.has_address(str(wanted.ip)):
            remedy = f"ip address add {wanted.with_prefixlen} dev {link.name}"
            yield f"{link.name} has no address {wanted.ip}; a reboot may have lost it: {remedy}"
    if entry.address is None and address_of(link) is None:
        yield f"{link.name} has no address; give it one"
