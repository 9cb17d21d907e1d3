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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from signal import SIGKILL

from faults.base import Effect, Target
from faults.registry import FAULTS, create
from harness.errors import HostError, UnhealthyError
from harness.events import EventLog
from harness.hosts.base import After, Host, Reading, RemoteProcess, Sample
from harness.hosts.each import all_results, for_each
from harness.hosts.state import State, differences, read_state
from harness.sweep.breakage import Breakage
from harness.sweep.clock import Clock
from harness.sweep.expectation import HANG_S, Came, expected
from harness.sweep.fault_timing import (
    chosen_begin_ns,
    expected_ns,
    fire_at_ns,
    is_near,
    lead_of,
    shortest_ns,
)
from harness.sweep.judge import Facts, Judgement, judge, rank_numbers, with_watch
from harness.sweep.networks import network_of, nic_bytes, with_network
from harness.sweep.on_our_clock import on_our_clock
from harness.sweep.plan import Trial
from harness.sweep.scenario import BUSIEST, Injection, fits, held, injections, named, reach
from harness.sweep.stalled import SHARE, stood_still_s
from harness.sweep.still_moving import still_moving
from harness.sweep.testbed import CLOCKS_EVERY_S, HostTestbed
from harness.systems.base import Expectation
from reports.effect import BASELINE_NS

SAMPLE_S = 0.01
CLOSELY_AGAIN_S = 1.0
"""When close sampling begins anew if the fault has not come, well before it ends by itself."""
LOOK_S = 0.05
"""How often it is looked whether the fault is near."""
WATCH_S = 0.1
GRACE_S = 2.0
"""How long the other ranks may take to end after the first error."""
OBSERVE_S = 0.06
"""The least duration of a fault, so that several samples show the dead NIC."""
KILL_S = 5.0
SETTLE_S = 0.025
"""Time from the heal to the last sample, so that a sample shows the NIC up again."""
ARM_NS = 150_000_000
"""How long arming may take on a busy machine."""
AHEAD = 16
"""How many injections are armed at most before the ranks are ready: each is a waiting process, and a scenario may have
a thousand. The others are armed in the pauses between injections."""
LATE_NS = 100_000_000
"""A failure by chance that would come later than its time by more than this is left out."""
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


@dataclass(frozen=True)
class _Silence:
    """Ranks were silent for as long as a limit allows."""

    told: str
    key: str
    """The limit's key in the experiment."""
    limit_s: float
    ended_ns: int
    """When the limit was over, on our clock."""


@dataclass
class _Run:
    """The state of one attempt in progress."""

    testbed: HostTestbed
    trial: Trial
    attempt: int
    log: EventLog
    processes: dict[str, RemoteProcess] = field(default_factory=dict)
    deadline_s: float = float("inf")
    hang: str | None = None
    silent: _Silence | None = None
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


def run_trial(testbed: HostTestbed, trial: Trial, attempt: int) -> Outcome:
    """Runs `trial` once and judges it.

    Raises `UnhealthyError` if the cluster is not fit for it and `HostError` if a host is lost on the way; a trial that
    fails is an `Outcome`, not an error.
    """
    started_s = time.time()
    testbed.measure_clocks(CLOCKS_EVERY_S)
    run = _Run(testbed, trial, attempt, EventLog([testbed.offset_ns(h.name) for h in testbed.hosts]))
    with run.step("check"):
        _make_healthy(run)
    try:
        with run.step("start"):
            _draw(run)
            strikes_ranks = any(injection.scope == "process" for injection in run.injections)
            if not strikes_ranks:
                _prepare(run)
            _start(run)
            if strikes_ranks:
                _prepare(run)
        with run.step("ready"):
            _await_ready(run)
        with run.step("watch"):
            _inject(run)
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


def _make_healthy(run: _Run) -> None:
    """Checks the cluster; if that fails, heals everything that is still armed and checks again."""
    try:
        run.testbed.check()
    except UnhealthyError:
        for place in run.testbed.places.values():
            place.heal_journal(all=False)
        run.testbed.check()


