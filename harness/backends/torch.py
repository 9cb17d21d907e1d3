"""The backends that run PyTorch's collectives: torch.distributed with gloo in host memory, or with NCCL on GPUs."""

from harness.backends.base import TORCH_START_S, Command, Job, Witness, give_up_s, rendezvous, torch_network
from harness.backends.torch_probe import ask
from harness.workloads.base import Workload
from harness.workloads.registry import collective


def timed_nics(collective: str, nics: int) -> range:
    """The NICs of a host, by position, that ever carry what a rank times, where each operation takes the next NIC.

    A rank also calls a barrier before each collective. So with an even number of NICs every second one has only the
    barriers. Messages between two ranks take no turn (measured with gloo over 2, 3 and 4 NICs, every collective).
    """
    return range(1) if collective == "sendrecv" else range(0, nics, 1 + (nics % 2 == 0))


class TorchBackend:
    """``python -m harness.backends.torch_rank``; `library` is what torch.distributed calls its backend."""

    start_s = TORCH_START_S

    def __init__(self, library: str) -> None:
        self._library = library
        witnesses: dict[str, Witness] = {"nccl": "nccl_log", "r2ccl": "core"}
        self.witness: Witness = witnesses.get(library, "counters")

    def command(self, job: Job, rank: int) -> Command:
        """A rank that gives up before the harness would."""
        work = collective(job.workload)
        argv = [job.python, "-m", "harness.backends.torch_rank", work.collective, "--library", self._library]
        argv += ["--size-bytes", str(job.size_bytes), "--iterations", str(job.iterations)]
        argv += ["--warmup", str(job.warmup), "--check", str(int(work.check)), "--dtype", work.dtype]
        argv += ["--op", work.op, "--root", str(work.root), "--place", work.place]
        argv += ["--timeout-s", f"{give_up_s(job):.3f}", "--nics", ",".join(job.nics)]
        return Command(tuple(argv), torch_network(self._library, job, rank) | rendezvous(job, rank))

    def missing(self, workload: Workload, python: str) -> str | None:
        """PyTorch in the Python of the hosts, built with the library; for NCCL a GPU."""
        ours = self._library == "r2ccl"
        there = "hasattr(d.Backend, 'R2CCL')" if ours else f"d.is_{self._library}_available()"
        gpu = "torch.cuda.is_available()" if self._library == "nccl" else "True"
        code = f"import torch, torch.distributed as d; print({there}, {gpu})"
        answer = ask(python, code)
        if answer is None:
            return f"{python} cannot be asked for PyTorch; name the hosts' Python in cluster.python"
        if "ModuleNotFoundError" in answer.errors:
            return f"{python} has no PyTorch; run: {python} -m pip install torch (or name another cluster.python)"
        if answer.status or answer.words[:1] != ("True",):
            return f"PyTorch of {python} cannot be loaded, or was built without {self._library}; install another"
        if answer.words != ("True", "True"):
            return "there is no GPU here that PyTorch can use; torch_gloo and perf need none"
        return None
