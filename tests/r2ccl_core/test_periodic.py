"""Times by a few periods against whole simulations, and the planner that pays a switch back."""

from dataclasses import replace

import numpy as np
import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.model.topology import Topology
from r2ccl_core.planning import periodic
from r2ccl_core.planning.planner import plan
from r2ccl_core.planning.simulate import simulate
from r2ccl_core.schedules import forest, ring
from r2ccl_core.student import student_t

GIB = 1 << 30


def true_error(one: periodic.Periodic, alpha_s: float = 0.0) -> tuple[float, periodic.Estimate]:
    found = periodic.estimate(one, alpha_s=alpha_s, beginning=True)
    whole = one.part(one.periods)
    tolerance = 0.001 if whole.schedule.nlanes >= periodic.DENSE_LANES else 0.0
    seconds = simulate(whole.schedule, whole.topology, whole.size_bytes, alpha_s=alpha_s, tolerance=tolerance).seconds
    return abs(found.seconds / seconds - 1), found


def true_s(one: periodic.Periodic, alpha_s: float) -> float:
    whole = one.part(one.periods)
    return simulate(whole.schedule, whole.topology, whole.size_bytes, alpha_s=alpha_s).seconds


@pytest.mark.parametrize("alpha_s", [0.0, 1e-6])
@pytest.mark.parametrize("shares", [[0.5, *[1.0] * 31], [0.875, 0.5, *[1.0] * 30], [1.0] * 32])
def test_a_few_periods_tell_the_time_of_all(shares: list[float], alpha_s: float) -> None:
    topology = Topology.of_shares(shares, 50e9)
    made = [
        periodic.of_ring(topology, GIB, slices=4, ahead=3),
        periodic.of_forest(topology, GIB, trees=2, chunks=1024),
    ]
    for one in made:
        error, found = true_error(one, alpha_s)
        assert error <= 0.01, one.name
        assert found.error <= periodic.MOST_ERROR
        assert found.periods < one.periods or one.periods < 100


@pytest.mark.parametrize(
    ("name", "parameters", "hosts", "alpha_s"),
    [
        ("optcc", {"segments": 4}, 264, 0.0),
        ("optcc", {"segments": 4}, 265, 5e-6),
        ("owner_skewed_ring", {"lanes": 4, "slices": 2}, 265, 0.0),
        ("leaf_ring", {"segments": 4}, 264, 5e-6),
    ],
)
def test_a_small_cluster_tells_the_time_of_a_large_one(
    name: str, parameters: dict[str, int], hosts: int, alpha_s: float
) -> None:
    one = periodic.of_candidate(name, parameters, Topology.uniform(hosts, 8, 50e9).lost(0, 0), GIB)
    error, found = true_error(one, alpha_s)
    assert found.periods < one.periods
    assert error <= 0.01


def test_hosts_that_differ_stay_in_the_small_cluster() -> None:
    topology = Topology.uniform(289, 8, 50e9).lost(3, 0).lost(200, 1)
    one = periodic.of_candidate("r2cc_all_reduce", {"pipeline": 4, "chunks": 289}, topology, GIB)
    error, found = true_error(one)
    assert found.periods < one.periods
    assert error <= 0.01
    small = one.part(20)
    assert sorted(small.topology.shares)[:3] == [0.875, 0.875, 1.0]
    assert small.topology.nhosts == 43 and small.size_bytes == GIB * 43 // 289


def test_dense_forests_are_estimated_with_a_tolerance() -> None:
    """At 8 and 16 chunks a tree the answers agree to 0.6 %, and are 2 % off."""
    shares = [0.875, 0.5, *[1.0] * 14]
    one = periodic.of_forest(Topology.of_shares(shares), GIB, trees=10, chunks=300, fan=4)
    assert one.part(1).schedule.nlanes >= periodic.DENSE_LANES
    error, found = true_error(one)
    assert error <= 0.01
    assert found.periods < one.periods


def test_the_least_period_of_a_dense_forest_tells_its_time_early() -> None:
    one = periodic.of_forest(Topology.of_shares([0.875, *[1.0] * 31], 400e9), GIB, trees=8, chunks=256, fan=16)
    error, found = true_error(one)
    assert found.periods <= 60 < one.periods
    assert error <= found.error + 0.002


def test_a_period_is_bounded_where_messages_cost_time() -> None:
    """One that costs little adds so little that the bounds alone tell the rest; a false bound is found out."""
    topology = Topology.of_shares([0.875, *[1.0] * 15], 400e9)
    dense = periodic.of_forest(topology, GIB, trees=8, chunks=256, fan=16)
    assert dense.forest is not None
    error, found = true_error(dense, 0.2e-6)
    assert found.periods < 64 and error <= found.error <= 0.01
    false = replace(dense, forest=replace(dense.forest, least_s=dense.forest.least_s / 2))
    error, found = true_error(false)
    assert found.periods > 50 and error <= found.error + 0.002


