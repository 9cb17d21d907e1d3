"""From an inventory's NICs to the interfaces that the set-up may change, which never include the one that carries
SSH."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faults.base import Device
from harness.cluster.find_nics import link_of
from harness.cluster.inventory import InventoryHost, InventoryNic
from harness.hosts.links import Link, Links
from harness.setup.base import Port

VIRTUAL = "veth"
"""The driver whose reported speed is not real."""


def find(host: InventoryHost, links: Links) -> tuple[dict[str, InventoryNic], list[str]]:
    """The inventory's NICs by their interfaces' names, and a line, with its remedy, for each that cannot be used."""
    reserved = links.reserved()
    found: dict[str, InventoryNic] = {}
    wrong = [] if host.nics else ["has no NICs in the inventory; let `harness cluster discover` find them"]
    for entry in host.nics:
        link = link_of(entry, links)
        if isinstance(link, str):
            told = f"{link}, and write its mac into the inventory" if "lost it" in link else link
            wrong.append(f"rail {entry.rail}: {told}")
        elif link.name in reserved:
            what = f"{link.name} carries SSH or the default route, and is never touched"
            wrong.append(f"rail {entry.rail}: {what}; leave it out of the inventory")
        elif link.name in found:
            wrong.append(f"rail {entry.rail}: {link.name} is there for two rails; a NIC lies on one")
        else:
            found[link.name] = entry
    return found, wrong


def port(
    entry: InventoryNic, link: Link, facts: Mapping[str, Any], read: Callable[[str, float | None], Device]
) -> Port:
    """One NIC with the devices attached to it; `read` asks the host for them."""
    own, every = facts["interfaces"][link.name], facts["interfaces"]["all"]
    return Port(
        entry,
        link,
        read(link.name, entry.rate_bit_s),
        None if link.kind == VIRTUAL else own["speed_bit_s"],
        max(own["arp_ignore"], every["arp_ignore"]),
        max(own["arp_announce"], every["arp_announce"]),
    )


def one_line(lines: Sequence[str]) -> tuple[str, str]:
    """Joins several lines as problem and remedy, which are split at their semicolons."""
    parts = [line.partition("; ") for line in lines]
    return "; ".join(what for what, _, _ in parts), "; ".join(dict.fromkeys(remedy for _, _, remedy in parts if remedy))
