"""The cost of failures to a job: its slowdown under given losses, and the time it loses over weeks, by cause. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs.failures import Event
from r2ccl_core.jobs.iteration import Compute, iteration
from r2ccl_core.jobs.layout import Layout
from r2ccl_core.jobs.model import Model
from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.systems import LEAST_HALT_S, RETRIES_S, Restart, System
from r2ccl_core.model.topology import Host, Nic, Topology

CAUSES = ("checkpoints", "detection", "restart", "redone", "pause", "slowdown", "idle_gpus")


Loss = int | tuple[int, ...]
"""The loss of a host: how many of its NICs (the first ones), or which."""


@dataclass(frozen=True)
class Job:
    """A model on equal hosts with one NIC per GPU; with ``isolated_rails`` a NIC reaches only those of its own rail."""

    model: Model
    layout: Layout
    hosts: int
    nics: int = 8
    nic_bytes_s: float = 50e9
    compute: Compute = field(default_factory=Compute)
    restart: Restart = field(default_factory=Restart)
    isolated_rails: bool = False

    @property
    def gpus(self) -> int:
        """Of all hosts."""
        return self.hosts * self.nics

    def topology(self, lost: Sequence[Loss]) -> Topology:
        """The hosts, of which number i has lost ``lost[i]``."""
        whole = tuple(Nic(rail, self.nic_bytes_s, numa=rail * 2 // self.nics) for rail in range(self.nics))

        def host(gone: tuple[int, ...]) -> Host:
            return Host(tuple(replace(nic, remaining=float(nic.rail not in gone)) for nic in whole), self.nics)

        kinds = {one: host(_nics(one)) for one in set(lost)}  # most hosts are alike
        return Topology(tuple(kinds[one] for one in lost), self.isolated_rails)


def _nics(loss: Loss) -> tuple[int, ...]:
    return tuple(range(loss)) if isinstance(loss, int) else loss


def slowdown(job: Job, system: System, lost: Sequence[Loss]) -> float:
    """Time of an iteration with these NICs lost on each host, over the same system's healthy one.

    Infinite if the job cannot continue. Leaving out GPUs removes whole data-parallel replicas, with all their tensor
    and pipeline ranks.
    """
    count_of = {one: len(_nics(one)) for one in set(lost)}  # most hosts are alike
    known = all(0 <= nic < job.nics for one in count_of for nic in _nics(one))
    if len(lost) != job.hosts or not known or any(isinstance(one, int) and one < 0 for one in count_of):
        raise UsageError(f"losses of {len(lost)} hosts: the job has {job.hosts} with {job.nics} NICs each")
    if not any(count_of.values()) or system.restarts:
        return 1.0
    if system.drops_gpus:
        kept = job.layout.data - _replicas_hit(job, lost)
        return job.layout.data / kept if kept else float("inf")
    if max(count_of.values()) == job.nics:
        return float("inf")
    strategy = system.strategy or "balance"
    if job.isolated_rails:
        return _slowdown(job, strategy, tuple(map(_nics, lost)))
    counts = [count_of[one] for one in lost]
    if job.layout.pipeline == 1 and job.layout.tensor <= job.nics:  # one stage: which host does not matter
        counts.sort()
    return _slowdown(job, strategy, tuple(counts))


def _replicas_hit(job: Job, lost: Sequence[Loss]) -> int:
    """Data-parallel replicas with a rank on a GPU whose NIC is lost."""
    ranks = (host * job.nics + gpu for host, one in enumerate(lost) for gpu in _nics(one))
    return len({rank // job.layout.tensor % job.layout.data for rank in ranks})


@lru_cache(maxsize=1 << 16)
def _slowdown(job: Job, strategy: str, lost: tuple[Loss, ...]) -> float:
    degraded = iteration(job.model, job.layout, Network(job.topology(lost), strategy), job.compute)
    return degraded.seconds / _healthy_s(job, strategy)


@lru_cache(maxsize=64)
def _healthy_s(job: Job, strategy: str) -> float:
    network = Network(job.topology([0] * job.hosts), strategy)
    return iteration(job.model, job.layout, network, job.compute).seconds


@dataclass(frozen=True)
class Lost:
    """Hours of the whole job that were lost to each cause, of ``hours`` in total."""

    hours: float
    by_cause: dict[str, float]

    @property
    def goodput(self) -> float:
        """The useful part."""
        return max(0.0, 1 - sum(self.by_cause.values()) / self.hours)


def lost_hours(job: Job, system: System, events: Iterable[Event], days: int) -> Lost:
    """Processes the events in order of time; the job ends with the last day.

    A restarted job runs on whole hosts. A slowdown costs ``h (1 - 1/slowdown)`` of a span of h hours.
    """
    hours, restart = 24.0 * days, job.restart
    found = dict.fromkeys(CAUSES, 0.0)
    found["checkpoints"] = hours / restart.interval_h * restart.checkpoint_s / 3600
    ends: list[tuple[float, tuple[int, int]]] = []  # of NICs that are lost now
    now = 0.0

    def until(moment: float) -> None:
        nonlocal now
        while now < moment:
            ends[:] = [one for one in ends if one[0] > now]
            ahead = min([moment, *(end for end, _ in ends)])
            factor = slowdown(job, system, _losses(job, ends))
            cause = "idle_gpus" if system.drops_gpus else "slowdown"
            found[cause] += (ahead - now) * (1 - 1 / factor)
            now = ahead

    for event in events:
        if event.at_h >= hours:
            break
        until(event.at_h)
        after = [*ends, *((event.at_h + event.lasts_h, nic) for nic in event.nics)]
        ending = system.restarts or slowdown(job, system, _losses(job, after)) == float("inf")
        if ending and event.kind == "flap" and 3600 * event.lasts_h < RETRIES_S:
            found["pause"] += max(LEAST_HALT_S, 3600 * event.lasts_h) / 3600
        elif ending:
            found["detection"] += restart.watchdog_s / 3600
            found["restart"] += restart.start_s / 3600
            found["redone"] += restart.interval_h / 2
            ends.clear()
        else:
            found["pause"] += system.pause_s / 3600
            ends[:] = after
    until(hours)
    return Lost(hours, found)


def _losses(job: Job, ends: Iterable[tuple[float, tuple[int, int]]]) -> tuple[Loss, ...]:
    gone: defaultdict[int, set[int]] = defaultdict(set)
    for _, (host, nic) in ends:
        gone[host].add(nic)
    lost: list[Loss] = [()] * job.hosts
    for host, nics in gone.items():
        lost[host] = tuple(sorted(nics))
    return tuple(lost)
