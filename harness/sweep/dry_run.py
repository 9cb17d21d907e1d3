"""A sweep without doing it: every command on every host, in the order of the trials. Pure."""

import shlex
from collections.abc import Iterator, Sequence

from faults.base import Target
from faults.registry import create
from harness.backends.base import Job
from harness.backends.registry import BACKENDS
from harness.experiment import Experiment
from harness.sweep.plan import Trial


def lines(experiment: Experiment, trials: Sequence[Trial]) -> Iterator[str]:
    """What the sweep would run, for people: a trial a paragraph, a command a line."""
    for trial in trials:
        yield trial.trial_id
        yield from (f"  {line}" for line in _ranks(experiment, trial))
        yield from (f"  {line}" for line in _fault(trial))


def _ranks(experiment: Experiment, trial: Trial) -> Iterator[str]:
    cluster = experiment.cluster
    job = Job(
        python=cluster.python or "python",
        workload=experiment.workload,
        size_bytes=trial.size_bytes,
        iterations=trial.iterations,
        warmup=trial.warmup,
        mode=trial.system.mode,
        ranks=cluster.hosts,
        root="host0:PORT",
        nics=tuple(cluster.nic_names()),
        expected_s=experiment.expected_duration_s(trial.size_bytes),
        env=trial.system.env,
        addresses=tuple(cluster.host_names()),
    )
    for rank, host in enumerate(cluster.host_names()):
        command = BACKENDS[experiment.backend_of(trial.system)].command(job, rank)
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in command.env.items())
        yield f"{host}: {settings} {shlex.join(command.argv)}"


def _fault(trial: Trial) -> Iterator[str]:
    fault = trial.fault
    if fault is None:
        return
    made, target = create(fault.kind, fault.parameters), Target(fault.host, fault.nic)
    iteration = trial.strike_iteration()
    when = f"{fault.at_time_s:g} s after the first" if iteration is None else f"iteration {iteration}"
    for argv in made.inject(target):
        yield f"{fault.host}: inject {fault.into:.0%} into {when}: {shlex.join(argv)}"
    for argv in made.heal(target):
        yield f"{fault.host}: heal: {shlex.join(argv)}"
