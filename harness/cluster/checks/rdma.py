"""Findings about RDMA: devices, ports, link layers, MTUs, RoCE's GIDs, and missing kernel modules. Pure.

The checks cover the ports of the inventory's RDMA devices, and those that send over one of its NICs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from harness.cluster.checks.evidence import Evidence
from harness.cluster.checks.finding import Finding, error, note, ok, warning
from harness.hosts.base import Nic

ROCE_V2 = "RoCE v2"
HEADERS = 104
"""Bytes by which an interface's MTU must exceed the port's: RoCE's headers, at most 100, rounded up to a multiple of
8."""
PORT_REMEDY = "look at cable and switch port, and whether its interface is up"
LOAD_REMEDY = "load its driver, or correct the inventory"
SOFT_REMEDY = "modprobe rdma_rxe; rdma link add {device} type rxe netdev {netdev}"
KERNEL_REMEDY = "boot a kernel that has it (Debian's cloud kernels have no rdma_rxe; linux-image-amd64 has)"
GID_REMEDY = "ip address add ADDRESS/PREFIX dev {netdev}; the GID follows, unless its driver does RoCE v1 only"


@dataclass(frozen=True)
class Port:
    """One port of one host, and the NIC of the inventory that it belongs to."""

    host: str
    nic: Nic
    told: Mapping[str, Any]

    @property
    def device(self) -> str:
        """Its device's name."""
        return str(self.told["device"])

    @property
    def ethernet(self) -> bool:
        """Whether it uses RoCE."""
        return self.told.get("link_layer") == "Ethernet"

    @property
    def active(self) -> bool:
        """Whether it is active as programs see it, if that could be read."""
        return bool((self.told.get("verbs") or self.told["state"]) == "ACTIVE")

    @property
    def gid_index(self) -> int | None:
        """The entry of its table that RoCE v2 uses for the NIC's address; None without one."""
        entries = (entry for entry in self.told.get("gids", ()) if entry["type"] == ROCE_V2)
        return next((entry["index"] for entry in entries if self._is_its(entry["gid"])), None)

    def _is_its(self, gid: str) -> bool:
        try:
            return address_of(gid) == ip_address(self.nic.address)
        except ValueError:
            return False


def address_of(gid: str) -> IPv4Address | IPv6Address:
    """The IP address that a RoCE GID stands for. Raises ValueError."""
    address = IPv6Address(gid)
    return address.ipv4_mapped or address


def findings(seen: Evidence) -> Iterator[Finding]:
    """Findings about every host that was reached, and about differences between the ports of a rail."""
    judged = []
    for name, survey in seen.surveys.items():
        facts = survey.facts["rdma"]
        ports = _ports(name, seen.nics.get(name, ()), facts.get("ports", ()))
        yield from _missing(seen, name, facts)
        if facts.get("missing") == "pyverbs":
            remedy = "install python3-pyverbs (Debian, Ubuntu), or pyverbs with rdma-core"
            yield note("rdma", name, "its Python has no pyverbs; port states are those of /sys, MTUs unknown", remedy)
        for port in ports:
            yield from _port(port)
        judged += ports
    yield from _across(seen, judged)


def _ports(host: str, nics: Sequence[Nic], ports: Sequence[Mapping[str, Any]]) -> list[Port]:
    """The ports that belong to the inventory's NICs, in the order of these NICs."""
    return [Port(host, nic, port) for nic in nics for port in ports if _belongs(nic, port)]


def _belongs(nic: Nic, port: Mapping[str, Any]) -> bool:
    return bool(port["device"] == nic.rdma if nic.rdma else port.get("netdev") == nic.name)


