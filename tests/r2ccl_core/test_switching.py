"""Switching schedules under real collectives on loopback: what the ranks hear of their NICs is set by the test,
everything behind it (agreement, connections, bytes) is the real thing."""

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from r2ccl_core.control.rendezvous import free_root
from r2ccl_core.errors import PeerLostError, UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.planning.selection import SchedulePolicy, read_policy
from r2ccl_core.planning.simulate import simulate
from r2ccl_core.runtime.communicator import Communicator
from r2ccl_core.runtime.connections import Wiring
from r2ccl_core.runtime.programs import Ahead, Programs

COUNT = 200_003


class Seen:
    """The transport, but that some of its NICs are said to have no path."""

    def __init__(self, net: Any) -> None:
        self._net = net
        self.lost: set[int] = set()

    def nics(self) -> list[dict[str, Any]]:
        nics: list[dict[str, Any]] = self._net.nics()
        for index in self.lost:
            nics[index] |= {"paths_up": 0, "paths_down": 1}
        return nics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)


class Group:
    """Three ranks as threads, each with three NICs."""

    def __init__(self, policies: list[SchedulePolicy]) -> None:
        size = len(policies)
        root = free_root()
        self._pool = ThreadPoolExecutor(size)
        made = [
            self._pool.submit(
                Communicator,
                rank,
                size,
                root,
                nics=[("lo", f"127.{1 + rank}.0.{1 + nic}") for nic in range(3)],
                policy=own,
            )
            for rank, own in enumerate(policies)
        ]
        self.comms = [future.result(timeout=120) for future in made]
        self.seen = []
        for comm in self.comms:
            assert comm._switching is not None
            comm._switching._nets = seen = Seen(comm._nets)  # type: ignore[assignment]
            self.seen.append(seen)

    def run(self, work: Callable[[Communicator], Any]) -> list[Any]:
        futures = [self._pool.submit(work, comm) for comm in self.comms]
        return [future.result(timeout=240) for future in futures]

    def until(self, name: str) -> None:
        """Collectives, every element checked, until all ranks have run schedule `name`, together."""
        deadline_s = time.monotonic() + 120

        def once(comm: Communicator) -> str:
            own = np.arange(COUNT, dtype=np.int64) * (comm.rank + 1)
            total = comm.size * (comm.size + 1) // 2
            np.testing.assert_array_equal(comm.all_reduce(own), np.arange(COUNT, dtype=np.int64) * total)
            return comm.schedule("all_reduce", own.nbytes).name

        while True:
            names = set(self.run(once))
            assert len(names) == 1, "the ranks run different schedules"
            if names == {name}:
                return
            assert time.monotonic() < deadline_s, f"still {names}"

    def close(self) -> None:
        self.run(Communicator.close)
        self._pool.shutdown()


