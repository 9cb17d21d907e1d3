"""Surveys all hosts of an inventory at once: their state, their clocks, and which NIC reaches which.

Every host yields a result or an error. Nothing is changed there. `harness.cluster.checks` and
`harness.cluster.discover` interpret the results.
"""

import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from random import randrange
from typing import Any

from faults.registry import FAULTS
from harness.cluster.existing import management_address, ssh_host
from harness.cluster.inventory import Inventory, InventoryHost
from harness.errors import HostError
from harness.hosts.agent_host import AgentHost
from harness.hosts.base import Host
from harness.hosts.each import for_each
from harness.hosts.leftovers import find_leftovers
from harness.hosts.links import Links, read_links
from harness.hosts.session import source_of
from harness.hosts.ssh import SshHost

_ASKED = {
    "programs": sorted({program for fault in FAULTS.values() for program in fault.needs} | {"unshare"}),
    "features": {kind: fault.rehearsal for kind, fault in FAULTS.items() if fault.rehearsal},
}
"""The features that a survey tests: all programs and kernel features that any fault needs."""

PROBE_S = 2.0
"""How long silent NICs are probed; if all answer it ends sooner."""

SURVEY_S = 300.0
"""How long a survey may take: half a second on a host, minutes on a translated guest of a busy machine."""

START_S = 20.0
"""How long a Python may take to start on a busy host."""

PROBES_AT_ONCE = 800
"""Probes of one host at a time; they go as one word of a command, which Linux limits to 128 KiB."""

CLOCK_QUESTIONS = 5


@dataclass(frozen=True)
class Surveyed:
    """The survey of one host. `clock_error_s` is half the round trip, which limits the precision of the offset."""

    facts: Mapping[str, Any]
    """The output of `harness.cluster.survey`."""
    links: Links
    address: str
    """The address at which the others reach it on the management network."""
    clock_offset_s: float
    """Its clock minus ours."""
    clock_error_s: float


@dataclass(frozen=True)
class Remains:
    """The remains of faults on a host or a switch."""

    armed: bool
    """A living healer holds a fault: a sweep is in progress."""
    things: int
    """Qdiscs, filters and routes of ours."""


@dataclass(frozen=True)
class Endpoint:
    """One address on one interface of one host."""

    host: str
    nic: str
    address: str
    mtu: int = 1500


@dataclass(frozen=True)
class Probe:
    """One packet to send from one NIC to another: small (`size` 0) or of the given size in bytes."""

    source: Endpoint
    target: Endpoint
    bound: bool = True
    """It leaves through the source's NIC; otherwise by the routing table."""
    size: int = 0


@dataclass(frozen=True)
class Reached:
    """The result of a probe: the interface at which it arrived, or why it did not."""

    arrived_on: str | None
    rtt_us: int | None = None
    error: str | None = None


class Prober:
    """One host's part in an exchange of probes: it listens from the start, and sends when it is told to finish."""

    def __init__(self, host: Host, probes: Sequence[Probe], token: str, port: int) -> None:
        self._host, self._probes = host, probes
        self._lines: list[str] = []
        self._said: list[str] = []
        self._listening = threading.Event()
        targets = [
            {"nic": p.source.nic, "from": p.source.address, "to": p.target.address, "bound": p.bound, "size": p.size}
            for p in probes
        ]
        task = json.dumps({"port": port, "token": token, "limit_s": PROBE_S, "targets": targets})
        argv = [host.python, "-I", "-S", "-c", _script("probe.py"), task]
        self._process = host.start(argv, env={}, on_line=self._take)
        deadline_s = time.monotonic() + START_S
        while not self._listening.wait(0.05):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise HostError(host.name, f"the probe did not start: {' '.join(self._said[-1:]) or 'no answer'}")

    def finish(self) -> dict[Probe, Reached]:
        """Sends this host's probes, answers those of the others, ends, and returns the result of each."""
        self._process.close_stdin()
        status = self._process.wait(PROBE_S + START_S)
        if status != 0:
            raise HostError(self._host.name, f"the probe ended with status {status}: {' '.join(self._said[-1:])}")
        return {
            probe: Reached(told.get("on"), told.get("rtt_us"), told.get("error"))
            for probe, told in zip(self._probes, json.loads(self._lines[-1]), strict=True)
        }

    def _take(self, stream: str, line: str) -> None:
        (self._lines if stream == "stdout" else self._said).append(line)
        if line == "listening":
            self._listening.set()


