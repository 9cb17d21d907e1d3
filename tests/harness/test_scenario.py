"""What breaks, where and when: drawn by chance that repeats itself, never more than a host can bear."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.registry import FAULTS
from harness.experiment.fault_tables import MIN_LASTS_S, FaultModel
from harness.hosts.base import Nic
from harness.sweep.scenario import BUSIEST, Hosts, Injection, fits, held, injections, named, reach
from harness.sweep.targets import planned

HORIZON_S = 20.0


def cluster(hosts: int, nics: int) -> Hosts:
    return {
        f"host{h}": [
            Nic(f"eth{r}", r, f"10.{r}.0.{h + 1}", switch="switch", switch_port=f"h{h}r{r}") for r in range(nics)
        ]
        for h in range(hosts)
    }


def table(**keys: Any) -> FaultModel:
    return FaultModel.model_validate(keys)


CLUSTERS = st.builds(cluster, st.integers(2, 4), st.integers(1, 4))
KINDS = st.sampled_from([kind for kind, fault in FAULTS.items() if fault.scope != "host"])
CHOICES = st.lists(st.fixed_dictionaries({"kind": KINDS, "weight": st.floats(0.1, 10)}), min_size=1, max_size=4)
CHANCE = st.fixed_dictionaries(
    {"name": st.just("mixed"), "mtbf": st.sampled_from(["50 ms", "300 ms", "2 s"]), "choices": CHOICES},
    optional={
        "mttr": st.sampled_from(["100 ms", "1 s", "10 s"]),
        "host": st.sampled_from(["host1", "random"]),
        "nic": st.sampled_from(["random", "busiest"]),
    },
).map(lambda keys: table(**keys))
SEEDS = st.text("0123456789/abc", max_size=8)


def overlapping(drawn: Sequence[Injection], now: Injection) -> list[Injection]:
    return [s for s in drawn if s is not now and s.offset_s <= now.offset_s < s.offset_s + (s.lasts_s or 1e9)]


@given(CHANCE, CLUSTERS, SEEDS)
def test_the_same_seed_draws_the_same_failures(fault: FaultModel, hosts: Hosts, seed: str) -> None:
    assert injections(fault, hosts, seed, HORIZON_S) == injections(fault, hosts, seed, HORIZON_S)


def test_another_seed_draws_others() -> None:
    fault = table(kind="nic_down", mtbf="300 ms")
    assert len({str(injections(fault, cluster(3, 3), str(seed), HORIZON_S)) for seed in range(20)}) == 20


@given(CHANCE, CLUSTERS, SEEDS)
def test_a_longer_horizon_adds_failures_and_changes_none(fault: FaultModel, hosts: Hosts, seed: str) -> None:
    short, long = (injections(fault, hosts, seed, horizon_s) for horizon_s in (HORIZON_S / 2, HORIZON_S))
    assert long[: len(short)] == short
    assert all(injection.offset_s > HORIZON_S / 2 for injection in long[len(short) :])


@given(CHANCE, CLUSTERS, SEEDS)
def test_chance_never_breaks_a_thing_twice_at_once_nor_a_hosts_last_nic(
    fault: FaultModel, hosts: Hosts, seed: str
) -> None:
    drawn = injections(fault, hosts, seed, HORIZON_S)
    assert [s.offset_s for s in drawn] == sorted(s.offset_s for s in drawn)
    for injection in drawn:
        assert 0 < injection.offset_s <= HORIZON_S
        assert injection.lasts_s is not None and injection.lasts_s >= MIN_LASTS_S
        assert not injection.aimed
        others = [thing for other in overlapping(drawn, injection) for thing in held(other, hosts)]
        assert not set(held(injection, hosts)) & set(others)
        for host, nics in hosts.items():
            lost = {name for of, name in (*others, *held(injection, hosts)) if of == host and name}
            assert len(lost) < len(nics)


@given(CHANCE, CLUSTERS, SEEDS)
def test_what_is_drawn_is_in_the_cluster(fault: FaultModel, hosts: Hosts, seed: str) -> None:
    for injection in injections(fault, hosts, seed, HORIZON_S):
        assert injection.host in hosts and (fault.host != "host1" or injection.host == "host1")
        if injection.nic != BUSIEST:
            assert {(t.host, t.nic) for t in planned(injection, hosts)} == set(reach(injection, hosts))


def test_chance_reaches_everything_and_keeps_its_mean_time() -> None:
    fault = table(name="mixed", mtbf="100 ms", mttr="1 ms", choices=[{"kind": "nic_down"}, {"kind": "process_pause"}])
    drawn = injections(fault, cluster(3, 3), "1", 200.0)
    assert {(s.host, s.nic) for s in drawn if s.kind == "nic_down"} == {
        (f"host{h}", f"eth{n}") for h in range(3) for n in range(3)
    }
    assert len(drawn) == pytest.approx(2000, rel=0.2), "but for those that do not fit"


def test_processes_of_hosts_with_one_nic_can_be_paused_by_chance() -> None:
    assert injections(table(kind="process_pause", mtbf="300 ms"), cluster(2, 1), "1", HORIZON_S)
    assert not injections(table(kind="nic_down", mtbf="300 ms"), cluster(2, 1), "1", HORIZON_S)


def test_weights_are_kept() -> None:
    choices = [{"kind": "nic_down", "weight": 9}, {"kind": "loss"}]
    drawn = injections(table(name="m", mtbf="50 ms", mttr="1 ms", choices=choices), cluster(4, 4), "1", 100.0)
    assert sum(s.kind == "loss" for s in drawn) / len(drawn) == pytest.approx(0.1, abs=0.03)


# Aimed ---------------------------------------------------------------------------------------------------


def test_one_failure_comes_several_times() -> None:
    fault = table(kind="nic_down", host="host1", nic="eth2", at_progress=0.5, times=3, every="1 s", lasts="300 ms")
    drawn = injections(fault, cluster(3, 3), "1", HORIZON_S)
    assert [(s.host, s.nic, s.offset_s, s.lasts_s, s.aimed) for s in drawn] == [
        ("host1", "eth2", 0.0, 0.3, True),
        ("host1", "eth2", 1.0, 0.3, False),
        ("host1", "eth2", 2.0, 0.3, False),
    ]
    assert len(injections(fault, cluster(3, 3), "1", 1.5)) == 2, "none comes after the horizon"


def test_further_failures_come_after_the_aimed_one_even_at_once() -> None:
    also = [{"kind": "loss", "host": "host0", "rail": 1}, {"kind": "process_pause", "host": "host2", "after": "1 s"}]
    fault = table(kind="switch_outage", rail=0, at_progress=0.5, also=also)
    first, second, third = injections(fault, cluster(3, 3), "1", HORIZON_S)
    assert first.aimed and reach(first, cluster(3, 3)) == (("host0", "eth0"), ("host1", "eth0"), ("host2", "eth0"))
    assert (second.host, second.nic, second.offset_s, second.aimed) == ("host0", "eth1", 0.0, False)
    assert (third.kind, third.host, third.offset_s) == ("process_pause", "host2", 1.0)


def test_the_same_strike_hits_every_system_and_other_repeats_hit_others() -> None:
    fault = table(kind="nic_down", host="random", nic="random", at_progress=0.5)
    drawn = [injections(fault, cluster(3, 3), f"1/nic_down/{repeat}", HORIZON_S)[0] for repeat in range(40)]
    assert len({(s.host, s.nic) for s in drawn}) == 9


@pytest.mark.parametrize(
    ("keys", "reached"),
    [
        ({"kind": "host_isolate", "host": "host1"}, [("host1", "eth0"), ("host1", "eth1")]),
        ({"kind": "switch_outage", "rail": 1}, [("host0", "eth1"), ("host1", "eth1"), ("host2", "eth1")]),
        ({"kind": "process_kill", "host": "host2"}, [("host2", "eth0")]),
        ({"kind": "nic_down", "host": "host0", "rail": 1}, [("host0", "eth1")]),
    ],
)
def test_what_a_strike_reaches(keys: dict[str, Any], reached: list[tuple[str, str]]) -> None:
    hosts = cluster(3, 2)
    (injection,) = injections(table(**keys, at_progress=0.5), hosts, "1", HORIZON_S)
    assert list(reach(injection, hosts)) == reached
    assert [(target.host, target.nic) for target in planned(injection, hosts)] == reached


def test_the_busiest_nic_is_left_open() -> None:
    (injection,) = injections(
        table(kind="nic_down", host="host1", nic="busiest", at_progress=0.5), cluster(2, 2), "1", 9
    )
    assert injection.nic == BUSIEST and planned(injection, cluster(2, 2)) == []
    on_each = named(injection, cluster(2, 2))
    assert [one.nic for one in on_each] == ["eth0", "eth1"] and {one.aimed for one in on_each} == {True}
    assert named(on_each[0], cluster(2, 2)) == on_each[:1]


def test_a_trace_is_played_back_in_order_of_time() -> None:
    events = [
        {"kind": "loss", "host": "host1", "nic": "eth0", "at": "2 s", "lasts": "1 s"},
        {"kind": "nic_down", "host": "host0", "rail": 1, "at": "500 ms"},
        {"kind": "nic_down", "host": "host0", "rail": 1, "at": "1 h"},
    ]
    drawn = injections(table(name="trace", events=events), cluster(2, 2), "1", HORIZON_S)
    assert [(s.kind, s.nic, s.offset_s, s.lasts_s) for s in drawn] == [
        ("nic_down", "eth1", 0.5, None),
        ("loss", "eth0", 2.0, 1.0),
    ]


def test_what_fits() -> None:
    hosts = cluster(2, 2)
    assert fits([("host0", "eth0")], [("host1", "eth0"), ("host1", "")], hosts)
    assert not fits([("host0", "eth0")], [("host0", "eth1")], hosts), "its last NIC"
    assert not fits([("host0", "eth0")], [("host0", "eth0")], hosts), "twice"
    assert fits([("host0", "")], [("host0", "eth1")], hosts)
    assert not fits([("host0", "")], [("host0", "")], hosts)


FIRST = {"kind": "nic_down", "host": "host1", "rail": 0, "at_iteration": 1}
NEXT = {"kind": "nic_down", "host": "host2", "rail": 0, "after": "50 ms"}
EVENT = {"at": "1 s", "kind": "nic_down", "host": "host1"}


@pytest.mark.parametrize(
    ("keys", "several", "comes_and_goes"),
    [
        (FIRST, False, False),
        (FIRST | {"lasts": "400 ms"}, False, False),
        (FIRST | {"kind": "flap", "lasts": "2 s"}, False, True),
        (FIRST | {"also": [NEXT]}, True, False),
        (FIRST | {"also": [NEXT | {"lasts": "100 ms"}]}, True, True),
        (FIRST | {"lasts": "100 ms", "also": [NEXT]}, True, True),
        (FIRST | {"lasts": "100 ms", "also": [NEXT | {"lasts": "100 ms"}]}, True, True),
        (FIRST | {"lasts": "500 ms", "also": [NEXT | {"lasts": "100 ms"}]}, True, True),
        (FIRST | {"lasts": "300 ms", "also": [NEXT | {"after": "100 ms", "lasts": "200 ms"}]}, True, False),  # at once
        (FIRST | {"lasts": "100 ms", "also": [NEXT | {"lasts": "50 ms", "kind": "flap"}]}, True, True),
        (FIRST | {"lasts": "100 ms", "also": [NEXT | {"lasts": "100 ms", "after": "100 ms"}]}, True, True),
        (FIRST | {"also": [NEXT | {"kind": "flap"}]}, True, True),
        (FIRST | {"times": 2, "every": "1 s", "lasts": "400 ms"}, True, True),
        ({"name": "chance", "kind": "nic_down", "mtbf": "1 s"}, True, True),
        ({"name": "trace", "events": [EVENT]}, False, False),
        ({"name": "trace", "events": [EVENT, EVENT | {"at": "2 s", "host": "host2"}]}, True, False),
        ({"name": "trace", "events": [EVENT | {"lasts": "400 ms"}, EVENT | {"at": "2 s"}]}, True, True),
        ({"name": "trace", "events": [EVENT | {"lasts": "400 ms"}]}, False, False),
    ],
)
def test_the_table_says_whether_failures_are_several_and_come_and_go(
    keys: dict[str, Any], several: bool, comes_and_goes: bool
) -> None:
    fault = table(**keys)
    assert (fault.several, fault.comes_and_goes) == (several, comes_and_goes)


def test_what_comes_again_is_alike_and_is_over_by_then() -> None:
    first = Injection("rate_limit", "host1", "eth1", 0.0, 0.15, True, {"share": 0.1})
    again = replace(first, offset_s=0.5, aimed=False)
    assert first.is_like(again) and first.is_over_by(again.offset_s) and not again.is_over_by(0.6)
    assert not again.is_like(replace(again, parameters={"share": 0.2})) and not again.is_like(
        replace(again, nic="eth2")
    )
    assert not replace(first, lasts_s=None).is_over_by(1e9), "it stays until the end"
