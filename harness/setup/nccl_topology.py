"""NCCL's topology file for one host: where GPUs and NICs hang on PCI, and how fast each NIC really is. Pure.

NCCL fills in most of what such a file leaves out (seen with 2.28.9, which took the rates from it). It knows a NIC by
its RDMA device or, with sockets, by its interface.
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
    found = system.find(f"cpu[@numaid='{numa}']")
    return ElementTree.SubElement(system, "cpu", numaid=numa) if found is None else found


def _place(cpu: ElementTree.Element, device: Mapping[str, Any]) -> ElementTree.Element:
    """The device's own node, below the switches that it is behind: of each NCCL names the upper port only.

    NCCL takes the functions of a NIC for one device, under the first one's address.
    """
    above, place = device["above"], cpu
    for bridge in above[len(above) % 2 :: 2]:
        place = _pci(place, bridge["bus"], bridge)
    return _pci(place, device["bus"] if device["gpu"] else device["bus"][:-1] + "0", device)


def _pci(parent: ElementTree.Element, bus: str, device: Mapping[str, Any]) -> ElementTree.Element:
    """NCCL asks for the link of every device that a file names, and does not look it up where that is a NIC."""
    found = parent.find(f"pci[@busid='{bus}']")
    if found is not None:
        return found
    link = {"link_speed": device["speed"], "link_width": device["width"]}
    return ElementTree.SubElement(parent, "pci", {"busid": bus, "class": device["class"]} | link)


def _add_nic(place: ElementTree.Element, rdma: Sequence[str], name: str, rate_bit_s: float | None) -> None:
    nic = place.find("nic")
    nic = ElementTree.SubElement(place, "nic") if nic is None else nic
    for known_as in (*rdma, name):
        speed = {} if rate_bit_s is None else {"speed": str(round(rate_bit_s / 1e6))}
        ElementTree.SubElement(nic, "net", {"name": known_as} | speed)
