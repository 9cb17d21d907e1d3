"""How all ranks switch to a new schedule at the same operation: the protocol, without the network.

Pure state machines: a message in, messages out. Rank 0 is the coordinator, and a member like every other rank.

    member        REPORT what it has lost                                          -> coordinator
    coordinator   CALL: the health that will hold, and the connections it lacks    -> all
    member        OFFERS the handles of its listeners                              -> coordinator
    coordinator   WIRE all handles: everybody connects and prepares its schedules  -> all
    member        WIRED                                                            -> coordinator
    coordinator   HOLD                                                             -> all
    member        HELD at operation n: it will not start n before the decision     -> coordinator
    coordinator   SWITCH at N, the greatest n                                      -> all

No rank has started N when it learns N. No rank waits longer than the slowest answer takes, because members answer while
a collective runs. Reports that arrive during an agreement wait; if its decision does not cover them, the next agreement
begins. The death of a rank ends the group through the bootstrap, including every rank that holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from r2ccl_core.model.health import Health
from r2ccl_core.planning.lower import Connection

Handles = tuple[tuple[Connection, bytes], ...]


@dataclass(frozen=True)
class Report:
    """Member: the NICs that it has lost, and those that it knows to work."""

    lost: tuple[int, ...]
    works: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call:
    """Coordinator: the next health, and the connections to be made for it."""

    epoch: int
    health: Health
    connections: tuple[Connection, ...]


@dataclass(frozen=True)
class Offers:
    """Member: the handles of its receiving ends."""

    epoch: int
    handles: Handles


@dataclass(frozen=True)
class Wire:
    """Coordinator: the handles of all ranks."""

    epoch: int
    handles: Handles


@dataclass(frozen=True)
class Wired:
    """Member: whether all its connections are made, and what it will run is ready."""

    epoch: int
    made: bool


@dataclass(frozen=True)
class Hold:
    """Coordinator: report your position, and stay there."""

    epoch: int


@dataclass(frozen=True)
class Held:
    """Member: the first operation that it has not started and will not start before the decision."""

    epoch: int
    operation: int


@dataclass(frozen=True)
class Switch:
    """Coordinator, the decision: `health` holds from `operation` on; whether the connections that were made are to be
    used."""

    epoch: int
    operation: int
    health: Health
    made: bool


Message = Report | Call | Offers | Wire | Wired | Hold | Held | Switch
KINDS: tuple[type[Message], ...] = (Report, Call, Offers, Wire, Wired, Hold, Held, Switch)


class Stage(Enum):
    """What the coordinator waits for."""

    NOTHING = "nothing"
    OFFERS = "offers"
    WIRED = "wired"
    HELD = "held"


class Coordinator:
    """Rank 0's part. `take` returns the messages to every rank, itself included."""

    def __init__(self, health: Health, missing: Callable[[Health], Sequence[Connection]]) -> None:
        """`missing` returns the connections that the schedules for a health need and that do not exist."""
        self.agreed = self._reported = health
        self.stage = Stage.NOTHING
        self._missing = missing
        self._size = health.nranks
        self._reports: dict[int, Report] = {}  # the last ones, by rank
        self._epoch = 0
        self._next = health
        self._made = False
        self._answers: dict[int, Message] = {}

    def take(self, rank: int, message: Message) -> list[Message]:
        """Processes a message of `rank`. Answers to an earlier agreement cannot arrive, because an agreement ends only
        after all of its answers."""
        if isinstance(message, Report):
            self._reports[rank] = message
            host = rank // self._reported.gpus
            self._reported = self._reported.with_lost(host, self._lost_by(host))
            return self._begin()
        expected = {Stage.OFFERS: Offers, Stage.WIRED: Wired, Stage.HELD: Held}.get(self.stage)
        if expected is None or not isinstance(message, expected) or message.epoch != self._epoch:
            raise ValueError(f"rank {rank} says {message} while the coordinator waits for {self.stage.value}")
        self._answers[rank] = message
        if len(self._answers) < self._size:
            return []
        answers, self._answers = list(self._answers.values()), {}
        return self._go_on(answers)

    def _lost_by(self, host: int) -> set[int]:
        """The NICs that one of the host's ranks has lost and none knows to work."""
        gpus = self._reported.gpus
        told = [self._reports[rank] for rank in range(host * gpus, (host + 1) * gpus) if rank in self._reports]
        return {nic for report in told for nic in report.lost} - {nic for report in told for nic in report.works}

    def _begin(self) -> list[Message]:
        if self.stage is not Stage.NOTHING or self._reported == self.agreed or not self._reported.usable:
            return []
        self._epoch += 1
        self._next = self._reported
        self.stage = Stage.OFFERS
        return [Call(self._epoch, self._next, tuple(self._missing(self._next)))]

    def _go_on(self, answers: list[Message]) -> list[Message]:
        if self.stage is Stage.OFFERS:
            self.stage = Stage.WIRED
            handles = (pair for answer in answers if isinstance(answer, Offers) for pair in answer.handles)
            return [Wire(self._epoch, tuple(handles))]
        if self.stage is Stage.WIRED:
            self.stage = Stage.HELD
            self._made = all(isinstance(answer, Wired) and answer.made for answer in answers)
            return [Hold(self._epoch)]
        self.stage = Stage.NOTHING
        self.agreed = self._next
        operation = max(answer.operation for answer in answers if isinstance(answer, Held))
        return [Switch(self._epoch, operation, self.agreed, self._made), *self._begin()]


@dataclass
class Turn:
    """A member's operations: which comes next, whether it must wait, which switches lie ahead."""

    health: Health
    operation: int = 0
    held: bool = False
    _epoch: int = 0
    _ahead: list[Switch] = field(default_factory=list)

    def hold(self, message: Hold) -> Held:
        """Stops before the next operation; the answer promises it."""
        self.held = True
        return Held(message.epoch, self.operation)

    def decision(self, message: Switch) -> None:
        """Accepts the decision; the member may continue."""
        self._ahead.append(message)
        self.held = False

    def start(self) -> list[Switch]:
        """Starts the next operation. Returns the switches due now, oldest first. The last is usually the health that
        holds, but not always, since a later agreement may be for an earlier operation. REQUIRES: not held."""
        due = [switch for switch in self._ahead if switch.operation <= self.operation]
        self._ahead = [switch for switch in self._ahead if switch.operation > self.operation]
        self.operation += 1
        for switch in due:
            if switch.epoch > self._epoch:
                self._epoch, self.health = switch.epoch, switch.health
        return due
