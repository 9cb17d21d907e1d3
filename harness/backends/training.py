"""The backends that train: a small GPT in PyTorch, its gradients over our core, over gloo, over gloo by torchft, or on
GPUs over NCCL, alone or with our core for CPU tensors in the same group."""

from harness.backends.base import TORCH_START_S, Command, Job, Witness, give_up_s, rendezvous, torch_network
from harness.backends.torch_probe import ask
from harness.workloads.base import Workload
from harness.workloads.registry import training
from harness.workloads.training import SHAPES, TrainingWorkload

ON_FAILURE, RESTART = "TRAIN_ON_FAILURE", "restart"
"""The variable of a system that says what is done about a rank that has failed."""
RESTARTS = 3

_KNOWN = "import torch, torch.distributed as d; print(*d.Backend.backend_list, 'gloo', torch.cuda.is_available())"
"""Prints the back ends that PyTorch knows, and whether it can use a GPU."""
_SLOW = 20.0
"""How many times the least time of a step it may take on processors, whose part of it is a guess."""


class TrainingBackend:
    """``python -m harness.backends.training_rank``; `library` is what torch.distributed calls its backend."""

    start_s = TORCH_START_S

    def __init__(self, library: str) -> None:
        self._library = library
        self._apart = library == "torchft"
        self._on_gpus = "nccl" in library
        witnesses: dict[str, Witness] = {"r2ccl": "core"}
        self.witness: Witness = "nccl_log" if self._on_gpus else witnesses.get(library, "counters")

    def command(self, job: Job, rank: int) -> Command:
        """A rank that gives up before the harness would."""
        work = training(job.workload)
        shape = SHAPES[work.model]
        argv = [job.python, "-m", *_program(job), "--library", self._library]
        argv += ["--layers", str(shape.layers), "--width", str(shape.width), "--heads", str(shape.heads)]
        argv += ["--context", str(work.context), "--batch", str(work.batch), "--bucket-bytes", str(work.bucket_bytes)]
        argv += ["--steps", str(job.iterations), "--warmup", str(job.warmup), "--seed", str(work.seed)]
        argv += ["--learning-rate", str(work.learning_rate), *_spread(work, job.ranks)]
        argv += ["--text", work.text] if work.text else []
        argv += ["--forward-at-least-s", str(work.forward_at_least_s)]
        argv += ["--timeout-s", f"{give_up_s(job, 1 if self._on_gpus else _SLOW):.3f}"]
        # Each host computes on one thread, and those of one machine share its processors.
        env = {"OMP_NUM_THREADS": "1"} | torch_network(self._library, job, rank) | rendezvous(job, rank)
        return Command(tuple(argv), env)

    def missing(self, workload: Workload, python: str) -> str | None:
        """PyTorch in the Python of the hosts, with the library."""
        answer = ask(python, _KNOWN + "; import torchft" * self._apart)
        if answer is None:
            return f"{python} cannot be asked for PyTorch; name the hosts' Python in cluster.python"
        if "No module named 'torchft'" in answer.errors:
            return f"{python} has no torchft; run: {python} -m pip install torchft"
        if "ModuleNotFoundError" in answer.errors:
            return f'{python} has no PyTorch; run: {python} -m pip install "r2ccl[torch]"'
        parts = {part.partition(":")[2] or part for part in self._library.split(",")}
        if answer.status or (not self._apart and not parts <= set(answer.words)):
            return f'PyTorch of {python} does not know {self._library}; run: {python} -m pip install "r2ccl[torch]"'
        if self._on_gpus and "True" not in answer.words:
            return "there is no GPU here that PyTorch can use; train_r2ccl and train_gloo need none"
        return None


def _program(job: Job) -> list[str]:
    """The rank, or the agent that starts it again."""
    if job.env.get(ON_FAILURE) != RESTART:
        return ["harness.backends.training_rank"]
    every = str(training(job.workload).checkpoint_every)
    return ["harness.backends.training_agent", "--every", every, "--restarts", str(RESTARTS)]


def _spread(work: TrainingWorkload, ranks: int) -> list[str]:
    dp, tp, pp = work.layout.on(ranks)
    words = ["--dp", str(dp), "--tp", str(tp), "--pp", str(pp), "--micro-batches", str(work.micro_batches)]
    return [*words, *(["--sharded"] if work.layout.data == "fsdp2" else [])]
