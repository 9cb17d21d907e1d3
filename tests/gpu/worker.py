"""One rank of a campaign: enters its host's namespace, then does what its standard input says, line by line.

With CUDA it drives NCCL's C interface through ctypes; without (CAMPAIGN_STAND_IN=1) the core's own Communicator on
NumPy arrays stands in, over the same network, so that everything around NCCL can be tried anywhere.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

CLONE_NEWNET = 0x40000000
FLOAT32, SUM = 7, 0
MODULUS = 61
NO_COLOR = -1
SUCCESS, IN_PROGRESS = 0, 7
STAND_IN = os.environ.get("CAMPAIGN_STAND_IN") == "1"
RANK, SIZE = int(os.environ["CAMPAIGN_RANK"]), int(os.environ["CAMPAIGN_SIZE"])


def enter(place: str) -> None:
    """Moves this process into the namespace of its host, before it has any other thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/run/netns/{place}", os.O_RDONLY | os.O_CLOEXEC)
    if libc.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter {place}")
    os.close(fd)


class UniqueId(ctypes.Structure):
    """NCCL's, by value."""

    _fields_ = (("data", ctypes.c_char * 128),)


class NcclRank:
    """Arrays are CUDA tensors. What names no communicator and no stream is on the first ones."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.cuda.set_device(0)  # CUDA_VISIBLE_DEVICES names one
        self.device = torch.device("cuda", 0)
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
        # The global scope: a preloaded library comes first in it.
        self.nccl = ctypes.CDLL(None)
        self.comm = ctypes.c_void_p()

    def hello(self) -> dict[str, Any]:
        """The id under which the ranks meet, on rank 0."""
        return {} if RANK else {"id": self.unique_id()}

    def join(self, key: str) -> dict[str, Any]:
        """All ranks at once."""
        self.torch.zeros(1, device=self.device)
        self.comm = self.communicator(key)
        version = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(version))
        return {"nccl": version.value, "torch": self.torch.__version__, "gpu": self.torch.cuda.get_device_name(0)}

    def unique_id(self) -> str:
        """Under which the ranks of one communicator meet; rank 0 makes it."""
        made = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(made))
        return bytes(made).hex()

    def communicator(self, key: str) -> ctypes.c_void_p:
        """Of all ranks, which call this at once."""
        made, identity = ctypes.c_void_p(), UniqueId.from_buffer_copy(bytes.fromhex(key))
        self.call("ncclCommInitRank", ctypes.byref(made), SIZE, identity, RANK)
        return made

    def split(self, parent: ctypes.c_void_p, colors: Sequence[int]) -> ctypes.c_void_p | None:
        """Of the ranks with this one's color, in their order; None without one. All ranks of `parent`, of which there
        are as many as colors, call this at once."""
        made = ctypes.c_void_p()
        self.call("ncclCommSplit", parent, colors[RANK], RANK, ctypes.byref(made), None)
        return made if made.value else None

    def destroy(self, comm: ctypes.c_void_p) -> None:
        """All its ranks at once."""
        self.call("ncclCommDestroy", comm)

    def abort(self, comm: ctypes.c_void_p, stream: Any) -> None:
        """Ends what was issued on it and never completes; returns when `stream` is free."""
        self.call("ncclCommAbort", comm)
        self.wait(stream)

    def new_stream(self) -> Any:
        return self.torch.cuda.Stream()

    def busy(self, stream: Any) -> bool:
        """Whether something that was issued on it is not done."""
        return not stream.query()

    def call(self, function: str, *args: Any) -> None:
        result = getattr(self.nccl, function)(*args)
        if result != 0:
            raise RuntimeError(f"{function} says {result}")

    def pattern(self, count: int, rank: int, first: int = 0) -> Any:
        """What a rank brings: integers that add up exactly."""
        torch = self.torch
        return torch.arange(first, first + count, device=self.device).add_(rank * 17).remainder_(MODULUS).float()

    def filled(self, count: int, value: float) -> Any:
        return self.torch.full((count,), value, device=self.device, dtype=self.torch.float32)

    def concatenated(self, parts: list[Any]) -> Any:
        return self.torch.cat(parts)

    def wrong(self, found: Any, expected: Any) -> int:
        """How many elements differ."""
        return int((found != expected).sum().item())

    def put(self, array: Any, index: int, value: float) -> None:
        array[index] = value

    def value(self, array: Any, index: int) -> float:
        return float(array[index].item())

    def operation(
        self, collective: str, send: Any, recv: Any, count: int, comm: Any = None, stream: Any = None
    ) -> Callable[[], None]:
        """What issues one collective each time it is called, at little cost: the caller's own time is part of what is
        measured. `count` elements of the larger array. A `comm` of fewer ranks: AllReduce."""
        s, r = ctypes.c_void_p(send.data_ptr()), ctypes.c_void_p(recv.data_ptr())
        comm, stream = comm or self.comm, ctypes.c_void_p((stream or self.stream).cuda_stream)
        n, part = ctypes.c_size_t(count), ctypes.c_size_t(count // SIZE)
        calls: list[tuple[Any, ...]]
        if collective == "all_reduce":
            calls = [("ncclAllReduce", s, r, n, FLOAT32, SUM, comm, stream)]
        elif collective == "all_gather":
            calls = [("ncclAllGather", s, r, part, FLOAT32, comm, stream)]
        elif collective == "reduce_scatter":
            calls = [("ncclReduceScatter", s, r, part, FLOAT32, SUM, comm, stream)]
        elif collective == "broadcast":
            calls = [("ncclBroadcast", s, r, n, FLOAT32, 0, comm, stream)]
        elif collective == "reduce":
            calls = [("ncclReduce", s, r, n, FLOAT32, SUM, 0, comm, stream)]
        elif collective in ("alltoall", "gather", "scatter"):
            # As nccl-tests: each block is a message of a group.
            sends = range(SIZE) if collective == "alltoall" or (collective == "scatter" and RANK == 0) else []
            takes = range(SIZE) if collective == "alltoall" or (collective == "gather" and RANK == 0) else []
            calls = [("ncclGroupStart",)]
            for peer in range(SIZE):
                block = peer * 4 * (count // SIZE)
                if peer in sends:
                    calls.append(("ncclSend", _after(s, block), part, FLOAT32, peer, comm, stream))
                if peer in takes:
                    calls.append(("ncclRecv", _after(r, block), part, FLOAT32, peer, comm, stream))
            if collective == "gather":
                calls.append(("ncclSend", s, part, FLOAT32, 0, comm, stream))
            if collective == "scatter":
                calls.append(("ncclRecv", r, part, FLOAT32, 0, comm, stream))
            calls.append(("ncclGroupEnd",))
        else:
            calls = [
                ("ncclGroupStart",),
                ("ncclSend", s, n, FLOAT32, (RANK + 1) % SIZE, comm, stream),
                ("ncclRecv", r, n, FLOAT32, (RANK - 1) % SIZE, comm, stream),
                ("ncclGroupEnd",),
            ]

        def issue() -> None:
            for function, *args in calls:
                self.call(function, *args)

        return issue

    def wait(self, stream: Any = None) -> None:
        """Until all that was issued is done; without spinning, or it would count as the network's CPU time."""
        event = self.torch.cuda.Event(blocking=True)
        event.record(stream or self.stream)
        event.synchronize()

    def run(self, issue: Callable[[], None]) -> str:
        """One operation to its end; the failure of the communicator, if it has one before."""
        state, last_error = ctypes.c_int(), self.nccl.ncclGetLastError
        last_error.restype = ctypes.c_char_p
        issue()
        while not self.stream.query():
            self.call("ncclCommGetAsyncError", self.comm, ctypes.byref(state))
            if state.value not in (SUCCESS, IN_PROGRESS):
                return f"{state.value}: {last_error(self.comm).decode(errors='replace')}"
        return ""

    def choice(self) -> str:
        """What the preloaded library ran last."""
        function = self.nccl.r2cclChoice
        function.restype = ctypes.c_char_p
        return str(function(self.comm).decode())

    def set_nics(self, total: int, left: int) -> None:
        """Instead of what the plugin says; negative: the plugin's word again."""
        self.nccl.r2cclSetNicsLeft(total, left)


