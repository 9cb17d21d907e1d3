"""The backend that runs the user's perftest (``ib_write_bw``) over every rail at once: what RDMA writes can carry,
and so the limit of our own. Pure, except for `missing`.

Every host writes to the next one and is written to by the one before it, on all rails at the same time, as a ring does.
Its bus bandwidth is that of the slowest host's NICs together, and so comparable with that of any collective.
"""

import shutil
from math import ceil

from harness.backends.base import Command, Job, Witness, rendezvous
from harness.workloads.base import Workload
from harness.workloads.registry import collective
from r2ccl_core.model.bandwidth import bus_factor

PROGRAM = "ib_write_bw"
"""A name that the hosts find on their PATH; ``workload.ib_write_bw`` gives another, or a path."""
REMEDY = "install it (Debian's package perftest), or give workload.ib_write_bw its path"


class PerftestBackend:
    """``python -m harness.backends.perftest_rank``."""

    witness: Witness = "counters"
    start_s = 0.0

    def command(self, job: Job, rank: int) -> Command:
        """One host's part: its servers for the host before it, and its clients of the next one."""
        work = collective(job.workload)
        sent = ceil(job.size_bytes * bus_factor(work.collective, job.ranks))
        argv = [job.python, "-m", "harness.backends.perftest_rank", "--program", work.ib_write_bw]
        argv += ["--size-bytes", str(job.size_bytes), "--sent-bytes", str(sent)]
        argv += ["--iterations", str(job.iterations), "--warmup", str(job.warmup)]
        argv += ["--ready-s", str(max(1, ceil(job.ready_s))), "--addresses", ",".join(job.addresses)]
        return Command(tuple(argv), rendezvous(job, rank))

    def missing(self, workload: Workload, python: str) -> str | None:
        """The program, where it is not on this machine."""
        name = collective(workload).ib_write_bw
        return None if shutil.which(name) else f"{name} is not here; {REMEDY}"
