"""Runs one trial on a testbed. The lifecycle, in order; every wait has a time-out:

    check     every host answers, every NIC is up, its counters can be read; if not: heal, check again
    prepare   arm the healers of the first faults, on the places where they act, while the hosts have nothing else to
              do; of a busiest NIC, which only traffic tells, those of every NIC that it may be. If ranks are to be
              struck, once these are started
    start     one process per host over the hosts' open sessions; counters are sampled from here on
    ready     wait until every rank is connected; ranks then warm up by themselves
    inject    once rank 0 has begun the chosen iteration, part of the way through it; half a second or more before,
              counters are sampled closely; further faults by the clock, each armed before it fires and healed when its
              time is over
    watch     wait until every rank has ended; after an error the others get a moment, a hang is cut short
    heal      undo every remaining fault; compare the network's state with the one before
    collect   counters, the hosts' state, logs, exit statuses; after a long trial the clocks are measured again
    clean up  end every remaining process, whatever happened above

The judge then gets the facts (`harness.sweep.judge`). An interrupt at any point heals and cleans up.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from signal import SIGKILL

from faults.base import Effect
from faults.registry import FAULTS, create
from harness.errors import HostError, UnhealthyError
from harness.events import EventLog
from harness.hosts.base import Host, Reading, RemoteProcess, Sample
from harness.hosts.each import all_results, for_each
from harness.hosts.state import State, differences, read_state
from harness.sweep.attempt import GRACE_S, Run, by_chance, give_up, readings_of, sleep_until, wait_for
from harness.sweep.breakage import Breakage
from harness.sweep.clock import Clock
from harness.sweep.expectation import HANG_S, Came, expected
from harness.sweep.injecting import inject, prepare
from harness.sweep.judge import Facts, Judgement, judge, rank_numbers, with_watch
from harness.sweep.networks import network_of, nic_bytes, with_network
from harness.sweep.on_our_clock import on_our_clock
from harness.sweep.plan import Trial
from harness.sweep.scenario import BUSIEST, injections, reach
from harness.sweep.stalled import SHARE, stood_still_s
from harness.sweep.still_moving import still_moving
from harness.sweep.testbed import CLOCKS_EVERY_S, HostTestbed
from harness.systems.base import Expectation

SAMPLE_S = 0.01
WATCH_S = 0.1
OBSERVE_S = 0.06
"""The least duration of a fault, so that several samples show the dead NIC."""
KILL_S = 5.0
SETTLE_S = 0.025
"""Time from the heal to the last sample, so that a sample shows the NIC up again."""
SAME_S = 15.0
"""How long the network's state may take to return to its former value: the link of a fast NIC trains for seconds."""


@dataclass(frozen=True)
class Outcome:
    """One finished attempt at a trial: the facts, the judgement, and the other data that go to disk."""

    trial: Trial
    attempt: int
    facts: Facts
    judgement: Judgement
    samples: Mapping[str, Sequence[Sample]]
    readings: Mapping[str, Sequence[Reading]]
    """The readings of the hosts' watches."""
    started_s: float
    seconds: Mapping[str, float]
    """How long each step of the lifecycle took."""
    clocks: Mapping[str, Clock]
    """The clocks by which every time was converted to ours."""


def run_trial(testbed: HostTestbed, trial: Trial, attempt: int) -> Outcome:
    """Runs `trial` once and judges it.

    Raises `UnhealthyError` if the cluster is not fit for it and `HostError` if a host is lost on the way; a trial that
    fails is an `Outcome`, not an error.
    """
    started_s = time.time()
    testbed.measure_clocks(CLOCKS_EVERY_S)
    run = Run(testbed, trial, attempt, EventLog([testbed.offset_ns(h.name) for h in testbed.hosts]))
    with run.step("check"):
        _make_healthy(run)
    try:
        with run.step("start"):
            _draw(run)
            hits_ranks = any(injection.scope == "process" for injection in run.injections)
            if not hits_ranks:
                prepare(run)
            _start(run)
            if hits_ranks:
                prepare(run)
        with run.step("ready"):
            _await_ready(run)
        with run.step("watch"):
            inject(run)
            _watch(run)
        with run.step("heal"):
            _observe_and_heal(run)
        with run.step("collect"):
            _collect(run)
    finally:
        with run.step("clean up"):
            _clean_up(run)
    facts = _facts(run)
    judgement = with_network(judge(facts), network_of(testbed, trial, facts, run.samples))
    judgement = with_watch(judgement, run.readings, run.unwatched)
    seen = run.samples, run.readings, started_s, run.seconds, run.clocks
    return Outcome(trial, attempt, facts, judgement, *seen)


