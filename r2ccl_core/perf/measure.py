"""The loop: fill, barrier, time, check, for every iteration of every size."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

import ml_dtypes
import numpy as np

from r2ccl_core import native
from r2ccl_core.communicator import Communicator
from r2ccl_core.perf.flags import Flags
from r2ccl_core.perf.table import Result


class Events:
    """Writes one JSON object a line; silent without --stream."""

    def __init__(self, rank: int, enabled: bool, out: TextIO = sys.stdout) -> None:
        self._rank, self._enabled, self._out = rank, enabled, out
        self._lock = threading.Lock()

    def emit(self, event: str, t_ns: int | None = None, **fields: Any) -> None:
        """One event, stamped with CLOCK_REALTIME in ns unless `t_ns` is given."""
        if not self._enabled:
            return
        stamp = time.time_ns() if t_ns is None else t_ns
        text = json.dumps({"event": event, "rank": self._rank, "t_ns": stamp, **fields})
        with self._lock:
            self._out.write(text + "\n")
            self._out.flush()


class Measurement:
    """Runs what `flags` ask for on one rank. `iteration` is the one under way, for error messages."""

    def __init__(self, comm: Communicator, flags: Flags, events: Events) -> None:
        self._comm, self._flags, self._events = comm, flags, events
        self._native = native.load()
        self.iteration: int | None = None

    def run(self) -> Iterator[Result]:
        """One `Result` per size and place, cycle after cycle."""
        began_s, cycle = time.monotonic(), 0
        while self._flags.cycles == 0 or cycle < self._flags.cycles:
            for size in self._flags.sizes:
                for place in self._flags.places:
                    yield self._measure(size, place)
            cycle += 1
            if self._out_of_time(began_s):
                return

    def _out_of_time(self, began_s: float) -> bool:
        """Rank 0's clock decides for all: ranks that disagreed would wait for each other for ever."""
        if self._flags.timeout_s == 0:
            return False
        late = time.monotonic() - began_s > self._flags.timeout_s
        return self._comm.allgather(b"\x01" if late else b"\x00")[0] == b"\x01"

    def _measure(self, size: int, place: str) -> Result:
        dtype = np.dtype(getattr(ml_dtypes, self._flags.dtype, self._flags.dtype))
        count = size // dtype.itemsize
        send = np.empty(count, dtype=dtype)
        recv = send if place == "in" else np.empty(count, dtype=dtype)
        times_s, wrong_total, checked = [], 0, False
        for iteration in range(-self._flags.warmup, self._flags.iters):
            duration_ns, wrong = self._iterate(iteration, size, place, send, recv)
            if iteration >= 0:
                times_s.append(duration_ns / 1e9)
                checked = checked or wrong is not None
                wrong_total += wrong or 0
        self.iteration = None
        return self._combine(size, place, times_s, wrong_total if checked else None)

    def _iterate(
        self, iteration: int, size: int, place: str, send: np.ndarray, recv: np.ndarray
    ) -> tuple[int, int | None]:
        flags, comm, op = self._flags, self._comm, self._flags.op
        self.iteration = iteration
        check = flags.check > 0 and iteration % flags.check == 0
        if check:
            self._native.pattern_fill(_raw(send), flags.dtype, comm.rank, comm.size, iteration, flags.seed, op)
            if place == "out":
                recv.view(np.uint8)[:] = 0xFF  # what an earlier iteration left must not pass for a result
        comm.barrier()
        at = {"size_bytes": size, "iteration": iteration, "place": place}
        t_ns = time.time_ns()
        self._events.emit("begin", t_ns, **at)
        start_ns = time.perf_counter_ns()
        comm.all_reduce(send, recv, op)
        duration_ns = time.perf_counter_ns() - start_ns
        if flags.corrupt == (comm.rank, iteration) and recv.size:
            _raw(recv)[recv.nbytes // 2] ^= 0xFF
        wrong = None
        if check:
            wrong = self._native.pattern_check(_raw(recv), flags.dtype, comm.size, iteration, flags.seed, op)
        self._events.emit("iteration", t_ns, duration_ns=duration_ns, wrong=wrong, **at)
        return duration_ns, wrong

    def _combine(self, size: int, place: str, times_s: list[float], wrong: int | None) -> Result:
        """All ranks' times and wrong elements, in the way of ``-a``."""
        packed = np.array([-1 if wrong is None else wrong, *times_s], dtype=np.float64).tobytes()
        table = np.array([np.frombuffer(part) for part in self._comm.allgather(packed)])
        times = table[:, 1:]
        over = {0: times[0], 1: times.mean(axis=0), 2: times.min(axis=0), 3: times.max(axis=0)}
        total = None if wrong is None else int(table[:, 0].sum())
        return Result(size, place, tuple(over[self._flags.average].tolist()), total)


def _raw(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8)
