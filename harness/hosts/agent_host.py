"""A host behind an agent: implements `harness.hosts.base.Host` by the agent's requests.

Subclasses decide how the agent is reached: over SSH, or on this machine.
"""

import array
import base64
import json
import sys
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from harness.errors import CommandError, HostError, HostTimeoutError, UnreachableError, command_line
from harness.hosts.base import After, Argv, Completed, Nic, OnLine, Orders, Reading, Sample
from harness.hosts.links import Links, read_links
from harness.hosts.sampler import ROW
from harness.hosts.session import REPLY_TIMEOUT_S, AgentProcess, Channel, Session, source_of
from harness.hosts.watch import Watch

HEAL_S = 120.0
"""How long a host may take to heal everything that is armed or left on it."""


class AgentHost(ABC):
    """The common part of all hosts. `connect` opens one session, and everything else uses it."""

    def __init__(self, name: str, address: str, nics: Sequence[Nic]) -> None:
        self.name, self.address, self.nics = name, address, tuple(nics)
        self.management: str | None = None
        self.ssh_config: str | None = None
        self._session: Session | None = None
        self._watch: Watch | None = None
        self._connecting = threading.Lock()

    @abstractmethod
    def open_channel(self) -> Channel:
        """Starts the agent's loader on the host. Raises `UnreachableError`."""

    @property
    @abstractmethod
    def python(self) -> str:
        """The host's Python that runs the agent."""

    def connect(self) -> None:
        """Opens the connection and starts the agent; harmless twice."""
        with self._connecting:
            if self._session is None:
                session = Session(self.name, self.open_channel())
                session.open()
                self._session = session

    def close(self) -> None:
        """Ends the agent, which kills its processes and heals all armed faults; harmless twice."""
        with self._connecting:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def session(self) -> Session:
        """The open session."""
        if self._session is None:
            raise UnreachableError(self.name, "not connected; call connect() first")
        return self._session

    def run(self, argv: Argv, *, timeout_s: float = 60.0, check: bool = True) -> Completed:
        """Runs a command to its end. Raises `CommandError` (with `check`) and `HostTimeoutError`."""
        wait_s = timeout_s + REPLY_TIMEOUT_S
        done = self.session().call("run", timeout_s=wait_s, argv=list(argv), limit_s=timeout_s)
        if done["timed_out"]:
            raise HostTimeoutError(self.name, f"{command_line(argv)}: not ended within {timeout_s:g} s, killed")
        if check and done["returncode"]:
            raise CommandError(self.name, argv, done["returncode"], done["stderr"] or done["stdout"])
        return Completed(tuple(argv), done["returncode"], done["stdout"], done["stderr"])

    def start(self, argv: Argv, *, env: Mapping[str, str], on_line: OnLine) -> AgentProcess:
        """Starts a command; its lines go to `on_line`, its stdin is a pipe held open."""
        return self.session().start(argv, env, on_line)

    def sample_start(self, interval_s: float = 0.01) -> None:
        """Starts to sample the counters of all NICs."""
        nics = [nic.name for nic in self.nics]
        self.session().call("sample_start", nics=nics, interval_s=interval_s)

    def sample_closely(self) -> None:
        """Samples every millisecond until the next fault."""
        self.session().call("sample_closely")

    def sample_stop(self) -> list[Sample]:
        """Stops sampling; returns all samples since the start, by time."""
        told = self.session().call("sample_stop")
        return unpack_samples(told["nics"], told["rows"])

    def watch_start(self, pids: Mapping[str, int], interval_s: float = 0.1) -> None:
        """Starts to watch the host and the processes `pids`; ends a running watch."""
        if self._watch is not None:
            with suppress(HostError):
                self.watch_stop()
        self._watch = Watch(self.session(), [nic.name for nic in self.nics], pids, interval_s)

    def watch_stop(self) -> list[Reading]:
        """Ends the watch; returns all readings since its start, by time. Empty if none was running."""
        watch, self._watch = self._watch, None
        return [] if watch is None else watch.stop()

    def prepare(self, arm_id: str, orders: Orders, ttl_s: float) -> None:
        """Arms a detached healer that heals after `ttl_s`, and prepares `fire`."""
        self.session().call("prepare", arm=arm_id, orders=asdict(orders), healer=source_of("healer"), ttl_s=ttl_s)

    def fire(self, arm_id: str, after: After | None = None) -> tuple[int, int]:
        """Runs the prepared inject commands; returns the times right before the first and right after the last."""
        waits, limit_s = (asdict(after), after.limit_s) if after else (None, 0.0)
        before_ns, after_ns = self.session().call("fire", timeout_s=limit_s + HEAL_S, arm=arm_id, after=waits)
        return before_ns, after_ns

    def moved(self) -> dict[str, int]:
        """Bytes that each data NIC has moved since sampling began."""
        moved: dict[str, int] = self.session().call("moved")
        return moved

    def is_armed(self) -> bool:
        """Whether a living healer holds a fault on this host."""
        return any(entry["alive"] for entry in self.session().call("journal"))

    def heal_journal(self, *, all: bool) -> list[str]:  # noqa: A002  (as the command-line option is called)
        """Heals faults that were left armed; returns the names of the healed ones."""
        healed: list[str] = self.session().call("heal_journal", timeout_s=HEAL_S, all=all)
        return healed

    def heal(self, arm_id: str) -> int | None:
        """Heals now; returns the time at which this had ended, or None if nothing is armed under that name."""
        healed_ns: int | None = self.session().call("heal", timeout_s=HEAL_S, arm=arm_id)
        return healed_ns

    def claim(self, holder: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Claims the host's network for `holder` until the session ends; returns None, or the present holder. A
        `holder` of None releases it."""
        found: Mapping[str, Any] | None = self.session().call("claim", holder=None if holder is None else dict(holder))
        return found

    def clock_ns(self) -> int:
        """The host's clock now."""
        return int(self.session().call("clock"))

    def links(self) -> Links:
        """Its interfaces as they are now."""
        return read_links(self.ask(source_of("interfaces")))

    def reserved(self) -> frozenset[str]:
        """The interfaces that no fault may change."""
        return self.links().reserved()

    def ask(self, script: str, *arguments: str, timeout_s: float = 60.0) -> Any:
        """Runs a stand-alone Python file on the host; returns the JSON value that it prints. Raises `HostError`."""
        said = self.run([self.python, "-I", "-S", "-c", script, *arguments], timeout_s=timeout_s).stdout
        try:
            return json.loads(said)
        except ValueError:
            raise HostError(self.name, f"a script on it printed no JSON: {said[:80]!r}") from None


def unpack_samples(nics: Sequence[str], rows: str) -> list[Sample]:
    """The agent's rows (see its `Sampler`; compressed int64) as samples.

    Readings of a NIC that did not exist at the time are left out.
    """
    if not nics:
        return []
    values = array.array("q", zlib.decompress(base64.b64decode(rows)))
    if sys.byteorder != "little":
        values.byteswap()
    width = 1 + ROW * len(nics)
    samples = []
    for at in range(0, len(values), width):
        for i, nic in enumerate(nics):
            rx, tx, up, rdma_rx, rdma_tx = values[at + 1 + ROW * i : at + 1 + ROW * (i + 1)]
            if rx >= 0:
                rdma = (rdma_rx, rdma_tx) if min(rdma_rx, rdma_tx) >= 0 else (None, None)
                samples.append(Sample(values[at], nic, rx, tx, bool(up), *rdma))
    return samples