def _make_healthy(run: Run) -> None:
    """Checks the cluster; if that fails, heals everything that is still armed and checks again."""
    try:
        run.testbed.check()
    except UnhealthyError:
        for place in run.testbed.places.values():
            place.heal_journal(all=False)
        run.testbed.check()


def _start(run: Run) -> None:
    job = run.testbed.job(run.trial)
    ranks = {host.name: rank for rank, host in enumerate(run.testbed.hosts)}

    def start(host: Host) -> RemoteProcess:
        rank = ranks[host.name]
        command = run.testbed.command(run.trial, job, rank)
        process = host.start(command.argv, env=command.env, on_line=partial(run.log.feed, rank))
        run.processes[host.name] = process
        limits = run.testbed.experiment.sweep.limits
        limit_s = run.testbed.experiment.ready_s + limits.trial_s + KILL_S  # later than any other end
        threading.Thread(target=_await_end, args=(run.log, rank, process, limit_s), daemon=True).start()
        host.sample_start(SAMPLE_S)
        host.watch_start({f"rank{rank}": process.pid}, WATCH_S)
        return process

    all_results(for_each(run.testbed.hosts, start))


def _await_end(log: EventLog, rank: int, process: RemoteProcess, limit_s: float) -> None:
    """Reports to the log when a process has ended; on a separate thread. A lost host counts as an end."""
    try:
        log.ended(rank, process.wait(limit_s))
    except HostError as error:
        log.feed(rank, "harness", str(error))
        log.ended(rank, -SIGKILL)


def _draw(run: Run) -> None:
    fault, limits = run.trial.fault, run.testbed.experiment.sweep.limits
    if fault is not None:
        run.injections = injections(fault, run.testbed.data_nics, run.trial.seed, limits.trial_s)
        run.states = _states(run)


def _await_ready(run: Run) -> None:
    log, limit_s = run.log, run.testbed.experiment.ready_s
    log.wait_for(lambda: log.all_ready() or log.any_failed() or log.all_ended(), limit_s)
    if not log.all_ready() and not log.any_failed():
        gpus = run.testbed.experiment.workload.gpus
        missing = [r.rank for r in log.ranks if r.ready_ns is None]
        late = [f"{rank_numbers(rank, gpus)} ({run.testbed.hosts[rank].name})" for rank in missing]
        which = f"rank{'s' * (gpus > 1)} {', '.join(late)}"
        over = log.all_ended()
        if over:
            run.hang = f"{which} ended before it was ready"
        else:
            give_up(run, f"{which} not ready after {limit_s:g} s", "sweep.limits.ready", limit_s)
    run.deadline_s = time.monotonic() + run.testbed.experiment.sweep.limits.trial_s


def _watch(run: Run) -> None:
    """Waits until every rank has ended; the rest is cut short a moment after the first error, or on a hang."""
    log = run.log
    if not run.given_up:
        wait_for(run, lambda: log.all_ended() or log.any_failed())
    if not run.given_up and not log.all_ended():
        log.wait_for(log.all_ended, GRACE_S)
    log.close(given_up=run.given_up)


