"""A serving replica over time: requests queue for a prefill host, their caches for the network, and all decode
together.

Latencies are those of `r2ccl_core.jobs.serving`, so decoding inside one host does not notice a lost NIC; caches do.
What the replica does about the loss is one of `HABITS`. One of them, DejaVu's (ICML '24), is a model of the publication
and not its code: caches are continuously streamed to a neighbour, which makes every token a little slower, and are
restored from there.
"""

import heapq
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.serving import Engine

Redone = Literal["nothing", "transfer", "prefill", "cache", "everything"]
MOST_TOGETHER = 256
"""Most requests that are decoded together."""


@dataclass(frozen=True)
class Habit:
    """What a replica does about a loss: after `stands_s` without network, `redone` work that was in progress is
    repeated.

    ``transfer``: the cache that was being sent; ``prefill``: its prompt, too; ``cache``: all caches come back from a
    neighbour; ``everything``: every request from its beginning. `streaming`: by how much every token is always slower.
    """

    name: str
    stands_s: float
    redone: Redone
    streaming: float = 0.0


HABITS = {
    one.name: one
    for one in (
        Habit("auto", 0.2, "nothing"),
        Habit("balance", 1.2, "nothing"),
        # NIXL over UCX, tuned to the limit, ends the peer 3.4 s after the cut (measured); by default it hangs.
        Habit("transfer_again", 3.4, "transfer"),
        Habit("recompute", 3.4, "prefill"),
        Habit("dejavu", 3.0, "cache", streaming=0.02),
        Habit("restart", 34.0 + 120.0, "everything"),
    )
}


@dataclass(frozen=True)
class Asked:
    """A request: its arrival, its tokens, and those to be generated."""

    at_s: float
    prompt: int
    generated: int


@dataclass
class Served:
    """The outcome of one request. Seconds; the times of the first and the last token are 0 until they exist."""

    asked: Asked
    first_s: float = 0.0
    last_s: float = 0.0
    tokens: int = 0

    @property
    def ttft_s(self) -> float:
        """From its arrival to its first token."""
        return self.first_s - self.asked.at_s

    @property
    def tpot_s(self) -> float:
        """Time per token after the first."""
        return (self.last_s - self.first_s) / max(1, self.asked.generated - 1)


def poisson(count: int, a_second: float, prompt: int, generated: int, seed: int = 0) -> list[Asked]:
    """`count` requests, `a_second` on average, whose tokens are drawn from exponential distributions with these
    means."""
    draw, at_s, found = random.Random(seed), 0.0, []
    for _ in range(count):
        at_s += draw.expovariate(a_second)
        found.append(Asked(at_s, 1 + int(draw.expovariate(1 / prompt)), 1 + int(draw.expovariate(1 / generated))))
    return found


def serve(
    engine: Engine,
    before: Network,
    asked: Sequence[Asked],
    *,
    after: Network | None = None,
    lost_at_s: float = 0.0,
    habit: str = "balance",
    nic_burst: float = 0.0,
) -> list[Served]:
    """Serves every request of `asked`, in order, from host 0 to host 1 of `before`; with `after` the network is that
    one from `lost_at_s` on. Each NIC carries the first `nic_burst` bytes of a cache at once, as behind a token bucket
    that has filled up since the last one."""
    if habit not in HABITS:
        raise UsageError(f"{habit}: a replica knows {', '.join(HABITS)}")
    networks = (before, before if after is None else after)
    rates = [1.0 / one.point_to_point_s(0, 1, 1e12) * 1e12 for one in networks]
    bursts = [nic_burst * min(_nics(one, host) for host in (0, 1)) for one in networks]
    found = [Served(one) for one in asked]
    replica = _Replica(engine, rates, bursts, HABITS[habit])
    for one in found:
        replica.later(one.asked.at_s, "arrive", one)
    if after is not None:
        replica.later(lost_at_s, "lose")
    replica.run()
    return found


def _nics(network: Network, host: int) -> float:
    """Those that are left."""
    return sum(nic.remaining for nic in network.topology.hosts[host].nics)


