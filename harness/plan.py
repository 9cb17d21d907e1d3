"""``harness plan``: what every algorithm would take on a cluster with lost NICs, and which one to use."""

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.cluster.spec import MAX_NICS
from harness.errors import ExitCode
from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import chakra
from r2ccl_core.jobs.simai import read_topology, write_topology
from r2ccl_core.planner import as_record, explain, plan
from r2ccl_core.topology import Topology, parse_lost
from r2ccl_core.units import parse_duration, parse_rate, parse_size

MAX_HOSTS = 1024
MAX_BYTES = 1 << 60


def plan_command(
    hosts: Annotated[int, typer.Option(help="Number of hosts.")] = 3,
    nics: Annotated[int, typer.Option(help="NICs per host.")] = 3,
    lost: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:NIC[:REMAINING]", help="A lost NIC, or a slowed one; may be repeated."),
    ] = None,
    size: Annotated[str, typer.Option(help="Bytes of the vector.")] = "1GiB",
    rate: Annotated[str, typer.Option(help="Rate of a NIC.")] = "100Gbit/s",
    alpha: Annotated[str, typer.Option(help="Fixed cost of a message.")] = "20us",
    gpus: Annotated[int, typer.Option(help="GPUs per host.")] = 1,
    collective: Annotated[str, typer.Option(help="The collective.")] = "all_reduce",
    operations: Annotated[
        int | None,
        typer.Option(help="Collectives still to come: a schedule that pays back its switch is taken, however little."),
    ] = None,
    topology_file: Annotated[
        Path | None,
        typer.Option("--topology", metavar="FILE", help="SimAI's file of a cluster, instead of hosts, NICs and rate."),
    ] = None,
    chakra_folder: Annotated[
        Path | None,
        typer.Option("--chakra", metavar="FOLDER", help="Write the chosen schedule as Chakra traces, a file a rank."),
    ] = None,
    simai_file: Annotated[
        Path | None,
        typer.Option(
            "--simai", metavar="FILE", help="Write the cluster for SimAI: lost NICs are links that are not there."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Predict every algorithm's time beside the lower bound, and choose one."""
    if hosts > MAX_HOSTS:
        raise UsageError(f"--hosts {hosts}: at most {MAX_HOSTS}, the size up to which the models were checked")
    if hosts < 2:
        raise UsageError(f"--hosts {hosts}: a plan is about the network; give 2 or more")
    if nics > MAX_NICS:
        raise UsageError(f"--nics {nics}: at most {MAX_NICS}, as in experiments")
    for option, count in (("--nics", nics), ("--gpus", gpus)):
        if count < 1:
            raise UsageError(f"{option} {count}: give 1 or more")
    if operations is not None and operations < 0:
        raise UsageError(f"--operations {operations}: give 0 or more")
    if (rate_bit_s := parse_rate(rate)) <= 0:
        raise UsageError(f"--rate {rate}: must be more than 0")
    size_bytes = parse_size(size)
    if size_bytes < 1:
        raise UsageError(f"--size {size}: there is nothing to plan; give a byte or more")
    if size_bytes > MAX_BYTES:
        raise UsageError(f"--size {size}: at most 1 EiB")
    topology = (
        read_topology(topology_file) if topology_file else Topology.uniform(hosts, nics, rate_bit_s / 8, gpus=gpus)
    )
    named: set[tuple[int, int]] = set()
    for text in lost or []:
        host, nic, remaining = parse_lost(text)
        if (host, nic) in named:
            raise UsageError(f"--lost {text}: NIC {nic} of host {host} is named already; name each NIC once")
        named.add((host, nic))
        topology = topology.slowed(host, nic, remaining)
    result = plan(topology, collective, size_bytes, parse_duration(alpha), operations=operations)
    print(json.dumps(as_record(result), indent=2) if as_json else explain(result))
    if simai_file:
        _write(simai_file, write_topology(topology))
    if chakra_folder:
        chakra.write(result.schedule(), size_bytes, chakra_folder)
    return ExitCode.OK


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"--simai {path}: cannot be written ({error.strerror}); give another file") from error
