"""The parts that stay up over a whole sweep: hosts with open sessions, the backend, clock offsets, and the time from a
fault's trigger to its effect.

A trial pays for none of it.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from harness.backends.base import Backend, Command, Job
from harness.backends.registry import BACKENDS
from harness.errors import HostError, UnhealthyError
from harness.experiment.model import Experiment
from harness.hosts.base import Host, Nic, Sample
from harness.hosts.each import all_results, for_each
from harness.sweep.clock import Clock, Exchange, offset_of
from harness.sweep.fault_timing import Latencies
from harness.sweep.owner import Owner
from harness.sweep.plan import Trial
from harness.systems.catalogue import sockets_carry_data

EXCHANGES = 6
"""Questions for a host's time in one measurement of its clock."""
CLOCKS_EVERY_S = 2.0
"""No trial begins with clocks measured longer ago than this; after a longer trial they are measured again."""

RETURN_S = 300.0
"""How long a host may take from its restart to a log-in: a translated guest on a busy machine takes minutes."""
AGAIN_S = 0.5

CHECK_INTERVAL_S = 0.004
CHECK_S = 0.012
"""A check samples the counters at this interval and for this long: at least two samples of every NIC."""


@dataclass
class HostTestbed:
    """One sweep's hosts; rank r runs on ``hosts[r]``."""

    experiment: Experiment
    hosts: Sequence[Host]
    switches: Sequence[Host] = ()
    """The places where faults on switch ports run."""
    clocks: dict[str, Clock] = field(default_factory=dict)
    """Per host or switch: its clock against ours, by all measurements so far."""
    latencies: Latencies = field(default_factory=Latencies)
    trials_begun: int = 0
    tell: Callable[[str, Mapping[str, Any]], None] = lambda event, fields: None
    """Called with events inside a trial, for the sweep's progress: ``step`` and ``fault``."""

    def set_up_for(self, trial: Trial) -> None:
        """Switches to the experiment at `trial`'s point of the axes; the hosts stay."""
        self.experiment = trial.variant.experiment

    def backend(self, trial: Trial) -> Backend:
        """The backend that runs the ranks of `trial`."""
        return BACKENDS[self.experiment.backend_of(trial.system)]

    def host(self, name: str) -> Host:
        """The host of that name."""
        return next(h for h in self.hosts if h.name == name)

    @property
    def places(self) -> dict[str, Host]:
        """Hosts and switches by name."""
        return {place.name: place for place in (*self.hosts, *self.switches)}

    def place(self, name: str) -> Host:
        """The host or switch of that name. Raises `HostError` for a switch that the cluster only names."""
        if name not in self.places:
            raise HostError(name, "is named as a switch of the cluster, but cannot be reached; give it an SSH address")
        return self.places[name]

    @property
    def data_nics(self) -> dict[str, tuple[Nic, ...]]:
        """The data NICs of every host, in the order of ranks."""
        return {host.name: host.nics for host in self.hosts}

    @property
    def nic_names(self) -> tuple[str, ...]:
        """The names of all hosts' data NICs, each once."""
        return tuple(dict.fromkeys(nic.name for host in self.hosts for nic in host.nics))

    def offset_ns(self, host: str) -> int:
        """That host's or switch's clock minus ours, now."""
        return self.clock(host).at(time.time_ns()).offset_ns

    def clock(self, host: str) -> Clock:
        """That host's or switch's clock; ours if it was never measured."""
        return self.clocks.get(host, Clock())

    def job(self, trial: Trial) -> Job:
        """The work of the ranks in the next run of `trial`; every call takes a new port."""
        self.trials_begun += 1
        experiment, root = self.experiment, self.hosts[0]
        return Job(
            python=experiment.cluster.python or root.python,
            workload=experiment.workload,
            size_bytes=trial.size_bytes,
            iterations=trial.iterations,
            warmup=trial.warmup,
            mode=trial.system.mode,
            ranks=len(self.hosts),
            root=_endpoint(root.address, _port(os.getpid(), self.trials_begun)),
            nics=tuple(nic.name for nic in root.nics),
            expected_s=experiment.expected_duration_s(trial.size_bytes),
            env=_source_path() | trial.system.env,
            addresses=tuple(host.address for host in self.hosts),
            every_nic=self.nic_names,
            every_management=tuple(dict.fromkeys(host.management for host in self.hosts if host.management)),
            ssh_config=root.ssh_config,
            ready_s=experiment.ready_s,
            least_give_up_s=experiment.sweep.limits.give_up_s,
            one_machine=experiment.cluster.one_machine,
            sockets_carry_data=sockets_carry_data(trial.system.use, trial.system.network),
        )

    def command(self, trial: Trial, job: Job, rank: int) -> Command:
        """The command of one rank of `job`: with the Python and the NICs of the host that it runs on."""
        host = self.hosts[rank]
        nics = tuple(nic.name for nic in host.nics)
        management = (host.management,) if host.management else ()
        python = self.experiment.cluster.python or host.python
        here = replace(job, python=python, nics=nics, management=management)
        return self.backend(trial).command(here, rank)

    def check(self) -> None:
        """Raises `UnhealthyError` unless every host answers and every NIC is up with readable counters."""
        found = [f for host, result in for_each(self.hosts, _sampled).items() for f in self._findings(host, result)]
        if found:
            raise UnhealthyError("; ".join(found))

    def measure_clocks(self, older_than_s: float = 0.0) -> None:
        """Measures every place's clock against ours, if the last measurement is older than that."""
        newest_ns = min((c.offsets[-1].at_ns for c in self.clocks.values()), default=0)
        if time.time_ns() - newest_ns < older_than_s * 1e9:
            return
        asked = for_each(self.places.values(), lambda place: offset_of(_exchanges(place)))
        for name, offset in all_results(asked).items():
            self.clocks[name] = self.clock(name).measured(offset)

    def reconnect(self, name: str) -> Host:
        """Waits until a restarted host accepts a log-in, claims it again, and measures its clock anew.

        Raises the last `HostError` if it does not come back.
        """
        host, deadline = self.host(name), time.monotonic() + RETURN_S
        host.close()
        while True:
            try:
                host.connect()
                break
            except HostError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(AGAIN_S)
        host.claim(Owner.this().values())
        self.clocks[name] = Clock().measured(offset_of(_exchanges(host)))
        return host

    def clock_stood_still(self, name: str, since_ns: int, until_ns: int) -> None:
        """Measures anew the clock of a host that stood still between these times of ours."""
        now = offset_of(_exchanges(self.host(name)))
        self.clocks[name] = self.clock(name).stood_still(since_ns, until_ns, now)

    def describe_clocks(self) -> dict[str, Any]:
        """Every host's clock against ours over the sweep, as JSON values, for the provenance."""
        return {name: described(clock) for name, clock in self.clocks.items()}

    def _findings(self, host: str, result: object) -> list[str]:
        if isinstance(result, Exception):
            return [str(result)]
        last = {s.nic: s for s in result if isinstance(s, Sample)} if isinstance(result, list) else {}
        nics = [nic.name for nic in self.host(host).nics]
        silent = [f"{host}: {nic}: no counters" for nic in nics if nic not in last]
        return silent + [f"{host}: {nic}: the link is down" for nic in nics if nic in last and not last[nic].up]


