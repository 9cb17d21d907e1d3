"""One rank that trains a small GPT in some layout, speaking the event lines of `r2ccl_core.perf`.

An iteration is a step. A rank tells the loss of its replica and the time of its forward, and at the end a digest of the
weights. Under `harness.backends.training_agent` it keeps checkpoints, and goes on from the last one when it is started
again.
"""

import argparse
import hashlib
import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import Any, NoReturn

from harness.backends.gpu import finds_a_gpu
from harness.backends.nics_left import leave_out_dead
from harness.backends.said import first_line, out_of_memory
from harness.backends.step_limit import StepLimit, abort_nccl
from harness.backends.training_life import Life
from harness.backends.training_torchft import TorchftTrainer
from r2ccl_core.perf.events import Events, own_stream
from r2ccl_core.perf.live_log import LiveLog
from r2ccl_core.perf.stdin import end_with_stdin

OK, USAGE, LOST = 0, 2, 3
_JOIN_S = 60.0


def main() -> NoReturn:
    """Trains and exits with 0 ok, 2 usage, 3 a peer or the transport was lost."""
    args = _arguments()
    end_with_stdin()
    events = Events(int(os.environ["R2CC_RANK"]), True, own_stream())
    try:
        import torch
    except ImportError as error:
        remedy = f'run: {sys.executable} -m pip install "r2ccl[torch]"'
        _leave(events, f"PyTorch cannot be loaded in {sys.executable} ({error}); {remedy}", None, USAGE)
    # One thread: sums in one order, whatever else the machine does.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without which cuBLAS has no order of its own
    life = Life.of(os.environ)
    on_gpu = "nccl" in args.library
    trainer: _Trainer | TorchftTrainer | None = None
    try:
        trainer = TorchftTrainer(args) if args.library == "torchft" else _Trainer(args, life.attempt)
        limit_s = args.timeout_s if on_gpu else None
        library_s = args.timeout_s if args.library == "gloo" else None
        limit = StepLimit(limit_s, lambda why: _give_up(events, life, why, trainer, on_gpu), library_s)
        first = life.resume(trainer, -args.warmup)
        if life.attempt == 0:
            events.emit("ready")
        with trainer.live_log(events):
            for step in range(first, args.steps):
                with limit.step(f"step {step}") if step > first else nullcontext():  # libraries load in the first one
                    _iterate(trainer, life, events, step)
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        _give_up(events, life, out_of_memory(error) or first_line(error), trainer, on_gpu)
    events.emit("done", core=trainer.describe(), result={"weights": trainer.digest()})
    trainer.leave()
    # gloo's threads may wait for a NIC.
    os._exit(OK)


def _give_up(
    events: Events, life: Life, why: str, trainer: "_Trainer | TorchftTrainer | None", on_gpu: bool
) -> NoReturn:
    """Ends this life, and the rank if it is the last one."""
    if life.will_go_on():
        life.failed()
        events.emit("interrupted", message=why, iteration=life.step)
    else:
        core = trainer.describe() if trainer else None
        _tell(events, why, life.step, core)
    if on_gpu:
        abort_nccl()
    os._exit(LOST)


def _iterate(trainer: "_Trainer | TorchftTrainer", life: Life, events: Events, step: int) -> None:
    begun = life.begin(step)
    if begun.kind == "new":
        events.emit("begin", begun.t_ns, iteration=step)
    start_ns = time.perf_counter_ns()
    loss, forward_ns = trainer.step(step)
    life.ended(trainer, step)
    duration_ns = time.perf_counter_ns() - start_ns
    # The passes of a pipeline's stages alternate: there is no time of the forward one.
    measures = {"forward_ms": forward_ns / 1e6} if forward_ns else {}
    measures |= {} if loss is None else {"loss": loss}
    if begun.kind == "again":
        events.emit("again", begun.t_ns, iteration=step, duration_ns=duration_ns)
        return
    if begun.kind == "hit":
        duration_ns, measures = time.time_ns() - begun.t_ns, {**measures, **life.costs()}
    events.emit("iteration", begun.t_ns, iteration=step, duration_ns=duration_ns, wrong=None, measures=measures)