def seconds_on_uneven_ports(one: periodic.Periodic, alpha_s: float, runs: int) -> list[float]:
    """The whole schedule exactly, on other ports than those of `estimate`."""
    whole = one.part(one.periods)
    return [
        simulate(whole.schedule, whole.topology, whole.size_bytes, alpha_s=alpha_s, seed=100 + run).seconds
        for run in range(runs)
    ]


@pytest.mark.parametrize(
    ("hosts", "trees", "chunks", "fan", "alpha_s"),
    [(16, 8, 64, 8, 5e-6), (32, 8, 96, 8, 5e-6), (32, 16, 60, 16, 20e-6)],
)
def test_a_dense_forest_whose_messages_cost_time_is_told_by_its_mean(
    hosts: int, trees: int, chunks: int, fan: int, alpha_s: float
) -> None:
    one = periodic.of_forest(
        Topology.of_shares([0.875, *[1.0] * (hosts - 1)], 400e9), GIB, trees=trees, chunks=chunks, fan=fan
    )
    found = periodic.estimate(one, alpha_s=alpha_s)
    exact_s = seconds_on_uneven_ports(one, alpha_s, 6)
    half_s = student_t(5) * np.std(exact_s, ddof=1) / 6**0.5
    assert found.periods == chunks
    assert found.error == periodic.COSTLY_TOLERANCE_ERROR
    assert 0 < found.ports_error <= periodic.MOST_ERROR
    assert abs(found.seconds - np.mean(exact_s)) <= (found.error + found.ports_error) * found.seconds + half_s


def test_ports_that_are_quite_alike_keep_in_step() -> None:
    """Negative control: without chance the time is another, and no error that is told would hold it."""
    one = periodic.of_forest(Topology.of_shares([0.875, *[1.0] * 31], 400e9), GIB, trees=16, chunks=100, fan=16)
    found = periodic.estimate(one, alpha_s=20e-6)
    assert true_s(one, 20e-6) < found.seconds * (1 - 2 * (found.error + found.ports_error))


