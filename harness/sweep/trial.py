"""Runs one trial on a bench. The lifecycle, in order; every wait has a time-out:

    check     every host answers, every NIC is up, its counters can be read; if not: heal, check again
    start     one process a rank over the hosts' open sessions; counters are sampled from here on
    prepare   the fault: its healer is armed on the host before anything else can happen
    ready     until every rank is connected; they warm up by themselves
    strike    once rank 0 has begun the chosen iteration, part of the way through it
    watch     until every rank has ended; after an error the others get a moment, a hang is cut short
    heal      the fault
    collect   counters, logs, exit statuses
    clean up  every process that is left, whatever happened above

The judge then has the facts (`harness.sweep.judge`). An interrupt at any point heals and cleans up.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from signal import SIGKILL

from faults.base import Argv, Effect, Target
from faults.registry import create
from harness.errors import HostError, UnhealthyError
from harness.experiment import FaultModel
from harness.hosts.base import Host, RemoteProcess, Sample
from harness.hosts.each import all_results, for_each
from harness.sweep.bench import Bench
from harness.sweep.events import EventLog
from harness.sweep.judge import Facts, Injected, Verdict, judge
from harness.sweep.networks import network_of, with_network
from harness.sweep.plan import Trial
from harness.sweep.strike import chosen_begin_ns, expected_ns, fire_at_ns, lead_of, smoothed_ns

SAMPLE_S = 0.01
GRACE_S = 2.0
"""How long the other ranks may take to end after the first error."""
OBSERVE_S = 0.06
"""How long a fault lasts at least, so that several samples show the dead NIC."""
HEAL_S = 10.0
KILL_S = 5.0
SETTLE_S = 0.025
"""From the heal to the last sample, so that a sample shows the NIC up again."""


@dataclass(frozen=True)
class Outcome:
    """One finished attempt at a trial: the facts, the verdict, and what goes to disk beside them."""

    trial: Trial
    attempt: int
    facts: Facts
    verdict: Verdict
    samples: Mapping[str, Sequence[Sample]]
    started_s: float
    seconds: Mapping[str, float]
    """How long each step of the lifecycle took."""
    offsets_ns: Mapping[str, int]
    """What was taken off each host's clock."""


@dataclass
class _Run:
    """What is under way in one attempt."""

    bench: Bench
    trial: Trial
    attempt: int
    log: EventLog
    processes: list[RemoteProcess] = field(default_factory=list)
    deadline_s: float = float("inf")
    hang: str | None = None
    effect_ns: tuple[int, int] | None = None
    heal_ns: int | None = None
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def arm_id(self) -> str:
        """The name under which the fault is armed on its host."""
        return f"{self.trial.trial_id}-{self.attempt}"

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times one step of the lifecycle."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


def run_trial(bench: Bench, trial: Trial, attempt: int) -> Outcome:
    """Runs `trial` once and judges it.

    Raises `UnhealthyError` if the cluster is not fit for it and `HostError` if a host is lost on the way;
    a trial that fails is an `Outcome`, not an error.
    """
    started_s = time.time()
    run = _Run(bench, trial, attempt, EventLog([bench.offset_ns(h.name) for h in bench.hosts]))
    with run.step("check"):
        _make_healthy(run)
    try:
        with run.step("start"):
            _start(run)
            _prepare(run)
        with run.step("ready"):
            _await_ready(run)
        with run.step("watch"):
            _strike(run)
            _watch(run)
        with run.step("heal"):
            _observe_and_heal(run)
        with run.step("collect"):
            run.samples = _samples(bench)
    finally:
        with run.step("clean up"):
            _clean_up(run)
    facts = _facts(run)
    verdict = with_network(judge(facts), network_of(bench, trial, facts.ranks, run.samples))
    return Outcome(trial, attempt, facts, verdict, run.samples, started_s, run.seconds, bench.offsets_ns)


def _make_healthy(run: _Run) -> None:
    """Check; where that fails, heal and check again. Only the experiment's own faults are healed."""
    try:
        run.bench.check()
    except UnhealthyError:
        for fault in run.bench.experiment.faults:
            for argv in _commands(fault)[1]:
                run.bench.host(fault.host).run(argv, timeout_s=HEAL_S)
        run.bench.check()


def _start(run: _Run) -> None:
    job = run.bench.job(run.trial)
    ranks = {host.name: rank for rank, host in enumerate(run.bench.hosts)}

    def start(host: Host) -> RemoteProcess:
        rank = ranks[host.name]
        command = run.bench.backend(run.trial).command(job, rank)
        process = host.start(command.argv, env=command.env, on_line=partial(run.log.feed, rank))
        run.processes.append(process)
        limit_s = run.bench.experiment.sweep.limits.trial_s + GRACE_S
        threading.Thread(target=_await_end, args=(run.log, rank, process, limit_s), daemon=True).start()
        host.sample_start(SAMPLE_S)
        return process

    all_results(for_each(run.bench.hosts, start))


def _await_end(log: EventLog, rank: int, process: RemoteProcess, limit_s: float) -> None:
    """Tells the log when a process has ended; on a thread of its own. A lost host counts as an end."""
    try:
        log.ended(rank, process.wait(limit_s))
    except HostError as error:
        log.feed(rank, "harness", str(error))
        log.ended(rank, -SIGKILL)


def _prepare(run: _Run) -> None:
    fault = run.trial.fault
    if fault is None:
        return
    limits = run.bench.experiment.sweep.limits
    inject, heal = _commands(fault)
    ttl_s = limits.ready_s + limits.trial_s + 2 * GRACE_S
    run.bench.host(fault.host).prepare(run.arm_id, inject, heal, ttl_s)


