"""One rank that trains: a small GPT under DistributedDataParallel, speaking the event lines of `r2ccl_core.perf`.

An iteration is a step. Every rank tells its loss and the time of its forward, and at the end a digest of its weights.
"""

import argparse
import hashlib
import os
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import Any, NoReturn

from harness.backends.said import first_line
from r2ccl_core.perf.events import Events, own_stream
from r2ccl_core.perf.live_log import LiveLog

OK, USAGE, LOST = 0, 2, 3
_JOIN_S = 60.0


def main() -> NoReturn:
    """Trains and exits with 0 ok, 2 usage, 3 a peer or the transport was lost."""
    args = _arguments()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    events = Events(int(os.environ["R2CC_RANK"]), True, own_stream())
    try:
        import torch
    except ImportError as error:
        remedy = f'run: {sys.executable} -m pip install "r2ccl[torch]"'
        _leave(events, f"PyTorch cannot be loaded in {sys.executable} ({error}); {remedy}", None, USAGE)
    # One thread: sums in one order, whatever else the machine does.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    step: int | None = None
    trainer: _Trainer | None = None
    try:
        trainer = _Trainer(args)
        events.emit("ready")
        with trainer.live_log(events):
            for step in range(-args.warmup, args.steps):
                _iterate(trainer, events, step)
    except (RuntimeError, ValueError) as error:
        core = trainer.describe() if trainer else None
        _leave(events, first_line(error), step, LOST, core)
    events.emit("done", core=trainer.describe(), result={"weights": trainer.digest()})
    trainer.leave()
    # gloo's threads may wait for a NIC.
    os._exit(OK)


def _iterate(trainer: "_Trainer", events: Events, step: int) -> None:
    begin_ns = time.time_ns()
    events.emit("begin", begin_ns, iteration=step)
    start_ns = time.perf_counter_ns()
    loss, forward_ns = trainer.step(step)
    duration_ns = time.perf_counter_ns() - start_ns
    measures = {"loss": loss, "forward_ms": forward_ns / 1e6}
    events.emit("iteration", begin_ns, iteration=step, duration_ns=duration_ns, wrong=None, measures=measures)


class _Trainer:
    """The model, its text and the group."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        from harness.backends.gpt import Gpt, Text

        self._dist, self._args = dist, args
        self._rank = int(os.environ["R2CC_RANK"])
        limit = timedelta(seconds=args.timeout_s)
        dist.init_process_group(
            args.library,
            init_method=f"tcp://{os.environ['R2CC_ROOT']}",
            rank=self._rank,
            world_size=int(os.environ["R2CC_SIZE"]),
            timeout=timedelta(seconds=max(_JOIN_S, args.timeout_s)),
        )
        torch.manual_seed(args.seed)
        self._model = Gpt(args.layers, args.width, args.heads, args.context)
        self._text = Text(args.seed)
        self._wrapped = DistributedDataParallel(self._model, bucket_cap_mb=args.bucket_bytes / (1 << 20))
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=args.learning_rate)
        dist.barrier()
        with suppress(AttributeError):  # a private name, but the only limit apart from that of the meeting
            dist.distributed_c10d._set_pg_timeout(limit)

    def step(self, step: int) -> tuple[float, int]:
        """The loss of this rank's batch, and how long its forward took in ns."""
        start_ns = time.perf_counter_ns()
        given, following = self._text.batch(step + self._args.warmup, self._rank, self._args.batch, self._args.context)
        self._optimizer.zero_grad()
        loss = self._wrapped(given, following)
        forward_ns = time.perf_counter_ns() - start_ns
        loss.backward()
        self._optimizer.step()
        return float(loss.item()), forward_ns

    def digest(self) -> str:
        """Of the bits of all weights."""
        found = hashlib.sha256()
        for parameter in self._model.parameters():
            found.update(parameter.detach().numpy().tobytes())
        return found.hexdigest()[:16]

    def live_log(self, events: Events) -> AbstractContextManager[object]:
        """Tells the core's events as they happen."""
        comm = self._communicator()
        return nullcontext() if comm is None else LiveLog(lambda: list(comm.stats()["events"]), events)

    def describe(self) -> dict[str, Any]:
        """What moved the gradients, for the stored trial."""
        comm = self._communicator()
        return (
            comm.stats() if comm is not None else {"library": self._args.library, "mode": 0, "nics": [], "events": []}
        )

    def leave(self) -> None:
        """Leaves the group, so that nobody takes this rank for lost."""
        if self._communicator() is not None:
            self._dist.destroy_process_group()

    def _communicator(self) -> Any:
        return getattr(self._dist.distributed_c10d._get_default_group(), "communicator", None)


def _leave(events: Events, message: str, step: int | None, code: int, core: Any = None) -> NoReturn:
    print(message, file=sys.stderr, flush=True)
    events.emit("error", message=message, iteration=step, **({"core": core} if core else {}))
    os._exit(code)


def _end_with_stdin() -> None:
    # Not sys.stdin: a daemon thread that holds its lock aborts the interpreter's end.
    while os.read(0, 4096):
        pass
    os._exit(LOST)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="training_rank", description=__doc__)
    parser.add_argument("--library", choices=("r2ccl", "gloo"), required=True)
    for name in ("layers", "width", "heads", "context", "batch", "bucket-bytes", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--timeout-s", type=float, default=60.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
