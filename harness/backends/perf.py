"""The backend that moves real bytes: this project's measuring program over its own core."""

from importlib.util import find_spec
from math import ceil

from harness.backends.base import Command, Job, Witness, rendezvous
from harness.workloads.base import Workload
from harness.workloads.registry import collective


class PerfBackend:
    """``python -m r2ccl_core.perf``, one size per process; a process has all ranks of its host."""

    witness: Witness = "core"
    start_s = 0.0

    def command(self, job: Job, rank: int) -> Command:
        """The measuring program in stream mode; it ends when the harness does. Its `rank` is the number of a
        process."""
        work, size = collective(job.workload), str(job.size_bytes)
        argv = [job.python, "-m", "r2ccl_core.perf", work.collective, "-b", size, "-e", size]
        argv += ["-n", str(job.iterations), "-w", str(job.warmup), "-c", str(int(work.check))]
        argv += [
            "-d",
            work.dtype,
            "-o",
            work.op,
            "-r",
            str(work.root),
            "-g",
            str(work.gpus),
            "--place",
            work.place,
            "--stream",
            "--stdin-watch",
        ]
        if job.ready_s > 0:
            argv += ["--meet", str(ceil(job.ready_s))]
        return Command(tuple(argv), rendezvous(job, rank))

    def missing(self, workload: Workload, python: str) -> str | None:
        """The native core, if it was not built."""
        if find_spec("r2ccl_core._native") is not None:
            return None
        return "the native core is not built; run: pip install -e ."
