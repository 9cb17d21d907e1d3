"""Writes a manifest as CloudLab would, for hosts that are elsewhere, so that the steps after it can be rehearsed."""

from xml.etree import ElementTree

from cloudlab.inventory import Inventory, InventoryHost

RSPEC = "http://www.geni.net/resources/rspec/3"
AUTHORITY = "urn:publicid:IDN+rehearsal+authority+cm"


def to_manifest(inventory: Inventory) -> str:
    """The manifest from which `cloudlab.inventory.make` makes `inventory` again."""
    root = ElementTree.Element("rspec", {"xmlns": RSPEC, "type": "manifest"})
    for number, host in enumerate(inventory.hosts):
        root.append(_node(host, number))
    for rail, name in enumerate(inventory.rails):
        link = ElementTree.SubElement(root, "link", client_id=name)
        for host in inventory.hosts:
            if any(nic.rail == rail for nic in host.nics):
                ElementTree.SubElement(link, "interface_ref", client_id=_port(host, rail))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _node(host: InventoryHost, number: int) -> ElementTree.Element:
    node = ElementTree.Element("node", client_id=host.name, exclusive="true", component_manager_id=AUTHORITY)
    ElementTree.SubElement(node, "sliver_type", name="raw-pc")
    if host.hardware:
        ElementTree.SubElement(node, "hardware_type", name=host.hardware)
    for nic in host.nics:
        card = f"urn:publicid:IDN+rehearsal+interface+pc{number}:eth{nic.rail}"
        mac = nic.mac.replace(":", "")
        port = ElementTree.SubElement(
            node, "interface", client_id=_port(host, nic.rail), component_id=card, mac_address=mac
        )
        ElementTree.SubElement(port, "ip", address=str(nic.ipv4.ip), netmask=str(nic.ipv4.netmask), type="ipv4")
    services = ElementTree.SubElement(node, "services")
    if host.user:
        login = {"authentication": "ssh-keys", "hostname": host.address, "port": str(host.port), "username": host.user}
        ElementTree.SubElement(services, "login", login)
    ElementTree.SubElement(node, "host", name=host.address, ipv4=host.address)
    return node


def _port(host: InventoryHost, rail: int) -> str:
    return f"{host.name}:nic{rail}"
