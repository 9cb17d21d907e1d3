"""NCCL's topology file for one host: where GPUs and NICs hang on PCI, and how fast each NIC really is. Pure.

NCCL fills in what such a file leaves out. It knows a NIC by its RDMA device or, with sockets, by its interface.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from harness.setup.base import Port


def topology(devices: Sequence[Mapping[str, Any]], ports: Sequence[Port]) -> str:
    """The file for these PCI devices (as `harness.setup.look` tells them); NICs are those of the inventory."""
    system = ElementTree.Element("system", version="1")
    rates = {port.link.name: port.entry.rate_bit_s or port.speed_bit_s for port in ports}
    for device in devices:
        nics = [name for name in device["nics"] if name in rates]
        if device["gpu"] or nics:
            place = _place(_cpu(system, device["numa"]), device)
            for name in nics:
                _add_nic(place, device["rdma"], name, rates[name])
    ElementTree.indent(system)
    return ElementTree.tostring(system, encoding="unicode") + "\n"


def _cpu(system: ElementTree.Element, numa: str) -> ElementTree.Element:
    node = str(max(0, int(numa)))
    found = system.find(f"cpu[@numaid='{node}']")
    return ElementTree.SubElement(system, "cpu", numaid=node) if found is None else found


def _place(cpu: ElementTree.Element, device: Mapping[str, Any]) -> ElementTree.Element:
    """The device's own node, below the switches that it is behind: of each NCCL names the upper port only.

    NCCL takes the functions of a NIC for one device, under the first one's address.
    """
    above, place = device["above"], cpu
    for bus in above[len(above) % 2 :: 2]:
        place = _pci(place, bus, "0x060400")
    return _pci(place, device["bus"] if device["gpu"] else device["bus"][:-1] + "0", device["class"])


def _pci(parent: ElementTree.Element, bus: str, kind: str) -> ElementTree.Element:
    found = parent.find(f"pci[@busid='{bus}']")
    return ElementTree.SubElement(parent, "pci", {"busid": bus, "class": kind}) if found is None else found


def _add_nic(place: ElementTree.Element, rdma: Sequence[str], name: str, rate_bit_s: float | None) -> None:
    nic = place.find("nic")
    nic = ElementTree.SubElement(place, "nic") if nic is None else nic
    for known_as in (*rdma, name):
        speed = {} if rate_bit_s is None else {"speed": str(round(rate_bit_s / 1e6))}
        ElementTree.SubElement(nic, "net", {"name": known_as} | speed)
