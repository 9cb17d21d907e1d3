"""Extracts from a manifest what a harness needs: the hosts, how SSH reaches them, and which NIC of each is on which
rail.

Nodes become hosts, and each LAN becomes a rail. What a harness could not use safely is refused, with all reasons at
once. Other people's logins are left out. The file that stores such an inventory belongs to the harness.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Interface

from cloudlab.errors import ManifestError
from cloudlab.manifest import REMEDY, Link, Manifest, Node
from cloudlab.rules import findings, ipv4_of, port_of, ssh_address

_STORAGE = ("emulab-blockstore", "blockstore")


@dataclass(frozen=True)
class InventoryNic:
    """One data NIC: its rail, counted from 0, the MAC address that identifies it on the host, its IPv4 address and
    mask."""

    rail: int
    mac: str
    ipv4: IPv4Interface


@dataclass(frozen=True)
class InventoryHost:
    """One host. `address` and `port` are for SSH; if `user` is None, OpenSSH's own configuration decides."""

    name: str
    address: str
    port: int
    user: str | None
    hardware: str
    nics: tuple[InventoryNic, ...]


@dataclass(frozen=True)
class Inventory:
    """Hosts in the manifest's order, and the LANs' names by rail."""

    hosts: tuple[InventoryHost, ...]
    rails: tuple[str, ...]


def make(manifest: Manifest, source: str, user: str | None = None) -> Inventory:
    """The inventory of a manifest, for SSH as `user`.

    Without `user`, a login that is the only one in the whole manifest is used. Raises `ManifestError` with every
    finding; `source` is the name of the file in it.
    """
    if manifest.kind != "manifest":
        raise ManifestError(source, [f"is a request, which has neither hosts nor ports yet; {REMEDY}"])
    nodes = [node for node in manifest.nodes if node.sliver_type not in _STORAGE]
    links = _rails(manifest)
    broken = findings(nodes, links, user)
    if broken:
        raise ManifestError(source, broken)
    login = user or _only_login(nodes)
    return Inventory(tuple(_host(node, links, login) for node in nodes), tuple(link.name for link in links))


def _rails(manifest: Manifest) -> list[Link]:
    """The LANs by name, with numbers compared as numbers; those that lead to storage are no rails."""
    storage = (node for node in manifest.nodes if node.sliver_type in _STORAGE)
    stored = {interface.name for node in storage for interface in node.interfaces}
    return sorted((link for link in manifest.links if stored.isdisjoint(link.interfaces)), key=_natural)


def _natural(link: Link) -> list[tuple[str, int]]:
    return [(text, int(number or 0)) for text, number in re.findall(r"([^0-9]*)([0-9]{0,18})", link.name)]


def _host(node: Node, links: list[Link], user: str | None) -> InventoryHost:
    address = ssh_address(node)
    assert not isinstance(address, str), "the findings come first"
    nics = []
    for rail, link in enumerate(links):
        interface = port_of(node, link)
        ipv4 = ipv4_of(interface)
        assert ipv4 is not None, "the findings come first"
        nics.append(InventoryNic(rail, interface.mac, ipv4))
    return InventoryHost(node.name, *address, user, node.hardware_type[:60], tuple(nics))


def _only_login(nodes: Iterable[Node]) -> str | None:
    return next((login.user for node in nodes for login in node.logins), None)
