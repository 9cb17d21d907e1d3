"""What makes results of a sweep useless although every trial runs as planned: faults that miss their trials, outlast
them or hit what is not used. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from faults.base import severs
from faults.registry import FAULTS, create
from harness.backends.torch import timed_nics
from harness.experiment.fault_tables import BACK_S, FaultModel
from harness.experiment.model import Experiment
from harness.hosts.base import Nic
from harness.sweep import damped
from harness.sweep.estimate import collectives_s, is_hosted, running_s
from harness.sweep.plan import Trial
from harness.sweep.scenario import BUSIEST, injections, reach
from harness.sweep.targets import planned
from harness.systems.catalogue import CATALOGUE, CORE_ON_HOSTS, GIVE_UP, GIVE_UP_MS
from harness.systems.damping import HALF_LIFE
from harness.workloads.collective import FAULTED_S, LEAST_S, CollectiveWorkload, are_few
from r2ccl_core.units import format_size
from reports.metrics.view import LOSES_A_NIC

SLOWER = 1.25
"""How much longer than estimated iterations took at most, on a machine that does nothing else."""
NOTICED_S = 3.0
"""How long after a failure our core may count from, and how long its last words may take."""


def warnings(trials: Sequence[Trial]) -> Iterator[str]:
    """What makes results useless although every trial runs as planned, and the iterations that nobody asked for. The
    sweep itself begins with them as well: not everybody asks for a dry run."""
    yield from _added(trials)
    yield from _too_short(trials)
    yield from _never(trials)
    yield from _outlasting(trials)
    yield from _held_back(trials)
    yield from _few_healthy(trials)
    yield from _none_healthy(trials)
    yield from _served_alone(trials)
    yield from _last_nic(trials)
    yield from _never_used(trials)
    yield from _no_machines(trials)
    yield from _longer_than_allowed(trials)
    yield from _gives_up_later(trials)


def _added(trials: Sequence[Trial]) -> Iterator[str]:
    """Tells of the iterations that the default of `min_duration` adds, by size."""
    found: dict[int, list[int]] = {}
    for trial in trials:
        workload = trial.variant.experiment.workload
        if not isinstance(workload, CollectiveWorkload) or workload.min_duration_s is not None:
            continue
        if trial.iterations > workload.asked_iterations(trial.size_bytes):
            found.setdefault(trial.size_bytes, []).append(trial.iterations)
    if found:
        told = ", ".join(f"{format_size(size)} has {_range(counts)}" for size, counts in found.items())
        yield (
            "note: iterations are added, so that a fault hits short ones and is over before they are: "
            f"{told} iterations; workload.min_duration changes that"
        )


def _range(counts: Sequence[int]) -> str:
    """All of them: ``43``, or ``43 to 86`` where collectives differ."""
    least, most = min(counts), max(counts)
    return str(least) if least == most else f"{least} to {most}"


def _too_short(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns if aimed faults may come after the end of the collectives: aiming takes some milliseconds."""
    faulted = [t for t in trials if t.fault is not None and not t.fault.by_chance and t.size_bytes]
    hosted = list(filter(is_hosted, faulted))
    short = [t for t in hosted if are_few(t.iterations, t.variant.experiment.expected_duration_s(t.size_bytes))]
    if short:
        sizes = ", ".join(dict.fromkeys(format_size(t.size_bytes) for t in short))
        yield (
            f"warning: the collectives of {counted(len(short), 'trial')} with a fault ({sizes}) may be over before it "
            f'comes; set workload.min_duration = "{FAULTED_S:g} s"'
        )


