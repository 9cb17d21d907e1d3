"""The network of a local cluster, made with netlink: namespaces, bridges, veths, addresses, rate limits.

    host namespace              switch namespace                    caller's namespace
    eth<r>  (tbf) ------------- (tbf) h<h>r<r> on bridge rail<r>
    mgmt0   ------------------- h<h>mgmt on bridge mgmt -- up ----- r2m<tag>

A host's own filter limits the traffic that its NIC sends, the switch port's filter the traffic that it receives.
"""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from harness.cluster import namespaces, sysctls
from harness.cluster.layout import MANAGEMENT_ALIAS, MANAGEMENT_NIC, SUBNETS, UPLINK_PREFIX, HostLayout, Layout
from harness.cluster.spec import LocalSpec, VmsSpec
from harness.errors import ClusterError
from harness.interrupt import unbroken
from r2ccl_core.model.token_bucket import HANDLE, TokenBucket

REMEDIES = {
    errno.EPERM: "run as root, or let users make namespaces",
    errno.EXFULL: "a bridge takes 1023 ports: choose fewer hosts",
    errno.EOPNOTSUPP: "the kernel lacks veth, bridge, tbf or netem: load or build the module",
    errno.ENOENT: "the kernel lacks tbf or netem: load or build the module, or leave out rate or delay",
    errno.ENOSPC: "raise /proc/sys/user/max_net_namespaces, or choose fewer hosts",
    errno.ENOMEM: "choose fewer hosts or NICs",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or choose fewer hosts",
    errno.EINVAL: "the kernel refuses a value: choose another rate or mtu",
}

ROOT = 0xFFFFFFFF
NETEM_PACKETS = 100_000
"""Packets that a delay may hold; this limit must never be the one that drops a packet."""


@contextmanager
def _route() -> Iterator[Any]:
    """A socket to the kernel's network configuration. A stop takes effect after its context: the socket has an event
    loop of asyncio, which complains where it is broken off while it is made or closed.

    The library is imported only by callers that make a network: the import takes 0.4 s of a processor, as much as the
    rest of the command `sweep`."""
    from pyroute2 import IPRoute

    with unbroken(), IPRoute() as ip:
        yield ip


def used_subnets() -> set[str]:
    """The management networks that have an address in the caller's namespace."""
    with _route() as ip:
        addresses = [message.get_attr("IFA_ADDRESS") for message in ip.get_addr()]
    return {subnet for subnet in SUBNETS if any(a and a.startswith(subnet + ".") for a in addresses)}


def uplinks() -> list[str]:
    """Interfaces in the caller's namespace that are named like ours."""
    return [name for _, name in socket.if_nameindex() if name.startswith(UPLINK_PREFIX)]


def remove_uplink(name: str) -> None:
    """Deletes an uplink; harmless twice."""
    from pyroute2.netlink.exceptions import NetlinkError

    with _route() as ip:
        for index in ip.link_lookup(ifname=name):
            try:
                ip.link("del", index=index)
            except NetlinkError as e:
                if e.code != errno.ENODEV:
                    raise


def build(spec: LocalSpec, layout: Layout) -> None:
    """Makes the whole network. Raises `ClusterError`; the caller removes everything made until then."""
    with _translated():
        namespaces.create(layout.switch, sysctls.settle)
        for host in layout.hosts:
            namespaces.create(host.namespace, sysctls.settle)
        _add_uplink(layout)
        namespaces.inside(layout.switch, lambda: _build_switch(spec, layout))
        for host in layout.hosts:
            namespaces.inside(host.namespace, partial(_build_host, spec, host))


def build_switch(spec: VmsSpec, layout: Layout) -> None:
    """Makes the switch alone, with taps as ports, whose other ends QEMU opens. Errors as for `build`."""
    with _translated():
        namespaces.create(layout.switch, sysctls.settle)
        _add_uplink(layout)
        namespaces.inside(layout.switch, lambda: _build_switch(spec, layout))


def _add_uplink(layout: Layout) -> None:
    with _route() as ip, namespaces.path_of(layout.switch).open() as switch:
        ip.link("add", ifname=layout.uplink, kind="veth", peer={"ifname": "up", "net_ns_fd": switch.fileno()})
        sysctls.write(f"net/ipv6/conf/{layout.uplink}/disable_ipv6", "1")
        index = ip.link_lookup(ifname=layout.uplink)[0]
        ip.link("set", index=index, ifalias=MANAGEMENT_ALIAS)
        ip.addr("add", index=index, address=layout.uplink_address, prefixlen=24)
        ip.link("set", index=index, state="up")


