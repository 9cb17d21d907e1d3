"""The listener that peers dial after a stream broke.

On rank 0 it takes over the sessions of members; on a member it only shows that the process is alive.
"""

import os
import selectors
import socket
import time
from collections.abc import Mapping
from functools import partial

from r2ccl_core.control import resume
from r2ccl_core.control.links import Adopt, Guest, Link, forget, host_of

_GUEST_S = 2.0
_MOST_GUESTS = 1024


class RedialListener:
    """Used by one thread: that of `selector`. It closes `listener`."""

    def __init__(
        self,
        rank: int,
        listener: socket.socket,
        keys: resume.Keys,
        selector: selectors.BaseSelector,
        links: Mapping[int, Link],
        adopt: Adopt,
    ) -> None:
        self._rank, self.listener, self._keys = rank, listener, keys
        self._selector, self._links, self._adopt = selector, links, adopt
        self._guests: dict[socket.socket, Guest] = {}

    def expire(self, now_s: float) -> None:
        """Closes the streams whose other end has not identified itself in time."""
        for guest in [guest for guest in self._guests.values() if now_s > guest.deadline_s]:
            self._end_guest(guest)

    def close(self) -> None:
        """Closes all streams that nobody has taken over. Any thread, after the selector's has ended."""
        for stream in (self.listener, *self._guests):
            stream.close()

    def admit(self, events: int) -> None:
        """A member sends nothing: that it accepted the connection is the answer."""
        try:
            stream, _ = self.listener.accept()
        except OSError:
            return
        if self._rank != 0 or len(self._guests) >= _MOST_GUESTS:
            stream.close()
            return
        stream.setblocking(False)
        guest = Guest(stream, os.urandom(16), time.monotonic() + _GUEST_S)
        self._guests[stream] = guest
        try:
            stream.send(resume.challenge(guest.nonce), socket.MSG_NOSIGNAL)
        except OSError:
            self._end_guest(guest)
            return
        self._selector.register(stream, selectors.EVENT_READ, partial(self._hear_guest, guest))

    def _hear_guest(self, guest: Guest, events: int) -> None:
        try:
            data = guest.stream.recv(resume.RESUME_BYTES - len(guest.received))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        guest.received += data
        if not data:
            self._end_guest(guest)
        elif len(guest.received) == resume.RESUME_BYTES:
            self._welcome_back(guest)

    def _welcome_back(self, guest: Guest) -> None:
        """Rank 0: a member continues over another stream, or a stranger is sent away."""
        said = resume.read_resume(self._keys, bytes(guest.received), guest.nonce)
        link = self._links.get(said[0].rank) if said else None
        if said is None or link is None or link.done:
            self._end_guest(guest)
            return
        what, nonce = said
        if what.attempt <= link.attempt or not link.session.can_follow(what.taken):
            self._end_guest(guest)
            return
        try:
            way = link.way_from(host_of(guest.stream.getpeername()[0]))
            answer = resume.resumed(self._keys, what, link.session.taken, guest.nonce, nonce)
            guest.stream.send(answer, socket.MSG_NOSIGNAL)
        except OSError:
            self._end_guest(guest)
            return
        del self._guests[guest.stream]
        self._selector.unregister(guest.stream)
        self._adopt(link, guest.stream, way, what.attempt, what.taken)

    def _end_guest(self, guest: Guest) -> None:
        del self._guests[guest.stream]
        forget(self._selector, guest.stream)
