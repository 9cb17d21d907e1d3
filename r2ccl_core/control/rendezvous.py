"""How ranks find each other: every rank opens a TCP stream to rank 0 and proves that it belongs to the group.

Rank 0 listens on the management network. A stream opens with three records of fixed size:

    rank 0    CHALLENGE  magic, version, nonce
    member    GREETING   magic, version, rank, number of ranks, nonce, proof, its port
    rank 0    ANSWER     magic, version, proof, why not (empty: welcome), its port, the group's ticket

A proof is a digest of both nonces under the shared secret. Neither side can take a stranger for a rank, and a recorded
proof is worthless. Without a secret the proof is empty. A connection that sends anything else, or nothing, is closed
and does not delay the others. Ports and ticket are for later streams (`resume.py`).

When as many processes were refused as ranks are missing, no other process can be expected. After a short wait, in which
the right rank may still take a stranger's place, the rendezvous fails on all ranks.
"""

import errno
import os
import re
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from r2ccl_core.control.links import host_of
from r2ccl_core.control.proof import PROOF_BYTES, equal, prove
from r2ccl_core.control.resume import TICKET_BYTES
from r2ccl_core.errors import TransportError, UsageError

MOST_RANKS = 1 << 16
"""More ranks are a typing error. The limit also bounds the work that is done for each rank."""

_MAGIC = b"R2BS"
_VERSION = 3
_CHALLENGE = struct.Struct("!4sH16s")
_GREETING = struct.Struct("!4sHII16s32sH")
_ANSWER = struct.Struct("!4sH32s120sH16s")
_OPENING = struct.Struct("!4sH")
_GUEST_PATIENCE_S = 2.0
_SPARE_GUESTS = 256
_PORT_PATIENCE_S = 5.0
_REFUSED_S = 2.0
_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOW_PORT = 10_000
_TRIES = 100
_OTHER_RELEASE = "it runs another release; install the same on every host"
_NO_RANK = -1
_OTHER_SECRET = "its R2CC_SECRET differs"
_MOST_TOLD = 4
_MOST_NAMED = 16


@dataclass(frozen=True)
class Place:
    """Where and as whom to meet: the address of rank 0, this rank, the number of ranks, the shared secret."""

    host: str
    port: int
    rank: int
    size: int
    secret: str = ""
    own_port: int = 0
    """Where this rank listens after the rendezvous."""

    def __post_init__(self) -> None:
        check_rank(self.rank, self.size)

    def __str__(self) -> str:
        return f"rank 0 at {self.host}:{self.port}"


class Met(NamedTuple):
    """A stream to a peer, the peer's address, and the port where its process listens from now on. The stream may have
    broken since; the address was asked for before it could."""

    stream: socket.socket
    host: str
    port: int


class Meeting(NamedTuple):
    """What rank 0 has after the rendezvous: the others by rank, and why it is incomplete (empty: it is complete)."""

    members: dict[int, Met]
    failure: str


def check_rank(rank: int, size: int) -> None:
    """Raises `UsageError` unless a group of `size` is possible and has a `rank`."""
    if not 0 < size <= MOST_RANKS:
        raise UsageError(f"size {size} (R2CC_SIZE): give 1 to {MOST_RANKS} ranks")
    if not 0 <= rank < size:
        raise UsageError(f"rank {rank} (R2CC_RANK): ranks go from 0 to {size - 1}, as size {size} (R2CC_SIZE) says")


def parse_root(text: str) -> tuple[str, int]:
    """``host:port`` of rank 0."""
    host, _, port = text.rpartition(":")
    if not host or re.fullmatch("[0-9]{1,5}", port) is None or not 0 < int(port) < 65536:
        raise UsageError(f"R2CC_ROOT={text!r}: write it as host:port, such as 10.0.0.1:7000")
    return host.strip("[]"), int(port)


def free_root(host: str = "127.0.0.1") -> str:
    """An address at which ranks can meet on `host`, an address of this machine (loopback: ranks of this machine alone).
    Its port is free now, and outside the range from which the kernel assigns ports, so no other socket gets it before
    rank 0 does."""
    family, shown = (socket.AF_INET6, f"[{host}]") if ":" in host else (socket.AF_INET, host)
    count = max(1, int(_HANDED_OUT.read_text().split()[0]) - _LOW_PORT)
    for port in (*(_LOW_PORT + int.from_bytes(os.urandom(4)) % count for _ in range(_TRIES)), 0):
        with suppress(OSError), socket.create_server((host, port), family=family) as probe:
            return f"{shown}:{probe.getsockname()[1]}"
    raise TransportError(f"no port of {host} is free")


def address_towards(host: str, port: int) -> str:
    """This machine's own address on the route to `host`; no packet is sent. Raises `TransportError`."""
    try:
        family, _, _, _, there = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(there)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise TransportError(f"there is no way to {host}: {error.strerror}") from None


