"""Bare-metal hosts with several NICs each, one network per NIC: a testbed on which NICs can be made to fail.

Every host has one port on every rail. A rail is a LAN of its own with a subnet of its own, and no two rails share a
physical port, so that a fault hits exactly one rail.

Instructions:

1. Wait until every node is `ready`.
2. Save the experiment's manifest, from the portal's *Manifest* tab or with `geni-get manifest` on a node.
3. On your computer, in a checkout of this repository, turn it into an inventory:
   `harness cloudlab inventory MANIFEST.xml -o hosts.toml --user YOUR_LOGIN --accept-host-keys --rate "10 Gbit/s"`
4. Set up the nodes, and again after a reboot: `harness cloudlab setup hosts.toml`
5. Look at them: `harness cluster check --inventory hosts.toml`
6. Run the published tests: `harness sweep experiments/cloudlab_r7525.toml --inventory hosts.toml`

`cloudlab/README.md` of the repository says what each step does, how long it takes and what may fail.
"""

# CloudLab runs the file profile.py at the top of the repository by itself, with geni-lib and nothing else of this
# repository beside it. Its source is cloudlab/profile.py and a test keeps the two identical; so this file imports
# nothing of ours, and runs on Python 3.7.
# ruff: noqa: A005, RUF100  its name is CloudLab's choice

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class NodeType(NamedTuple):
    """A type of computer: the sites that have it, how many there are, and the speed of each port for experiments.

    Ports are those of the cards that CloudLab's hardware page lists, less the one for the control network: an upper
    bound, because not every port of every type is cabled. Those of r7525 are the three that the R2CCL authors used.
    """

    sites: tuple[str, ...]
    nodes: int
    ports_gbit: tuple[int, ...]
    about: str


NODE_TYPES = {
    "r7525": NodeType(("clemson",), 15, (25, 100, 100), "2 V100S, ConnectX-5, BlueField-2"),
    "c240g5": NodeType(("wisconsin",), 32, (10, 10, 25, 25), "1 P100"),
    "c4130": NodeType(("wisconsin", "clemson"), 4, (10, 10), "4 V100 (Wisconsin) or 2 K40m (Clemson)"),
    "d7525": NodeType(("wisconsin",), 24, (25, 100, 100), "1 A30"),
    "xl170": NodeType(("utah",), 200, (25,), "no GPU, one port for experiments"),
    "c6525-25g": NodeType(("utah",), 144, (25, 25, 25), "no GPU"),
    "c6525-100g": NodeType(("utah",), 36, (25, 100, 100), "no GPU"),
    "d6515": NodeType(("utah",), 28, (25, 100, 100), "no GPU"),
}

OTHER = "other"

SITES = {
    "utah": "urn:publicid:IDN+utah.cloudlab.us+authority+cm",
    "wisconsin": "urn:publicid:IDN+wisc.cloudlab.us+authority+cm",
    "clemson": "urn:publicid:IDN+clemson.cloudlab.us+authority+cm",
}

ANY = "any"

SPEEDS_GBIT = (0, 1, 10, 25, 40, 100)
"""What may be asked of a link; 0 is whatever the port has."""

MAX_NODES = 64
MAX_NICS = 8

IMAGE = "urn:publicid:IDN+emulab.net+image+emulab-ops//UBUNTU24-64-STD"

_TYPE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")
_IMAGE = re.compile(r"urn:publicid:IDN\+[\w.:-]+\+image\+[\w.:/-]+\Z", re.ASCII)
_DATASET = re.compile(r"urn:publicid:IDN\+[\w.:-]+\+(imdataset|ltdataset|stdataset)\+[\w./-]+\Z", re.ASCII)


def mistakes(params: Any) -> list[tuple[str, list[str]]]:
    """What cannot be had, as pairs of the reason and the parameters it is about; empty where all is well."""
    found = list(_range_mistakes(params))
    if params.node_type == OTHER:
        found += _other_type_mistakes(params)
    else:
        found += _type_mistakes(params, NODE_TYPES[params.node_type])
    if not _IMAGE.match(params.image):
        found.append((f"The image is not a URN of a disk image, such as {IMAGE}.", ["image"]))
    return found + list(_dataset_mistakes(params))


def _range_mistakes(params: Any) -> Iterator[tuple[str, list[str]]]:
    if not 2 <= params.nodes <= MAX_NODES:
        yield f"A collective needs 2 nodes or more, and this profile addresses up to {MAX_NODES}.", ["nodes"]
    if not 1 <= params.nics <= MAX_NICS:
        yield f"A node needs 1 NIC or more, and this profile gives it up to {MAX_NICS}.", ["nics"]


def _other_type_mistakes(params: Any) -> Iterator[tuple[str, list[str]]]:
    if not params.other_type:
        yield "Name the node type, because you chose 'other'.", ["other_type"]
    elif not _TYPE_NAME.match(params.other_type):
        yield "This is not the name of a node type: use letters, digits, '-' and '_'.", ["other_type"]
    elif params.other_type in NODE_TYPES:
        yield f"{params.other_type} is in the list: choose it there.", ["node_type", "other_type"]


