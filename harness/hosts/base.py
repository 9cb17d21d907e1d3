"""A host as the harness sees it: a name, an address, NICs, and a handful of operations.

Backends, sweeps and faults use only these protocols. `harness.hosts.ssh` reaches a host over SSH, `harness.hosts.noop`
is this machine without SSH; both drive the same agent (`harness.hosts.agent`). All times named `_ns` are the host's own
CLOCK_REALTIME.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from signal import Signals
from typing import Any, NamedTuple, Protocol

from faults.base import Slot

Argv = Sequence[str]
"""One command as the list of its words; it never passes through a shell."""

OnLine = Callable[[str, str], None]
"""Called with ('stdout' | 'stderr', line), in order, on the host's reader thread; it must return quickly."""


@dataclass(frozen=True)
class Nic:
    """One data NIC of a host. NICs of one rail reach each other; `rate_bit_s` is per direction.

    `switch` is the name of the cluster's switch that it is plugged into, `switch_port` the port's name there.
    """

    name: str
    rail: int
    address: str
    rate_bit_s: float | None = None
    switch: str | None = None
    """The switch that it is plugged into, if the cluster reaches it; else None."""
    switch_port: str | None = None
    slot: Slot | None = None
    """The slot from which it can be unplugged, on a virtual machine."""
    rdma: str | None = None
    """Its RDMA device, if the cluster names one."""


