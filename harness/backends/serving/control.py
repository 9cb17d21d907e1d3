"""Control messages between host 0 and the decode hosts: lines of JSON over TCP on the management network."""

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
MEET_S = 60.0
_AGAIN_S = 0.05


class Line:
    """One connection. `send` may be called by any thread; arriving messages go to the `hear` of `listen`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)
        self._socket, self._lock = connection, threading.Lock()
        self._in = connection.makefile("r", encoding="utf-8")

    def send(self, kind: str, **fields: Any) -> None:
        """Sends one message. Raises `OSError` when the other end is gone."""
        with self._lock:
            self._socket.sendall((json.dumps({"kind": kind, **fields}) + "\n").encode())

    def read(self) -> Message:
        """The next message; ``gone`` when there are no more."""
        try:
            text = self._in.readline()
        except OSError:
            text = ""
        return json.loads(text) if text else {"kind": "gone"}

    def keep(self) -> int:
        """The descriptor, made inheritable for the program that replaces this process."""
        self._socket.set_inheritable(True)
        return self._socket.fileno()

    def listen(self, hear: Callable[[Message], None]) -> None:
        """Passes every message to `hear` on a separate thread; ``gone`` is the last."""

        def follow() -> None:
            while True:
                message = self.read()
                hear(message)
                if message["kind"] == "gone":
                    return

        threading.Thread(target=follow, name="control", daemon=True).start()


def gather(root: tuple[str, int], ranks: int) -> dict[int, Line]:
    """On rank 0: a line to every other rank, which first sends its number."""
    family = socket.AF_INET6 if ":" in root[0] else socket.AF_INET
    lines: dict[int, Line] = {}
    with socket.create_server(root, family=family) as server:
        server.settimeout(MEET_S)
        while len(lines) < ranks - 1:
            line = Line(server.accept()[0])
            lines[int(line.read()["rank"])] = line
    return lines


def join(root: tuple[str, int], rank: int) -> Line:
    """On another rank: its line to rank 0, which may start later."""
    deadline = time.monotonic() + MEET_S
    while True:
        try:
            line = Line(socket.create_connection(root, timeout=MEET_S))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_S)
            continue
        line.send("join", rank=rank)
        return line