def _start(run: _Run) -> None:
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


def _draw(run: _Run) -> None:
    fault, limits = run.trial.fault, run.testbed.experiment.sweep.limits
    if fault is not None:
        run.injections = injections(fault, run.testbed.data_nics, run.trial.seed, limits.trial_s)
        run.states = _states(run)


def _prepare(run: _Run) -> None:
    """Arms the injections of an aimed table: later that takes time, 0.1 to 0.3 s each beside ranks on a busy machine,
    in which a trial's short iterations are over."""
    fault, nics = run.trial.fault, run.testbed.data_nics
    for number, injection in enumerate(() if fault is None or fault.by_chance else run.injections):
        standing = [one for one in run.injections[:number] if not one.is_over_by(injection.offset_s)]
        holding = {thing for earlier in standing for one in named(earlier, nics) for thing in held(one, nics)}
        for one in named(injection, nics):
            if len(run.ahead) == AHEAD or (run.ahead and run.log.all_ready()):  # the first must not miss its iteration
                return
            if not holding & set(held(one, nics)):  # else it can be armed only in their state then
                _arm_ahead(run, number, one)


def _arm_ahead(run: _Run, number: int, injection: Injection) -> None:
    """Arms an injection while nothing is broken that it holds. One like it that was armed so has the same targets: to
    look them up takes half of the time."""
    known = [breakage.targets for breakage in run.ahead.values() if injection.is_like(breakage.injection)]
    run.ahead[number, injection.nic] = _arm(run, injection, known[0] if known else ())


def _chosen(run: _Run, injection: Injection) -> Injection:
    """The injection with its NIC: the busiest one is the one that has moved the most bytes until now."""
    if injection.nic != BUSIEST:
        return injection
    moved = run.testbed.host(injection.host).moved()
    return replace(injection, nic=max(moved, key=lambda nic: moved[nic]))


def _armed(run: _Run, number: int, injection: Injection) -> Breakage:
    """The injection, armed: now, unless it was before."""
    return run.ahead.get((number, injection.nic)) or _arm(run, injection)


def _arm(run: _Run, injection: Injection, targets: Sequence[Target] = ()) -> Breakage:
    """Arms one injection, on `targets` if they are known."""
    limits = run.testbed.experiment.sweep.limits
    name = f"{run.trial.trial_id}-{run.attempt}-{len(run.breakages)}"
    breakage = Breakage(run.testbed, injection, name, list(targets))
    run.breakages.append(breakage)
    breakage.arm(run.pids(), run.testbed.experiment.ready_s + limits.trial_s + 2 * GRACE_S)
    return breakage


def _fetch(run: _Run, breakage: Breakage) -> None:
    """Saves the host's samples and readings so far, shortly before it restarts and loses them."""
    if FAULTS[breakage.injection.kind].restarts and breakage.injection.host not in run.samples:
        host = run.testbed.host(breakage.injection.host)
        run.samples[host.name] = host.sample_stop()
        for name, seen in for_each([host], lambda host: host.watch_stop()).items():
            run.readings[name] = _told(run, name, seen)


def _await_ready(run: _Run) -> None:
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
            _give_up(run, f"{which} not ready after {limit_s:g} s", "sweep.limits.ready", limit_s)
    run.deadline_s = time.monotonic() + run.testbed.experiment.sweep.limits.trial_s


def _inject(run: _Run) -> None:
    """The aimed injection, then those by the clock; returns at once if there is nothing more to hit."""
    if not run.injections or run.given_up:
        return
    first = run.log.ranks[0]
    if run.injections[0].aimed:
        anchor_ns = _inject_aimed(run)
        rest = run.injections[1:]
    else:
        _wait(run, lambda: 0 in first.begun or run.is_over())
        anchor_ns = first.begun.get(0)
        rest = run.injections
    if anchor_ns is not None:
        _inject_by_clock(run, anchor_ns, rest)


