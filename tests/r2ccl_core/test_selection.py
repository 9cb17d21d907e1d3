"""Which schedule runs: by the environment, the size and the health."""

import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.model.collective import COLLECTIVES
from r2ccl_core.model.health import RETURN_S, Health, OwnNics
from r2ccl_core.model.schedule import SLOTS, Schedule
from r2ccl_core.planning.algorithms import AUTO, by_alias
from r2ccl_core.planning.bound import bound_s
from r2ccl_core.planning.selection import Cost, read_policy, selection
from r2ccl_core.planning.simulate import simulate
from r2ccl_core.planning.verify import verify

WHOLE = Health.whole((3, 3, 3))
LOST = WHOLE.with_lost(1, (1,))
LARGE = 64 << 20
ALGOS = (*by_alias(), AUTO)
DIFFERENT = Health.whole((3, 3, 3, 3)).with_lost(1, (1,)).with_lost(2, (2,))
"""Hosts 1 and 2 lost different rails: they have one of three in common."""


def chosen(environ: dict[str, str], nbytes: int, health: Health, mode: int = 2) -> Schedule:
    return selection(read_policy(mode, environ))("all_reduce", nbytes, health, Cost())


@pytest.mark.parametrize(
    ("collective", "algo", "nbytes", "whole", "lost"),
    [
        ("alltoall", AUTO, LARGE, WHOLE, LOST),
        ("all_gather", "r2cc", LARGE, WHOLE, LOST),
        ("all_reduce", "r2cc", 1 << 20, WHOLE, LOST),
        ("all_reduce", "forest", 1 << 10, WHOLE, LOST),
        ("all_reduce", AUTO, LARGE, Health.whole((3, 3), gpus=2), Health((3, 3), ((), (1,)), gpus=2)),
        ("all_reduce", AUTO, 4 << 20, Health.whole((3,) * 4), Health((3,) * 4, ((), (1,), (), (2,)))),
        ("alltoall", AUTO, LARGE, Health.whole((3,) * 4), Health((3,) * 4, ((), (1,), (2,), ()))),
    ],
)
def test_what_a_loss_does_not_change_are_the_same_steps(
    collective: str, algo: str, nbytes: int, whole: Health, lost: Health
) -> None:
    """A switch to another schedule is told by it (`Communicator._next_schedule`)."""
    select = selection(read_policy(2, {"R2CC_ALGO": algo}))
    before, after = (select(collective, nbytes, health, Cost()) for health in (whole, lost))
    assert after.programs is before.programs


@pytest.mark.parametrize(
    ("algo", "whole", "lost"),
    [
        ("", "ring", "ring"),
        ("ring", "ring", "ring"),
        ("tree", "tree", "tree"),
        ("r2cc", "ring", "r2cc_all_reduce"),
        ("forest", "ring", "forest"),
        ("optcc", "ring", "optcc"),
        ("leaf_ring", "ring", "leaf_ring"),
        ("owner_skewed", "ring", "owner_skewed_ring"),
        ("auto", "ring", "forest"),
    ],
)
def test_every_algorithm_has_its_schedule(algo: str, whole: str, lost: str) -> None:
    environ = {"R2CC_ALGO": algo}
    assert chosen(environ, LARGE, WHOLE).name == whole
    assert chosen(environ, LARGE, LOST).name == lost


def test_a_little_is_worth_a_switch_where_operations_pay_it_back() -> None:
    """One of 20 NICs of one of 40 hosts: the forest promises 1.6 % over the ring."""
    health, cost = Health.whole((20,) * 40).with_lost(0, (0,)), Cost(5e-6, 50e9)

    def name(environ: dict[str, str]) -> str:
        return selection(read_policy(2, {"R2CC_ALGO": "auto"} | environ))("all_reduce", 16 << 30, health, cost).name

    assert name({}) == "ring"
    assert name({"R2CC_OPERATIONS": "10"}) == "ring"
    assert name({"R2CC_OPERATIONS": "10000"}) == "forest"
    with pytest.raises(UsageError, match="R2CC_OPERATIONS=many: give a whole number, such as 1000"):
        read_policy(2, {"R2CC_OPERATIONS": "many"})


@pytest.mark.parametrize("algo", [word for word in ALGOS if word != "tree"])
@pytest.mark.parametrize("health", [WHOLE, LOST, Health((3, 3, 3), ((), (), ()), gpus=2)])
def test_small_vectors_take_a_tree_whatever_is_lost(algo: str, health: Health) -> None:
    schedule = chosen({"R2CC_ALGO": algo}, 1024, health)
    assert schedule.name == "tree"
    assert chosen({"R2CC_ALGO": algo, "R2CC_TREE_BYTES": "1023"}, 1024, WHOLE).name != "tree"
    verify(schedule, slots=SLOTS)


