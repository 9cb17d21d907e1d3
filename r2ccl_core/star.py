"""Frames on the streams between rank 0 and the others: one thread that reads them all, one lock to send.

A frame is kind, number, length, body; what it means is the caller's business. The watcher thread hands each frame
to `on_frame`, and each stream that ends to `on_lost`, so that news is heard within milliseconds, whatever the
rank is doing.
"""

import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping

_FRAME = struct.Struct("!BIQ")
_MAX_BODY_BYTES = 256 << 20
_READ_BYTES = 256 << 10
_SEND_TIMEOUT_S = 5.0

OnFrame = Callable[[int, int, int, bytes], None]
"""Called with rank, kind, number, body."""
OnLost = Callable[[int, str], None]
"""Called with rank and reason, once per stream or more."""


class Star:
    """Streams by rank. Starts silent: call `start` when frames may come. Sending is thread-safe."""

    def __init__(self, streams: Mapping[int, socket.socket], on_frame: OnFrame, on_lost: OnLost) -> None:
        self._links = {rank: _Link(stream) for rank, stream in streams.items()}
        self._on_frame, self._on_lost = on_frame, on_lost
        self._sending = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._watcher = threading.Thread(target=self._watch, name="r2ccl-bootstrap", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._watcher.start()

    def send(self, rank: int, kind: int, number: int, body: bytes) -> None:
        """Sends one frame to `rank`; a stream that takes nothing is reported lost."""
        try:
            with self._sending:
                self._links[rank].stream.sendall(_FRAME.pack(kind, number, len(body)) + body)
        except OSError as error:
            self._on_lost(rank, error.strerror or str(error))

    def send_all(self, kind: int, number: int, body: bytes) -> None:
        """Sends one frame over every stream."""
        for rank in self._links:
            self.send(rank, kind, number, body)

    def close(self) -> None:
        """Stops reading and closes the streams; what was sent still arrives."""
        self._wake.shutdown(socket.SHUT_RDWR)  # whoever may hold copies of it
        self._wake.close()
        if threading.current_thread() is not self._watcher:
            self._watcher.join()
        for link in self._links.values():
            link.stream.close()

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's streams."""
        for stream in (self._wake, self._woken, *(link.stream for link in self._links.values())):
            stream.close()

    def _watch(self) -> None:
        with self._woken, selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for rank, link in self._links.items():
                selector.register(link.stream, selectors.EVENT_READ, rank)
            while True:
                ranks = [key.data for key, _ in selector.select()]
                if None in ranks:
                    return
                for rank in ranks:
                    if not self._hear(rank):
                        selector.unregister(self._links[rank].stream)

    def _hear(self, rank: int) -> bool:
        """Whether there may be more to hear."""
        try:
            for frame in self._links[rank].read():
                self._on_frame(rank, *frame)
        except EOFError as error:
            self._on_lost(rank, str(error))
        except OSError as error:
            self._on_lost(rank, error.strerror or str(error))
        else:
            return True
        return False


class _Link:
    """One stream and the beginning of a frame that has not wholly come."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self._buffer = bytearray()
        stream.settimeout(_SEND_TIMEOUT_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that vanishes without a word is noticed in about four seconds.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
            stream.setsockopt(socket.IPPROTO_TCP, option, value)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 4000)

    def read(self) -> Iterator[tuple[int, int, bytes]]:
        """The frames that are complete with what has just come; `EOFError` at the end or on nonsense."""
        data = self.stream.recv(_READ_BYTES)
        if not data:
            raise EOFError("its stream ended")
        self._buffer += data
        while len(self._buffer) >= _FRAME.size:
            kind, number, length = _FRAME.unpack_from(self._buffer)
            if length > _MAX_BODY_BYTES:
                raise EOFError(f"it announced a frame of {length} bytes")
            end = _FRAME.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_FRAME.size : end])
            del self._buffer[:end]
            yield kind, number, body