def _type_mistakes(params: Any, node_type: NodeType) -> Iterator[tuple[str, list[str]]]:
    name, ports = params.node_type, sorted(node_type.ports_gbit, reverse=True)
    if params.other_type:
        yield "Leave this empty, or choose the node type 'other'.", ["other_type"]
    if params.nodes > node_type.nodes:
        yield f"There are {node_type.nodes} nodes of type {name}.", ["nodes", "node_type"]
    if params.nics > len(ports):
        have = f"{len(ports)} port{'s' * (len(ports) > 1)}"
        yield f"Nodes of type {name} have {have} for experiments, and each NIC needs its own.", ["nics", "node_type"]
    fast = [port for port in ports if port >= params.speed_gbit]
    if len(fast) < min(params.nics, len(ports)):
        have = f"{len(fast)} port{'s' * (len(fast) != 1)} of {params.speed_gbit} Gbit/s or more"
        yield f"Nodes of type {name} have {have}, not {params.nics}.", ["speed_gbit", "nics"]
    if params.site not in (ANY, *node_type.sites):
        yield f"Nodes of type {name} are at {' and '.join(node_type.sites)}.", ["site", "node_type"]


def _dataset_mistakes(params: Any) -> Iterator[tuple[str, list[str]]]:
    kind = _DATASET.match(params.dataset)
    if params.dataset and not kind:
        yield "This is not the URN of a data set, such as urn:publicid:IDN+SITE:PROJECT+imdataset+NAME.", ["dataset"]
    elif kind and kind.group(1) != "imdataset":
        reason = "This data set is reached over the experiment network and would share a rail's port. "
        yield reason + "Use an image-backed one (imdataset), which is copied to the disk.", ["dataset"]


def define(context: Any, portal: Any) -> None:
    """Declares the form's parameters."""
    kinds = portal.ParameterType
    types = [(name, f"{name} ({kind.about})") for name, kind in NODE_TYPES.items()] + [(OTHER, "another type")]
    speeds = [(speed, f"{speed} Gbit/s" if speed else "whatever the port has") for speed in SPEEDS_GBIT]
    sites = [(ANY, "wherever there are such nodes")] + [(site, site.capitalize()) for site in SITES]
    context.defineParameter("node_type", "Node type", kinds.STRING, "r7525", types)
    context.defineParameter(
        "other_type", "Other node type", kinds.STRING, "", longDescription="Its name, if the node type is 'other'."
    )
    context.defineParameter("nodes", "Number of nodes", kinds.INTEGER, 3)
    context.defineParameter(
        "nics", "NICs per node", kinds.INTEGER, 3, longDescription="One LAN is made for each; each has its own port."
    )
    context.defineParameter(
        "speed_gbit",
        "Link speed",
        kinds.INTEGER,
        0,
        speeds,
        longDescription="Only ports with this speed or more are taken. The network does not slow them down.",
    )
    context.defineParameter("image", "Disk image", kinds.IMAGE, IMAGE)
    context.defineParameter(
        "dataset", "Data set", kinds.STRING, "", longDescription="Optional URN of an image-backed one, put in /dataset."
    )
    context.defineParameter("site", "Site", kinds.STRING, ANY, sites)


def build(request: Any, params: Any, pg: Any) -> None:
    """Puts nodes and LANs into the request: node h has the address 10.10.R.H on rail R - 1, where H is h + 1."""
    rails = [request.LAN(f"rail{rail}") for rail in range(params.nics)]
    for lan in rails:
        lan.vlan_tagging = False
        if params.speed_gbit:
            lan.bandwidth = params.speed_gbit * 1000 * 1000
            # A faster port must not get a delay node in its way, which would be a second cause of whatever is seen.
            lan.setNoBandwidthShaping()
    for host in range(params.nodes):
        node = request.RawPC(f"node{host}")
        node.hardware_type = params.other_type if params.node_type == OTHER else params.node_type
        node.disk_image = params.image
        if params.site != ANY:
            node.component_manager_id = SITES[params.site]
        if params.dataset:
            node.Blockstore(f"dataset{host}", "/dataset").dataset = params.dataset
        for rail, lan in enumerate(rails):
            address = pg.IPv4Address(f"10.10.{rail + 1}.{host + 1}", "255.255.255.0")
            lan.addInterface(node.addInterface(f"nic{rail}", address))


def main() -> None:
    """Reads the form, then answers with the request, or with the reasons why there is none."""
    import geni.portal as portal
    import geni.rspec.emulab  # noqa: F401  gives LANs and nodes their Emulab extensions
    import geni.rspec.igext as igext
    import geni.rspec.pg as pg

    context = portal.Context()
    define(context, portal)
    params = context.bindParameters()
    for reason, names in mistakes(params):
        context.reportError(portal.ParameterError(reason, names))
    context.verifyParameters()

    request = context.makeRequestRSpec()
    build(request, params, pg)
    description, _, instructions = __doc__.partition("\nInstructions:\n")
    tour = igext.Tour()
    tour.Description(igext.Tour.MARKDOWN, description.strip())
    tour.Instructions(igext.Tour.MARKDOWN, instructions.strip())
    request.addTour(tour)
    context.printRequestRSpec(request)


def _become_the_profiler() -> None:
    """CloudLab fixes this file's name, which hides the standard library's `profile` from `import cProfile` here."""
    import sysconfig
    from pathlib import Path

    path = Path(sysconfig.get_path("stdlib"), "profile.py")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), sys.modules[__name__].__dict__)


if __name__ == "profile":
    _become_the_profiler()
elif __name__ != "cloudlab.profile":
    main()
