"""A sweep without doing it: every command on every host, in the order of the trials. Pure."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from faults.base import Fault, Target
from faults.errors import FaultError
from faults.registry import create
from harness.backends.base import Job
from harness.backends.registry import BACKENDS
from harness.experiment import Experiment
from harness.fault_tables import FaultModel
from harness.hosts.base import Nic
from harness.sweep.plan import Trial
from harness.sweep.scenario import Strike, strikes
from harness.sweep.targets import planned


def lines(experiment: Experiment, trials: Sequence[Trial]) -> Iterator[str]:
    """What the sweep would run, for people: a trial a paragraph, a command a line."""
    for trial in trials:
        yield trial.trial_id
        yield from (f"  {line}" for line in _ranks(experiment, trial))
        yield from (f"  {line}" for line in _fault(experiment, trial))


def _ranks(experiment: Experiment, trial: Trial) -> Iterator[str]:
    cluster = experiment.cluster
    hosts = _named_nics(experiment)
    job = Job(
        python=cluster.python or "python",
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
    )
    for rank, (host, nics) in enumerate(hosts.items()):
        here = replace(job, nics=tuple(nic.name for nic in nics))
        command = BACKENDS[experiment.backend_of(trial.system)].command(here, rank)
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in command.env.items())
        yield f"{host}: {settings} {shlex.join(command.argv)}"


def _named_nics(experiment: Experiment) -> dict[str, tuple[Nic, ...]]:
    """The data NICs of every host; one whose name only the host knows is called RAIL<N>."""
    known = experiment.cluster.data_nics()
    return {
        host: tuple(replace(nic, name=nic.name or f"RAIL{nic.rail}") for nic in nics) for host, nics in known.items()
    }


def _fault(experiment: Experiment, trial: Trial) -> Iterator[str]:
    """Every command of every strike; for those by chance, the strikes that this trial's seed draws."""
    fault = trial.fault
    if fault is None:
        return
    hosts = _named_nics(experiment)
    sweep = experiment.sweep
    horizon_s = min(sweep.limits.trial_s, experiment.expected_duration_s(trial.size_bytes) * trial.iterations)
    for strike in strikes(fault, hosts, f"{sweep.seed}/{fault.label}/{trial.repeat}", horizon_s):
        made = create(strike.kind, strike.parameters)
        yield f"{_when(trial, fault, strike)}: {strike.kind} on {strike.host} {strike.nic}"
        for target in planned(strike, hosts):
            yield from _recipe(made, target)


def _when(trial: Trial, fault: FaultModel, strike: Strike) -> str:
    healed = "" if strike.lasts_s is None else f", healed after {strike.lasts_s:.3g} s"
    if not strike.aimed:
        return f"{strike.offset_s:.3g} s later{healed}"
    iteration = trial.strike_iteration()
    where = f"{fault.at_time_s:g} s after the first" if iteration is None else f"iteration {iteration}"
    share = f"{fault.into:.0%}" if fault.after_bytes is None else f"after {fault.after_bytes:.0%} of the bytes"
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
