"""Frames between two ranks over streams that break and are replaced: each frame is delivered once and in order. Pure.

A frame is a header and a body:

    kind, number, length of the body    the caller's business
    sequence                            1 for the first frame of this end; 0 for an acknowledgement alone
    acknowledged                        the last sequence that this end has taken

A frame is kept until the other end acknowledges it. When a stream breaks, nothing is lost: both ends state what they
have taken (`taken`), and `attach` sends everything after that over the next stream. A frame that arrives twice is
dropped by its sequence.
"""

import struct
from collections import deque
from itertools import islice
from typing import NamedTuple

_HEADER = struct.Struct("!BIQQQ")
_ACKNOWLEDGEMENT = 0
MOST_BODY_BYTES = 256 << 20
_MOST_AT_ONCE = 16
_ACKNOWLEDGE_EVERY = 16


class Frame(NamedTuple):
    """A message of the caller; `kind` is 1 to 255."""

    kind: int
    number: int
    body: bytes


class Session:
    """One end. It starts without a stream: `outgoing` waits for `attach`. Not thread-safe."""

    def __init__(self) -> None:
        self.taken = 0
        self.dropped = 0
        self._said = 0  # of `taken`
        self._wants_word = False
        self._kept: deque[Frame] = deque()  # the first is the one after `_acknowledged`
        self._acknowledged = 0
        self._written = 0  # of those kept, on this stream
        self._part: list[memoryview] = []  # of what was handed out, what the stream has not taken
        self._incoming = bytearray()
        self._attached = False

    def send(self, frame: Frame) -> None:
        """Queues `frame`, for this stream or a later one."""
        self._kept.append(frame)

    def attach(self, taken_there: int) -> None:
        """Attaches a new stream; the other end has received `taken_there` frames. REQUIRES: `can_follow` it."""
        self._forget(taken_there)
        self._written, self._part, self._attached = 0, [], True
        self._incoming.clear()
        self._wants_word = True

    def can_follow(self, taken_there: int) -> bool:
        """Whether the other end's count can be true, and the frames that it lacks are still here."""
        return self._acknowledged <= taken_there <= self._sent

    def detach(self) -> None:
        """Forgets the stream, which broke. Incomplete frames will be sent again."""
        self._written, self._part, self._attached = 0, [], False
        self._incoming.clear()

    def say(self) -> None:
        """Makes sure that something is sent with the next write, if only an acknowledgement."""
        self._wants_word = True

    @property
    def owes_word(self) -> bool:
        """Whether the other end does not yet know what was received."""
        return self._said != self.taken

    @property
    def settled(self) -> bool:
        """Whether the other end has acknowledged everything."""
        return not self._kept

    def outgoing(self) -> list[memoryview]:
        """What the stream is to send next; empty if there is nothing, or no stream."""
        if self._attached and not self._part:
            fresh = list(islice(self._kept, self._written, self._written + _MOST_AT_ONCE))
            for frame in fresh:
                self._written += 1
                self._add(frame, self._acknowledged + self._written)
            if not fresh and self._wants_word:
                self._add(Frame(_ACKNOWLEDGEMENT, 0, b""), 0)
        return self._part

    def wrote(self, count: int) -> None:
        """The stream has accepted `count` bytes of `outgoing`."""
        while count:
            head = self._part[0]
            if count < len(head):
                self._part[0] = head[count:]
                return
            count -= len(head)
            del self._part[0]

    def take(self, data: bytes) -> tuple[list[Frame], str]:
        """The frames that `data`, the next bytes of the stream, completes. Also returns what is wrong with the bytes
        after them, if anything is; the stream is then unusable."""
        self._incoming += data
        frames: list[Frame] = []
        while len(self._incoming) >= _HEADER.size:
            kind, number, length, sequence, acknowledged = _HEADER.unpack_from(self._incoming)
            end = _HEADER.size + length
            if length > MOST_BODY_BYTES:
                return frames, f"it announced a frame of {length} bytes"
            if len(self._incoming) < end:
                break
            if kind != _ACKNOWLEDGEMENT and sequence > self.taken + 1:
                return frames, f"its frame {sequence} came after frame {self.taken}"
            if acknowledged > self._sent:
                return frames, f"it acknowledged frame {acknowledged} of {self._sent}"
            body = bytes(memoryview(self._incoming)[_HEADER.size : end])
            del self._incoming[:end]
            self._forget(acknowledged)
            if self._is_next(kind, sequence):
                frames.append(Frame(kind, number, body))
        return frames, ""

    @property
    def _sent(self) -> int:
        return self._acknowledged + len(self._kept)

    def _is_next(self, kind: int, sequence: int) -> bool:
        if kind == _ACKNOWLEDGEMENT:
            return False
        if sequence <= self.taken:
            self.dropped += 1
            return False
        self.taken = sequence
        self._wants_word = self._wants_word or self.taken - self._said >= _ACKNOWLEDGE_EVERY
        return True

    def _forget(self, acknowledged: int) -> None:
        while self._acknowledged < acknowledged:
            self._kept.popleft()
            self._acknowledged += 1
            self._written = max(0, self._written - 1)

    def _add(self, frame: Frame, sequence: int) -> None:
        header = _HEADER.pack(frame.kind, frame.number, len(frame.body), sequence, self.taken)
        self._part.append(memoryview(header))
        if frame.body:
            self._part.append(memoryview(frame.body))
        self._said, self._wants_word = self.taken, False
