"""Topology, bounds and the planner: values in, values out."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core.errors import UsageError
from r2ccl_core.model.collective import COLLECTIVES
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.model.topology import Topology, hot_repaired, parse_lost
from r2ccl_core.planning.bound import bound_s, fault_free_ring_s
from r2ccl_core.planning.planner import LEAST_MESSAGE_BYTES, MOST_CHUNKS, as_record, plan
from r2ccl_core.planning.simulate import simulate
from r2ccl_core.planning.verify import verify
from r2ccl_core.schedules import r2cc_all_reduce

MIB = 1 << 20
THREE = Topology.uniform(3, 3, 62.5e6)


def test_published_points_of_the_bound() -> None:
    """Time over the fault-free ring, from the table of optcc.md."""
    for p, share, ratio in [(4, 0.5, 1.333), (4, 0.75, 1.067), (8, 0.5, 1.143), (8, 0.875, 1.016), (32, 0.5, 1.032)]:
        shares = [share] + [1.0] * (p - 1)
        assert bound_s("all_reduce", shares, 1.0) / fault_free_ring_s(p, 1.0, 1.0) == pytest.approx(ratio, abs=1e-3)


def test_a_lost_nic_takes_its_share() -> None:
    assert THREE.lost(1, 2).shares == pytest.approx((1.0, 2 / 3, 1.0))
    assert THREE.slowed(1, 2, 0.5).shares == pytest.approx((1.0, 5 / 6, 1.0))
    assert hot_repaired(THREE.lost(1, 2)).shares == pytest.approx((1.0, 0.5, 1.0))
    assert THREE.lost(1, 2).healthy == THREE


@pytest.mark.parametrize(("text", "value"), [("1:2", (1, 2, 0.0)), ("0:1:0.5", (0, 1, 0.5))])
def test_lost_reads(text: str, value: tuple[int, int, float]) -> None:
    assert parse_lost(text) == value


@pytest.mark.parametrize("text", ["1", "a:b", "1:2:3:4", "1:2:x"])
def test_lost_refuses(text: str) -> None:
    with pytest.raises(UsageError, match="host:nic"):
        parse_lost(text)


@pytest.mark.parametrize("target", [(3, 0), (0, 3), (-1, 0)])
def test_what_does_not_exist_cannot_be_lost(target: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        THREE.lost(*target)


def test_one_nic_of_three_lost() -> None:
    result = plan(THREE.lost(1, 2), "all_reduce", 64 * MIB, 100e-6)
    ratios = {one.name: one.ratio for one in result.candidates}
    assert result.bound_s / result.fault_free_s == pytest.approx(1.125)
    assert ratios["ring"] == pytest.approx(1.5, rel=0.03)
    assert ratios["hot_repair"] == pytest.approx(2.0, rel=0.03)
    assert ratios["r2cc_all_reduce"] < 1.5
    assert result.chosen.name == "forest" and result.chosen.ratio < 1.2
    verify(result.schedule())


def test_a_healthy_cluster_keeps_the_ring() -> None:
    assert plan(THREE, "all_reduce", 1024 * MIB, 20e-6).chosen.name == "ring"


def test_a_host_without_nics_is_refused() -> None:
    with pytest.raises(UsageError, match="no NIC left"):
        plan(THREE.lost(1, 0).lost(1, 1).lost(1, 2), "all_reduce", MIB)


@pytest.mark.parametrize(("hosts", "nics", "mib"), [(3, 3, 64), (3, 3, 1024), (4, 2, 256), (8, 8, 64)])
def test_r2cc_is_cut_so_that_its_messages_pay(hosts: int, nics: int, mib: int) -> None:
    topology = Topology.uniform(hosts, nics, 12.5e9).lost(1, 0)
    candidates = plan(topology, "all_reduce", mib * MIB, 20e-6).candidates
    one = next(one for one in candidates if one.name == "r2cc_all_reduce")

    def simulated_s(schedule: Schedule) -> float:
        return simulate(schedule, topology, mib * MIB, alpha_s=20e-6).seconds

    assert one.seconds == pytest.approx(simulated_s(one.build()), rel=0.15)
    finest = min(MOST_CHUNKS, mib * MIB // LEAST_MESSAGE_BYTES)
    assert one.seconds < 0.9 * simulated_s(r2cc_all_reduce.all_reduce(topology.shares, pipeline=16, chunks=finest))


def test_several_gpus_become_hierarchical() -> None:
    topology = Topology.uniform(3, 2, 1e9, gpus=2).lost(0, 1)
    schedule = plan(topology, "all_reduce", 8 * MIB, 20e-6).schedule()
    assert schedule.nranks == 6
    verify(schedule)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("hosts", [2, 3, 5])
def test_every_collective_has_a_plan(collective: str, hosts: int) -> None:
    for size in (0, 1, 1000, 64 * MIB):
        result = plan(Topology.uniform(hosts, 2, 1e9).lost(0, 0), collective, size, 20e-6)
        verify(result.schedule())
        assert result.chosen.seconds >= result.bound_s * (1 - 1e-9)
        assert json.loads(json.dumps(as_record(result)))["chosen"] == result.chosen.name


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_messages_that_cost_next_to_nothing_are_planned(collective: str) -> None:
    """The best number of pieces is then infinite."""
    for topology in (THREE, THREE.lost(1, 2)):
        least, free = (plan(topology, collective, 1 << 30, alpha_s) for alpha_s in (1e-320, 0.0))
        assert {one.name: one.seconds for one in least.candidates} == pytest.approx(
            {one.name: one.seconds for one in free.candidates}
        )


@settings(max_examples=25)
@given(
    shares=st.lists(st.floats(0.2, 1.0), min_size=2, max_size=12),
    size=st.sampled_from([1, 4096, MIB, 64 * MIB, 1024 * MIB]),
)
def test_no_prediction_is_below_the_bound(shares: list[float], size: int) -> None:
    result = plan(Topology.of_shares(shares, 1e9), "all_reduce", size, 10e-6)
    for one in result.candidates:
        assert one.seconds >= result.bound_s * (1 - 1e-9), one.name
