"""Hosts as network namespaces on one machine, by netlink: rails, token buckets, cables that can be cut.

host namespace  eth<rail> (tbf) ---- (tbf) h<host>r<rail> on bridge rail<rail>   switch namespace
                mgmt0           ----       h<host>m       on bridge mgmt
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from pyroute2 import IPRoute

from faults.token_bucket import TokenBucket
from harness.cluster import namespaces, sysctls

T = TypeVar("T")
MTU = 9000
_numbers = itertools.count()


class Network:
    """`hosts` namespaces with `rails` NICs each. Use `network()`.

    Their TCP has the machine's own congestion control, as NCCL meets it there, or `congestion_control`.
    """

    def __init__(self, hosts: int, rails: int, congestion_control: str | None = None) -> None:
        self.hosts, self.rails = hosts, rails
        self.wanted, self.congestion_control = congestion_control, ""
        self.tag = f"r2g{os.getpid()}n{next(_numbers)}"
        self.rates: dict[tuple[int, int], float | None] = {}

    def place(self, host: int) -> str:
        """The namespace of a host."""
        return f"{self.tag}h{host}"

    @property
    def switch(self) -> str:
        """The namespace of all bridges."""
        return f"{self.tag}sw"

    @staticmethod
    def management(host: int) -> str:
        """A host's address beside its rails."""
        return f"10.99.0.{host + 1}"

    def build(self) -> None:
        """Makes everything, without rate limits."""
        for name in (self.switch, *map(self.place, range(self.hosts))):
            namespaces.create(name, partial(sysctls.settle, [self.wanted] if self.wanted else []))
        self.congestion_control = namespaces.inside(self.switch, sysctls.congestion_control)
        if self.wanted not in (None, self.congestion_control):
            raise OSError(f"no congestion control {self.wanted} for namespaces: see tcp_allowed_congestion_control")
        namespaces.inside(self.switch, self._build_switch)
        for host in range(self.hosts):
            namespaces.inside(self.place(host), lambda host=host: self._build_host(host))  # type: ignore[misc]

    def _build_switch(self) -> None:
        with IPRoute() as ip:
            for bridge in [*(f"rail{rail}" for rail in range(self.rails)), "mgmt"]:
                quiet = {"br_stp_state": 0, "br_forward_delay": 0, "br_mcast_snooping": 0}
                ip.link("add", ifname=bridge, kind="bridge", mtu=MTU, state="up", **quiet)
            for host in range(self.hosts):
                with namespaces.path_of(self.place(host)).open() as there:
                    for rail in range(self.rails):
                        self._cable(ip, f"h{host}r{rail}", f"eth{rail}", f"rail{rail}", there.fileno())
                    self._cable(ip, f"h{host}m", "mgmt0", "mgmt", there.fileno())

    @staticmethod
    def _cable(ip: Any, port: str, nic: str, bridge: str, there: int) -> None:
        peer = {"ifname": nic, "mtu": MTU, "net_ns_fd": there}
        ip.link("add", ifname=port, kind="veth", mtu=MTU, peer=peer, master=_index(ip, bridge), state="up")

    def _build_host(self, host: int) -> None:
        addresses = {f"eth{rail}": f"10.{80 + rail}.0.{host + 1}" for rail in range(self.rails)}
        with IPRoute() as ip:
            ip.link("set", index=_index(ip, "lo"), state="up")
            for name, address in (addresses | {"mgmt0": self.management(host)}).items():
                ip.addr("add", index=_index(ip, name), address=address, prefixlen=24)
                ip.link("set", index=_index(ip, name), state="up")

    def shape(self, rate_bit_s: float | None, host: int | None = None, rail: int | None = None) -> None:
        """The rate of both directions of these NICs (None: all of them); a rate of None: no limit."""
        for one in range(self.hosts) if host is None else [host]:
            rails = list(range(self.rails)) if rail is None else [rail]
            ends = ((self.switch, [f"h{one}r{r}" for r in rails]), (self.place(one), [f"eth{r}" for r in rails]))
            for name, nics in ends:
                namespaces.inside(name, lambda nics=nics: _shape(nics, rate_bit_s))  # type: ignore[misc]

    def carrier(self, host: int, rail: int, up: bool) -> None:
        """The switch's port goes down (up again): the host sees the loss of carrier."""

        def change(ip: Any) -> None:
            ip.link("set", index=_index(ip, f"h{host}r{rail}"), state="up" if up else "down")

        self._in_switch(change)

    def black_hole(self, host: int, rail: int, on: bool) -> None:
        """The switch forgets the port: packets of both directions are lost, and the carrier stays."""

        def change(ip: Any) -> None:
            master = 0 if on else _index(ip, f"rail{rail}")
            ip.link("set", index=_index(ip, f"h{host}r{rail}"), master=master)

        self._in_switch(change)

    def bytes_sent(self, host: int) -> list[int]:
        """By rail, since the beginning."""
        return self._counters(host, "tx_bytes")

    def bytes_received(self, host: int) -> list[int]:
        """By rail, since the beginning."""
        return self._counters(host, "rx_bytes")

    def _counters(self, host: int, name: str) -> list[int]:
        def read() -> list[int]:
            with IPRoute() as ip:
                links = {message.get_attr("IFLA_IFNAME"): message for message in ip.get_links()}
            found = [links[f"eth{rail}"].get_attr("IFLA_STATS64") for rail in range(self.rails)]
            return [int(stats[name]) for stats in found]

        return namespaces.inside(self.place(host), read)

    def _in_switch(self, change: Callable[[Any], None]) -> None:
        def work() -> None:
            with IPRoute() as ip:
                change(ip)

        namespaces.inside(self.switch, work)

    def remove(self) -> None:
        """Harmless twice."""
        for name in (self.switch, *map(self.place, range(self.hosts))):
            with suppress(OSError):
                namespaces.remove(name)


@contextmanager
def network(hosts: int, rails: int, congestion_control: str | None = None) -> Iterator[Network]:
    """A network that goes when it is left."""
    made = Network(hosts, rails, congestion_control)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def _index(ip: Any, name: str) -> int:
    return int(ip.link_lookup(ifname=name)[0])


def _shape(nics: list[str], rate_bit_s: float | None) -> None:
    with IPRoute() as ip:
        for nic in nics:
            index = _index(ip, nic)
            with suppress(Exception):  # there may be none
                ip.tc("del", index=index, parent=0xFFFFFFFF)
            if rate_bit_s is not None:
                limit = TokenBucket.for_rate(rate_bit_s)
                ip.tc(
                    "add",
                    "tbf",
                    index=index,
                    handle="2:",
                    parent=0xFFFFFFFF,
                    rate=limit.rate_bytes_s,
                    burst=limit.burst_bytes,
                    limit=limit.limit_bytes,
                )