def _inject_aimed(run: _Run) -> int | None:
    """Waits for the chosen iteration and fires. Returns the time of the effect, None if that iteration does not
    come."""
    fault, log, testbed = run.trial.fault, run.log, run.testbed
    assert fault is not None
    first = log.ranks[0]
    if run.injections[0].nic == BUSIEST:  # known only after some traffic
        _await_closely(run, lambda: bool(first.finished) or run.is_over())
        if run.is_over():
            return None
    breakage = _armed(run, 0, _chosen(run, run.injections[0]))
    if FAULTS[breakage.injection.kind].restarts:  # while the iteration before the chosen one runs
        _wait(
            run,
            lambda: max(first.begun, default=-1) >= max((run.trial.fault_iteration() or 1) - 1, 0) or run.is_over(),
        )
        _fetch(run, breakage)
    model_s = testbed.experiment.expected_duration_s(run.trial.size_bytes)
    by_bytes = fault.after_bytes is not None
    latency_ns = testbed.latencies.expected_ns(breakage.injection.kind)
    lead = 0 if by_bytes else lead_of(fault.into, int(model_s * 1e9), latency_ns)
    begin_ns: int | None = None

    def known_or_over() -> bool:
        nonlocal begin_ns
        begin_ns = chosen_begin_ns(run.trial, fault, first.begun, lead)
        return begin_ns is not None or log.any_failed() or log.all_ended()

    _await_closely(run, known_or_over)
    if begin_ns is None or log.any_failed():
        return None
    lasts_ns = log.look(lambda: expected_ns(first.finished, model_s))
    if by_bytes:
        breakage.fire(_after(run, breakage, begin_ns, lasts_ns))
    else:
        fire_ns = fire_at_ns(begin_ns, fault.into, lasts_ns, latency_ns)
        if fire_ns - time.time_ns() > BASELINE_NS:
            _sleep_until(fire_ns - BASELINE_NS)
            _sample_closely(run)
        breakage.planned_ns = fire_ns + latency_ns
        _sleep_until(fire_ns)
        fired_ns = time.time_ns()
        breakage.fire()
        assert breakage.effect_ns is not None
        testbed.latencies.measured(breakage.injection.kind, sum(breakage.effect_ns) // 2 - fired_ns)
    return breakage.effect_ns[1] if breakage.effect_ns else None


def _await_closely(run: _Run, condition: Callable[[], bool]) -> None:
    """Waits for `condition`. Meanwhile, while the iteration to hit is near, the counters of the host to strike are
    sampled closely, also where the NIC is not chosen yet."""
    fault, first = run.trial.fault, run.log.ranks[0]
    assert fault is not None
    model_s = run.testbed.experiment.expected_duration_s(run.trial.size_bytes)

    def is_due() -> bool:
        if time.monotonic() - run.closely_s < CLOSELY_AGAIN_S:
            return False
        return is_near(run.trial, fault, first.begun, shortest_ns(first.finished, model_s), time.time_ns())

    def wait() -> bool:
        _wait(run, lambda: condition() or is_due(), LOOK_S)
        return run.log.look(lambda: not condition() and is_due() and not run.is_over())

    while wait():
        _sample_closely(run)


def _sample_closely(run: _Run) -> None:
    run.testbed.host(run.injections[0].host).sample_closely()
    run.closely_s = time.monotonic()


def _after(run: _Run, breakage: Breakage, begin_ns: int, lasts_ns: int) -> After:
    """The condition that the host itself waits for, so that no event has to travel to the harness."""
    fault, injection = run.trial.fault, breakage.injection
    assert fault is not None and fault.after_bytes is not None
    offset_ns = run.testbed.offset_ns(injection.host)
    nic = injection.nic or run.testbed.host(injection.host).nics[0].name
    limit_s = run.testbed.experiment.silence_s
    return After(nic, begin_ns + offset_ns, lasts_ns, fault.after_bytes, limit_s)


def _inject_by_clock(run: _Run, anchor_ns: int, todo: Sequence[Injection]) -> None:
    """Fires and heals in the order of time, until all is done or the ranks have ended. Where both are due, heals come
    first, since a failure that outlasts its time would be another failure."""
    waiting = list(todo)
    while True:
        while waiting and _is_overdue(run, anchor_ns, waiting[0]):
            _leave_out(run, len(run.injections) - len(waiting))
            waiting.pop(0)
        heal_ns = min(filter(None, map(_heal_due_ns, run.breakages)), default=None)
        fire_ns = _fire_ns(run, anchor_ns, waiting[0]) if waiting else None
        moments = [t_ns for t_ns in (heal_ns, fire_ns) if t_ns is not None]
        if not moments:
            return
        number = len(run.injections) - len(waiting)
        is_ahead = number in {of for of, _ in run.ahead}
        if waiting and not is_ahead and _may_arm_ahead(run, waiting[0], heal_ns):
            waiting[0] = _chosen(run, waiting[0])
            _arm_ahead(run, number, waiting[0])
        if _wait_until(run, min(moments)):
            return
        if _heal_what_is_due(run):
            continue
        injection = waiting.pop(0)
        if _is_in_the_way(run, injection):
            _leave_out(run, number)
            continue
        struck = _armed(run, number, _chosen(run, injection))
        _heal_what_is_due(run)  # arming may have taken time
        struck.planned_ns = _planned_ns(anchor_ns, injection)
        _fetch(run, struck)
        struck.fire()


def _planned_ns(anchor_ns: int, injection: Injection) -> int:
    return anchor_ns + int(injection.offset_s * 1e9)


def _fire_ns(run: _Run, anchor_ns: int, injection: Injection) -> int:
    """When an injection comes: at its time, but not before those have lasted as long as they should that are over by
    then in the scenario. A late heal would otherwise undo this injection, too. By chance, it is left out instead."""
    planned_ns = _planned_ns(anchor_ns, injection)
    over = [b for b in run.breakages if b.injection.is_over_by(injection.offset_s)]
    return planned_ns if _by_chance(run) else max([planned_ns, *filter(None, map(_heal_due_ns, over))])


def _heal_what_is_due(run: _Run) -> bool:
    """Heals what has lasted as long as it should; returns whether there was anything."""
    now_ns = time.time_ns()
    due = [(due_ns, b) for b in run.breakages if (due_ns := _heal_due_ns(b)) is not None and due_ns <= now_ns]
    for _, breakage in sorted(due, key=lambda heal: heal[0]):
        breakage.heal()
    return bool(due)


def _may_arm_ahead(run: _Run, injection: Injection, heal_due_ns: int | None) -> bool:
    """Whether there is time to arm it before a heal is due, and nothing that is broken now prevents it."""
    if heal_due_ns is not None and heal_due_ns - time.time_ns() < ARM_NS:
        return False
    nics = run.testbed.data_nics
    broken = {nic for b in run.breakages if b.armed and b.effect_ns is not None for nic in held(b.injection, nics)}
    return not broken & {nic for one in named(injection, nics) for nic in held(one, nics)}


def _is_overdue(run: _Run, anchor_ns: int, injection: Injection) -> bool:
    """Whether it is too late for a failure by chance. Checked before it is armed: arming an overdue failure would make
    the next one overdue, too, and a slow machine would never break anything again."""
    return _by_chance(run) and time.time_ns() - anchor_ns - int(injection.offset_s * 1e9) > LATE_NS


def _is_in_the_way(run: _Run, injection: Injection) -> bool:
    """Whether late heals leave no room for a failure by chance: failures would add up to one that was not drawn."""
    nics = run.testbed.data_nics
    broken = [nic for b in run.breakages if b.armed and b.effect_ns is not None for nic in held(b.injection, nics)]
    return _by_chance(run) and not fits(held(injection, nics), broken, nics)


def _by_chance(run: _Run) -> bool:
    return run.trial.fault is not None and run.trial.fault.mtbf_s is not None


def _leave_out(run: _Run, number: int) -> None:
    run.left_out += 1
    for (of, _), breakage in run.ahead.items():
        if of == number:
            breakage.heal()


def _heal_due_ns(breakage: Breakage) -> int | None:
    """When an injection of limited duration is to be healed; None if the end of the trial heals it."""
    if breakage.effect_ns is None or not breakage.armed or breakage.injection.lasts_s is None:
        return None
    return breakage.effect_ns[1] + int(breakage.injection.lasts_s * 1e9)


def _wait_until(run: _Run, t_ns: int) -> bool:
    """Waits until a time; returns True if the trial ended before."""
    while (left_s := (t_ns - time.time_ns()) / 1e9) > 0:
        limit_s = run.deadline_s - time.monotonic()
        if run.log.wait_for(run.is_over, min(left_s, max(limit_s, 0.0))) or limit_s <= 0:
            return True
    return run.is_over()


def _sleep_until(t_ns: int) -> None:
    time.sleep(max(0, t_ns - time.time_ns()) / 1e9)


def _watch(run: _Run) -> None:
    """Waits until every rank has ended; the rest is cut short a moment after the first error, or on a hang."""
    log = run.log
    if not run.given_up:
        _wait(run, lambda: log.all_ended() or log.any_failed())
    if not run.given_up and not log.all_ended():
        log.wait_for(log.all_ended, GRACE_S)
    log.close(given_up=run.given_up)


def _wait(run: _Run, condition: Callable[[], bool], look_s: float = float("inf")) -> None:
    """Waits for `condition`, looked at after each event and every `look_s`. Gives up if ranks fall silent, and sets
    `run.cut_off` if they run too long."""
    experiment, log = run.testbed.experiment, run.log
    silence_s, trial_s = experiment.silence_s, experiment.sweep.limits.trial_s
    while not log.wait_for(condition, min(silence_s - log.idle_s(), run.deadline_s - time.monotonic(), look_s)):
        if log.idle_s() >= silence_s:
            _give_up(run, f"no rank said anything for {silence_s:g} s", "sweep.limits.iteration", silence_s)
            return
        if time.monotonic() >= run.deadline_s:
            spoke = f"ranks last said something {log.idle_s():.1f} s before"
            run.cut_off = f"not over after {trial_s:g} s, and {spoke}: raise sweep.limits.trial"
            return


def _give_up(run: _Run, silence: str, key: str, limit_s: float) -> None:
    """Ends the trial because a limit was reached: a hang of the system if something is broken, the limit is `HANG_S` or
    more and, by the counters that are collected later, nothing moves any more. Before that, healthy ranks may simply
    need longer, so the trial proves nothing."""
    if any(breakage.effect_ns is not None for breakage in run.breakages):
        run.hang = f"hang: {silence} ({key})"
        run.silent = _Silence(silence, key, limit_s, time.time_ns())
    else:
        run.cut_off = f"{silence}, though nothing was broken yet: raise {key} if healthy ranks may take that long"


def _slow(run: _Run) -> str | None:
    """Why a silence was no hang, if the NICs went on carrying data: the limit was too short for such an iteration."""
    if run.silent is None:
        return None
    silent, ranks = run.silent, run.testbed.experiment.workload.gpus
    received = still_moving(run.samples, silent.ended_ns, silent.limit_s, ranks, _flooded(run))
    if received is None:
        return None
    others = "unless it was others' traffic; then the ranks hang"
    return f"{silent.told}, but the NICs still received {received}: raise {silent.key}, {others}"


def _short(run: _Run) -> str | None:
    """Why a silence proves no hang, if the limit is shorter than what a system's own time-outs may take."""
    if run.silent is None or run.silent.limit_s >= HANG_S:
        return None
    return f"{run.silent.told}, too short to tell a hang: raise {run.silent.key} to {HANG_S:g} s or more"


def _flooded(run: _Run) -> set[tuple[str, str]]:
    """The NICs of every rail on which a fault itself sends."""
    injected = [found for b in run.breakages if (found := b.injected()) is not None and found.sends]
    sending = {nic for each in injected for nic in each.nics}
    by_rail = [((host, nic.name), nic.rail) for host, nics in run.testbed.data_nics.items() for nic in nics]
    rails = {rail for nic, rail in by_rail if nic in sending}
    return {nic for nic, rail in by_rail if rail in rails}


def _observe_and_heal(run: _Run) -> None:
    effects = [b.effect_ns[1] for b in run.breakages if b.effect_ns is not None and b.armed]
    if effects:
        _sleep_until(max(effects) + int(OBSERVE_S * 1e9))
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


def _states(run: _Run) -> dict[str, State]:
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


def _await_same(run: _Run) -> list[str]:
    """The differences from the former state that remain a moment after everything was healed."""
    deadline = time.monotonic() + SAME_S
    while True:
        now = _states(run)
        changed = [line for place in run.states for line in differences(place, run.states[place], now[place])]
        if not changed or time.monotonic() > deadline:
            return changed
        time.sleep(0.05)


def _collect(run: _Run) -> None:
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
    run.readings = on_our_clock({name: _told(run, name, seen) for name, seen in readings.items()}, run.clocks)


def _told(run: _Run, host: str, seen: list[Reading] | HostError) -> list[Reading]:
    """The readings of a watch. A failure of the watch is recorded beside the trial, which stays valid without it."""
    if isinstance(seen, HostError):
        run.unwatched[host] = seen.message
        run.log.feed([h.name for h in run.testbed.hosts].index(host), "harness", str(seen))
        return []
    return seen


def _stalled_s(run: _Run) -> float:
    """For how long all hosts stood still, if that explains why ranks were silent."""
    still_s = stood_still_s([host.name for host in run.testbed.hosts], run.readings, run.samples)
    return still_s if still_s >= SHARE * run.testbed.experiment.silence_s else 0.0


def _starved(readings: Sequence[Reading]) -> bool:
    """Whether the host's kernel ended a process for lack of memory meanwhile."""
    killed = [r.value for r in readings if r.metric == "oom_kills" and r.value is not None]
    return bool(killed) and killed[-1] > killed[0]


def _clean_up(run: _Run) -> None:
    """Heals everything that is still armed and ends all running processes; a lost host does both by itself."""
    for breakage in run.breakages:
        with suppress(HostError):
            breakage.heal()
    for process in run.processes.values():
        with suppress(HostError):
            if process.poll() is None:
                process.signal(SIGKILL)
                process.wait(KILL_S)


def _facts(run: _Run) -> Facts:
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
        drawn=_by_chance(run),
        starved=frozenset(host for host, seen in run.readings.items() if _starved(seen)),
        checkers=run.testbed.experiment.workload.checkers,
        lengthen=run.testbed.experiment.workload.lengthen,
        awaited=_awaited(trial),
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
    """The time that the fault waits for and the iterations may not reach; an iteration they all have is reached."""
    fault = trial.fault
    if fault is None or fault.at_time_s is None:
        return ""
    return f"at_time is {fault.at_time_s:g} s, and no iteration began so late; choose an earlier time"


def _ranks_killed(run: _Run) -> Iterator[int]:
    for breakage in run.breakages:
        if FAULTS[breakage.injection.kind].kills and breakage.effect_ns is not None:
            yield next(rank for rank, host in enumerate(run.testbed.hosts) if host.name == breakage.injection.host)


def _expected(run: _Run) -> Expectation:
    """The expected status of the trial, given the faults in it."""
    came = [breakage for breakage in run.breakages if breakage.effect_ns is not None]
    return expected(run.trial, [Came(b.injection.kind, _effects(b), b.injection.lasts_s) for b in came])


def _effects(breakage: Breakage) -> Sequence[Effect]:
    fault = create(breakage.injection.kind, breakage.injection.parameters)
    return [effect for target in breakage.targets for effect in fault.effects(target)]
