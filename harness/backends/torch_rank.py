"""One rank of the torch backends: torch.distributed's collectives on the test data of `r2ccl_core.perf`.

Speaks the same event lines. What torch has in place only (all_reduce, broadcast, reduce) runs in place on the array
of the result; for ``--place out`` the input is copied there before the clock starts.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from harness.backends.gpu import finds_a_gpu
from harness.backends.said import first_line
from harness.backends.step_limit import StepLimit, abort_nccl
from r2ccl_core.errors import TransportError
from r2ccl_core.model.bandwidth import ITEM_BYTES, part_count
from r2ccl_core.native import load
from r2ccl_core.perf import pattern
from r2ccl_core.perf.data import Data, Task
from r2ccl_core.perf.events import Events, own_stream
from r2ccl_core.perf.stdin import end_with_stdin

OK, WRONG, USAGE, LOST = 0, 1, 2, 3
_JOIN_S = 20.0
_TURNS = 8
"""How many barriers each NIC has its turn in, before the first iteration: libraries take one NIC after the other."""
_ONLY_IN_PLACE = ("all_reduce", "broadcast", "reduce")


def main() -> NoReturn:
    """Measures and exits with 0 ok, 1 wrong elements, 2 usage, 3 a peer or the transport was lost."""
    args = _arguments()
    end_with_stdin()
    rank, ranks = int(os.environ["R2CC_RANK"]), int(os.environ["R2CC_SIZE"])
    events = Events(rank, True, own_stream())
    try:
        import torch
    except ImportError as error:
        message = f"PyTorch cannot be loaded in {sys.executable} ({error}); run: {sys.executable} -m pip install torch"
        _leave(events, message, None, USAGE)
    if args.library == "nccl" and not finds_a_gpu(torch):
        _leave(events, "there is no GPU that PyTorch can use; torch_gloo needs none", None, USAGE)
    task = Task(
        args.collective,
        rank,
        ranks,
        part_count(args.collective, args.size_bytes, args.dtype, ranks),
        args.dtype,
        args.op,
        args.root,
    )
    iteration: int | None = None
    try:
        group = _Group(torch, args, task)
        limit_s = args.timeout_s if args.library == "nccl" else None
        library_s = args.timeout_s if args.library == "gloo" else None
        limit = StepLimit(limit_s, lambda why: _lost(events, why, iteration), library_s)
        group.join(os.environ["R2CC_ROOT"])
        events.emit("ready", barrier_bytes=group.barrier_bytes([nic for nic in args.nics.split(",") if nic]))
        wrong = 0
        for iteration in range(-args.warmup, args.iterations):
            wrong += _iterate(args, group, limit, events, iteration)
    except (RuntimeError, ValueError, TransportError) as error:
        _leave(events, first_line(error), iteration, LOST)
    events.emit("done", core=group.describe())
    # An orderly end waits for threads of the library, which may wait for a NIC.
    os._exit(WRONG if wrong else OK)


def _iterate(args: argparse.Namespace, group: "_Group", limit: StepLimit, events: Events, iteration: int) -> int:
    """One iteration; its wrong elements."""
    at = {"size_bytes": args.size_bytes, "iteration": iteration, "place": args.place}
    if args.check:
        group.fill(iteration)
    with limit.step(f"the barrier before iteration {iteration}"):
        group.barrier()
    t_ns = time.time_ns()
    events.emit("begin", t_ns, **at)
    start_ns = time.perf_counter_ns()
    with limit.step(f"{args.collective} in iteration {iteration}"):
        group.collective()
    duration_ns = time.perf_counter_ns() - start_ns
    wrong = group.wrong(iteration) if args.check else None
    events.emit("iteration", t_ns, duration_ns=duration_ns, wrong=wrong, **at)
    return wrong or 0


class _Group:
    """torch.distributed's group, and this rank's arrays: in host memory, and for NCCL again on the GPU."""

    def __init__(self, torch: Any, args: argparse.Namespace, task: Task) -> None:
        self._torch, self._dist, self._args, self._task = torch, torch.distributed, args, task
        self._cuda = args.library == "nccl"
        # One rank a host; ranks that share a machine share its GPUs out.
        device = torch.device(f"cuda:{task.rank % torch.cuda.device_count()}" if self._cuda else "cpu")
        self._device, item_bytes = device, ITEM_BYTES[task.dtype]
        sent, received = (count * item_bytes for count in task.counts())
        whole = np.zeros(max(sent, received), np.uint8)
        # In place, the smaller of the two arrays is this rank's block of the larger.
        self._host = [whole] if args.place == "in" else [whole[:sent], np.zeros(received, np.uint8)]
        self._memory = [torch.from_numpy(array).to(device) for array in self._host]  # in host memory, the same
        self._send_at = _span(sent, self._host[0].size, task.rank)
        self._recv_at = _span(received, self._host[-1].size, task.rank)
        self._data = Data(_engine(), task, item_bytes)
        dtype = getattr(torch, task.dtype)
        self.send = self._memory[0][self._send_at].view(dtype)
        self.recv = self._memory[-1][self._recv_at].view(dtype)
        self.op = getattr(self._dist.ReduceOp, {"prod": "PRODUCT"}.get(task.op, task.op.upper()))

    def join(self, root: str) -> None:
        """Meets the other ranks, and connects to them."""
        if self._cuda:
            self._torch.cuda.set_device(self._device)
        self._dist.init_process_group(
            self._args.library,
            init_method=f"tcp://{root}",
            rank=self._task.rank,
            world_size=self._task.ranks,
            timeout=timedelta(seconds=max(_JOIN_S, self._args.timeout_s)),
        )
        self.barrier()
        with suppress(AttributeError):  # a private name, but the only limit apart from that of the meeting
            self._dist.distributed_c10d._set_pg_timeout(timedelta(seconds=self._args.timeout_s))

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self._dist.barrier()

    def barrier_bytes(self, nics: Sequence[str]) -> float:
        """What `nics` carry in a barrier, sent and received: without it, barriers on a NIC would look like a collective
        there. As many barriers as NICs, or a multiple, leave the turn to the same NIC as before."""
        count, before = _TURNS * max(1, len(nics)), _moved_bytes(nics)
        for _ in range(count):
            self.barrier()
        return (_moved_bytes(nics) - before) / count

    def fill(self, iteration: int) -> None:
        """New data for an iteration, where the collective looks for it."""
        send, recv = self._host[0][self._send_at], self._host[-1][self._recv_at]
        self._data.fill(send, recv, iteration)
        if self._args.place == "out" and self._task.collective in _ONLY_IN_PLACE:
            recv[:] = send
        if self._cuda:
            for host, memory in zip(self._host, self._memory, strict=True):
                memory.copy_(self._torch.from_numpy(host))

    def collective(self) -> None:
        """Runs it once, to its end."""
        _CALLS[self._task.collective](self._dist, self, self._task)
        if self._cuda:
            self._torch.cuda.synchronize()

    def wrong(self, iteration: int) -> int:
        """Wrong elements here. torch promises nothing about what a reduce leaves on other ranks than the root."""
        if self._task.collective == "reduce" and self._task.rank != self._task.root:
            return 0
        if self._cuda:
            self._torch.from_numpy(self._host[-1]).copy_(self._memory[-1])
        return self._data.wrong(self._host[-1][self._recv_at], iteration, self._args.place == "in")

    def describe(self) -> dict[str, Any]:
        """What ran, for the stored trial."""
        if self._args.library == "r2ccl":
            return {"torch": str(self._torch.__version__), **self._dist.group.WORLD.communicator.stats()}
        told = {
            "library": self._args.library,
            "torch": str(self._torch.__version__),
            "mode": 0,
            "nics": [],
            "events": [],
        }
        if self._cuda:
            told["nccl"] = ".".join(map(str, self._torch.cuda.nccl.version()))
            told["gpu"] = self._torch.cuda.get_device_name(self._device)
        return told


def _send_to_the_next(dist: Any, group: _Group, task: Task) -> None:
    following, previous = (task.rank + 1) % task.ranks, (task.rank - 1) % task.ranks
    both = [dist.P2POp(dist.isend, group.send, following), dist.P2POp(dist.irecv, group.recv, previous)]
    for request in dist.batch_isend_irecv(both):
        request.wait()


_CALLS: dict[str, Callable[[Any, _Group, Task], object]] = {
    "all_reduce": lambda dist, group, task: dist.all_reduce(group.recv, group.op),
    "all_gather": lambda dist, group, task: dist.all_gather_into_tensor(group.recv, group.send),
    "reduce_scatter": lambda dist, group, task: dist.reduce_scatter_tensor(group.recv, group.send, group.op),
    "broadcast": lambda dist, group, task: dist.broadcast(group.recv, task.root),
    "reduce": lambda dist, group, task: dist.reduce(group.recv, task.root, group.op),
    "sendrecv": _send_to_the_next,
    "alltoall": lambda dist, group, task: dist.all_to_all_single(group.recv, group.send),
}


def _moved_bytes(nics: Sequence[str]) -> int:
    """What `nics` have sent and received so far, by the kernel."""
    with suppress(OSError):
        rows = [line.partition(":") for line in Path("/proc/net/dev").read_text().splitlines()]
        counts = [(name.strip(), found.split()) for name, colon, found in rows if colon]
        return sum(int(found[0]) + int(found[8]) for name, found in counts if name in nics)
    return 0


def _span(part: int, whole: int, rank: int) -> slice:
    """The bytes of an array of `part` bytes in memory of `whole`: all of it, or the rank's block."""
    return slice(0, whole) if part == whole else slice(rank * part, (rank + 1) * part)