def _after(place: ctypes.c_void_p, nbytes: int) -> ctypes.c_void_p:
    return ctypes.c_void_p((place.value or 0) + nbytes)


class Stream:
    """The stand-in's: what is issued on it runs in turn, on a thread of its own."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1)
        self.issued: list[Future[Any]] = []

    def issue(self, work: Callable[..., Any], *args: Any) -> None:
        self.issued.append(self.thread.submit(work, *args))

    def busy(self) -> bool:
        return not all(one.done() for one in self.issued)

    def wait(self) -> None:
        """Raises what the first that failed raised."""
        issued, self.issued = self.issued, []
        for one in issued:
            one.result()


class CoreRank:
    """The stand-in. Arrays are NumPy's; an id is where rank 0 listens."""

    def __init__(self) -> None:
        import numpy

        self.numpy = numpy
        self.comm: Any = None
        # Groups of the campaign count ports by one; ids are rank 0's to make, splits are counted by every rank.
        self.ports = itertools.count(int(os.environ["CAMPAIGN_PORT"]), 1000)
        self.split_ports = itertools.count(int(os.environ["CAMPAIGN_PORT"]) + 10_000, 1000)

    def hello(self) -> dict[str, Any]:
        return {} if RANK else {"id": self.unique_id()}

    def join(self, key: str) -> dict[str, Any]:
        self.comm = self.communicator(key)
        return {"nccl": 0, "torch": "", "gpu": "none: a stand-in"}

    def unique_id(self) -> str:
        return f"10.99.0.1:{next(self.ports)}"

    def communicator(self, key: str) -> Any:
        from r2ccl_core.runtime.communicator import Communicator

        return Communicator(RANK, SIZE, root=key)

    def split(self, parent: Any, colors: Sequence[int]) -> Any:
        """A group of its own: there is nothing to split."""
        from r2ccl_core.runtime.communicator import Communicator

        port, mine = next(self.split_ports), colors[RANK]
        members = [rank for rank, color in enumerate(colors) if color == mine]
        if mine == NO_COLOR:
            return None
        return Communicator(members.index(RANK), len(members), root=f"10.99.0.{members[0] + 1}:{port}")

    def destroy(self, comm: Any) -> None:
        comm.close()

    def abort(self, comm: Any, stream: Stream) -> None:
        from r2ccl_core.errors import R2cclError

        comm.abort("it is to end in the middle")
        with suppress(R2cclError):
            stream.wait()
        comm.close()

    def new_stream(self) -> Stream:
        return Stream()

    def busy(self, stream: Stream) -> bool:
        return stream.busy()

    def pattern(self, count: int, rank: int, first: int = 0) -> Any:
        return ((self.numpy.arange(first, first + count) + rank * 17) % MODULUS).astype(self.numpy.float32)

    def filled(self, count: int, value: float) -> Any:
        return self.numpy.full(count, value, self.numpy.float32)

    def concatenated(self, parts: list[Any]) -> Any:
        return self.numpy.concatenate(parts)

    def wrong(self, found: Any, expected: Any) -> int:
        return int((found != expected).sum())

    def put(self, array: Any, index: int, value: float) -> None:
        array[index] = value

    def value(self, array: Any, index: int) -> float:
        return float(array[index])

    def operation(
        self, collective: str, send: Any, recv: Any, count: int, comm: Any = None, stream: Stream | None = None
    ) -> Callable[[], None]:
        name = {"sendrecv": "send_recv", "alltoall": "all_to_all"}.get(collective, collective)
        if collective in ("reduce", "gather") and RANK != 0:
            recv = None
        work = partial(getattr(comm or self.comm, name), send, recv)
        return work if stream is None else partial(stream.issue, work)

    def wait(self, stream: Stream | None = None) -> None:
        if stream is not None:
            stream.wait()

    def run(self, issue: Callable[[], None]) -> str:
        from r2ccl_core.errors import R2cclError

        try:
            issue()
        except R2cclError as error:
            return str(error)
        return ""

    def choice(self) -> str:
        return "stand-in"

    def set_nics(self, total: int, left: int) -> None:
        pass


