"""The agreement on the health: every transition, every interleaving, changes on several ranks at once."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core.control.agreement import (
    Call,
    Coordinator,
    Held,
    Hold,
    Message,
    Offers,
    Report,
    Stage,
    Switch,
    Turn,
    Wire,
    Wired,
)
from r2ccl_core.control.agreement_codec import decode, encode
from r2ccl_core.model.health import Health

RING = ((0, 1, 0), (1, 0, 0))
WHOLE = Health.whole((3, 3))
ONE = WHOLE.with_lost(1, (1,))


def coordinator(connections: tuple[tuple[int, int, int], ...] = ()) -> Coordinator:
    return Coordinator(WHOLE, lambda health: connections)


def answer(one: Coordinator, *said: Message) -> list[Message]:
    """Every rank says the same, one thing after the other; what the coordinator tells after the last."""
    told: list[Message] = []
    for message in said:
        told = [word for rank in range(one.agreed.nranks) for word in one.take(rank, message)]
    return told


def test_a_nic_that_another_rank_of_the_host_uses_is_not_lost() -> None:
    """Rank 1 has one peer and takes its loss for its own; rank 0 has another peer."""
    one = Coordinator(Health.whole((3, 3), gpus=2), lambda health: [])
    lost = Health((3, 3), ((), (1,)), 2)
    assert one.take(0, Report((), works=(0, 1, 2))) == []
    assert one.take(1, Report((1,), works=(0, 2))) == []
    assert one.take(2, Report((1,), works=(0, 2))) == [Call(1, lost, ())]
    assert one.take(0, Report((1,), works=(0, 2))) == []  # the next agreement is about it
    both = Health((3, 3), ((1,), (1,)), 2)
    assert answer(one, Offers(1, ()), Wired(1, True), Held(1, 8)) == [Switch(1, 8, lost, True), Call(2, both, ())]


def test_a_loss_goes_through_every_stage() -> None:
    one = coordinator(RING)
    handles = (((0, 1, 0), b"a"), ((1, 0, 0), b"b"))
    assert one.take(1, Report((1,))) == [Call(1, ONE, RING)]
    assert one.stage is Stage.OFFERS
    assert one.take(0, Offers(1, handles[1:])) == []
    assert one.take(1, Offers(1, handles[:1])) == [Wire(1, (handles[1], handles[0]))]
    assert one.stage is Stage.WIRED
    assert one.take(1, Wired(1, True)) == []
    assert one.take(0, Wired(1, True)) == [Hold(1)]
    assert one.stage is Stage.HELD
    assert one.take(0, Held(1, 7)) == []
    assert one.take(1, Held(1, 9)) == [Switch(1, 9, ONE, True)]
    assert one.stage is Stage.NOTHING and one.agreed == ONE


def test_all_ranks_prepare_also_where_nothing_is_to_be_connected() -> None:
    one = coordinator()
    assert one.take(1, Report((1,))) == [Call(1, ONE, ())]
    assert answer(one, Offers(1, ())) == [Wire(1, ())]
    assert answer(one, Wired(1, True)) == [Hold(1)]


def test_connections_that_one_rank_could_not_make_are_not_used() -> None:
    one = coordinator(RING)
    one.take(1, Report((1,)))
    one.take(0, Offers(1, ()))
    one.take(1, Offers(1, ()))
    one.take(0, Wired(1, False))
    assert one.take(1, Wired(1, True)) == [Hold(1)]
    one.take(0, Held(1, 0))
    assert one.take(1, Held(1, 0)) == [Switch(1, 0, ONE, False)]


@pytest.mark.parametrize("stage", [Stage.OFFERS, Stage.WIRED, Stage.HELD])
def test_a_report_in_any_stage_waits_for_the_decision(stage: Stage) -> None:
    one = coordinator(RING)
    one.take(1, Report((1,)))
    said = {Stage.OFFERS: Offers(1, ()), Stage.WIRED: Wired(1, True), Stage.HELD: Held(1, 4)}
    told: list[Message] = []
    for at, answer in said.items():
        if at is stage:
            assert one.take(0, Report((0,))) == []
        told = [*one.take(0, answer), *one.take(1, answer)]
    assert told == [Switch(1, 4, ONE, True), Call(2, ONE.with_lost(0, (0,)), RING)]
    assert one.stage is Stage.OFFERS and one.agreed == ONE


def test_what_is_repaired_before_the_decision_is_switched_back_after_it() -> None:
    one = coordinator()
    assert one.take(1, Report((1,))) == [Call(1, ONE, ())]
    assert one.take(1, Report(())) == []
    assert answer(one, Offers(1, ()), Wired(1, True), Held(1, 3)) == [Switch(1, 3, ONE, True), Call(2, WHOLE, ())]
    assert answer(one, Offers(2, ()), Wired(2, True), Held(2, 3)) == [Switch(2, 3, WHOLE, True)]


def test_a_host_without_a_nic_is_left_to_the_transport() -> None:
    one = coordinator()
    assert one.take(1, Report((0, 1, 2))) == []
    assert one.take(1, Report((0, 1))) == [Call(1, WHOLE.with_lost(1, (0, 1)), ())]


def test_a_report_of_what_is_known_begins_nothing() -> None:
    assert coordinator().take(1, Report(())) == []


@pytest.mark.parametrize(
    ("stage", "answer"),
    [
        (Stage.NOTHING, Held(0, 1)),
        (Stage.OFFERS, Wired(1, True)),
        (Stage.OFFERS, Held(1, 1)),
        (Stage.OFFERS, Offers(2, ())),
        (Stage.WIRED, Offers(1, ())),
        (Stage.HELD, Wired(1, True)),
    ],
)
def test_an_answer_out_of_turn_is_refused(stage: Stage, answer: Message) -> None:
    one = coordinator(RING)
    if stage is not Stage.NOTHING:
        one.take(1, Report((1,)))
    for before in (Offers(1, ()), Wired(1, True)):
        if one.stage is not stage:
            one.take(0, before)
            one.take(1, before)
    assert one.stage is stage
    with pytest.raises(ValueError, match="while the coordinator waits for"):
        one.take(0, answer)


def test_a_later_agreement_for_an_earlier_operation_wins() -> None:
    turn = Turn(WHOLE)
    two = ONE.with_lost(0, (0,))
    turn.decision(Switch(1, 2, ONE, False))
    turn.decision(Switch(2, 1, two, False))
    seen = []
    for _ in range(4):
        turn.start()
        seen.append(turn.health)
    assert seen == [WHOLE, two, two, two]


@pytest.mark.parametrize(
    "message",
    [
        Report((1, 2), works=(0, 3)),
        Call(3, ONE, RING),
        Offers(3, (((0, 1, 2), b"\x00\xff"),)),
        Wire(3, ()),
        Wired(3, False),
        Hold(3),
        Held(3, 9),
        Switch(3, 9, ONE, True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_survive_the_wire(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"kind": "Held"}', b'{"kind": "Nonsense"}', b"\xff"])
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


@dataclass
class Group:
    """Ranks that start operations, lose NICs and exchange messages in any order that FIFO streams allow."""

    size: int
    turns: list[Turn] = field(init=False)
    used: list[list[Health]] = field(init=False)
    up: list[deque[Message]] = field(init=False)
    down: list[deque[Message]] = field(init=False)

    def __post_init__(self) -> None:
        whole = Health.whole((3,) * self.size)
        self.coordinator = Coordinator(whole, lambda health: [] if health.is_whole else [(0, 1, 0)])
        self.turns = [Turn(whole) for _ in range(self.size)]
        self.used = [[] for _ in range(self.size)]
        self.up = [deque() for _ in range(self.size)]
        self.down = [deque() for _ in range(self.size)]

    def moves(self) -> list[tuple[str, int]]:
        ranks = range(self.size)
        ahead = min(turn.operation for turn in self.turns)
        # A collective ends on no rank before it has begun on all: nobody is two operations ahead.
        free = [("start", r) for r in ranks if not self.turns[r].held and self.turns[r].operation <= ahead]
        return [*free, *(("up", r) for r in ranks if self.up[r]), *(("down", r) for r in ranks if self.down[r])]

    def move(self, kind: str, rank: int) -> None:
        if kind == "start":
            self.turns[rank].start()
            self.used[rank].append(self.turns[rank].health)
        elif kind == "up":
            for told in self.coordinator.take(rank, self.up[rank].popleft()):
                for stream in self.down:
                    stream.append(told)
        else:
            self.hear(rank, self.down[rank].popleft())

    def hear(self, rank: int, message: Message) -> None:
        if isinstance(message, Call):
            self.up[rank].append(Offers(message.epoch, ()))
        elif isinstance(message, Wire):
            self.up[rank].append(Wired(message.epoch, True))
        elif isinstance(message, Hold):
            self.up[rank].append(self.turns[rank].hold(message))
        elif isinstance(message, Switch):
            self.turns[rank].decision(message)


@settings(max_examples=300)
@given(st.data())
def test_all_ranks_run_every_operation_in_the_same_health(data: st.DataObject) -> None:
    group = Group(data.draw(st.integers(2, 4)))
    lost = st.sampled_from([(), (0,), (1,), (0, 1)])
    last: dict[int, tuple[int, ...]] = {}
    for _ in range(data.draw(st.integers(1, 5))):
        rank = data.draw(st.integers(0, group.size - 1))
        last[rank] = data.draw(lost)
        group.up[rank].append(Report(last[rank]))
        for _ in range(data.draw(st.integers(0, 12))):
            group.move(*data.draw(st.sampled_from(group.moves())))
    # What is under way comes to its end, whatever comes first, and nobody is held for ever.
    while any(group.up) or any(group.down):
        pending = [move for move in group.moves() if move[0] != "start"]
        group.move(*data.draw(st.sampled_from(pending)))
    end = max(map(len, group.used)) + 2
    for rank, turn in enumerate(group.turns):
        assert not turn.held
        while len(group.used[rank]) < end:
            group.move("start", rank)
    assert len(set(map(tuple, group.used))) == 1
    expected = tuple(last.get(rank, ()) for rank in range(group.size))
    assert {turn.health.lost for turn in group.turns} == {expected}