def _engine() -> Any:
    """The native pattern where it is built for this Python; else the one in NumPy, which is slower."""
    try:
        return load()
    except TransportError:
        return pattern


def _leave(events: Events, message: str, iteration: int | None, code: int) -> NoReturn:
    _tell(events, message, iteration)
    os._exit(code)


def _lost(events: Events, message: str, iteration: int | None) -> NoReturn:
    _tell(events, message, iteration)
    abort_nccl()
    os._exit(LOST)


def _tell(events: Events, message: str, iteration: int | None) -> None:
    print(message, file=sys.stderr, flush=True)
    events.emit("error", message=message, iteration=iteration)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torch_rank", description=__doc__)
    parser.add_argument("collective", choices=tuple(_CALLS))
    parser.add_argument("--library", choices=("gloo", "nccl", "r2ccl"), required=True)
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--check", type=int, default=1)
    parser.add_argument("--dtype", choices=tuple(ITEM_BYTES), default="float32")
    parser.add_argument("--op", choices=("sum", "min", "max", "prod"), default="sum")
    parser.add_argument("--root", type=int, default=0)
    parser.add_argument("--place", choices=("out", "in"), default="out")
    parser.add_argument("--timeout-s", type=float, default=60.0)
    parser.add_argument("--nics", default="")
    return parser.parse_args()


if __name__ == "__main__":
    main()
