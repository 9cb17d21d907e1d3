"""When another way is looked for and when a peer is gone: hours of virtual time in a moment."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core.control.reach import IDLE_S, LEAST_PATIENCE_S, RETURN_S, Reach

STEP_S = 0.25
ANSWER_S = 0.01
DIAL_S = 1.5


@dataclass
class World:
    """One end, its ways to a peer, and what they carry at a time. `works(way, now)`, `lives(now)`, `filtered(way)`."""

    works: Callable[[int, float], bool]
    lives: Callable[[float], bool] = lambda now: True
    goes_back: bool = True
    ways: int = 3
    patience_s: float = 10.0
    now_s: float = 0.0
    said_s: float = 0.0
    gone: str | None = None
    moves: list[int] = field(default_factory=list)
    refusing: frozenset[int] = frozenset()
    """Ways by which something else than the peer answers that nobody listens."""

    def __post_init__(self) -> None:
        self.reach = Reach(self.patience_s, self.now_s, self.goes_back, self.ways)
        self.acknowledged_s = self.now_s
        self.dialled: dict[int, float] = {}
        self.fin_sent = False

    def run(self, until_s: float) -> None:
        while self.now_s < until_s and self.gone is None:
            self.step()

    def step(self) -> None:
        self.now_s += STEP_S
        now, reach = self.now_s, self.reach
        way = reach.way
        if way is not None:
            if self.works(way, now):
                self.acknowledged_s = now  # of a ping, or of a probe of the kernel
                if not self.lives(now):
                    reach.ended(now, by_peer=True)
                else:
                    reach.heard()
            waits = not self.works(way, now) and now - self.acknowledged_s > 1
            if reach.way is not None:
                reach.seen(now, now - self.acknowledged_s, waits)
        for one in reach.dials(now):
            self.dialled.setdefault(one, now)
        for one, since in list(self.dialled.items()):
            if one in self.refusing:
                reach.refused(one, now)
            elif self.works(one, now):
                self._reached(one, now)
            elif now - since < DIAL_S:
                continue
            self.dialled.pop(one, None)
        self.gone = reach.gone(now)

    def _reached(self, way: int, now: float) -> None:
        if not self.lives(now):
            self.reach.refused(way, now)
            return
        self.reach.answered(way, now)
        if self.reach.goes_back and (self.reach.troubled or way == 0):
            self.reach.attached(way, now)
            self.acknowledged_s = now
            self.moves.append(way)
            self.dialled.clear()


def gap(way: int, begin_s: float, end_s: float) -> Callable[[int, float], bool]:
    return lambda one, now: one != way or not begin_s <= now < end_s


@pytest.mark.parametrize("length_s", [2, 3, 8, 60, 3600])
def test_a_gap_of_the_management_network_is_bridged_by_a_data_nic(length_s: float) -> None:
    world = World(gap(0, 5, 5 + length_s))
    world.run(7.5)
    assert world.reach.way not in (0, None) or length_s < IDLE_S
    world.run(5 + length_s + RETURN_S + 2 * STEP_S)
    assert world.gone is None
    assert world.reach.way == 0, "a management network that is back is used again"
    world.run(10_000)
    assert world.gone is None and len(world.moves) <= 2


@pytest.mark.parametrize("ways", [1, 3])
@pytest.mark.parametrize("goes_back", [True, False])
def test_everything_may_be_silent_for_nearly_as_long_as_the_patience(ways: int, goes_back: bool) -> None:
    world = World(lambda way, now: not 5 <= now < 14.5, ways=ways, goes_back=goes_back)
    world.run(100)
    assert world.gone is None


@pytest.mark.parametrize("ways", [1, 3, 10])
@pytest.mark.parametrize("goes_back", [True, False])
@pytest.mark.parametrize("patience_s", [5.0, 10.0, 60.0])
def test_a_host_that_vanishes_is_gone_after_the_patience(ways: int, goes_back: bool, patience_s: float) -> None:
    world = World(lambda way, now: now < 5, ways=ways, goes_back=goes_back, patience_s=patience_s)
    world.run(1000)
    assert world.gone is not None and "no answer" in world.gone
    assert patience_s <= world.now_s - 5 <= patience_s + 1


def test_no_setting_makes_the_kernels_own_probes_look_like_silence() -> None:
    world = World(gap(0, 5, 5 + LEAST_PATIENCE_S - 1), ways=1, patience_s=0.001)
    world.run(100)
    assert world.gone is None


@pytest.mark.parametrize("ways", [1, 3])
@pytest.mark.parametrize("goes_back", [True, False])
def test_a_process_that_dies_is_gone_at_once(ways: int, goes_back: bool) -> None:
    world = World(lambda way, now: True, lambda now: now < 5, ways=ways, goes_back=goes_back)
    world.run(1000)
    assert world.gone is not None and world.now_s <= 5.5


@pytest.mark.parametrize("goes_back", [True, False])
@pytest.mark.parametrize("dies_s", [5.0, 5.25, 6.0, 20.0])
def test_a_process_that_dies_without_management_is_heard_of_by_a_data_nic(dies_s: float, goes_back: bool) -> None:
    world = World(gap(0, 5, 1e9), lambda now: now < dies_s, goes_back=goes_back, ways=10)
    world.run(1000)
    assert world.gone is not None and "nobody listens" in world.gone
    assert world.now_s <= dies_s + IDLE_S + 2


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100), st.floats(0.1, 9)), max_size=12),
    st.booleans(),
    st.sampled_from([0.0, 3.0]),
)
@settings(max_examples=200)
def test_whatever_flaps_nobody_who_is_reached_in_time_is_gone(
    cuts: list[tuple[int, float, float]], goes_back: bool, always: float
) -> None:
    """Cuts of single ways, of any number at once; the third data NIC always works, or all are whole at every 8th s."""

    def works(way: int, now: float) -> bool:
        if (always and way == 3) or now % 8 < 1.5:
            return True
        return not any(one == way and begin <= now < begin + length for one, begin, length in cuts)

    world = World(works, goes_back=goes_back, ways=4)
    world.run(130)
    assert world.gone is None
    if goes_back:
        assert world.reach.way == 0


@pytest.mark.parametrize("refusing", [{0}, {2}, {0, 2}, {0, 2, 3}])
def test_a_refusal_by_something_else_than_the_peer_ends_nothing(refusing: set[int]) -> None:
    """A firewall at the management network, or another host with the address of a data NIC."""
    world = World(gap(0, 5, 30), ways=6, refusing=frozenset(refusing))
    world.reach._next = 1 if refusing != {0, 2, 3} else 4
    world.run(100)
    assert world.gone is None


def test_where_nothing_but_refusals_comes_the_peer_is_gone() -> None:
    """The control of the test above."""
    world = World(gap(0, 5, 30), ways=3, refusing=frozenset({0, 1, 2}))
    world.run(100)
    assert world.gone is not None and world.now_s < 10


def test_a_stopped_process_does_not_count_its_own_absence() -> None:
    world = World(lambda way, now: now < 5 or now > 100, ways=1)
    world.run(5.5)
    world.now_s = 99.0  # nobody looked for so long
    world.run(110)
    assert world.gone is None
    slept = World(lambda way, now: now < 5, ways=1)
    slept.run(5.5)
    slept.now_s = 99.0
    slept.run(1000)
    assert slept.gone is not None and slept.now_s >= 99 + 9


def test_a_peer_that_is_stopped_is_slow_and_not_gone() -> None:
    """Its kernel answers, and takes connections that nobody greets."""
    reach = Reach(10.0, 0.0, goes_back=True, ways=2)
    reach.ended(1.0, by_peer=True)
    for quarter in range(4, 4000):
        now = quarter / 4
        for way in reach.dials(now):
            reach.answered(way, now)
        assert reach.gone(now) is None


def test_ways_are_tried_in_turn() -> None:
    reach = Reach(100.0, 0.0, goes_back=True, ways=6)
    reach.ended(0.0, by_peer=False)
    tried = [reach.dials(quarter / 4) for quarter in range(5)]
    assert all(way[0] == 0 for way in tried)
    assert {way for one in tried[:3] for way in one} == set(range(6))
    assert Reach(1.0, 0.0, goes_back=True).dials(0.0) == []