def described(clock: Clock) -> dict[str, Any]:
    """The measurements of one clock: how many, the first and the last, the worst error, the drift."""
    return {
        "measurements": len(clock.offsets),
        "first": clock.offsets[0]._asdict() if clock.offsets else None,
        "last": clock.offsets[-1]._asdict() if clock.offsets else None,
        "worst_error_ns": clock.worst_error_ns,
        "drift_ppm": None if clock.drift_ppm is None else round(clock.drift_ppm, 3),
    }


def _sampled(host: Host) -> list[Sample]:
    host.sample_start(CHECK_INTERVAL_S)
    time.sleep(CHECK_S)
    return host.sample_stop()


def _exchanges(host: Host) -> list[Exchange]:
    return [Exchange(time.time_ns(), host.clock_ns(), time.time_ns()) for _ in range(EXCHANGES)]


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _port(pid: int, count: int) -> int:
    """A port below the kernel's ephemeral range, different for each trial and, mostly, for each sweep."""
    return 20_000 + (pid * 97 + count) % 12_000


def _source_path() -> dict[str, str]:
    """The path on which the hosts' Python finds these packages, if they run from a source tree."""
    try:
        distribution("r2ccl")
    except PackageNotFoundError:
        return {"PYTHONPATH": str(Path(__file__).parents[2])}
    return {}
