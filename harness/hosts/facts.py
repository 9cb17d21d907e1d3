"""Reads the queueing disciplines, routes and hardware of a host's interface. Parsing is pure; reading is a thin
layer."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from faults.base import Device, OvsPort
from harness.errors import CommandError
from harness.hosts.base import Host
from harness.hosts.iproute import ask
from r2ccl_core.model.token_bucket import HANDLE, TokenBucket

DEFAULT_HANDLE = "0:"
"""Handle of a queueing discipline that the kernel chose and nobody set."""


@dataclass(frozen=True)
class Hardware:
    """The hardware below an interface; None for absent parts."""

    bus_address: str | None = None
    driver: str | None = None
    rdma: tuple[str, int] | None = None
    rdma_over_ethernet: bool = False
    soft_rdma: str | None = None
    """A Soft-RoCE device, which is attached to the interface, not to a card."""


def device_from(place: str, name: str, qdiscs: Sequence[Mapping[str, Any]], rate_bit_s: float | None) -> Device:
    """The device that ``tc -j qdisc show`` describes. A rate limit is ours if it equals the one for that rate."""
    root = next((q for q in qdiscs if q.get("root")), {})
    hooked = any(q.get("kind") in ("clsact", "ingress") for q in qdiscs)
    if root.get("handle", DEFAULT_HANDLE) == DEFAULT_HANDLE:
        return Device(place, name, hooked=hooked)
    usual = TokenBucket.for_rate(rate_bit_s) if rate_bit_s else None
    ours = root.get("kind") == "tbf" and root.get("handle") == HANDLE and usual is not None
    if ours and usual is not None and root.get("options", {}).get("rate") == usual.rate_bytes_s:
        return Device(place, name, shaping=usual, hooked=hooked)
    return Device(place, name, occupied=str(root.get("kind")), hooked=hooked)


def addresses_from(links: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The addresses of ``ip -j addr show dev NAME`` that somebody set, with their prefixes; neither link-local nor
    leased."""
    found = [info for link in links for info in link.get("addr_info", ())]
    lasting = [info for info in found if info.get("scope") == "global" and not info.get("dynamic")]
    return tuple(f"{info['local']}/{info['prefixlen']}" for info in lasting)


def routes_from(name: str, routes: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], ...]:
    """The routes of ``ip -j route show table all dev NAME`` that neither an address nor a router restores by itself."""
    ours = (r for r in routes if r.get("protocol") not in ("kernel", "ra") and r.get("type", "unicast") == "unicast")
    return tuple(_words(name, route) for route in ours)


def _words(name: str, route: Mapping[str, Any]) -> tuple[str, ...]:
    version = 6 if ":" in f"{route['dst']}{route.get('gateway')}" else 4
    words = ["::/0" if route["dst"] == "default" and version == 6 else str(route["dst"])]
    keys = {"gateway": "via", "protocol": "proto", "metric": "metric", "prefsrc": "src", "table": "table"}
    for key, word in keys.items():
        if key in route:
            words += [word, str(route[key])]
    if "via" in route:  # a gateway of the other address family
        words += ["via", str(route["via"]["family"]), str(route["via"]["host"])]
    return (*words, "dev", name, *(("onlink",) if "onlink" in route.get("flags", ()) else ()))


def hardware_from(device: str, driver: str, infiniband: str, port: str) -> Hardware:
    """The hardware, from the targets of sysfs's links, and the names below ``infiniband``; empty if there are none."""
    bus = device.strip().rpartition("/")[2]
    is_pci = bus.count(":") == 2 and "." in bus
    rdma = infiniband.split()
    number = int(port.strip() or "0", 0) + 1
    return Hardware(
        bus if is_pci else None,
        driver.strip().rpartition("/")[2] or None if is_pci else None,
        (rdma[0], number) if rdma else None,
    )