def _never(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of failures that come at a time at which a healthy trial would be over."""
    late: dict[tuple[str, float, float], int] = {}
    for trial in trials:
        if trial.size_bytes and (at_s := _latest_s(trial)) >= (lasts_s := collectives_s(trial)) > 0:
            about = format_size(trial.size_bytes), lasts_s, at_s
            late[about] = late.get(about, 0) + 1
    for (size, lasts_s, at_s), count in late.items():
        yield (
            f"warning: {counted(count, 'trial')} ({size}) may be over before a failure comes: the iterations take "
            f"about {lasts_s:.2g} s, and it comes {at_s:.3g} s after the first begins; choose an earlier time, or "
            "set workload.min_duration to more than that"
        )


def _latest_s(trial: Trial) -> float:
    """When the last failure comes that has a time of its own; 0 without one. Those by chance may well come later."""
    fault = trial.fault
    if fault is None or fault.mtbf_s is not None:
        return 0.0
    last_s = max(one.offset_s for one in injections(fault, named_nics(trial.variant.experiment), trial.seed, math.inf))
    iteration = trial.fault_iteration() if not fault.by_chance else 0
    if iteration is None:
        return last_s + (fault.at_time_s or 0.0)
    return last_s + iteration * trial.variant.experiment.expected_duration_s(trial.size_bytes) if last_s else 0.0


def _outlasting(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of faults that end after their trial, in which no repair is seen, and whose cost is then that of the
    trial's length."""
    late = []
    for trial, fault, each_s in _healed(trials):
        if _ends_before_repair(trial, fault, each_s):
            back_s = max(fault.over_s + BACK_S, damped.back_s(trial, named_nics(trial.variant.experiment)))
            late.append((trial, fault.iterations_s(back_s, each_s)))
    if late:
        yield (
            f"warning: the fault lasts longer than what follows it of {counted(len(late), 'trial')} ({_sizes(late)}), "
            "which end before the repair, and what systems lose until then does not compare; "
            f"{_longer(late)}a shorter lasts"
        )


def _held_back(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of trials that see the repair, and may end while our core holds the NIC back."""
    late, longest_s = [], 0.0
    for trial, fault, each_s in _healed(trials):
        back_s = damped.back_s(trial, named_nics(trial.variant.experiment))
        need_s = fault.iterations_s(back_s, each_s)
        if back_s and not _ends_before_repair(trial, fault, each_s) and trial.iterations * each_s < need_s:
            late.append((trial, need_s))
            longest_s = max(longest_s, back_s - fault.over_s)
    if late:
        yield (
            f"warning: our core holds back a NIC that it lost often, here until {longest_s:.1f} s after the repair: "
            f"{counted(len(late), 'trial')} ({_sizes(late)}) may end before that, and lose more than is seen; "
            f"{_longer(late)}fewer losses, or system.env.{HALF_LIFE} = 0, which holds none back"
        )


def _healed(trials: Sequence[Trial]) -> Iterator[tuple[Trial, FaultModel, float]]:
    """The trials of collectives with an aimed fault that is healed, and what one iteration takes."""
    for trial in trials:
        fault = trial.fault
        if fault is not None and not fault.by_chance and fault.lasts_s is not None and trial.size_bytes:
            yield trial, fault, max(trial.variant.experiment.expected_duration_s(trial.size_bytes), LEAST_S)


def _ends_before_repair(trial: Trial, fault: FaultModel, each_s: float) -> bool:
    assert fault.lasts_s is not None
    return (fault.at_time_s or 0.0) < trial.iterations * each_s < fault.iterations_s(fault.lasts_s, each_s)


def _sizes(late: Sequence[tuple[Trial, float]]) -> str:
    return ", ".join(dict.fromkeys(format_size(trial.size_bytes) for trial, _ in late))


def _longer(late: Sequence[tuple[Trial, float]]) -> str:
    """The `min_duration` that these trials need, as the first of several remedies; where no trial may last so long, an
    earlier fault."""
    need_s = math.ceil(10 * max(need_s for _, need_s in late)) / 10
    limit_s = min(trial.variant.experiment.sweep.limits.trial_s for trial, _ in late)
    if need_s <= limit_s:
        return f'set workload.min_duration = "{need_s:g} s", or '
    return f"to see more takes {need_s:g} s, and sweep.limits.trial is {limit_s:g} s; choose an earlier moment, or "


def _few_healthy(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns where `min_duration` adds iterations after the fault only: the few before it, of which the first are slow,
    do not say what healthy is."""
    found: list[tuple[Trial, str]] = []
    for trial in trials:
        workload, fault = trial.variant.experiment.workload, trial.fault
        if isinstance(workload, CollectiveWorkload) and fault is not None and fault.at_iteration is not None:
            asked = workload.asked_iterations(trial.size_bytes)
            if trial.iterations > asked:
                found.append((trial, f"{fault.at_iteration / asked:.2g}"))
    if found:
        sizes = ", ".join(dict.fromkeys(format_size(trial.size_bytes) for trial, _ in found))
        share = found[0][1]
        serves = 0 < float(share) < 1 and all(other == share for _, other in found)
        yield (
            f"warning: min_duration adds iterations to {counted(len(found), 'trial')} ({sizes}), but none before the "
            "fault's at_iteration, and those before it say what healthy is; write at_progress"
            f"{f' = {share}' if serves else ', such as 0.5,'} instead"
        )


def _none_healthy(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of faults that strike the first iteration, before which nothing says what healthy is."""
    struck = [trial for trial in trials if (fault := trial.fault) and 0 in (fault.at_iteration, fault.at_progress)]
    if struck:
        yield (
            f"warning: the fault comes in the first iteration of {counted(len(struck), 'trial')}, so that none before "
            "it says what healthy is, and T/T0 and the time lost are not measured; aim it at a later one"
        )


def _served_alone(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of requests under faults that have no healthy trial to compare with: they queue, so those before the fault
    say little of those after it."""
    alone = [
        trial
        for trial in trials
        if (experiment := trial.variant.experiment).workload.kind == "serving"
        and trial.fault is not None
        and experiment.sweep.healthy == "off"
    ]
    if alone:
        yield (
            f"warning: {counted(len(alone), 'trial')} of serving with a fault will have no healthy trial to compare "
            'requests with, so that only their times are told; set sweep.healthy = "ends"'
        )


def _last_nic(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of faults that take the only NIC of a host for good from systems that are expected to go on."""
    found = []
    for trial in trials:
        fault = trial.fault
        if fault is None or fault.by_chance or fault.lasts_s is not None or fault.kind not in LOSES_A_NIC:
            continue
        hosts = named_nics(trial.variant.experiment)
        struck = [one.host for one in injections(fault, hosts, trial.seed, math.inf) if len(hosts[one.host]) == 1]
        if struck and (fault.expected_of(trial.system.name) or trial.system.expect_on_fault) == "ok":
            found.append((struck[0], trial))
    if found:
        host, first = found[0]
        yield (
            f"warning: the fault takes the only NIC of {host} in {counted(len(found), 'trial')}, after which no "
            f"system goes on, and {first.system.name} is expected to; give hosts two NICs or more, or the fault a lasts"
        )


def _never_used(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of faults that hit only NICs that their system uses for no timed collective: nothing shows that they hit,
    so that every attempt is inconclusive."""
    found: dict[str, list[tuple[str, Sequence[int]]]] = defaultdict(list)
    for trial in trials:
        if idle := _idle(trial):
            found[trial.system.name].append(idle)
    for system, struck in found.items():
        nic, rails = struck[0]
        yield (
            f"warning: {counted(len(struck), 'trial')} of {system} will be inconclusive: the fault hits {nic}, which "
            f"carries none of its collectives; write rail = {' or '.join(map(str, rails))} instead"
        )


def _no_machines(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of faults that only QEMU makes, on hosts that are no virtual machines: the sweep refuses them, once its
    cluster is up."""
    found: dict[str, int] = {}
    for trial in trials:
        experiment, fault = trial.variant.experiment, trial.fault
        if fault is None or not is_hosted(trial) or experiment.cluster.kind == "vms":
            continue
        for kind in fault.kinds:
            found[kind] = found.get(kind, 0) + FAULTS[kind].needs_machine
    for kind, count in found.items():
        if count:
            yield (
                f"warning: the sweep will refuse {counted(count, 'trial')} with {kind}, which needs virtual machines; "
                'use cluster.kind = "vms", or simulate them with --set workload.backend=simulate'
            )


def _idle(trial: Trial) -> tuple[str, Sequence[int]] | None:
    """An aimed target of the trial that its system never uses, and the rails that it uses; None if there is none."""
    experiment, fault, use = trial.variant.experiment, trial.fault, trial.system.use
    workload = experiment.workload
    if fault is None or fault.by_chance or use is None or not isinstance(workload, CollectiveWorkload):
        return None
    if not CATALOGUE[use].nics_in_turn:
        return None
    hosts = named_nics(experiment)
    used = {
        host: [nics[at] for at in timed_nics(workload.collective, len(nics))] for host, nics in hosts.items() if nics
    }
    carry = {(host, name) for host, nics in used.items() for name in (BUSIEST, *(nic.name for nic in nics))}
    aimed = [one for one in injections(fault, hosts, trial.seed, math.inf) if one.aimed and one.host in used]
    idle = next((one for one in aimed if carry.isdisjoint(reach(one, hosts))), None)
    return None if idle is None else (f"{idle.host} {idle.nic}", [nic.rail for nic in used[idle.host]])


def _gives_up_later(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of limits that end a trial before our core has given up a host that no NIC reaches: its own error would
    never be seen, and the trial be told as a hang."""
    found: dict[tuple[str, float, float], int] = {}
    for trial in trials:
        experiment = trial.variant.experiment
        system, backend = trial.system, experiment.backend_of(trial.system)
        if system.mode == 0 or backend not in CORE_ON_HOSTS:  # mode 0 stops at the first loss
            continue
        gives_up_s = float(system.env.get(GIVE_UP, GIVE_UP_MS)) / 1e3
        if not _isolates(trial, gives_up_s):
            continue
        limits = {"iteration": experiment.silence_s, "trial": experiment.sweep.limits.trial_s}
        for key, limit_s in limits.items():
            if limit_s < gives_up_s + NOTICED_S:
                found[key, limit_s, gives_up_s] = found.get((key, limit_s, gives_up_s), 0) + 1
    for (key, limit_s, gives_up_s), count in found.items():
        yield (
            f"warning: sweep.limits.{key}, {limit_s:g} s, ends {counted(count, 'trial')} before our core gives up a "
            f"host that no NIC reaches, after {gives_up_s:g} s; set it to {gives_up_s + NOTICED_S:g} s or more, or "
            f"lower system.env.{GIVE_UP}"
        )


def _longer_than_allowed(trials: Sequence[Trial]) -> Iterator[str]:
    """Warns of trials that are cut off before their iterations are over."""
    found: dict[float, list[tuple[Trial, float]]] = defaultdict(list)
    for trial in filter(is_hosted, trials):
        limit_s, need_s = trial.variant.experiment.sweep.limits.trial_s, running_s(trial)
        if need_s * SLOWER > limit_s:
            found[limit_s].append((trial, need_s))
    for limit_s, late in found.items():
        need_s = max(need_s for _, need_s in late)
        sizes = f" ({_sizes(late)})" if late[0][0].size_bytes else ""
        yield (
            f"warning: {counted(len(late), 'trial')}{sizes} may be cut off by sweep.limits.trial, {limit_s:g} s, and "
            f"then be inconclusive: the iterations take {need_s:.2g} s or a little more; set it to "
            f"{math.ceil(need_s * SLOWER) + 1} s, or ask for fewer"
        )


def _isolates(trial: Trial, least_s: float) -> bool:
    """Whether the fault leaves a host without any NIC for `least_s` or longer."""
    fault, hosts = trial.fault, named_nics(trial.variant.experiment)
    if fault is None or fault.by_chance:
        return False
    dead: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for injection in injections(fault, hosts, trial.seed, math.inf):
        made = create(injection.kind, injection.parameters)
        healed_s = math.inf if injection.lasts_s is None else injection.offset_s + injection.lasts_s
        for effect in (effect for target in planned(injection, hosts) for effect in made.effects(target)):
            if severs((effect,)):
                dead[effect.host, effect.nic].append((injection.offset_s, healed_s))
    return any(nics and _together_s([dead[host, nic.name] for nic in nics]) >= least_s for host, nics in hosts.items())


def _together_s(spans: Sequence[Sequence[tuple[float, float]]]) -> float:
    """The longest time in which all NICs are dead, given when each of them is, from and until."""
    begins = ((span[0], 0, nic) for nic, own in enumerate(spans) for span in own)
    ends = ((span[1], 1, nic) for nic, own in enumerate(spans) for span in own)
    longest_s = since_s = 0.0
    dead = [0] * len(spans)
    for at_s, is_end, nic in sorted((*begins, *ends)):  # at one moment, begins come first: no gap between two faults
        if is_end and all(dead):
            longest_s = max(longest_s, at_s - since_s)
        elif not is_end and not all(dead):
            since_s = at_s
        dead[nic] += -1 if is_end else 1
    return longest_s


def counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def named_nics(experiment: Experiment) -> dict[str, tuple[Nic, ...]]:
    """The data NICs of every host; a NIC whose name only the host knows is called RAIL<N>."""
    known = experiment.cluster.data_nics()
    return {
        host: tuple(replace(nic, name=nic.name or f"RAIL{nic.rail}") for nic in nics) for host, nics in known.items()
    }
