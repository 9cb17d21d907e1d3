"""What a backend is to the sweep: a job of one rank in, a command in. Pure.

The program it names writes the event lines of `r2ccl_core.perf` on stdout, ends with 0 (ok), 1 (wrong
elements), 2 (usage) or 3 (transport error), and ends by itself when its stdin ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from harness.workloads.base import Workload


@dataclass(frozen=True)
class Job:
    """One trial as its ranks see it. `root` is ``host:port``, where rank 0 listens for the others."""

    python: str
    workload: Workload
    size_bytes: int
    iterations: int
    warmup: int
    mode: int
    ranks: int
    """Processes, one a host; each has `workload.gpus` ranks."""
    root: str
    nics: tuple[str, ...]
    expected_s: float
    """Expected duration of a healthy iteration."""
    env: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    """Of the hosts on the management network, by rank."""
    every_nic: tuple[str, ...] = ()
    """The names of all hosts' data NICs, for what one command starts on all of them."""
    management: tuple[str, ...] = ()
    """The name of this host's interface beside its data NICs, as far as it is known."""
    every_management: tuple[str, ...] = ()
    """The same of all hosts."""
    ssh_config: str | None = None
    """The file with which the hosts' own ssh reaches the others; None: the user's own."""
    one_machine: bool = False
    """Whether all hosts are one machine, and share its GPUs out: a host has as many as it has ranks."""
    ready_s: float = 0.0
    """How long the harness waits until all ranks have met."""
    sockets_carry_data: bool = True
    """Whether NCCL's own sockets carry the collectives; else they only let its ranks meet."""


Witness = Literal["core", "counters", "nccl_log", "none"]
"""What says which network a backend's trial used: the ranks' core, the NICs' counters, NCCL's log, nothing."""


@dataclass(frozen=True)
class Command:
    """What is started on a host."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


_LEAST_GIVE_UP_S = 3.0
_HEALTHY_TIMES = 10


def give_up_s(expected_s: float) -> float:
    """After how long a collective that should take `expected_s` is given up by libraries which would wait for ever,
    or for minutes: so that they end with an error of their own."""
    return max(_LEAST_GIVE_UP_S, _HEALTHY_TIMES * expected_s)


class Backend(Protocol):
    """How ranks are started."""

    @property
    def witness(self) -> Witness:
        """What says which network was used."""
        ...

    def command(self, job: Job, rank: int) -> Command:
        """The command of one rank."""
        ...

    def missing(self, workload: Workload, python: str) -> str | None:
        """What this machine lacks to be all hosts, with the remedy in the same line; None if nothing."""
        ...


NCCL_BETWEEN_HOSTS = {"NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
"""Between hosts there is a network to be tested, even where NVLink would reach."""


def nccl_sockets(job: Job) -> dict[str, str]:
    """Where NCCL's own sockets are: on the data NICs where they carry the data; else beside them, where no failure of
    a data NIC breaks what a plugin or verbs cannot protect."""
    if not job.nics:
        return {}
    if job.sockets_carry_data:
        return {"NCCL_SOCKET_IFNAME": "=" + ",".join(job.nics)}
    if job.management:
        return {"NCCL_SOCKET_IFNAME": "=" + ",".join(job.management)}
    return {"NCCL_SOCKET_IFNAME": "^=" + ",".join(("lo", "docker0", *(job.every_nic or job.nics)))}


TORCH_NCCL = {**NCCL_BETWEEN_HOSTS, "TORCH_NCCL_BLOCKING_WAIT": "1"}
"""A collective that is given up is an error in the program, where torch would otherwise end the process."""


def torch_network(library: str, job: Job, rank: int) -> dict[str, str]:
    """The interfaces of the sockets of one of torch.distributed's back ends; and for NCCL, that every rank is a host,
    also where hosts are namespaces."""
    if library == "nccl":
        return {**TORCH_NCCL, "NCCL_HOSTID": f"host{rank}"} | nccl_sockets(job)
    return {"GLOO_SOCKET_IFNAME": ",".join(job.nics)} if library in ("gloo", "torchft") and job.nics else {}


def rendezvous(job: Job, rank: int) -> dict[str, str]:
    """The environment by which ranks find each other and their NICs; the system's own wins."""
    return {
        "R2CC_RANK": str(rank),
        "R2CC_SIZE": str(job.ranks),
        "R2CC_ROOT": job.root,
        # Exact names: as a prefix, eth1 would be eth10, too, which may be the NIC that carries SSH.
        "R2CC_SOCKET_IFNAME": "=" + ",".join(job.nics) if job.nics else "",
        "R2CC_MODE": str(job.mode),
        **job.env,
    }