def rank_here() -> Any:
    """NCCL's, or the stand-in."""
    return CoreRank() if STAND_IN else NcclRank()


class Worker:
    """Answers requests; keeps arrays for one collective and size at a time."""

    def __init__(self) -> None:
        self.rank = rank_here()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request.pop("do")
        if what == "join":
            return dict(self.rank.join(request["id"]))
        if what == "measure":
            return self.measure(**request)
        if what == "loop":
            return self.loop(**request)
        if what == "set_nics":
            self.rank.set_nics(request["total"], request["left"])
            return {}
        raise ValueError(f"{what} is unknown")

    def arrays(self, collective: str, count: int) -> tuple[Any, Any, Any]:
        """What this rank sends, where it receives, and what must be there then."""
        rank, part = self.rank, count // SIZE
        if collective == "all_gather":
            parts = [rank.pattern(part, peer) for peer in range(SIZE)]
            return rank.pattern(part, RANK), rank.filled(count, -1), rank.concatenated(parts)
        if collective == "broadcast":
            return rank.pattern(count, RANK), rank.filled(count, -1), rank.pattern(count, 0)
        if collective == "sendrecv":
            return rank.pattern(count, RANK), rank.filled(count, -1), rank.pattern(count, (RANK - 1) % SIZE)
        if collective == "alltoall":
            parts = [rank.pattern(part, peer, RANK * part) for peer in range(SIZE)]
            return rank.pattern(count, RANK), rank.filled(count, -1), rank.concatenated(parts)
        if collective == "gather":
            parts = [rank.pattern(part, peer) for peer in range(SIZE)]
            recv = rank.filled(count, -1)
            return rank.pattern(part, RANK), recv, recv if RANK else rank.concatenated(parts)
        if collective == "scatter":
            return rank.pattern(count, RANK), rank.filled(part, -1), rank.pattern(part, 0, RANK * part)
        if collective == "reduce" and RANK:  # what a rank other than the root has there is nobody's business
            recv = rank.filled(count, -1)
            return rank.pattern(count, RANK), recv, recv
        first, length = (RANK * part, part) if collective == "reduce_scatter" else (0, count)
        expected = rank.filled(length, 0)
        for peer in range(SIZE):
            expected += rank.pattern(length, peer, first)
        return rank.pattern(count, RANK), rank.filled(length, -1), expected

    def measure(self, collective: str, nbytes: int, iterations: int, warm: int = 1, batch: int = 1) -> dict[str, Any]:
        """Seconds of each of `iterations` (of `batch` operations each), how many of them passed until the last was
        issued, and how many elements were wrong in all."""
        rank, count = self.rank, nbytes // 4
        send, recv, expected = self.arrays(collective, count)
        issue = rank.operation(collective, send, recv, count)
        for _ in range(warm):
            issue()
        rank.wait()
        times, issued, wrong, cpu_s = [], [], rank.wrong(recv, expected), 0.0
        for _ in range(iterations):
            recv[:] = -1
            rank.wait()
            before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            for _ in range(batch):
                issue()
            issued.append((time.perf_counter() - begin) / batch)
            rank.wait()
            times.append((time.perf_counter() - begin) / batch)
            after = resource.getrusage(resource.RUSAGE_SELF)
            cpu_s += (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / batch
            wrong += rank.wrong(recv, expected)
        choice = rank.choice() if os.environ.get("R2CC_SCHEDULES") else ""
        return {"times": times, "issued": issued, "wrong": wrong, "cpu_s": cpu_s / iterations, "choice": choice}

    def loop(self, nbytes: int, seconds: float, check_every: int = 1) -> dict[str, Any]:
        """AllReduce after AllReduce, until rank 0 says in one of them that it was the last. Every element of every
        `check_every`-th is checked. Ends and lengths are nanoseconds of the machine's monotonic clock."""
        rank, count = self.rank, nbytes // 4
        send, recv, expected = self.arrays("all_reduce", count)
        rank.put(expected, 0, 0)
        rank.put(send, 0, 0)
        issue = rank.operation("all_reduce", send, recv, count)
        deadline = time.monotonic() + seconds
        ends, lengths, choices, wrong, checked, last = [], [], [], 0, 0, False
        scheduled = bool(os.environ.get("R2CC_SCHEDULES"))
        while not last:
            if RANK == 0 and time.monotonic() > deadline:
                rank.put(send, 0, 1)
            recv[:] = -1
            rank.wait()
            begin = time.monotonic_ns()
            issue()
            rank.wait()
            end = time.monotonic_ns()
            ends.append(end)
            lengths.append(end - begin)
            choices.append(rank.choice() if scheduled else "")
            last = rank.value(recv, 0) == 1
            if last:
                rank.put(expected, 0, 1)
            if len(ends) % check_every == 0 or last:
                wrong += rank.wrong(recv, expected)
                checked += 1
        own = {"ends": ends, "choices": choices} if RANK == 0 else {"ends": [], "choices": []}
        return {**own, "lengths": lengths, "wrong": wrong, "checked": checked}


Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""From a line of standard input to one of standard output."""


def serve(start: Callable[[], tuple[dict[str, Any], Answer]]) -> None:
    """Enters the namespace, says what `start` found, then answers until standard input ends; trouble is told, too."""
    enter(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(told: dict[str, Any]) -> None:
        out.write(json.dumps(told) + "\n")
        out.flush()

    try:
        hello, answer = start()
    except Exception as error:
        return say(trouble(error))
    say(hello)
    for line in sys.stdin:
        try:
            told = answer(json.loads(line))
        except Exception as error:
            told = trouble(error)
        say(told)
    return None


def trouble(error: Exception) -> dict[str, Any]:
    """As an answer; its traceback goes to the log."""
    traceback.print_exc()
    return {"error": f"{type(error).__name__}: {error}"}


def start_worker() -> tuple[dict[str, Any], Answer]:
    """Ready for collectives."""
    worker = Worker()
    return worker.rank.hello(), worker.answer


if __name__ == "__main__":
    serve(start_worker)