def welcome(place: Place, timeout_s: float, ticket: bytes = bytes(TICKET_BYTES)) -> Meeting:
    """Rank 0: the streams of all other ranks. An incomplete meeting says which ranks are missing, and whom it refused
    and why; the ranks that did arrive can be told."""
    deadline_s = time.monotonic() + timeout_s
    with _listen(place, min(timeout_s, _PORT_PATIENCE_S)) as listener, selectors.DefaultSelector() as selector:
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        reception = _Reception(place, ticket, selector)
        try:
            while reception.missing():
                reception.serve(listener)
                now_s = time.monotonic()
                if now_s > deadline_s:
                    return Meeting(reception.members, reception.failure(f" in {timeout_s:g} s"))
                if reception.is_hopeless(now_s):
                    return Meeting(reception.members, reception.failure(""))
        except BaseException:
            for member in reception.members.values():
                member.stream.close()
            raise
        finally:
            reception.close_guests()
    return Meeting(reception.members, "")


def greet(place: Place, timeout_s: float) -> tuple[Met, bytes]:
    """Another rank: its stream to rank 0, which may start later than this rank, and the group's ticket.

    Raises `TransportError` if rank 0 refuses this rank or does not answer in time.
    """
    deadline_s = time.monotonic() + timeout_s
    reason, pause_s = "no answer", 0.01
    while (left_s := deadline_s - time.monotonic()) > 0:
        stream = None
        try:
            stream = socket.create_connection((place.host, place.port), timeout=min(left_s, _GUEST_PATIENCE_S))
            return _introduce(stream, place)
        except EOFError:
            reason = "it hung up"
        except OSError as error:
            reason = error.strerror or str(error)
        except BaseException:
            if stream is not None:
                stream.close()
            raise
        if stream is not None:
            stream.close()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.1)
    raise TransportError(f"rank {place.rank} cannot reach {place} in {timeout_s:g} s: {reason}")


def _listen(place: Place, patience_s: float) -> socket.socket:
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            family = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((place.host, place.port), family=family, backlog=place.size + _SPARE_GUESTS)
        except OSError as error:
            # A port in use may be that of a group that is just ending.
            if error.errno == errno.EADDRINUSE and time.monotonic() < deadline_s:
                time.sleep(0.05)
                continue
            raise UsageError(
                f"rank 0 cannot listen at R2CC_ROOT={place.host}:{place.port} ({error.strerror}); "
                "give an address of its host and a free port"
            ) from error


def _introduce(stream: socket.socket, place: Place) -> tuple[Met, bytes]:
    """The member's half of the handshake; raises `OSError` or `EOFError` if a later attempt may succeed."""
    peer = stream.getpeername()
    if stream.getsockname() == peer:
        # With nobody listening, TCP can connect a port of the ephemeral range to itself.
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
    magic, version, theirs = _CHALLENGE.unpack(_read(stream, _CHALLENGE.size))
    if magic != _MAGIC:
        raise ConnectionError(errno.EPROTO, "something else listens there")
    if version != _VERSION:
        raise TransportError(f"{place} runs another release than rank {place.rank}; install the same on every host")
    own = os.urandom(16)
    proof = _proof(place.secret, b"member", theirs, own, place.rank, place.size)
    stream.sendall(_GREETING.pack(_MAGIC, _VERSION, place.rank, place.size, own, proof, place.own_port))
    magic, version, proof, text, port, ticket = _ANSWER.unpack(_read(stream, _ANSWER.size))
    if refusal := text.rstrip(b"\0").decode("utf-8", "replace"):
        raise TransportError(f"{place} refuses rank {place.rank}: {refusal}")
    expected = _proof(place.secret, b"root", theirs, own, 0, place.size)
    if (magic, version) != (_MAGIC, _VERSION) or not equal(proof, expected):
        raise TransportError(f"{place} does not know R2CC_SECRET; set the same on every rank")
    return Met(stream, host_of(peer[0]), port), ticket


@dataclass
class _Guest:
    """A stream that has not identified itself."""

    stream: socket.socket
    host: str
    nonce: bytes
    deadline_s: float
    greeting: bytearray = field(default_factory=bytearray)


