"""NCCL's topology file for one host: the places of GPUs and NICs on PCI, and the real rate of each NIC. Pure.

NCCL fills in most of the attributes that such a file omits (seen with 2.28.9, which took the rates from it). It
identifies a NIC by its RDMA device or, with sockets, by its interface.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from harness.setup.base import Port


def topology(devices: Sequence[Mapping[str, Any]], ports: Sequence[Port]) -> str:
    """The file for these PCI devices (as reported by `harness.setup.look`); NICs are those of the inventory."""
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
    """The device's own node, below the switches above it; NCCL names only the upper port of each switch.

    NCCL treats the functions of a NIC as one device, under the first one's address.
    """
    above, place = device["above"], cpu
    for bridge in above[len(above) % 2 :: 2]:
        place = _pci(place, bridge["bus"], bridge)
    return _pci(place, device["bus"] if device["gpu"] else device["bus"][:-1] + "0", device)


def _pci(parent: ElementTree.Element, bus: str, device: Mapping[str, Any]) -> ElementTree.Element:
    """A PCI node with its link: NCCL needs the link of every device in the file, and does not look it up for a NIC."""
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
