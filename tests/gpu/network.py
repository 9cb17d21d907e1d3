"""Hosts as network namespaces on one machine, by netlink: rails, token buckets, cables that can be cut.

host namespace  eth<rail> (tbf) ---- (tbf) h<host>r<rail> on bridge rail<rail>   switch namespace
                mgmt0           ----       h<host>m       on bridge mgmt

Where a host has several ranks, each has a namespace, and they share the host's NICs: a bridge for each, whose way to
the rail has its rate. What they send each other stays on that bridge, which has none, in NVLink's place.

rank namespace  eth<rail> ---- h<rank>r<rail> on bridge b<host>r<rail>   switch namespace
                  u<host>r<rail> (tbf) on it ---- (tbf) d<host>r<rail> on bridge rail<rail>
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from pyroute2 import IPRoute

from harness.cluster import namespaces, sysctls
from r2ccl_core.model.token_bucket import BURST_S, TokenBucket

T = TypeVar("T")
MTU = 9000
_numbers = itertools.count()


class Network:
    """`hosts` with `rails` NICs each, and `gpus` ranks, each with a namespace. Use `network()`.

    Their TCP has the machine's own congestion control, as NCCL meets it there, or `congestion_control`. A rate limit
    lets `burst_s` through at once after a pause.
    """

    burst_s = BURST_S

    def __init__(self, hosts: int, rails: int, congestion_control: str | None = None, gpus: int = 1) -> None:
        self.hosts, self.rails, self.gpus, self.ranks = hosts, rails, gpus, hosts * gpus
        self.wanted, self.congestion_control = congestion_control, ""
        self.tag = f"r2g{os.getpid()}n{next(_numbers)}"
        self.rates: dict[tuple[int, int], float | None] = {}

    def place(self, rank: int) -> str:
        """The namespace of a rank; ranks of a host are in a row."""
        return f"{self.tag}h{rank}"

    @property
    def switch(self) -> str:
        """The namespace of all bridges."""
        return f"{self.tag}sw"

    @staticmethod
    def management(rank: int) -> str:
        """A rank's address beside its rails."""
        return f"10.99.0.{rank + 1}"

    def _ports(self, host: int, rail: int) -> list[str]:
        """The switch's ports of a NIC: those whose end the ranks have."""
        return [f"h{rank}r{rail}" for rank in range(host * self.gpus, (host + 1) * self.gpus)]

    def build(self) -> None:
        """Makes everything, without rate limits."""
        for name in (self.switch, *map(self.place, range(self.ranks))):
            namespaces.create(name, partial(sysctls.settle, [self.wanted] if self.wanted else []))
        self.congestion_control = namespaces.inside(self.switch, sysctls.congestion_control)
        if self.wanted not in (None, self.congestion_control):
            raise OSError(f"no congestion control {self.wanted} for namespaces: see tcp_allowed_congestion_control")
        namespaces.inside(self.switch, self._build_switch)
        for rank in range(self.ranks):
            namespaces.inside(self.place(rank), lambda rank=rank: self._build_rank(rank))  # type: ignore[misc]

    def _build_switch(self) -> None:
        with IPRoute() as ip:
            for bridge in [*(f"rail{rail}" for rail in range(self.rails)), "mgmt"]:
                self._bridge(ip, bridge)
            for host, rail in itertools.product(range(self.hosts if self.gpus > 1 else 0), range(self.rails)):
                self._bridge(ip, f"b{host}r{rail}")
                self._cable(ip, f"u{host}r{rail}", f"d{host}r{rail}", f"b{host}r{rail}")
                far = _index(ip, f"d{host}r{rail}")
                ip.link("set", index=far, master=_index(ip, f"rail{rail}"), state="up")
            for rank in range(self.ranks):
                with namespaces.path_of(self.place(rank)).open() as there:
                    for rail in range(self.rails):
                        bridge = f"b{rank // self.gpus}r{rail}" if self.gpus > 1 else f"rail{rail}"
                        self._cable(ip, f"h{rank}r{rail}", f"eth{rail}", bridge, there.fileno())
                    self._cable(ip, f"h{rank}m", "mgmt0", "mgmt", there.fileno())

    @staticmethod
    def _bridge(ip: Any, name: str) -> None:
        quiet = {"br_stp_state": 0, "br_forward_delay": 0, "br_mcast_snooping": 0}
        ip.link("add", ifname=name, kind="bridge", mtu=MTU, state="up", **quiet)

    @staticmethod
    def _cable(ip: Any, port: str, nic: str, bridge: str, there: int | None = None) -> None:
        peer: dict[str, Any] = {"ifname": nic, "mtu": MTU} | ({} if there is None else {"net_ns_fd": there})
        ip.link("add", ifname=port, kind="veth", mtu=MTU, peer=peer, master=_index(ip, bridge), state="up")

    def _build_rank(self, rank: int) -> None:
        addresses = {f"eth{rail}": f"10.{80 + rail}.0.{rank + 1}" for rail in range(self.rails)}
        with IPRoute() as ip:
            ip.link("set", index=_index(ip, "lo"), state="up")
            for name, address in (addresses | {"mgmt0": self.management(rank)}).items():
                ip.addr("add", index=_index(ip, name), address=address, prefixlen=24)
                ip.link("set", index=_index(ip, name), state="up")

    def shape(self, rate_bit_s: float | None, host: int | None = None, rail: int | None = None) -> None:
        """The rate of both directions of these NICs (None: all of them); a rate of None: no limit."""
        for one in range(self.hosts) if host is None else [host]:
            rails = list(range(self.rails)) if rail is None else [rail]
            ends = ((self.switch, [f"h{one}r{r}" for r in rails]), (self.place(one), [f"eth{r}" for r in rails]))
            if self.gpus > 1:
                ends = ((self.switch, [f"{end}{one}r{r}" for r in rails]) for end in "ud")  # type: ignore[assignment]
            for name, nics in ends:
                namespaces.inside(name, lambda nics=nics: _shape(nics, rate_bit_s, self.burst_s))  # type: ignore[misc]

    def carrier(self, host: int, rail: int, up: bool) -> None:
        """The switch's port goes down (up again): the host sees the loss of carrier."""

        def change(ip: Any) -> None:
            for port in self._ports(host, rail):
                ip.link("set", index=_index(ip, port), state="up" if up else "down")

        self._in_switch(change)

    def black_hole(self, host: int, rail: int, on: bool) -> None:
        """The switch forgets the port: packets of both directions are lost, and the carrier stays."""

        def change(ip: Any) -> None:
            master = 0 if on else _index(ip, f"rail{rail}")
            port = f"d{host}r{rail}" if self.gpus > 1 else f"h{host}r{rail}"
            ip.link("set", index=_index(ip, port), master=master)

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
            named = f"u{host}r" if self.gpus > 1 else "eth"
            found = [links[f"{named}{rail}"].get_attr("IFLA_STATS64") for rail in range(self.rails)]
            return [int(stats[name]) for stats in found]

        return namespaces.inside(self.switch if self.gpus > 1 else self.place(host), read)

    def _in_switch(self, change: Callable[[Any], None]) -> None:
        def work() -> None:
            with IPRoute() as ip:
                change(ip)

        namespaces.inside(self.switch, work)

    def remove(self) -> None:
        """Harmless twice."""
        for name in (self.switch, *map(self.place, range(self.ranks))):
            with suppress(OSError):
                namespaces.remove(name)


@contextmanager
def network(hosts: int, rails: int, congestion_control: str | None = None, gpus: int = 1) -> Iterator[Network]:
    """A network that goes when it is left."""
    made = Network(hosts, rails, congestion_control, gpus)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def _index(ip: Any, name: str) -> int:
    return int(ip.link_lookup(ifname=name)[0])


def _shape(nics: list[str], rate_bit_s: float | None, burst_s: float) -> None:
    with IPRoute() as ip:
        for nic in nics:
            index = _index(ip, nic)
            with suppress(Exception):  # there may be none
                ip.tc("del", index=index, parent=0xFFFFFFFF)
            if rate_bit_s is not None:
                limit = TokenBucket.for_rate(rate_bit_s, burst_s)
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
