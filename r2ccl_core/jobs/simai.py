"""Reads and writes SimAI's text files: workloads, and topologies, in which a lost NIC is a missing link.

Workload: a header of keys and values, the number of layers, then one line per layer with twelve fields: name,
dependency, and for forward, backward and weight gradient the computation in ns, the collective and its bytes, then the
update's time. Topology: counts and the GPU's type, the switches' ids, then one line per link: both ends, bandwidth,
latency, errors.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from r2ccl_core.errors import UnitError, UsageError
from r2ccl_core.model.topology import Host, Nic, Topology
from r2ccl_core.text_file import text_of
from r2ccl_core.units import parse_rate

HEADER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
KEYS = ("model_parallel_NPU_group", "ep", "pp", "vpp", "ga", "all_gpus", "checkpoints", "checkpoint_initiates")
COLLECTIVES = ("NONE", "ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL")
SUFFIXES = ("", "_EP", "_DP_EP")
FIELDS = 12


@dataclass(frozen=True)
class Pass:
    """One pass over a layer: computation, then a collective of this many bytes (``NONE``: none)."""

    compute_ns: int
    collective: str
    size_bytes: int


@dataclass(frozen=True)
class Layer:
    """Forward, backward and weight gradient of a layer, and the number of its line in the file."""

    name: str
    dependency: int
    forward: Pass
    backward: Pass
    weights: Pass
    update_ns: int
    line: int = field(compare=False)


@dataclass(frozen=True)
class Workload:
    """The header's values by key, including ``pp_comm`` if the file has it, and the layers in order."""

    values: dict[str, int]
    layers: tuple[Layer, ...]
    pipeline_bytes: int | None = None


def read_workload(path: Path) -> Workload:
    """The workload; raises `UsageError` with file and line if the file is not one."""
    lines = _lines(path)
    values, pipeline_bytes = _header(path, lines[0])
    try:
        count = int(lines[1])
    except (IndexError, ValueError):
        raise UsageError(f"{path}:2: the number of layers is missing") from None
    rows = [(number, line) for number, line in enumerate(lines[2:], start=3) if line.strip()]
    if len(rows) != count:
        raise UsageError(f"{path}:2: {count} layers are announced, {len(rows)} follow")
    return Workload(values, tuple(_layer(path, number, line.split()) for number, line in rows), pipeline_bytes)


def write_workload(workload: Workload) -> str:
    """The text of the file."""
    head = [HEADER, *(f"{key}: {workload.values[key]}" for key in KEYS)]
    head += [] if workload.pipeline_bytes is None else [f"pp_comm: {workload.pipeline_bytes}"]
    rows = [" ".join(head), str(len(workload.layers))]
    for layer in workload.layers:
        passes = (layer.forward, layer.backward, layer.weights)
        told = (f"{one.compute_ns}\t{one.collective}\t{one.size_bytes}" for one in passes)
        rows.append("\t".join([layer.name, str(layer.dependency), *told, str(layer.update_ns)]))
    return "\n".join(rows) + "\n"


def write_topology(topology: Topology, gpu: str = "H100", latency: str = "0.0005ms") -> str:
    """Hosts of GPUs with a NIC each: a switch for each host's NVLink and one for each rail; lost NICs have no link."""
    gpus = topology.hosts[0].gpus
    if any(host.gpus != gpus or len(host.nics) != gpus for host in topology.hosts):
        raise UsageError("SimAI's topologies have one NIC a GPU, and equally many in all hosts")
    ranks, hosts = topology.nranks, topology.nhosts
    links = []
    for rank, number in enumerate(topology.host_of_rank):
        host, place = topology.hosts[number], rank % gpus
        links.append((rank, ranks + number, host.inner_rate_bytes_s))
        if (nic := host.nics[place]).remaining > 0:
            links.append((rank, ranks + hosts + nic.rail, nic.usable_bytes_s))
    rails = max(nic.rail for host in topology.hosts for nic in host.nics) + 1
    switches = range(ranks, ranks + hosts + rails)
    head = f"{switches.stop} {gpus} {hosts} {rails} {len(links)} {gpu}"
    told = (f"{a} {b} {rate * 8 / 1e9:g}Gbps {latency} 0" for a, b, rate in links)
    return "\n".join([head, " ".join(map(str, switches)), *told]) + "\n"


