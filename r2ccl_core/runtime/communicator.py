"""Collectives on NumPy arrays in host memory, over the fault-tolerant transport.

    with Communicator(rank, size, root="10.0.0.1:7000") as comm:
        total = comm.all_reduce(gradients)

Calls may be started and awaited later (`start`), single messages go between two ranks (`send`, `recv`), and a group can
be split into smaller ones (`split`).

A `Communicator` runs any schedule. It makes the connections that a schedule needs when the schedule is first used (all
ranks together), lowers the schedule for the vector at hand, and keeps the executor for the next call.

Ranks fail together. The first rank that cannot continue tells the others, over the management network or over data NICs
if that is gone, and the collective ends on every rank with the same one-line error.
"""

import json
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import numpy as np

from r2ccl_core import native
from r2ccl_core.control.bootstrap import LONG_S, Bootstrap
from r2ccl_core.control.launchers import launched
from r2ccl_core.control.rendezvous import address_towards, free_root, parse_root
from r2ccl_core.control.ways import ways_to
from r2ccl_core.errors import R2cclError, UsageError
from r2ccl_core.host import variables
from r2ccl_core.host.forks import not_for_children
from r2ccl_core.host.layout import Layout, Location, this_host
from r2ccl_core.host.nics import Nic, checked_nics, find_nics
from r2ccl_core.model.collective import reduces
from r2ccl_core.model.health import Health
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.planning import calibration
from r2ccl_core.planning.selection import Cost, SchedulePolicy, read_policy, selection
from r2ccl_core.runtime import arguments, buffers
from r2ccl_core.runtime.connections import Connections
from r2ccl_core.runtime.nets import Nets
from r2ccl_core.runtime.nic_watch import NicWatch, OnNic
from r2ccl_core.runtime.peers import Peers, finish
from r2ccl_core.runtime.pending import Line, Pending
from r2ccl_core.runtime.programs import Asked, Programs
from r2ccl_core.runtime.switching import Notes, Switching
from r2ccl_core.runtime.turn import Turn

_BLOCKS = -1  # the tag of parts of a gather or scatter
_COST = struct.Struct("!dd")
_FAREWELL_S = 5.0
_TO_START = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "send_recv", "all_to_all", "gather", "scatter",
    "send", "recv", "run", "connect", "barrier", "exchange", "split",
)  # fmt: skip

# How the core says that a peer gave up. The peer knows why, and its own word may be on the way.
_HEARSAY = (
    "end closed the connection",
    "the other end lost this path",
    "the peer closed the stream",
    "Connection reset by peer",
)
_HEARSAY_S = 0.5


P = ParamSpec("P")
T = TypeVar("T")