def _await_ready(run: _Run) -> None:
    log, limit_s = run.log, run.bench.experiment.sweep.limits.ready_s
    run.deadline_s = time.monotonic() + limit_s + run.bench.experiment.sweep.limits.trial_s
    log.wait_for(lambda: log.all_ready() or log.any_failed(), limit_s)
    if not log.all_ready() and not log.any_failed():
        late = [str(r.rank) for r in log.ranks if r.ready_ns is None]
        run.hang = f"rank {', '.join(late)} not ready after {limit_s:g} s"


def _strike(run: _Run) -> None:
    """Waits for the chosen iteration and fires; returns at once if it will not come any more."""
    fault, log, bench = run.trial.fault, run.log, run.bench
    if fault is None or run.hang:
        return
    first = log.ranks[0]
    model_s = bench.experiment.expected_duration_s(run.trial.size_bytes)
    lead = lead_of(fault.into, int(model_s * 1e9), bench.fire_latency_ns)
    begin_ns: int | None = None

    def known_or_over() -> bool:
        nonlocal begin_ns
        begin_ns = chosen_begin_ns(run.trial, fault, first.begun, lead)
        return begin_ns is not None or log.any_failed() or log.all_ended()

    _wait(run, known_or_over)
    if begin_ns is None or log.any_failed():
        return
    lasts_ns = expected_ns(first.finished, model_s)
    _sleep_until(fire_at_ns(begin_ns, fault.into, lasts_ns, bench.fire_latency_ns))
    fired_ns = time.time_ns()
    effect = bench.host(fault.host).fire(run.arm_id)
    before_ns, after_ns = (t_ns - bench.offset_ns(fault.host) for t_ns in effect)
    run.effect_ns = before_ns, after_ns
    bench.fire_latency_ns = smoothed_ns(bench.fire_latency_ns, (before_ns + after_ns) // 2 - fired_ns)


def _sleep_until(t_ns: int) -> None:
    time.sleep(max(0, t_ns - time.time_ns()) / 1e9)


def _watch(run: _Run) -> None:
    """Until every rank has ended; the rest is cut short a moment after the first error, or on a hang."""
    log = run.log
    if not run.hang:
        _wait(run, lambda: log.all_ended() or log.any_failed())
    if not run.hang and not log.all_ended():
        log.wait_for(log.all_ended, GRACE_S)
    log.close()


def _wait(run: _Run, condition: Callable[[], bool]) -> None:
    """Waits for `condition`; where ranks fall silent or the trial takes too long, `run.hang` says so."""
    limits, log = run.bench.experiment.sweep.limits, run.log
    while not log.wait_for(condition, min(limits.iteration_s - log.idle_s(), run.deadline_s - time.monotonic())):
        if log.idle_s() >= limits.iteration_s:
            run.hang = f"hang: no rank said anything for {limits.iteration_s:g} s"
            return
        if time.monotonic() >= run.deadline_s:
            run.hang = f"hang: not over after {limits.trial_s:g} s"
            return


def _observe_and_heal(run: _Run) -> None:
    fault = run.trial.fault
    if fault is None:
        return
    if run.effect_ns is not None:
        _sleep_until(run.effect_ns[1] + int(OBSERVE_S * 1e9))
    healed_ns = run.bench.host(fault.host).heal(run.arm_id)
    if healed_ns is not None:
        run.heal_ns = healed_ns - run.bench.offset_ns(fault.host)
        time.sleep(SETTLE_S)


def _samples(bench: Bench) -> dict[str, list[Sample]]:
    """The counters of every host, on our clock."""
    taken = all_results(for_each(bench.hosts, lambda host: host.sample_stop()))
    return {name: [s._replace(t_ns=s.t_ns - bench.offset_ns(name)) for s in samples] for name, samples in taken.items()}


def _clean_up(run: _Run) -> None:
    """Heals what is still armed and ends what still runs; a host that is lost does both by itself."""
    fault = run.trial.fault
    with suppress(HostError):
        if fault is not None:
            run.bench.host(fault.host).heal(run.arm_id)
    for process in run.processes:
        with suppress(HostError):
            if process.poll() is None:
                process.signal(SIGKILL)
                process.wait(KILL_S)


def _facts(run: _Run) -> Facts:
    trial = run.trial
    fault = _injected(run)
    harmless = trial.fault is not None and not _effects(trial.fault)
    return Facts(
        ranks=run.log.ranks,
        iterations=trial.iterations,
        expect_on_fault="ok" if harmless else trial.system.expect_on_fault,
        fault_planned=trial.fault is not None,
        fault=fault,
        hang=run.hang,
    )


def _injected(run: _Run) -> Injected | None:
    """The fault as it was, with the counters of its NIC; None if it never came to it."""
    fault = run.trial.fault
    if fault is None or run.effect_ns is None:
        return None
    return Injected(
        kind=fault.kind,
        host=fault.host,
        nic=fault.nic,
        t_before_ns=run.effect_ns[0],
        t_after_ns=run.effect_ns[1],
        heal_ns=run.heal_ns,
        silent=any(effect.rate_factor == 0.0 for effect in _effects(fault)),
        samples=[s for s in run.samples[fault.host] if s.nic == fault.nic],
    )


def _effects(fault: FaultModel) -> Sequence[Effect]:
    return create(fault.kind, fault.parameters).effects(Target(fault.host, fault.nic))


def _commands(fault: FaultModel) -> tuple[Sequence[Argv], Sequence[Argv]]:
    """What injects and what heals `fault`."""
    made, target = create(fault.kind, fault.parameters), Target(fault.host, fault.nic)
    return made.inject(target), made.heal(target)
