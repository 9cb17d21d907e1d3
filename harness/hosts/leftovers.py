"""Finds and removes, by their tag, the remains of faults on a host that are in no journal any more.

Qdiscs are identified by their handle, filters by their preference, routes by their protocol number (`faults.base`),
rules of Open vSwitch by their cookie. Links that are down carry no tag: the journal alone heals them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faults.base import ROUTE_PROTOCOL, TAG
from faults.filter import PREFERENCE
from faults.ovs_drop import ANY_OF_OURS
from harness.errors import CommandError
from harness.hosts.base import Host
from harness.hosts.iproute import ask

Argv = tuple[str, ...]
Shown = Sequence[Mapping[str, Any]]


def removals(qdiscs: Shown, filters: Mapping[str, Shown], routes: Shown) -> Iterator[Argv]:
    """The commands that remove tagged objects. `filters` are those of the devices that have a clsact hook."""
    for qdisc in qdiscs:
        if qdisc.get("handle") == f"{TAG}:" and qdisc.get("root"):
            yield "tc", "qdisc", "del", "dev", str(qdisc["dev"]), "root"
    for device, shown in filters.items():
        tagged = [entry for entry in shown if str(entry.get("pref")) == PREFERENCE]
        if tagged and len(tagged) == len(shown):
            yield "tc", "qdisc", "del", "dev", device, "clsact"  # no one else's filter is attached there
        elif tagged:
            for hook in ("ingress", "egress"):
                yield "-tc", "filter", "del", "dev", device, hook, "pref", PREFERENCE
    for route in routes:
        if str(route.get("protocol")) == ROUTE_PROTOCOL and "dev" in route:
            yield "ip", "route", "del", str(route["dst"]), "dev", str(route["dev"]), "proto", ROUTE_PROTOCOL


def find_leftovers(host: Host) -> list[Argv]:
    """The commands that would remove tagged objects on `host`; a command with a '-' before its first word may fail."""
    qdiscs = ask(host, "tc", "-j", "qdisc", "show")
    hooked = [str(qdisc["dev"]) for qdisc in qdiscs if qdisc.get("kind") == "clsact"]
    filters = {dev: [f for hook in ("ingress", "egress") for f in _filters(host, dev, hook)] for dev in hooked}
    routes = [route for version in ("-4", "-6") for route in ask(host, "ip", version, "-j", "route", "show")]
    return [*removals(qdiscs, filters, routes), *_of_open_vswitch(host)]


def remove_leftovers(host: Host) -> list[str]:
    """Removes tagged objects on `host`; returns one line for each. Raises `HostError`."""
    done = []
    for argv in find_leftovers(host):
        lenient = argv[0].startswith("-")
        host.run((argv[0].lstrip("-"), *argv[1:]), check=not lenient)
        done.append(" ".join(argv).lstrip("-"))
    return done


def _of_open_vswitch(host: Host) -> Iterator[Argv]:
    """The commands for every bridge that has rules of ours; none if the host has no running Open vSwitch."""
    try:
        for bridge in host.run(("ovs-vsctl", "--timeout=5", "list-br")).stdout.split():
            if "actions=drop" in host.run(("ovs-ofctl", "dump-flows", bridge, ANY_OF_OURS)).stdout:
                yield "ovs-ofctl", "del-flows", bridge, ANY_OF_OURS
    except CommandError:
        return


def _filters(host: Host, device: str, hook: str) -> list[dict[str, Any]]:
    return ask(host, "tc", "-j", "filter", "show", "dev", device, hook)
