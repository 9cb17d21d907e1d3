"""Tests which NICs reach which, with small UDP datagrams. A stand-alone file that runs on all hosts at once.

It needs Python 3.8 and its standard library, and no rights on Linux 5.7 or later. Its one argument is JSON:

    {"port": 40000, "token": "...", "limit_s": 2.0,
     "targets": [{"nic": "eth0", "from": "10.0.0.1", "to": "10.0.0.2", "bound": true, "size": 0}]}

A probe leaves through the NIC (`bound`) or by the routing table, from the address `from`; `size` is that of the whole
IP packet, which then must not be fragmented. The other side answers with the interface at which the probe arrived. It
prints "listening", and begins when its standard input ends, which is when all hosts listen. At the end it prints a
list: for each target, in their order, {"on": "eth0", "rtt_us": 90} or {"error": "..."}.
"""

from __future__ import annotations

import errno
import json
import selectors
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Any

RESEND_S = 0.1
AT_ONCE = 32
"""Probes that are sent before answers are read, so that no queue overflows."""

LINGER_S = 0.5
"""How long it continues to answer after its own probes are done."""

HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
SO_BINDTODEVICE = 25
PACKET_INFO = {socket.AF_INET: (socket.IPPROTO_IP, 8, 8), socket.AF_INET6: (socket.IPPROTO_IPV6, 49, 50)}
"""Level, the option that requests it, and the type of the message that carries it."""
DO_NOT_CUT = {socket.AF_INET: (socket.IPPROTO_IP, 10, 3), socket.AF_INET6: (socket.IPPROTO_IPV6, 23, 3)}


def family_of(address: str) -> socket.AddressFamily:
    """IPv4 or IPv6."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


class Prober:
    """One host's part: it sends its own probes and answers those of the others."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.port, self.token, self.targets = task["port"], task["token"], task["targets"]
        self.results: list[dict[str, Any]] = [{"error": "no answer"} for _ in self.targets]
        self.sent: dict[int, float] = {}
        self.open = set(range(len(self.targets)))
        self.selector = selectors.DefaultSelector()
        self.senders: dict[tuple[str, str, bool, bool], socket.socket] = {}
        self.heard = time.monotonic()
        for family in (socket.AF_INET, socket.AF_INET6):
            with suppress(OSError):
                self.selector.register(self.listener(family), selectors.EVENT_READ, self.answer)

    def listener(self, family: socket.AddressFamily) -> socket.socket:
        """A socket that takes probes at any address and reports the interface at which each came in."""
        s = socket.socket(family, socket.SOCK_DGRAM)
        level, ask, _ = PACKET_INFO[family]
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.setsockopt(level, ask, 1)
        s.bind(("", self.port))
        s.setblocking(False)
        return s

    def sender(self, target: dict[str, Any]) -> socket.socket:
        """The socket for such a target; several targets share one."""
        key = (target["nic"], target["from"], target["bound"], target["size"] > 0)
        if key not in self.senders:
            family = family_of(target["from"])
            s = socket.socket(family, socket.SOCK_DGRAM)
            if target["bound"]:
                s.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, target["nic"].encode())
            if target["size"]:
                s.setsockopt(*DO_NOT_CUT[family])
            s.bind((target["from"], 0))
            s.setblocking(False)
            self.selector.register(s, selectors.EVENT_READ, self.take)
            self.senders[key] = s
        return self.senders[key]

    def answer(self, s: socket.socket) -> None:
        """Tells the sender where the probe came in; the answer leaves through that interface."""
        data, messages, _, peer = s.recvmsg(1 << 16, 256)
        asked = self.read(data)
        if asked is None:
            return
        self.heard = time.monotonic()
        level, _, kind = PACKET_INFO[socket.AddressFamily(s.family)]
        for got_level, got_kind, info in messages:
            if (got_level, got_kind) == (level, kind):
                index, back = self.way_back(s.family, info)
                said = json.dumps({"token": self.token, "i": asked["i"], "on": socket.if_indextoname(index)})
                with suppress(OSError):
                    s.sendmsg([said.encode()], [(level, kind, back)], 0, peer)

    @staticmethod
    def way_back(family: int, info: bytes) -> tuple[int, bytes]:
        """The interface in a packet's information, and the information that sends an answer out there."""
        if family == socket.AF_INET6:
            return struct.unpack("=16sI", info[:20])[1], info[:20]
        index, _, address = struct.unpack("=I4s4s", info[:12])
        return index, struct.pack("=I4s4s", index, address, bytes(4))

    def take(self, s: socket.socket) -> None:
        """Takes an answer to one of our own probes."""
        try:
            told = self.read(s.recv(1 << 16))
        except OSError:  # an ICMP error for an earlier probe
            return
        if told is None or told["i"] not in self.open:
            return
        self.heard = time.monotonic()
        self.open.discard(told["i"])
        rtt_us = round((time.monotonic() - self.sent[told["i"]]) * 1e6)
        self.results[told["i"]] = {"on": told["on"], "rtt_us": rtt_us}

    def read(self, data: bytes) -> dict[str, Any] | None:
        """A datagram of this exchange; None for anything else."""
        try:
            told = json.loads(data)
        except ValueError:
            return None
        ours = isinstance(told, dict) and told.get("token") == self.token and isinstance(told.get("i"), int)
        return told if ours else None

    def send(self, indexes: list[int]) -> None:
        """Sends those of these probes that have no answer yet."""
        for i in indexes:
            target = self.targets[i]
            text = json.dumps({"token": self.token, "i": i}).encode()
            text = text.ljust(target["size"] - HEADERS[family_of(target["from"])] if target["size"] else 0)
            try:
                s = self.sender(target)
                self.sent[i] = time.monotonic()
                s.sendto(text, (target["to"], self.port))
            except OSError as e:
                self.results[i] = {"error": e.strerror or str(e)}
                if e.errno not in (errno.EAGAIN, errno.ECONNREFUSED, errno.EHOSTUNREACH):
                    self.open.discard(i)

    def run(self, limit_s: float) -> list[dict[str, Any]]:
        """Runs until every probe is answered and no other host probes any more, or the time is over."""
        began = time.monotonic()
        while time.monotonic() - began < limit_s:
            now = time.monotonic()
            due = [i for i in sorted(self.open) if now - self.sent.get(i, 0.0) >= RESEND_S]
            self.send(due[:AT_ONCE])
            if not self.open and now - self.heard > LINGER_S:
                break
            for key, _ in self.selector.select(0 if due[AT_ONCE:] else 0.02):
                with suppress(OSError):
                    key.data(key.fileobj)
        return self.results


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    prober = Prober(asked)
    print("listening", flush=True)
    sys.stdin.read()
    prober.heard = time.monotonic()
    print(json.dumps(prober.run(asked["limit_s"])))
