"""How ranks find each other: a star of TCP connections to rank 0 on the management network.

It carries what the transport cannot carry yet (connection handles) and small agreements (barriers); no data.
A stream begins with a greeting of fixed size: magic, version, rank, number of ranks, digest of the shared
secret. After that, messages are a 32-bit big-endian length and that many bytes.
"""

import hashlib
import os
import socket
import struct
import time
from types import TracebackType
from typing import Self

from r2ccl_core.errors import PeerLostError, TransportError, UsageError

_MAGIC = b"R2BS"
_VERSION = 1
_GREETING = struct.Struct("!4sHHII32s")
_LENGTH = struct.Struct("!I")
_MAX_MESSAGE_BYTES = 64 << 20
_GREETING_TIMEOUT_S = 2.0


def parse_root(text: str) -> tuple[str, int]:
    """``host:port`` of rank 0."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"R2CC_ROOT={text!r}: write it as host:port, such as 10.0.0.1:7000")
    return host.strip("[]"), int(port)


class Bootstrap:
    """One rank's place in the star. Not thread-safe; every rank calls the same operations in the same order."""

    def __init__(
        self, rank: int, size: int, root: str, *, timeout_s: float = 30.0, secret: str | None = None
    ) -> None:
        """Connects all ranks; raises `TransportError` when some are missing after `timeout_s`.

        `secret` (default: R2CC_SECRET) keeps strangers out; all ranks must have the same.
        """
        if not 0 <= rank < size:
            raise UsageError(f"rank {rank} of {size}: ranks go from 0 to {size - 1}")
        self.rank, self.size = rank, size
        self._timeout_s = timeout_s
        self._digest = hashlib.sha256((secret or os.environ.get("R2CC_SECRET", "")).encode()).digest()
        self._peers: dict[int, socket.socket] = {}
        deadline_s = time.monotonic() + timeout_s
        if size == 1:
            return
        host, port = parse_root(root)
        if rank == 0:
            self._welcome(host, port, deadline_s)
        else:
            self._peers[0] = self._greet(host, port, deadline_s)
        for peer in self._peers.values():
            peer.settimeout(timeout_s)

    def allgather(self, data: bytes) -> list[bytes]:
        """What every rank gave, by rank."""
        if self.size == 1:
            return [data]
        if self.rank != 0:
            self._send(0, data)
            return _unpack(self._receive(0))
        gathered = [data] + [self._receive(rank) for rank in range(1, self.size)]
        packed = b"".join(_LENGTH.pack(len(part)) + part for part in gathered)
        for rank in range(1, self.size):
            self._send(rank, packed)
        return gathered

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self.allgather(b"")

    def close(self) -> None:
        """Leaves the star. Idempotent."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _welcome(self, host: str, port: int, deadline_s: float) -> None:
        try:
            listener = socket.create_server((host, port), backlog=self.size)
        except OSError as error:
            raise TransportError(f"rank 0 cannot listen on {host}:{port}: {error.strerror}") from error
        with listener:
            while len(self._peers) < self.size - 1:
                listener.settimeout(max(deadline_s - time.monotonic(), 0.001))
                try:
                    guest, _ = listener.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, self.size)) - set(self._peers))
                    raise TransportError(
                        f"ranks {missing} did not reach rank 0 at {host}:{port} in {self._timeout_s:g} s"
                    ) from None
                rank = self._admit(guest)
                if rank is None:
                    guest.close()
                else:
                    self._peers[rank] = guest

    def _admit(self, guest: socket.socket) -> int | None:
        """The guest's rank, or None for a stranger."""
        guest.settimeout(_GREETING_TIMEOUT_S)
        try:
            guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            greeting = _read(guest, _GREETING.size)
            magic, version, _, rank, size, digest = _GREETING.unpack(greeting)
            known = (magic, version, size, digest) == (_MAGIC, _VERSION, self.size, self._digest)
            if not known or not 0 < rank < self.size or rank in self._peers:
                return None
            guest.sendall(self._greeting())
        except (OSError, EOFError):
            return None
        return int(rank)

    def _greet(self, host: str, port: int, deadline_s: float) -> socket.socket:
        reason = "no answer"
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                peer = socket.create_connection((host, port), timeout=min(left_s, _GREETING_TIMEOUT_S))
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.settimeout(max(deadline_s - time.monotonic(), 0.001))
                peer.sendall(self._greeting())
                answer = _GREETING.unpack(_read(peer, _GREETING.size))
                if answer[0] == _MAGIC and answer[3] == 0:
                    return peer
                reason = "something else listens there"
            except EOFError:
                reason = "rank 0 refused this rank (another release, number of ranks, R2CC_SECRET, or a rank twice)"
            except OSError as error:
                reason = error.strerror or str(error)
            time.sleep(0.02)
        raise TransportError(f"rank {self.rank} cannot reach rank 0 at {host}:{port}: {reason}")

    def _greeting(self) -> bytes:
        return _GREETING.pack(_MAGIC, _VERSION, 0, self.rank, self.size, self._digest)

    def _send(self, rank: int, data: bytes) -> None:
        try:
            self._peers[rank].sendall(_LENGTH.pack(len(data)) + data)
        except (OSError, KeyError) as error:
            raise PeerLostError(f"rank {rank} is gone: {error}") from error

    def _receive(self, rank: int) -> bytes:
        try:
            (length,) = _LENGTH.unpack(_read(self._peers[rank], _LENGTH.size))
            if length > _MAX_MESSAGE_BYTES:
                raise TransportError(f"rank {rank} announced a message of {length} bytes")
            return _read(self._peers[rank], length)
        except EOFError:
            raise PeerLostError(f"rank {rank} has ended") from None
        except (OSError, KeyError) as error:
            raise PeerLostError(f"rank {rank} is gone: {error}") from error


def _read(peer: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = peer.recv(length - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def _unpack(packed: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(packed):
        (length,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size
        parts.append(packed[at : at + length])
        at += length
    return parts
