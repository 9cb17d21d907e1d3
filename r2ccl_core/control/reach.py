"""Decides when a rank tries another way to a peer, which one, and when the peer is gone. Pure: the time is an argument.

A way is a pair of addresses; way 0 is the management network, the others are pairs of data NICs. A peer is alive as
long as its *kernel* answers over any way: a process that computes, holds the interpreter's lock or is stopped is slow,
not gone. A peer is gone when

    it is refused       its host says that nobody listens where the process did
    it is silent        nothing arrived over any way for `patience_s`
    its stream ended    the other end closed it, and then neither returned nor answered for `ENDED_S`

A refusal over a way that never worked may come from a firewall, or from another host with the same address. It counts
only on a data NIC, or where the stream has ended, and only while no other way answers.
"""

from dataclasses import dataclass, field

LEAST_PATIENCE_S = 4.0
"""The kernels' own probes, one a second, need this long to see a silence."""
WAITING_S = 0.5
"""If data is not acknowledged for this long, another way is looked for."""
IDLE_S = 2.5
"""The same if nothing is in flight but a probe every second."""
RETRY_S = 0.25
AT_ONCE = 2
"""Number of data NICs that are tried at a time, besides the management network."""
RETURN_S = 1.0
"""Interval at which a lost management network is tried again."""
ENDED_S = 2.0
DOUBT_S = 0.3
_LATE_S = 2.0


@dataclass
class Reach:
    """One peer. `ways` may grow. `goes_back`: this end is the one that moves streams, and prefers way 0."""

    patience_s: float
    now_s: float
    goes_back: bool
    ways: int = 1
    way: int | None = 0
    """Way of the stream; None while there is none."""
    _alive_s: float = 0.0
    _waiting_s: float | None = None
    _suspicious: bool = False
    _used: bool = True
    _ended_s: float | None = None
    _refused_s: float | None = None
    _refusal_holds: bool = False
    _works: set[int] = field(default_factory=set)  # ways by which the peer's listener was reached
    _answered: bool = False  # since there was trouble
    _tried_s: float | None = None
    _next: int = 1

    def __post_init__(self) -> None:
        self.patience_s = max(self.patience_s, LEAST_PATIENCE_S)
        self._alive_s = self.now_s

    @property
    def troubled(self) -> bool:
        """Whether there is no stream, or none that carries anything."""
        return self.way is None or self._suspicious

    def attached(self, way: int, now_s: float) -> None:
        """A stream uses `way`; this ends all trouble."""
        self.way, self._alive_s = way, now_s
        self._used = self._suspicious = self._answered = self._refusal_holds = False
        self._waiting_s = self._ended_s = self._refused_s = None
        self._tried_s = now_s

    def heard(self) -> None:
        """Bytes of the peer arrived on the stream."""
        self._used = True

    def seen(self, now_s: float, age_s: float, waits: bool) -> None:
        """The peer's kernel acknowledged something on the stream `age_s` ago; `waits`: whether something waits for
        that."""
        self._alive_s = max(self._alive_s, now_s - age_s)
        if not waits:
            self._waiting_s = None
        elif self._waiting_s is None:
            self._waiting_s = now_s
        waited_s = 0.0 if self._waiting_s is None else min(age_s, now_s - self._waiting_s)
        self._suspicious = waited_s > WAITING_S or age_s > IDLE_S

    def ended(self, now_s: float, by_peer: bool) -> None:
        """The stream is gone: the other end closed or reset it, or the kernel gave it up."""
        self.way, self._waiting_s, self._suspicious, self._tried_s = None, None, False, None
        if by_peer and self._used:
            self._ended_s = now_s

    def answered(self, way: int, now_s: float) -> None:
        """The peer's listener accepted a connection over `way`."""
        self._alive_s, self._answered, self._refused_s = now_s, True, None
        self._works.add(way)

    def refused(self, way: int, now_s: float) -> None:
        """The peer's host reports over `way` that nobody listens there."""
        if not self.troubled:
            return
        if way in self._works or (self._ended_s is not None and not self._answered):
            self._refusal_holds = True
        elif way != 0 and not self._answered and self._refused_s is None:
            self._refused_s = now_s

    def dials(self, now_s: float) -> list[int]:
        """The ways to try now."""
        if not self.troubled:
            if self.way == 0 or not self.goes_back or not self._is_due(now_s, RETURN_S):
                return []
            self._tried_s = now_s
            return [0]
        if not self._is_due(now_s, RETRY_S):
            return []
        self._tried_s = now_s
        others = self.ways - 1
        first, self._next = self._next, self._next + min(AT_ONCE, others)
        return [0, *((first - 1 + i) % others + 1 for i in range(min(AT_ONCE, others)))]

    def gone(self, now_s: float) -> str | None:
        """Why the peer is gone; None if it is not. Call this several times a second: time that this process itself
        missed is not counted."""
        self._forgive(now_s)
        if self._refusal_holds or (self._refused_s is not None and now_s - self._refused_s > DOUBT_S):
            return "its stream ended, and nobody listens there" if self._ended_s else "nobody listens there any more"
        if self._ended_s is not None and now_s - max(self._ended_s, self._alive_s) > min(ENDED_S, self.patience_s):
            return "its stream ended"
        if now_s - self._alive_s > self.patience_s:
            by = "by the management network or any data NIC" if self.ways > 1 else "by the management network"
            return f"no answer {by} for {self.patience_s:g} s"
        return None

    def _is_due(self, now_s: float, pause_s: float) -> bool:
        return self._tried_s is None or now_s - self._tried_s >= pause_s

    def _forgive(self, now_s: float) -> None:
        """Does not count the time for which this process was suspended itself."""
        late_s, self.now_s = now_s - self.now_s, now_s
        if late_s > _LATE_S:
            self._alive_s += late_s
            self._ended_s = None if self._ended_s is None else self._ended_s + late_s
            self._refused_s = None if self._refused_s is None else self._refused_s + late_s
