"""The connections of a group: all ranks make them together, when a schedule first needs them or in advance."""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from r2ccl_core.control.bootstrap import Bootstrap
from r2ccl_core.errors import MismatchedCallError, TransportError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.planning.lower import Connection
from r2ccl_core.runtime.nets import Nets

_TIMEOUT_S = 15.0
_LOOK_S = 0.2
_AT_ONCE = 16
_HANDLE = np.dtype([("connection", "<i4", 3), ("handle", "V128")])


@dataclass
class Ends:
    """This rank's native ends of some connections."""

    senders: dict[Connection, Any] = field(default_factory=dict)
    receivers: dict[Connection, Any] = field(default_factory=dict)

    def take(self, other: "Ends", connections: Iterable[Connection]) -> None:
        """The ends of `connections` that `other` has."""
        for connection in connections:
            if connection in other.senders:
                self.senders[connection] = other.senders[connection]
            if connection in other.receivers:
                self.receivers[connection] = other.receivers[connection]

    def and_those(self, other: "Ends") -> "Ends":
        """These ends, and the other's where this has none."""
        return Ends(other.senders | self.senders, other.receivers | self.receivers)


class Wiring:
    """Makes connections in two steps, between which the ranks exchange their handles. Any thread."""

    def __init__(self, nets: Nets, bootstrap: Bootstrap, connections: Sequence[Connection]) -> None:
        """Starts to listen for those of `connections` that end at this rank."""
        self._nets, self._bootstrap = nets, bootstrap
        self.connections = tuple(connections)
        # A listener each: a connection that arrives does not say whose it is.
        mine = (connection for connection in connections if connection[1] == bootstrap.rank)
        self._listeners = {connection: nets.of(connection).listen() for connection in mine}

    @property
    def handles(self) -> dict[Connection, bytes]:
        """What the senders of the connections that end here must know."""
        return {connection: listener.handle for connection, listener in self._listeners.items()}

    def finish(self, handles: Mapping[Connection, bytes]) -> Ends:
        """Connects all connections that begin here, at once, and accepts those that end here."""
        ends = Ends()
        mine = [connection for connection in self.connections if connection[0] == self._bootstrap.rank]
        if unasked := [connection for connection in mine if connection not in handles]:
            text = f"rank {unasked[0][1]} does not listen for what this rank is to send"
            raise MismatchedCallError(f"{text}: the ranks run different schedules")
        if mine:
            with ThreadPoolExecutor(min(len(mine), _AT_ONCE), "r2ccl-connect") as pool:
                made = pool.map(lambda one: self._connect(one, handles[one]), mine)
                ends.senders.update(zip(mine, made, strict=True))
        for connection, listener in self._listeners.items():
            ends.receivers[connection] = self._accept(listener, connection)
        self.close()
        return ends

    def close(self) -> None:
        """Stops listening. Idempotent."""
        for listener in self._listeners.values():
            with suppress(TransportError):
                listener.close()
        self._listeners = {}

    def _connect(self, connection: Connection, handle: bytes) -> Any:
        try:
            return self._nets.of(connection).connect(handle, _TIMEOUT_S)
        except TransportError as error:
            raise type(error)(f"the connection with rank {connection[1]}: {error}") from error

    def _accept(self, listener: Any, connection: Connection) -> Any:
        """Waits in short intervals, because the group may end meanwhile."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return listener.accept(_LOOK_S)
            except TransportError as error:
                if self._bootstrap.cause is not None:
                    raise self._bootstrap.error() from error
                if time.monotonic() > deadline_s:
                    text = f"rank {connection[0]} did not connect in {_TIMEOUT_S:g} s"
                    raise TransportError(f"{text}; can its NICs reach this host's?") from error


class Connections:
    """This rank's ends, by connection. All ranks ask for the same schedules in the same order, so each knows which
    connections exist between any two. One thread; `missing` and `ends` from any, and every connection that is not
    missing has its ends."""

    def __init__(self, nets: Nets, bootstrap: Bootstrap) -> None:
        self._nets, self._bootstrap = nets, bootstrap
        self._made: frozenset[Connection] = frozenset()
        self._ends = Ends()

    def missing(self, schedule: Schedule) -> list[Connection]:
        """Connections that `schedule` needs and that do not exist, in the schedule's order."""
        made = self._made
        return [connection for connection in schedule.connections() if connection not in made]

    def ensure(self, schedule: Schedule) -> None:
        """Makes the missing connections of `schedule`; free if nothing is missing."""
        if missing := self.missing(schedule):
            self._make(missing, f"connect {schedule.name}")

    def adopt(self, wiring: Wiring, ends: Ends) -> list[Connection]:
        """Takes over connections that all ranks have made, and returns which: existing ones stay."""
        new = [connection for connection in wiring.connections if connection not in self._made]
        self._ends.take(ends, new)
        self._made |= set(new)
        return new

    @property
    def ends(self) -> Ends:
        """This rank's ends of all connections."""
        return self._ends

    def clear(self) -> None:
        """Releases all ends."""
        self._made = frozenset()
        self._ends = Ends()

    def _make(self, missing: Sequence[Connection], what: str) -> None:
        wiring = Wiring(self._nets, self._bootstrap, missing)
        handles: dict[Connection, bytes] = {}
        for published in self._bootstrap.exchange(_pack(wiring.handles), what):
            handles |= _unpack(published)
        self.adopt(wiring, wiring.finish(handles))


def _pack(handles: Mapping[Connection, bytes]) -> bytes:
    return np.array(list(handles.items()), dtype=_HANDLE).tobytes()


def _unpack(published: bytes) -> dict[Connection, bytes]:
    handles: dict[Connection, bytes] = {}
    for connection, handle in np.frombuffer(published, dtype=_HANDLE):
        source, destination, lane = connection.tolist()
        handles[(source, destination, lane)] = handle.tobytes()
    return handles
