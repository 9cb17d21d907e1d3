"""Checks whether the hosts have the memory that the largest trial needs, before any of them is changed."""

from collections.abc import Iterable, Sequence

from harness.errors import ExperimentError
from harness.experiment.model import Experiment
from harness.hosts.base import Host
from harness.hosts.each import all_results, for_each
from harness.sweep.plan import Trial
from r2ccl_core.host.memory import available_bytes, parse_available, shown


def check_machine(experiment: Experiment, file: str, free_bytes: int | None = None) -> Iterable[ExperimentError]:
    """For clusters whose hosts all share this machine: one mistake if the largest size cannot fit, else none."""
    if not _fills_memory(experiment) or experiment.cluster.kind not in ("local", "noop"):
        return
    available = available_bytes() if free_bytes is None else free_bytes
    hosts, size = len(experiment.cluster.host_names()), max(experiment.workload.grid_sizes())
    needed = experiment.nranks * experiment.workload.memory_bytes(size, experiment.nranks)
    if available is not None and needed > available:
        yield _mistake(experiment, file, size, f"{hosts} hosts on this machine need {shown(needed)}", available)


def check_hosts(experiment: Experiment, hosts: Sequence[Host], trials: Sequence[Trial]) -> None:
    """Raises `ExperimentError` if a host of its own has less memory than the largest of `trials` needs."""
    if not _fills_memory(experiment) or experiment.cluster.kind in ("local", "noop") or not trials:
        return
    size = max(trial.size_bytes for trial in trials)
    needed = experiment.workload.gpus * experiment.workload.memory_bytes(size, experiment.nranks)
    for name, told in all_results(for_each(hosts, lambda host: host.run(["cat", "/proc/meminfo"]).stdout)).items():
        available = parse_available(told)
        if available is not None and needed > available:
            raise _mistake(experiment, "", size, f"{name} needs {shown(needed)} for it", available)


def _fills_memory(experiment: Experiment) -> bool:
    return experiment.workload.fills_memory([experiment.backend_of(system) for system in experiment.systems])


def _mistake(experiment: Experiment, file: str, size_bytes: int, needs: str, available: int) -> ExperimentError:
    advice = experiment.workload.memory_advice(size_bytes, experiment.nranks)
    parts = f" ({advice.parts})" if advice.parts else ""
    why = f"{needs}{parts}, and {shown(available)} are free; {advice.remedy}"
    return ExperimentError(file, advice.key, advice.value, why)
