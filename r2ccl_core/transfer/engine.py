"""The Python interface of the transfer engine, which is implemented in C++ (`r2ccl_core/native/transfer/engine.h`)."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np

from r2ccl_core import native
from r2ccl_core.errors import TransportError, UsageError
from r2ccl_core.host import forks
from r2ccl_core.host.nics import Nic, checked_nics, find_nics

Buffer: TypeAlias = Any
"""Anything with the buffer protocol (Python 3.12 has a name for it)."""

_LOOK_S = 0.1  # for Ctrl-C
_QUIET_S = 10.0
_DRAIN_S = 1.0


@dataclass(frozen=True)
class Span:
    """`nbytes` bytes, starting at `offset`, of the memory that `key` identifies, here or at a peer."""

    key: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class RemoteMemory:
    """What another process must know about registered memory to write or read it. Picklable; ``memory[a:b]`` is a
    `Span` of its bytes."""

    key: int
    nbytes: int

    def __getitem__(self, part: slice) -> Span:
        start, stop, step = part.indices(self.nbytes)
        outside = any(place is not None and abs(place) > self.nbytes for place in (part.start, part.stop))
        if step != 1:
            raise UsageError(f"a step of {step}: a span is of adjacent bytes; give one for each block")
        if outside:
            asked = ":".join("" if place is None else str(place) for place in (part.start, part.stop))
            raise UsageError(f"bytes {asked} are not within the registered {self.nbytes}")
        return Span(self.key, start, max(0, stop - start))


class Region:
    """Registered memory of this process. ``region[a:b]`` is a `Span` of its bytes."""

    def __init__(self, engine: "TransferEngine", key: int, nbytes: int) -> None:
        self._engine = engine
        self.remote = RemoteMemory(key, nbytes)
        """For peers."""

    def __getitem__(self, part: slice) -> Span:
        return self.remote[part]

    def close(self, timeout_s: float = _QUIET_S) -> None:
        """Deregisters: no transfer touches the memory after this returns. Transfers that still need it fail, here and
        at peers. A peer that keeps a transfer in progress for longer than `timeout_s` is disconnected."""
        self._engine._native.deregister(self.remote.key, timeout_s)
        self._engine._memory.pop(self.remote.key, None)


class Transfer:
    """A write or read that was started. Any thread."""

    def __init__(self, engine: "TransferEngine", made: Any) -> None:
        self._engine, self._native = engine, made

    @property
    def state(self) -> str:
        """pending, done, cancelled or failed. Once it is not pending, nothing touches its memory. When a write is done,
        every byte is in the peer's memory."""
        return str(self._native.state)

    def cancel(self) -> None:
        """Stops sending. The transfer stays pending until its memory is quiet, and may still end as done."""
        self._engine._native.cancel(self._native)

    def wait(self, timeout_s: float | None = None) -> str:
        """Waits for its state, done or cancelled. Raises the error of a failed transfer: `UsageError` if the peer
        refused it, `PeerLostError` if the peer is gone. Raises `TransportError` if it has not ended after `timeout_s`.
        """
        self._engine._until(lambda: self._native.state != "pending", timeout_s, "the transfer")
        self._native.check()
        return self.state


class Peer:
    """A connection with another engine. Any thread."""

    def __init__(self, engine: "TransferEngine", id_: bytes) -> None:
        self._engine, self._id = engine, id_

    def write(self, spans: Iterable[tuple[Span, Span]], notify: bytes | None = None) -> Transfer:
        """Copies the first of each two spans, which is here, to the second. The peer's `notifications` contain `notify`
        after the last byte."""
        return self._begin(False, spans, notify)

    def read(self, spans: Iterable[tuple[Span, Span]], notify: bytes | None = None) -> Transfer:
        """Copies the second of each two spans to the first, which is here."""
        return self._begin(True, spans, notify)

    def notify(self, text: bytes) -> None:
        """Sends a notification by itself. It may overtake pending transfers."""
        self._engine._native.notify(self._id, text)

    def close(self) -> None:
        """Disconnects; pending transfers fail at both ends."""
        self._engine._native.disconnect(self._id)

    def _begin(self, reads: bool, spans: Iterable[tuple[Span, Span]], notify: bytes | None) -> Transfer:
        rows = []
        for number, (here, there) in enumerate(spans):
            if here.nbytes != there.nbytes:
                raise UsageError(f"pair {number}: {here.nbytes} bytes here, {there.nbytes} at the peer")
            rows.append((here.key, here.offset, there.key, there.offset, here.nbytes))
        table = np.array(rows, dtype=np.uint64).reshape(-1, 5)
        return Transfer(self._engine, self._engine._native.begin(self._id, reads, table, notify))


