"""`harness plan`: the table and the JSON form."""

import json

import pytest

from harness.plan import plan_command
from r2ccl_core.errors import UsageError


def test_the_table_names_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_command(hosts=3, nics=3, lost=["1:2"], size="1GiB") == 0
    shown = capsys.readouterr().out
    assert "bound" in shown and "1.125" in shown and "chosen: forest" in shown


def test_json_holds_every_candidate(capsys: pytest.CaptureFixture[str]) -> None:
    plan_command(hosts=3, nics=3, lost=["1:2"], size="1GiB", as_json=True)
    record = json.loads(capsys.readouterr().out)
    assert {"ring", "hot_repair", "r2cc_all_reduce", "forest"} <= {one["name"] for one in record["candidates"]}
    assert all(one["seconds"] >= record["bound_s"] for one in record["candidates"])


def test_a_nic_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(UsageError, match="NIC 7 of host 1 does not exist"):
        plan_command(hosts=3, nics=3, lost=["1:7"])
