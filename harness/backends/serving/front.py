"""Host 0: accepts requests, computes their prompts, writes the pages into the decode hosts' memory, collects tokens.

One thread makes all decisions. Others compute prompts, wait for transfers, and listen; they put their results into its
inbox. A failure that the transport survives is not visible here. For one that it does not survive, there is a policy:

    transfer_again   the network is reopened over the working rails; pages in transit are sent again
    recompute        likewise, and every prompt whose answer is incomplete is computed again
    restart          all processes of the replica restart, and such requests start from their beginning
    reroute          host 0 alone, as its own replica, answers such requests and all later ones, one at a time
"""

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from harness.backends.serving.cache import FreePages, Pages, pages_for
from harness.backends.serving.control import Line, Message, gather
from harness.backends.serving.model import VOCABULARY, Model, answer
from harness.backends.serving.seat import Seat, rails_to, wait_until
from harness.backends.serving.statistics import joined
from r2ccl_core.errors import TransportError
from r2ccl_core.transfer import Peer, Region, RemoteMemory, Span, Transfer, TransferEngine

_REBUILT_S = 60.0
"""How long a replica may take to recover."""
_TRIES = 5
"""How often it is rebuilt if the network keeps failing."""


@dataclass
class Request:
    """One request as host 0 knows it; times are CLOCK_REALTIME in ns, 0 until they are known."""

    number: int
    prompt: np.ndarray
    wanted: int
    came_ns: int = 0
    pages: list[int] = field(default_factory=list)
    sums: list[list[int]] = field(default_factory=list)
    """Checksums of the sent pages, by decode host."""
    tokens: list[int] = field(default_factory=list)
    turn: int = 0
    """How often it was restarted: messages of an earlier turn are ignored."""
    state: str = "waits"
    lost_in: str = ""
    """Its state when the transport gave up."""
    began_ns: int = 0
    sent_from_ns: int = 0
    sent_until_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0

    @property
    def known(self) -> np.ndarray:
        """Prompt and answer so far."""
        return np.concatenate([self.prompt, np.array(self.tokens, dtype=self.prompt.dtype)])


@dataclass
class Target:
    """A decode host."""

    rank: int
    line: Line
    doors: Sequence[Any] = ()
    pages: Pages | None = None
    region: Region | None = None
    remote: RemoteMemory | None = None
    peer: Peer | None = None


