"""The backend that moves no data: ranks that only synchronise and keep time, to run the whole life of a sweep."""

from harness.backends.base import Command, Job, Witness, rendezvous
from harness.workloads.base import Workload


class NoopBackend:
    """``python -m harness.backends.noop_rank``."""

    witness: Witness = "none"
    start_s = 0.0

    def command(self, job: Job, rank: int) -> Command:
        """A rank whose iterations last as long as a healthy collective should."""
        argv = [job.python, "-m", "harness.backends.noop_rank", "--size-bytes", str(job.size_bytes)]
        argv += ["--iterations", str(job.iterations), "--warmup", str(job.warmup)]
        argv += ["--duration-s", f"{job.expected_s:.6f}"]
        return Command(tuple(argv), rendezvous(job, rank))

    def missing(self, workload: Workload, python: str) -> str | None:
        """Nothing: it needs only the standard library."""
        return None
