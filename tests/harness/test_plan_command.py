"""`harness plan`: the table and the JSON form."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from harness.commands.cluster_options import ClusterOptions
from harness.commands.plan import plan_command
from r2ccl_core.errors import R2cclError, UsageError


def test_the_table_names_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_command(ClusterOptions(lost=["1:2"])) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("all_reduce of 1GiB: 3 hosts with 3 NICs of 100 Gbit/s each, NIC 2 of host 1 lost, 20 us ")
    assert "bound" in shown and "without a loss 38.177 ms" in shown and "chosen: forest" in shown


def test_a_loss_costs_what_it_adds_to_the_time_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ClusterOptions(hosts=2, nics=8, gpus=8, rate="400Gbit/s")
    plan_command(cluster, as_json=True)
    healthy = json.loads(capsys.readouterr().out)
    plan_command(replace(cluster, lost=["1:3"]), as_json=True)
    record = json.loads(capsys.readouterr().out)
    [chosen] = [one for one in record["candidates"] if one["name"] == record["chosen"]]
    assert record["healthy_s"] == min(one["seconds"] for one in healthy["candidates"])
    plan_command(replace(cluster, lost=["1:3"]))
    assert f"{chosen['seconds'] / record['healthy_s']:.3f}" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 60, 80, 150])
def test_a_narrow_terminal_gets_no_number_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    plan_command(ClusterOptions(lost=["1:2"]))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    words = " ".join(shown.split())
    for told in ("44.823 ms", "leaf_ring", "owner_skewed_ring", "(trees=2 fan=2 chunks=46)", "1.793"):
        assert told in words


def test_json_holds_every_candidate(capsys: pytest.CaptureFixture[str]) -> None:
    plan_command(ClusterOptions(lost=["1:2"]), as_json=True)
    record = json.loads(capsys.readouterr().out)
    assert {"ring", "hot_repair", "r2cc_all_reduce", "forest"} <= {one["name"] for one in record["candidates"]}
    assert (record["hosts"], record["ranks"], record["shares"]) == (3, 3, [1.0, pytest.approx(2 / 3), 1.0])
    assert all(one["seconds"] >= record["bound_s"] for one in record["candidates"])


def test_a_nic_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(UsageError, match="NIC 7 of host 1 does not exist"):
        plan_command(ClusterOptions(lost=["1:7"]))
    with pytest.raises(UsageError, match=r"--lost 1:2:0\.5: NIC 2 of host 1 is named already; name each NIC once"):
        plan_command(ClusterOptions(lost=["1:2", "1:1", "1:2:0.5"]))


def test_what_is_too_much_is_one_line() -> None:
    with pytest.raises(UsageError, match="--nics 1000000000: at most 100"):
        plan_command(ClusterOptions(nics=1_000_000_000))
    with pytest.raises(UsageError, match="--size 1e308: at most 1 EiB"):
        plan_command(ClusterOptions(), size="1e308")


def test_what_moves_nothing_is_one_line() -> None:
    with pytest.raises(UsageError, match="--size 0: there is nothing to plan"):
        plan_command(ClusterOptions(), size="0")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"hosts": 1}, "--hosts 1: a plan is about the network; give 2 or more"),
        ({"nics": 0}, "--nics 0: give 1 or more"),
        ({"gpus": 0}, "--gpus 0: give 1 or more"),
        ({"gpus": 99_999}, "--gpus 99999: at most 128"),
        ({"hosts": 100_000}, "--hosts 100000: at most 16384, up to which the models were checked"),
        (
            {"lost": ["0:0", "0:1", "0:2"]},
            "--lost 0:2: host 0 has no NIC left, and no schedule can reach it; leave it out, or slow the NIC instead "
            "of losing it, as 0:2:0.5",
        ),
        ({"rate": "0 Gbit/s"}, "--rate 0 Gbit/s: give 1 kbit/s to 100 Tbit/s"),
        ({"rate": "1e-300bit/s"}, "--rate 1e-300bit/s: give 1 kbit/s to 100 Tbit/s"),
        ({"rate": "1e300bit/s"}, "--rate 1e300bit/s: give 1 kbit/s to 100 Tbit/s"),
        ({"alpha": "1e-320s"}, "--alpha 1e-320s: give 0 s, or 1 ns to 1000 s"),
        ({"alpha": "1e300s"}, "--alpha 1e300s: give 0 s, or 1 ns to 1000 s"),
        ({"size": "1e400MiB"}, "--size 1e400MiB: is too large for a size; write it like '64MiB'"),
    ],
)
def test_what_cannot_be_planned_is_one_line(options: dict[str, Any], line: str) -> None:
    plan_options = {key: options.pop(key) for key in ("size", "alpha") if key in options}
    with pytest.raises(R2cclError) as refused:
        plan_command(ClusterOptions(**options), **plan_options)
    assert str(refused.value) == line


def test_a_long_list_of_losses_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    plan_command(ClusterOptions(nics=4, gpus=2, lost=["0:0:0.004", *(f"1:{nic}" for nic in range(3)), "2:0", "2:1"]))
    told = capsys.readouterr().out.splitlines()[0]
    assert "100 Gbit/s each, 2 GPUs a host, NIC 0 of host 0 at 0.4%, NIC 0 of host 1 lost" in told
    assert "NIC 2 of host 1 lost, 2 more, 20 us a message" in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"size": ""}, "^--size : is not a size; write it like '64MiB'"),
        ({"rate": "0"}, "^--rate 0: has no unit for a rate"),
        ({"alpha": "-1us"}, "^--alpha -1us: is not a duration"),
        ({"lost": ["9:9"]}, "^--lost 9:9: host 9 does not exist; the hosts are 0 to 2"),
    ],
)
def test_what_cannot_be_read_begins_with_its_option(given: dict[str, Any], told: str) -> None:
    cluster = ClusterOptions(**{key: given[key] for key in ("rate", "lost") if key in given})
    with pytest.raises(UsageError, match=told):
        plan_command(cluster, **{key: given[key] for key in ("size", "alpha") if key in given})


def test_a_short_time_has_digits_and_nothing_is_still_to_come_is_no_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plan_command(ClusterOptions(hosts=3, nics=3), size="8KiB")
    (bound,) = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("bound")]
    assert not re.search(r"\b0\.000 ms", bound)
    with pytest.raises(UsageError, match="--operations 0: give 1 or more"):
        plan_command(ClusterOptions(hosts=3, nics=3), operations=0)
