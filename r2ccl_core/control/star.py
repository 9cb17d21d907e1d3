"""The streams between rank 0 and the other ranks: one thread reads, dials and watches all of them; any thread may send.

Each peer has a session (`session.py`), which outlives its stream. When the management network breaks or falls silent,
members dial rank 0 over the other ways (`reach.py`, `resume.py`) and continue their sessions; they return to the
management network when it works again. Rank 0 dials a silent member only to learn whether its process is alive.
Messages arrive within milliseconds, whatever the rank computes.
"""

import errno
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from r2ccl_core.control import resume
from r2ccl_core.control.dialler import Dialler
from r2ccl_core.control.links import Link, forget, prepare
from r2ccl_core.control.reach import ENDED_S, Reach
from r2ccl_core.control.redial_listener import RedialListener
from r2ccl_core.control.rendezvous import Met
from r2ccl_core.control.session import Frame, Session
from r2ccl_core.control.ways import Way

_READ_BYTES = 256 << 10
_TICK_S = 0.25
_PING_S = 1.0
_LINGER_S = 2.0
_log = logging.getLogger(__name__)

OnFrame = Callable[[int, int, int, bytes], None]
"""Called with rank, kind, number, body."""
OnLost = Callable[[int, str], None]
"""Called with rank and reason, once per peer."""
OnError = Callable[[Exception], None]
"""Called once, with the error that ended the watching."""