def _slow(run: Run) -> str | None:
    """Why a silence was no hang, if the NICs went on carrying data: the limit was too short for such an iteration."""
    if run.silent is None:
        return None
    silent, ranks = run.silent, run.testbed.experiment.workload.gpus
    received = still_moving(run.samples, silent.ended_ns, silent.limit_s, ranks, _flooded(run))
    if received is None:
        return None
    others = "unless it was others' traffic; then the ranks hang"
    return f"{silent.told}, but the NICs still received {received}: raise {silent.key}, {others}"


def _short(run: Run) -> str | None:
    """Why a silence proves no hang, if the limit is shorter than what a system's own time-outs may take."""
    if run.silent is None or run.silent.limit_s >= HANG_S:
        return None
    return f"{run.silent.told}, too short to tell a hang: raise {run.silent.key} to {HANG_S:g} s or more"


def _flooded(run: Run) -> set[tuple[str, str]]:
    """The NICs of every rail on which a fault itself sends."""
    injected = [found for b in run.breakages if (found := b.injected()) is not None and found.sends]
    sending = {nic for each in injected for nic in each.nics}
    by_rail = [((host, nic.name), nic.rail) for host, nics in run.testbed.data_nics.items() for nic in nics]
    rails = {rail for nic, rail in by_rail if nic in sending}
    return {nic for nic, rail in by_rail if rail in rails}


def _observe_and_heal(run: Run) -> None:
    effects = [b.effect_ns[1] for b in run.breakages if b.effect_ns is not None and b.armed]
    if effects:
        sleep_until(max(effects) + int(OBSERVE_S * 1e9))
    if not run.breakages:
        return
    for breakage in run.breakages:
        breakage.heal()
    for breakage in run.breakages:
        if breakage.boot and breakage.effect_ns is not None:
            run.clocks[breakage.injection.host] = run.testbed.clock(breakage.injection.host)
            breakage.await_return()
    time.sleep(SETTLE_S)
    run.changed = _await_same(run)


def _states(run: Run) -> dict[str, State]:
    """The state of everything that the injections may touch, by place."""
    nics = run.testbed.data_nics
    touched = {(host, n.name) for s in run.injections for host, _ in reach(s, nics) for n in nics[host]}
    by_place: dict[str, set[str]] = {}
    for host, name in touched:
        nic = next(n for n in nics[host] if n.name == name)
        by_place.setdefault(host, set()).add(name)
        if nic.switch in run.testbed.places and nic.switch_port:
            by_place.setdefault(nic.switch, set()).add(nic.switch_port)
    places = [run.testbed.place(name) for name in by_place]
    return all_results(for_each(places, lambda place: read_state(place, sorted(by_place[place.name]))))


def _await_same(run: Run) -> list[str]:
    """The differences from the former state that remain a moment after everything was healed."""
    deadline = time.monotonic() + SAME_S
    while True:
        now = _states(run)
        changed = [line for place in run.states for line in differences(place, run.states[place], now[place])]
        if not changed or time.monotonic() > deadline:
            return changed
        time.sleep(0.05)


def _collect(run: Run) -> None:
    """The counters and the state of every host, on our clock."""
    testbed = run.testbed
    left = [host for host in testbed.hosts if host.name not in run.samples]
    samples = run.samples | all_results(for_each(left, lambda host: host.sample_stop()))
    readings = run.readings | for_each(left, lambda host: host.watch_stop())
    testbed.measure_clocks(CLOCKS_EVERY_S)
    began_ns = min((s.t_ns for taken in samples.values() for s in taken), default=0)
    # An hour earlier: the beginning is a time of a clock that may be far from ours.
    clocks = {host.name: run.clocks.get(host.name, testbed.clock(host.name)) for host in testbed.hosts}
    run.clocks = {name: clock.since(began_ns - 3600 * 10**9) for name, clock in clocks.items()}
    run.samples = on_our_clock(samples, run.clocks)
    run.readings = on_our_clock({name: readings_of(run, name, seen) for name, seen in readings.items()}, run.clocks)