class _Trainer:
    """The model, its text and the group."""

    def __init__(self, args: argparse.Namespace, attempt: int) -> None:
        import torch
        import torch.distributed as dist

        from harness.backends.gpt import Gpt
        from harness.backends.parallel import Degrees, Spread
        from harness.backends.text import source

        self._dist, self._args = dist, args
        limit = timedelta(seconds=args.timeout_s)
        self._device = _device(torch, args.library)
        self._left_out = _meet(dist, args, attempt)
        torch.manual_seed(args.seed)
        model = Gpt(args.layers, args.width, args.heads, args.context).to(self._device)
        degrees = Degrees(args.dp, args.tp, args.pp, args.sharded, args.micro_batches)
        self._text = source(args.text, args.seed)
        self._spread = Spread(model, degrees, args.bucket_bytes)
        self.optimizer = torch.optim.AdamW(self._spread.part.parameters(), lr=args.learning_rate)
        dist.barrier()
        for group in self._groups():
            if hasattr(group, "communicator"):
                group.set_timeout(limit)
            else:
                with suppress(AttributeError):  # a private name, but the only limit apart from that of the meeting
                    dist.distributed_c10d._set_pg_timeout(limit, group)

    @property
    def model(self) -> Any:
        """This rank's part."""
        return self._spread.part

    def step(self, step: int) -> tuple[float | None, int]:
        """The loss of this rank's replica, if it knows it, and how long its forward took in ns."""
        start_ns = time.perf_counter_ns()
        forward_ns = 0

        def forward_ended() -> None:
            nonlocal forward_ns
            self._wait()
            time.sleep(max(0.0, self._args.forward_at_least_s - (time.perf_counter_ns() - start_ns) / 1e9))
            forward_ns = time.perf_counter_ns() - start_ns

        args = self._args
        batch = self._text.batch(step + args.warmup, self._spread.replica, args.batch, args.context)
        given, following = (part.to(self._device) for part in batch)
        self.optimizer.zero_grad()
        loss = self._spread.step(given, following, forward_ended)
        self.optimizer.step()
        self._wait()
        return loss, forward_ns

    def _wait(self) -> None:
        """Until the GPU, if there is one, has done what it was given."""
        if self._device.type == "cuda":
            import torch

            torch.cuda.synchronize()

    def agree(self, step: int) -> int:
        """The least `step` of all ranks."""
        import torch

        least = torch.tensor([step], device=self._device)
        self._dist.all_reduce(least, self._dist.ReduceOp.MIN)
        return int(least.item())

    def digest(self) -> str:
        """Of the bits of all weights of the model that this rank has a part in."""
        from harness.backends.parallel import local

        found = hashlib.sha256()
        for parameter in self._spread.part.parameters():
            found.update(local(parameter.detach()).contiguous().cpu().numpy().tobytes())
        told: list[Any] = [None] * self._dist.get_world_size()
        self._dist.all_gather_object(told, (self._spread.same_weights, found.hexdigest()))
        parts = [part for whole, part in told if whole == self._spread.same_weights]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]

    def live_log(self, events: Events) -> AbstractContextManager[object]:
        """Tells the core's events as they happen."""
        comms = self._communicators()
        if not comms:
            return nullcontext()
        return LiveLog(lambda: [event for comm in comms for event in comm.stats()["events"]], events)

    def describe(self) -> dict[str, Any]:
        """What moved the gradients, for the stored trial."""
        from harness.backends.core_stats import together

        stats = [comm.stats() for comm in self._communicators()]
        return (
            together(stats, self._left_out)
            if stats
            else {"library": self._args.library, "mode": 0, "nics": [], "events": []}
        )

    def leave(self) -> None:
        """Leaves the groups, so that nobody takes this rank for lost."""
        if self._communicators():
            self._dist.destroy_process_group()

    def _groups(self) -> list[Any]:
        """Those of which this rank is a member, the one of all ranks first."""
        return list(self._dist.distributed_c10d._world.pg_map)

    def _communicators(self) -> list[Any]:
        return [group.communicator for group in self._groups() if hasattr(group, "communicator")]


def _device(torch: Any, library: str) -> Any:
    """A GPU for NCCL, the processor else. One rank a host; ranks that share a machine share its GPUs out."""
    if "nccl" not in library:
        return torch.device("cpu")
    if not finds_a_gpu(torch):
        raise RuntimeError("there is no GPU that PyTorch can use; train_r2ccl and train_gloo need none")
    torch.cuda.set_device(int(os.environ["R2CC_RANK"]) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def _meet(dist: Any, args: argparse.Namespace, attempt: int) -> list[str]:
    """All ranks in one group. An agent has a store of its own at the root, which outlives its ranks.

    Returns the NICs that a restarted rank left out.
    """
    rank, size = int(os.environ["R2CC_RANK"]), int(os.environ["R2CC_SIZE"])
    host, _, port = os.environ["R2CC_ROOT"].rpartition(":")
    limit = timedelta(seconds=max(_JOIN_S, args.timeout_s))
    serves = rank == 0 and not args.agent
    store = dist.TCPStore(host, int(port), size, serves, limit)
    meeting = dist.PrefixStore(f"train{attempt}", store)
    left_out = leave_out_dead(meeting, rank, size) if attempt else []
    dist.init_process_group(args.library, store=meeting, rank=rank, world_size=size, timeout=limit)
    return left_out


def _leave(events: Events, message: str, step: int | None, code: int) -> NoReturn:
    _tell(events, message, step)
    os._exit(code)


def _tell(events: Events, message: str, step: int | None, core: Any = None) -> None:
    print(message, file=sys.stderr, flush=True)
    events.emit("error", message=message, iteration=step, **({"core": core} if core else {}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="training_rank", description=__doc__)
    parser.add_argument("--library", choices=("r2ccl", "gloo", "nccl", "cpu:r2ccl,cuda:nccl", "torchft"), required=True)
    for name in ("layers", "width", "heads", "context", "batch", "bucket-bytes", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("dp", "tp", "pp", "micro-batches"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--agent", action="store_true")
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", default="")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--forward-at-least-s", type=float, default=0.0)
    parser.add_argument("--timeout-s", type=float, default=60.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
