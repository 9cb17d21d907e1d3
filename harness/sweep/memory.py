"""Whether the hosts have the memory that the largest trial needs, asked before any of them is touched."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from harness.errors import ExperimentError
from harness.experiment import Experiment
from harness.hosts.base import Host
from harness.hosts.each import all_results, for_each
from harness.sweep.plan import Trial
from r2ccl_core.units import format_size

CGROUP = Path("/sys/fs/cgroup")


def check_machine(experiment: Experiment, file: str, available_bytes: int | None = None) -> Iterable[ExperimentError]:
    """For clusters whose hosts all share this machine: one mistake if the largest size cannot fit, else none."""
    if not _fills_memory(experiment) or experiment.cluster.kind not in ("local", "noop"):
        return
    available = here_bytes() if available_bytes is None else available_bytes
    hosts, size = len(experiment.cluster.host_names()), max(experiment.workload.sizes_bytes)
    needed = experiment.nranks * needed_bytes(experiment, size)
    if available is not None and needed > available:
        why = f"{hosts} hosts on this machine need {_shown(needed)}, and {_shown(available)} are free; choose a smaller"
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
            why = f"{name} needs {_shown(needed)} for it, and {_shown(available)} are free; choose a smaller"
            raise ExperimentError("", "workload.sizes", format_size(size), why)


def needed_bytes(experiment: Experiment, size_bytes: int) -> int:
    """What the vectors of one rank take: the size is that of the larger one, as in nccl-tests."""
    workload = experiment.workload
    parts = experiment.nranks if workload.collective in ("all_gather", "reduce_scatter") else 1
    return size_bytes + (size_bytes // parts if workload.place == "out" else 0)


def _fills_memory(experiment: Experiment) -> bool:
    """Our own measuring program keeps its vectors in the hosts' memory; others may have them on GPUs."""
    return "perf" in map(experiment.backend_of, experiment.systems)


def here_bytes() -> int | None:
    """Memory that this machine, or the control group we are in, can still give; None if it does not tell."""
    found = []
    with suppress(OSError):
        found.append(parse_available(Path("/proc/meminfo").read_text(encoding="utf-8")))
    with suppress(OSError, ValueError):
        limit, used = ((CGROUP / f"memory.{name}").read_text(encoding="utf-8") for name in ("max", "current"))
        found.append(int(limit) - int(used))
    known = [value for value in found if value is not None]
    return min(known) if known else None


def parse_available(meminfo: str) -> int | None:
    """MemAvailable of /proc/meminfo in bytes."""
    lines = (line.split() for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
    return next((int(words[1]) * 1024 for words in lines if len(words) > 1 and words[1].isdigit()), None)


def _shown(size_bytes: int) -> str:
    return f"{max(0, size_bytes) / 1024**3:.1f} GiB"
