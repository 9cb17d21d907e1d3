"""The links of a host as its agent reports them, for tests without an agent."""

from collections.abc import Mapping
from typing import Any

from harness.hosts.links import Links, read_links

LINK: Mapping[str, Any] = {
    "mac": None,
    "permanent_mac": None,
    "up": True,
    "carrier": True,
    "loopback": False,
    "mtu": 1500,
    "kind": None,
    "master": None,
    "parent": None,
    "physical": True,
    "addresses": [],
}


def links(known: Mapping[str, Mapping[str, Any]], **report: Any) -> Links:
    """Links by name, physical and up except for the changes in `known`; `report` changes other fields of the report."""
    listed = [{**LINK, "name": name, "index": i, **link} for i, (name, link) in enumerate(known.items())]
    return read_links({"session": None, "links": listed, "default_routes": [], "reply_route": None} | report)
