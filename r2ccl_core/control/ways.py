"""The ways from one rank to another (the management network, then every pair of data NICs), and how to dial one."""

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from r2ccl_core.host.nics import Nic

_BACKLOG = 1024


@dataclass(frozen=True)
class Way:
    """From `nic`, an interface's name and address (None: as the kernel routes), to `address`."""

    address: str
    nic: Nic | None = None

    def __str__(self) -> str:
        return f"{self.nic[0]} to {self.address}" if self.nic else f"the management network to {self.address}"


def ways_to(management: str, own: Sequence[Nic], theirs: Sequence[Nic], same_host: bool) -> list[Way]:
    """The ways to the rank that is at `management`, pairs of one rail first. On the same host loopback replaces the
    NICs, since what a NIC sends to its own host never leaves it."""
    if same_host:
        return [Way(management), Way("127.0.0.1")]
    # An address that this host has, too, leads nowhere else (each host's own bridge, say).
    mine = {address for _, address in own}
    there = [address for _, address in theirs if address not in mine]
    pairs = (Way(there[(i + turn) % len(there)], nic) for turn in range(len(there)) for i, nic in enumerate(own))
    return [Way(management), *pairs]


def listen() -> socket.socket:
    """A listener on every address of this host, at a port that the kernel chooses."""
    try:
        listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    except (OSError, ValueError):  # a host without IPv6
        listener = socket.create_server(("", 0), backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


def dial(way: Way, port: int) -> socket.socket:
    """A stream that is being connected; raises `OSError` if that fails at once."""
    stream = socket.socket(socket.AF_INET6 if ":" in way.address else socket.AF_INET)
    try:
        stream.setblocking(False)
        if way.nic is not None:
            with suppress(PermissionError):  # before Linux 5.7; the source address then decides alone
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, way.nic[0].encode())
            stream.bind((way.nic[1], 0))
        failure = stream.connect_ex((way.address, port))
        if failure not in (0, errno.EINPROGRESS):
            raise OSError(failure, "cannot be dialled")
    except BaseException:
        stream.close()
        raise
    return stream


def outcome(stream: socket.socket) -> int:
    """The result of a dial: 0 connected, else the error's number."""
    failure = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failure != 0:
        return failure
    try:
        peer = stream.getpeername()
    except OSError as error:  # the peer has reset the connection since
        return error.errno or errno.ENOTCONN
    # With nobody listening, TCP can connect a port of the ephemeral range to itself.
    return errno.ECONNREFUSED if stream.getsockname() == peer else 0