@pytest.fixture(params=["forest", "auto", "r2cc", "optcc", "leaf_ring", "owner_skewed"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group([SchedulePolicy(algo=request.param, min_bytes=0)] * 3)
    yield made
    made.close()


NAMES = {"r2cc": "r2cc_all_reduce", "owner_skewed": "owner_skewed_ring"}


@pytest.mark.parametrize("group", ["forest", "r2cc", "optcc", "leaf_ring", "owner_skewed"], indirect=True)
def test_a_loss_switches_all_ranks_and_a_repair_switches_back(group: Group) -> None:
    algo = group.comms[0].stats()["algo"]
    group.until("ring")
    for _ in range(2):
        group.seen[1].lost = {2}
        group.until(NAMES.get(algo, algo))
        group.seen[1].lost = set()
        group.until("ring")
    kinds = [event["kind"] for event in group.comms[2].stats()["events"]]
    assert kinds.count("switched") == 4


@pytest.mark.parametrize("group", ["forest"], indirect=True)
def test_an_operation_that_keeps_its_schedule_is_no_switch(group: Group) -> None:
    """Collectives with one schedule keep it whatever is lost, as do short AllReduces their tree. The switch is that of
    the first operation that has another."""

    def kinds() -> list[list[str]]:
        return [[event["kind"] for event in comm.stats()["events"]] for comm in group.comms]

    def keep(comm: Communicator) -> None:
        comm.all_gather(np.ones(1000, np.float32))
        comm.all_reduce(np.ones(10, np.float32))

    group.run(keep)
    group.until("ring")
    group.seen[1].lost = {2}
    deadline_s = time.monotonic() + 120
    while not all(comm._health.lost == ((), (2,), ()) for comm in group.comms):
        group.run(keep)
        assert time.monotonic() < deadline_s
    group.run(keep)
    assert all("agreed" in told and "switched" not in told for told in kinds())
    group.until("forest")
    group.run(keep)
    assert [told.count("switched") for told in kinds()] == [1] * 3


def test_a_ring_goes_round_hosts_that_lost_different_rails_by_those_that_have_them() -> None:
    group = Group([read_policy(2, {})] * 4)
    try:
        group.until("ring")
        group.seen[1].lost, group.seen[2].lost = {1}, {2}
        deadline_s = time.monotonic() + 120
        while any(end[:2] == (1, 2) for end in group.comms[0].schedule("all_reduce", 8 * COUNT).connections()):
            group.until("ring")
            assert time.monotonic() < deadline_s, "it still goes from host 1 to host 2"
    finally:
        group.close()


def test_nics_carry_what_the_schedule_plans_for_hosts_that_lost_different_rails() -> None:
    group = Group([read_policy(2, {"R2CC_ALGO": "forest"})] * 4)

    def sent() -> np.ndarray:
        return np.array([[nic["tx_bytes"] for nic in comm.stats()["nics"]] for comm in group.comms])

    try:
        group.until("ring")
        group.seen[1].lost, group.seen[2].lost = {1}, {2}
        deadline_s = time.monotonic() + 120
        while not group.comms[0].schedule("all_reduce", 8 * COUNT).nic_shares:
            group.until("forest")
            assert time.monotonic() < deadline_s, "nothing is planned"
        group.until("forest")
        before = sent()
        for _ in range(3):
            group.until("forest")
        parts = sent() - before
    finally:
        group.close()
    parts = parts / parts.sum(axis=1, keepdims=True)
    # The two NICs work, but the plan is for hosts without them.
    assert parts == pytest.approx(np.array([[1, 1, 1], [1.5, 0, 1.5], [1.5, 1.5, 0], [1, 1, 1]]) / 3, abs=0.1)


@pytest.mark.parametrize("group", ["forest"], indirect=True)
def test_the_operation_that_switches_finds_everything_made(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str]] = []
    build = Programs._build

    def record(self: Programs, schedule: Schedule, *rest: Any) -> Any:
        made.append((schedule.name, threading.current_thread().name))
        return build(self, schedule, *rest)

    monkeypatch.setattr(Programs, "_build", record)
    group.until("ring")
    group.seen[1].lost = {2}
    group.until("forest")
    assert [thread for name, thread in made if name == "forest"] == ["r2ccl-switching"] * 3
    assert {thread for name, thread in made if name == "ring"}.isdisjoint({"r2ccl-switching"}), "who asks first, makes"


def prepared(comm: Communicator) -> Ahead:
    """What the group's next agreement would make for a NIC that rank 1 loses. On all ranks together."""
    programs, health = comm._programs, comm._health.with_lost(1, (2,))
    wiring = Wiring(comm._nets, comm._bootstrap, programs.missing(health))
    handles = [pickle.loads(told) for told in comm.exchange(pickle.dumps(wiring.handles))]
    ends = wiring.finish({connection: handle for told in handles for connection, handle in told.items()})
    return programs.prepare(health, wiring, ends)


@pytest.mark.parametrize("group", ["forest"], indirect=True)
def test_what_was_prepared_for_connections_that_others_replaced_is_not_used(group: Group) -> None:
    """An operation needed the same connections before the switch: all ranks have those it made."""
    group.until("ring")

    def work(comm: Communicator) -> tuple[int, set[tuple[int, int]]]:
        programs, ahead = comm._programs, prepared(comm)
        for schedule, _ in ahead.executors.values():
            comm.connect(schedule)
        programs.adopt(ahead)
        return len(ahead.executors), set(ahead.executors) & set(programs._executors)

    assert group.run(work) == [(1, set())] * 3
    group.seen[1].lost = {2}
    group.until("forest")


@pytest.mark.parametrize("group", ["forest"], indirect=True)
def test_an_operation_may_take_over_connections_while_the_next_ones_are_prepared(group: Group) -> None:
    group.until("ring")

    def work(comm: Communicator) -> int:
        programs, ahead = comm._programs, prepared(comm)
        select = programs._select

        def meanwhile(*asked: Any) -> Schedule:
            programs.adopt(ahead)
            return select(*asked)

        programs._select = meanwhile  # type: ignore[assignment]
        nothing = Wiring(comm._nets, comm._bootstrap, [])
        again = programs.prepare(comm._health.with_lost(1, (2,)), nothing, nothing.finish({}))
        programs._select = select
        return len(again.executors)

    assert group.run(work) == [1] * 3
    group.seen[1].lost = {2}
    group.until("forest")


@pytest.mark.parametrize("group", ["forest", "r2cc"], indirect=True)
def test_every_rank_sends_what_the_simulator_says(group: Group) -> None:
    group.seen[1].lost = {2}
    group.until(NAMES.get(group.comms[0].stats()["algo"], "forest"))
    data = np.ones(1 << 19, np.float32)

    def sent_bytes(comm: Communicator) -> int:
        before = comm.stats()["nics"]
        comm.all_reduce(data)
        comm.barrier()
        return sum(nic["tx_bytes"] - old["tx_bytes"] for nic, old in zip(comm.stats()["nics"], before, strict=True))

    group.run(sent_bytes)  # connects
    measured = group.run(sent_bytes)
    schedule, health = group.comms[0].schedule("all_reduce", data.nbytes), group.comms[0]._health
    timing = simulate(schedule, health.topology(1e9), data.nbytes)
    for rank, count in enumerate(measured):
        assert timing.sent_bytes(rank) <= count < 1.02 * timing.sent_bytes(rank)  # frames have headers


@pytest.mark.parametrize("group", ["forest"], indirect=True)
def test_changes_on_all_ranks_at_once_end_in_one_health(group: Group) -> None:
    group.until("ring")
    for rank, seen in enumerate(group.seen):
        seen.lost = {rank}
    deadline_s = time.monotonic() + 120
    while {comm._health.lost for comm in group.comms} != {((0,), (1,), (2,))}:
        group.run(lambda comm: comm.all_reduce(np.ones(1000, np.float32)))
        assert time.monotonic() < deadline_s


@pytest.mark.parametrize("group", ["forest"], indirect=True)
def test_a_rank_that_dies_while_others_are_held_ends_in_one_error(group: Group) -> None:
    group.until("ring")
    heard = threading.Event()
    switching = group.comms[1]._switching
    assert switching is not None
    switching._take = lambda rank, data: heard.set()  # type: ignore[method-assign]  # it answers no more
    group.seen[0].lost = {0}
    assert heard.wait(10)

    def work(comm: Communicator) -> str:
        if comm.rank == 1:
            return comm.abort("power cut")
        with pytest.raises(PeerLostError) as caught:
            while True:
                comm.all_reduce(np.ones(1000, np.float32))
        return str(caught.value)

    assert group.run(work) == ["rank 1: power cut"] * 3


def test_ranks_that_ask_for_different_schedules_are_refused() -> None:
    with pytest.raises(UsageError, match=r"rank 0 has .*forest.*rank 2 has .*optcc"):
        Group([SchedulePolicy(algo="forest"), SchedulePolicy(algo="forest"), SchedulePolicy(algo="optcc")])
