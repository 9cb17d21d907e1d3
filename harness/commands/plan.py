"""``harness plan``: what every algorithm would take on a cluster with lost NICs, and which one to use."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from harness.cluster.spec import MAX_NICS
from harness.errors import ExitCode
from harness.terminal import say
from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import chakra
from r2ccl_core.jobs.simai import read_topology, write_topology
from r2ccl_core.model.topology import Topology, parse_lost
from r2ccl_core.planning.planner import as_record, explain, plan
from r2ccl_core.units import parse_duration, parse_rate, parse_size

T = TypeVar("T")
MAX_HOSTS = 1024
MAX_BYTES = 1 << 60


def plan_command(
    hosts: int = 3,
    nics: int = 3,
    lost: Sequence[str] = (),
    size: str = "1GiB",
    rate: str = "100Gbit/s",
    alpha: str = "20us",
    gpus: int = 1,
    collective: str = "all_reduce",
    operations: int | None = None,
    topology_file: Path | None = None,
    chakra_folder: Path | None = None,
    simai_file: Path | None = None,
    as_json: bool = False,
) -> int:
    """Predict every algorithm's time beside the lower bound, and choose one; `harness plan --help` tells the rest."""
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
    if (rate_bit_s := _read("--rate", parse_rate, rate)) <= 0:
        raise UsageError(f"--rate {rate}: must be more than 0")
    size_bytes = _read("--size", parse_size, size)
    if size_bytes < 1:
        raise UsageError(f"--size {size}: there is nothing to plan; give a byte or more")
    if size_bytes > MAX_BYTES:
        raise UsageError(f"--size {size}: at most 1 EiB")
    topology = (
        read_topology(topology_file) if topology_file else Topology.uniform(hosts, nics, rate_bit_s / 8, gpus=gpus)
    )
    named: set[tuple[int, int]] = set()
    for text in lost:
        host, nic, _ = parse_lost(text)
        if (host, nic) in named:
            raise UsageError(f"--lost {text}: NIC {nic} of host {host} is named already; name each NIC once")
        named.add((host, nic))
        topology = _read("--lost", partial(_slowed, topology), text)
    result = plan(topology, collective, size_bytes, _read("--alpha", parse_duration, alpha), operations=operations)
    if simai_file:
        _write(simai_file, write_topology(topology))
    if chakra_folder:
        chakra.write(result.schedule(), size_bytes, chakra_folder)
    if as_json:
        print(json.dumps(as_record(result), indent=2))
        return ExitCode.OK
    for line in explain(result).splitlines():
        # A table: what does not fit goes on in the column of its last words.
        chosen = line.startswith(("*", "chosen:"))
        say(line, style="bold green" if chosen else "", indent=" " * 8)
    return ExitCode.OK


def _slowed(topology: Topology, text: str) -> Topology:
    return topology.slowed(*parse_lost(text))


def _read(option: str, read: Callable[[str], T], text: str) -> T:
    """What `read` makes of an option's text; what is wrong with it begins with the option's name."""
    try:
        return read(text)
    except UsageError as error:
        raise UsageError(f"{option} {text}: {str(error).removeprefix(f'{text!r} ')}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"--simai {path}: cannot be written ({error.strerror}); give another file") from error
