"""The cost of a Monte Carlo of jobs: ``python -m r2ccl_core.jobs.scale``.

GPT-3 2.7B, data-parallel on 64 hosts of 8 GPUs, 1 to 10 NICs lost at random: the overhead of an iteration under every
system, on ``--processes`` processors. One line tells the seconds by the clock and of processors; the clock counts what
other programs take as well.
"""

import argparse
import resource
import time

from r2ccl_core import spread
from r2ccl_core.jobs import montecarlo
from r2ccl_core.jobs.goodput import Job
from r2ccl_core.jobs.layout import Layout
from r2ccl_core.jobs.model import model_named
from r2ccl_core.jobs.systems import SYSTEMS

HOSTS = 64
FAILURES = range(1, 11)
LIMIT_S = 60


def processor_s() -> float:
    """Of this process and of those it started that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Prints the line."""
    parser = argparse.ArgumentParser(prog="python -m r2ccl_core.jobs.scale", description=__doc__)
    parser.add_argument("--patterns", type=int, default=1000, help="draws of lost NICs")
    parser.add_argument("--processes", type=int, default=2, help="that share the work")
    given = parser.parse_args()
    job = Job(model_named("gpt3-2.7b"), Layout(data=8 * HOSTS, micro_batch=4), hosts=HOSTS)
    begun_s, before_s = time.monotonic(), processor_s()
    with spread.on(spread.Place(processes=given.processes)):
        montecarlo.overheads(job, FAILURES, patterns=given.patterns)
    print(
        f"{job.gpus} GPUs, {given.patterns} patterns, {len(SYSTEMS)} systems, {given.processes} processes: "
        f"{time.monotonic() - begun_s:.1f} s by the clock (at most {LIMIT_S}), "
        f"{processor_s() - before_s:.1f} s of processors"
    )


if __name__ == "__main__":
    main()
