"""``harness export``: schedules as Chakra traces for ASTRA-sim, clusters with lost links as topologies for SimAI."""

from pathlib import Path

from harness.commands.cluster_options import ClusterOptions, alpha_of, size_of
from harness.errors import ExitCode
from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import chakra
from r2ccl_core.jobs.simai import write_topology
from r2ccl_core.planning.planner import Candidate, Plan, plan
from r2ccl_core.text_file import is_file, write_text
from r2ccl_core.units import format_size


def export_chakra(
    folder: Path, cluster: ClusterOptions, size: str, alpha: str, collective: str, algorithm: str | None
) -> int:
    """Writes one schedule as traces, and prints what it is and where the files are."""
    size_bytes = size_of(size)
    found = plan(cluster.topology(), collective, size_bytes, alpha_of(alpha))
    made = found.chosen if algorithm is None else _named(found, algorithm)
    schedule = made.build()

    def begun() -> None:
        print(f"{made.name}, {collective} of {format_size(size_bytes)}: {found.topology.in_words()}")
        steps = sum(len(lane) for program in schedule.programs for lane in program)
        print(f"writing {schedule.nranks} ranks with {steps:,} steps in all", flush=True)

    paths = chakra.write(schedule, size_bytes, folder, begun=begun)
    print(f"traces: {paths[0]} to {paths[-1].name}")
    return ExitCode.OK


def _named(found: Plan, name: str) -> Candidate:
    for candidate in found.candidates:
        if candidate.name == name:
            return candidate
    known = ", ".join(candidate.name for candidate in found.candidates)
    raise UsageError(f"--algorithm {name}: does not do {found.collective} on these hosts; there are {known}")


def export_simai(file: Path, cluster: ClusterOptions, *, force: bool) -> int:
    """Writes the topology, and prints what it is. Raises `UsageError` if the file exists, unless `force`."""
    if is_file(file) and not force:
        raise UsageError(f"{file}: exists already; name another file, or give --force")
    topology = cluster.topology()
    text = write_topology(topology)
    try:
        write_text(file, text)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written ({error.strerror}); give another file") from error
    print(f"{file}: {topology.in_words()}")
    return ExitCode.OK
