"""Axes: any key with several values, its points as whole experiments, in ids, selections, order and the record."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from harness.errors import ExperimentError
from harness.experiment.file import load, variants
from harness.sweep.dry_run import lines
from harness.sweep.estimate import report_s
from harness.sweep.plan import Trial, dimensions, parse_only, plan, select
from harness.sweep.record import lost_record

ALLREDUCE = Path(__file__).parents[2] / "experiments" / "allreduce.toml"

DTYPE = '{key="workload.dtype", values=["float32", "float16"]}'
WINDOW = '{name="window", keys=["system.env.A", "system[2].env.B"], values=[["1", "x"], ["2", "y"]], labels=["s", "l"]}'
RATE = '{key="cluster.rate", values=["500 Mbit/s", "1 Gbit/s"]}'
SMALL = (
    'workload.sizes=["1MiB"]',
    "workload.iterations_by_size={}",
    'workload.min_duration="0 s"',
    "sweep.repeats=4",
)


def trials(*axes: str, settings: tuple[str, ...] = SMALL) -> tuple[Trial, ...]:
    return plan(load(ALLREDUCE, [f"axis=[{', '.join(axes)}]", *settings]))


def test_points_are_a_grid_of_axes_and_keys_of_one_axis_go_together() -> None:
    experiment = load(ALLREDUCE, [f"axis=[{DTYPE}, {WINDOW}]"])
    found = variants(experiment)
    assert [dict(v.axes) for v in found] == [
        {"dtype": dtype, "window": window} for dtype in ("float32", "float16") for window in ("s", "l")
    ]
    last = found[-1].experiment
    assert last.workload.dtype == "float16"
    assert [system.env for system in last.systems] == [{"A": "2"}, {"A": "2"}, {"A": "2", "B": "y"}]
    assert dict(found[-1].settings) == {"workload.dtype": "float16", "system.env.A": "2", "system[2].env.B": "y"}


def test_a_key_of_an_axis_is_not_set_for_nothing() -> None:
    for change in ("workload.dtype=float64", 'system.env.A="3"'):
        with pytest.raises(
            ExperimentError, match=r"--set: .*: axis\[[01]\] sets this key; choose among its values with"
        ):
            load(ALLREDUCE, [f"axis=[{DTYPE}, {WINDOW}]", change])


def test_without_axes_there_is_the_experiment_itself() -> None:
    experiment = load(ALLREDUCE)
    assert [v.experiment for v in variants(experiment)] == [experiment]


def test_a_fault_moves_through_the_collective() -> None:
    moved = trials('{keys=["fault.at_progress", "fault.into"], name="at", values=[[0.2, 0.1], [0.8, 0.9]]}')
    assert {(t.variant.axes["at"], t.fault_iteration(), t.fault and t.fault.into) for t in moved} == {
        ("0.2+0.1", 2, 0.1),
        ("0.8+0.9", 8, 0.9),
    }


def test_ids_name_the_point_and_fit_a_folder() -> None:
    ids = [t.trial_id for t in trials(DTYPE, RATE)]
    assert len(set(ids)) == len(ids) == 2 * 2 * 3 * 4
    assert "balance-1MiB-nic_down-dtype=float16-rate=1_Gbit_s-r3" in ids


def test_points_can_be_selected() -> None:
    experiment = load(ALLREDUCE, [f"axis=[{DTYPE}, {RATE}]", *SMALL])
    only = parse_only(["dtype=float16,rate=1 Gbit/s,system=balance,repeat=0"], dimensions(experiment))
    assert [t.trial_id for t in select(plan(experiment), only)] == [
        "balance-1MiB-nic_down-dtype=float16-rate=1_Gbit_s-r0"
    ]
    with pytest.raises(ExperimentError, match="no such dtype; did you mean 'float16'"):
        select(plan(experiment), {"dtype": ("float61",)})
    with pytest.raises(ExperimentError, match="unknown axis; did you mean 'dtype'"):
        parse_only(["dtyp=float16"], dimensions(experiment))


def test_trials_that_share_a_cluster_stand_together_and_it_is_made_once_a_block() -> None:
    order = [(t.repeat, t.variant.axes["rate"]) for t in trials(RATE, DTYPE)]
    slow, fast = "500 Mbit/s", "1 Gbit/s"
    assert [key for key, _ in groupby(order)] == [
        (0, slow), (0, fast), (1, fast), (1, slow), (2, slow), (2, fast), (3, fast), (3, slow),
    ]  # fmt: skip
    first = [t.trial_id for t in trials(RATE, DTYPE)[:6]]
    assert {"float16" in trial_id for trial_id in first} == {True, False}
    assert first != [t.trial_id for t in trials(RATE, DTYPE, settings=(*SMALL, "sweep.seed=9"))[:6]]


def test_healthy_trials_stand_around_every_block_or_around_all_of_them() -> None:
    settings = ('workload.sizes=["1MiB"]', "workload.iterations_by_size={}", "sweep.repeats=2")
    around = trials(settings=(*settings, "sweep.healthy=blocks"))
    kinds = [(t.repeat, t.value("fault")) for t in around]
    block = ["healthy_before", "nic_down", "healthy_after"]
    assert [key for key, _ in groupby(kinds)] == [(repeat, kind) for repeat in (0, 1) for kind in block]
    ends = trials(settings=(*settings, "sweep.healthy=ends"))
    assert [key for key, _ in groupby(t.value("fault") for t in ends)] == block
    assert {t.closing for t in ends[-3:]} == {True}
    assert len({t.trial_id for t in around}) == len(around) == 18
    assert len({t.trial_id for t in ends}) == len(ends) == 12


def test_healthy_trials_run_once_where_only_faults_differ() -> None:
    settings = (*SMALL, "sweep.healthy=ends", "sweep.repeats=1")
    into = '{key="fault.into", values=[0.1, 0.9]}'
    both = trials(into, DTYPE, settings=settings)
    assert {t.cell for t in both if t.when and t.system.name == "balance"} == {
        f"balance-1MiB-healthy_{when}-dtype={dtype}" for when in ("before", "after") for dtype in ("float32", "float16")
    }
    assert all(set(t.variant.settings) == {"workload.dtype"} for t in both if t.when)
    kept = select(both, parse_only(["into=0.1,dtype=float16,system=balance"], ("into", "dtype", "system")))
    assert [t.scenario for t in kept] == ["healthy_before", "nic_down", "healthy_after"]


def test_an_axis_over_the_hosts_of_an_inventory_takes_the_first_ones(tmp_path: Path) -> None:
    nics = [f'{{name = "eth{rail}", rail = {rail}, ipv4 = "10.0.{rail}.%d/24"}}' for rail in (0, 1)]
    hosts = [
        f'[[host]]\nname = "node{n}"\naddress = "192.0.2.{n}"\nnics = [{", ".join(nic % n for nic in nics)}]\n'
        for n in (1, 2, 3, 4)
    ]
    inventory = tmp_path / "hosts.toml"
    inventory.write_text("schema = 1\n" + "".join(hosts))
    settings = ['axis=[{key="cluster.hosts", values=[2, 4]}]', "fault=[]", *SMALL]
    found = plan(load(ALLREDUCE, settings, inventory))
    assert {t.variant.axes["hosts"]: t.variant.experiment.cluster.host_names() for t in found} == {
        "2": ["node1", "node2"],
        "4": ["node1", "node2", "node3", "node4"],
    }


def test_a_record_says_at_which_point_it_was_taken() -> None:
    (trial, *_) = trials(DTYPE, RATE)
    record = lost_record(trial, 1, trial.variant.experiment.workload, "lost")
    assert record.axes == {"dtype": "float32", "rate": "500 Mbit/s"}
    assert record.settings == {"workload.dtype": "float32", "cluster.rate": "500 Mbit/s"}
    assert (record.scenario, record.dtype) == ("nic_down", "float32")


def test_a_dry_run_shows_every_point_and_totals() -> None:
    experiment = load(ALLREDUCE, [f"axis=[{DTYPE}, {RATE}]", *SMALL])
    shown = list(lines(experiment, plan(experiment)))
    assert sum(" -d float16 " in line for line in shown) == sum(" -d float32 " in line for line in shown) == 72
    assert sum(line.startswith("cluster ") for line in shown) == 5
    totals = "48 trials of 12 cells, 48 with a fault, 144 ranks started, the cluster made 5"
    (told,) = (line for line in shown if line.startswith(totals))
    assert re.search(r"; about \d+ (s|min) on a quiet machine, with the report$", told)
    assert report_s(plan(experiment)) > report_s(plan(experiment)[:1]) > report_s([]) > 1
