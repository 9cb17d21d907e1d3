"""The interface of a backend to the sweep: it turns a job and a rank into a command. Pure.

The program it names writes the event lines of `r2ccl_core.perf` on stdout, exits with 0 (ok), 1 (wrong elements), 2
(usage) or 3 (transport error), and exits by itself when its stdin ends.
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
    """Number of processes, one per host; each has `workload.gpus` ranks."""
    root: str
    nics: tuple[str, ...]
    expected_s: float
    """Expected duration of a healthy iteration."""
    env: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    """Addresses of the hosts on the management network, by rank."""
    every_nic: tuple[str, ...] = ()
    """The names of all hosts' data NICs, for a command that starts programs on all of them."""
    management: tuple[str, ...] = ()
    """The name of this host's management interface, if known."""
    every_management: tuple[str, ...] = ()
    """The names of all hosts' management interfaces."""
    ssh_config: str | None = None
    """The ssh configuration file with which the hosts' own ssh reaches the others; None: the user's own."""
    one_machine: bool = False
    """Whether all hosts are on one machine and share its GPUs; a host has as many as it has ranks."""
    ready_s: float = 0.0
    """How long the harness waits for all ranks to meet."""
    least_give_up_s: float = 3.0
    """What ``sweep.limits.give_up`` says."""
    sockets_carry_data: bool = True
    """Whether NCCL's own sockets carry the collectives; otherwise they only let its ranks meet."""


Witness = Literal["core", "counters", "nccl_log", "none"]
"""The source of evidence for the network that a backend's trial used: the ranks' core, the NICs' counters, NCCL's log,
or none."""


@dataclass(frozen=True)
class Command:
    """The command started on a host."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


HEALTHY_TIMES = 10
"""A library waits this many times as long for a collective as it should take."""


def give_up_s(job: Job, slower: float = 1.0) -> float:
    """The time-out, in seconds, for a collective, if it may take `slower` times what it should on the NICs alone.
    Libraries that would otherwise wait forever, or for minutes, get it so that they end with an error of their own."""
    return max(job.least_give_up_s, HEALTHY_TIMES * slower * job.expected_s)


class Backend(Protocol):
    """How ranks are started."""

    @property
    def witness(self) -> Witness:
        """The source of evidence for the network that was used."""
        ...

    @property
    def start_s(self) -> float:
        """Time of a processor that a rank takes until it is ready, beside what every trial takes."""
        ...

    def command(self, job: Job, rank: int) -> Command:
        """The command of one rank."""
        ...

    def missing(self, workload: Workload, python: str) -> str | None:
        """What this machine lacks to act as all hosts, with the remedy in the same line; None if nothing."""
        ...


TORCH_START_S = 2.5
"""`Backend.start_s` of a rank that loads PyTorch: a rank of `train_gloo` with two steps took 2.6 s of a processor (user
and system), of which 2.0 s were to load PyTorch (2.13 for processors, on two cores of a virtual machine)."""

NCCL_BETWEEN_HOSTS = {"NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
"""Makes NCCL use the network between hosts, which is under test, even where NVLink would reach."""


def nccl_sockets(job: Job) -> dict[str, str]:
    """The interfaces of NCCL's own sockets. If they carry the data, they use the data NICs; otherwise they use the
    others, where the failure of a data NIC cannot break what neither a plugin nor verbs can protect."""
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
    if "nccl" in library:
        return {**TORCH_NCCL, "NCCL_HOSTID": f"host{rank}"} | nccl_sockets(job)
    return {"GLOO_SOCKET_IFNAME": ",".join(job.nics)} if library in ("gloo", "torchft") and job.nics else {}


def rendezvous(job: Job, rank: int) -> dict[str, str]:
    """The environment by which ranks find each other and their NICs; variables of the system take precedence."""
    return {
        "R2CC_RANK": str(rank),
        "R2CC_SIZE": str(job.ranks),
        "R2CC_ROOT": job.root,
        # Exact names: as a prefix, eth1 would also match eth10, which may be the NIC that carries SSH.
        "R2CC_SOCKET_IFNAME": "=" + ",".join(job.nics) if job.nics else "",
        "R2CC_MODE": str(job.mode),
        **job.env,
    }
