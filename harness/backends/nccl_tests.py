"""The backend that runs the user's build of nccl-tests, launched by MPI, by Slurm, or as one process. Pure but for
`missing`.

Without MPI, nccl-tests is one process with several GPUs; several hosts need a build with MPI. So one program is
started, on the first host, and `harness.backends.nccl_tests_rank` runs it there and tells every host's record what it
says.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

from harness.backends.base import Command, Job, Witness, give_up_s, rendezvous
from harness.experiment import WorkloadModel

PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "sendrecv": "sendrecv_perf",
    "alltoall": "alltoall_perf",
}
SUFFIXES = ("", "_mpi")
"""After a program's name: what builds with MPI are often made with."""

DTYPES = {"float32": "float", "float64": "double", "float16": "half"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Faults need root on the hosts, and Open MPI refuses to run as root unless it is told twice."""

_OURS = ("R2CC_RANK", "R2CC_SIZE", "R2CC_ROOT", "PYTHONPATH")


class NcclTestsBackend:
    """``python -m harness.backends.nccl_tests_rank``."""

    witness: Witness = "nccl_log"

    def command(self, job: Job, rank: int) -> Command:
        """The first host runs the launcher, the others listen to it."""
        job = replace(job, nics=job.every_nic or job.nics)  # one environment for all hosts
        env = sockets(job) | (AS_ROOT if job.workload.launcher == "mpirun" else {}) | rendezvous(job, rank)
        head = [job.python, "-m", "harness.backends.nccl_tests_rank", "--size-bytes", str(job.size_bytes)]
        head += ["--iterations", str(job.iterations), "--warmup", str(job.warmup), "--place", job.workload.place]
        head += ["--ranks", str(job.ranks * job.workload.gpus)]
        words = [*launcher(job, env), *program(job)] if rank == 0 else []
        return Command((*head, "--", *words), env)

    def missing(self, workload: WorkloadModel, python: str) -> str | None:
        """The build, its program for the collective, the launcher, or a GPU."""
        build, name = Path(workload.nccl_tests or ""), PROGRAMS[workload.collective]
        if not build.is_dir():
            return f"{build} is no folder; name in workload.nccl_tests the one that holds {name}"
        if find_program(build, workload.collective) is None:
            return f"{build} has no {name}; name in workload.nccl_tests the folder of a whole build (make MPI=1)"
        if workload.launcher != "ssh" and shutil.which(workload.launcher) is None:
            return f"{workload.launcher} is not installed; install it or choose another workload.launcher"
        if not Path("/dev/nvidia0").exists() and not Path("/dev/dxg").exists():
            return "there is no NVIDIA GPU here, and nccl-tests needs one; torch_gloo and perf need none"
        return None


def find_program(build: Path, collective: str) -> Path | None:
    """The program for `collective` in `build`."""
    names = (PROGRAMS[collective] + suffix for suffix in SUFFIXES)
    return next((build / name for name in names if (build / name).is_file()), None)


def program(job: Job) -> list[str]:
    """nccl-tests with one iteration a cycle, a cycle for each of ours, and the time of the slowest rank."""
    work, size = job.workload, str(job.size_bytes)
    build = Path(work.nccl_tests or "")
    path = find_program(build, work.collective) or build / PROGRAMS[work.collective]
    argv = [str(path), "-b", size, "-e", size, "-n", "1", "-w", "1", "-N", str(job.warmup + job.iterations)]
    argv += ["-c", str(int(work.check)), "-d", DTYPES.get(work.dtype, work.dtype), "-o", work.op, "-a", "3"]
    if work.collective in ("broadcast", "reduce"):
        argv += ["-r", str(work.root)]
    return [*argv, "-T", str(ceil(give_up_s(job.expected_s))), "-g", str(work.gpus)]


def launcher(job: Job, env: dict[str, str]) -> list[str]:
    """What starts the program on every host: one process each, with `env`, which Slurm passes on by itself."""
    kind, count, hosts = job.workload.launcher, str(job.ranks), job.addresses
    more, names = job.workload.launch_args, [name for name in sorted(env) if name not in (*_OURS, *AS_ROOT)]
    if kind == "mpirun":
        exported = [word for name in names for word in ("-x", name)]
        slots = ",".join(f"{host}:1" for host in hosts)
        return ["mpirun", "-np", count, "--host", slots, "--map-by", "ppr:1:node", *exported, *more]
    if kind == "mpiexec":
        return ["mpiexec", "-n", count, "-hosts", ",".join(hosts), "-ppn", "1", *_genvlist(names), *more]
    if kind == "srun":
        where = ["--nodes", count, "--ntasks", count, "--ntasks-per-node", "1", "--nodelist", ",".join(hosts)]
        return ["srun", *where, "--kill-on-bad-exit=1", *more]
    return list(more)


def sockets(job: Job) -> dict[str, str]:
    """NCCL's sockets on the hosts' data NICs."""
    return {"NCCL_SOCKET_IFNAME": "=" + ",".join(job.nics)} if job.nics else {}


def _genvlist(names: Sequence[str]) -> list[str]:
    return ["-genvlist", ",".join(names)] if names else []
