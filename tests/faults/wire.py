"""Datagrams between the hosts of a local cluster, through sockets that the test itself has in their namespaces.

What passes is seen here without any of the harness' own signs.
"""

import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from harness.cluster import namespaces
from harness.cluster.layout import Layout

PORT = 5055
QUIET_S = 0.15
"""How long nothing may come before nothing more is expected; a rail takes well below a millisecond."""

RESOLVED_S = 5.0


class Wire:
    """One socket for every host and rail, each bound to its NIC."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.sockets = {
            (host.name, nic.rail): namespaces.inside(host.namespace, lambda n=nic: _bound(n.name, n.address))  # type: ignore[misc]
            for host in layout.hosts
            for nic in host.nics
        }

    def close(self) -> None:
        for endpoint in self.sockets.values():
            endpoint.close()

    def address(self, host: str, rail: int) -> tuple[str, int]:
        return next(h.nics[rail].address for h in self.layout.hosts if h.name == host), PORT

    def arrived(self, source: str, target: str, rail: int, count: int = 20, size: int = 100) -> list[int]:
        """The numbers of those of `count` datagrams that came, in the order in which they came."""
        sender, receiver = self.sockets[source, rail], self.sockets[target, rail]
        came: list[int] = []
        _drain(receiver)
        for number in range(count):
            with suppress(OSError):  # the kernel knows no way
                sender.sendto(b"%08d" % number + bytes(size - 8), self.address(target, rail))
            came += _numbers(receiver, 0.0)
        while more := _numbers(receiver, QUIET_S):
            came += more
        return came

    def passes(self, source: str, target: str, rail: int) -> bool:
        """Whether a datagram gets through, asked until one does: addresses may have to be resolved anew."""
        deadline = time.monotonic() + RESOLVED_S
        while time.monotonic() < deadline:
            if self.arrived(source, target, rail, count=3):
                return True
        return False

    def silent(self, source: str, target: str, rail: int) -> bool:
        """Whether nothing gets through."""
        return not self.arrived(source, target, rail)

    def rate_bit_s(self, source: str, target: str, rail: int, seconds: float = 0.4) -> float:
        """What passes of as much as can be sent, once queues and buckets have had their fill."""
        sender, receiver = self.sockets[source, rail], self.sockets[target, rail]
        load, address = bytes(1400), self.address(target, rail)
        begin = time.monotonic() + 0.25
        received, end = 0, begin + seconds
        while (now := time.monotonic()) < end:
            readable, writable, _ = select.select([receiver], [sender], [], 0.05)
            if writable:
                with suppress(OSError):
                    sender.sendto(load, address)
            while readable:
                with suppress(BlockingIOError):
                    got = len(receiver.recv(2048))
                    received += got if now >= begin else 0
                    continue
                break
        return (received / 1400 * 1442) * 8 / seconds  # with the headers that the NIC's limit counts


def _bound(nic: str, address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.encode())
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    made.bind((address, PORT))
    made.setblocking(False)
    return made


def _drain(receiver: socket.socket) -> None:
    with suppress(BlockingIOError):
        while True:
            receiver.recv(2048)


def _numbers(receiver: socket.socket, wait_s: float) -> Sequence[int]:
    found: list[int] = []
    if select.select([receiver], [], [], wait_s)[0]:
        with suppress(BlockingIOError):
            while True:
                found.append(int(receiver.recv(2048)[:8]))
    return found
