"""Judges from what was seen of hosts whether the loss of a NIC would be survived. Pure.

Two programs are judged: ours (`Communicator`, r2ccl-perf), and NCCL if it is installed. Both need a second NIC on the
same host that reaches the same peers; NCCL also needs our plugin.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_interface
from itertools import combinations
from typing import Any

from harness.cluster.checks.finding import Finding, Severity, error, note, ok, split_remedy, warning, worst_first
from harness.cluster.checks.hosts import tcp
from harness.cluster.checks.nics import arp
from harness.cluster.gather import Surveyed
from harness.cluster.layout import tag_of
from harness.cluster.rails import DataNic
from harness.errors import HostError
from harness.hosts.base import Nic
from harness.hosts.links import Link, Links
from r2ccl_core.units import format_size

SCHEMA = 1
"""Version of the JSON document."""

OPEN_FILES = 1024
"""Least limit of open files. A rank has a stream per NIC and connection, and NCCL has tens of connections per peer:
with fewer descriptors, a group of several hosts does not start."""

BRIDGES = ("docker", "virbr", "br-", "cni")
"""How names of bridges begin that our programs do not use unless they are named (`native/net/nic.cc`)."""

NCCL_TOPICS = frozenset({"nccl", "plugin"})
"""Topics that only concern NCCL."""
FIRST_NCCL = (2, 20)
"""The first NCCL with version 8 of the plugin's table that accepts a plugin by its path."""


@dataclass(frozen=True)
class Seen:
    """What was found. A host is in `surveys` or in `errors`."""

    surveys: Mapping[str, Surveyed]
    nics: Mapping[str, Sequence[DataNic]]
    """The data NICs of every examined host."""
    rails: Sequence[Sequence[DataNic]] = ()
    """Those that reach each other, as tried; with one host, nothing can be tried."""
    errors: Mapping[str, HostError] = field(default_factory=dict)
    environ: Mapping[str, str] | None = None
    """Environment of this machine, where jobs would be started; None: unknown."""


@dataclass(frozen=True)
class Answer:
    """Whether a program would survive (None: unknown), and why."""

    program: str
    survives: bool | None
    because: str


def findings(seen: Seen) -> list[Finding]:
    """Every finding, the worst first."""
    return worst_first(_findings(seen))


def answers(seen: Seen, found: Sequence[Finding]) -> list[Answer]:
    """The answer for our own programs, and for NCCL if it is installed."""
    ours = [finding for finding in found if finding.topic not in NCCL_TOPICS]
    told = [_answer("Communicator, r2ccl-perf", seen, ours)]
    if any(survey.facts["nccl"] for survey in seen.surveys.values()):
        told.append(_answer("NCCL", seen, found))
    return told


def document(seen: Seen) -> dict[str, Any]:
    """The result as JSON values."""
    found = findings(seen)
    return {
        "schema": SCHEMA,
        "answers": [vars(answer) for answer in answers(seen, found)],
        "nics": {host: [nic.endpoint.nic for nic in nics] for host, nics in seen.nics.items()},
        "findings": [
            {"severity": f.severity.value, "topic": f.topic, "host": f.host or None, "what": f.what, "remedy": f.remedy}
            for f in found
        ],
    }


def _answer(program: str, seen: Seen, found: Sequence[Finding]) -> Answer:
    wrong = [finding for finding in found if finding.severity is Severity.ERROR and finding.topic != "reached"]
    if wrong:
        first = wrong[0]
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return Answer(program, False, f"{first.host + ' ' if first.host else ''}{first.what}{more}")
    if seen.errors:
        return Answer(program, None, f"{', '.join(seen.errors)} could not be examined")
    least = min((len(nics) for nics in seen.nics.values()), default=0)
    where = "every host has" if len(seen.nics) > 1 else "there are"
    return Answer(program, True, f"{where} {least} data NICs, and everything needed to use the remaining ones")


