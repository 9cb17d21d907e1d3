"""The measuring loop: fill, barrier, time, check, for every iteration of every size."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from r2ccl_core import native
from r2ccl_core.perf.data import Data, Task
from r2ccl_core.perf.events import Events
from r2ccl_core.perf.flags import Flags
from r2ccl_core.perf.table import Case, Result
from r2ccl_core.perf.watchdog import Watchdog
from r2ccl_core.runtime import buffers
from r2ccl_core.runtime.communicator import Communicator


class Measurement:
    """Runs what `flags` request on one rank. `iteration` is the current one, for error messages."""

    def __init__(self, comm: Communicator, flags: Flags, events: Events) -> None:
        self._comm, self._flags, self._events = comm, flags, events
        self._native = native.load()
        self._watchdog = Watchdog(flags.timeout_s, comm.abort)
        self.iteration: int | None = None

    def connect(self) -> None:
        """Makes the connections before anything is timed."""
        flags = self._flags
        self._comm.connect(self._comm.schedule(flags.collective, flags.sizes[0], flags.root))

    def run(self) -> Iterator[Result]:
        """One `Result` per case and place, cycle after cycle."""
        cycle = 0
        while self._flags.cycles == 0 or cycle < self._flags.cycles:
            for case in self.cases():
                for place in self._flags.places:
                    yield self._measure(case, place)
            cycle += 1

    def cases(self) -> list[Case]:
        """What one cycle measures, in the order of nccl-tests: all sizes of a type and operation together."""
        flags, ranks = self._flags, self._comm.size
        return [
            Case(flags.collective, ranks, size, dtype, op, flags.root)
            for dtype in flags.dtypes
            for op in flags.ops
            for size in flags.sizes
        ]

    def _measure(self, case: Case, place: str) -> Result:
        flags, comm = self._flags, self._comm
        task = Task(case.collective, comm.rank, comm.size, case.count, case.dtype, case.op, case.root, flags.seed)
        send, recv = _arrays(task, place)
        run = _Run(comm, case, place, send, recv, Data(self._native, task, send.itemsize))
        started_ns, durations_ns, wrong_total, checked = [], [], 0, False
        for iteration in range(-flags.warmup, flags.iters):
            # The wait for the other ranks counts too: one that stands still shows there first.
            with self._watchdog.watch(f"iteration {iteration} of {case.size_bytes} bytes"):
                start_ns, duration_ns, wrong = self._iterate(iteration, run)
            if iteration >= 0:
                started_ns.append(start_ns)
                durations_ns.append(duration_ns)
                checked = checked or wrong is not None
                wrong_total += wrong or 0
        self.iteration = None
        return self._combine(case, place, started_ns, durations_ns, wrong_total if checked else None)

    def _iterate(self, iteration: int, run: "_Run") -> tuple[int, int, int | None]:
        """Start, duration, wrong elements (None: not checked)."""
        flags, comm = self._flags, self._comm
        self.iteration = iteration
        check = flags.check > 0 and iteration % flags.check == 0
        if check:
            run.data.fill(_raw(run.send), _raw(run.recv), iteration)
        if check or flags.stream:
            comm.barrier()  # so that the ranks' times compare
        at = {"size_bytes": run.case.size_bytes, "iteration": iteration, "place": run.place}
        t_ns = time.time_ns()
        self._events.emit("begin", t_ns, **at)
        start_ns = time.perf_counter_ns()
        run.collective()
        duration_ns = time.perf_counter_ns() - start_ns
        if flags.corrupt == (comm.rank, iteration) and run.recv.size:
            _raw(run.recv)[run.recv.nbytes // 2] ^= 0xFF
        wrong = run.data.wrong(_raw(run.recv), iteration, run.place == "in") if check else None
        self._events.emit("iteration", t_ns, duration_ns=duration_ns, wrong=wrong, **at)
        return t_ns, duration_ns, wrong

    def _combine(
        self, case: Case, place: str, started_ns: list[int], durations_ns: list[int], wrong: int | None
    ) -> Result:
        """Combines all ranks' times and wrong elements, as ``-a`` says."""
        packed = np.array([-1 if wrong is None else wrong, *started_ns, *durations_ns], dtype=np.int64).tobytes()
        table = np.array([np.frombuffer(part, dtype=np.int64) for part in self._comm.exchange(packed)])
        iters = len(started_ns)
        times: Any = table[:, 1 + iters :] / 1e9
        over = {0: times[0], 1: times.mean(axis=0), 2: times.min(axis=0), 3: times.max(axis=0)}
        total = None if wrong is None else int(table[:, 0].sum())
        return Result(
            case, place, tuple(table[0, 1 : 1 + iters].tolist()), tuple(over[self._flags.average].tolist()), total
        )


@dataclass(frozen=True)
class _Run:
    """One case in one place on this rank, ready to be repeated."""

    comm: Communicator
    case: Case
    place: str
    send: np.ndarray
    recv: np.ndarray
    data: Data

    def collective(self) -> None:
        """Runs it once."""
        comm, send, recv, op, root = self.comm, self.send, self.recv, self.case.op, self.case.root
        match self.case.collective:
            case "all_reduce":
                comm.all_reduce(send, recv, op)
            case "all_gather":
                comm.all_gather(send, recv)
            case "reduce_scatter":
                comm.reduce_scatter(send, recv, op)
            case "broadcast":
                comm.broadcast(send, recv, root)
            case "reduce":
                comm.reduce(send, recv, op, root)
            case "sendrecv":
                comm.send_recv(send, recv)
            case "alltoall":
                comm.all_to_all(send, recv)


def _arrays(task: Task, place: str) -> tuple[np.ndarray, np.ndarray]:
    """The input and output arrays; in place, the smaller lies in the larger."""
    sent, received = task.counts()
    dtype = _dtype(task.dtype)
    if place == "out":
        return np.empty(sent, dtype), np.empty(received, dtype)
    whole = np.empty(max(sent, received), dtype)
    return (
        whole if sent == whole.size else buffers.block(whole, task.rank, task.ranks),
        whole if received == whole.size else buffers.block(whole, task.rank, task.ranks),
    )


def _dtype(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes  # few need it, and it costs as much start-up as all the rest of this package

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def _raw(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8)
