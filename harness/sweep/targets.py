"""From a strike to its targets: the NICs or processes that it breaks, with what the hosts say of them."""

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_interface

from faults.base import RESERVED_NICS, Device, Target
from faults.registry import create
from harness.hosts.base import Host, Nic
from harness.hosts.facts import Hardware, read_device, read_hardware, read_link, read_routes
from harness.sweep.scenario import Hosts, Strike, reach

HARDWARE_KINDS = frozenset({"nic_unbind", "ib_port_down"})
"""Faults that ask what lies below an interface."""


def known(host: str, nic: Nic, hosts: Hosts) -> Target:
    """A target with what the cluster's own description says; enough for a dry run."""
    peers = [n.address for h, nics in hosts.items() if h != host for n in nics if n.rail == nic.rail and n.address]
    switch = Device(nic.switch, nic.switch_port) if nic.switch and nic.switch_port else None
    return Target(
        host,
        nic.name,
        address=_bare(nic.address) if nic.address else None,
        peers=tuple(_bare(peer) for peer in peers),
        rate_bit_s=nic.rate_bit_s,
        switch=switch,
    )


def planned(strike: Strike, hosts: Hosts) -> list[Target]:
    """All targets of a strike as far as they are known without asking any host."""
    nics = {(host, nic.name): nic for host, of_host in hosts.items() for nic in of_host}
    return [known(host, nics[host, name], hosts) for host, name in reach(strike, hosts) if (host, name) in nics]


def asked(strike: Strike, hosts: Hosts, places: Mapping[str, Host], pids: Mapping[str, int]) -> list[Target]:
    """All targets of a strike with what their hosts say now. Raises `HostError` and `FaultError` (a protected NIC)."""
    return [_asked(strike, target, places, pids) for target in planned(strike, hosts)]


def _asked(strike: Strike, target: Target, places: Mapping[str, Host], pids: Mapping[str, int]) -> Target:
    host = places[target.host]
    needs = create(strike.kind, strike.parameters).needs
    device = read_device(host, target.nic, target.rate_bit_s) if "tc" in needs else None
    addresses, mtu = read_link(host, target.nic) if "ip" in needs else ((), None)
    hardware = read_hardware(host, target.nic) if strike.kind in HARDWARE_KINDS else Hardware()
    return Target(
        target.host,
        target.nic,
        reserved=RESERVED_NICS | host.reserved(),
        address=target.address,
        addresses=addresses,
        mtu=mtu,
        peers=target.peers,
        rate_bit_s=target.rate_bit_s,
        device=device,
        switch=_port(target, places, facts="tc" in needs),
        bus_address=hardware.bus_address,
        driver=hardware.driver,
        rdma=hardware.rdma,
        routes=read_routes(host, target.nic) if "ip" in needs else (),
        pid=pids.get(target.host),
    )


def _port(target: Target, places: Mapping[str, Host], *, facts: bool) -> Device | None:
    """The switch port with what its switch says of it, where that is reached; else as the inventory has it."""
    port = target.switch
    if port is None or port.place not in places:
        return port
    place = places[port.place]
    device = read_device(place, port.name, target.rate_bit_s) if facts else port
    return replace(device, reserved=port.name in place.reserved())


def _bare(address: str) -> str:
    return str(ip_interface(address).ip)