def _findings(seen: Seen) -> Iterator[Finding]:
    for name, failure in seen.errors.items():
        yield error("reached", name, *split_remedy(failure.message))
    for name, survey in seen.surveys.items():
        nics = seen.nics[name]
        yield _nics(name, nics, survey)
        yield from arp(name, tuple(Nic(n.endpoint.nic, 0, n.endpoint.address) for n in nics), survey)
        yield from _limits(name, survey)
        control = survey.facts["congestion_control"]
        yield from list(tcp(name, control)) or [ok("tcp", name, f"TCP's congestion control is {control}")]
        yield _package(name, survey.facts["package"])
        yield from _nccl(name, survey.facts, seen.environ)
        yield from _rdma(name, nics, survey)
    if seen.environ is not None:
        yield from _environment(seen.environ)
    yield from _rails(seen)


def _nics(name: str, nics: Sequence[DataNic], survey: Surveyed) -> Finding:
    shown = ", ".join(f"{nic.endpoint.nic} {nic.endpoint.address}" for nic in nics)
    if len(nics) > 1:
        return ok("nics", name, f"has {len(nics)} data NICs: {shown}")
    remedy = "give it two NICs or more with an IPv4 address each, each in a network of its own"
    if nics:
        return error("nics", name, f"has one data NIC, {shown}: nothing is left when it is lost", remedy)
    return error("nics", name, _without(survey.links), remedy)


def _without(links: Links) -> str:
    """What our programs do on a host without a data NIC; they take any NIC rather than none, as
    `r2ccl_core.host.nics` says."""
    left = {name: address for name, link in sorted(links.by_name.items()) if (address := _address_for_data(link))}
    if not left:
        return "has no NIC with an IPv4 address: data uses loopback, which reaches no other host"
    if len(left) > 1:
        named = "one with the default route is used only if R2CC_SOCKET_IFNAME names it"
        return f"has no NIC for data alone: of {', '.join(left)}, {named}"
    [(name, address)] = left.items()
    shared = ", which also carries SSH or the default route" if name in links.reserved() else ""
    return f"has one NIC that data can use, {name} {address}{shared}: nothing is left when it is lost"


def _address_for_data(link: Link) -> str | None:
    """The IPv4 address of an interface that is neither loopback, nor a container bridge, nor of a local cluster."""
    if link.loopback or link.name.startswith(BRIDGES) or tag_of(link.name) is not None:
        return None
    return next((str(own.ip) for own in map(ip_interface, link.addresses) if own.version == 4), None)


def _limits(name: str, survey: Surveyed) -> Iterator[Finding]:
    rights = survey.facts["rights"]
    files = rights.get("open_files")
    if files is not None and files < OPEN_FILES:
        yield warning("limits", name, f"a process may open {files} files", f"ulimit -n {4 * OPEN_FILES}")
    elif files is not None:
        yield ok("limits", name, f"a process may open {files} files")
    locked = rights.get("memlock_bytes")
    if locked is not None and survey.facts["rdma"].get("ports"):
        what = f"a process may lock {format_size(locked)} of memory; NCCL's RDMA registers more"
        yield note("limits", name, what, "set memlock to unlimited in /etc/security/limits.d")


def _package(name: str, package: Mapping[str, Any]) -> Finding:
    if package.get("version"):
        return ok("package", name, f"has r2ccl {package['version']}")
    return error("package", name, f"its Python has no r2ccl: {package.get('why')}", "pip install r2ccl there")


