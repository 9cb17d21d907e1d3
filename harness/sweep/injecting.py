"""The faults of one attempt at a trial: arms them ahead, fires the aimed one in its iteration and the others by the
clock, and heals those whose time is over."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from faults.base import Target
from faults.registry import FAULTS
from harness.hosts.base import After
from harness.hosts.each import for_each
from harness.sweep.attempt import GRACE_S, Run, by_chance, readings_of, sleep_until, wait_for, wait_until
from harness.sweep.breakage import Breakage
from harness.sweep.fault_timing import (
    chosen_begin_ns,
    expected_ns,
    fire_at_ns,
    is_near,
    lead_of,
    shortest_ns,
)
from harness.sweep.scenario import BUSIEST, Injection, fits, held, named
from reports.effect import BASELINE_NS

CLOSELY_AGAIN_S = 1.0
"""When close sampling begins anew if the fault has not come, well before it ends by itself."""
LOOK_S = 0.05
"""How often it is looked whether the fault is near."""
ARM_NS = 150_000_000
"""How long arming may take on a busy machine."""
AHEAD = 16
"""How many injections are armed at most before the ranks are ready: each is a waiting process, and a scenario may have
a thousand. The others are armed in the pauses between injections."""
LATE_NS = 100_000_000
"""A failure by chance that would come later than its time by more than this is left out."""


def prepare(run: Run) -> None:
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


def _arm_ahead(run: Run, number: int, injection: Injection) -> None:
    """Arms an injection in the state of its NIC that it will meet. One like it that was armed while the NIC was whole
    has the same targets if it is whole now: to look them up takes half of the time."""
    whole = not _broken_there(run, injection)
    like = [one for one in run.ahead.values() if whole and one.armed_whole and injection.is_like(one.injection)]
    run.ahead[number, injection.nic] = _arm(run, injection, like[0].targets if like else ())
    run.ahead[number, injection.nic].armed_whole = whole


def _chosen(run: Run, injection: Injection) -> Injection:
    """The injection with its NIC: the busiest one is the one that has moved the most bytes until now."""
    if injection.nic != BUSIEST:
        return injection
    moved = run.testbed.host(injection.host).moved()
    return replace(injection, nic=max(moved, key=lambda nic: moved[nic]))


def _armed(run: Run, number: int, injection: Injection) -> Breakage:
    """The injection, armed: now, unless it was before."""
    return run.ahead.get((number, injection.nic)) or _arm(run, injection)


def _arm(run: Run, injection: Injection, targets: Sequence[Target] = ()) -> Breakage:
    """Arms one injection, on `targets` if they are known."""
    limits = run.testbed.experiment.sweep.limits
    name = f"{run.trial.trial_id}-{run.attempt}-{len(run.breakages)}"
    breakage = Breakage(run.testbed, injection, name, list(targets))
    run.breakages.append(breakage)
    breakage.arm(run.pids(), run.testbed.experiment.ready_s + limits.trial_s + 2 * GRACE_S)
    return breakage


def inject(run: Run) -> None:
    """The aimed injection, then those by the clock; returns at once if there is nothing more to hit."""
    if not run.injections or run.given_up:
        return
    first = run.log.ranks[0]
    if run.injections[0].aimed:
        anchor_ns = _inject_aimed(run)
        rest = run.injections[1:]
    else:
        wait_for(run, lambda: 0 in first.begun or run.is_over())
        anchor_ns = first.begun.get(0)
        rest = run.injections
    if anchor_ns is not None:
        _inject_by_clock(run, anchor_ns, rest)


def _inject_aimed(run: Run) -> int | None:
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
        wait_for(
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
            sleep_until(fire_ns - BASELINE_NS)
            _sample_closely(run)
        breakage.planned_ns = fire_ns + latency_ns
        sleep_until(fire_ns)
        fired_ns = time.time_ns()
        breakage.fire()
        assert breakage.effect_ns is not None
        testbed.latencies.measured(breakage.injection.kind, sum(breakage.effect_ns) // 2 - fired_ns)
    return breakage.effect_ns[1] if breakage.effect_ns else None


def _await_closely(run: Run, condition: Callable[[], bool]) -> None:
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
        wait_for(run, lambda: condition() or is_due(), LOOK_S)
        return run.log.look(lambda: not condition() and is_due() and not run.is_over())

    while wait():
        _sample_closely(run)


def _sample_closely(run: Run) -> None:
    run.testbed.host(run.injections[0].host).sample_closely()
    run.closely_s = time.monotonic()


def _after(run: Run, breakage: Breakage, begin_ns: int, lasts_ns: int) -> After:
    """The condition that the host itself waits for, so that no event has to travel to the harness."""
    fault, injection = run.trial.fault, breakage.injection
    assert fault is not None and fault.after_bytes is not None
    offset_ns = run.testbed.offset_ns(injection.host)
    nic = injection.nic or run.testbed.host(injection.host).nics[0].name
    limit_s = run.testbed.experiment.silence_s
    return After(nic, begin_ns + offset_ns, lasts_ns, fault.after_bytes, limit_s)


def _inject_by_clock(run: Run, anchor_ns: int, todo: Sequence[Injection]) -> None:
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
        if waiting and not is_ahead and _may_arm_ahead(run, waiting[0], heal_ns, fire_ns or 0):
            waiting[0] = _chosen(run, waiting[0])
            _arm_ahead(run, number, waiting[0])
        if wait_until(run, min(moments)):
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


def _fire_ns(run: Run, anchor_ns: int, injection: Injection) -> int:
    """When an injection comes: at its time, but not before those have lasted as long as they should that are over by
    then in the scenario. A late heal would otherwise undo this injection, too. By chance, it is left out instead."""
    planned_ns = _planned_ns(anchor_ns, injection)
    over = [b for b in run.breakages if b.injection.is_over_by(injection.offset_s)]
    return planned_ns if by_chance(run) else max([planned_ns, *filter(None, map(_heal_due_ns, over))])


def _heal_what_is_due(run: Run) -> bool:
    """Heals what has lasted as long as it should; returns whether there was anything."""
    now_ns = time.time_ns()
    due = [(due_ns, b) for b in run.breakages if (due_ns := _heal_due_ns(b)) is not None and due_ns <= now_ns]
    for _, breakage in sorted(due, key=lambda heal: heal[0]):
        breakage.heal()
    return bool(due)


def _heal_due_ns(breakage: Breakage) -> int | None:
    """When an injection of limited duration is to be healed; None if the end of the trial heals it."""
    if breakage.effect_ns is None or not breakage.armed or breakage.injection.lasts_s is None:
        return None
    return breakage.effect_ns[1] + int(breakage.injection.lasts_s * 1e9)


def _may_arm_ahead(run: Run, injection: Injection, heal_due_ns: int | None, fire_ns: int) -> bool:
    """Whether there is time to arm it before a heal is due, and what is broken that it holds will be broken still when
    it comes: arming looks at the NIC as it is, so it has to be in the state that the injection meets. Failures by
    chance never meet a broken NIC."""
    if heal_due_ns is not None and heal_due_ns - time.time_ns() < ARM_NS:
        return False
    standing = _broken_there(run, injection)
    until_ns = min(filter(None, map(_heal_due_ns, standing)), default=None)
    return not standing or (not by_chance(run) and (until_ns is None or until_ns > fire_ns))


def _broken_there(run: Run, injection: Injection) -> list[Breakage]:
    """What is broken now of what the injection holds, or may hold."""
    nics = run.testbed.data_nics
    mine = {nic for one in named(injection, nics) for nic in held(one, nics)}
    return [b for b in run.breakages if b.armed and b.effect_ns is not None and mine & set(held(b.injection, nics))]


def _is_overdue(run: Run, anchor_ns: int, injection: Injection) -> bool:
    """Whether it is too late for a failure by chance. Checked before it is armed: arming an overdue failure would make
    the next one overdue, too, and a slow machine would never break anything again."""
    return by_chance(run) and time.time_ns() - _planned_ns(anchor_ns, injection) > LATE_NS


def _is_in_the_way(run: Run, injection: Injection) -> bool:
    """Whether late heals leave no room for a failure by chance: failures would add up to one that was not drawn."""
    nics = run.testbed.data_nics
    broken = [nic for b in run.breakages if b.armed and b.effect_ns is not None for nic in held(b.injection, nics)]
    return by_chance(run) and not fits(held(injection, nics), broken, nics)


def _leave_out(run: Run, number: int) -> None:
    run.left_out += 1
    for (of, _), breakage in run.ahead.items():
        if of == number:
            breakage.heal()


def _fetch(run: Run, breakage: Breakage) -> None:
    """Saves the host's samples and readings so far, shortly before it restarts and loses them."""
    if FAULTS[breakage.injection.kind].restarts and breakage.injection.host not in run.samples:
        host = run.testbed.host(breakage.injection.host)
        run.samples[host.name] = host.sample_stop()
        for name, seen in for_each([host], lambda host: host.watch_stop()).items():
            run.readings[name] = readings_of(run, name, seen)
