"""Parses an RSpec, the XML in which CloudLab describes an experiment, into values, without judging them.

Requests (what was asked for) and manifests (what was granted) of any version are read. Elements and attributes are
matched by their local names, because namespaces differ between versions and sites. The XML may come from anybody, so
three things are refused before anything is expanded: a document type, which could define entities, a file that is too
large, and one that is nested too deeply.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.parsers import expat

from cloudlab.errors import ManifestError
from r2ccl_core.text_file import regular

MAX_BYTES = 8 * 2**20
"""A manifest of a hundred nodes has about half a megabyte."""

MAX_ELEMENTS = 50_000
"""A manifest of a hundred nodes with eight NICs each has a tenth of this."""

MAX_DEPTH = 64
"""Real manifests have eight levels."""

REMEDY = "get it again with `geni-get manifest` on a node, or from the portal's Manifest tab"

_MAC = re.compile(r"[0-9a-f]{12}\Z")


@dataclass(frozen=True)
class Login:
    """One account on a node; a manifest lists one for every member of the project."""

    user: str
    hostname: str
    port: str


@dataclass(frozen=True)
class Interface:
    """One port of a node that is part of a link; values that the file does not contain are empty.

    `mac` is lower case with colons if it is a MAC address; `card_port` names the physical port; addresses are IPv4 as
    written in the file.
    """

    name: str
    mac: str
    card_port: str
    address: str
    netmask: str


@dataclass(frozen=True)
class Node:
    """One computer, or a thing that CloudLab describes like one (see `sliver_type`)."""

    name: str
    sliver_type: str
    hardware_type: str
    host_name: str
    host_ipv4: str
    logins: tuple[Login, ...]
    interfaces: tuple[Interface, ...]


@dataclass(frozen=True)
class Link:
    """One network between the interfaces that it names. Tagged or multiplexed links may share a port with others."""

    name: str
    interfaces: tuple[str, ...]
    tagged: bool
    multiplexed: bool


@dataclass(frozen=True)
class Manifest:
    """An RSpec; `kind` is 'request' or 'manifest'; nodes and links are in the order of the file."""

    kind: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]


def load(path: Path) -> Manifest:
    """The RSpec in the file `path`. Raises `ManifestError`, also if the file cannot be read."""
    try:
        with regular(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ManifestError(str(path), [f"cannot be read: {error.strerror}"]) from None
    return parse(data, str(path))


def parse(data: bytes, source: str) -> Manifest:
    """The RSpec in `data`; `source` names it in errors. Raises `ManifestError`."""
    if len(data) > MAX_BYTES:
        raise ManifestError(source, [f"is larger than {MAX_BYTES >> 20} MiB, so it is not a manifest; {REMEDY}"])
    try:
        _refuse_traps(data, source)
        root = ElementTree.fromstring(data)
    except expat.ExpatError as error:
        raise ManifestError(source, [_malformed(error)]) from None
    except (LookupError, ValueError, ElementTree.ParseError) as error:
        raise ManifestError(source, [f"cannot be decoded ({error}); {REMEDY}"]) from None
    if _local(root.tag) != "rspec":
        raise ManifestError(source, [f"is <{_local(root.tag)[:40]}> and not <rspec>; {REMEDY}"])
    kind = _attribute(root, "type")
    if kind not in ("request", "manifest"):
        raise ManifestError(source, [f"has the type {kind[:40]!r} and is neither request nor manifest; {REMEDY}"])
    return Manifest(kind, tuple(map(_node, _children(root, "node"))), tuple(map(_link, _children(root, "link"))))


def _malformed(error: expat.ExpatError) -> str:
    return f"line {error.lineno}: is cut off or no XML ({expat.ErrorString(error.code)}); {REMEDY}"


def _refuse_traps(data: bytes, source: str) -> None:
    """Scans the file without building anything. Entities need a document type, whose start ends the scan."""
    depth = elements = 0

    def on_doctype(*_: object) -> None:
        raise ManifestError(source, ["has a document type, which no manifest has: it may hide an attack; " + REMEDY])

    def on_start(*_: object) -> None:
        nonlocal depth, elements
        depth, elements = depth + 1, elements + 1
        if elements > MAX_ELEMENTS:
            raise ManifestError(source, [f"has more than {MAX_ELEMENTS} elements, so it is not a manifest; {REMEDY}"])
        if depth > MAX_DEPTH:
            raise ManifestError(
                source, [f"is nested deeper than {MAX_DEPTH} elements, so it is not a manifest; {REMEDY}"]
            )

    def on_end(_: str) -> None:
        nonlocal depth
        depth -= 1

    walk = expat.ParserCreate()
    walk.StartDoctypeDeclHandler = on_doctype
    walk.StartElementHandler = on_start
    walk.EndElementHandler = on_end
    walk.Parse(data, True)


def _node(element: ElementTree.Element) -> Node:
    services, host = _child(element, "services"), _child(element, "host")
    return Node(
        name=_attribute(element, "client_id"),
        sliver_type=_attribute(_child(element, "sliver_type"), "name"),
        hardware_type=_attribute(_child(element, "hardware_type"), "name"),
        host_name=_attribute(host, "name"),
        host_ipv4=_attribute(host, "ipv4"),
        logins=tuple(map(_login, _children(services, "login"))),
        interfaces=tuple(map(_interface, _children(element, "interface"))),
    )


def _login(element: ElementTree.Element) -> Login:
    return Login(_attribute(element, "username"), _attribute(element, "hostname"), _attribute(element, "port"))


def _interface(element: ElementTree.Element) -> Interface:
    addresses = [ip for ip in _children(element, "ip") if _attribute(ip, "type") in ("", "ipv4")]
    ip = addresses[0] if addresses else None
    return Interface(
        name=_attribute(element, "client_id"),
        mac=_mac(_attribute(element, "mac_address")),
        card_port=_attribute(element, "component_id"),
        address=_attribute(ip, "address"),
        netmask=_attribute(ip, "netmask"),
    )


def _link(element: ElementTree.Element) -> Link:
    return Link(
        name=_attribute(element, "client_id"),
        interfaces=tuple(_attribute(ref, "client_id") for ref in _children(element, "interface_ref")),
        tagged=_enabled(element, "vlan_tagging"),
        multiplexed=_enabled(element, "link_multiplexing"),
    )


def _enabled(element: ElementTree.Element, name: str) -> bool:
    return _attribute(_child(element, name), "enabled").lower() in ("true", "1", "yes")


def _mac(text: str) -> str:
    """Normalises ``0c42a1dd5a40`` and ``0C:42:A1:DD:5A:40`` to ``0c:42:a1:dd:5a:40``; anything else is unchanged."""
    digits = re.sub(r"[:.-]", "", text).lower()
    return ":".join(re.findall("..", digits)) if _MAC.match(digits) else text


def _children(element: ElementTree.Element | None, name: str) -> Iterator[ElementTree.Element]:
    return (child for child in (() if element is None else element) if _local(child.tag) == name)


def _child(element: ElementTree.Element | None, name: str) -> ElementTree.Element | None:
    return next(_children(element, name), None)


def _attribute(element: ElementTree.Element | None, name: str) -> str:
    """The attribute with that local name; empty if there is none."""
    items = () if element is None else element.attrib.items()
    return next((value.strip() for key, value in items if _local(key) == name), "")


def _local(tag: str) -> str:
    """A name without its namespace."""
    return tag.rpartition("}")[2]
