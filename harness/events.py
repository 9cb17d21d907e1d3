"""Turns the event lines of ranks into records, one for each process, which the judge reads.

A process stands for its rank, or for all ranks of its host (`workload.gpus`), whose events it has joined. A backend's
program writes one JSON object a line on stdout (see `r2ccl_core.perf`); everything else goes to the log only. `parse`
and `RankRecord` are pure. In `EventLog` the reader threads of the hosts hand over to the trial.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from harness.backends.nccl_log import NcclEvent
from harness.backends.nccl_log import parse as parse_nccl

T = TypeVar("T")


@dataclass(frozen=True)
class RankError:
    """An error that a rank reported itself, in one line."""

    message: str
    t_ns: int
    iteration: int | None
    kind: str = ""
    """The class of the error, where the rank said it."""


@dataclass(frozen=True)
class Timed:
    """One finished iteration of one rank. `wrong` counts wrong elements, None where nothing was checked."""

    t_ns: int
    duration_ns: int
    wrong: int | None
    measured_ns: int | None = None
    """What counts as its time, where it was in flight for longer than is measured."""
    said: Mapping[str, float] = field(default_factory=dict)
    """What the rank measured in it besides, such as a loss."""

    @property
    def end_ns(self) -> int:
        """When it had ended."""
        return self.t_ns + self.duration_ns


@dataclass
class RankRecord:
    """All that is known of one rank; times are CLOCK_REALTIME in ns, iterations are keyed by number."""

    rank: int
    offset_ns: int = 0
    """The host's clock minus ours; taken off every time that the rank tells."""
    ready_ns: int | None = None
    barrier_bytes: float = 0.0
    """What the data NICs of its host carry in a barrier before an iteration, both ways, where the rank says it."""
    begun: dict[int, int] = field(default_factory=dict)
    finished: dict[int, Timed] = field(default_factory=dict)
    error: RankError | None = None
    core: dict[str, Any] | None = None
    """`Communicator.stats()`, where the rank lived to tell; its events are on the host's own clock."""
    core_events: list[dict[str, Any]] = field(default_factory=list)
    """The core's events that the rank told as they happened, on the host's own clock: what a crash leaves."""
    nccl: list[tuple[int, NcclEvent]] = field(default_factory=list)
    """What NCCL's lines said, with the time on our clock at which each arrived."""
    done: bool = False
    result: Mapping[str, str] = field(default_factory=dict)
    """What the rank ended with, where it says so, such as a digest of weights."""
    returncode: int | None = None
    log: list[str] = field(default_factory=list)

    def take(self, event: dict[str, Any], *, given_up: bool = False) -> None:
        """Adds one event; events of an unknown kind are left out. Once the ranks are `given_up` an error is no finding:
        they are ended one after another, and each says of the one before it that it is gone."""
        kind, t_ns = event["event"], int(event["t_ns"]) - self.offset_ns
        if kind == "core":
            self.core_events.append({k: v for k, v in event.items() if k not in ("event", "rank")})
        elif kind == "ready":
            self.ready_ns = t_ns
            self.barrier_bytes = float(event.get("barrier_bytes") or 0.0)
        elif kind == "begin":
            self.begun[int(event["iteration"])] = t_ns
        elif kind == "iteration":
            said = event.get("measures") or {}
            timed = Timed(t_ns, int(event["duration_ns"]), event.get("wrong"), event.get("measured_ns"), said)
            self.finished[int(event["iteration"])] = timed
        elif kind == "error" and self.error is None and not given_up:
            self.error = RankError(str(event["message"]), t_ns, event.get("iteration"), str(event.get("kind", "")))
        elif kind == "done":
            self.done = True
            self.core = event.get("core")
            self.result = event.get("result") or {}
        if kind == "error" and event.get("core") is not None:
            self.core = event["core"]

    def reclock(self, ours_ns: Callable[[int], int]) -> None:
        """Reads all times again, now that the clock is known better: `ours_ns` turns a time of theirs into ours."""

        def again(t_ns: int) -> int:
            return ours_ns(t_ns + self.offset_ns)

        self.ready_ns = None if self.ready_ns is None else again(self.ready_ns)
        self.begun = {number: again(t_ns) for number, t_ns in self.begun.items()}
        self.finished = {number: replace(timed, t_ns=again(timed.t_ns)) for number, timed in self.finished.items()}
        self.error = None if self.error is None else replace(self.error, t_ns=again(self.error.t_ns))
        self.offset_ns = 0


def parse(line: str) -> dict[str, Any] | None:
    """The event in `line`, or None if it is something else."""
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event and "t_ns" in event else None


class EventLog:
    """The records of all ranks of one trial. Thread-safe: readers feed, the trial waits."""

    def __init__(self, offsets_ns: Sequence[int]) -> None:
        self.ranks = [RankRecord(rank, offset_ns) for rank, offset_ns in enumerate(offsets_ns)]
        self.last_event_s = time.monotonic()
        self._changed = threading.Condition()
        self._closed = self._given_up = False

    def feed(self, rank: int, stream: str, line: str) -> None:
        """One line of one rank; called on reader threads."""
        event = parse(line) if stream == "stdout" else None
        nccl = parse_nccl(line) if event is None else None
        with self._changed:
            self.ranks[rank].log.append(line if stream == "stdout" else f"[{stream}] {line}")
            if nccl is not None:
                self.ranks[rank].nccl.append((time.time_ns(), nccl))
            if event is not None:
                self.ranks[rank].take(event, given_up=self._given_up)
                if event["event"] != "core":  # a NIC that comes and goes is no progress of the rank
                    self.last_event_s = time.monotonic()
                self._changed.notify_all()

    def ended(self, rank: int, returncode: int) -> None:
        """The process of `rank` has ended."""
        with self._changed:
            if not self._closed:
                self.ranks[rank].returncode = returncode
                self._changed.notify_all()

    def close(self, *, given_up: bool = False) -> None:
        """Records no further ends: from now on processes end because they are killed. Nor errors, where the ranks are
        `given_up` while they go on."""
        with self._changed:
            self._closed, self._given_up = True, given_up

    def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until `condition()` holds, looked at after each event; False if it did not in time."""
        with self._changed:
            return self._changed.wait_for(condition, max(timeout_s, 0.0))

    def look(self, read: Callable[[], T]) -> T:
        """What `read` finds in the records while no reader thread changes them."""
        with self._changed:
            return read()

    def idle_s(self) -> float:
        """Seconds since any rank last said something."""
        return time.monotonic() - self.last_event_s

    def all_ready(self) -> bool:
        """Every rank is connected."""
        return all(r.ready_ns is not None for r in self.ranks)

    def all_ended(self) -> bool:
        """Every process has ended."""
        return all(r.returncode is not None for r in self.ranks)

    def any_failed(self) -> bool:
        """A rank reported an error or its process ended early."""
        return any(r.error or (r.returncode is not None and not r.done) for r in self.ranks)
