"""Small agreements between ranks, and the cause of failure that all of them share.

The bootstrap carries connection handles and barriers over the management network, or over data NICs if that network is
gone (`star.py`). It carries no data. In each agreement, ranks GIVE their part to rank 0, which answers with the RESULT.
Agreements are numbered, and the n-th of every rank is the same one. A NOTE needs no agreement. A TELL from one rank to
another goes through rank 0, which keeps it until the recipient asks for it.

A rank that has waited for long announces AT which of its calls it is, so that ranks that called different things find
out. The first failure that reaches rank 0 (a rank's own FAILED, or a rank that is gone without LEAVE) is the cause.
Every rank receives the same cause: one line, and the kind of error to raise. A rank whose connections were ended by
others ASKs all for it.
"""

import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self
from zlib import crc32

from r2ccl_core.control.rendezvous import Place, check_rank, greet, parse_root, welcome
from r2ccl_core.control.resume import TICKET_BYTES, Keys
from r2ccl_core.control.star import Star
from r2ccl_core.control.ways import Way, listen
from r2ccl_core.errors import MismatchedCallError, PeerLostError, R2cclError, TransportError, UsageError
from r2ccl_core.host.forks import not_for_children

_GIVE, _RESULT, _FAILED, _LEAVE, _NOTE, _AT, _TELL, _ASK = range(1, 9)
_LENGTH = struct.Struct("!Q")
_CAUSE_PATIENCE_S = 2.0
LONG_S = 2.0
_CLOSE = "close"
_CALLS = 0xFFFFFFFF  # a frame has 32 bits for a number
_KINDS: Sequence[type[R2cclError]] = (PeerLostError, MismatchedCallError, TransportError)
"""The errors that every rank raises unchanged, by the number of their frames; all others count as the loss of a
peer."""
_OF_THE_PARENT = "a forked child is not in its parent's group; it can join one of its own"


