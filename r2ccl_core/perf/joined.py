"""Joins the events and final reports of a process's ranks into those of one rank."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from r2ccl_core.perf.events import Events

_SUMMED = ("tx_bytes", "rx_bytes", "paths_up", "paths_down", "paths_held")


class JoinedEvents(Events):
    """The stream of a process that runs `ranks` ranks, which are all at the same iteration: a barrier precedes each.

    An iteration starts with its first rank and ends with its last, so its duration is the time between the two, as
    nccl-tests times the GPUs of a process; its wrong elements are those of all ranks. `ready` and `done` are sent with
    the last rank; everything else (``core``, ``error``) at once.
    """

    def __init__(self, rank: int, ranks: int, enabled: bool) -> None:
        super().__init__(rank, enabled)
        self._ranks = ranks
        self._joining = threading.Lock()  # taken before the writer's
        self._told: dict[str, list[dict[str, Any]]] = {}

    def emit(self, event: str, t_ns: int | None = None, **fields: Any) -> None:
        """One rank's event; the process's own event is sent when it is due."""
        if not self._enabled:  # then the ranks need not be at the same iteration
            return
        if event not in ("ready", "begin", "iteration", "done"):
            super().emit(event, t_ns, **fields)
            return
        with self._joining:
            told = self._told.setdefault(event, [])
            told.append({"t_ns": time.time_ns() if t_ns is None else t_ns, **fields})
            if event == "begin" and len(told) == 1:
                super().emit(event, **told[0])
            if len(told) < self._ranks:
                return
            del self._told[event]
            if event == "iteration":
                super().emit(event, **_iteration(told))
            elif event == "done":
                super().emit(event, core=merged([one["core"] for one in told]))
            elif event == "ready":
                super().emit(event)


def _iteration(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    begin_ns = min(one["t_ns"] for one in told)
    end_ns = max(one["t_ns"] + one["duration_ns"] for one in told)
    checked = [one["wrong"] for one in told if one["wrong"] is not None]
    return {**told[0], "t_ns": begin_ns, "duration_ns": end_ns - begin_ns, "wrong": sum(checked) if checked else None}


def merged(stats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`Communicator.stats()` of the ranks of one process, in the form of a single rank's. Each rank counts only what it
    moved itself, so bytes, paths and chunks are summed, and the events are those of all ranks by time."""
    if len(stats) == 1:
        return dict(stats[0])
    stats = sorted(stats, key=lambda one: int(one["rank"]))
    first = stats[0]
    nics: dict[tuple[str, str], dict[str, Any]] = {}
    for nic in (nic for one in stats for nic in one["nics"]):
        known = nics.setdefault((nic["name"], nic["address"]), {**nic, **dict.fromkeys(_SUMMED, 0)})
        known |= {key: known[key] + nic[key] for key in _SUMMED}
    for nic in nics.values():  # as the core says it of one rank's paths
        none_up = "held" if nic["paths_held"] else "down"
        nic["state"] = "up" if not nic["paths_down"] else "partial" if nic["paths_up"] else none_up
    return {
        **first,
        "ranks": [one["rank"] for one in stats],
        "nics": list(nics.values()),
        "events": sorted((event for one in stats for event in one["events"]), key=lambda event: int(event["t_ns"])),
        **{key: sum(one[key] for one in stats) for key in ("replayed_chunks", "duplicate_chunks")},
    }
