"""One attempt at a trial while it runs: its state, and waiting for what its ranks report, within the limits of the
experiment."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from harness.errors import HostError
from harness.events import EventLog
from harness.hosts.base import Reading, RemoteProcess, Sample
from harness.hosts.state import State
from harness.sweep.breakage import Breakage
from harness.sweep.clock import Clock
from harness.sweep.plan import Trial
from harness.sweep.scenario import Injection
from harness.sweep.testbed import HostTestbed

GRACE_S = 2.0
"""How long the other ranks may take to end after the first error."""


@dataclass(frozen=True)
class Silence:
    """Ranks were silent for as long as a limit allows."""

    told: str
    key: str
    """The limit's key in the experiment."""
    limit_s: float
    ended_ns: int
    """When the limit was over, on our clock."""


@dataclass
class Run:
    """The state of one attempt in progress."""

    testbed: HostTestbed
    trial: Trial
    attempt: int
    log: EventLog
    processes: dict[str, RemoteProcess] = field(default_factory=dict)
    deadline_s: float = float("inf")
    hang: str | None = None
    silent: Silence | None = None
    """The limit behind `hang`, unless a rank ended."""
    cut_off: str | None = None
    injections: Sequence[Injection] = ()
    breakages: list[Breakage] = field(default_factory=list)
    """In the order in which they were armed; the aimed one first."""
    ahead: dict[tuple[int, str], Breakage] = field(default_factory=dict)
    """Those that were armed before their time, by their place among the injections and their NIC: a busiest NIC may be
    any of its host."""
    states: dict[str, State] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    closely_s: float = -float("inf")
    """When the counters of the host to strike began to be sampled closely, the last time."""
    left_out: int = 0
    """Failures by chance that came too late."""
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    unwatched: dict[str, str] = field(default_factory=dict)
    """By host, why its watch reported nothing."""
    clocks: dict[str, Clock] = field(default_factory=dict)
    """Before all clocks are known, those of restarted hosts, as they were until then."""
    seconds: dict[str, float] = field(default_factory=dict)

    def is_over(self) -> bool:
        """Whether there is nothing more to break."""
        return self.given_up or self.log.any_failed() or self.log.all_ended()

    @property
    def given_up(self) -> bool:
        """Whether the trial waits for nothing more."""
        return self.hang is not None or self.cut_off is not None

    def pids(self) -> dict[str, int]:
        """The processes of the ranks by host."""
        return {host: process.pid for host, process in self.processes.items()}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times one step of the lifecycle."""
        began = time.monotonic()
        self.testbed.tell("step", {"step": name})
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


def wait_for(run: Run, condition: Callable[[], bool], look_s: float = float("inf")) -> None:
    """Waits for `condition`, looked at after each event and every `look_s`. Gives up if ranks fall silent, and sets
    `run.cut_off` if they run too long."""
    experiment, log = run.testbed.experiment, run.log
    silence_s, trial_s = experiment.silence_s, experiment.sweep.limits.trial_s
    while not log.wait_for(condition, min(silence_s - log.idle_s(), run.deadline_s - time.monotonic(), look_s)):
        if log.idle_s() >= silence_s:
            give_up(run, f"no rank said anything for {silence_s:g} s", "sweep.limits.iteration", silence_s)
            return
        if time.monotonic() >= run.deadline_s:
            spoke = f"ranks last said something {log.idle_s():.1f} s before"
            run.cut_off = f"not over after {trial_s:g} s, and {spoke}: raise sweep.limits.trial"
            return


def wait_until(run: Run, t_ns: int) -> bool:
    """Waits until a time; returns True if the trial ended before."""
    while (left_s := (t_ns - time.time_ns()) / 1e9) > 0:
        limit_s = run.deadline_s - time.monotonic()
        if run.log.wait_for(run.is_over, min(left_s, max(limit_s, 0.0))) or limit_s <= 0:
            return True
    return run.is_over()


def sleep_until(t_ns: int) -> None:
    time.sleep(max(0, t_ns - time.time_ns()) / 1e9)


def give_up(run: Run, silence: str, key: str, limit_s: float) -> None:
    """Ends the trial because a limit was reached: a hang of the system if something is broken, the limit is `HANG_S` or
    more and, by the counters that are collected later, nothing moves any more. Before that, healthy ranks may simply
    need longer, so the trial proves nothing."""
    if any(breakage.effect_ns is not None for breakage in run.breakages):
        run.hang = f"hang: {silence} ({key})"
        run.silent = Silence(silence, key, limit_s, time.time_ns())
    else:
        run.cut_off = f"{silence}, though nothing was broken yet: raise {key} if healthy ranks may take that long"


def by_chance(run: Run) -> bool:
    return run.trial.fault is not None and run.trial.fault.mtbf_s is not None


def readings_of(run: Run, host: str, seen: list[Reading] | HostError) -> list[Reading]:
    """The readings of a watch. A failure of the watch is recorded beside the trial, which stays valid without it."""
    if isinstance(seen, HostError):
        run.unwatched[host] = seen.message
        run.log.feed([h.name for h in run.testbed.hosts].index(host), "harness", str(seen))
        return []
    return seen
