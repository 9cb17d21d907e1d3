"""The ranks of this process: each measures on its own thread; a single one on the caller's."""

import os
import socket
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import NamedTuple

from r2ccl_core.errors import PeerLostError, UsageError
from r2ccl_core.perf import memory, table
from r2ccl_core.perf.events import Events
from r2ccl_core.perf.flags import Flags
from r2ccl_core.perf.live_log import LiveLog
from r2ccl_core.perf.measure import Measurement
from r2ccl_core.perf.table import Result
from r2ccl_core.runtime.communicator import Communicator

GRACE_S = 3.0
"""How long the other ranks have to end when one has failed: one that still waits for the group to gather would not."""


class Rank:
    """One rank of the group. `comm` and `measurement` exist once they are made, `results` after `run`."""

    def __init__(self, number: int, size: int, root: str | None, flags: Flags, events: Events) -> None:
        self.number = number
        self.comm: Communicator | None = None
        self.measurement: Measurement | None = None
        self.results: list[Result] = []
        self._size, self._root, self._flags, self._events = size, root, flags, events

    def run(self) -> None:
        """Joins the group, measures and leaves."""
        flags, events = self._flags, self._events
        with Communicator(self.number, self._size, self._root, timeout_s=flags.meet_s) as comm:
            self.comm = comm
            self.measurement = Measurement(comm, flags, events)
            # In the group, so that an error here ends the other ranks, too.
            memory.check(self.measurement.cases(), flags.places, flags.gpus)
            try:
                with LiveLog(lambda: comm.stats()["events"], events) if flags.stream else nullcontext():
                    self.results = self._measure(comm, self.measurement)
            except MemoryError as error:  # other programs want memory, too, and a process may be limited
                raise UsageError(f"out of memory ({error}); give smaller sizes (-b, -e) or fewer ranks (-g)") from error
            events.emit("done", core=comm.stats())

    def _measure(self, comm: Communicator, measurement: Measurement) -> list[Result]:
        """All results; rank 0 shows them as they arrive, unless events are requested."""
        flags = self._flags
        measurement.connect()
        self._events.emit("ready")
        mine = ", ".join(f"{nic['name']} {nic['address']}" for nic in comm.stats()["nics"])
        places = comm.exchange(f"Pid {os.getpid():>7} on {socket.gethostname()} NICs {mine}".encode())
        show = comm.rank == 0 and not flags.stream
        if show:
            print(table.header(_settings(comm, flags), [place.decode() for place in places]), flush=True)
        results: list[Result] = []
        shown: dict[str, Result] = {}
        for result in measurement.run():
            results.append(result)
            shown[result.place] = result
            if len(shown) == len(flags.places):
                if show:
                    print(table.line(result.case, shown), flush=True)
                shown.clear()
        if show:
            print(table.summary(results), flush=True)
        return results


class Failure(NamedTuple):
    """What ended the ranks, and on which of them."""

    rank: Rank
    error: BaseException


def run_all(ranks: Sequence[Rank]) -> Failure | None:
    """Runs all of them; returns None if all succeeded. When one fails, the others end with it."""
    if len(ranks) > 1:
        return _run_on_threads(ranks)
    try:
        ranks[0].run()
    except BaseException as error:
        return Failure(ranks[0], error)
    return None


def _run_on_threads(ranks: Sequence[Rank]) -> Failure | None:
    pool = ThreadPoolExecutor(len(ranks), "rank")
    futures = [pool.submit(rank.run) for rank in ranks]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    except KeyboardInterrupt as error:  # it comes to the main thread, of which the ranks know nothing
        for rank in ranks:
            if rank.comm is not None:
                rank.comm.abort(type(error).__name__)
        wait(futures, GRACE_S)
        return Failure(ranks[0], error)
    wait(futures, GRACE_S)
    errors = [(rank, future.exception()) for rank, future in zip(ranks, futures, strict=True) if future.done()]
    failures = [Failure(rank, error) for rank, error in errors if error is not None]
    # The other ranks of the group hear of it as the loss of a peer.
    return min(failures, key=lambda failure: isinstance(failure.error, PeerLostError), default=None)


def _settings(comm: Communicator, flags: Flags) -> dict[str, object]:
    return {
        "collective": flags.collective,
        "ranks": comm.size,
        "mode": comm.stats()["mode"],
        "minBytes": flags.sizes[0],
        "maxBytes": flags.sizes[-1],
        "warmup iters": flags.warmup,
        "iters": flags.iters,
        "validation": flags.check,
    }
