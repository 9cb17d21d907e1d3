"""A route that leads nowhere: packets to the NIC's peers go to a gateway that does not exist, with the link up."""

from ipaddress import ip_address
from typing import ClassVar

from faults.base import QUEUED_BYTES, ROUTE_PROTOCOL, SILENT, Effect, Fault, Probe, Quiet, Recipe, Sign, Target
from faults.errors import NotPossibleError

NOWHERE = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Addresses reserved for documentation (RFC 5737, RFC 3849), which no host has."""


class RouteBlackhole(Fault):
    """``ip route add PEER via NOWHERE`` for every peer of the rail; no parameters.

    Only what the host sends is lost. Routes of type blackhole would not work: for a socket that is bound to a device,
    Linux considers a peer without a route to be on the link. Our routes are identified by their protocol number.
    """

    kind: ClassVar[str] = "route_blackhole"
    colour: ClassVar[str | None] = SILENT

    def recipe(self, target: Target) -> Recipe:
        """One host route for each peer."""
        if not target.peers:
            raise NotPossibleError(f"{self.kind} needs peers of {target.host} {target.nic} on its rail; there are none")
        routes = [self._route(target, peer) for peer in target.peers]
        return Recipe(
            tuple(target.here("ip", "route", "add", *route) for route in routes),
            tuple(target.here("-ip", "route", "del", *route) for route in routes),
        )

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The routes are there, and nothing is sent."""
        version = f"-{ip_address(target.peers[0]).version}" if target.peers else "-4"
        shown = target.here("ip", version, "route", "show", "dev", target.nic, "proto", ROUTE_PROTOCOL)
        return Probe(shown, "via"), Quiet(target.host, target.nic, "tx", QUEUED_BYTES)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC sends nothing any more."""
        return (Effect(target.host, target.nic, rate_factor=0.0, direction="tx"),)

    def _route(self, target: Target, peer: str) -> tuple[str, ...]:
        address = ip_address(peer)
        way = ("via", NOWHERE[address.version], "dev", target.nic, "onlink")
        return (f"{peer}/{address.max_prefixlen}", *way, "proto", ROUTE_PROTOCOL)
