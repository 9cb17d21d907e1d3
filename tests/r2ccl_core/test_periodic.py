"""Times by a few periods against whole simulations, and the planner that pays a switch back."""

import pytest

from r2ccl_core import periodic
from r2ccl_core.errors import UsageError
from r2ccl_core.planner import plan
from r2ccl_core.schedule import Schedule
from r2ccl_core.schedules import forest, ring
from r2ccl_core.simulate import simulate
from r2ccl_core.topology import Topology

GIB = 1 << 30


def true_error(one: periodic.Periodic, topology: Topology, alpha_s: float = 0.0) -> tuple[float, periodic.Estimate]:
    found = periodic.estimate(one, topology, GIB, alpha_s=alpha_s)
    whole = simulate(one.build(one.periods), topology, GIB, alpha_s=alpha_s).seconds
    return abs(found.seconds / whole - 1), found


@pytest.mark.parametrize("alpha_s", [0.0, 1e-6])
@pytest.mark.parametrize("shares", [[0.5, *[1.0] * 31], [0.875, 0.5, *[1.0] * 30], [1.0] * 32])
def test_a_few_periods_tell_the_time_of_all(shares: list[float], alpha_s: float) -> None:
    topology = Topology.of_shares(shares, 50e9)
    made = [
        periodic.of_ring(32, slices=4, ahead=3),
        periodic.of_forest(tuple(shares), trees=2, rounds=1024),
    ]
    for one in made:
        error, found = true_error(one, topology, alpha_s)
        assert error <= 0.01, one.name
        assert found.error <= periodic.MOST_ERROR
        assert found.periods < one.periods or one.periods < 100


def test_dense_forests_are_estimated_with_a_tolerance() -> None:
    """At 8 and 16 chunks a tree the answers agree to 0.6 %, and are 2 % off."""
    shares = [0.875, 0.5, *[1.0] * 14]
    one = periodic.of_forest(tuple(shares), trees=10, rounds=300, fan=4)
    assert one.build(1).nlanes >= periodic.DENSE_LANES
    error, found = true_error(one, Topology.of_shares(shares))
    assert error <= 0.01
    assert found.periods < one.periods


def test_a_short_schedule_is_simulated_in_full() -> None:
    shares = [0.75, *[1.0] * 7]
    error, found = true_error(periodic.of_forest(tuple(shares), trees=3, rounds=9), Topology.of_shares(shares))
    assert error == 0 == found.error
    assert found.periods == 9


def test_what_does_not_grow_evenly_is_not_extrapolated() -> None:
    """Negative control: chunks that get larger and larger have no period, and are found out."""

    def growing(k: int) -> Schedule:
        return ring.all_reduce(4, slices=k * k)

    one = periodic.Periodic("growing", 64, growing, first=1, divides=False)
    found = periodic.estimate(one, Topology.of_shares([1.0] * 4), 0, alpha_s=1e-6)
    assert found.error == 0 and found.periods == 64


def test_an_error_of_nothing_cannot_be_promised() -> None:
    with pytest.raises(UsageError, match="simulate the whole"):
        periodic.estimate(periodic.of_ring(4), Topology.of_shares([1.0] * 4), GIB, most_error=0.0)


def test_truncated_rings_are_the_beginning_of_whole_ones() -> None:
    whole, part = ring.all_reduce(6, slices=2), ring.all_reduce(6, slices=2, hops=7)
    for full, cut in zip(whole.programs, part.programs, strict=True):
        assert 0 < len(cut[0]) < len(full[0])
        assert (full[0]["send"][:10] == cut[0]["send"][:10]).all()


def test_a_schedule_that_pays_its_switch_back_is_taken() -> None:
    """40 hosts, one at 0.95: the ring takes 1.051 of the bound, the forest 1.02."""
    topology = Topology.of_shares([0.95, *[1.0] * 39], 250e9)
    assert plan(topology, "all_reduce", GIB).chosen.name == "ring"
    many = plan(topology, "all_reduce", GIB, operations=1000)
    assert many.chosen.name == "forest"
    assert many.chosen.seconds <= 1.025 * many.bound_s
    assert plan(topology, "all_reduce", GIB, operations=2).chosen.name == "ring"
    assert plan(topology, "all_reduce", GIB, operations=2, switch_s=0.0).chosen.name == "forest"


def test_a_fitted_promise_below_the_margin_is_not_believed() -> None:
    for hosts in (8, 16, 40):
        topology = Topology.of_shares([0.97, *[1.0] * (hosts - 1)], 250e9)
        result = plan(topology, "all_reduce", 64 << 20, 5e-6, operations=10**9)
        assert result.chosen.guaranteed or result.chosen.name == "ring"


def test_degrees_of_thousands_of_hosts_add_up() -> None:
    shares = [0.5, 0.875, *[1.0] * 2046]
    split = forest.degrees_of(shares, 7, 4)
    assert [sum(one) for one in split] == [2 * 2047] * 7
    assert [sum(column) for column in zip(*split, strict=True)] == forest.integer_degrees(shares, 7)
    assert forest.height_of(split[0]) == forest.tree_of_degrees(split[0], shares).height
