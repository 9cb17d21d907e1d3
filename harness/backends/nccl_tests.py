"""The backend that runs the user's build of nccl-tests, launched by MPI, by Slurm, or as one process. Pure, except for
counting this machine's GPUs and `missing`.

Without MPI, nccl-tests is one process with several GPUs; several hosts need a build with MPI. Only one program is
therefore started, on the first host. `harness.backends.nccl_tests_rank` runs it there and forwards its output to every
host's record.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

from harness.backends.base import (
    NCCL_BETWEEN_HOSTS,
    Command,
    Job,
    Witness,
    give_up_s,
    nccl_sockets,
    rendezvous,
)
from harness.workloads.base import Workload
from harness.workloads.registry import collective

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
"""A suffix of the program's name that builds with MPI often have."""

DTYPES = {"float32": "float", "float64": "double", "float16": "half"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Faults need root on the hosts, and Open MPI refuses to run as root without both variables."""
UNBOUND = {"OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none"}
"""If there are two ranks, Open MPI 4 and 5 bind each to one core, with all its GPUs and the threads that move its
bytes. Ranks on one machine whose hosts have different names are even bound to the same core, which halved the
bandwidth."""

_OURS = ("R2CC_RANK", "R2CC_SIZE", "R2CC_ROOT", "PYTHONPATH")
_LAUNCHERS = ("OMPI_", "PRTE_", "HYDRA_", "SLURM_")
"""Prefixes of launchers' variables; the launchers themselves pass on what ranks need of them."""

_OWN_GPUS = (
    "r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}; "
    'export NCCL_HOSTID=host$r NCCL_TESTS_DEVICE=$((r %% %d * %d)); exec "$0" "$@"'
)
"""Ranks on one machine whose hosts have different names: nccl-tests would give each of them its first GPU. This wrapper
divides the machine's GPUs among them; NCCL accepts two ranks on one GPU only if they name different hosts."""


class NcclTestsBackend:
    """``python -m harness.backends.nccl_tests_rank``."""

    witness: Witness = "nccl_log"
    start_s = 0.0

    def command(self, job: Job, rank: int) -> Command:
        """The first host runs the launcher, the others listen to it."""
        # One environment for all hosts.
        job = replace(job, nics=job.every_nic or job.nics, management=job.every_management)
        env = nccl_sockets(job) | launcher_env(job) | (NCCL_BETWEEN_HOSTS if job.one_machine else {})
        env |= rendezvous(job, rank)
        head = [job.python, "-m", "harness.backends.nccl_tests_rank", "--size-bytes", str(job.size_bytes)]
        head += ["--iterations", str(job.iterations), "--warmup", str(job.warmup), "--place"]
        head += [collective(job.workload).place, "--ranks", str(job.ranks * job.workload.gpus)]
        words = [*launcher(job, env), *program(job)] if rank == 0 else []
        return Command((*head, "--", *words), env)

    def missing(self, workload: Workload, python: str) -> str | None:
        """Checks the build, its program for the collective, the launcher, and the GPUs of one host."""
        work = collective(workload)
        build, name = Path(work.nccl_tests or ""), PROGRAMS[work.collective]
        if not build.is_dir():
            return f"{build} is not a folder; give workload.nccl_tests the folder that contains {name}"
        if find_program(build, work.collective) is None:
            return f"{build} has no {name}; give workload.nccl_tests the folder of a complete build (make MPI=1)"
        if work.launcher != "ssh" and shutil.which(work.launcher) is None:
            return f"{work.launcher} is not installed; install it or choose another workload.launcher"
        if Path("/dev/dxg").exists():  # GPUs under WSL, which are not counted
            return None
        count = gpu_count()
        if not count:
            return "there is no NVIDIA GPU here, and nccl-tests needs one; torch_gloo and perf need none"
        if count < workload.gpus:
            return f"a host needs {workload.gpus} GPUs, and this machine has {count}; give fewer workload.gpus"
        return None


def gpu_count() -> int:
    """The number of this machine's NVIDIA GPUs."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in Path("/dev").glob("nvidia*"))


def find_program(build: Path, collective: str) -> Path | None:
    """The program for `collective` in `build`."""
    names = (PROGRAMS[collective] + suffix for suffix in SUFFIXES)
    return next((build / name for name in names if (build / name).is_file()), None)


def program(job: Job) -> list[str]:
    """nccl-tests with one iteration per cycle, one cycle for each of our iterations, and the time of the slowest
    rank."""
    work, size = collective(job.workload), str(job.size_bytes)
    build = Path(work.nccl_tests or "")
    path = find_program(build, work.collective) or build / PROGRAMS[work.collective]
    argv = [str(path), "-b", size, "-e", size, "-n", "1", "-w", "1", "-N", str(job.warmup + job.iterations)]
    argv += ["-c", str(int(work.check)), "-d", DTYPES.get(work.dtype, work.dtype), "-o", work.op, "-a", "3"]
    if work.collective in ("broadcast", "reduce"):
        argv += ["-r", str(work.root)]
    argv += ["-T", str(ceil(give_up_s(job))), "-g", str(work.gpus)]
    if job.one_machine and work.launcher != "ssh" and "NCCL_TESTS_DEVICE" not in job.env:
        return ["sh", "-c", _OWN_GPUS % (max(1, gpu_count() // work.gpus), work.gpus), *argv]
    return argv


def launcher(job: Job, env: dict[str, str]) -> list[str]:
    """The launcher's command line, which starts the program on every host: one process each, with `env`, which Slurm
    passes on by itself."""
    kind, count, hosts = collective(job.workload).launcher, str(job.ranks), job.addresses
    more, names = (
        collective(job.workload).launch_args,
        [n for n in sorted(env) if n not in _OURS and not n.startswith(_LAUNCHERS)],
    )
    if kind == "mpirun":
        exported = [word for name in names for word in ("-x", name)]
        slots = ",".join(f"{host}:1" for host in hosts)
        return ["mpirun", "-np", count, "--host", slots, "--map-by", "ppr:1:node", *exported, *more]
    if kind == "mpiexec":
        beside = ["-iface", job.every_management[0]] if len(job.every_management) == 1 else []
        return ["mpiexec", "-n", count, "-hosts", ",".join(hosts), "-ppn", "1", *beside, *_genvlist(names), *more]
    if kind == "srun":
        where = ["--nodes", count, "--ntasks", count, "--ntasks-per-node", "1", "--nodelist", ",".join(hosts)]
        return ["srun", *where, "--kill-on-bad-exit=1", *more]
    return list(more)


def launcher_env(job: Job) -> dict[str, str]:
    """How the launcher logs in to the hosts, and what keeps it and MPI itself off the data NICs, whose failure would
    otherwise end them. These are variables, so that words of `workload.launch_args` take precedence. Tried with Open
    MPI 4.1 and MPICH 4.0, not with srun."""
    kind, login = collective(job.workload).launcher, f"-F {job.ssh_config}" if job.ssh_config else ""
    if kind == "mpirun":
        return AS_ROOT | UNBOUND | _open_mpi(job) | ({"OMPI_MCA_plm_rsh_args": login} if login else {})
    if kind == "mpiexec":
        return _mpich(job) | ({"HYDRA_LAUNCHER_EXTRA_ARGS": login} if login else {})
    return {"SLURM_CPU_BIND": "none"} | _open_mpi(job) | _mpich(job) if kind == "srun" else {}


def _open_mpi(job: Job) -> dict[str, str]:
    """Only TCP, and only beside the data NICs: UCX and verbs would choose a data NIC."""
    if not job.nics:
        return {}
    which, names = "exclude", ("lo", *job.nics)
    if job.every_management:
        which, names = "include", job.every_management
    found = {f"OMPI_MCA_{layer}_tcp_if_{which}": ",".join(names) for layer in ("oob", "btl")}
    return found | {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}


def _mpich(job: Job) -> dict[str, str]:
    """For both libraries below MPICH, of which a build has one."""
    if len(job.every_management) != 1:
        return {}
    return {"UCX_NET_DEVICES": job.every_management[0], "FI_TCP_IFACE": job.every_management[0]}


def _genvlist(names: Sequence[str]) -> list[str]:
    return ["-genvlist", ",".join(names)] if names else []