def _stalled_s(run: Run) -> float:
    """For how long all hosts stood still, if that explains why ranks were silent."""
    still_s = stood_still_s([host.name for host in run.testbed.hosts], run.readings, run.samples)
    return still_s if still_s >= SHARE * run.testbed.experiment.silence_s else 0.0


def _starved(readings: Sequence[Reading]) -> bool:
    """Whether the host's kernel ended a process for lack of memory meanwhile."""
    killed = [r.value for r in readings if r.metric == "oom_kills" and r.value is not None]
    return bool(killed) and killed[-1] > killed[0]


def _clean_up(run: Run) -> None:
    """Heals everything that is still armed and ends all running processes; a lost host does both by itself."""
    for breakage in run.breakages:
        with suppress(HostError):
            breakage.heal()
    for process in run.processes.values():
        with suppress(HostError):
            if process.poll() is None:
                process.signal(SIGKILL)
                process.wait(KILL_S)


def _facts(run: Run) -> Facts:
    trial, slow = run.trial, _slow(run) or _short(run)
    for host, record in zip(run.testbed.hosts, run.log.ranks, strict=True):
        record.reclock(run.clocks[host.name].ours_ns)
    return Facts(
        ranks=run.log.ranks,
        iterations=trial.iterations,
        expect_on_fault=_expected(run),
        fault_planned=trial.fault is not None,
        injections=[injected for b in run.breakages if (injected := b.injected()) is not None],
        due=() if trial.fault is None or trial.fault.by_chance else run.injections,
        hosts=[host.name for host in run.testbed.hosts],
        gpus=run.testbed.experiment.workload.gpus,
        hang=None if slow else run.hang,
        stalled_s=_stalled_s(run),
        cut_off=slow or run.cut_off,
        killed=frozenset(_ranks_killed(run)),
        samples=run.samples,
        changed=run.changed,
        left_out=run.left_out,
        drawn=by_chance(run),
        starved=frozenset(host for host, seen in run.readings.items() if _starved(seen)),
        checkers=run.testbed.experiment.workload.checkers,
        lengthen=run.testbed.experiment.workload.lengthen,
        awaited=_awaited(trial),
        comes_again=trial.fault is not None and trial.fault.times > 1,
        aim=_aim(trial),
        nic_bytes=nic_bytes(run.testbed, trial),
    )


def _aim(trial: Trial) -> str:
    """How to hit a NIC in use, if the fault names one by name or rail."""
    fault = trial.fault
    if fault is None or fault.by_chance or FAULTS[fault.kind].scope != "nic" or fault.nic == BUSIEST:
        return ""
    return f'write nic = "{BUSIEST}"{" instead of rail" if fault.nic is None else ""} to hit one in use'


def _awaited(trial: Trial) -> str:
    """What the fault waits for and the iterations may not reach: a time, or what chance draws. An iteration that they
    all have is reached."""
    fault = trial.fault
    if fault is not None and fault.mtbf_s is not None:
        why = f"mtbf is {fault.mtbf_s:g} s, and none came during the iterations"
        return f"{why}; choose a shorter one, or more iterations"
    if fault is None or fault.at_time_s is None:
        return ""
    return f"at_time is {fault.at_time_s:g} s, and no iteration began so late; choose an earlier time"


def _ranks_killed(run: Run) -> Iterator[int]:
    for breakage in run.breakages:
        if FAULTS[breakage.injection.kind].kills and breakage.effect_ns is not None:
            yield next(rank for rank, host in enumerate(run.testbed.hosts) if host.name == breakage.injection.host)


def _expected(run: Run) -> Expectation:
    """The expected status of the trial, given the faults in it."""
    came = [breakage for breakage in run.breakages if breakage.effect_ns is not None]
    return expected(run.trial, [Came(b.injection.kind, _effects(b), b.injection.lasts_s) for b in came])


def _effects(breakage: Breakage) -> Sequence[Effect]:
    fault = create(breakage.injection.kind, breakage.injection.parameters)
    return [effect for target in breakage.targets for effect in fault.effects(target)]
