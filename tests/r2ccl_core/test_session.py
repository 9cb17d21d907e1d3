"""Frames over streams that break anywhere: each is delivered once and in order. Without sockets."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core.control import session
from r2ccl_core.control.session import Frame, Session


@dataclass
class Pair:
    """Two ends and the stream between them, whose bytes are under way until somebody moves them."""

    ends: tuple[Session, Session]
    sent: tuple[list[Frame], list[Frame]] = field(default_factory=lambda: ([], []))
    got: tuple[list[Frame], list[Frame]] = field(default_factory=lambda: ([], []))
    under_way: list[bytearray] = field(default_factory=lambda: [bytearray(), bytearray()])

    def send(self, end: int, length: int) -> None:
        number = len(self.sent[end])
        frame = Frame(1 + number % 255, number, bytes([number % 251]) * length)
        self.sent[end].append(frame)
        self.ends[end].send(frame)

    def write(self, end: int, most: int) -> None:
        """The stream takes so many bytes of what an end has for it."""
        while most > 0 and (parts := self.ends[end].outgoing()):
            data = b"".join(parts)[:most]
            self.ends[end].wrote(len(data))
            self.under_way[end] += data
            most -= len(data)

    def deliver(self, end: int, most: int) -> None:
        """Bytes from `end` arrive at the other."""
        data = bytes(self.under_way[end][:most])
        del self.under_way[end][:most]
        frames, wrong = self.ends[1 - end].take(data)
        self.got[1 - end].extend(frames)
        assert wrong == ""

    def settle(self) -> None:
        for _ in range(100):
            for end in (0, 1):
                self.ends[end].say()
                self.write(end, 1 << 20)
                self.deliver(end, 1 << 20)
            if all(end.settled for end in self.ends):
                return
        raise AssertionError("never settled")

    def reconnect(self, late: int) -> None:
        """End 1 says what it has taken, the old stream brings `late` more bytes, and then the new one is there."""
        said = self.ends[1].taken
        self.deliver(0, late)
        said_back = self.ends[0].taken
        assert self.ends[0].can_follow(said) and self.ends[1].can_follow(said_back)
        self.under_way = [bytearray(), bytearray()]
        self.ends[0].detach()
        self.ends[0].attach(said)
        self.ends[1].attach(said_back)

    def right(self) -> bool:
        return all(self.got[1 - end] == self.sent[end] for end in (0, 1))


def joined(kind: type[Session] = Session) -> Pair:
    pair = Pair((kind(), kind()))
    for end in pair.ends:
        end.attach(0)
    return pair


Step = tuple[str, int, int]
sizes = st.sampled_from([0, 1, 7, 24, 25, 100, 3000])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 1), sizes),
        st.tuples(st.sampled_from(["write", "deliver"]), st.integers(0, 1), st.integers(1, 4000)),
        st.tuples(st.just("say"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("break"), st.integers(0, 1), st.integers(0, 400)),
    ),
    max_size=60,
)


def play(pair: Pair, what: Sequence[Step]) -> None:
    for name, end, amount in what:
        if name == "send":
            pair.send(end, amount)
        elif name == "write":
            pair.write(end, amount)
        elif name == "deliver":
            pair.deliver(end, amount)
        elif name == "say":
            pair.ends[end].say()
        else:
            pair.reconnect(amount)
    pair.settle()


@given(steps)
@settings(max_examples=400)
def test_each_frame_comes_once_and_in_order_wherever_streams_break(what: list[Step]) -> None:
    pair = joined()
    play(pair, what)
    assert pair.right()
    assert all(end.settled for end in pair.ends)


@pytest.mark.parametrize("cut", range(0, 120, 1))
def test_a_stream_that_is_cut_at_any_byte_loses_nothing(cut: int) -> None:
    pair = joined()
    for length in (0, 5, 30):
        pair.send(0, length)
    pair.write(0, 1 << 20)
    pair.deliver(0, cut)
    pair.under_way[0].clear()
    pair.reconnect(0)
    pair.settle()
    assert pair.right()


def test_what_comes_twice_is_dropped() -> None:
    """End 1 said what it had taken before the old stream's last bytes came."""
    pair = joined()
    for _ in range(5):
        pair.send(0, 10)
    pair.write(0, 1 << 20)
    pair.reconnect(late=1 << 20)
    assert len(pair.got[1]) == 5
    pair.settle()
    assert pair.right() and pair.ends[1].dropped == 5


class Forgets(Session):
    """Sends nothing again."""

    def attach(self, taken_there: int) -> None:
        super().attach(taken_there)
        self._written = len(self._kept)


class Repeats(Session):
    """Takes what comes twice."""

    def _is_next(self, kind: int, sequence: int) -> bool:
        return super()._is_next(kind, sequence) or kind != 0


@pytest.mark.parametrize("wrong", [Forgets, Repeats])
def test_the_check_finds_ends_that_forget_or_repeat(wrong: type[Session]) -> None:
    pair = joined(wrong)
    for _ in range(5):
        pair.send(0, 10)
    pair.write(0, 1 << 20)
    pair.reconnect(late=100)
    try:
        pair.settle()
    except AssertionError:
        return
    assert not pair.right()


def test_acknowledged_frames_are_let_go() -> None:
    pair = joined()
    for _ in range(1000):
        pair.send(0, 10)
        pair.write(0, 1 << 20)
        pair.deliver(0, 1 << 20)
        pair.write(1, 1 << 20)
        pair.deliver(1, 1 << 20)
    assert pair.right() and len(pair.ends[0]._kept) < 2 * session._ACKNOWLEDGE_EVERY


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ((1, 0, 1 << 40, 1, 0), "announced a frame of 1099511627776 bytes"),
        ((1, 0, 0, 2, 0), "its frame 2 came after frame 0"),
        ((1, 0, 0, 1, 3), "acknowledged frame 3 of 1"),
    ],
)
def test_nonsense_is_told_and_what_came_before_it_is_kept(header: tuple[int, int, int, int, int], told: str) -> None:
    end = Session()
    end.attach(0)
    end.send(Frame(1, 1, b""))
    good = Session()
    good.attach(0)
    good.send(Frame(9, 7, b"x"))
    data = b"".join(good.outgoing())
    bad = session._HEADER.pack(*header) if header[3] != 2 else session._HEADER.pack(1, 0, 0, 3, 0)
    frames, wrong = end.take(data + bad)
    assert frames == [Frame(9, 7, b"x")]
    assert told.replace("2 came after frame 0", "3 came after frame 1") in wrong
    assert not end.can_follow(2) and end.can_follow(1)