def _alone(call: "Callable[Concatenate[Communicator, P], T]") -> "Callable[Concatenate[Communicator, P], T]":
    """Admits one thread at a time to `call`. In a forked child, where the turn may belong to a thread that does not
    exist, every call is refused without asking for the turn."""

    @wraps(call)
    def alone(self: "Communicator", /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._inherited:
            self._refuse_beside_begun(call.__name__)
        with nullcontext() if self._inherited else self._turn.of(call.__name__):
            return call(self, *args, **kwargs)

    return alone


class Registered(Protocol):
    """Memory that is registered until it is closed."""

    def close(self) -> None:
        """Gives it back."""


class Communicator:
    """One rank of a group.

    Every rank calls the same collectives in the same order, one at a time. A thread that calls while another thread's
    call runs, or before all started calls have ended, gets a `UsageError`. `abort`, `stats`, `start` and single
    messages may be called from any thread.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        root: str | None = None,
        *,
        nics: Sequence[Nic] | None = None,
        mode: int | None = None,
        options: Mapping[str, str | int] | None = None,
        policy: SchedulePolicy | None = None,
        timeout_s: float = 30.0,
        on_nic: OnNic | None = None,
    ) -> None:
        """Joins the group whose rank 0 listens at `root`; returns when all ranks have joined.

        `mode` (default: R2CC_MODE, else 2) is 0 fail-stop, 1 hot repair onto one back-up NIC, 2 Balance, 3 Balance and
        R2CC-AllReduce after a loss. `options` set the transport's R2CC_* parameters by name. `policy` selects the
        schedules (default: from the environment; the same on every rank). `on_nic` is called, on a separate thread,
        when a NIC of this rank is lost or held back and when it is back; this is also logged. Raises `UsageError` for
        bad arguments, and `TransportError` if ranks are missing after `timeout_s` or were refused.
        """
        self.rank, self.size = arguments.whole("rank", rank), arguments.whole("size", size)
        self._root, timeout_s = arguments.address(root), arguments.seconds("timeout_s", timeout_s)
        self._mode, self._options = _read_mode(mode), arguments.parameters(options)
        if "R2CC_MODE" in self._options:
            raise UsageError("options: R2CC_MODE: give mode= instead, which the schedules know, too")
        arguments.function("on_nic", on_nic)
        if policy is not None and not isinstance(policy, SchedulePolicy):
            raise UsageError(f"policy={policy!r}: give r2ccl_core.planning.selection.SchedulePolicy, or leave it out")
        self._policy = policy or read_policy(self._mode)
        self._closed = self._inherited = False
        self._release: weakref.finalize[..., Any] | None = None
        self._stop_following: weakref.finalize[..., Any] | None = None
        self._switching: Switching | None = None
        self._turn, self._line = Turn(), Line(f"r2ccl-rank{rank}")
        self._message_lines: dict[tuple[str, int, int], Line] = {}
        self._message_lock = threading.Lock()
        not_for_children(self)
        variables.warn_of_unknown(os.environ)
        chosen = find_nics() if nics is None else checked_nics(nics)
        # Mode 3 is a schedule over the transport of mode 2.
        self._nets = Nets(min(self._mode, 2), chosen, self._options)
        notes: Notes = Notes()
        try:
            # The cause closes the connections, and with them ends whatever waits for bytes.
            on_abort = partial(_shut, self._nets)
            self._bootstrap = Bootstrap(
                rank,
                size,
                root,
                timeout_s=timeout_s,
                give_up_s=self._nets.outer.give_up_ms / 1e3,
                on_abort=on_abort,
                on_note=lambda *note: notes.put(note),
                on_ask=partial(_why_ended, rank, self._nets),
            )
        except BaseException:
            self._nets.close()
            raise
        watch = NicWatch(rank, self._nets, on_nic)
        # A program that ends without close() must not end in the destructors of running threads.
        self._release = release = weakref.finalize(self, _release, watch, self._nets, self._bootstrap)
        try:
            health = self._agree_on_start(chosen)
        except BaseException:
            release()
            raise
        watch.begin()
        connections = Connections(self._nets, self._bootstrap)
        self._programs = Programs(rank, self._nets, connections, selection(self._policy))
        self._connections, self._health = connections, health
        self._switched_for = health  # the one at the last switch to another schedule
        self._peers, self._nics = Peers(self._nets, self._bootstrap), chosen
        self._calibrated = False
        self._scratch = np.empty(0, np.uint8)
        if self._policy.follows(health) and size > 1:
            # It must not keep this object alive.
            self._switching = Switching(self._nets, self._bootstrap, self._programs, health, notes)
            self._switching.begin()
            self._stop_following = weakref.finalize(self, self._switching.end)

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """Joins the group that the environment describes, as set by torchrun, mpirun, Slurm, or R2CC_RANK, R2CC_SIZE
        and R2CC_ROOT. Rank 0 listens at R2CC_ROOT, else at MASTER_ADDR:MASTER_PORT. `options` are those of the
        constructor."""
        rank, size, root = launched(os.environ)
        return cls(rank, size, root, **options)

    @_alone
    def all_reduce(self, send: np.ndarray, recv: np.ndarray | None = None, op: str = "sum") -> np.ndarray:
        """Combines `send` of all ranks element by element into `recv` (default: a new array) on every rank.

        `recv` may be `send` itself (in place). Both have one of `DTYPES` and equal shapes. `recv` must be contiguous; a
        `send` that is not is copied. Every operation propagates NaN, as NumPy's do. Raises `PeerLostError` if a peer is
        lost permanently, and `MismatchedCallError` if ranks call different things; the communicator cannot be used
        afterwards. All collectives below raise the same errors.
        """
        send, recv = self._checked("all_reduce", send, recv, op)
        return self._averaged(self._vector("all_reduce", send, recv, op), op)

    @_alone
    def all_gather(self, send: np.ndarray, recv: np.ndarray | None = None) -> np.ndarray:
        """Concatenates every rank's `send` in `recv`, in rank order. In place, `send` is this rank's block of
        `recv`. Like all collectives that do not reduce, it also moves the types of `MOVED`."""
        send, recv = self._checked("all_gather", send, recv)
        mine = buffers.block(recv, self.rank, self.size)
        if mine.ctypes.data != send.ctypes.data:
            mine[...] = send.reshape(-1)
        return self._vector("all_gather", recv, recv)

    @_alone
    def reduce_scatter(self, send: np.ndarray, recv: np.ndarray | None = None, op: str = "sum") -> np.ndarray:
        """Combines all ranks' `send`, and leaves this rank's block (of `size` equal ones) of the result in `recv`.
        `send` is not changed, except for that block in place.
        """
        send, recv = self._checked("reduce_scatter", send, recv, op)
        whole = self._vector("reduce_scatter", send, self._scratch_like(send), op)
        recv.reshape(-1)[...] = buffers.block(whole, self.rank, self.size)
        return self._averaged(recv, op)

    @_alone
    def broadcast(self, send: np.ndarray, recv: np.ndarray | None = None, root: int = 0) -> np.ndarray:
        """Copies the root's `send` to `recv` (default: in place) on every rank. Other ranks' `send` is not read."""
        if recv is None and isinstance(send, np.ndarray):
            buffers.check_result("broadcast", send, "send, where the result goes, ")
        send, recv = self._checked("broadcast", send, send if recv is None else recv, root=root)
        return self._vector("broadcast", send if self.rank == root else recv, recv, root=root)

    @_alone
    def reduce(
        self, send: np.ndarray, recv: np.ndarray | None = None, op: str = "sum", root: int = 0
    ) -> np.ndarray | None:
        """Like `all_reduce`, with the result on the root alone. Other ranks get None, and keep `recv` as it is."""
        buffers.check_arrays("reduce", send, recv)
        mine = self.rank == root
        send, recv = self._checked("reduce", send, recv if mine else self._scratch_like(send), op, root)
        result = self._vector("reduce", send, recv, op, root)
        return self._averaged(result, op) if mine else None

    @_alone
    def send_recv(self, send: np.ndarray, recv: np.ndarray | None = None) -> np.ndarray:
        """Sends `send` to the next rank, and receives the previous rank's into `recv`."""
        send, recv = self._checked("sendrecv", send, recv)
        if self.size == 1:
            recv[...] = send
        return self._vector("sendrecv", send, recv)

    @_alone
    def all_to_all(self, send: np.ndarray, recv: np.ndarray | None = None) -> np.ndarray:
        """Sends block r of `send`, one of `size` equal ones, to rank r, and receives rank r's block for this rank as
        block r of `recv`.
        """
        send, recv = self._checked("alltoall", send, recv)
        buffers.block(recv, self.rank, self.size)[...] = buffers.block(send, self.rank, self.size)
        return self._vector("alltoall", send, recv)

    @_alone
    def gather(self, send: np.ndarray, recv: np.ndarray | None = None, root: int = 0) -> np.ndarray | None:
        """Collects every rank's `send` on the root, in rank order: `recv` has shape (size, *send.shape) or as many
        elements. Other ranks' `recv` is not read, and they get None.
        """
        return self._root_and_others("gather", send, recv, root)

    @_alone
    def scatter(self, send: np.ndarray | None, recv: np.ndarray, root: int = 0) -> np.ndarray:
        """Sends block r of the root's `send`, one of `size` equal ones, to rank r's `recv`. Other ranks' `send` is not
        read.
        """
        self._root_and_others("scatter", recv, send, root)
        return recv

    def send(self, data: np.ndarray, to: int, tag: int = 0, timeout_s: float | None = None) -> None:
        """Sends `data` to the rank that receives it with `recv`, and returns when all of it has arrived. Messages of
        one tag stay in order. Raises the same errors as the collectives, and `TransportError` if it has not ended
        after `timeout_s`; it then continues, and `data` must not change.
        """
        limit_s = arguments.limit("timeout_s", timeout_s)
        self.isend(data, to, tag).wait(limit_s)

    def recv(self, into: np.ndarray, source: int, tag: int = 0, timeout_s: float | None = None) -> np.ndarray:
        """Receives the next message that `source` sends with `tag`, into an array of its data type and size. Raises
        `TransportError` if it has not ended after `timeout_s`; it then continues, and `into` may still change."""
        limit_s = arguments.limit("timeout_s", timeout_s)
        return self.irecv(into, source, tag).wait(limit_s)

    def isend(self, data: np.ndarray, to: int, tag: int = 0) -> Pending[None]:
        """Starts `send`. `data` must not change until it has ended."""
        self._check_peer("send", to, tag, data)
        data = data if data.flags.c_contiguous and data.flags.writeable else data.copy(order="C")

        def call() -> None:
            with self._together():
                finish(self._peers.send(data, to, tag))

        return self._message_line("send", to, tag).begin(call, partial(self.why_unsent, to))

    def why_unsent(self, to: int) -> str:
        """What explains that a send to that rank takes long, to be added to a line about it; empty if nothing does."""
        return self._peers.why_unsent(to)

    def irecv(self, into: np.ndarray, source: int, tag: int = 0) -> Pending[np.ndarray]:
        """Starts `recv`."""
        self._check_peer("recv", source, tag, into)
        if not (into.flags.c_contiguous and into.flags.writeable):
            raise UsageError(
                "recv: the array is not contiguous or may not be written to; give another and copy from it"
            )

        def call() -> np.ndarray:
            with self._together():
                finish(self._peers.receive(into, source, tag), into, f"rank {source}")
            return into

        return self._message_line("recv", source, tag).begin(call)

    def register(self, array: np.ndarray) -> "Registered":
        """Lets large messages go over RDMA from and into the memory of `array` without a copy, where the other rank
        has registered its own, too, unless either's R2CC_ZERO_COPY_BYTES is 0. It stays as it is until `close` of what
        is returned, when nothing that was begun uses it any more.
        """
        self._check_open("register")
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise UsageError("register: the array is not contiguous or may not be written to")
        registered: Registered = self._nets.outer.register(buffers.as_bytes(array))
        return registered

    def start(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
        """Starts `call`, a collective or a message of this communicator, after all calls that were started before:
        ``pending = comm.start(comm.all_reduce, array)``. It runs on a separate thread that does not hold the
        interpreter's lock while bytes move. Every rank starts the same calls in the same order; their arrays must not
        change until the call has ended.
        """
        self._check_open("start")
        name = getattr(call, "__name__", None)
        if getattr(call, "__self__", None) is not self or name not in _TO_START:
            given = getattr(call, "__qualname__", repr(call))
            remedy = "give a method that communicates, of this communicator: comm.start(comm.all_reduce, array)"
            raise UsageError(f"start of {given}: {remedy}")
        arguments.fit(f"start of {name}", call, args, kwargs)
        begun: Pending[T] = self._line.begin(partial(call, *args, **kwargs))
        return begun

    @_alone
    def split(self, color: int | None, key: int = 0, timeout_s: float = 30.0) -> "Communicator | None":
        """Makes a communicator of the ranks that give the same `color`, ordered by `key`, then by their ranks here;
        returns None on a rank that gives None. Every rank calls it. Both communicators may be used side by side, and
        each is closed separately.
        """
        if color is not None:
            color = arguments.whole("color", color)
        key, timeout_s = arguments.whole("key", key), arguments.seconds("timeout_s", timeout_s)
        told = (color, key, self._meeting_place() if color is not None else "")
        parts = [json.loads(part) for part in self._bootstrap_exchange(json.dumps(told).encode())]
        members = sorted((other[1], rank) for rank, other in enumerate(parts) if other[0] == color)
        if color is None:
            return None
        ranks = [rank for _, rank in members]
        # One process has one status file.
        options = {**self._options, "R2CC_STATUS_DIR": ""}
        return Communicator(
            ranks.index(self.rank), len(ranks), parts[ranks[0]][2], nics=self._nics, mode=self._mode, options=options,
            policy=self._policy, timeout_s=timeout_s,
        )  # fmt: skip

    def schedule(self, collective: str, nbytes: int, root: int = 0) -> Schedule:
        """The schedule that `collective` runs under the present health; `nbytes` of a rank's larger array."""
        self._check_open(collective)
        arguments.rank_of("root", root, self.size)
        return self._programs.schedule(Asked(collective, nbytes, root, 0), self._health)

    @_alone
    def connect(self, schedule: Schedule) -> None:
        """Makes the connections of `schedule` now, on every rank, instead of when it is first run."""
        self._begin("connect")
        with self._together():
            self._connections.ensure(schedule)

    @_alone
    def run(self, schedule: Schedule, send: np.ndarray, recv: np.ndarray | None = None, op: str = "sum") -> np.ndarray:
        """Runs `schedule` of an AllReduce, which must be the same on every rank and pass `verify` with `SLOTS` slots;
        otherwise like `all_reduce`."""
        send, recv = self._checked("all_reduce", send, recv, op)
        if (schedule.nranks, schedule.collective) != (self.size, "all_reduce"):
            raise UsageError(f"schedule {schedule.name} is no AllReduce of {self.size} ranks")
        self._enter("all_reduce", send, op)
        return self._averaged(self._execute(schedule, send, recv, op), op)

    @_alone
    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self._begin("barrier")
        self._bootstrap.barrier()

    @_alone
    def exchange(self, data: bytes) -> list[bytes]:
        """Returns what every rank gave, by rank. For small agreements, over the management network."""
        data = arguments.octets("exchange", data)
        self._begin("exchange")
        return self._bootstrap.exchange(data)

    def abort(self, reason: str) -> str:
        """Ends the group on every rank because of `reason`; returns the cause. May be called from any thread."""
        if self._inherited:
            self._check_open("abort")
        return self._bootstrap.abort(f"rank {self.rank}: {reason}")

    def stats(self) -> dict[str, Any]:
        """Returns the NICs with their bytes and states, the core's event log, and counts of replayed and duplicate
        chunks. With a schedule that follows losses, also the measured costs of a message and of a byte. ``group_ways``
        says over which network this rank reaches each other rank for agreements.
        """
        if self._inherited:
            self._check_open("stats")
        stats = {"rank": self.rank, **self._nets.stats(), "mode": self._mode, "algo": self._policy.algo}
        stats["group_ways"] = dict(self._bootstrap.routes())
        if self._switching is not None:
            stats["cost"] = self._programs.cost._asdict() if self._calibrated else None
            stats["events"] = sorted([*stats["events"], *self._switching.events], key=lambda event: event["t_ns"])
        return stats

    def close(self) -> None:
        """Leaves the group; waits for the others for a few seconds if necessary. Idempotent. Calls that still run are
        refused, except those of a group that is over: they end at once, and are waited for."""
        if self._inherited:
            self._closed = True
            return  # the group is the parent's
        over = self._bootstrap.cause is not None
        if over:
            self._line.close(_FAREWELL_S)
        self._refuse_beside_begun("close")
        with self._turn.of("close", _FAREWELL_S if over else 0.0):
            self._leave()

    def _leave(self) -> None:
        self._closed = True
        if self._release is not None and not self._release.alive:
            return  # this rank has left it before
        for line in (self._line, *self._message_lines.values()):
            line.close(_FAREWELL_S)
        # A peer that still waits for its last acknowledgement must not see this end closed.
        self._bootstrap.farewell(_FAREWELL_S)
        if self._switching is not None:
            self._switching.end()
        self._programs.clear()
        self._peers.clear()
        if self._release is not None:
            self._release()

    def abandon(self) -> None:
        """Abandons the group in a forked child, because it belongs to the parent. Ends nothing that waits for
        threads."""
        self._closed = self._inherited = True
        for finalizer in (self._release, self._stop_following):
            if finalizer is not None:
                finalizer.detach()
        native.keep_forever(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "over" if self._bootstrap.cause is not None else "open"
        nics = " ".join(nic["name"] for nic in self._nets.nics())
        return f"<Communicator rank {self.rank} of {self.size}, mode {self._mode}, NICs {nics}, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self._inherited:
            self.abort(_one_line(error))
        self.close()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Turns an error of one rank into an error of all: it becomes the cause, unless an earlier one exists."""
        try:
            yield
        except R2cclError as error:
            own = f"rank {self.rank}: {error}"
            group = self._bootstrap
            told = group.ask_cause(_HEARSAY_S) if _is_hearsay(own) else group.cause
            cause = told or group.abort(own, type(error))
            raise (type(error)(cause) if cause == own else group.error()) from error
        except BaseException as error:
            self.abort(_one_line(error))
            raise

    def _agree_on_start(self, nics: Sequence[Nic]) -> Health:
        """Exchanges which rank is where, and the health in which all begin. Refuses ranks that would choose different
        schedules."""
        mine = Location(this_host(nics), tuple(nics))
        told = self._bootstrap.exchange(f"R2CC_MODE={self._mode}, {self._policy}\n{mine.encode()}".encode(), "start")
        policies, locations = zip(*(part.decode().split("\n", 1) for part in told), strict=True)
        for rank, other in enumerate(policies):
            if other != policies[0]:
                raise UsageError(f"the ranks' policies differ: rank 0 has {policies[0]}, rank {rank} has {other}")
        taken = [Location.decode(location) for location in locations]
        layout = Layout.of(taken)
        self._bootstrap.learn(
            {
                rank: ways_to(address, nics, taken[rank].nics, layout.together(self.rank, rank))
                for rank, address in self._bootstrap.management().items()
            }
        )
        with self._together():
            self._nets.place(self.rank, layout)
        return Health.whole([len(location.nics) for location in taken[:: layout.gpus]], layout.gpus)

    def _begin(self, what: str) -> None:
        """Announces the next call, which is the same on every rank."""
        self._check_open(what)
        self._bootstrap.enter(what)

    def _bootstrap_exchange(self, data: bytes) -> list[bytes]:
        self._begin("split")
        return self._bootstrap.exchange(data, "split")

    def _meeting_place(self) -> str:
        """Where other ranks would meet this one if it were rank 0 of another group: its address on the management
        network."""
        if self.size == 1 or self._root is None:
            return free_root()
        host, port = parse_root(self._root)
        if self.rank == 0:
            return free_root(host if host not in ("", "0.0.0.0", "::") else "127.0.0.1")
        return free_root(address_towards(host, port))

    def _check_peer(self, what: str, rank: int, tag: int, data: np.ndarray) -> None:
        self._check_open(what)
        buffers.check_array(what, "data" if what == "send" else "into", data)
        arguments.whole("tag", tag)
        if data.dtype.hasobject:
            raise UsageError(f"{what} of Python objects: their memory means nothing to another rank; convert them")
        if not 0 <= arguments.whole(f"{what}: rank", rank) < self.size or rank == self.rank:
            raise UsageError(
                f"{what} with rank {rank}: give a rank of 0 to {self.size - 1} that is not this one, {self.rank}"
            )

    def _message_line(self, way: str, rank: int, tag: int) -> Line:
        """The thread of these messages, so that none waits for messages of another rank, tag or direction."""
        with self._message_lock:
            name = f"r2ccl-rank{self.rank}-{way}-{rank}-{tag}"
            return self._message_lines.setdefault((way, rank, tag), Line(name))

    def _root_and_others(self, what: str, part: np.ndarray, whole: np.ndarray | None, root: int) -> np.ndarray | None:
        """Distributes or collects the parts of the root's array, as single messages."""
        arguments.rank_of("root", root, self.size)
        buffers.check_arrays(what, part, whole)
        into = what == "gather"
        if self.rank == root:  # before it takes part: a call that is refused is none, so the next one does not fit
            whole = self._root_array(what, part, whole)
        self._enter(what, part, root=root)
        if self.rank != root or whole is None:
            self._all_of([self.isend(part, root, _BLOCKS) if into else self.irecv(part, root, _BLOCKS)])
            return None
        blocks = [buffers.block(whole, rank, self.size) for rank in range(self.size)]
        self._peers.listen([rank for rank in range(self.size) if into and rank != root], _BLOCKS)
        begun: list[Pending[Any]] = []
        for rank, block in enumerate(blocks):
            if rank == root:
                target, source = (block, part) if into else (part, block)
                target.reshape(-1)[...] = source.reshape(-1)
            else:
                begun.append(self.irecv(block, rank, _BLOCKS) if into else self.isend(block, rank, _BLOCKS))
        self._all_of(begun)
        return whole

    def _all_of(self, begun: Sequence[Pending[Any]]) -> None:
        """Waits for messages of a collective, and reports if that takes long: another rank may be in another call."""
        for pending in begun:
            if not pending.done(LONG_S):
                self._bootstrap.wait_long()
            pending.wait()

    def _root_array(self, what: str, part: np.ndarray, whole: np.ndarray | None) -> np.ndarray:
        if whole is None:
            if what == "scatter":
                raise UsageError("scatter: the root must give what it scatters")
            whole = np.empty((self.size, *part.shape), part.dtype)
        if whole.size != part.size * self.size or whole.dtype != part.dtype or not whole.flags.c_contiguous:
            fits = f"{part.size * self.size} contiguous elements of {part.dtype}"
            raise UsageError(f"{what}: the root's array must have {fits}, a block for every rank")
        return whole

    def _refuse_beside_begun(self, what: str) -> None:
        if count := self._line.pending:
            began = f"{count} call{'s' * (count > 1)} begun by start"
            raise UsageError(f"{what} while {began} may still run: wait for them first, or start this one, too")

    def _check_open(self, what: str) -> None:
        if self._inherited:
            raise UsageError(f"{what} in a forked child, on its parent's communicator; make a new one")
        if self._closed:
            raise UsageError(f"{what} on a communicator that is closed; make a new one")

    def _checked(
        self, collective: str, send: np.ndarray, recv: np.ndarray | None, op: str = "sum", root: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """`send`, or a contiguous copy of it, and `recv`, or a new array in its place, if both are valid; else
        `UsageError`."""
        self._check_open(collective)
        arguments.rank_of("root", root, self.size)
        buffers.check_arrays(collective, send, recv)
        if recv is None:
            recv = buffers.result_like(collective, send, self.size)
        buffers.check(collective, send, recv, op, self.rank, self.size)
        return send if send.flags.c_contiguous else send.copy(order="C"), recv

    def _averaged(self, sums: np.ndarray, op: str) -> np.ndarray:
        if op == "avg":
            buffers.divide(sums, self.size)
        return sums

    def _vector(
        self, collective: str, source: np.ndarray, result: np.ndarray, op: str = "sum", root: int = 0
    ) -> np.ndarray:
        """Runs the selected schedule from `source` into `result`, which have equal sizes."""
        self._enter(collective, source, op if reduces(collective) else "", root)
        if self._switching is not None and self._policy.plans and not self._calibrated:
            with self._together():
                self._calibrate()
        source = buffers.for_core(source)
        if self._switching is None:
            schedule = self.schedule(collective, source.nbytes, root)
        else:
            schedule = self._next_schedule(self._switching, collective, source, root)
        self._execute(schedule, source, buffers.for_core(result), op)
        return result

    def _execute(self, schedule: Schedule, source: np.ndarray, result: np.ndarray, op: str) -> np.ndarray:
        if not source.flags.writeable:
            source = source.copy()  # the core takes what it may write to
        with self._together():
            executor = self._programs.executor(schedule, source.size)
            what = buffers.name_of(source.dtype), op, schedule.collective, schedule.root, self._bootstrap.calls
            executor.run(buffers.as_bytes(source), buffers.as_bytes(result), *what, self._bootstrap.wait_long)
        return result

    def _enter(self, collective: str, source: np.ndarray, op: str = "", root: int = 0) -> None:
        where = f" with root {root}" if root else ""
        how = f" ({op})" if op else ""
        count = source.size // self.size if collective == "all_gather" else source.size  # as the program gave it
        self._begin(f"{collective} of {count} {buffers.name_of(source.dtype)}{how}{where}")

    def _scratch_like(self, array: np.ndarray) -> np.ndarray:
        """A reusable array of the same size: fresh memory costs as much as a fast network."""
        if self._scratch.size < array.nbytes:
            self._scratch = np.empty(array.nbytes, np.uint8)
        return self._scratch[: array.nbytes].view(array.dtype).reshape(array.shape)

    def _next_schedule(self, switching: Switching, collective: str, send: np.ndarray, root: int) -> Schedule:
        """The schedule of the next operation, whose number decides which health holds.

        The first operation whose steps change logs the switch. Some collectives and sizes keep theirs whatever is lost,
        and a log that says otherwise would make a new schedule the reason for whatever is faster later.
        """
        asked = Asked(collective, send.nbytes, root, send.size)
        begin_s = time.perf_counter()
        with self._together():
            self._programs.remember(asked)
            self._health = switching.start()
            schedule = self._programs.schedule(asked, self._health)
            before = self._switched_for
            if before != self._health and schedule.programs is not self._programs.schedule(asked, before).programs:
                self._switched_for = self._health
                self._programs.executor(schedule, send.size)
                took_ms = (time.perf_counter() - begin_s) * 1e3
                switching.log("switched", f"{schedule.name} in {took_ms:.1f} ms: {self._health}")
        return schedule

    def _calibrate(self) -> None:
        """Measures the cost of messages and bytes, by all ranks over their rings."""
        rings = selection(SchedulePolicy(tree_bytes=0))

        def run(data: np.ndarray) -> np.ndarray:
            return self._execute(rings("all_reduce", data.nbytes, self._health, Cost()), data, data, "sum")

        own = _COST.pack(*calibration.measure(run, self.size))
        measured = [_COST.unpack(part) for part in self._bootstrap.exchange(own, "calibrate")]
        self._programs.cost = calibration.agreed([(alpha, byte) for alpha, byte in measured], max(self._health.nics))
        self._calibrated = True


def _one_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_hearsay(reason: str) -> bool:
    return any(words in reason for words in _HEARSAY)


def _why_ended(rank: int, nets: Nets) -> str:
    """Why a connection of this rank ended for good, of which the others know only that it did; empty if none has."""
    ends = (event["detail"] for event in nets.stats()["events"] if event["kind"] == "failed")
    return next((f"rank {rank}: {reason}" for reason in ends if not _is_hearsay(reason)), "")


def _shut(nets: Nets, reason: str) -> None:
    nets.close()


def _release(watch: NicWatch, nets: Nets, bootstrap: Bootstrap) -> None:
    watch.end()
    nets.close()
    bootstrap.close()


def _read_mode(mode: int | None) -> int:
    text = (os.environ.get("R2CC_MODE") or "2") if mode is None else str(mode)
    if text not in ("0", "1", "2", "3"):
        modes = "0 (fail-stop), 1 (hot repair), 2 (Balance) or 3 (Balance and R2CC-AllReduce)"
        raise UsageError(f"R2CC_MODE={text}: use {modes}")
    return int(text)