class Star:
    """Peers by rank. It starts silent: call `start` when frames may arrive. Sending is thread-safe and never waits."""

    def __init__(
        self,
        rank: int,
        met: Mapping[int, Met],
        listener: socket.socket,
        keys: resume.Keys,
        patience_s: float,
        on_frame: OnFrame,
        on_lost: OnLost,
        on_error: OnError,
    ) -> None:
        """`listener` is this rank's; on rank 0, replaced streams arrive there. The star closes it."""
        self._rank, self._patience_s = rank, patience_s
        self._on_frame, self._on_lost, self._on_error = on_frame, on_lost, on_error
        self._changed = threading.Condition(threading.RLock())  # guards links, but for their reach and dials
        self._links = {peer: self._first_link(peer, one) for peer, one in met.items()}
        self._selector = selectors.DefaultSelector()
        self._dialler = Dialler(rank, keys, self._selector, self._adopt, self._learn)
        self._redial_listener = RedialListener(rank, listener, keys, self._selector, self._links, self._adopt)
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._stopping = False
        self._watcher = threading.Thread(target=self._watch, name="r2ccl-bootstrap", daemon=True)

    def _first_link(self, peer: int, met: Met) -> Link:
        prepare(met.stream, self._patience_s)
        reach = Reach(self._patience_s, time.monotonic(), goes_back=self._rank != 0)
        link = Link(peer, met.port, met.stream, [Way(met.host)], reach, Session())
        link.session.attach(0)
        return link

    def start(self) -> None:
        """Starts to read."""
        self._watcher.start()

    def management(self) -> dict[int, str]:
        """Each peer's address on the management network."""
        return {rank: link.ways[0].address for rank, link in self._links.items()}

    def learn(self, ways: Mapping[int, Sequence[Way]]) -> None:
        """The ways to each peer; the first is the one over the management network."""
        for rank, its in ways.items():
            self._links[rank].ways = list(its)
            self._links[rank].reach.ways = len(its)

    def routes(self) -> dict[int, str]:
        """The way over which each peer is reached now; empty if by none."""
        with self._changed:
            found = {rank: (link.reach.way, link.ways) for rank, link in self._links.items()}
        return {rank: "" if way is None else str(ways[way]) for rank, (way, ways) in found.items()}

    def send(self, rank: int, kind: int, number: int, body: bytes) -> None:
        """Sends one frame to `rank`, over this stream or the next."""
        link = self._links[rank]
        with self._changed:
            link.session.send(Frame(kind, number, body))
            link.flush()
            unsettled = link.blocked or link.failure is not None
        if unsettled:
            self._rouse()

    def send_all(self, kind: int, number: int, body: bytes) -> None:
        """Sends one frame to every peer."""
        for rank in self._links:
            self.send(rank, kind, number, body)

    def let_go(self, rank: int) -> None:
        """`rank` has left: its stream may end."""
        with self._changed:
            link = self._links[rank]
            link.done = True
            link.session.say()
            link.flush()
            self._changed.notify_all()

    def close(self) -> None:
        """Waits a moment until every peer has received what was sent to it, then closes everything. Idempotent."""
        watched = self._watcher.is_alive() and threading.current_thread() is not self._watcher
        with self._changed:
            if watched:
                self._changed.wait_for(self._is_settled, _LINGER_S)
            self._stopping = True
        self._rouse()
        if watched:
            self._watcher.join()
        self._close_sockets()
        self._selector.close()

    def abandon(self) -> None:
        """In a forked child: releases the parent's streams, without waiting for anything of the parent's."""
        self._close_sockets()

    def _close_sockets(self) -> None:
        dials = [one.stream for link in self._links.values() for one in link.dials.values()]
        streams = [link.stream for link in self._links.values() if link.stream is not None]
        self._redial_listener.close()
        for stream in (self._wake, self._woken, *dials, *streams):
            stream.close()

    def _is_settled(self) -> bool:
        return not self._watcher.is_alive() or all(link.done or link.session.settled for link in self._links.values())

    def _rouse(self) -> None:
        with suppress(OSError):  # full: it is awake; closed: it is over
            self._wake.send(b"\0")

    # What follows is the watcher's.

    def _watch(self) -> None:
        try:
            self._selector.register(self._woken, selectors.EVENT_READ, self._drain)
            self._selector.register(self._redial_listener.listener, selectors.EVENT_READ, self._redial_listener.admit)
            for link in self._links.values():
                self._selector.register(link.stream, selectors.EVENT_READ, partial(self._serve, link))  # type: ignore[arg-type]
            next_s = 0.0
            while not self._stopping:
                for key, events in self._selector.select(_TICK_S):
                    if key.fileobj.fileno() >= 0:  # type: ignore[union-attr]
                        key.data(events)
                if (now_s := time.monotonic()) >= next_s:
                    next_s = now_s + _TICK_S
                    self._tick(now_s)
        except Exception as error:
            _log.exception("rank %d: the group's streams are watched no more", self._rank)
            self._on_error(error)
        finally:
            with self._changed:
                self._changed.notify_all()

    def _drain(self, events: int) -> None:
        """Sends frames that a stream did not accept at once."""
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        for link in self._links.values():
            if link.failure is not None:
                self._break(link, link.failure)
            elif link.blocked:
                self._listen_to(link)

    def _serve(self, link: Link, events: int) -> None:
        """The stream is readable or writable."""
        if events & selectors.EVENT_WRITE:
            with self._changed:
                link.flush()
            self._listen_to(link)
        if link.failure is not None:
            self._break(link, link.failure)
        elif events & selectors.EVENT_READ:
            self._hear(link)

    def _hear(self, link: Link) -> None:
        assert link.stream is not None
        try:
            data = link.stream.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(link, error)
            return
        if not data:
            self._break(link, ConnectionResetError(errno.ECONNRESET, "its stream ended"))
            return
        link.reach.heard()
        with self._changed:
            frames, wrong = link.session.take(data)
            link.flush()
            self._changed.notify_all()
        for frame in frames:
            self._on_frame(link.rank, *frame)
        if wrong:
            self._lose(link, wrong)

    def _listen_to(self, link: Link) -> None:
        if link.stream is not None:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.blocked else 0)
            self._selector.modify(link.stream, events, partial(self._serve, link))

    def _break(self, link: Link, error: OSError) -> None:
        """The stream is gone; the session is not."""
        now_s = time.monotonic()
        self._drop_stream(link)
        # Rank 0 closes a stream when it has another: its answer to what was asked for may be on the way, or lost.
        expected = now_s - link.asked_s < ENDED_S
        link.reach.ended(now_s, by_peer=error.errno in (errno.ECONNRESET, errno.EPIPE) and not expected)
        if not link.done:
            _log.info("rank %d: the stream to rank %d broke: %s", self._rank, link.rank, error.strerror or error)
            self._dialler.seek(link, now_s)

    def _drop_stream(self, link: Link) -> None:
        with self._changed:
            stream, link.stream, link.failure, link.blocked = link.stream, None, None, False
            link.session.detach()
            self._changed.notify_all()
        if stream is not None:
            forget(self._selector, stream)

    def _lose(self, link: Link, why: str) -> None:
        self._drop_stream(link)
        self._dialler.end(link)
        if not link.done:
            link.done = True
            self._on_lost(link.rank, why)

    def _tick(self, now_s: float) -> None:
        self._redial_listener.expire(now_s)
        for link in self._links.values():
            if link.done:
                continue
            link.look(now_s)
            with self._changed:
                if link.session.owes_word or (self._rank != 0 and now_s - link.said_s >= _PING_S):
                    link.said_s = now_s
                    link.session.say()
                    link.flush()
            if link.failure is not None:
                self._break(link, link.failure)
            self._dialler.expire(link, now_s)
            self._dialler.seek(link, now_s)
            self._judge(link, now_s)

    def _judge(self, link: Link, now_s: float) -> None:
        if not link.done and (why := link.reach.gone(now_s)):
            self._lose(link, why)

    def _learn(self, link: Link, way: int, failure: int) -> None:
        """What the result of a dial says about the peer."""
        now_s = time.monotonic()
        if failure == 0:
            link.reach.answered(way, now_s)
        elif failure == errno.ECONNREFUSED:
            link.reach.refused(way, now_s)
            self._judge(link, now_s)

    def _adopt(self, link: Link, stream: socket.socket, way: int, attempt: int, taken: int) -> None:
        """Continues over `stream`."""
        before = link.reach.way
        self._drop_stream(link)
        with suppress(OSError):  # where it is broken already, that shows at once
            prepare(stream, self._patience_s)
        with self._changed:
            link.stream, link.attempt, link.asked_s = stream, attempt, -ENDED_S
            link.session.attach(taken)
            link.reach.attached(way, time.monotonic())
            link.flush()
        self._selector.register(stream, selectors.EVENT_READ, partial(self._serve, link))
        self._listen_to(link)
        if way != before:
            _log.warning("rank %d: the group reaches rank %d by %s", self._rank, link.rank, link.ways[way])
