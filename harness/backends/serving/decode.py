"""A decode host: its part of the model over pages that prefill writes into its memory, in step with the other parts.

The first decode host leads: before each step it sends the others the sequences of the step. The communicator reduces
partial sums, twice per layer.
"""

import json
import os
import queue
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from socket import socket
from typing import Any, NoReturn

import numpy as np

from harness.backends.serving.cache import Pages
from harness.backends.serving.control import Line, Message, join
from harness.backends.serving.model import Model, attention
from harness.backends.serving.seat import MOST_TOGETHER, Doors, Seat, wait_until
from harness.backends.serving.statistics import joined
from r2ccl_core.control.rendezvous import address_towards, free_root
from r2ccl_core.errors import TransportError
from r2ccl_core.runtime.communicator import Communicator
from r2ccl_core.transfer import TransferEngine

RESTARTED = "SERVE_RESTARTED"
"""The variable in which a restarting process passes on the connection with host 0 and the requests that it knows."""
_STOP = -1
_MEET_S = 20.0


@dataclass
class Sequence:
    """One request on this host: its pages, the length of its prompt in tokens, and the tokens from the prompt's last
    one on."""

    pages: list[int]
    prompt: int
    tokens: list[int]
    wanted: int
    started: bool = False

    @property
    def place(self) -> int:
        """The position of the last known token, whose keys and values are computed next."""
        return self.prompt + len(self.tokens) - 2


class RecoverError(Exception):
    """Host 0 requests that this replica recover."""

    def __init__(self, message: Message) -> None:
        super().__init__(message["policy"])
        self.policy, self.epoch = str(message["policy"]), int(message["epoch"])


class GoneError(Exception):
    """Host 0 is gone."""


class StopError(Exception):
    """Serving has ended, while this host no longer takes part in it."""