class Place:
    """The hosts of an inventory, with a session to each that can be reached."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.entries: dict[str, InventoryHost] = {host.name: host for host in inventory.hosts}
        self.hosts: list[SshHost] = [ssh_host(host) for host in inventory.hosts]
        self.switches: list[SshHost] = [ssh_host(switch) for switch in inventory.switches]
        self.errors: dict[str, HostError] = {}
        """Why a host or a switch is not looked at, by its name."""

    def connect(self) -> None:
        """Logs in to all hosts at once. Hosts that cannot be reached are in `errors` from then on."""
        for group in (self.hosts, self.switches):
            self._keep_errors(for_each(group, lambda host: host.connect()))

    def close(self) -> None:
        """Ends the sessions."""
        for_each([*self.hosts, *self.switches], lambda host: host.close())

    def reached(self) -> list[SshHost]:
        """The hosts that have not failed yet."""
        return [host for host in self.hosts if host.name not in self.errors]

    def survey(self) -> dict[str, Surveyed]:
        """Every reached host's survey."""
        results = for_each(self.reached(), partial(_survey, self.entries))
        self._keep_errors(results)
        return {name: result for name, result in results.items() if isinstance(result, Surveyed)}

    def links(self) -> dict[str, Links]:
        """Every switch's interfaces."""
        results = for_each([s for s in self.switches if s.name not in self.errors], _links)
        self._keep_errors(results)
        return {name: result for name, result in results.items() if isinstance(result, Links)}

    def remains(self) -> dict[str, Remains]:
        """The remains of faults on every host and switch that could be examined."""
        places = [*self.reached(), *(s for s in self.switches if s.name not in self.errors)]
        results = for_each(places, _remains)
        self._keep_errors(results)
        return {name: result for name, result in results.items() if isinstance(result, Remains)}

    def probe(self, probes: Sequence[Probe]) -> dict[Probe, Reached]:
        """Sends all probes at the same time; those of hosts that fail meanwhile are left out."""
        own = {host.name: [probe for probe in probes if probe.source.host == host.name] for host in self.hosts}
        found: dict[Probe, Reached] = {}
        for first in range(0, max(map(len, own.values())), PROBES_AT_ONCE):
            part = slice(first, first + PROBES_AT_ONCE)
            found |= self._exchange({name: mine[part] for name, mine in own.items()})
        return found

    def _exchange(self, own: Mapping[str, Sequence[Probe]]) -> dict[Probe, Reached]:
        """One exchange: first all hosts listen, then all send."""
        token, port = secrets.token_hex(8), randrange(20_000, 32_000)
        started = for_each(self.reached(), lambda host: Prober(host, own[host.name], token, port))
        self._keep_errors(started)
        listening = {name: prober for name, prober in started.items() if isinstance(prober, Prober)}
        results = for_each(self.reached(), lambda host: listening[host.name].finish())
        self._keep_errors(results)
        found: dict[Probe, Reached] = {}
        for result in results.values():
            found |= result if isinstance(result, dict) else {}
        return found

    def _keep_errors(self, results: Mapping[str, object]) -> None:
        self.errors |= {name: result for name, result in results.items() if isinstance(result, HostError)}


@contextmanager
def looking_at(inventory: Inventory) -> Iterator[Place]:
    """The hosts of an inventory, with sessions that are closed at the end."""
    place = Place(inventory)
    try:
        place.connect()
        yield place
    finally:
        place.close()


def survey_here() -> tuple[dict[str, Any], Links]:
    """The same for this machine, without SSH: its survey's facts, and its interfaces. Raises `HostError`."""
    told: list[Any] = []
    for words in (("-c", _script("survey.py"), json.dumps(_ASKED)), ("-c", source_of("interfaces"))):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise HostError("this machine", (done.stderr.strip().splitlines() or ["its survey failed"])[-1])
        told.append(json.loads(done.stdout.splitlines()[-1]))
    facts, links = told
    return facts, read_links(links)


def _script(name: str) -> str:
    return files("harness.cluster").joinpath(name).read_text(encoding="utf-8")


def _survey(entries: Mapping[str, InventoryHost], host: Host) -> Surveyed:
    assert isinstance(host, AgentHost)
    said = host.run([host.python, "-c", _script("survey.py"), json.dumps(_ASKED)], timeout_s=SURVEY_S).stdout
    try:
        facts = json.loads(said.splitlines()[-1])
    except (ValueError, IndexError):
        raise HostError(host.name, f"its survey printed no JSON: {said[:80]!r}") from None
    links, (offset_s, error_s) = host.links(), _clock(host)
    return Surveyed(facts, links, management_address(entries[host.name], links), offset_s, error_s)


def _clock(host: AgentHost) -> tuple[float, float]:
    """Offset and its error in seconds, by the fastest of a few questions."""
    trips = []
    for _ in range(CLOCK_QUESTIONS):
        before_ns = time.time_ns()
        theirs_ns = host.clock_ns()
        after_ns = time.time_ns()
        trips.append((after_ns - before_ns, theirs_ns - (before_ns + after_ns) // 2))
    round_trip_ns, offset_ns = min(trips)
    return offset_ns / 1e9, round_trip_ns / 2e9


def _remains(host: Host) -> Remains:
    return Remains(host.is_armed(), len(find_leftovers(host)))


def _links(host: Host) -> Links:
    assert isinstance(host, AgentHost)
    return host.links()
