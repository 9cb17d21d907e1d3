"""The layout of a local cluster as plain values: names, addresses and the numbers of its rate limits.

Every object that is made carries the cluster's tag, so that the remains of a crash can be recognised.
"""

import re
from dataclasses import dataclass, replace
from typing import Protocol

from faults.base import Slot
from harness.cluster import state
from harness.hosts.base import Nic

NAMESPACE_PREFIX = "r2ccl-"
UPLINK_PREFIX = "r2m"
MANAGEMENT_NIC = "mgmt0"
MANAGEMENT_ALIAS = "management of a local cluster"
"""Its first word tells the transport that an interface with this alias is not a data NIC."""
SWITCH = "switch"
SUBNETS = tuple(f"198.{net}.{part}" for net in (18, 19) for part in range(256))
"""Management networks (/24), from the block for benchmarks (RFC 2544), which never appears in the Internet."""


class Regular(Protocol):
    """A shape to lay out: a number of hosts with equal NICs."""

    @property
    def hosts(self) -> int: ...

    @property
    def nics(self) -> int: ...

    @property
    def rate_bit_s(self) -> float | None: ...


class Machines(Regular, Protocol):
    """The shape of a cluster of virtual machines: that of a local cluster, plus the parts that only virtual machines
    have."""

    @property
    def rdma(self) -> str | None: ...


@dataclass(frozen=True)
class HostLayout:
    """One host: its namespace, its management address, its NICs and the switch ports they are plugged into."""

    name: str
    namespace: str
    address: str
    nics: tuple[Nic, ...]
    ports: tuple[str, ...]
    management_port: str


@dataclass(frozen=True)
class Layout:
    """A whole local cluster."""

    tag: str
    switch: str
    """The namespace of the bridges: one per rail, `rail0`.., and `mgmt`."""
    uplink: str
    """The only interface in the caller's namespace; its other end is `up` in the switch."""
    uplink_address: str
    rails: tuple[str, ...]
    hosts: tuple[HostLayout, ...]
    switch_host: HostLayout
    """The switch as a host that SSH reaches."""

    @property
    def places(self) -> tuple[HostLayout, ...]:
        """All hosts and the switch: everything that has an SSH server."""
        return (*self.hosts, self.switch_host)


def lay_out(spec: Regular, tag: str, subnet: str) -> Layout:
    """All names and addresses of a cluster; `subnet` is one of `SUBNETS`."""
    return Layout(
        tag=tag,
        switch=f"{NAMESPACE_PREFIX}{tag}-switch",
        uplink=f"{UPLINK_PREFIX}{tag}",
        uplink_address=f"{subnet}.254",
        rails=tuple(f"rail{r}" for r in range(spec.nics)),
        hosts=tuple(_lay_out_host(spec, tag, subnet, h) for h in range(spec.hosts)),
        switch_host=HostLayout(SWITCH, f"{NAMESPACE_PREFIX}{tag}-switch", f"{subnet}.253", (), (), "mgmt"),
    )


def _lay_out_host(spec: Regular, tag: str, subnet: str, h: int) -> HostLayout:
    nics = tuple(
        Nic(f"eth{r}", r, f"10.{100 + r}.0.{h + 1}", spec.rate_bit_s, SWITCH, f"h{h}r{r}") for r in range(spec.nics)
    )
    return HostLayout(
        name=f"host{h}",
        namespace=f"{NAMESPACE_PREFIX}{tag}-host{h}",
        address=f"{subnet}.{h + 1}",
        nics=nics,
        ports=tuple(f"h{h}r{r}" for r in range(spec.nics)),
        management_port=f"h{h}mgmt",
    )


def lay_out_vms(spec: Machines, tag: str, subnet: str) -> Layout:
    """The same for virtual machines: all of them run in the switch's namespace, and each NIC sits in a slot."""
    plain = lay_out(spec, tag, subnet)
    hosts = []
    for h, host in enumerate(plain.hosts):
        qmp = str(state.directory(tag) / f"{host.name}.qmp")
        nics = tuple(_in_a_slot(nic, h, qmp, spec.rdma) for nic in host.nics)
        hosts.append(replace(host, namespace=plain.switch, nics=nics))
    return replace(plain, hosts=tuple(hosts))


def _in_a_slot(nic: Nic, host: int, qmp: str, rdma: str | None) -> Nic:
    device = None if rdma is None else f"{rdma}{nic.rail}"
    return replace(nic, slot=Slot(SWITCH, qmp, nic.name, mac_of(host, nic.rail)), rdma=device)


def mac_of(host: int, nic: int) -> str:
    """The MAC address of a virtual machine's NIC, in QEMU's own range. The bridges of different clusters are not
    connected."""
    return f"52:54:00:cc:{host:02x}:{nic:02x}"


def tag_of(name: str) -> str | None:
    """The tag in the name of a namespace or an uplink of ours; None for all other names."""
    match = re.fullmatch(r"r2ccl-([0-9a-f]{8})-(?:switch|host\d+)|r2m([0-9a-f]{8})", name)
    return (match[1] or match[2]) if match else None
