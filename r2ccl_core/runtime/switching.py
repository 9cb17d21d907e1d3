"""One rank's part in agreeing on the health of all NICs: a thread that runs beside the collectives.

The thread reads the state of this rank's NICs, reports changes to rank 0, answers the messages of the agreement (on
rank 0 it also runs the coordinator), and prepares the connections and executors that will be needed. The thread of the
collectives calls `start` before each operation, which costs one lock if nothing has changed.
"""

import queue
import threading
import time
from typing import Any

from r2ccl_core.control.agreement import Call, Coordinator, Hold, Message, Offers, Report, Switch, Turn, Wire, Wired
from r2ccl_core.control.agreement_codec import decode, encode
from r2ccl_core.control.bootstrap import Bootstrap
from r2ccl_core.errors import R2cclError
from r2ccl_core.model.health import Health, OwnNics
from r2ccl_core.runtime.connections import Wiring
from r2ccl_core.runtime.nets import Nets
from r2ccl_core.runtime.programs import Ahead, Programs

_LOOK_S = 0.01
_LEAVE_S = 2.0

Notes = queue.SimpleQueue[tuple[int, bytes] | None]


class Switching:
    """Follows the health from `begin` to `end`."""

    def __init__(
        self,
        nets: Nets,
        bootstrap: Bootstrap,
        programs: Programs,
        health: Health,
        notes: Notes,
    ) -> None:
        self._nets, self._bootstrap, self._programs = nets, bootstrap, programs
        self._own = OwnNics(health.nics[bootstrap.rank // health.gpus])
        self._said = Report(())
        self._notes = notes
        self._coordinator = Coordinator(health, programs.missing) if bootstrap.rank == 0 else None
        self._changed = threading.Condition()  # guards what follows
        self._turn = Turn(health)
        self._called: tuple[Call, Wiring] | None = None
        self._ahead: dict[int, Ahead] = {}  # by epoch, until the switch
        self._events: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._follow, name="r2ccl-switching", daemon=True)

    def begin(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The switches, in the form of the core's events."""
        return list(self._events)

    def log(self, kind: str, detail: str) -> None:
        """Adds an event in the form of the core's."""
        self._events.append({"t_ns": time.time_ns(), "kind": kind, "nic": "", "peer": "", "detail": detail})

    def start(self) -> Health:
        """Starts the next operation, after the decision if this rank is held, and returns the health that holds for it.
        Raises the group's error if the group has ended."""
        with self._changed:
            while self._turn.held:
                self._changed.wait(_LOOK_S)
                if self._bootstrap.cause is not None:
                    raise self._bootstrap.error()
            due = self._turn.start()
        for switch in due:
            ahead = self._ahead.pop(switch.epoch, None)
            if ahead is not None and switch.made:
                self._programs.adopt(ahead)
        return self._turn.health

    def end(self) -> None:
        """Stops the thread. Idempotent."""
        self._notes.put(None)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_LEAVE_S)
        self._ahead.clear()

    def _follow(self) -> None:
        look_s = 0.0
        while True:
            try:
                note = self._notes.get(timeout=max(0.0, look_s - time.monotonic()))
                if note is None:
                    return
                self._take(*note)
            except queue.Empty:
                look_s = time.monotonic() + _LOOK_S
                self._look()
            except Exception as error:  # whatever it is: without this thread no loss would be followed any more
                known = isinstance(error, R2cclError | ValueError)
                text = str(error) if known else f"{type(error).__name__}: {error}"
                self._bootstrap.abort(f"rank {self._bootstrap.rank}: {text}")
                return

    def _look(self) -> None:
        """Reports what has changed. Before the first operation is running, paths are still being made."""
        if self._turn.operation == 0 or self._bootstrap.cause is not None:
            return
        lost = self._own.update(time.monotonic(), self._nets.nics())
        report = Report(lost, self._own.works)
        if report != self._said:
            self._said = report
            self._say(report)

    def _take(self, rank: int, data: bytes) -> None:
        message = decode(data)
        if isinstance(message, Call | Wire | Hold | Switch):
            self._answer(message)
        elif self._coordinator is not None:
            for told in self._coordinator.take(rank, message):
                self._bootstrap.note_all(encode(told))

    def _answer(self, message: Message) -> None:
        """Reacts to the coordinator's message as a member."""
        if isinstance(message, Call):
            wiring = Wiring(self._nets, self._bootstrap, message.connections)
            self._called = message, wiring
            self._say(Offers(message.epoch, tuple(wiring.handles.items())))
        elif isinstance(message, Wire):
            self._say(Wired(message.epoch, self._wire(message)))
        elif isinstance(message, Hold):
            with self._changed:
                held = self._turn.hold(message)
            self._say(held)
        elif isinstance(message, Switch):
            with self._changed:
                self._turn.decision(message)
                self._changed.notify_all()
            self.log("agreed", f"operation {message.operation}: {message.health}")

    def _wire(self, message: Wire) -> bool:
        """Makes connections; returns whether it succeeded. If not, all ranks connect when the schedule is first run,
        and whatever prevents that is an error then."""
        if self._called is None or self._called[0].epoch != message.epoch:
            raise ValueError(f"rank {self._bootstrap.rank} was not called for {message}")
        call, wiring = self._called
        try:
            ends = wiring.finish(dict(message.handles))
        except R2cclError as error:
            wiring.close()
            self.log("not_wired", str(error))
            return False
        self._ahead[message.epoch] = self._programs.prepare(call.health, wiring, ends)
        return True

    def _say(self, message: Message) -> None:
        self._bootstrap.note(encode(message))
