"""What one rank runs: the schedules selected for a health, their connections, and executors kept for reuse.

Schedules and connections for the next health are prepared in the background while operations run, so the operation that
switches does not wait for them.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from r2ccl_core import native
from r2ccl_core.model.health import Health
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.planning.lower import Connection, connections_of, lower
from r2ccl_core.planning.selection import Cost, Select
from r2ccl_core.runtime.connections import Connections, Ends, Wiring
from r2ccl_core.runtime.nets import Nets

_MOST_EXECUTORS = 64
_MOST_RECENT = 8


class Asked(NamedTuple):
    """The properties of an operation that determine its schedule and executor."""

    collective: str
    nbytes: int  # of a rank's larger array
    root: int
    elements: int  # of that array


@dataclass(frozen=True)
class Ahead:
    """Connections and executors for a health that does not hold yet."""

    wiring: Wiring
    ends: Ends
    executors: dict[tuple[int, int], tuple[Schedule, Any]]


class Programs:
    """One thread runs operations; another may call `missing` and `prepare` at the same time."""

    def __init__(self, rank: int, nets: Nets, connections: Connections, select: Select) -> None:
        self.cost = Cost()
        self._rank, self._nets, self._connections, self._select = rank, nets, connections, select
        self._native = native.load()
        # By identity, which the schedule that is kept with its executor makes safe.
        self._executors: dict[tuple[int, int], tuple[Schedule, Any]] = {}
        self._recent: dict[Asked, None] = {}

    def schedule(self, asked: Asked, health: Health) -> Schedule:
        """The schedule of an operation."""
        return self._select(asked.collective, asked.nbytes, health, self.cost, asked.root)

    def remember(self, asked: Asked) -> None:
        """Records an operation, so that similar ones are prepared for."""
        self._recent.pop(asked, None)
        self._recent[asked] = None  # the last used is the last to go
        if len(self._recent) > _MOST_RECENT:
            del self._recent[next(iter(self._recent))]

    def executor(self, schedule: Schedule, count: int) -> Any:
        """The executor of `schedule` for arrays of `count` elements; if it does not exist, all ranks make it."""
        key = (id(schedule), count)
        if not (kept := self._executors.pop(key, None)):
            self._connections.ensure(schedule)
            kept = schedule, self._build(schedule, count, self._connections.ends)
        self._keep(key, kept)
        return kept[1]

    def missing(self, health: Health) -> list[Connection]:
        """Connections that the latest operations would lack under `health`."""
        schedules = (self.schedule(asked, health) for asked in list(self._recent))
        return list(dict.fromkeys(lack for schedule in schedules for lack in self._connections.missing(schedule)))

    def prepare(self, health: Health, wiring: Wiring, ends: Ends) -> Ahead:
        """What the latest operations need under `health`, given the connections made for it."""
        made, executors = frozenset(wiring.connections), {}
        for asked in reversed(list(self._recent)):
            schedule = self.schedule(asked, health)
            # Which connections exist is the same on all ranks; what this one ran last need not be.
            if made.issuperset(self._connections.missing(schedule)):
                # After the look at what is missing: an operation may be adding to both.
                every = self._connections.ends.and_those(ends)
                executors[id(schedule), asked.elements] = schedule, self._build(schedule, asked.elements, every)
        return Ahead(wiring, ends, executors)

    def adopt(self, ahead: Ahead) -> None:
        """Takes over what all ranks have prepared, except connections that exist by now."""
        unused = set(ahead.wiring.connections).difference(self._connections.adopt(ahead.wiring, ahead.ends))
        for key, kept in ahead.executors.items():
            if key not in self._executors and unused.isdisjoint(kept[0].connections()):
                self._keep(key, kept)

    def clear(self) -> None:
        """Releases executors and connections."""
        self._executors.clear()
        self._connections.clear()

    def _keep(self, key: tuple[int, int], kept: tuple[Schedule, Any]) -> None:
        self._executors[key] = kept  # the last used is the last to go
        if len(self._executors) > _MOST_EXECUTORS:
            del self._executors[next(iter(self._executors))]

    def _build(self, schedule: Schedule, count: int, ends: Ends) -> Any:
        sends, receives = connections_of(schedule, self._rank)
        lanes = lower(
            schedule,
            self._rank,
            count,
            {connection: index for index, connection in enumerate(sends)},
            {connection: index for index, connection in enumerate(receives)},
        )
        senders = [ends.senders[connection] for connection in sends]
        receivers = [ends.receivers[connection] for connection in receives]
        destinations = [destination for _, destination, _ in sends]
        sources = [source for source, _, _ in receives]
        abreast = list(schedule.abreast)
        shares = [schedule.nic_shares.get((self._rank, destination), ()) for destination in destinations]
        return self._native.Executor(
            self._nets.outer, lanes, abreast, senders, receivers, destinations, sources, shares if any(shares) else []
        )