def test_a_tree_does_not_join_hosts_that_have_no_rail_in_common() -> None:
    apart = Health.whole((2, 2, 2, 2)).with_lost(1, (0,)).with_lost(0, (1,))
    assert (0, 1) in pairs_of(chosen({}, 1024, Health.whole((2, 2, 2, 2))), 1)
    assert (0, 1) not in pairs_of(chosen({}, 1024, apart), 1)


def test_an_algorithm_without_a_form_for_the_health_leaves_it_to_the_ring() -> None:
    two = LOST.with_lost(0, (0,)).with_lost(2, (0,))
    assert chosen({"R2CC_ALGO": "optcc"}, LARGE, two).name == "ring"
    assert chosen({"R2CC_ALGO": "forest"}, LARGE, Health((3, 3), ((1,), ()))).name == "ring"


def test_mode_3_is_r2cc_all_reduce_with_the_users_parameters() -> None:
    assert chosen({}, LARGE, LOST, mode=3).name == "r2cc_all_reduce"
    assert chosen({}, 1 << 20, LOST, mode=3).name == "ring"
    assert chosen({"R2CC_AR_MIN_BYTES": "1MiB"}, 1 << 20, LOST, mode=3).name == "r2cc_all_reduce"
    assert chosen({"R2CC_ALGO": "forest"}, LARGE, LOST, mode=3).name == "forest"
    assert read_policy(3, {"R2CC_AR_STAGE2_CHUNKS": "16"}).pipeline == 16


def test_the_same_question_has_the_same_answer() -> None:
    select = selection(read_policy(2, {"R2CC_ALGO": "forest"}))
    assert select("all_reduce", LARGE, LOST, Cost()) is select("all_reduce", LARGE, LOST, Cost())


