"""The state that a rank keeps of a peer: the session, the stream that carries it, the streams that may replace it."""

import selectors
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from r2ccl_core.control.reach import ENDED_S, Reach
from r2ccl_core.control.resume import Resume
from r2ccl_core.control.session import Session
from r2ccl_core.control.ways import Way

_INFO = struct.Struct("=24xI28xI")  # struct tcp_info: segments without acknowledgement, ms since one came


@dataclass
class Dial:
    """A stream that is being opened over a way. A member's goes through three records (`resume`)."""

    stream: socket.socket
    deadline_s: float
    connected: bool = False
    received: bytearray = field(default_factory=bytearray)
    challenge: bytes = b""
    nonce: bytes = b""
    asked: Resume | None = None


@dataclass
class Guest:
    """Rank 0: a stream that has not identified itself."""

    stream: socket.socket
    nonce: bytes
    deadline_s: float
    received: bytearray = field(default_factory=bytearray)


@dataclass
class Link:
    """One peer. `port` is where its process listens."""

    rank: int
    port: int
    stream: socket.socket | None
    ways: Sequence[Way]
    reach: Reach
    session: Session = field(default_factory=Session)
    attempt: int = 0
    """Number of the stream; rank 0 accepts only later ones."""
    done: bool = False
    """The peer has left or is gone: its stream is not made again."""
    blocked: bool = False
    """The stream accepts no more data for now."""
    failure: OSError | None = None
    """An error of sending, for the watcher to handle."""
    said_s: float = 0.0
    asked_s: float = -ENDED_S
    """Member: when it asked to continue over another stream."""
    dials: dict[int, Dial] = field(default_factory=dict)

    def flush(self) -> None:
        """Writes as much as the stream accepts."""
        self.blocked = False
        while self.stream is not None and self.failure is None and (parts := self.session.outgoing()):
            try:
                self.session.wrote(self.stream.sendmsg(parts, [], socket.MSG_NOSIGNAL))
            except BlockingIOError:
                self.blocked = True
                return
            except OSError as error:
                self.failure = error

    def look(self, now_s: float) -> None:
        """Tells `reach` what the kernel knows about the stream."""
        if self.stream is not None:
            unacknowledged, age_ms = _INFO.unpack(
                self.stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
            )
            self.reach.seen(now_s, age_ms / 1e3, unacknowledged > 0)

    def way_from(self, address: str) -> int:
        """The number of the way over which a stream came that the peer has opened."""
        return next((number for number, way in enumerate(self.ways) if way.address == address), 0)


Adopt = Callable[[Link, socket.socket, int, int, int], None]
"""Continues over a stream: called with the link, the stream, its way and attempt, and the frames received there."""


def forget(selector: selectors.BaseSelector, stream: socket.socket) -> None:
    """Stops watching a stream, and closes it."""
    with suppress(KeyError, ValueError):
        selector.unregister(stream)
    stream.close()


def prepare(stream: socket.socket, patience_s: float) -> None:
    """Prepares a stream for a session: the kernel probes every second whether the other end's host is there."""
    stream.setblocking(False)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        stream.setsockopt(socket.IPPROTO_TCP, option, 1)
    # When this end gives up is for `Reach` to say.
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(int(patience_s * 2000), 0x7FFFFFFF))


def host_of(address: str) -> str:
    """The other end's `address`, as it would be dialled: IPv4 without the prefix that a socket of IPv6 gives it."""
    return address.removeprefix("::ffff:") if "." in address else address
