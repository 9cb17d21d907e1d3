"""The loop: fill, barrier, time, check, for every iteration of every size."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from r2ccl_core import native
from r2ccl_core.communicator import Communicator
from r2ccl_core.perf.events import Events
from r2ccl_core.perf.flags import Flags
from r2ccl_core.perf.table import Case, Result
from r2ccl_core.perf.watchdog import Watchdog


class Measurement:
    """Runs what `flags` ask for on one rank. `iteration` is the one under way, for error messages."""

    def __init__(self, comm: Communicator, flags: Flags, events: Events) -> None:
        self._comm, self._flags, self._events = comm, flags, events
        self._native = native.load()
        self._watchdog = Watchdog(flags.timeout_s, comm.abort)
        self.iteration: int | None = None

    def connect(self) -> None:
        """Makes the connections before anything is timed."""
        self._comm.connect(self._comm.schedule(self._flags.collective, self._flags.sizes[0]))

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
        flags = self._flags
        return [Case(size, dtype, op) for dtype in flags.dtypes for op in flags.ops for size in flags.sizes]

    def _measure(self, case: Case, place: str) -> Result:
        send = np.empty(case.count, dtype=_dtype(case.dtype))
        recv = send if place == "in" else np.empty_like(send)
        started_ns, durations_ns, wrong_total, checked = [], [], 0, False
        for iteration in range(-self._flags.warmup, self._flags.iters):
            # The wait for the other ranks counts too: one that stands still shows there first.
            with self._watchdog.watch(f"iteration {iteration} of {case.size_bytes} bytes"):
                start_ns, duration_ns, wrong = self._iterate(iteration, case, place, send, recv)
            if iteration >= 0:
                started_ns.append(start_ns)
                durations_ns.append(duration_ns)
                checked = checked or wrong is not None
                wrong_total += wrong or 0
        self.iteration = None
        return self._combine(case, place, started_ns, durations_ns, wrong_total if checked else None)

    def _iterate(
        self, iteration: int, case: Case, place: str, send: np.ndarray, recv: np.ndarray
    ) -> tuple[int, int, int | None]:
        """Start, duration, wrong elements (None: not checked)."""
        flags, comm = self._flags, self._comm
        self.iteration = iteration
        check = flags.check > 0 and iteration % flags.check == 0
        if check:
            self._fill(case, place, iteration, send, recv)
        if check or flags.stream:
            comm.barrier()  # so that the ranks' times compare
        at = {"size_bytes": case.size_bytes, "iteration": iteration, "place": place}
        t_ns = time.time_ns()
        self._events.emit("begin", t_ns, **at)
        start_ns = time.perf_counter_ns()
        comm.all_reduce(send, recv, case.op)
        duration_ns = time.perf_counter_ns() - start_ns
        if flags.corrupt == (comm.rank, iteration) and recv.size:
            _raw(recv)[recv.nbytes // 2] ^= 0xFF
        wrong = self._wrong(case, iteration, recv) if check else None
        self._events.emit("iteration", t_ns, duration_ns=duration_ns, wrong=wrong, **at)
        return t_ns, duration_ns, wrong

    def _fill(self, case: Case, place: str, iteration: int, send: np.ndarray, recv: np.ndarray) -> None:
        comm, seed = self._comm, self._flags.seed
        self._native.pattern_fill(_raw(send), case.dtype, comm.rank, comm.size, iteration, seed, case.op)
        if place == "out":
            _raw(recv)[:] = 0xFF  # what an earlier iteration left must not pass for a result

    def _wrong(self, case: Case, iteration: int, recv: np.ndarray) -> int:
        comm, seed = self._comm, self._flags.seed
        wrong: int = self._native.pattern_check(_raw(recv), case.dtype, comm.size, iteration, seed, case.op)
        return wrong

    def _combine(
        self, case: Case, place: str, started_ns: list[int], durations_ns: list[int], wrong: int | None
    ) -> Result:
        """All ranks' times and wrong elements, in the way of ``-a``."""
        packed = np.array([-1 if wrong is None else wrong, *started_ns, *durations_ns], dtype=np.int64).tobytes()
        table = np.array([np.frombuffer(part, dtype=np.int64) for part in self._comm.allgather(packed)])
        iters = len(started_ns)
        times: Any = table[:, 1 + iters :] / 1e9
        over = {0: times[0], 1: times.mean(axis=0), 2: times.min(axis=0), 3: times.max(axis=0)}
        total = None if wrong is None else int(table[:, 0].sum())
        return Result(
            case, place, tuple(table[0, 1 : 1 + iters].tolist()), tuple(over[self._flags.average].tolist()), total
        )


def _dtype(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes  # few need it, and it costs as much start-up as all the rest of this package

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def _raw(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8)