def test_slices_can_be_set() -> None:
    assert chosen({}, 3 << 20, WHOLE).nchunks == 3 * 4
    assert chosen({"R2CC_SLICE_BYTES": "1MiB"}, 3 << 20, WHOLE).nchunks == 3 * 2


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"R2CC_SLICE_BYTES": "0"}, "R2CC_SLICE_BYTES=0"),
        ({"R2CC_SLICE_BYTES": "x"}, "R2CC_SLICE_BYTES=x"),
        ({"R2CC_SLICE_BYTES": "1.5"}, "R2CC_SLICE_BYTES=1.5"),
        ({"R2CC_AR_STAGE2_CHUNKS": "17"}, "1 to 16"),
        ({"R2CC_AR_STAGE2_CHUNKS": "0"}, "at least 1"),
        ({"R2CC_AR_MIN_BYTES": "much"}, "R2CC_AR_MIN_BYTES=much"),
        ({"R2CC_ALGO": "forst"}, "did you mean forest"),
        ({"R2CC_ALGO": "7"}, "use one of ring"),
    ],
)
def test_a_wrong_value_is_one_line(environ: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_policy(2, environ)


def test_fail_stop_follows_no_loss() -> None:
    with pytest.raises(UsageError, match="fail-stop"):
        read_policy(0, {"R2CC_ALGO": "forest"})


@pytest.mark.parametrize("collective", COLLECTIVES[1:])
def test_the_other_collectives_have_one_schedule_whatever_is_lost(collective: str) -> None:
    select = selection(read_policy(2, {"R2CC_ALGO": "auto"}))
    schedule = select(collective, LARGE, WHOLE, Cost(), 2)
    assert select(collective, LARGE, LOST, Cost(), 2) is schedule
    assert schedule.collective == collective and schedule.root == (2 if collective in ("broadcast", "reduce") else 0)
    verify(schedule, slots=SLOTS)
    verify(select(collective, 1024, WHOLE, Cost()))
    with pytest.raises(UsageError, match="scatter"):
        select("scatter", 1, WHOLE, Cost())


@pytest.mark.parametrize("algo", [word for word in ALGOS if word != "tree"])
def test_with_two_ranks_per_host_all_run_and_follow_a_loss(algo: str) -> None:
    whole = Health.whole((3, 3, 3), gpus=2)
    select = selection(read_policy(2, {"R2CC_ALGO": algo}))
    for health in (whole, whole.with_lost(1, [1])):
        schedule = select("all_reduce", LARGE, health, Cost())
        assert schedule.nranks == 6
        verify(schedule, slots=SLOTS)
        plain = algo == "ring" or (health.is_whole and algo != "auto")
        assert (schedule.name == "ring") == plain
    expected = {"ring": "ring", "r2cc": "r2cc_all_reduce", "auto": "hierarchical_forest"}
    assert schedule.name == expected.get(algo) or f"hierarchical_{by_alias()[algo].name}"


@pytest.mark.parametrize("algo", ALGOS)
def test_on_one_host_there_is_nothing_to_plan(algo: str) -> None:
    schedule = selection(read_policy(2, {"R2CC_ALGO": algo}))("all_reduce", LARGE, Health.whole([2], gpus=2), Cost())
    assert schedule.nranks == 2 and schedule.name == ("tree" if algo == "tree" else "ring")


def nic(up: int, down: int) -> dict[str, int]:
    return {"paths_up": up, "paths_down": down}


def test_a_nic_is_lost_with_its_last_path_and_counts_again_when_it_stays() -> None:
    own = OwnNics(2)
    assert own.update(0.0, [nic(0, 0), nic(2, 0)]) == ()
    assert own.update(1.0, [nic(1, 1), nic(2, 0)]) == ()
    assert own.update(2.0, [nic(0, 2), nic(2, 0)]) == (0,)
    assert own.update(3.0, [nic(1, 1), nic(2, 0)]) == (0,)
    assert own.update(3.0 + RETURN_S / 2, [nic(0, 2), nic(2, 0)]) == (0,)
    assert own.update(4.0, [nic(2, 0), nic(2, 0)]) == (0,)
    assert own.update(4.1 + RETURN_S, [nic(2, 0), nic(2, 0)]) == ()


def pairs_of(schedule: Schedule, gpus: int) -> set[tuple[int, int]]:
    """The hosts that send each other anything."""
    hosts = ((source // gpus, destination // gpus) for source, destination, _ in schedule.connections())
    return {(min(pair), max(pair)) for pair in hosts if pair[0] != pair[1]}


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(("mode", "algo"), [(2, ""), (3, ""), (2, "forest"), (2, "auto"), (2, "optcc")])
def test_hosts_that_lost_different_rails_are_kept_apart(mode: int, algo: str, gpus: int) -> None:
    health = Health(DIFFERENT.nics, DIFFERENT.lost, gpus)
    schedule = chosen({"R2CC_ALGO": algo}, LARGE, health, mode)
    verify(schedule, slots=SLOTS)
    assert (1, 2) not in pairs_of(schedule, gpus)


def test_a_ring_is_reranked_only_where_that_helps_and_from_mode_two_on() -> None:
    select = selection(read_policy(2, {}))
    whole = Health.whole(DIFFERENT.nics)

    def ring(health: Health) -> Schedule:
        return select("all_reduce", LARGE, health, Cost())

    assert ring(whole.with_lost(1, (1,))) is ring(whole)
    assert ring(DIFFERENT) is ring(DIFFERENT) is not ring(whole)
    assert (1, 2) in pairs_of(chosen({}, LARGE, DIFFERENT, mode=1), 1)
    for health, follows in ((whole, True), (Health.whole((3, 3, 3)), False), (Health.whole((1,) * 4), False)):
        assert read_policy(2, {}).follows(health) is follows
        assert not read_policy(1, {}).follows(health)


@pytest.mark.parametrize("hosts", [3, 4])
@pytest.mark.parametrize("algo", ["auto", "forest"])
def test_hosts_that_share_no_rail_exchange_nothing(hosts: int, algo: str) -> None:
    """A ring of three hosts cannot avoid that."""
    apart = Health.whole((2,) * hosts).with_lost(1, (0,)).with_lost(2, (1,))
    schedule = chosen({"R2CC_ALGO": algo}, LARGE, apart)
    verify(schedule, slots=SLOTS)
    assert (1, 2) not in pairs_of(schedule, 1)
    for other in ALGOS:
        verify(chosen({"R2CC_ALGO": other}, LARGE, apart), slots=SLOTS)


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("algo", ["", "auto", "forest"])
@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "broadcast", "reduce"])
def test_rings_and_chains_of_other_collectives_go_around_hosts_that_share_few_rails(
    collective: str, algo: str, gpus: int
) -> None:
    health = Health(DIFFERENT.nics, DIFFERENT.lost, gpus)
    select = selection(read_policy(2, {"R2CC_ALGO": algo}))
    for root in range(health.nranks) if collective in ("broadcast", "reduce") else (0,):
        schedule = select(collective, LARGE, health, Cost(), root)
        verify(schedule, slots=SLOTS)
        assert schedule.root == root
        assert (1, 2) not in pairs_of(schedule, gpus)
        assert schedule is select(collective, LARGE, health, Cost(), root)
    whole = select(collective, LARGE, Health.whole(DIFFERENT.nics, gpus), Cost())
    assert (1, 2) in pairs_of(whole, gpus)


@pytest.mark.parametrize("collective", ["sendrecv", "alltoall"])
def test_messages_between_given_ranks_stay_as_they_are(collective: str) -> None:
    select = selection(read_policy(2, {}))
    schedule = select(collective, LARGE, DIFFERENT, Cost())
    verify(schedule, slots=SLOTS)
    assert (1, 2) in pairs_of(schedule, 1)


def test_auto_is_near_the_bound_where_rails_are_apart() -> None:
    rate, nbytes = 125e6, 96 << 20
    topology = DIFFERENT.topology(rate)
    select = selection(read_policy(2, {"R2CC_ALGO": AUTO}))
    seconds = simulate(select("all_reduce", nbytes, DIFFERENT, Cost(150e-6, rate)), topology, nbytes).seconds
    assert seconds < 1.08 * bound_s("all_reduce", topology.rates_bytes_s, nbytes)