def _build_switch(spec: LocalSpec | VmsSpec, layout: Layout) -> None:
    with _route() as ip:
        bridges = {name: _add_bridge(ip, name, spec.mtu) for name in layout.rails}
        bridges["mgmt"] = _add_bridge(ip, "mgmt", 1500)
        ip.link("set", index=_indexes(ip)["up"], master=bridges["mgmt"], state="up")
        ip.link("set", index=_indexes(ip)["lo"], state="up")
        ip.addr("add", index=bridges["mgmt"], address=layout.switch_host.address, prefixlen=24)
        for host in layout.hosts:
            add = _add_taps if isinstance(spec, VmsSpec) else _add_ports
            add(ip, host, bridges, spec.mtu)
        _shape(ip, [port for host in layout.hosts for port in host.ports], spec)


def _add_bridge(ip: Any, name: str, mtu: int) -> int:
    """A bridge without spanning tree (ports forward at once) and without multicast snooping (no queries of its own)."""
    quiet = {"br_stp_state": 0, "br_forward_delay": 0, "br_mcast_snooping": 0}
    ip.link("add", ifname=name, kind="bridge", mtu=mtu, state="up", **quiet)
    return int(ip.link_lookup(ifname=name)[0])


def _add_ports(ip: Any, host: HostLayout, bridges: dict[str, int], mtu: int) -> None:
    with namespaces.path_of(host.namespace).open() as namespace:
        here = {"net_ns_fd": namespace.fileno()}
        for nic, port in zip(host.nics, host.ports, strict=True):
            peer = {"ifname": nic.name, "mtu": mtu, **here}
            bridge = bridges[f"rail{nic.rail}"]
            ip.link("add", ifname=port, kind="veth", mtu=mtu, peer=peer, master=bridge, state="up")
        peer = {"ifname": MANAGEMENT_NIC, **here}
        port = host.management_port
        ip.link("add", ifname=port, kind="veth", peer=peer, master=bridges["mgmt"], state="up")


def _add_taps(ip: Any, host: HostLayout, bridges: dict[str, int], mtu: int) -> None:
    ports = {port: (bridges[f"rail{nic.rail}"], mtu) for nic, port in zip(host.nics, host.ports, strict=True)}
    for name, (bridge, size) in {**ports, host.management_port: (bridges["mgmt"], 1500)}.items():
        ip.link("add", ifname=name, kind="tuntap", mode="tap")
        ip.link("set", index=ip.link_lookup(ifname=name)[0], mtu=size, master=bridge, state="up")


def _build_host(spec: LocalSpec, host: HostLayout) -> None:
    addresses = {nic.name: nic.address for nic in host.nics} | {MANAGEMENT_NIC: host.address}
    with _route() as ip:
        indexes = _indexes(ip)
        ip.link("set", index=indexes["lo"], state="up")
        for name, address in addresses.items():
            ip.addr("add", index=indexes[name], address=address, prefixlen=24)
            ip.link("set", index=indexes[name], state="up")
        ip.link("set", index=indexes[MANAGEMENT_NIC], ifalias=MANAGEMENT_ALIAS)
        _shape(ip, [nic.name for nic in host.nics], spec)


def _shape(ip: Any, names: list[str], spec: LocalSpec | VmsSpec) -> None:
    """Sets the rate limit of each interface and, outside of it, the delay."""
    indexes = _indexes(ip)
    parent = ROOT
    for name in names:
        if spec.delay_s:
            delay_us = round(spec.delay_s * 1e6 / 2)  # half at each end of the NIC's link
            ip.tc("add", "netem", index=indexes[name], handle="1:", delay=delay_us, limit=NETEM_PACKETS)
            parent = 0x10001
        if spec.rate_bit_s is not None:
            limit = TokenBucket.for_rate(spec.rate_bit_s)
            ip.tc(
                "add",
                "tbf",
                index=indexes[name],
                handle=HANDLE,
                parent=parent,
                rate=limit.rate_bytes_s,
                burst=limit.burst_bytes,
                limit=limit.limit_bytes,
            )


def _indexes(ip: Any) -> dict[str, int]:
    return {message.get_attr("IFLA_IFNAME"): message["index"] for message in ip.get_links()}


@contextmanager
def _translated() -> Iterator[None]:
    """Turns a refusal by the kernel into one line with a remedy."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except (NetlinkError, OSError) as e:
        code = e.code if isinstance(e, NetlinkError) else e.errno
        remedy = REMEDIES.get(code or 0, "see dmesg, or choose a smaller cluster")
        text = e.args[-1] if isinstance(e, NetlinkError) else str(e)
        raise ClusterError(f"the local cluster's network cannot be made: {text}; {remedy}") from None