def _missing(seen: Evidence, name: str, facts: Mapping[str, Any]) -> Iterator[Finding]:
    there = {port["device"] for port in facts.get("ports", ())}
    entries = next(host.nics for host in seen.inventory.hosts if host.name == name)
    for entry in entries:
        if entry.rdma is None or entry.rdma in there:
            continue
        soft = entry.rdma.startswith("rxe")
        needed = ("ib_core", "ib_uverbs", "rdma_rxe") if soft else ("ib_core", "ib_uverbs")
        lacks = [module for module in facts.get("lacks", ()) if module in needed]
        if lacks:
            what = f"has no RDMA device {entry.rdma}, and its kernel no {', '.join(lacks)}"
            yield error("rdma", name, what, KERNEL_REMEDY)
        else:
            soft_remedy = SOFT_REMEDY.format(device=entry.rdma, netdev=entry.name or "NIC")
            yield error("rdma", name, f"has no RDMA device {entry.rdma}", soft_remedy if soft else LOAD_REMEDY)


def _port(port: Port) -> Iterator[Finding]:
    told, name, number = port.told, port.device, port.told["port"]
    seen = told.get("verbs") or told["state"]
    wrong = []
    if told["state"] == "ACTIVE" and not port.active:
        what = f"programs cannot use port {number} of {name}: {seen}"
        remedy = "modprobe ib_uverbs, and see that the user may open /dev/infiniband/uverbs*"
        wrong.append(error("rdma", port.host, what, remedy))
    elif not port.active:
        physical = f" ({told['physical_state']})" if told.get("physical_state") else ""
        severity = error if port.nic.rdma else warning
        wrong.append(severity("rdma", port.host, f"port {number} of {name} is {told['state']}{physical}", PORT_REMEDY))
    netdev = told.get("netdev")
    if netdev and netdev != port.nic.name:
        what = f"{name} sends over {netdev}, the inventory says {port.nic.name}"
        wrong.append(error("rdma", port.host, what, "correct the inventory's rdma"))
    elif port.ethernet and port.gid_index is None:
        what = f"{name} has no RoCE v2 GID for {port.nic.address or port.nic.name}"
        wrong.append(error("rdma", port.host, what, GID_REMEDY.format(netdev=port.nic.name)))
    yield from wrong or [ok("rdma", port.host, _described(port))]
    if not told.get("counts_bytes", True):
        what = f"{name} counts packets and no bytes"
        yield note("rdma", port.host, what, "none is needed for Soft-RoCE: its bytes are in the interface's counters")
    mtu, most = told.get("active_mtu"), told.get("max_mtu")
    if mtu and most and mtu < most:
        what = f"{name} sends {mtu} bytes a packet, and could send {most}"
        yield note(
            "rdma", port.host, what, f"an MTU of {most + 104} or more on the interfaces and switches of the rail"
        )


def _described(port: Port) -> str:
    told = port.told
    parts = [f"{port.device} on {port.nic.name}: active", str(told.get("link_layer") or "")]
    parts += [f"{ROCE_V2} by GID {port.gid_index}"] if port.ethernet else []
    parts += [f"MTU {told['active_mtu']}"] if told.get("active_mtu") else []
    return ", ".join(part for part in parts if part)


def _across(seen: Evidence, ports: Sequence[Port]) -> Iterator[Finding]:
    for rail in sorted({port.nic.rail for port in ports}):
        own = [port for port in ports if port.nic.rail == rail and port.active]
        name = seen.rail_name(rail)
        layers = {port.host: port.told.get("link_layer") for port in own if port.told.get("link_layer")}
        if len(set(layers.values())) > 1:
            what = f"{name}: its RDMA ports have different link layers: {_listed(layers)}"
            yield error("rdma", "", what, "InfiniBand and Ethernet do not reach each other: correct the rails")
        mtus = {port.host: port.told.get("active_mtu") for port in own if port.told.get("active_mtu")}
        if len(set(mtus.values())) > 1:
            what = f"{name}: its RDMA ports have different MTUs: {_listed(mtus)}"
            yield warning("rdma", "", what, "set the same MTU on the interfaces, or queue pairs drop what is too long")
        gids = {port.host: port.gid_index for port in own if port.gid_index is not None}
        if len(set(gids.values())) > 1:
            what = f"{name}: RoCE v2 has different GID indexes: {_listed(gids)}"
            yield note("rdma", "", what, "leave NCCL_IB_GID_INDEX unset: it is one number for all hosts")


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{host} {value}" for host, value in values.items())
