"""A sweep without running it: every command on every host, in the order of the trials, and totals."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from faults.base import Fault, Target
from faults.errors import FaultError
from faults.registry import create
from harness.backends.base import Job
from harness.backends.registry import BACKENDS
from harness.experiment.fault_tables import FaultModel
from harness.experiment.model import Experiment
from harness.sweep.estimate import collectives_s, estimate_s, in_words, is_hosted, report_s
from harness.sweep.plan import Trial
from harness.sweep.scenario import Injection, injections
from harness.sweep.targets import planned
from harness.sweep.trial_warnings import counted, named_nics, warnings
from harness.systems.catalogue import sockets_carry_data
from reports.wording import percent


def lines(experiment: Experiment, trials: Sequence[Trial]) -> Iterator[str]:
    """The commands of the sweep, for people: one paragraph per trial, one command per line, the totals last."""
    clusters = 0
    for _, group in groupby(trials, key=lambda trial: trial.cluster_key):
        clusters += 1
        members = list(group)
        if len({trial.cluster_key for trial in trials}) > 1:
            yield f"cluster {clusters}: {members[0].variant.experiment.cluster.summary()}"
        for trial in members:
            yield trial.trial_id
            if not is_hosted(trial):
                yield "  simulated here: no host, no command"
                continue
            yield from (f"  {line}" for line in _ranks(trial.variant.experiment, trial))
            yield from (f"  {line}" for line in _fault(trial.variant.experiment, trial))
    yield _totals(experiment, trials, clusters)
    yield from warnings(trials)


def _totals(experiment: Experiment, trials: Sequence[Trial], clusters: int) -> str:
    faults = sum(trial.fault is not None for trial in trials)
    cells = len({trial.cell for trial in trials})
    hosted = [trial for trial in trials if is_hosted(trial)]
    ranks = sum(trial.variant.experiment.nranks for trial in hosted)
    upto = "at most " if experiment.sweep.repeats.until is not None else ""
    lasts = in_words(estimate_s(hosted, clusters) + report_s(trials))
    return (
        f"{upto}{counted(len(trials), 'trial')} of {counted(cells, 'cell')}, {faults} with a fault, "
        f"{counted(ranks, 'rank')} started, the cluster made {counted(clusters, 'time')}; about {lasts} on a "
        "quiet machine, with the report"
    )


def _ranks(experiment: Experiment, trial: Trial) -> Iterator[str]:
    cluster = experiment.cluster
    hosts = named_nics(experiment)
    job = Job(
        python="",
        workload=experiment.workload,
        size_bytes=trial.size_bytes,
        iterations=trial.iterations,
        warmup=trial.warmup,
        mode=trial.system.mode,
        ranks=len(hosts),
        root=f"{next(iter(hosts))}:PORT",
        nics=(),
        expected_s=experiment.expected_duration_s(trial.size_bytes),
        env=trial.system.env,
        addresses=tuple(cluster.host_names()),
        every_nic=tuple(dict.fromkeys(nic.name for nics in hosts.values() for nic in nics)),
        management=cluster.management_nics(),
        every_management=cluster.management_nics(),
        ssh_config="SSH_CONFIG" if cluster.kind in ("local", "vms") else None,
        ready_s=experiment.ready_s,
        least_give_up_s=experiment.sweep.limits.give_up_s,
        one_machine=cluster.one_machine,
        sockets_carry_data=sockets_carry_data(trial.system.use, trial.system.network),
    )
    for rank, (host, nics) in enumerate(hosts.items()):
        here = replace(job, python=cluster.python_on(host), nics=tuple(nic.name for nic in nics))
        command = BACKENDS[experiment.backend_of(trial.system)].command(here, rank)
        settings = [f"{name}={_quoted(value)}" for name, value in command.env.items()]
        yield f"{host}: {' '.join([*settings, *map(_quoted, command.argv)])}"


def _quoted(word: str) -> str:
    """A word of a command on one line, as a shell reads it."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(letter: str) -> str:
    if letter in "\\'":
        return f"\\{letter}"
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _fault(experiment: Experiment, trial: Trial) -> Iterator[str]:
    """Every command of every injection; for failures by chance, those that this trial's seed draws for the time that
    its iterations should take."""
    fault = trial.fault
    if fault is None:
        return
    hosts = named_nics(experiment)
    horizon_s = experiment.sweep.limits.trial_s
    if fault.mtbf_s is not None:
        horizon_s = min(horizon_s, collectives_s(trial))
    for injection in injections(fault, hosts, trial.seed, horizon_s):
        made = create(injection.kind, injection.parameters)
        yield f"{_when(trial, fault, injection)}: {injection.kind} on {injection.host} {injection.nic}"
        for target in planned(injection, hosts):
            yield from _recipe(made, target)


def _when(trial: Trial, fault: FaultModel, injection: Injection) -> str:
    healed = "" if injection.lasts_s is None else f", healed after {injection.lasts_s:.3g} s"
    if not injection.aimed:
        since = "after the first timed iteration begins" if fault.by_chance else "later"
        return f"{injection.offset_s:.3g} s {since}{healed}"
    iteration = trial.fault_iteration()
    where = f"iteration {iteration}"
    if iteration is None:
        where = f"the first iteration that begins {fault.at_time_s:g} s after the first timed one"
    share = percent(fault.into) if fault.after_bytes is None else f"after {percent(fault.after_bytes)} of the bytes"
    return f"{share} into {where}{healed}"


def _recipe(fault: Fault, target: Target) -> Iterator[str]:
    try:
        recipe = fault.recipe(target)
    except FaultError as error:
        yield f"{target.host}: {error}"
        return
    for verb, orders in (("inject", recipe.inject), ("beside", recipe.beside), ("heal", recipe.heal)):
        for order in orders:
            yield f"{order.place}: {verb}: {shlex.join(order.argv)}"
    for pause_s, order in recipe.repeat:
        yield f"{order.place}: repeat, after {pause_s:g} s: {shlex.join(order.argv)}"