class TransferEngine:
    """This process's end of transfers, over `nics` (default: those that `find_nics` finds).

    `mode` and `options` are the Communicator's: R2CC_MODE 0 to 2, and R2CC_* parameters by name. Anyone who has
    `address` may connect, and may write and read memory whose `RemoteMemory` was given to them, but no other.
    """

    def __init__(
        self,
        name: str,
        *,
        nics: Sequence[Nic] | None = None,
        mode: int = 2,
        options: Mapping[str, str | int] | None = None,
    ) -> None:
        chosen = list(checked_nics(find_nics(os.environ) if nics is None else nics))
        texts = {key: str(value) for key, value in (options or {}).items()}
        self.name = name
        self._native: Any = native.load().open_transfer_engine(name, mode, chosen, texts)
        self._memory: dict[int, np.ndarray] = {}  # that is registered; goes after the native engine, which may touch it
        forks.not_for_children(self)

    @property
    def address(self) -> bytes:
        """What another engine's `connect` needs; a few hundred bytes."""
        return bytes(self._native.address)

    def register(self, memory: Buffer) -> Region:
        """Registers writeable contiguous memory (an array, a bytearray, an mmap). It must stay in place, and alive,
        until the region or the engine is closed."""
        array = np.frombuffer(memory, dtype=np.uint8) if not isinstance(memory, np.ndarray) else memory
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise UsageError("memory to register is contiguous and writeable")
        flat = array.reshape(-1).view(np.uint8)
        key = self._native.register(flat)
        self._memory[key] = flat
        return Region(self, key, flat.nbytes)

    def connect(self, address: bytes, timeout_s: float = 15.0) -> Peer:
        """Connects to the engine with this `address`; raises `TransportError` if it cannot be reached within
        `timeout_s`."""
        id_ = self._native.connect(address)
        self._until(lambda: self._native.ready(id_), timeout_s, "connecting")
        return Peer(self, id_)

    def notifications(self) -> list[tuple[str, bytes]]:
        """Notifications that arrived since the last call, as (name of the peer, text)."""
        return list(self._native.notifications())

    def wait_for_notification(self, timeout_s: float | None = None) -> list[tuple[str, bytes]]:
        """The same, as soon as there is one. Raises `TransportError` after `timeout_s` without one."""
        found: list[tuple[str, bytes]] = []

        def look() -> bool:
            found.extend(self.notifications())
            return bool(found)

        self._until(look, timeout_s, "waiting for a notification")
        return found

    def stats(self) -> dict[str, Any]:
        """The NICs, their bytes and events, as in `Communicator.stats`."""
        return dict(self._native.net.stats())

    def close(self, timeout_s: float = _DRAIN_S) -> int:
        """Closes every connection; transfers fail, and no memory is touched afterwards. Idempotent.

        First waits, for at most `timeout_s`, until peers have received the messages addressed to them: notifications,
        and that their writes are done. Returns how many such messages living peers have not received.
        """
        missing = int(self._native.close(timeout_s))
        self._memory.clear()
        return missing

    def abandon(self) -> None:
        """In a forked child: the engine belongs to the parent."""
        native.keep_forever(self._native)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _until(self, over: Callable[[], bool], timeout_s: float | None, what: str) -> None:
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            seen = self._native.count()
            if over():
                return
            left_s = _LOOK_S if deadline_s is None else min(_LOOK_S, deadline_s - time.monotonic())
            if left_s <= 0:
                raise TransportError(f"{what} has not ended after {timeout_s:g} s")
            self._native.wait(seen, left_s)
