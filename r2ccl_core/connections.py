"""The connections of a group, made when a schedule first needs them, by all ranks together."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from r2ccl_core.bootstrap import Bootstrap
from r2ccl_core.errors import PeerLostError, TransportError
from r2ccl_core.lower import Connection
from r2ccl_core.schedule import Schedule

_TIMEOUT_S = 15.0
_LOOK_S = 0.2
_HANDLE = np.dtype([("connection", "<i4", 3), ("handle", "V128")])


class Connections:
    """This rank's ends, by connection. All ranks ask for the same schedules in the same order, so each knows
    which connections exist between any two."""

    def __init__(self, net: Any, bootstrap: Bootstrap) -> None:
        self._net, self._bootstrap = net, bootstrap
        self._made: set[Connection] = set()
        self._senders: dict[Connection, Any] = {}
        self._receivers: dict[Connection, Any] = {}

    def ensure(self, schedule: Schedule) -> None:
        """Makes what `schedule` needs and is not there; free when nothing is missing."""
        missing = [connection for connection in schedule.connections() if connection not in self._made]
        if missing:
            self._make(missing, f"connect {schedule.name}")
            self._made.update(missing)

    def senders(self, connections: Sequence[Connection]) -> list[Any]:
        """Native sending ends."""
        return [self._senders[connection] for connection in connections]

    def receivers(self, connections: Sequence[Connection]) -> list[Any]:
        """Native receiving ends."""
        return [self._receivers[connection] for connection in connections]

    def clear(self) -> None:
        """Lets go of all ends."""
        self._senders.clear()
        self._receivers.clear()

    def _make(self, missing: Sequence[Connection], what: str) -> None:
        rank = self._bootstrap.rank
        # A listener each: a connection that arrives does not say whose it is.
        listeners = {connection: self._net.listen() for connection in missing if connection[1] == rank}
        handles: dict[Connection, bytes] = {}
        for published in self._bootstrap.allgather(_pack(listeners), what):
            handles |= _unpack(published)
        for connection in missing:
            if connection[0] == rank:
                self._senders[connection] = self._net.connect(handles[connection], _TIMEOUT_S)
        for connection, listener in listeners.items():
            self._receivers[connection] = self._accept(listener, connection)
            listener.close()

    def _accept(self, listener: Any, connection: Connection) -> Any:
        """Waits in short turns: the verdict may come meanwhile."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return listener.accept(_LOOK_S)
            except TransportError as error:
                if self._bootstrap.verdict is not None:
                    raise PeerLostError(self._bootstrap.verdict) from error
                if time.monotonic() > deadline_s:
                    text = f"rank {connection[0]} did not connect in {_TIMEOUT_S:g} s"
                    raise TransportError(f"{text}; can its NICs reach this host's?") from error


def _pack(listeners: dict[Connection, Any]) -> bytes:
    rows = [(connection, listener.handle) for connection, listener in listeners.items()]
    return np.array(rows, dtype=_HANDLE).tobytes()


def _unpack(published: bytes) -> dict[Connection, bytes]:
    handles: dict[Connection, bytes] = {}
    for connection, handle in np.frombuffer(published, dtype=_HANDLE):
        source, destination, lane = connection.tolist()
        handles[(source, destination, lane)] = handle.tobytes()
    return handles
