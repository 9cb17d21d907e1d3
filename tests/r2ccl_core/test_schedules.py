"""Every schedule of every algorithm is proved, and one with a step removed is refused."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core.errors import ScheduleError, UsageError
from r2ccl_core.model.schedule import SLOTS, Schedule, relabelled
from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.verify import least_slots, verify
from r2ccl_core.schedules import (
    all_to_all,
    broadcast,
    forest,
    hierarchical,
    leaf_ring,
    optcc,
    owner_skewed_ring,
    r2cc_all_reduce,
    rerank,
    ring,
    send_recv,
    tree,
)

SHARES = st.sampled_from([1.0, 0.9, 0.875, 0.75, 0.6, 0.5, 1 / 3, 0.25])
VECTORS = st.lists(SHARES, min_size=3, max_size=9)


def equal_hosts(p: int) -> list[Schedule]:
    made = [
        ring.all_reduce(p, slices=3, lanes=2),
        ring.reduce_scatter(p, slices=2, lanes=2),
        ring.all_gather(p, slices=2, lanes=2),
        tree.all_reduce(p, slices=2),
        broadcast.broadcast(p, p // 2, slices=5),
        broadcast.reduce(p, p // 2, slices=5),
        broadcast.broadcast(p, p - 1, slices=2, tree=True),
        broadcast.reduce(p, p - 1, slices=2, tree=True),
        all_to_all.all_to_all(p, slices=2),
    ]
    return made if p == 1 else [*made, send_recv.send_recv(p, slices=3)]


def unequal_hosts(shares: list[float]) -> list[Schedule]:
    made = [
        optcc.all_reduce(shares, segments=5, slices=1),
        owner_skewed_ring.all_reduce(shares, lanes=3, slices=2),
        r2cc_all_reduce.all_reduce(shares, pipeline=3, chunks=20),
        forest.all_reduce(shares, trees=3, chunks=4),
        forest.all_reduce(shares, trees=8, chunks=2, fan=8),
    ]
    if sum(share == max(shares) for share in shares) >= 2:
        made.append(leaf_ring.all_reduce(shares, segments=3, lanes=2))
    return made


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 8])
def test_equal_hosts_are_proved_with_one_buffer(p: int) -> None:
    for schedule in equal_hosts(p):
        verify(schedule, slots=1)


@pytest.mark.parametrize("p", [2, 3, 6])
@pytest.mark.parametrize("slices", [1, 2, 5])
def test_what_runs_ahead_needs_so_many_buffers_and_no_more(p: int, slices: int) -> None:
    for make in (ring.all_reduce, ring.reduce_scatter, ring.all_gather, send_recv.send_recv):
        schedule = make(p, slices=slices, ahead=3)
        verify(schedule, slots=4)
        assert least_slots(schedule) == min(4, slices)


@settings(max_examples=40)
@given(shares=VECTORS)
def test_any_bandwidths_are_proved(shares: list[float]) -> None:
    for schedule in unequal_hosts(shares):
        verify(schedule, slots=2)


@settings(max_examples=30)
@given(shares=VECTORS, data=st.data())
def test_a_schedule_without_one_step_is_refused(shares: list[float], data: st.DataObject) -> None:
    schedule = data.draw(st.sampled_from([*equal_hosts(len(shares)), *unequal_hosts(shares)]))
    places = [
        (rank, lane)
        for rank, program in enumerate(schedule.programs)
        for lane, steps in enumerate(program)
        if len(steps)
    ]
    rank, lane = data.draw(st.sampled_from(places))
    steps = schedule.programs[rank][lane]
    without = np.delete(steps, data.draw(st.integers(0, len(steps) - 1)))
    program = list(schedule.programs[rank])
    program[lane] = without
    programs = list(schedule.programs)
    programs[rank] = tuple(program)
    with pytest.raises(ScheduleError):
        verify(replace(schedule, programs=tuple(programs)))


@pytest.mark.parametrize("p", range(3, 20))
def test_optcc_and_leaf_ring_hold_for_every_ring_size(p: int) -> None:
    shares = [0.5] + [1.0] * (p - 1)
    verify(optcc.all_reduce(shares, segments=8, slices=1))
    verify(leaf_ring.all_reduce(shares, segments=3))


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_hierarchical_is_proved(gpus: int) -> None:
    shares = [0.5, 1.0, 0.75, 1.0]
    for hosts in (ring.all_reduce(4, slices=2), *unequal_hosts(shares)):
        verify(hierarchical.all_reduce(hosts, gpus))


def test_trees_are_abreast_where_they_share_nics() -> None:
    hosts = forest.all_reduce([0.5, 1.0, 1.0], trees=3, chunks=10)
    assert hosts.abreast == (0, 0, 0)
    ranks = hierarchical.all_reduce(hosts, 2)
    # The lanes of one shard: another one goes over the NICs from another rank.
    assert len(ranks.abreast) == ranks.nlanes == 6
    assert len(set(ranks.abreast[:3])) == len(set(ranks.abreast[3:])) == 1 and len(set(ranks.abreast)) == 2
    with pytest.raises(ScheduleError, match="2 lanes have a group, of 3"):
        replace(hosts, abreast=(0, 0))


def test_the_forest_needs_one_buffer() -> None:
    assert least_slots(forest.all_reduce([0.5, 1.0, 1.0, 0.75, 1.0], trees=4, chunks=6)) == 1


@settings(max_examples=60)
@given(shares=st.lists(st.floats(0.1, 1.0), min_size=3, max_size=24), trees=st.integers(1, 12))
def test_tree_degrees_are_what_was_asked(shares: list[float], trees: int) -> None:
    p = len(shares)
    totals = forest.integer_degrees(shares, trees)
    assert sum(totals) == 2 * trees * (p - 1) and min(totals) >= trees
    for fan in (2, 8):
        made = forest.trees_of(shares, trees, fan)
        assert [sum(one.degrees[v] for one in made) for v in range(p)] == totals


def test_greedy_degrees_are_near_the_fluid_optimum() -> None:
    for shares in ([0.5, 1, 1, 1], [0.9] + [1.0] * 30, [0.5] * 3 + [1.0] * 13):
        fluid = max(d / b for d, b in zip(forest.mean_degrees(shares), shares, strict=True))
        p, trees = len(shares), 24
        rounded = max(d / trees / b for d, b in zip(forest.integer_degrees(shares, trees), shares, strict=True))
        assert fluid <= rounded * (1 + 1e-12)
        assert rounded <= max(1 / min(shares), (2 * (p - 1) + p / trees) / sum(shares)) + 1e-9


def test_a_new_order_keeps_the_proof() -> None:
    verify(relabelled(ring.all_reduce(5), [2, 0, 4, 1, 3]))
    with pytest.raises(ScheduleError, match="is no order"):
        relabelled(ring.all_reduce(3), [0, 0, 1])
    with pytest.raises(ScheduleError, match="order of the ranks is part of"):
        relabelled(all_to_all.all_to_all(3), [0, 2, 1])


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("build", [ring.all_gather, ring.reduce_scatter])
def test_blocks_move_with_their_ranks(build: Callable[..., Schedule], lanes: int) -> None:
    moved = relabelled(build(5, slices=3, lanes=lanes, ahead=1), [2, 0, 4, 1, 3])
    verify(moved, slots=SLOTS)
    assert {(a, b) for a, b, _ in moved.connections()} == {(2, 0), (0, 4), (4, 1), (1, 3), (3, 2)}


def test_reranking_puts_a_whole_host_between_different_losses() -> None:
    topology = Topology.uniform(4, 3, 1.0, isolated_rails=True).lost(0, 0).lost(1, 1)
    order = rerank.ring_order(topology)
    assert rerank.ring_rate_bytes_s(topology, (0, 1, 2, 3)) == 1.0
    assert rerank.ring_rate_bytes_s(topology, order) == 2.0
    verify(rerank.all_reduce(topology))


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(UsageError):
        forest.all_reduce([1.0])
    with pytest.raises(UsageError):
        optcc.all_reduce([1.0, 0.5])
    with pytest.raises(UsageError):
        forest.all_reduce([0.0, 1.0, 1.0])
