"""Single messages between two ranks, over connections that only these two make, when the first message is sent.

Each pair of ranks and tag has one connection in each direction. Messages of one tag stay in order, and no tag waits for
another. The receiving end listens when it first receives, and tells the sending end its address. A message carries the
data type of its elements (`buffers.type_code`).
"""

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from r2ccl_core.control.bootstrap import LONG_S, Bootstrap
from r2ccl_core.errors import MismatchedCallError, TransportError
from r2ccl_core.runtime import buffers
from r2ccl_core.runtime.nets import Nets

_CONNECTING_S = 60.0
_LOOK_S = 0.2
_FOREVER_S = 1e6
_UNSENT = b"messages that wait for a receiver"
"""Under this name a rank tells another how many of its messages have waited for that one for long."""


class Peers:
    """This rank's ends. Thread-safe; messages of one peer and tag in one direction by one thread at a time."""

    def __init__(self, nets: Nets, bootstrap: Bootstrap) -> None:
        self._nets, self._bootstrap = nets, bootstrap
        self._lock = threading.Lock()  # guards the next three
        self._senders: dict[tuple[int, int], Any] = {}
        self._receivers: dict[tuple[int, int], Any] = {}
        self._listeners: dict[tuple[int, int], Any] = {}
        self._told = threading.Lock()  # guards the next, and keeps in order what is told of it
        self._unsent: dict[int, int] = {}

    def send(self, data: np.ndarray, to: int, tag: int) -> Any:
        """Starts to send `data`, which must be contiguous and unchanged until the request has ended."""
        with self._lock:
            sender = self._senders.get((to, tag))
        if sender is None:
            sender = self._connect(to, tag)
        return sender.isend(buffers.as_bytes(data), buffers.type_code(data.dtype))

    def receive(self, into: np.ndarray, source: int, tag: int) -> Any:
        """Starts to receive into `into`."""
        with self._lock:
            receiver = self._receivers.get((source, tag))
        if receiver is None:
            self.listen([source], tag)
            receiver = self._accept(source, tag)
        return receiver.irecv(buffers.as_bytes(into))

    def listen(self, sources: Iterable[int], tag: int) -> None:
        """Tells ranks where to send, so that none of them waits until this one has received from another."""
        for source in sources:
            key = source, tag
            with self._lock:
                if key in self._receivers or key in self._listeners:
                    continue
                listener = self._nets.of((source, self._bootstrap.rank, 0)).listen()
                self._listeners[key] = listener
            self._bootstrap.tell(source, _name(tag), listener.handle)

    def clear(self) -> None:
        """Releases all ends."""
        with self._lock:
            self._senders, self._receivers, self._listeners = {}, {}, {}

    def _connect(self, to: int, tag: int) -> Any:
        """Waits as long as the group exists: the receiver decides when."""
        handle = self._hear(to, tag)
        sender = self._nets.of((self._bootstrap.rank, to, 0)).connect(handle, _CONNECTING_S)
        with self._lock:
            self._senders[to, tag] = sender
        return sender

    def _hear(self, to: int, tag: int) -> bytes:
        """The receiver's address. If that takes long, the receiver is told: it may wait for this rank to receive."""
        try:
            return self._bootstrap.hear(to, _name(tag), LONG_S)
        except TransportError:
            if self._bootstrap.cause is not None:
                raise
        self._count_unsent(to, 1)
        try:
            return self._bootstrap.hear(to, _name(tag), _FOREVER_S)
        finally:
            self._count_unsent(to, -1)

    def _count_unsent(self, to: int, more: int) -> None:
        with self._told:
            self._unsent[to] = count = self._unsent.get(to, 0) + more
            self._bootstrap.tell(to, _UNSENT, b"%d" % count)

    def why_unsent(self, to: int) -> str:
        """Why the first message to that rank may wait for ever, to be added to what is told of it: that one sends to
        this rank, too, and neither receives. Empty if that is not so, or has not lasted for long."""
        if not self._unsent.get(to) or self._bootstrap.last_told(to, _UNSENT) in (b"", b"0"):
            return ""
        return f": rank {to} waits to send to rank {self._bootstrap.rank}, too; call irecv before send"

    def _accept(self, source: int, tag: int) -> Any:
        """Waits as long as the group exists: the sender decides when."""
        key = source, tag
        while True:
            try:
                receiver = self._listeners[key].accept(_LOOK_S)
                break
            except TransportError as error:
                if self._bootstrap.cause is not None:
                    raise self._bootstrap.error() from error
        with self._lock:
            self._receivers[key] = receiver
            self._listeners.pop(key).close()
        return receiver


def finish(request: Any, into: np.ndarray | None = None, whose: str = "") -> None:
    """Waits for the end of a request. Raises `MismatchedCallError` if the message received has another data type or
    size than `into`."""
    size = request.wait(_FOREVER_S)
    if into is None:
        return
    if request.tag != buffers.type_code(into.dtype):
        text = f"the message of {whose} is of {buffers.type_named(request.tag)}, and the array for it of {into.dtype}"
        raise MismatchedCallError(text)
    if size != into.nbytes:
        raise MismatchedCallError(f"the message of {whose} has {size} bytes, and the array for it {into.nbytes}")


def _name(tag: int) -> bytes:
    return b"messages with tag %d" % tag
