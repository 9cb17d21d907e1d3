"""Planning: the grid, its order, its ids, and selections from it."""

from pathlib import Path

import pytest

from faults.base import Effect
from harness.errors import ExperimentError
from harness.experiment.file import load
from harness.sweep.expectation import Came, expected
from harness.sweep.plan import Trial, parse_only, plan, select

ALLREDUCE = Path(__file__).parents[2] / "experiments" / "allreduce.toml"


def trials(*settings: str) -> tuple[Trial, ...]:
    return plan(load(ALLREDUCE, settings))


def test_the_grid_is_complete_and_ids_are_unique() -> None:
    ids = {trial.trial_id for trial in trials()}
    assert len(ids) == len(trials()) == 3 * 3 * 5
    assert "balance-64MiB-nic_down-r0" in ids


def test_without_faults_every_trial_is_healthy() -> None:
    assert {t.value("fault") for t in trials("fault=[]")} == {"healthy"}
    assert {t.fault_iteration() for t in trials("fault=[]")} == {None}


def test_repeats_are_blocks_and_the_seed_alone_decides_their_order() -> None:
    order = [t.trial_id for t in trials()]
    assert [t.repeat for t in trials()] == sorted(t.repeat for t in trials())
    assert order == [t.trial_id for t in trials()]
    assert order != [t.trial_id for t in trials("sweep.seed=2")]
    assert sorted(order) == sorted(t.trial_id for t in trials("sweep.seed=2"))


def test_listed_order_is_the_order_of_the_file() -> None:
    first = [t.trial_id for t in trials("sweep.order=listed")][:3]
    assert first == [f"{system}-1MiB-nic_down-r0" for system in ("failstop", "hot_repair", "balance")]


@pytest.mark.parametrize(
    ("when", "injection"),
    [("at_iteration=3", 3), ("at_progress=0.5", 20), ("at_progress=0", 0), ('at_time="1s"', None)],
)
def test_when_a_fault_strikes(when: str, injection: int | None) -> None:
    fault = f'fault=[{{kind="nic_down", host="host0", nic="eth0", {when}}}]'
    small = select(trials(fault), parse_only(["size=1MiB"]))
    assert {t.fault_iteration() for t in small} == {injection}


def test_selections_keep_what_they_name() -> None:
    chosen = select(trials(), parse_only(["system=balance, size=64M,size=8MiB,repeat=0"]))
    assert sorted(t.trial_id for t in chosen) == ["balance-64MiB-nic_down-r0", "balance-8MiB-nic_down-r0"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("system", "--only: system: write axis=value, for example system=balance"),
        ("system=failstop,balance", "--only: balance: write axis=value for each value, for example system=balance"),
        ("sytem=x", "--only: sytem=x: unknown axis; did you mean 'system'?"),
        ("system=balanc", "--only: system=balanc: no such system; did you mean 'balance'?"),
        ("size=2MiB", "--only: size=2MiB: no such size; did you mean '64MiB'?"),
        ("size=2XB", "--only: size=2XB: '2XB' has the unknown unit 'XB' for a size; write it like '64MiB'"),
    ],
)
def test_selections_of_what_is_not_there(text: str, line: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        select(trials(), parse_only([text]))
    assert str(refused.value).split("; did")[0] == line.split("; did")[0]


def test_a_fault_says_how_trials_end_for_all_systems_or_for_some() -> None:
    came = [Came("nic_down", (Effect("host1", "eth1", rate_factor=0.0),), None)]

    def expectations(*settings: str) -> dict[str, str]:
        faulted = (trial for trial in trials(*settings) if trial.value("fault") == "nic_down")
        return {trial.system.name: expected(trial, came) for trial in faulted}

    assert expectations() == {"failstop": "failed", "hot_repair": "ok", "balance": "ok"}
    assert set(expectations("fault[0].expect=failed").values()) == {"failed"}
    some = expectations('fault[0].expect={balance = "failed"}')
    assert some == {"failstop": "failed", "hot_repair": "ok", "balance": "failed"}


@pytest.mark.parametrize(
    ("lasts_s", "settings", "failstop"),
    [
        ((0.3,), (), "either"),
        ((0.3, 4.9), (), "either"),
        ((0.3, 5.0), (), "failed"),
        ((0.3, None), (), "failed"),
        ((6.0,), ("sweep.limits.give_up=8 s",), "either"),
        ((), (), "ok"),
    ],
)
def test_a_system_that_stops_at_a_loss_may_outlive_a_short_one(
    lasts_s: tuple[float | None, ...], settings: tuple[str, ...], failstop: str
) -> None:
    dead, slow = Effect("host1", "eth1", rate_factor=0.0), Effect("host1", "eth0", added_delay_s=0.1)
    came = [Came("blackhole", (dead,), s) for s in lasts_s] + [Came("delay", (slow,), None)]
    told = {t.system.name: expected(t, came) for t in trials(*settings) if t.fault is not None}
    assert told == {"failstop": failstop, "hot_repair": "ok", "balance": "ok"}
