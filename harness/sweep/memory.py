"""Whether the hosts have the memory that the largest trial needs, asked before any of them is touched."""

from collections.abc import Iterable, Sequence

from harness.errors import ExperimentError
from harness.experiment import Experiment
from harness.hosts.base import Host
from harness.hosts.each import all_results, for_each
from harness.sweep.plan import Trial
from r2ccl_core.memory import available_bytes, parse_available, shown
from r2ccl_core.units import format_size


def check_machine(experiment: Experiment, file: str, free_bytes: int | None = None) -> Iterable[ExperimentError]:
    """For clusters whose hosts all share this machine: one mistake if the largest size cannot fit, else none."""
    if not _fills_memory(experiment) or experiment.cluster.kind not in ("local", "noop"):
        return
    available = available_bytes() if free_bytes is None else free_bytes
    hosts, size = len(experiment.cluster.host_names()), max(experiment.workload.sizes_bytes)
    needed = experiment.nranks * needed_bytes(experiment, size)
    if available is not None and needed > available:
        why = f"{hosts} hosts on this machine need {shown(needed)}, and {shown(available)} are free; choose a smaller"
        yield ExperimentError(file, "workload.sizes", format_size(size), why)


def check_hosts(experiment: Experiment, hosts: Sequence[Host], trials: Sequence[Trial]) -> None:
    """Raises `ExperimentError` if a host of its own has less memory than the largest of `trials` needs."""
    if not _fills_memory(experiment) or experiment.cluster.kind in ("local", "noop") or not trials:
        return
    size = max(trial.size_bytes for trial in trials)
    needed = experiment.workload.gpus * needed_bytes(experiment, size)
    for name, told in all_results(for_each(hosts, lambda host: host.run(["cat", "/proc/meminfo"]).stdout)).items():
        available = parse_available(told)
        if available is not None and needed > available:
            why = f"{name} needs {shown(needed)} for it, and {shown(available)} are free; choose a smaller"
            raise ExperimentError("", "workload.sizes", format_size(size), why)


def needed_bytes(experiment: Experiment, size_bytes: int) -> int:
    """What the vectors of one rank take: the size is that of the larger one, as in nccl-tests."""
    workload = experiment.workload
    parts = experiment.nranks if workload.collective in ("all_gather", "reduce_scatter") else 1
    return size_bytes + (size_bytes // parts if workload.place == "out" else 0)


def _fills_memory(experiment: Experiment) -> bool:
    """Our own measuring program keeps its vectors in the hosts' memory; others may have them on GPUs."""
    return "perf" in map(experiment.backend_of, experiment.systems)