class Front:
    """The process of host 0."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.work: queue.SimpleQueue[tuple[str, Request, int]] = queue.SimpleQueue()
        self.free = FreePages(seat.pages)
        self.waiting: deque[Request] = deque()
        self.under_way: dict[int, Request] = {}
        self.ended: list[Request] = []
        self.engine: TransferEngine | None = None
        self.told: dict[int, Message] = {}
        """The decode hosts' latest reports on themselves, by rank."""
        self.past: list[dict[str, Any]] = []
        """Statistics of engines that were given up."""
        self.alone = False
        self.epoch = 0
        """How often the replica has recovered."""
        self.recovering = False
        self.later: list[tuple[Request, int, np.ndarray]] = []
        """Prompts that were computed during a recovery."""
        self.rails: list[int] = list(range(len(seat.nics)))

    def run(self) -> dict[str, str]:
        """Runs until every request is answered; returns the trial's results."""
        seat = self.seat
        self.model = Model(seat.shape, seat.seed)
        lines = gather(seat.root, seat.ranks)
        self.targets = [Target(rank, line) for rank, line in sorted(lines.items())]
        for target in self.targets:
            target.line.listen(partial(self._hear, target))
        self._await("rails")
        self._open()
        seat.events.emit("ready")
        threading.Thread(target=self._compute, name="prefill", daemon=True).start()
        requests = self._requests()
        for request in requests[: seat.warmup]:
            self._take(request)
            self._until(lambda: not self.under_way)
        self._serve(requests[seat.warmup :])
        self._tell("stop")
        result = self._result()
        self._await("left")
        return result

    def _hear(self, target: Target, message: Message) -> None:
        self.inbox.put(("heard", (target, message)))

    def stats(self) -> dict[str, Any]:
        """The engine's statistics."""
        return joined(
            {"rank": 0, "mode": self.seat.mode, "nics": [], "events": []},
            *self.past,
            self.engine.stats() if self.engine else None,
        )

    def close(self) -> None:
        """Disconnects."""
        if self.engine is not None:
            self.engine.close()

    # Requests ----------------------------------------------------------------------------------------------

    def _requests(self) -> list[Request]:
        """The warm-up requests, which have the sizes of the first requests, then the requests."""
        sizes = [
            (i - self.seat.warmup, self.seat.arrivals[i % len(self.seat.arrivals)]) for i in range(self.seat.warmup)
        ]
        sizes += list(enumerate(self.seat.arrivals))
        return [Request(number, self._prompt(number, size.prompt), size.generated) for number, size in sizes]

    def _prompt(self, number: int, tokens: int) -> np.ndarray:
        return np.random.default_rng((self.seat.seed, number + self.seat.warmup)).integers(0, VOCABULARY, tokens)

    def _serve(self, requests: Sequence[Request]) -> None:
        start_s, coming = time.monotonic(), deque(zip(self.seat.arrivals, requests, strict=True))
        while coming or self.waiting or self.under_way:
            left_s = start_s + coming[0][0].at_s - time.monotonic() if coming else self.seat.timeout_s
            if coming and left_s <= 0:
                self._take(coming.popleft()[1])
            else:
                self._handle(left_s, "tokens" if not coming else "")

    def _take(self, request: Request) -> None:
        request.came_ns = time.time_ns()
        self.waiting.append(request)
        self._begin_some()

    def _begin_some(self) -> None:
        """Starts the requests for which there are pages, in order."""
        while self.waiting:
            request = self.waiting[0]
            request.pages = self.free.take(pages_for(len(request.prompt) + request.wanted))
            if not request.pages:
                return
            self.under_way[self.waiting.popleft().number] = request
            request.began_ns = time.time_ns()
            self.seat.events.emit("begin", request.began_ns, iteration=request.number)
            self._announce(request)
            self._begin(request)

    def _announce(self, request: Request) -> None:
        tokens = [int(request.prompt[-1]), *request.tokens]
        self._tell(
            "take", request=request.number, pages=request.pages, prompt=len(request.prompt), tokens=tokens,
            wanted=request.wanted,
        )  # fmt: skip

    def _begin(self, request: Request) -> None:
        request.state = "computed"
        self.work.put(("alone" if self.alone else "prefill", request, request.turn))

    def _compute(self) -> None:
        """Runs on a separate thread: computes one prompt after another, and, if host 0 is alone, the complete
        answers."""
        while True:
            what, request, turn = self.work.get()
            if what == "prefill":
                began_s = time.monotonic()
                made = self.model.prefill(request.known[:-1])
                wait_until(began_s, self.seat.prefill_at_least_s)
                self.inbox.put(("made", (request, turn, made)))
                continue
            for token in answer(self.model, request.known, request.wanted - len(request.tokens)):
                self._token(request, token)
            self.inbox.put(("answered", request))

    # Incoming messages ---------------------------------------------------------------------------------------

    def _handle(self, limit_s: float, silent: str = "") -> None:
        """Handles the next message that arrives within `limit_s`. While an answer is awaited, silence is an error."""
        try:
            what, given = self.inbox.get(timeout=max(0.0, min(limit_s, self.seat.timeout_s)))
        except queue.Empty:
            if silent:
                raise TransportError(f"no answer for {self.seat.timeout_s:g} s") from None
            return
        if what == "heard":
            self._heard(*given)
        elif what == "made" and self.recovering:
            self.later.append(given)
        elif what == "made":
            self._made(*given)
        elif what == "sent":
            self._sent(*given)
        elif what == "answered":
            self._over(given)

    def _until(self, over: Any) -> None:
        while not over():
            self._handle(self.seat.timeout_s, "anything")

    def _heard(self, target: Target, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "gone" and self.told.get(target.rank, {}).get("kind") == "left":
            return
        if kind == "gone":
            raise ConnectionError(f"the decode host of rank {target.rank} is gone")
        if kind == "lost" and message["epoch"] == self.epoch:
            self._lost(f"rank {target.rank}: {message['why']}")
        elif kind == "tokens":
            for number, token in message["tokens"]:
                request = self.under_way.get(number)
                if request is not None and request.state == "decoded":
                    self._token(request, token)
                    if len(request.tokens) == request.wanted:
                        self._over(request)
        elif kind in ("rails", "opened", "up", "left"):
            self.told[target.rank] = message

    def _token(self, request: Request, token: int) -> None:
        request.last_ns = time.time_ns()
        request.first_ns = request.first_ns or request.last_ns
        request.tokens.append(int(token))

    def _made(self, request: Request, turn: int, made: np.ndarray) -> None:
        """The request's pages are written to every decode host."""
        if turn != request.turn:
            return
        pages = request.pages[: pages_for(len(made))]
        heads = self.model.heads // self.seat.parts
        request.sums = []
        for number, target in enumerate(self.targets):
            assert target.pages is not None
            target.pages.put(pages, made[:, :, :, number * heads : (number + 1) * heads])
            request.sums.append([target.pages.checksum(page) for page in pages])
        if request.number == self.seat.corrupt:
            assert self.targets[0].pages is not None
            self.targets[0].pages.memory[pages[0]] *= -1
        self._send(request)

    def _send(self, request: Request) -> None:
        request.state = "sent"
        request.sent_from_ns = time.time_ns()
        pages = request.pages[: len(request.sums[0])]
        try:
            begun = [_written(target, pages) for target in self.targets]
        except TransportError as error:
            self.inbox.put(("sent", (request, request.turn, error)))
            return
        threading.Thread(target=self._follow, args=(request, request.turn, begun), daemon=True).start()

    def _follow(self, request: Request, turn: int, begun: Sequence[Transfer]) -> None:
        """Runs on a separate thread: waits until all pages are in memory there."""
        failed: TransportError | None = None
        for transfer in begun:
            try:
                transfer.wait(self.seat.timeout_s)
            except TransportError as error:
                failed = failed or error
        self.inbox.put(("sent", (request, turn, failed)))

    def _sent(self, request: Request, turn: int, failed: TransportError | None) -> None:
        if turn != request.turn:
            return
        if failed is not None:
            self._lost(str(failed))
            return
        request.sent_until_ns = time.time_ns()
        self._start(request)

    def _start(self, request: Request, *, checked: bool = True) -> None:
        request.state = "decoded"
        for target, sums in zip(self.targets, request.sums, strict=True):
            target.line.send("start", request=request.number, sums=sums if checked else [])

    def _over(self, request: Request) -> None:
        self._tell("over", request=request.number)
        del self.under_way[request.number]
        self.free.give(request.pages)
        self.ended.append(request)
        lasted_ns = time.time_ns() - request.began_ns
        self.seat.events.emit(
            "iteration", request.began_ns, iteration=request.number, duration_ns=lasted_ns, wrong=None,
            measures=_measures(request),
        )  # fmt: skip
        self._begin_some()

    # The network -------------------------------------------------------------------------------------------

    def _tell(self, kind: str, **fields: Any) -> None:
        for target in self.targets:
            try:
                target.line.send(kind, **fields)
            except OSError:
                raise ConnectionError(f"the decode host of rank {target.rank} is gone") from None

    def _await(self, kind: str) -> dict[int, dict[str, Any]]:
        """Every decode host's message of that kind, by rank."""
        self.told = {}
        deadline = time.monotonic() + _REBUILT_S
        while len(self.told) < len(self.targets) or any(m["kind"] != kind for m in self.told.values()):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TransportError(f"not every decode host said {kind!r} in {_REBUILT_S:g} s")
            self._handle(left_s)
        for target in self.targets:
            target.doors = self.told[target.rank].get("doors", target.doors)
        return self.told

    def _open(self) -> None:
        """The decode hosts open their ends over `rails`, then this host's engine connects to them."""
        seat = self.seat
        self._tell("open", rails=self.rails)
        opened = dict(self._await("opened"))
        self._tell("group", root=opened[1]["root"])
        self.engine = seat.engine(self.rails)
        heads = self.model.heads // seat.parts
        for target in self.targets:
            told = opened[target.rank]
            target.pages = target.pages or Pages(seat.shape, heads, seat.pages)
            target.region = self.engine.register(target.pages.memory)
            target.remote = RemoteMemory(told["key"], told["nbytes"])
            target.peer = self.engine.connect(bytes.fromhex(told["address"]))
        self._await("up")

    def _lost(self, why: str) -> None:
        """Applies the policy after the transport gave up. If the network fails again meanwhile, it is applied again."""
        policy = self.seat.policy
        if not policy or self.alone or self.recovering:
            raise TransportError(why)
        began_s, self.recovering = time.monotonic(), True
        for request in self.under_way.values():
            request.lost_in = request.state
            request.turn += request.state != "computed" or policy == "reroute"
        for left in reversed(range(_TRIES)):
            print(f"serving: {why}; {policy}", file=sys.stderr, flush=True)
            self.seat.events.emit("interrupted", message=why)  # each attempt is a sign of life
            try:
                self._recover(policy)
                break
            except TransportError as error:
                if not left:
                    raise
                why = str(error)
        print(f"serving: went on after {time.monotonic() - began_s:.3f} s", file=sys.stderr, flush=True)
        self.recovering = False
        for request in list(self.under_way.values()):
            self._again(request, policy)
        computed, self.later = self.later, []
        for given in computed:
            self._made(*given)

    def _recover(self, policy: str) -> None:
        self.epoch += 1
        self._tell("recover", policy=policy, epoch=self.epoch)
        if self.engine is not None:
            self.past.append(self.engine.stats())
            self.engine.close()
            self.engine = None
        if policy == "restart":
            self.model = Model(self.seat.shape, self.seat.seed)
        self._await("rails")
        if policy == "reroute":
            self.alone = True
            return
        reached = [rails_to(self.seat.nics, target.doors) for target in self.targets]
        self.rails = sorted(set.intersection(*reached))
        if not self.rails:
            raise TransportError("no rail reaches every decode host")
        self._open()

    def _again(self, request: Request, policy: str) -> None:
        """What is repeated for one request in progress."""
        if policy == "restart":
            request.tokens.clear()
        self._announce(request)
        if request.state == "computed" and policy != "reroute":
            return
        if policy == "transfer_again" and request.state == "sent":
            self._send(request)
        elif policy == "transfer_again":
            # Its last page has grown since it was sent.
            self._start(request, checked=False)
        else:
            self._begin(request)

    # The end -----------------------------------------------------------------------------------------------

    def _result(self) -> dict[str, str]:
        """A digest of all answers, and the number of tokens that differ from those that one host computes alone."""
        timed = sorted((r for r in self.ended if r.number >= 0), key=lambda r: r.number)
        told = {"answers": f"{crc32(b''.join(bytes(r.tokens) for r in timed)):08x}"}
        if self.seat.check:
            wrong = sum(
                a != b for r in timed for a, b in zip(r.tokens, answer(self.model, r.prompt, r.wanted), strict=True)
            )
            told["wrong_tokens"] = str(wrong)
        return told


def _written(target: Target, pages: Sequence[int]) -> Transfer:
    """Writes the pages to the same positions on the target; adjacent pages are written in one piece."""
    assert target.pages is not None and target.region is not None and target.remote is not None
    assert target.peer is not None
    size, spans = target.pages.page_bytes, list[tuple[Span, Span]]()
    for page in pages:
        part = slice(page * size, (page + 1) * size)
        spans.append((target.region[part], target.remote[part]))
    return target.peer.write(spans)


def _measures(request: Request) -> dict[str, float]:
    """The measures of a finished request, in ms from its arrival (for the first token) or from its start."""
    more = max(1, request.wanted - 1)
    told = {
        "ttft_ms": (request.first_ns - request.came_ns) / 1e6,
        "tpot_ms": (request.last_ns - request.first_ns) / 1e6 / more,
        "tokens": float(request.wanted),
        "answer": float(crc32(bytes(request.tokens))),
        "again": float(request.turn),
    }
    if request.lost_in:
        told |= {"lost_sending": float(request.lost_in == "sent"), "lost_decoding": float(request.lost_in == "decoded")}
    elif request.sent_until_ns:
        told["sent_from_ms"] = (request.sent_from_ns - request.began_ns) / 1e6
        told["sent_until_ms"] = (request.sent_until_ns - request.began_ns) / 1e6
    return told