def test_the_fewer_messages_are_affordable_the_larger_are_the_errors_that_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of costly messages even a whole run does not tell other ports to a per cent, and that is said."""
    one = periodic.of_forest(Topology.of_shares([0.875, *[1.0] * 23], 400e9), GIB, trees=16, chunks=240, fan=16)
    assert one.forest is not None
    found = []
    for runs in (0.5, 1.1, 8.5):
        monkeypatch.setattr(periodic, "MOST_MESSAGES", int(runs * one.periods * one.forest.messages))
        found.append(periodic.estimate(one, alpha_s=20e-6, beginning=True))
    part, single, several = found
    assert part.periods == pytest.approx(120, abs=5)
    assert part.periods < single.periods <= several.periods < 240
    assert (part.runs, single.runs) == (1, 1) and several.runs > 1
    assert part.error > periodic.MOST_ERROR >= single.error
    assert part.ports_error == single.ports_error > periodic.MOST_ERROR >= several.ports_error
    run = periodic.Looped(one)
    whole_s = [run(20e-6, seed=seed).seconds for seed in range(several.runs)]
    assert part.seconds == pytest.approx(whole_s[0], rel=part.error)
    assert single.seconds == pytest.approx(whole_s[0], rel=single.error)
    assert several.seconds == pytest.approx(np.mean(whole_s), rel=several.error)
    others_s = np.mean([run(20e-6, seed=100 + seed).seconds for seed in range(8)])
    assert all(one.seconds == pytest.approx(others_s, rel=one.error + one.ports_error) for one in found)


def test_a_larger_tolerance_would_not_do() -> None:
    """Negative control: few flows at a port that is looked at less often run ahead of an exact simulation, by more than
    is told of the tolerance that is used."""
    one = periodic.of_forest(Topology.uniform(64, 8, 50e9).lost(0, 0), GIB, trees=8, chunks=256, fan=16)
    whole = one.part(one.periods)

    def mean_s(tolerance: float) -> float:
        runs = [
            simulate(whole.schedule, whole.topology, whole.size_bytes, alpha_s=20e-6, tolerance=tolerance, seed=seed)
            for seed in range(6)
        ]
        return float(np.mean([run.seconds for run in runs]))

    fine_s = mean_s(0.005)
    assert mean_s(periodic.COSTLY_TOLERANCE) == pytest.approx(fine_s, rel=periodic.COSTLY_TOLERANCE_ERROR)
    assert mean_s(5 * periodic.COSTLY_TOLERANCE) < fine_s * (1 - 2 * periodic.COSTLY_TOLERANCE_ERROR)


@pytest.mark.parametrize("spread", [0.0004, 0.002, 0.005])
def test_the_error_that_is_told_holds_for_95_of_100_forests(spread: float) -> None:
    """Of forests whose runs differ by as much as chance may have it, also if runs end once it is small enough."""
    rng = np.random.default_rng(1)
    held, trials = 0, 2000
    for _ in range(trials):
        own = spread * (periodic.SPREAD_DEGREES / rng.chisquare(periodic.SPREAD_DEGREES)) ** 0.5
        runs_s: list[float] = []
        while not runs_s or (len(runs_s) < 8 and periodic.error_of_mean(runs_s, spread) > periodic.MOST_ERROR):
            runs_s.append(1 + own * rng.standard_normal())
        held += abs(np.mean(runs_s) - 1) <= periodic.error_of_mean(runs_s, spread)
    assert held >= 0.94 * trials


@pytest.mark.parametrize(("trees", "chunks", "alpha_s"), [(3, 300, 5e-6), (8, 120, 1e-6), (24, 80, 5e-6)])
def test_the_beginning_of_a_forest_tells_its_time(trees: int, chunks: int, alpha_s: float) -> None:
    topology = Topology.uniform(128, 8, 50e9).lost(0, 0)
    one = periodic.of_forest(topology, GIB, trees=trees, chunks=chunks, fan=16)
    found = periodic.estimate(one, alpha_s=alpha_s, beginning=True)
    assert found.periods < one.periods
    assert 0 < found.error <= periodic.MOST_ERROR
    run = periodic.Looped(one)
    same_s, others_s = (
        np.mean([run(alpha_s, seed=first + number).seconds for number in range(runs)])
        for first, runs in ((0, found.runs), (100, 3))
    )
    assert found.seconds == pytest.approx(same_s, rel=found.error)
    assert found.seconds == pytest.approx(others_s, rel=found.error + found.ports_error)


@pytest.mark.parametrize(("trees", "fan", "chunks"), [(2, 2, 40), (3, 2, 13), (6, 4, 20), (16, 16, 9), (3, 2, 6)])
def test_a_loop_makes_every_chunk_of_a_forest(trees: int, fan: int, chunks: int) -> None:
    topology = Topology.of_shares([0.875, 0.5, *[1.0] * 22])
    one = periodic.of_forest(topology, chunks * trees * 1000, trees=trees, chunks=chunks, fan=fan)
    done_s: list[float] = []
    loop = periodic.Looped(one)

    def goes_on(now_s: float) -> bool:
        done_s.append(now_s)
        return False

    looped = loop(0.0, enough=goes_on)
    whole = one.part(chunks)
    tolerance = periodic.TOLERANCE if trees >= periodic.DENSE_LANES else 0.0
    full = simulate(whole.schedule, whole.topology, whole.size_bytes, tolerance=tolerance)
    assert looped.seconds == pytest.approx(full.seconds, rel=1e-9)
    assert looped.links == full.links
    assert len(done_s) == max(0, chunks - loop.before) and done_s == sorted(done_s)


def test_a_loop_that_has_run_enough_is_a_shorter_forest() -> None:
    topology = Topology.of_shares([0.875, *[1.0] * 23])
    one = periodic.of_forest(topology, 500_000, trees=2, chunks=250)
    loop = periodic.Looped(one)
    cut = loop(1e-6, enough=lambda now_s: True)
    periods = loop.before + cut.rounds
    assert periods < 50
    part = one.part(periods)
    assert cut.seconds == simulate(part.schedule, part.topology, part.size_bytes, alpha_s=1e-6).seconds


def test_what_enough_raises_ends_the_simulation() -> None:
    one = periodic.of_forest(Topology.of_shares([1.0] * 8), GIB, trees=2, chunks=50)

    def fails(now_s: float) -> bool:
        raise UsageError(f"at {now_s > 0}")

    with pytest.raises(UsageError, match="at True"):
        periodic.Looped(one)(1e-6, enough=fails)


def test_a_short_schedule_is_simulated_in_full() -> None:
    topology = Topology.of_shares([0.75, *[1.0] * 7])
    error, found = true_error(periodic.of_forest(topology, GIB, trees=3, chunks=9))
    assert error == pytest.approx(0, abs=1e-6) and found.error == 0
    assert found.periods == 9


def test_what_does_not_grow_evenly_is_not_extrapolated() -> None:
    """Negative control: chunks that get larger and larger have no period, and are found out."""

    def growing(k: int) -> periodic.Part:
        return periodic.Part(ring.all_reduce(4, slices=k * k), Topology.of_shares([1.0] * 4), 0)

    one = periodic.Periodic("growing", 64, growing, first=1)
    found = periodic.estimate(one, alpha_s=1e-6)
    assert found.error == 0 and found.periods == 64


def test_an_error_of_nothing_cannot_be_promised() -> None:
    with pytest.raises(UsageError, match="simulate the whole"):
        periodic.estimate(periodic.of_ring(Topology.of_shares([1.0] * 4), GIB), most_error=0.0)


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
