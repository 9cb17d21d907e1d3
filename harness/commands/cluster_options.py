"""The options that describe a cluster and a collective, and the cluster: equal hosts or a file of SimAI's, without the
NICs that are lost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from r2ccl_core.errors import UsageError
from r2ccl_core.model.topology import Topology, parse_lost
from r2ccl_core.units import parse_duration, parse_rate, parse_size

T = TypeVar("T")
MAX_HOSTS = 16_384
"""The largest cluster whose schedules were simulated (`r2ccl_core.perf.scale`)."""
MAX_GPUS = 128
"""More than any host has, or any domain of NVLink, which counts as a host here."""
MAX_BYTES = 1 << 60
MIN_RATE_BIT_S, MAX_RATE_BIT_S = 1e3, 100e12
"""No link of a cluster is slower, and no NIC of the next years faster. Experiments have narrower limits, which are
those of their NICs' token buckets."""
MIN_ALPHA_S, MAX_ALPHA_S = 1e-9, 1e3
"""Light passes 30 cm in the least, and no network needs minutes for a message. 0 is a model without fixed costs."""

Lost = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:NIC[:REMAINING]", help="A lost NIC, or a slowed one; may be repeated."),
]
Hosts = Annotated[int, typer.Option(help="Number of hosts.")]
Nics = Annotated[int, typer.Option(help="NICs per host.")]
Gpus = Annotated[int, typer.Option(help="GPUs per host.")]
Rate = Annotated[str, typer.Option(help="Rate of a NIC.")]
Size = Annotated[str, typer.Option(help="Bytes of the vector.")]
Alpha = Annotated[str, typer.Option(help="Fixed cost of a message.")]
Collective = Annotated[str, typer.Option(help="The collective.")]
TopologyFile = Annotated[
    Path | None,
    typer.Option("--topology", metavar="FILE", help="SimAI's file of a cluster, instead of hosts, NICs and rate."),
]


@dataclass(frozen=True)
class ClusterOptions:
    """The given options; ``file`` replaces hosts, NICs, rate and GPUs."""

    hosts: int = 3
    nics: int = 3
    gpus: int = 1
    rate: str = "100Gbit/s"
    lost: Sequence[str] = ()
    file: Path | None = None

    def topology(self) -> Topology:
        """The hosts with their losses; `UsageError` names the option that is wrong."""
        return self._poorer(self._whole())

    def _whole(self) -> Topology:
        from harness.cluster.spec import MAX_NICS

        if self.file is not None:
            from r2ccl_core.jobs.simai import read_topology

            return read_topology(self.file)
        if self.hosts > MAX_HOSTS:
            raise UsageError(f"--hosts {self.hosts}: at most {MAX_HOSTS}, up to which the models were checked")
        if self.hosts < 2:
            raise UsageError(f"--hosts {self.hosts}: a plan is about the network; give 2 or more")
        if self.nics > MAX_NICS:
            raise UsageError(f"--nics {self.nics}: at most {MAX_NICS}, as in experiments")
        if self.gpus > MAX_GPUS:
            raise UsageError(f"--gpus {self.gpus}: at most {MAX_GPUS}")
        for option, count in (("--nics", self.nics), ("--gpus", self.gpus)):
            if count < 1:
                raise UsageError(f"{option} {count}: give 1 or more")
        return Topology.uniform(self.hosts, self.nics, _rate_of(self.rate) / 8, gpus=self.gpus)

    def _poorer(self, topology: Topology) -> Topology:
        named: set[tuple[int, int]] = set()
        for text in self.lost:
            host, nic, _ = parse_lost(text)
            if (host, nic) in named:
                raise UsageError(f"--lost {text}: NIC {nic} of host {host} is named already; name each NIC once")
            named.add((host, nic))
            topology = read_option("--lost", partial(_slowed, topology), text)
            if topology.hosts[host].usable_bytes_s <= 0:
                raise UsageError(
                    f"--lost {text}: host {host} has no NIC left, and no schedule can reach it; leave it out, or slow "
                    f"the NIC instead of losing it, as {host}:{nic}:0.5"
                )
        return topology


def _slowed(topology: Topology, text: str) -> Topology:
    return topology.slowed(*parse_lost(text))


def read_option(option: str, read: Callable[[str], T], text: str) -> T:
    """Parses an option's text with `read`. The error starts with the option's name."""
    try:
        return read(text)
    except UsageError as error:
        raise UsageError(f"{option} {text}: {str(error).removeprefix(f'{text!r} ')}") from error


def _rate_of(text: str) -> float:
    rate_bit_s = read_option("--rate", parse_rate, text)
    if not MIN_RATE_BIT_S <= rate_bit_s <= MAX_RATE_BIT_S:
        raise UsageError(f"--rate {text}: give 1 kbit/s to 100 Tbit/s")
    return rate_bit_s


def alpha_of(text: str) -> float:
    """The fixed cost of a message in seconds, from ``--alpha``."""
    alpha_s = read_option("--alpha", parse_duration, text)
    if alpha_s and not MIN_ALPHA_S <= alpha_s <= MAX_ALPHA_S:
        raise UsageError(f"--alpha {text}: give 0 s, or 1 ns to 1000 s")
    return alpha_s


def size_of(text: str) -> int:
    """The bytes of the vector, from ``--size``."""
    size_bytes = read_option("--size", parse_size, text)
    if size_bytes < 1:
        raise UsageError(f"--size {text}: there is nothing to plan; give a byte or more")
    if size_bytes > MAX_BYTES:
        raise UsageError(f"--size {text}: at most 1 EiB")
    return size_bytes