@dataclass(frozen=True)
class Completed:
    """A command that has ended. A negative `returncode` is the number of the signal that ended it."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class Sample(NamedTuple):
    """The counters of one NIC at one moment. `up` is the carrier: False while the link is down.

    They were read at `t_ns` or after, but before the next sample's `t_ns`.

    The kernel's byte counters do not include RDMA traffic that bypasses the kernel. The last two fields count it; they
    are None if the NIC has no RDMA port or if the port does not count (as Soft-RoCE's, whose bytes the kernel sees).
    """

    t_ns: int
    nic: str
    rx_bytes: int
    tx_bytes: int
    up: bool
    rdma_rx_bytes: int | None = None
    rdma_tx_bytes: int | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the interface did not exist."""
        return self.tx_bytes < 0

    @property
    def received(self) -> int:
        """Bytes received, by the kernel's network stack and by RDMA together."""
        return self.rx_bytes + (self.rdma_rx_bytes or 0)

    @property
    def sent(self) -> int:
        """Bytes sent, by the kernel's network stack and by RDMA together."""
        return self.tx_bytes + (self.rdma_tx_bytes or 0)


class Reading(NamedTuple):
    """One value of a host's watch at one moment; None: it could not be read. `reports.series` lists the metrics."""

    t_ns: int
    device: str
    metric: str
    value: float | None


@dataclass(frozen=True)
class Orders:
    """A fault's commands on one host; see `faults.base.Recipe`. A command with a '-' before its first word may fail."""

    inject: tuple[tuple[str, ...], ...] = ()
    heal: tuple[tuple[str, ...], ...] = ()
    repeat: tuple[tuple[float, tuple[str, ...]], ...] = ()
    beside: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class After:
    """The moment at which `nic` has moved, since `begin_ns`, `share` of the bytes of the `period_ns` before it."""

    nic: str
    begin_ns: int
    period_ns: int
    share: float
    limit_s: float
    """The longest wait."""


class RemoteProcess(Protocol):
    """A process that `Host.start` started; it lives in a process group of its own."""

    @property
    def pid(self) -> int:
        """Its process id on the host, which is also that of its process group."""
        ...

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit status, after its last line was delivered. Raises `HostTimeoutError`."""
        ...

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""
        ...

    def signal(self, sig: Signals) -> None:
        """Sends `sig` to its whole process group; harmless once it has ended."""
        ...

    def close_stdin(self) -> None:
        """Ends its standard input; harmless twice."""
        ...


class Host(Protocol):
    """One host. Methods may be called from several threads; each raises `HostError` or one of its kinds."""

    @property
    def name(self) -> str:
        """Its name in experiments and reports, unique in its cluster."""
        ...

    @property
    def address(self) -> str:
        """Its address on the management network; rank 0 listens there for the rendezvous."""
        ...

    @property
    def management(self) -> str | None:
        """The interface that has `address`; None if unknown."""
        ...

    @property
    def ssh_config(self) -> str | None:
        """The configuration file with which its own ssh reaches the other hosts; None: the user's own."""
        ...

    @property
    def nics(self) -> tuple[Nic, ...]:
        """Its data NICs by rail; the one that carries SSH is never among them."""
        ...

    def reserved(self) -> frozenset[str]:
        """The interfaces that carry its SSH session or a default route, with those above and below them."""
        ...

    @property
    def python(self) -> str:
        """The host's Python that runs the agent and, unless the experiment names another, the ranks."""
        ...

    def connect(self) -> None:
        """Opens the connection and starts the agent; harmless twice. Raises `UnreachableError`."""
        ...

    def close(self) -> None:
        """Ends the agent, which kills its processes and heals all armed faults; harmless twice."""
        ...

    def run(self, argv: Argv, *, timeout_s: float = 60.0, check: bool = True) -> Completed:
        """Runs a command to its end. Raises `CommandError` (with `check`) and `HostTimeoutError`."""
        ...

    def start(self, argv: Argv, *, env: Mapping[str, str], on_line: OnLine) -> RemoteProcess:
        """Starts a command; `env` is added to the agent's environment. Its stdin is a pipe, held open."""
        ...

    def sample_start(self, interval_s: float = 0.01) -> None:
        """Starts to sample the counters of all NICs; restarts a running sampling."""
        ...

    def sample_closely(self) -> None:
        """Samples every millisecond until the next `fire`, for 2 s at most; nothing if no sampling runs."""
        ...

    def sample_stop(self) -> list[Sample]:
        """Stops sampling; returns all samples since the start, by time. Empty if none was running."""
        ...

    def watch_start(self, pids: Mapping[str, int], interval_s: float = 0.1) -> None:
        """Starts to watch the host's state (`reports.series`) and the processes `pids`; ends a running watch."""
        ...

    def watch_stop(self) -> list[Reading]:
        """Ends the watch; returns all readings since its start, by time. Raises `HostError` if it reported nothing."""
        ...

    def prepare(self, arm_id: str, orders: Orders, ttl_s: float) -> None:
        """Arms a detached healer that heals `ttl_s` seconds from now, and prepares `fire`.

        The healer is a process in a session of its own: it outlives the agent, the SSH session and the harness.
        """
        ...

    def fire(self, arm_id: str, after: "After | None" = None) -> tuple[int, int]:
        """Runs the prepared inject commands; returns the times right before the first and right after the last.

        With `after`, it waits until a NIC of this host has moved that many bytes.
        """
        ...

    def moved(self) -> dict[str, int]:
        """Bytes that each data NIC has received and sent since sampling began."""
        ...

    def is_armed(self) -> bool:
        """Whether a living healer of any agent of this user holds a fault on this host."""
        ...

    def heal_journal(self, *, all: bool) -> list[str]:  # noqa: A002  (as the command-line option is called)
        """Heals faults left armed by agents that are gone, and with `all` also those of living healers; returns their
        names."""
        ...

    def heal(self, arm_id: str) -> int | None:
        """Runs the heal commands, disarms the healer; returns the time at which the last had ended. Idempotent.

        None if nothing is armed under that name, or no longer.
        """
        ...

    def claim(self, holder: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Claims the host's network for `holder` until the session ends; returns None, or the present holder (empty if
        it does not describe itself).

        A `holder` of None releases it. The kernel keeps the claim: it ends with the agent, for whatever reason.
        """
        ...

    def clock_ns(self) -> int:
        """The host's clock now, for measuring its offset."""
        ...
