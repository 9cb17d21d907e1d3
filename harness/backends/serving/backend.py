"""The backend that serves: a small engine of this project, with its caches and tensor parallelism over our core."""

from importlib.util import find_spec

from harness.backends.base import Command, Job, Witness, give_up_s, rendezvous
from harness.workloads.arrivals import write_arrivals
from harness.workloads.base import Workload
from harness.workloads.registry import serving

_SLOW = 20.0
"""Allowance over the least time of a request: the processors' part of that time is an estimate."""
_PATIENCE_S = 20.0
"""Minimum time-out; the transport reports what it detects itself sooner."""


class ServingBackend:
    """``python -m harness.backends.serving.rank``: rank 0 computes prompts, the others decode together."""

    witness: Witness = "core"
    start_s = 0.0

    def command(self, job: Job, rank: int) -> Command:
        """One host of the engine."""
        work = serving(job.workload)
        shape = work.shape
        argv = [job.python, "-m", "harness.backends.serving.rank", "--layers", str(shape.layers)]
        argv += ["--width", str(shape.width), "--heads", str(shape.heads), "--context", str(work.context)]
        argv += ["--arrivals", write_arrivals(work.arrivals()), "--seed", str(work.seed)]
        argv += ["--warmup", str(job.warmup), "--check", str(int(work.check))]
        argv += ["--corrupt", str(work.corrupt)] if work.corrupt is not None else []
        if work.prefill_at_least_s or work.step_at_least_s:
            argv += ["--at-least-s", str(work.prefill_at_least_s), str(work.step_at_least_s)]
        argv += ["--timeout-s", f"{max(_PATIENCE_S, give_up_s(job, _SLOW)):.3f}"]
        # Each host computes on one thread, and the hosts of one machine share its processors.
        env = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} | rendezvous(job, rank)
        return Command(tuple(argv), env)

    def missing(self, workload: Workload, python: str) -> str | None:
        """The native core, if it was not built."""
        if find_spec("r2ccl_core._native") is not None:
            return None
        return "the native core is not built; run: pip install -e ."