class Bootstrap:
    """One rank's place in the group. Every rank calls the same agreements in the same order, from one thread; `abort`
    may come from any."""

    def __init__(
        self,
        rank: int,
        size: int,
        root: str | None = None,
        *,
        timeout_s: float = 30.0,
        patience_s: float = 600.0,
        give_up_s: float = 10.0,
        secret: str | None = None,
        on_abort: Callable[[str], None] = lambda reason: None,
        on_note: Callable[[int, bytes], None] = lambda rank, data: None,
        on_ask: Callable[[], str] = str,
    ) -> None:
        """Connects all ranks; raises `TransportError` if some are missing after `timeout_s`.

        `patience_s` is how long an agreement waits for the last rank. `give_up_s` is how long a rank may be silent over
        every network before it counts as gone (at least `reach.LEAST_PATIENCE_S`). `secret` (default: R2CC_SECRET)
        keeps strangers out. `on_abort` is called once with the cause, on the thread that learns it first. `on_note` is
        called with each note and the rank that sent it, on any thread; it must not wait. Nor must `on_ask`, which says
        why this rank cannot go on, or nothing if it can: for others that ask (`ask_cause`).
        """
        check_rank(rank, size)
        self.rank, self.size = rank, size
        self._patience_s = patience_s
        self._on_abort, self._on_note, self._on_ask = on_abort, on_note, on_ask
        self._changed = threading.Condition()  # guards what follows
        self._gathering = 0
        self._given: dict[int, bytes] = {}  # rank 0: parts of the gathering under way
        self._results: dict[int, list[bytes]] = {}
        self._left: set[int] = set()
        self._told: dict[tuple[int, bytes], bytes] = {}  # by who told it, and its name
        self._at: dict[int, tuple[int, str]] = {}  # rank 0: the last call at which a rank waited for long
        self._cause: str | None = None
        self._kind: type[R2cclError] = PeerLostError  # of the cause
        self._deciding = threading.RLock()  # taken before the former
        self._decided: str | None = None
        self._closed = False
        self._call = 0, ""  # number and name, of the one thread
        self._history = 0  # digest of all calls
        self._star: Star | None = None
        not_for_children(self)
        if size > 1:
            self._meet(root, timeout_s, give_up_s, secret)

    def _meet(self, root: str | None, timeout_s: float, give_up_s: float, secret: str | None) -> None:
        listener = listen()
        try:
            place = _place(self.rank, self.size, root, secret, listener.getsockname()[1])
            ticket, failure = os.urandom(TICKET_BYTES), ""
            if self.rank == 0:
                met, failure = welcome(place, timeout_s, ticket)
            else:
                met = {}
                met[0], ticket = greet(place, timeout_s)
        except BaseException:
            listener.close()
            raise
        keys = Keys(ticket, place.secret)
        self._star = Star(self.rank, met, listener, keys, give_up_s, self._take, self._lose, self._fail)
        self._star.start()
        if failure:
            # Those who came are told what rank 0 knows.
            self.abort(failure, TransportError)
            self.close()
            raise TransportError(failure)

    @property
    def cause(self) -> str | None:
        """Why the group is over, or None."""
        return self._cause

    def error(self) -> R2cclError:
        """The cause as the error that every rank raises. REQUIRES: there is one."""
        return self._kind(self._cause)

    def management(self) -> Mapping[int, str]:
        """The management-network addresses of the ranks that this one has streams to."""
        return self._star.management() if self._star is not None else {}

    def learn(self, ways: Mapping[int, Sequence[Way]]) -> None:
        """The ways by which those ranks can be reached, the management network first."""
        if self._star is not None:
            self._star.learn(ways)

    def routes(self) -> Mapping[int, str]:
        """The way by which each of them is reached now."""
        return self._star.routes() if self._star is not None else {}

    def ask_cause(self, timeout_s: float) -> str | None:
        """The cause, for which all ranks are asked: one that waits in an agreement does not notice that connections
        have failed which it does not use. `None` if nobody knows of one within `timeout_s`."""
        if self._star is not None and self._cause is None:
            if self.rank == 0:
                self._ask_all()
            else:
                self._star.send(0, _ASK, 0, b"")
        return self.await_cause(timeout_s)

    def await_cause(self, timeout_s: float) -> str | None:
        """The cause, which may arrive within `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._cause is not None, timeout_s)
        return self._cause

    def exchange(self, data: bytes, what: str = "exchange") -> list[bytes]:
        """What every rank gave, by rank. If ranks are at something other than `what` in the same agreement, they are
        out of step, which is an error on every rank."""
        if self._star is None:
            return [data]
        return self._await(self._give(data, what), what)

    def barrier(self, what: str = "barrier") -> None:
        """Returns when every rank has called it."""
        self.exchange(b"", what)

    def enter(self, what: str) -> None:
        """Announces this rank's next call, `what`, which is the same on every rank."""
        self._call = self._call[0] + 1, what
        self._history = crc32(what.encode(), self._history)

    @property
    def calls(self) -> int:
        """How many calls this rank has entered."""
        return self._call[0]

    def wait_long(self) -> None:
        """Reports that this rank has waited for long in its call. If another rank reports the same of a different call,
        the group ends: neither call could ever complete. Any thread.
        """
        number, what = self._call
        if self._star is None or not what:
            return
        if self.rank == 0:
            self._compare(0, number & _CALLS, what)
        else:
            self._star.send(0, _AT, number & _CALLS, what.encode())

    def note(self, data: bytes) -> None:
        """Sends something to rank 0, outside of any agreement. Any thread."""
        if self._star is None or self.rank == 0:
            self._on_note(0, data)
        else:
            self._star.send(0, _NOTE, 0, data)

    def note_all(self, data: bytes) -> None:
        """Rank 0: sends something to every rank, itself included. Any thread."""
        if self._star is not None:
            self._star.send_all(_NOTE, 0, data)
        self._on_note(0, data)

    def tell(self, rank: int, name: bytes, data: bytes) -> None:
        """Sends `rank` something that it can `hear` by its name. Any thread."""
        if self._star is None or rank == self.rank:
            self._keep(self.rank, name, data)
        elif self.rank == 0:
            self._star.send(rank, _TELL, 0, _pack((name, data)))
        else:
            self._star.send(0, _TELL, rank, _pack((name, data)))

    def hear(self, rank: int, name: bytes, timeout_s: float) -> bytes:
        """What `rank` tells this one under `name`, once; waits for it. Raises `TransportError` if it is late, and the
        group's cause. Any thread."""
        with self._changed:
            self._changed.wait_for(lambda: (rank, name) in self._told or self._cause is not None, timeout_s)
            if (rank, name) in self._told:
                return self._told.pop((rank, name))
        if self._cause is not None:
            raise self.error()
        raise TransportError(f"rank {rank} told rank {self.rank} nothing of {name.decode()} for {timeout_s:g} s")

    def last_told(self, rank: int, name: bytes) -> bytes:
        """What `rank` told last under `name`, which stays to be looked at again; empty if nothing. Any thread."""
        with self._changed:
            return self._told.get((rank, name), b"")

    def farewell(self, patience_s: float) -> None:
        """A last barrier that does not insist: it ends after `patience_s`, or when the group is over."""
        if self._star is None or self._cause is not None:
            return
        number = self._give(b"", _CLOSE)
        with self._changed:
            self._changed.wait_for(lambda: self._over(number), patience_s)

    def abort(self, reason: str, kind: type[R2cclError] = PeerLostError) -> str:
        """Ends the group because of `reason` and returns the cause: an earlier reason if there is one. `kind` is the
        error that other ranks raise."""
        kind, reason = kind if kind in _KINDS else PeerLostError, _one_line(reason)
        if self._star is not None and self.rank != 0 and self._cause is None and 0 not in self._left:
            self._star.send(0, _FAILED, _KINDS.index(kind), reason.encode())
            self.await_cause(_CAUSE_PATIENCE_S)
        return self._decide(reason, kind)

    def close(self) -> None:
        """Leaves the group. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
        if self._star is not None:
            self._star.send_all(_LEAVE, 0, b"")
            self._star.close()

    def abandon(self) -> None:
        """In a forked child: releases the parent's place."""
        self._closed = True
        self._cause = _OF_THE_PARENT
        # A thread that the child does not have may hold them.
        self._changed, self._deciding = threading.Condition(), threading.RLock()
        if self._star is not None:
            self._star.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort(f"rank {self.rank}: {type(error).__name__}: {error}")
        self.close()

    def _give(self, data: bytes, what: str) -> int:
        """Gives this rank's part of the next agreement; returns its number."""
        assert self._star is not None
        self._gathering += 1
        # Who is about to leave may have been elsewhere; the others must have made the same calls.
        history, where = (0, what) if what == _CLOSE else (self._history, self._call[1] or what)
        part = _pack((where.encode(), what.encode(), history.to_bytes(4), data))
        if self.rank == 0:
            self._take_part(0, self._gathering, part)
        else:
            self._star.send(0, _GIVE, self._gathering, part)
        return self._gathering

    def _over(self, number: int) -> bool:
        return number in self._results or self._cause is not None or 0 in self._left

    def _await(self, number: int, what: str) -> list[bytes]:
        """The agreement's result; raises the cause instead if there is one."""
        with self._changed:
            soon = self._changed.wait_for(lambda: self._over(number), min(LONG_S, self._patience_s))
        if not soon:
            self.wait_long()
        with self._changed:
            in_time = self._changed.wait_for(lambda: self._over(number), max(0.0, self._patience_s - LONG_S))
            if number in self._results:
                return self._results.pop(number)
            late = sorted(set(range(self.size)) - set(self._given)) if self.rank == 0 else [0]
        reason = f"rank {self.rank} is at {what!r}, but rank 0 has left the group"
        if not in_time:
            reason = f"rank {self.rank}: no word from ranks {late} for {self._patience_s:g} s ({what})"
        if self._cause is None:
            self.abort(reason)
        raise self.error() if self._cause is not None else PeerLostError(reason)

    def _take_part(self, rank: int, number: int, part: bytes) -> None:
        """Rank 0: one rank's part; the last one produces the result."""
        with self._changed:
            self._given[rank] = part
            parts = [self._given[r] for r in range(self.size)] if len(self._given) == self.size else []
            if parts:
                self._given.clear()
        if parts:
            self._finish_gathering(number, parts)
        else:
            self._miss_leavers()

    def _finish_gathering(self, number: int, parts: list[bytes]) -> None:
        if self._decided is not None:
            return  # a rank may give its part and then hear the cause; the others raise it, too, however late they look
        told = [tuple(_unpack(part)) for part in parts]
        for rank, other in enumerate(told):
            if why := _out_of_step(told[0][:-1], other[:-1], rank):
                self._decide(f"{why}: the ranks lost step", MismatchedCallError)
                return
        values = [one[-1] for one in told]
        assert self._star is not None
        self._star.send_all(_RESULT, number, _pack(values))
        self._deliver(number, values)

    def _miss_leavers(self) -> None:
        """Rank 0: an agreement that a rank has left can never be complete."""
        with self._changed:
            missed = sorted(self._left - set(self._given)) if self._given else []
        if missed:
            self._decide(f"rank {missed[0]} has left the group while others wait for it")

    def _take(self, rank: int, kind: int, number: int, body: bytes) -> None:
        """Processes one frame of `rank`, on the watcher's thread."""
        if kind == _GIVE:
            self._take_part(rank, number, body)
        elif kind == _RESULT:
            self._deliver(number, list(_unpack(body)))
        elif kind == _FAILED:
            self._decide(body.decode("utf-8", "replace"), _KINDS[number] if number < len(_KINDS) else PeerLostError)
        elif kind == _NOTE:
            self._on_note(rank, body)
        elif kind == _TELL:
            name, data = _unpack(body)
            if self.rank != 0:
                self._keep(number, name, data)
            elif number == 0:
                self._keep(rank, name, data)
            elif self._star is not None and number < self.size:
                self._star.send(number, _TELL, rank, body)
        elif kind == _ASK and self.rank == 0:
            self._ask_all()
        elif kind == _ASK:
            self._answer()
        elif kind == _AT:
            self._compare(rank, number, body.decode("utf-8", "replace"))
        elif kind == _LEAVE:
            with self._changed:
                self._left.add(rank)
                self._changed.notify_all()
            self._miss_leavers()
            if self._star is not None:
                self._star.let_go(rank)

    def _ask_all(self) -> None:
        """Rank 0: asks every rank why it cannot go on."""
        assert self._star is not None
        self._star.send_all(_ASK, 0, b"")
        self._answer()

    def _answer(self) -> None:
        reason = self._on_ask()
        if reason and self.rank == 0:
            self._decide(reason)
        elif reason and self._star is not None:
            self._star.send(0, _FAILED, _KINDS.index(PeerLostError), _one_line(reason).encode())

    def _compare(self, rank: int, number: int, what: str) -> None:
        """Rank 0: `rank` waits in its call `number`, which is `what`."""
        with self._changed:
            self._at[rank] = number, what
            others = sorted((one, its[1]) for one, its in self._at.items() if its[0] == number and its[1] != what)
        if others:
            other, its = others[0]
            text = f"rank {other} is at {its!r} while rank {rank} is at {what!r}: the ranks lost step"
            self._decide(text, MismatchedCallError)

    def _deliver(self, number: int, values: list[bytes]) -> None:
        with self._changed:
            self._results[number] = values
            self._changed.notify_all()

    def _keep(self, rank: int, name: bytes, data: bytes) -> None:
        with self._changed:
            self._told[rank, name] = data
            self._changed.notify_all()

    def _lose(self, rank: int, why: str) -> None:
        if rank not in self._left:
            self._decide(f"rank {rank} is gone: {why}")

    def _fail(self, error: Exception) -> None:
        """The thread that reads the other ranks' frames has ended."""
        reason = _one_line(f"rank {self.rank}: {type(error).__name__}: {error}")
        if self.rank != 0 and self._star is not None:
            self._star.send(0, _FAILED, 0, reason.encode())
        self._decide(reason)

    def _decide(self, reason: str, kind: type[R2cclError] = PeerLostError) -> str:
        """Makes `reason`, as one line, the cause unless there is one, and tells those concerned."""
        reason = _one_line(reason)
        with self._deciding:
            if self._decided is not None or self._closed:
                return self._decided or reason
            self._decided = reason
            # The others are told before this rank's own thread can hear it, raise, and leave.
            if self.rank == 0 and self._star is not None:
                self._star.send_all(_FAILED, _KINDS.index(kind), reason.encode())
            with self._changed:
                self._kind, self._cause = kind, reason
                self._changed.notify_all()
        self._on_abort(reason)
        return reason