@dataclass
class _Reception:
    """Rank 0 while ranks arrive: guests become members or are dropped, and no single guest delays the others."""

    place: Place
    ticket: bytes
    selector: selectors.BaseSelector
    members: dict[int, Met] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    """Who was refused and why, in order, each once; beyond `_MOST_TOLD` only that there are more."""
    turned_away: dict[tuple[int, str], float] = field(default_factory=dict)
    """Ranks that were refused, with their hosts, and when: each is probably one of the missing ranks."""

    def missing(self) -> set[int]:
        """The ranks that have not arrived."""
        return set(range(1, self.place.size)) - set(self.members)

    def is_hopeless(self, now_s: float) -> bool:
        """Whether so many were refused that no other can be expected, and none took their place since."""
        missing, refused = len(self.missing()), self.turned_away.values()
        return 0 < missing <= len(refused) and now_s - max(refused) > _REFUSED_S

    def failure(self, when: str) -> str:
        """One line that says which ranks are missing, and which connections were refused and why."""
        line = f"{_ranks(sorted(self.missing()))} did not reach {self.place}{when}"
        if not self.refused:
            return line
        more = " and more" if len(self.refused) > _MOST_TOLD else ""
        return f"{line}; refused: {', '.join([*self.refused][:_MOST_TOLD])}{more}"

    def serve(self, listener: socket.socket) -> None:
        """Handles whatever arrives within the next moment."""
        for key, _ in self.selector.select(0.05):
            if key.data is None:
                self._admit(listener)
            else:
                self._hear(key.data)
        now_s = time.monotonic()
        for guest in [guest for guest in self._guests() if now_s > guest.deadline_s]:
            self._drop(guest)

    def close_guests(self) -> None:
        """Closes the streams that never became a member's."""
        for guest in list(self._guests()):
            self._drop(guest)

    def _guests(self) -> Iterator[_Guest]:
        return (key.data for key in self.selector.get_map().values() if key.data is not None)

    def _admit(self, listener: socket.socket) -> None:
        try:
            stream, address = listener.accept()
        except OSError:
            return
        guest = _Guest(stream, host_of(address[0]), os.urandom(16), time.monotonic() + _GUEST_PATIENCE_S)
        if len(self.selector.get_map()) > self.place.size + _SPARE_GUESTS:
            stream.close()
            return
        stream.setblocking(False)
        self.selector.register(stream, selectors.EVENT_READ, guest)
        self._say(guest, _CHALLENGE.pack(_MAGIC, _VERSION, guest.nonce))

    def _hear(self, guest: _Guest) -> None:
        try:
            data = guest.stream.recv(_GREETING.size - len(guest.greeting))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        guest.greeting += data
        if not data or not _MAGIC.startswith(guest.greeting[: len(_MAGIC)]):
            self._drop(guest)
        elif len(guest.greeting) >= _OPENING.size and _OPENING.unpack_from(guest.greeting)[1] != _VERSION:
            # What another release means by the rest is not known.
            self._refuse(guest, _NO_RANK, _OTHER_RELEASE)
        elif len(guest.greeting) == _GREETING.size:
            self._decide(guest)

    def _decide(self, guest: _Guest) -> None:
        _, _, rank, size, nonce, proof, port = _GREETING.unpack(guest.greeting)
        answer = _proof(self.place.secret, b"root", guest.nonce, nonce, 0, self.place.size)
        # By its own number of ranks, or a wrong one would pass for a wrong secret.
        expected = _proof(self.place.secret, b"member", guest.nonce, nonce, rank, size)
        if refusal := self._refusal(rank, size, proof, expected):
            self._refuse(guest, rank, refusal)
            return
        self._say(guest, _ANSWER.pack(_MAGIC, _VERSION, answer, b"", self.place.own_port, self.ticket))
        if guest.stream.fileno() >= 0:
            self.selector.unregister(guest.stream)
            self.members[rank] = Met(guest.stream, guest.host, port)
            self.turned_away = {one: when for one, when in self.turned_away.items() if one[0] != rank}

    def _refuse(self, guest: _Guest, rank: int, refusal: str) -> None:
        # Somebody who does not know the secret learns nothing that depends on it.
        self._say(guest, _ANSWER.pack(_MAGIC, _VERSION, bytes(PROOF_BYTES), refusal.encode(), 0, bytes(TICKET_BYTES)))
        # A stranger that knows no secret stands for nobody but the rank that it says it is.
        likely = refusal != _OTHER_SECRET or rank in self.missing()
        if likely and len(self.turned_away) < self.place.size + _SPARE_GUESTS:
            self.turned_away[rank, guest.host] = time.monotonic()
        if len(self.refused) <= _MOST_TOLD:
            who = f"rank {rank} at {guest.host}" if rank != _NO_RANK else guest.host
            self.refused[f"{who} ({refusal})"] = None
        self._drop(guest)

    def _refusal(self, rank: int, size: int, proof: bytes, expected: bytes) -> str:
        if not equal(proof, expected):
            return _OTHER_SECRET
        if size != self.place.size:
            return f"it counts {size} ranks, rank 0 counts {self.place.size}; check R2CC_SIZE"
        if not 0 < rank < size:
            return "there is no such rank; check R2CC_RANK"
        return "this rank has come already; check R2CC_RANK" if rank in self.members else ""

    def _say(self, guest: _Guest, record: bytes) -> None:
        """Sends a record. It fits into an empty socket buffer, or the guest is not worth waiting for."""
        try:
            if guest.stream.send(record) == len(record):
                return
        except OSError:
            pass
        self._drop(guest)

    def _drop(self, guest: _Guest) -> None:
        if guest.stream.fileno() >= 0:
            self.selector.unregister(guest.stream)
            guest.stream.close()


def _ranks(numbers: list[int]) -> str:
    """A list of ranks for a message, kept to one line."""
    more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
    return f"ranks {numbers[:_MOST_NAMED]}{more}"


def _proof(secret: str, role: bytes, root_nonce: bytes, member_nonce: bytes, rank: int, size: int) -> bytes:
    return prove(secret, role, root_nonce, member_nonce, struct.pack("!II", rank, size))


def _read(stream: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = stream.recv(length - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