def ovs_port_from(name: str, bridge: str, ports: Sequence[str], interfaces: Mapping[str, Any]) -> OvsPort:
    """The port, from a bridge's ports and ``ovs-vsctl --format=json --columns=name,ofport list Interface``.

    The number of an interface that cannot be opened is -1; the number of one that was not tried yet is an empty set.
    """
    told = {row[0]: row[1] for row in interfaces.get("data", ())}
    numbers = {port: number for port, number in told.items() if isinstance(number, int) and number > 0}
    return OvsPort(
        bridge, numbers.get(name), tuple(numbers[port] for port in ports if port != name and port in numbers)
    )


def read_ovs_port(host: Host, name: str) -> OvsPort | None:
    """Asks the host's Open vSwitch; None if there is none, or if the interface is no port of it."""
    ask = ("ovs-vsctl", "--timeout=5")
    try:
        bridge = host.run((*ask, "port-to-br", name)).stdout.strip()
        ports = host.run((*ask, "list-ports", bridge)).stdout.split()
        told = host.run((*ask, "--format=json", "--columns=name,ofport", "list", "Interface")).stdout
        return ovs_port_from(name, bridge, ports, json.loads(told))
    except (CommandError, ValueError):
        return None


def read_device(host: Host, name: str, rate_bit_s: float | None) -> Device:
    """Asks the host for the device; without ``tc`` on the host, its queueing disciplines are unknown."""
    return device_from(host.name, name, ask(host, "tc", "-j", "qdisc", "show", "dev", name), rate_bit_s)


def read_routes(host: Host, name: str) -> tuple[tuple[str, ...], ...]:
    """Asks the host for the routes."""
    return routes_from(name, ask(host, "ip", "-j", "route", "show", "table", "all", "dev", name))


def read_link(host: Host, name: str) -> tuple[tuple[str, ...], int | None]:
    """Asks the host for addresses and MTU."""
    links = ask(host, "ip", "-j", "addr", "show", "dev", name)
    return addresses_from(links), next((link.get("mtu") for link in links), None)


def read_congestion_control(host: Host) -> str:
    """Asks the host for TCP's congestion control for new connections."""
    said = host.run(("cat", "/proc/sys/net/ipv4/tcp_congestion_control"), check=False).stdout.strip()
    return said or "not known"


_RDMA_PORTS = "cd /sys/class/infiniband && grep -sH . */ports/*/gid_attrs/ndevs/0 */ports/*/link_layer; ls -d */device"
"""Shows which interface each RDMA port sends over, its link layer, and which devices are hardware."""


def read_hardware(host: Host, name: str) -> Hardware:
    """Asks the host for the hardware."""
    folder = f"/sys/class/net/{name}/device"
    device = host.run(("readlink", "-f", folder), check=False).stdout
    said = [
        host.run(argv, check=False).stdout
        for argv in (
            ("readlink", "-f", f"{pci_function(device)}/driver"),
            ("ls", f"{folder}/infiniband"),
            ("cat", f"/sys/class/net/{name}/dev_port"),
            ("sh", "-c", _RDMA_PORTS),
        )
    ]
    return with_ports(hardware_from(pci_function(device), said[0], said[1], said[2]), name, said[3])


def pci_function(device: str) -> str:
    """The folder in sysfs of the PCI function below an interface's device: the device itself, or the parent of a virtio
    device."""
    folder, _, last = device.strip().rpartition("/")
    return folder if re.fullmatch(r"virtio\d+", last) else device.strip()


def with_ports(hardware: Hardware, name: str, told: str) -> Hardware:
    """The hardware, with the RDMA port that sends over the interface `name` by the output of `_RDMA_PORTS`."""
    lines = told.split("\n")
    port = next((line.split("/") for line in lines if line.endswith(f"/gid_attrs/ndevs/0:{name}")), None)
    if port is None:
        return hardware
    device, number = port[0], int(port[2])
    return replace(
        hardware,
        rdma=(device, number),
        rdma_over_ethernet=f"{device}/ports/{number}/link_layer:Ethernet" in lines,
        soft_rdma=None if f"{device}/device" in lines else device,
    )
