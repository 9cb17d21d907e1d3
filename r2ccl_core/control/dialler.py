"""Dials peers over other ways when their stream falls silent.

A member continues over the stream that this opens; rank 0 only learns whether the peer's process is alive. A member
greets every listener that answers, and asks one of them at a time to take over its session (`resume.py`).
"""

import os
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial

from r2ccl_core.control import resume
from r2ccl_core.control.links import Adopt, Dial, Link, forget
from r2ccl_core.control.ways import dial, outcome

_DIAL_S = 1.5
_ANSWER_S = 1.0

Learned = Callable[[Link, int, int], None]
"""Called with the link, the way, and the result of a dial: 0, or the error's number."""


class Dialler:
    """Used by one thread: that of `selector`."""

    def __init__(
        self, rank: int, keys: resume.Keys, selector: selectors.BaseSelector, adopt: Adopt, learned: Learned
    ) -> None:
        self._rank, self._keys, self._selector = rank, keys, selector
        self._adopt, self._learned = adopt, learned

    def seek(self, link: Link, now_s: float) -> None:
        """Dials every peer that is due."""
        self._ask(link)
        for way in link.reach.dials(now_s):
            if way not in link.dials and not link.done:
                self._dial(link, way, now_s)

    def _dial(self, link: Link, way: int, now_s: float) -> None:
        try:
            stream = dial(link.ways[way], link.port)
        except OSError as error:
            self._learned(link, way, error.errno or 0)
            return
        link.dials[way] = Dial(stream, now_s + _DIAL_S)
        self._selector.register(stream, selectors.EVENT_WRITE, partial(self._connected, link, way))

    def _connected(self, link: Link, way: int, events: int) -> None:
        one = link.dials[way]
        failure = outcome(one.stream)
        if failure == 0 and self._rank != 0:
            one.connected = True
            self._selector.modify(one.stream, selectors.EVENT_READ, partial(self._answered, link, way))
        else:
            self._end_dial(link, way)
        self._learned(link, way, failure)

    def _answered(self, link: Link, way: int, events: int) -> None:
        """Member: a record of rank 0, or a part of one."""
        one = link.dials[way]
        wanted = resume.RESUMED_BYTES if one.asked else resume.CHALLENGE_BYTES
        try:
            data = one.stream.recv(wanted - len(one.received))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        one.received += data
        if not data or (one.challenge and not one.asked):
            self._end_dial(link, way)
        elif len(one.received) == wanted:
            record = bytes(one.received)
            one.received.clear()
            self._read(link, way, one, record)

    def _read(self, link: Link, way: int, one: Dial, record: bytes) -> None:
        if one.asked is None:
            challenge = resume.read_challenge(record)
            one.challenge = challenge or b""
            if challenge is None:
                self._end_dial(link, way)
            self._ask(link)
            return
        taken = resume.read_resumed(self._keys, one.asked, record, one.challenge, one.nonce)
        if taken is None or not link.session.can_follow(taken):
            self._end_dial(link, way)
            return
        del link.dials[way]
        self._selector.unregister(one.stream)
        self._adopt(link, one.stream, way, one.asked.attempt, taken)
        self.end(link)

    def _ask(self, link: Link) -> None:
        """Member: continues over the first stream that is ready, one at a time."""
        if any(one.asked for one in link.dials.values()):
            return
        ready = sorted(way for way, one in link.dials.items() if one.challenge)
        for way in ready:
            wanted = link.reach.troubled or (way == 0 and link.reach.way != 0)
            if not wanted:
                self._end_dial(link, way)
                continue
            one, now_s = link.dials[way], time.monotonic()
            link.attempt, link.asked_s, one.deadline_s = link.attempt + 1, now_s, now_s + _ANSWER_S
            one.asked, one.nonce = resume.Resume(self._rank, link.attempt, link.session.taken), os.urandom(16)
            try:
                one.stream.send(resume.resume(self._keys, one.asked, one.challenge, one.nonce), socket.MSG_NOSIGNAL)
                return
            except OSError:
                self._end_dial(link, way)

    def expire(self, link: Link, now_s: float) -> None:
        """Gives up dials that took too long."""
        for way in [way for way, one in link.dials.items() if now_s > one.deadline_s]:
            self._end_dial(link, way)

    def end(self, link: Link) -> None:
        """Gives up all dials to a peer."""
        for way in list(link.dials):
            self._end_dial(link, way)

    def _end_dial(self, link: Link, way: int) -> None:
        forget(self._selector, link.dials.pop(way).stream)
