"""The bench: what stays up over a whole sweep, so that a trial pays for none of it.

Hosts with their open sessions, the backend, and what was learnt about them: clock offsets and how long a
fault takes from the trigger to its effect.
"""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from harness.backends.base import Backend, Job
from harness.backends.registry import BACKENDS
from harness.errors import UnhealthyError
from harness.experiment import Experiment
from harness.hosts.base import Host, Sample
from harness.hosts.each import for_each
from harness.sweep.plan import Trial
from harness.sweep.strike import FIRST_LATENCY_NS

CHECK_INTERVAL_S = 0.004
CHECK_S = 0.012
"""A check samples the counters this often and this long: two samples of every NIC at least."""


@dataclass
class Bench:
    """One sweep's hosts; rank r runs on ``hosts[r]``."""

    experiment: Experiment
    hosts: Sequence[Host]
    offsets_ns: dict[str, int] = field(default_factory=dict)
    """Per host: its clock minus ours; 0 where the difference drowns in the measurement's own error."""
    fire_latency_ns: int = FIRST_LATENCY_NS
    trials_begun: int = 0

    def backend(self, trial: Trial) -> Backend:
        """What runs the ranks of `trial`."""
        return BACKENDS[self.experiment.backend_of(trial.system)]

    def host(self, name: str) -> Host:
        """The host of that name."""
        return next(h for h in self.hosts if h.name == name)

    def offset_ns(self, host: str) -> int:
        """That host's clock minus ours."""
        return self.offsets_ns.get(host, 0)

    def job(self, trial: Trial) -> Job:
        """What the ranks of the next run of `trial` are to do; every call takes a new port."""
        self.trials_begun += 1
        experiment, root = self.experiment, self.hosts[0]
        return Job(
            python=experiment.cluster.python or sys.executable,
            workload=experiment.workload,
            size_bytes=trial.size_bytes,
            iterations=trial.iterations,
            warmup=trial.warmup,
            mode=trial.system.mode,
            ranks=len(self.hosts),
            root=f"{root.address}:{_port(os.getpid(), self.trials_begun)}",
            nics=tuple(nic.name for nic in root.nics),
            expected_s=experiment.expected_duration_s(trial.size_bytes),
            env=_source_path() | trial.system.env,
            addresses=tuple(host.address for host in self.hosts),
        )

    def check(self) -> None:
        """Raises `UnhealthyError` unless every host answers and every NIC is up with readable counters."""
        found = [f for host, result in for_each(self.hosts, _sampled).items() for f in self._findings(host, result)]
        if found:
            raise UnhealthyError("; ".join(found))

    def measure_clocks(self) -> None:
        """Measures every host's clock against ours, by the fastest of five questions."""
        self.offsets_ns = {host.name: _offset_ns(host) for host in self.hosts}

    def _findings(self, host: str, result: object) -> list[str]:
        if isinstance(result, Exception):
            return [str(result)]
        last = {s.nic: s for s in result if isinstance(s, Sample)} if isinstance(result, list) else {}
        nics = [nic.name for nic in self.host(host).nics]
        silent = [f"{host}: {nic}: no counters" for nic in nics if nic not in last]
        return silent + [f"{host}: {nic}: the link is down" for nic in nics if nic in last and not last[nic].up]


def _sampled(host: Host) -> list[Sample]:
    host.sample_start(CHECK_INTERVAL_S)
    time.sleep(CHECK_S)
    return host.sample_stop()


def _offset_ns(host: Host) -> int:
    rounds = []
    for _ in range(5):
        before_ns = time.time_ns()
        theirs_ns = host.clock_ns()
        after_ns = time.time_ns()
        rounds.append((after_ns - before_ns, theirs_ns - (before_ns + after_ns) // 2))
    round_trip_ns, offset_ns = min(rounds)
    return offset_ns if abs(offset_ns) > round_trip_ns else 0


def _port(pid: int, count: int) -> int:
    """A port below the kernel's ephemeral range, another one for each trial and, mostly, each sweep."""
    return 20_000 + (pid * 97 + count) % 12_000


def _source_path() -> dict[str, str]:
    """Where the hosts' Python finds these packages, if they run from a source tree and are not installed."""
    try:
        distribution("r2ccl")
    except PackageNotFoundError:
        return {"PYTHONPATH": str(Path(__file__).parents[2])}
    return {}