def _nccl(name: str, facts: Mapping[str, Any], environ: Mapping[str, str] | None) -> Iterator[Finding]:
    libraries, package = facts["nccl"], facts["package"]
    if not libraries:
        yield note("nccl", name, "no NCCL was found", "none is needed for programs that use Communicator")
        return
    for library in libraries:
        version = tuple(map(int, re.findall(r"\d+", library["version"])[:2]))
        if not version or version >= FIRST_NCCL:
            yield ok("nccl", name, f"has NCCL {library['version']} ({library['path']})")
        else:
            what = f"NCCL {library['version']} ({library['path']}) cannot load the plugin"
            yield error("nccl", name, what, f"update to {FIRST_NCCL[0]}.{FIRST_NCCL[1]} or later")
    plugin = package.get("plugin")
    if not plugin:
        remedy = "install r2ccl with its C++ part there"
        yield error("plugin", name, "has no plugin for NCCL, whose own network stops at the first loss", remedy)
    elif package.get("refused"):
        yield error("plugin", name, f"the plugin cannot be loaded: {package['refused']}", "build it on such a host")
    elif environ is None:
        yield note("plugin", name, f"the plugin can be loaded: {plugin}", f"start jobs with NCCL_NET_PLUGIN={plugin}")
    else:
        yield _chosen(name, plugin, environ.get("NCCL_NET_PLUGIN", ""))


def _chosen(name: str, plugin: str, given: str) -> Finding:
    if given == plugin:
        return ok("plugin", name, f"NCCL_NET_PLUGIN names the plugin, which can be loaded: {plugin}")
    remedy = f"export NCCL_NET_PLUGIN={plugin}"
    if not given:
        what = "NCCL_NET_PLUGIN is not set: NCCL uses its own network, and stops at the first loss"
        return error("plugin", name, what, remedy)
    return warning("plugin", name, f"NCCL_NET_PLUGIN={given} is not the plugin of this installation", remedy)


def _rdma(name: str, nics: Sequence[DataNic], survey: Surveyed) -> Iterator[Finding]:
    """The transport is TCP: it uses the interface of an RDMA port, if that has an address."""
    used = {nic.endpoint.nic for nic in nics}
    ports = survey.facts["rdma"].get("ports", [])
    idle = [f"{port['device']}/{port['port']}" for port in ports if port.get("netdev") not in used]
    if idle:
        what = f"RDMA ports without a data NIC above them: {', '.join(idle)}"
        yield warning("rdma", name, what, "give their interfaces IPv4 addresses; the transport is TCP, not verbs")
    elif ports:
        yield note("rdma", name, "its RDMA ports are used as Ethernet NICs", "the transport is TCP, not verbs")


def _environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    if environ.get("R2CC_MODE") == "0":
        yield error("environment", "", "R2CC_MODE=0 stops at the first loss", "unset R2CC_MODE, or set it to 1, 2 or 3")
    chosen = environ.get("R2CC_SOCKET_IFNAME") or environ.get("NCCL_SOCKET_IFNAME")
    if chosen:
        name = "R2CC_SOCKET_IFNAME" if environ.get("R2CC_SOCKET_IFNAME") else "NCCL_SOCKET_IFNAME"
        yield note("environment", "", f"{name}={chosen} chooses the NICs", "make sure that it names two or more")


def _rails(seen: Seen) -> Iterator[Finding]:
    """Two hosts survive the loss of a NIC if they reach each other over two rails."""
    hosts = list(seen.surveys)
    if len(hosts) < 2 and len(hosts) + len(seen.errors) > 1:
        remedy = "make sure that the others can be reached"
        yield note("rails", "", "fewer than two hosts could be examined, so that no rail was tried", remedy)
        return
    if len(hosts) < 2:
        yield note("rails", "", "other hosts were not asked", "name several hosts to try the rails between them")
        return
    on = [{nic.endpoint.host for nic in rail} for rail in seen.rails]
    shared = {pair: sum(members >= set(pair) for members in on) for pair in combinations(hosts, 2)}
    for (one, other), count in shared.items():
        if count < 2:
            what = f"{one} and {other} reach each other by {'one rail only' if count else 'no rail'}"
            yield error("rails", "", what, "look at cables, VLANs, addresses and firewalls of their other NICs")
    if min(shared.values()) >= 2:
        yield ok("rails", "", f"all hosts reach each other by {min(shared.values())} rails or more")
