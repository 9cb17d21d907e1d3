"""The transports of a rank: one over its NICs, and one over loopback to ranks on the same host.

A packet from a NIC to an address of its own host never leaves the host, and a socket bound to the NIC does not receive
it. So ranks on one host need the second transport.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from r2ccl_core import native
from r2ccl_core.errors import TransportError
from r2ccl_core.host.layout import Layout
from r2ccl_core.host.nics import LOOPBACK, Nic
from r2ccl_core.planning.lower import Connection


class Nets:
    """Open from the start. Call `place` once it is known which rank is on which host. Thread-safe."""

    def __init__(self, mode: int, nics: Sequence[Nic], options: Mapping[str, str | int]) -> None:
        self._native = native.load()
        self._mode, self._options = mode, {name: str(value) for name, value in options.items()}
        self._outer = self._native.open_net(mode, list(nics), self._options)
        self._inner: Any = None
        self._layout: Layout | None = None
        self._lock = threading.Lock()  # guards what follows
        self._closed = False

    def place(self, rank: int, layout: Layout) -> None:
        """Opens what `rank` needs to reach the others on its host."""
        self._layout = layout
        if not layout.has_company(rank):
            return
        # A process has one status file, about its NICs.
        options = {**self._options, "R2CC_STATUS_DIR": "", "R2CC_TRANSPORT": "tcp"}
        inner = self._native.open_net(self._mode, [LOOPBACK], options, self._outer)
        with self._lock:
            if not self._closed:
                self._inner = inner
                return
        inner.close()
        raise TransportError("the group ended while it began")

    def of(self, connection: Connection) -> Any:
        """The native transport that carries `connection`."""
        source, destination, _ = connection
        together = self._layout is not None and self._layout.together(source, destination)
        return self._inner if together else self._outer

    @property
    def outer(self) -> Any:
        """The transport over the NICs. The other transport also wakes threads that wait in it."""
        return self._outer

    def nics(self) -> list[dict[str, Any]]:
        """The NICs, with bytes and paths."""
        nics: list[dict[str, Any]] = self._outer.nics()
        return nics

    def stats(self) -> dict[str, Any]:
        """The NICs, and the events and chunks of both transports."""
        stats: dict[str, Any] = self._outer.stats()
        if self._inner is not None:
            inner = self._inner.stats()
            stats["events"] = sorted([*stats["events"], *inner["events"]], key=lambda event: event["t_ns"])
            for chunks in ("replayed_chunks", "duplicate_chunks"):
                stats[chunks] += inner[chunks]
        return stats

    def close(self) -> None:
        """Closes every connection. Idempotent."""
        with self._lock:
            self._closed = True
            inner = self._inner
        self._outer.close()
        if inner is not None:
            inner.close()
