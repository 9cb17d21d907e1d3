"""From a strike to its targets: the NICs or processes that it breaks, with what the hosts say of them."""

from collections.abc import Mapping
from ipaddress import ip_interface

from faults.base import RESERVED_NICS, Device, Target
from faults.registry import create
from harness.errors import HostError
from harness.hosts.base import Host, Nic
from harness.hosts.facts import Hardware, read_device, read_hardware, read_routes
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
    device, switch = target.device, target.switch
    if "tc" in needs:
        device = read_device(host, target.nic, target.rate_bit_s)
        switch = _port(target, places)
    hardware = read_hardware(host, target.nic) if strike.kind in HARDWARE_KINDS else Hardware()
    return Target(
        target.host,
        target.nic,
        reserved=RESERVED_NICS | host.reserved(),
        address=target.address,
        prefix=target.prefix,
        peers=target.peers,
        rate_bit_s=target.rate_bit_s,
        device=device,
        switch=switch,
        bus_address=hardware.bus_address,
        driver=hardware.driver,
        rdma=hardware.rdma,
        routes=read_routes(host, target.nic) if "ip" in needs else (),
        pid=pids.get(target.host),
    )


def _port(target: Target, places: Mapping[str, Host]) -> Device | None:
    if target.switch is None:
        return None
    place = places.get(target.switch.place)
    if place is None:
        raise HostError(target.switch.place, "is named as a switch of the cluster, but it is none")
    return read_device(place, target.switch.name, target.rate_bit_s)


def _bare(address: str) -> str:
    return str(ip_interface(address).ip)
