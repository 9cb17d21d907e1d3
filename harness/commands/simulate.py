"""``harness simulate``: the time of an iteration of a SimAI workload, or of a Chakra trace, on hosts with lost NICs."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.table import Table

from harness.commands.cluster_options import MAX_HOSTS, ClusterOptions, alpha_of
from harness.errors import ExitCode
from harness.terminal import say, show
from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import chakra, simai
from r2ccl_core.jobs.chakra_run import replay
from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.simai_iteration import simai_iteration
from r2ccl_core.model.topology import Topology
from r2ccl_core.text_file import is_file, is_there

HEALTHY = "no failure"


@dataclass(frozen=True)
class Row:
    """One strategy's time on the hosts with their losses; ``parts`` are seconds by category."""

    strategy: str
    seconds: float
    parts: dict[str, float]


@dataclass(frozen=True)
class _Read:
    """A file: its ranks, and a function for its time on a network. A schedule is the same for every strategy."""

    ranks: int
    is_schedule: bool
    run: Callable[[Network], tuple[float, dict[str, float]]]


def simulate_command(
    file: Path,
    cluster: ClusterOptions,
    strategies: Sequence[str],
    alpha: str = "5us",
    pxn: bool = True,
    as_json: bool = False,
) -> int:
    """Prints a row for the healthy hosts, and one for each strategy on the hosts with their losses."""
    given = _read(file)
    topology = _topology(given, cluster, file)
    network = Network(topology, pxn=pxn, alpha_s=alpha_of(alpha))
    networks = [(HEALTHY, replace(network, topology=topology.healthy))]
    by_strategy = {name: replace(network, strategy=name) for name in strategies}  # an unknown one is always told
    if topology != topology.healthy:
        networks += [("this schedule", network)] if given.is_schedule else by_strategy.items()
    rows = [Row(name, *given.run(one)) for name, one in networks]
    if as_json:
        print(
            json.dumps({"schema": 1, "file": str(file), "hosts": topology.in_words(), "rows": list(map(asdict, rows))})
        )
    else:
        _print(file, topology, rows)
    return ExitCode.OK


def _read(file: Path) -> _Read:
    """A SimAI workload if the file exists, otherwise a Chakra trace of that name."""
    if file.suffix != ".et" and is_file(file):
        return _workload(file)
    rank = re.fullmatch(r"(.+)\.[0-9]+\.et", file.name)
    if rank is not None and not is_there(file):
        raise UsageError(f"{file}: there is no such file")
    stem = file.with_name(rank[1]) if rank is not None else file
    if not stem.name or not is_there(stem.with_name(f"{stem.name}.0.et")):
        raise UsageError(f"{file}: is neither a SimAI workload nor a Chakra trace; there is no {stem.name}.0.et")
    traces = chakra.read(stem)

    def run(network: Network) -> tuple[float, dict[str, float]]:
        found = replay(traces, network)
        return found.seconds, {"compute": found.compute_s}

    return _Read(len(traces), chakra.SCHEDULE in traces[0].about, run)


def _workload(file: Path) -> _Read:
    workload = simai.read_workload(file)

    def run(network: Network) -> tuple[float, dict[str, float]]:
        found = simai_iteration(file, workload, network)
        parts = ("compute", "bubble", "tensor", "pipeline", "expert", "data")
        return found.seconds, {part: getattr(found, f"{part}_s") for part in parts}

    return _Read(workload.values["all_gpus"], False, run)


def _topology(given: _Read, cluster: ClusterOptions, file: Path) -> Topology:
    """The described hosts; without a topology file, as many as the ranks need."""
    if cluster.file is None:
        if cluster.gpus < 1 or given.ranks % cluster.gpus or given.ranks < 2 * cluster.gpus:
            raise UsageError(
                f"--gpus {cluster.gpus}: the {given.ranks} ranks of {file} are not two or more hosts of so many GPUs; "
                f"give a divisor of {given.ranks} that is less than it"
            )
        if (hosts := given.ranks // cluster.gpus) > MAX_HOSTS:
            raise UsageError(
                f"--gpus {cluster.gpus}: the {given.ranks} ranks of {file} are {hosts} hosts of so many GPUs; at most "
                f"{MAX_HOSTS}, up to which the models were checked"
            )
        cluster = replace(cluster, hosts=hosts)
    topology = cluster.topology()
    if topology.nranks != given.ranks:
        raise UsageError(
            f"{file}: is of {given.ranks} ranks; the hosts of --topology {cluster.file} have {topology.nranks} GPUs"
        )
    return topology


def _print(file: Path, topology: Topology, rows: Sequence[Row]) -> None:
    say(f"{file}: {topology.in_words()}")
    parts = [part for part in rows[0].parts if any(row.parts[part] for row in rows)]
    shown = Table(box=None, pad_edge=False)
    shown.add_column("")
    for heading in ("ms", "/healthy", *(f"{part} ms" for part in parts)):
        shown.add_column(heading, justify="right")
    words = []
    for row in rows:
        times = {part: f"{1e3 * row.parts[part]:.3f}" for part in parts}
        ratio = f"{row.seconds / rows[0].seconds:.4f}" if rows[0].seconds else "-"
        shown.add_row(row.strategy, f"{1e3 * row.seconds:.3f}", ratio, *times.values())
        consists = ", ".join(f"{part} {ms}" for part, ms in times.items())
        words.append(f"{row.strategy}: {1e3 * row.seconds:.3f} ms, {ratio} of healthy ({consists})")
    show(shown, words)