@dataclass
class Decoder:
    """The process of one decode host."""

    seat: Seat
    inbox: "queue.SimpleQueue[Message]" = field(default_factory=queue.SimpleQueue)
    begun: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, Sequence] = field(default_factory=dict)
    wrong: dict[int, int] = field(default_factory=dict)
    past: list[dict[str, Any]] = field(default_factory=list)
    """Statistics from users of the NICs that were given up."""
    epoch: int = 0
    comm: Communicator | None = None
    engine: TransferEngine | None = None

    def run(self) -> None:
        """Runs until host 0 reports the end."""
        seat = self.seat
        self.doors = Doors(seat.nics)
        again = os.environ.pop(RESTARTED, "")
        self.line = self._line_left(again) if again else join(seat.root, seat.rank)
        self.model = Model(seat.shape, seat.seed, seat.rank - 1, seat.parts)
        self.pages = Pages(seat.shape, self.model.heads, seat.pages)
        self.line.listen(self._hear)
        self.line.send("rails", doors=self.doors.addresses)
        while True:
            try:
                self._open()
                seat.events.emit("ready") if not again else None
                self._lead() if seat.rank == 1 else self._follow()
                break
            except TransportError as error:
                if not seat.policy:
                    raise
                self.line.send("lost", why=str(error), epoch=self.epoch)
                try:
                    order = self._recover_order()
                except StopError:  # the loss was of a host that had already ended
                    break
            except RecoverError as found:
                order = found
            except StopError:
                break
            again, self.epoch = "yes", order.epoch
            self._recover(order.policy)
        self.line.send("left")

    def stats(self) -> dict[str, Any]:
        """The communicator's statistics, with the bytes and events of transfers."""
        none = {"rank": self.seat.rank, "mode": self.seat.mode, "nics": [], "events": []}
        now = [user.stats() for user in (self.comm, self.engine) if user is not None]
        return joined(none, *self.past, *now)

    # Messages from host 0 ------------------------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        """Called on the line's thread. The start of a request is reported at once, since the main thread may be waiting
        for the leader."""
        if message["kind"] == "take" and message["request"] not in self.begun:
            self.begun[message["request"]] = began_ns = time.time_ns()
            self.seat.events.emit("begin", began_ns, iteration=message["request"])
        self.inbox.put(message)
        if message["kind"] in ("recover", "gone") and self.comm is not None:
            self.comm.abort("the replica recovers" if message["kind"] == "recover" else "host 0 is gone")

    def _next(self, *, wait: bool = True) -> Message | None:
        """The next message, after the handling that applies to every message."""
        try:
            message = self.inbox.get(wait)
        except queue.Empty:
            return None
        kind = message["kind"]
        if kind == "gone":
            raise GoneError
        if kind == "recover":
            raise RecoverError(message)
        if kind == "take":
            self._take(message)
        elif kind == "start":
            self._start(message)
        elif kind == "over":
            self._over(message["request"])
        return message

    def _await(self, kind: str) -> Message:
        while True:
            message = self._next()
            if message is not None and message["kind"] == kind:
                return message
            if message is not None and message["kind"] == "stop":
                raise StopError

    def _recover_order(self) -> RecoverError:
        """After this host has reported its loss: the order that it receives."""
        while True:
            try:
                message = self._next()
            except RecoverError as order:
                return order
            if message is not None and message["kind"] == "stop":
                raise StopError

    def _take(self, message: Message) -> None:
        number = message["request"]
        sequence = Sequence(message["pages"], message["prompt"], message["tokens"], message["wanted"])
        self.sequences[number] = sequence

    def _start(self, message: Message) -> None:
        """Its pages are in memory; the checksums followed them."""
        number, sums = message["request"], message["sums"]
        sequence = self.sequences[number]
        found = sum(self.pages.checksum(page) != right for page, right in zip(sequence.pages, sums, strict=False))
        self.wrong[number] = self.wrong.get(number, 0) + found
        sequence.started = True

    def _over(self, number: int) -> None:
        """Reports the end, once."""
        self.sequences.pop(number, None)
        if number not in self.begun:
            return
        began_ns = self.begun.pop(number)
        lasted_ns = time.time_ns() - began_ns
        wrong = self.wrong.pop(number, 0)
        self.seat.events.emit("iteration", began_ns, iteration=number, duration_ns=lasted_ns, wrong=wrong)

    # Steps -------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        while True:
            ready = self._ready()
            while (message := self._next(wait=not ready)) is not None:
                if message["kind"] == "stop":
                    self._tell([_STOP])
                    return
                ready = self._ready()
            began_s = time.monotonic()
            self._tell([len(ready), *ready])
            found = self._step(ready)
            wait_until(began_s, self.seat.step_at_least_s)
            self.line.send("tokens", tokens=found)

    def _follow(self) -> None:
        while (count := (told := self._tell([0]))[0]) != _STOP:
            numbers = told[1 : 1 + count]
            while not all(number in self.sequences and self.sequences[number].started for number in numbers):
                self._next()
            while self._next(wait=False) is not None:
                pass
            self._step(numbers)
        self._await("stop")

    def _ready(self) -> list[int]:
        return sorted(number for number, sequence in self.sequences.items() if sequence.started)[:MOST_TOGETHER]

    def _tell(self, numbers: list[int]) -> list[int]:
        """Broadcasts from the leader to all decode hosts."""
        assert self.comm is not None
        told = np.zeros(1 + MOST_TOGETHER, np.int32)
        told[: len(numbers)] = numbers
        return [int(number) for number in self.comm.broadcast(told)]

    def _step(self, numbers: list[int]) -> list[tuple[int, int]]:
        """The next token of each of these sequences."""
        rows = [self.sequences[number] for number in numbers]

        def attend(layer: int, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
            seen = np.empty_like(query)
            for row, sequence in enumerate(rows):
                self.pages.add(sequence.pages, sequence.place, layer, key[row], value[row])
                kept = self.pages.read(sequence.pages, sequence.place + 1, layer)
                seen[row] = attention(query[row : row + 1], *kept)[0]
            return seen

        tokens, places = np.array([s.tokens[-1] for s in rows]), np.array([s.place for s in rows])
        assert self.comm is not None
        found = self.model.following(tokens, places, attend, self.comm.all_reduce)
        for number, sequence, token in zip(numbers, rows, found, strict=True):
            sequence.tokens.append(int(token))
            if len(sequence.tokens) > sequence.wanted:
                self._over(number)
        return [(number, int(token)) for number, token in zip(numbers, found, strict=True)]

    # The network -------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Opens the engine for pages and the group of decode hosts, over the rails that host 0 names."""
        rails = self._await("open")["rails"]
        self.engine = self.seat.engine(rails)
        region = self.engine.register(self.pages.memory)
        root = free_root(address_towards(*self.seat.root)) if self.seat.rank == 1 else ""
        key = region.remote.key
        self.line.send("opened", address=self.engine.address.hex(), key=key, nbytes=region.remote.nbytes, root=root)
        group = self._await("group")
        place = self.seat.rank - 1, self.seat.parts, group["root"]
        self.comm = Communicator(*place, nics=self.seat.chosen(rails), mode=self.seat.mode, timeout_s=_MEET_S)
        self.line.send("up")

    def _recover(self, policy: str) -> None:
        """Gives up what is broken, as the policy says. Returns if the network is to be opened again."""
        self.close()
        self.sequences.clear()
        if policy == "restart":
            self._restart()
        self.line.send("rails", doors=self.doors.addresses)

    def close(self) -> None:
        """Leaves the group and closes the engine."""
        for user in (self.comm, self.engine):
            if user is not None:
                self.past.append(user.stats())
                with suppress(TransportError):
                    user.close()
        self.comm = self.engine = None

    def _restart(self) -> NoReturn:
        """Restarts this process: the interpreter, the weights, the network."""
        left = {"line": self.line.keep(), "begun": self.begun, "epoch": self.epoch, "past": self.past}
        os.environ[RESTARTED] = json.dumps(left)
        self.seat.keep_events()
        os.execv(sys.executable, [sys.executable, "-m", "harness.backends.serving.rank", *sys.argv[1:]])

    def _line_left(self, text: str) -> Line:
        left = json.loads(text)
        self.epoch, self.past = left["epoch"], left["past"]
        self.begun = {int(number): began_ns for number, began_ns in left["begun"].items()}
        return Line(socket(fileno=left["line"]))