def read_topology(path: Path) -> Topology:
    """The hosts of such a file. A GPU without a link to a rail has lost its NIC; a slower link is a slowed NIC.

    Raises `UsageError` with file and line, also if a host has no path to the others.
    """
    lines = _lines(path)
    head = lines[0].split()
    try:
        nodes, gpus, inner, outer, count = map(int, head[:5])
    except ValueError:
        raise UsageError(f"{path}:1: {lines[0]!r} has not five counts and a GPU's type") from None
    ranks = nodes - inner - outer
    if gpus < 1 or inner < 1 or ranks != inner * gpus:
        raise UsageError(f"{path}:1: {nodes} nodes are not {inner} hosts of {gpus} GPUs with {inner + outer} switches")
    numbered = list(_links(path, lines[2:], nodes))
    links = [link for _, link in numbered]
    if len(links) != count:
        raise UsageError(f"{path}:1: {count} links are announced, {len(links)} follow")
    _check_links(path, numbered, ranks, gpus, inner)
    first_line = {a // gpus: number for number, (a, _, _) in reversed(numbered)}
    rails = {a: (b - ranks - inner, rate) for a, b, rate in links if a < ranks and b >= ranks + inner}
    inner_rate = {a // gpus: rate for a, b, rate in links if a < ranks <= b < ranks + inner}
    for host in range(inner):
        where = f"{path}:{first_line.get(host, 1)}"
        if not any(rank in rails for rank in range(host * gpus, (host + 1) * gpus)):
            raise UsageError(f"{where}: host {host} has no link to a switch, so no path to the others")
        if host not in inner_rate:
            raise UsageError(f"{where}: the GPUs of host {host} have no link to each other")
    full = max(rate for _, rate in rails.values())
    hosts = []
    for host in range(inner):
        own = [rails.get(host * gpus + place, (place, 0.0)) for place in range(gpus)]
        nics = tuple(Nic(rail, full, place * 2 // gpus, rate / full) for place, (rail, rate) in enumerate(own))
        hosts.append(Host(nics, gpus, inner_rate[host]))
    return Topology(tuple(hosts))


def _lines(path: Path) -> list[str]:
    try:
        lines = text_of(path).splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a text file of SimAI") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no text; give a text file of SimAI") from error
    if not lines:
        raise UsageError(f"{path}: is empty")
    return lines


def _header(path: Path, line: str) -> tuple[dict[str, int], int | None]:
    if not line.startswith(HEADER):
        raise UsageError(f"{path}:1: begins with {line[:40]!r}, not with {HEADER}")
    found = {key: int(value) for key, value in re.findall(r"(\w+):?\s+(\d+)", line.removeprefix(HEADER))}
    missing = [key for key in KEYS[:6] if key not in found]
    if missing:
        raise UsageError(f"{path}:1: {', '.join(missing)} missing")
    _check_degrees(path, found)
    return {key: found.get(key, 0) for key in KEYS}, found.get("pp_comm")


def _check_degrees(path: Path, values: Mapping[str, int]) -> None:
    """Groups of GPUs have one size each."""
    for key in ("model_parallel_NPU_group", "ep", "pp", "all_gpus"):
        if values[key] < 1:
            raise UsageError(f"{path}:1: {key} is {values[key]}; it must be 1 or more")
    tensor, stages, gpus = values["model_parallel_NPU_group"], values["pp"], values["all_gpus"]
    if gpus % (tensor * stages):
        raise UsageError(f"{path}:1: tensor {tensor} x pipeline {stages} does not divide all_gpus = {gpus}")
    if gpus // stages % values["ep"]:
        raise UsageError(f"{path}:1: ep = {values['ep']} does not divide the {gpus // stages} GPUs of a stage")


def _layer(path: Path, number: int, fields: Sequence[str]) -> Layer:
    where = f"{path}:{number}"
    if len(fields) != FIELDS:
        raise UsageError(f"{where}: {len(fields)} fields, a layer has {FIELDS}")
    passes = []
    for at in (2, 5, 8):
        compute, collective, size = fields[at : at + 3]
        if not any(collective == one + suffix for one in COLLECTIVES for suffix in SUFFIXES):
            raise UsageError(
                f"{where}: the collective {collective!r} is unknown; it is one of {', '.join(COLLECTIVES)}"
            )
        passes.append(Pass(_count(where, compute), collective, _count(where, size)))
    try:
        dependency = int(fields[1])
    except ValueError:
        raise UsageError(f"{where}: the dependency {fields[1]!r} is no number") from None
    forward, backward, weights = passes
    return Layer(fields[0], dependency, forward, backward, weights, _count(where, fields[11]), number)


def _count(where: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{where}: {text!r} is not a count")
    return int(text)


def _links(path: Path, lines: Sequence[str], nodes: int) -> Iterator[tuple[int, tuple[int, int, float]]]:
    """Every link, the lower node first, with the number of its line."""
    for number, line in enumerate(lines, start=3):
        fields = line.split()
        if not fields:
            continue
        where = f"{path}:{number}"
        if len(fields) != 5:
            raise UsageError(f"{where}: {len(fields)} fields, a link has 5")
        ends = sorted(_count(where, end) for end in fields[:2])
        if ends[1] >= nodes:
            raise UsageError(f"{where}: node {ends[1]} does not exist; there are {nodes}")
        try:
            rate = parse_rate(fields[2]) / 8
        except UnitError as error:
            raise UsageError(f"{where}: {error}") from None
        if not rate:
            raise UsageError(f"{where}: a link of {fields[2]}; leave out the line of a lost link")
        yield number, (ends[0], ends[1], rate)


def _check_links(
    path: Path, numbered: Sequence[tuple[int, tuple[int, int, float]]], ranks: int, gpus: int, inner: int
) -> None:
    """A GPU has one link to its host's switch and one to a rail's at most; what is behind the switches does not
    matter."""
    seen: dict[tuple[int, bool], int] = {}
    for number, (a, b, _) in numbered:
        where = f"{path}:{number}"
        if a == b:
            raise UsageError(f"{where}: node {a} is linked to itself")
        if a >= ranks:
            continue
        if b < ranks:
            raise UsageError(f"{where}: GPUs {a} and {b} are linked without a switch")
        rail = b >= ranks + inner
        if not rail and b - ranks != a // gpus:
            raise UsageError(f"{where}: GPU {a} of host {a // gpus} is linked to the inner switch of host {b - ranks}")
        if (a, rail) in seen:
            what = "to a rail" if rail else "inside its host"
            raise UsageError(f"{where}: GPU {a} has a second link {what}; line {seen[a, rail]} has the first")
        seen[a, rail] = number
