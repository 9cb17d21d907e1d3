"""How long a sweep, its trials and its report take, before anything runs. Pure, but for the number of this machine's
processors."""

import os
from collections.abc import Sequence

from harness.backends.registry import BACKENDS
from harness.backends.simulate import SIMULATE
from harness.sweep.plan import Trial

TRIAL_S = 1.0
"""Typical duration of a trial beside its iterations: check, start of the ranks, heal, files."""
CLUSTER_S = 2.0
"""Time to bring a cluster up and down."""
REPORT_S = 3.0
"""Time of a report beside its figures: loading the libraries, reading the trials, writing the tables."""
FIGURE_S = 0.55
"""Typical time of one figure, in every format and for a phone, on one processor."""
CASE_FIGURES = 5
"""How many figures a report has of one fault, beside a timeline of each of its cells."""


def estimate_s(trials: Sequence[Trial], clusters: int) -> float:
    """The expected duration of the trials on a quiet machine, without retries and what faults cost: their iterations at
    the NICs' rate, what loading libraries and computing take, plus overhead."""
    return sum(map(_trial_s, trials)) + CLUSTER_S * clusters


def report_s(trials: Sequence[Trial]) -> float:
    """The expected duration of the report, most of which is figures: as long as the trials, if there are many faults
    and few repeats."""
    faulted = [trial for trial in trials if trial.fault is not None]
    cases = {(trial.scenario, str(trial.variant.axes)) for trial in faulted}
    timelines = {trial.cell for trial in faulted if is_hosted(trial)}  # a simulation has no counters to draw
    return REPORT_S + FIGURE_S * (1 + CASE_FIGURES * len(cases) + len(timelines))


def running_s(trial: Trial) -> float:
    """The expected time of all its iterations once its ranks have started, of which up to a quarter more was seen."""
    experiment = trial.variant.experiment
    each_s = experiment.expected_duration_s(trial.size_bytes)
    on_gpus = BACKENDS[experiment.backend_of(trial.system)].witness == "nccl_log"
    compute_s = 0.0 if on_gpus else experiment.workload.processor_s() * (trial.warmup + trial.iterations)
    timed_s = experiment.workload.timed_s(trial.iterations, each_s)
    return trial.warmup * each_s + timed_s + compute_s * _crowding(trial)


def collectives_s(trial: Trial) -> float:
    """The same of its timed collectives, without what ranks compute."""
    return trial.iterations * trial.variant.experiment.expected_duration_s(trial.size_bytes)


def in_words(seconds: float) -> str:
    """Seconds, and minutes of what takes five or more."""
    return f"{seconds / 60:.0f} min" if seconds >= 300 else f"{seconds:.0f} s"


def is_hosted(trial: Trial) -> bool:
    """Whether it runs on hosts, and is not simulated."""
    return trial.variant.experiment.backend_of(trial.system) != SIMULATE


def _trial_s(trial: Trial) -> float:
    start_s = BACKENDS[trial.variant.experiment.backend_of(trial.system)].start_s
    return TRIAL_S + start_s * _crowding(trial) + running_s(trial)


def _crowding(trial: Trial) -> float:
    """How much longer computing takes: the ranks of a cluster on this machine share its processors, and a rank computes
    on one."""
    experiment = trial.variant.experiment
    share = experiment.nranks / len(os.sched_getaffinity(0)) if experiment.cluster.one_machine else 1.0
    return max(1.0, share)