def _place(rank: int, size: int, root: str | None, secret: str | None, own_port: int) -> Place:
    if not root:
        raise UsageError("R2CC_ROOT is not set; give every rank the host:port where rank 0 listens")
    host, port = parse_root(root)
    secret = os.environ.get("R2CC_SECRET", "") if secret is None else secret
    return Place(host, port, rank, size, secret, own_port)


def _one_line(reason: str) -> str:
    """The reason as every rank and log may show it: on one line, and what a terminal would obey, escaped."""

    def shown(letter: str) -> str:
        return " " if letter.isspace() else letter.encode("unicode_escape").decode()

    return "".join(letter if letter.isprintable() else shown(letter) for letter in " ".join(reason.splitlines()))


def _out_of_step(own: tuple[bytes, ...], other: tuple[bytes, ...], rank: int) -> str:
    """How `rank` differs from rank 0 in its call, in that call's agreement, or in all calls until now; empty if it does
    not. The call is what the program knows of."""
    for here, there in zip(own[:-1], other[:-1], strict=True):
        if here != there:
            return f"rank 0 is at {here.decode()!r} while rank {rank} is at {there.decode()!r}"
    return f"rank 0 and rank {rank} have made different calls before {own[0].decode()!r}" if own != other else ""


def _pack(parts: Iterable[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _unpack(packed: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(packed):
        (length,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size + length
        yield packed[at - length : at]
