"""From an injection to its targets: the NICs or processes that it breaks, with the facts that hosts report about
them."""

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_interface

from faults.base import RESERVED_NICS, Device, Fault, Target
from faults.registry import create
from harness.hosts.base import Host, Nic
from harness.hosts.each import all_results, for_each
from harness.hosts.facts import Hardware, read_device, read_hardware, read_link, read_ovs_port, read_routes
from harness.sweep.scenario import Hosts, Injection, reach

HARDWARE_KINDS = frozenset({"nic_unbind", "nic_unplug", "ib_port_down", "gid_removed", "roce_drop"})
"""Faults that need the hardware below an interface."""


def known(host: str, nic: Nic, hosts: Hosts) -> Target:
    """A target with the facts of the cluster's own description; enough for a dry run."""
    peers = [n.address for h, nics in hosts.items() if h != host for n in nics if n.rail == nic.rail and n.address]
    switch = Device(nic.switch, nic.switch_port) if nic.switch and nic.switch_port else None
    return Target(
        host,
        nic.name,
        address=_bare(nic.address) if nic.address else None,
        peers=tuple(_bare(peer) for peer in peers),
        rate_bit_s=nic.rate_bit_s,
        switch=switch,
        slot=nic.slot,
    )


def planned(injection: Injection, hosts: Hosts) -> list[Target]:
    """All targets of an injection as far as they are known without asking any host."""
    nics = {(host, nic.name): nic for host, of_host in hosts.items() for nic in of_host}
    return [known(host, nics[host, name], hosts) for host, name in reach(injection, hosts) if (host, name) in nics]


def asked(injection: Injection, hosts: Hosts, places: Mapping[str, Host], pids: Mapping[str, int]) -> list[Target]:
    """All targets of an injection as their hosts are now. Raises `HostError` and `FaultError` (a protected NIC)."""
    targets = planned(injection, hosts)
    fault = create(injection.kind, injection.parameters)
    struck = [places[name] for name in dict.fromkeys(target.host for target in targets)]

    def of_host(host: Host) -> list[Target]:
        reserved = RESERVED_NICS | host.reserved()
        mine = [target for target in targets if target.host == host.name]
        return [_asked(fault, host, replace(target, reserved=reserved, pid=pids.get(host.name))) for target in mine]

    found = all_results(for_each(struck, of_host))
    return [_with_port(fault, target, places) for of_one in found.values() for target in of_one]


def _asked(fault: Fault, host: Host, target: Target) -> Target:
    """The target with its host's facts about the NIC, as far as the fault needs them."""
    device = read_device(host, target.nic, target.rate_bit_s) if "tc" in fault.needs else None
    hardware = read_hardware(host, target.nic) if fault.kind in HARDWARE_KINDS else Hardware()
    addresses, mtu = read_link(host, target.nic) if "ip" in fault.needs else ((), None)
    return replace(
        target,
        device=device,
        addresses=addresses,
        mtu=mtu,
        routes=read_routes(host, target.nic) if "ip" in fault.needs else (),
        bus_address=hardware.bus_address,
        driver=hardware.driver,
        rdma=hardware.rdma,
        rdma_over_ethernet=hardware.rdma_over_ethernet,
        soft_rdma=hardware.soft_rdma,
    )


def _with_port(fault: Fault, target: Target, places: Mapping[str, Host]) -> Target:
    """The target with its switch's facts about the port, if the fault acts there and the switch is reached."""
    port = target.switch
    if not fault.uses_port or port is None or port.place not in places:
        return target
    place = places[port.place]
    device = read_device(place, port.name, target.rate_bit_s) if "tc" in fault.needs else port
    ovs = read_ovs_port(place, port.name) if "ovs-vsctl" in fault.needs else None
    return replace(target, switch=replace(device, reserved=port.name in place.reserved(), ovs=ovs))


def _bare(address: str) -> str:
    return str(ip_interface(address).ip)