@dataclass
class _Replica:
    """Three stages, each busy with one thing at a time: ``prefill``, ``send``, ``step``."""

    engine: Engine
    rates: Sequence[float]
    """Bytes per second before the loss, and after it."""
    bursts: Sequence[float]
    """Bytes of a cache that take no time, likewise."""
    habit: Habit
    now_s: float = 0.0
    lost: bool = False
    prefills: deque[Served] = field(default_factory=deque)
    sends: deque[Served] = field(default_factory=deque)
    left: float = 0.0
    """Bytes left of the first of these, as of `since_s`."""
    since_s: float = 0.0
    waits: deque[Served] = field(default_factory=deque)
    steps: list[Served] = field(default_factory=list)
    busy: dict[str, int] = field(default_factory=dict)
    """The event that ends a stage's work."""
    closed_until_s: dict[str, float] = field(default_factory=dict)
    events: list[tuple[float, int, str, Served | None]] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=count)

    def later(self, at_s: float, what: str, served: Served | None = None) -> int:
        number = next(self.numbers)
        heapq.heappush(self.events, (at_s, number, what, served))
        return number

    def run(self) -> None:
        while self.events:
            self.now_s, number, what, served = heapq.heappop(self.events)
            if what in ("prefill", "send", "step"):
                if self.busy.get(what) != number:
                    continue  # it was given up
                del self.busy[what]
            if served is not None:
                self.prefills.append(served)
            elif what != "wake":
                getattr(self, f"_{what}")()
            self._begin()

    def _begin(self) -> None:
        """Starts whatever can start."""
        engine = self.engine
        if self._is_free("prefill", self.prefills):
            one = self.prefills[0]
            # Outside of what was measured it counts as the nearest that was.
            tokens = min(max(one.asked.prompt + one.tokens, engine.shortest), engine.longest)
            self._do("prefill", (engine.prefill_ms + engine.prefill_token_ms * tokens) / 1e3)
        if self._is_free("send", self.sends):
            self.left, self.since_s = self.left or self._cache(self.sends[0]), self.now_s
            self._do("send", self.left / self.rates[self.lost])
        if self._is_free("step", self.steps or self.waits):
            while self.waits and len(self.steps) < MOST_TOGETHER:
                self.steps.append(self.waits.popleft())
            step_ms = engine.decode_ms + engine.decode_request_ms * len(self.steps)
            self._do("step", step_ms / 1e3 * (1 + self.habit.streaming))

    def _is_free(self, stage: str, work: object) -> bool:
        return bool(work) and stage not in self.busy and self.now_s >= self.closed_until_s.get(stage, 0.0)

    def _do(self, stage: str, lasts_s: float) -> None:
        self.busy[stage] = self.later(self.now_s + lasts_s, stage)

    def _cache(self, one: Served) -> float:
        """The bytes that take time."""
        whole = (one.asked.prompt + one.tokens) * self.engine.cache_bytes
        return max(1.0, whole - self.bursts[self.lost])

    def _prefill(self) -> None:
        self.sends.append(self.prefills.popleft())

    def _send(self) -> None:
        self.waits.append(self.sends.popleft())
        self.left = 0.0

    def _step(self) -> None:
        for one in self.steps:
            one.tokens, one.last_s = one.tokens + 1, self.now_s
            one.first_s = one.first_s or self.now_s
        self.steps = [one for one in self.steps if one.tokens < one.asked.generated]

    def _lose(self) -> None:
        redone = self.habit.redone
        if "send" in self.busy:
            self.left -= (self.now_s - self.since_s) * self.rates[0]
        self.lost = True
        self._close("send", self.habit.stands_s)
        if redone != "nothing":
            self.left = 0.0
        if redone == "prefill" and self.sends:
            # Behind the prompt that is being computed.
            self.prefills.insert(1 if "prefill" in self.busy else 0, self.sends.popleft())
        elif redone == "cache":
            self._close("step", self.habit.stands_s + sum(map(self._cache, self.steps)) / self.rates[1])
        elif redone == "everything":
            again = [*self.steps, *self.waits, *self.sends, *self.prefills]
            for one in again:
                one.tokens = 0
            self.prefills = deque(sorted(again, key=lambda one: one.asked.at_s))
            self.steps, self.waits, self.sends = [], deque(), deque()
            for stage in ("prefill", "step"):
                self._close(stage, self.habit.stands_s)

    def _close(self, stage: str, for_s: float) -> None:
        """Stops all stages for this long; their work in progress is discarded."""
        self.busy.pop(stage, None)
        self.closed_until_s[stage] = self.now_s + for_s
        self.later(self.now_s + for_s, "wake")
