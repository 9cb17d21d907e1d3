"""A host's interfaces as values, and which of them must never be changed: those that keep it reachable. Pure.

`harness.hosts.interfaces` runs on the host and prints the report that is read here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_address, ip_interface
from typing import Any


@dataclass(frozen=True)
class Link:
    """One interface; see `harness.hosts.interfaces`."""

    name: str
    index: int
    mac: str | None
    permanent_mac: str | None
    up: bool
    carrier: bool
    loopback: bool
    mtu: int
    kind: str | None
    master: str | None
    parent: str | None
    physical: bool
    addresses: tuple[str, ...] = ()

    def has_address(self, address: str) -> bool:
        """True if `address` (without a prefix length) is one of its own."""
        return any(ip_interface(own).ip == ip_address(address) for own in self.addresses)


@dataclass(frozen=True)
class Links:
    """All interfaces of one host by name."""

    by_name: Mapping[str, Link]
    session: tuple[str, str] | None
    """Local and remote address of the SSH session; None without one."""
    default_routes: frozenset[str]
    reply_route: str | None

    def reserved(self) -> frozenset[str]:
        """Loopback and the interfaces of the SSH session or a default route, with all those below or above them.

        Below a bond, a bridge or a VLAN are its members and its parent; above a member is its master.
        """
        carrying = {link.name for link in self.by_name.values() if link.loopback} | set(self.default_routes)
        if self.reply_route:
            carrying.add(self.reply_route)
        if self.session:
            carrying |= {link.name for link in self.by_name.values() if link.has_address(self.session[0])}
        return frozenset(self._above(carrying) | self._below(carrying))

    def _above(self, names: set[str]) -> set[str]:
        found, new = set(names), set(names)
        while new:
            masters = {self.by_name[name].master for name in new if name in self.by_name}
            new = {name for name in masters if name is not None} - found
            found |= new
        return found

    def _below(self, names: set[str]) -> set[str]:
        found, new = set(names), set(names)
        while new:
            parents = {self.by_name[name].parent for name in new if name in self.by_name}
            members = {link.name for link in self.by_name.values() if link.master in new}
            new = (members | {name for name in parents if name is not None}) - found
            found |= new
        return found


def read_links(told: Mapping[str, Any]) -> Links:
    """The output of `harness.hosts.interfaces`, as values."""
    names = {field.name for field in fields(Link)} - {"addresses"}
    links = [Link(**{name: link[name] for name in names}, addresses=tuple(link["addresses"])) for link in told["links"]]
    session = told["session"]
    return Links(
        {link.name: link for link in links},
        (session["local"], session["peer"]) if session else None,
        frozenset(told["default_routes"]),
        told["reply_route"],
    )
