"""What a harness needs of a manifest, as rules: each function yields one line for every host or LAN that breaks one."""

import re
from collections.abc import Iterable, Iterator
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, NetmaskValueError
from itertools import chain, combinations, islice

from cloudlab.manifest import REMEDY, Interface, Link, Node

SSH_PORT = 22

MAX_RAILS = 64
MAX_FINDINGS = 20
"""Limit of findings, enough to see what is wrong; a hostile file could break a rule for each pair of its elements."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_DNS = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\Z")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\Z")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")


def findings(nodes: list[Node], links: list[Link], user: str | None) -> list[str]:
    """What prevents these hosts and LANs from being an inventory, at most 20 lines; SSH logs in as `user` or the only
    login."""
    shape = chain(_node_findings(nodes), _login_findings(nodes, user), _link_findings(links, nodes))
    ports = chain(_port_findings(links, nodes), _network_findings(links, nodes))
    return list(islice(shape, MAX_FINDINGS)) or list(islice(ports, MAX_FINDINGS))


def _node_findings(nodes: list[Node]) -> Iterator[str]:
    if not nodes:
        yield f"has no hosts; {REMEDY}"
    for name in _repeated(node.name for node in nodes):
        yield f"two hosts are named {name[:60]!r}; {REMEDY}"
    for node in nodes:
        if not _NAME.match(node.name):
            yield f"{node.name[:60]!r} is not a valid name for a host: use letters, digits, '-' and '_' in the profile"
        elif isinstance(ssh_address(node), str):
            yield f"host {node.name!r} {ssh_address(node)}; {REMEDY}"


def _login_findings(nodes: list[Node], user: str | None) -> Iterator[str]:
    logins = {login.user for node in nodes for login in node.logins}
    if user is None and len(logins) > 1:
        yield f"lists the logins of {len(logins)} people; say which is yours with --user NAME"
    elif not _USER.match(user or next(iter(logins), "nobody")):
        yield f"{(user or next(iter(logins)))[:40]!r} is not a login; give yours with --user NAME"


def _link_findings(links: list[Link], nodes: list[Node]) -> Iterator[str]:
    if nodes and not links:
        yield "has no LAN between its hosts, so there are no rails; ask for at least one NIC per node in the profile"
    for name in _repeated(interface.name for node in nodes for interface in node.interfaces):
        yield f"two interfaces are named {name[:60]!r}; {REMEDY}"
    if len(links) > MAX_RAILS:
        yield f"has {len(links)} LANs, and {MAX_RAILS} are the most that can be rails; use this repository's profile"
        return
    known = {interface.name for node in nodes for interface in node.interfaces}
    for link in links:
        name = repr(link.name[:60])
        if not known.issuperset(link.interfaces):
            yield f"LAN {name} names a port that no host has; {REMEDY}"
        if not _NAME.match(link.name):
            yield f"{name} is not a valid name for a LAN: use letters, digits, '-' and '_' in the profile"
        if link.tagged or link.multiplexed:
            what = "VLAN-tagged" if link.tagged else "multiplexed"
            yield f"LAN {name} is {what}, so one port may carry several and one fault hit them all; use one port each"
        for node in nodes:
            ports = sum(interface.name in link.interfaces for interface in node.interfaces)
            if ports != 1:
                yield f"LAN {name} has {ports} ports of host {node.name[:60]!r}; a rail has one of each host"


def _port_findings(links: list[Link], nodes: list[Node]) -> Iterator[str]:
    for node in nodes:
        ports = [(link, port_of(node, link)) for link in links]
        for link, interface in ports:
            if not _MAC.match(interface.mac):
                has = f"has the MAC address {interface.mac[:40]!r}" if interface.mac else "has no MAC address"
                yield f"host {node.name!r} {has} on LAN {link.name!r}: no port can be matched; {REMEDY}"
        for (one, first), (other, second) in combinations(ports, 2):
            if (first.mac and first.mac == second.mac) or (first.card_port and first.card_port == second.card_port):
                yield f"host {node.name!r} has LANs {one.name!r} and {other.name!r} on one port; a rail needs its own"
    macs = (port_of(node, link).mac for node in nodes for link in links)
    for mac in _repeated(mac for mac in macs if mac):
        yield f"the MAC address {mac[:40]!r} comes more than once; {REMEDY}"


def _network_findings(links: list[Link], nodes: list[Node]) -> Iterator[str]:
    networks = {}
    for link in links:
        here = [(node, ipv4_of(port_of(node, link))) for node in nodes]
        for node, ipv4 in here:
            if ipv4 is None:
                shown = port_of(node, link).address[:40]
                has = f"has {shown!r} as its IPv4 address" if shown else "has no IPv4 address"
                yield f"host {node.name!r} {has} on LAN {link.name!r}; {REMEDY}"
        known = [ipv4 for _, ipv4 in here if ipv4 is not None]
        if len({ipv4.network for ipv4 in known}) > 1:
            yield f"LAN {link.name!r} has hosts in different subnets; give a rail one subnet"
        for address in _repeated(str(ipv4.ip) for ipv4 in known):
            yield f"LAN {link.name!r} has the address {address} twice; give each host its own"
        networks[link.name] = known[0].network if known else None
    for (one, first), (other, second) in combinations(networks.items(), 2):
        if first is not None and second is not None and first.overlaps(second):
            yield f"LANs {one!r} and {other!r} share the subnet {first}; give each rail its own"


def ssh_address(node: Node) -> tuple[str, int] | str:
    """Where SSH reaches the control network of a host, or what is wrong with it.

    A virtual machine has a port on its physical host, which only its logins name; other hosts have their own address.
    """
    ports = {(login.hostname, login.port) for login in node.logins if login.port not in ("", str(SSH_PORT))}
    if len(ports) > 1:
        return "has logins at different ports"
    hostname, port = next(iter(ports), ("", str(SSH_PORT)))
    known = [name for name in (hostname, node.host_ipv4, node.host_name) if name]
    known += [login.hostname for login in node.logins if login.hostname]
    if not known:
        return "has no control address: it is not up yet"
    if not _DNS.match(known[0]):
        return f"has the control address {known[0][:60]!r}, which is not valid"
    if not (port.isascii() and port.isdigit() and 0 < int(port[:9]) < 65536):
        return f"has the SSH port {port[:20]!r}, which is not valid"
    return known[0], int(port)


def port_of(node: Node, link: Link) -> Interface:
    return next(interface for interface in node.interfaces if interface.name in link.interfaces)


def ipv4_of(interface: Interface) -> IPv4Interface | None:
    try:
        IPv4Address(interface.address)
        return IPv4Interface(f"{interface.address}/{interface.netmask or '255.255.255.0'}")
    except (AddressValueError, NetmaskValueError):
        return None


def _repeated(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    again = dict.fromkeys(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return list(again)
