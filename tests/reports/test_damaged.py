"""Damage that random mutation of run folders found: each is one clear line, or harmless."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from synthetic_run import make_run

from reports.core_log import core_events
from reports.errors import SchemaError
from reports.load import LoadedRun, counters, load_folder
from reports.measures import trial_frame
from reports.trial import load_trial


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedRun:
    return load_folder(make_run(tmp_path, sizes={1 << 20: 6}, repeats=1))


def drop(name: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda samples: samples.drop(columns=[name])


def become(name: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda samples: samples.assign(**{name: value})


@pytest.mark.parametrize("damage", [drop("up"), drop("nic"), become("tx_bytes", "<b>"), become("t_ns", "x")])
def test_counters_of_another_form_are_one_line(
    loaded: LoadedRun, damage: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    trial = loaded.trials[0]
    path = loaded.trial_folder(trial) / "nics.parquet"
    damage(pd.read_parquet(path)).to_parquet(path)
    line = counters(loaded, trial)
    assert isinstance(line, str)
    assert "reported without it" in line
    assert len(trial_frame([loaded])) == len(loaded.trials)


def test_counters_without_values_say_nothing(loaded: LoadedRun) -> None:
    trial = loaded.trials[-1]
    path = loaded.trial_folder(trial) / "nics.parquet"
    become("rx_bytes", None)(pd.read_parquet(path)).to_parquet(path)
    assert len(counters(loaded, trial)) == 0
    assert trial_frame([loaded])["recover_ms"].isna().all()


@pytest.mark.parametrize(
    "core",
    [
        {"0": None},
        {"0": {"events": None}},
        {"0": {"events": [None, 5, {"t_ns": "soon"}, {"t_ns": 2**70}, {"t_ns": True}]}},
        {"0" * 5000: {"events": []}},
    ],
)
def test_strange_core_logs_have_no_events(loaded: LoadedRun, core: dict[str, Any]) -> None:
    assert core_events(loaded.trials[0].model_copy(update={"core": core})) == []


def test_strange_clock_offsets_count_as_none(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if core_events(t))
    odd = trial.evidence.model_copy(update={"clock_offsets_ns": {"host0": float("nan"), "host1": "x", "host2": None}})
    assert core_events(trial.model_copy(update={"evidence": odd})) == core_events(trial)


@pytest.mark.parametrize(
    ("old", "new"), [('"reason": ""', '"reason": "\\ud800"'), ('"dtype"', '"core": {"0": "\\udfff"}, "dtype"')]
)
def test_half_characters_are_refused(loaded: LoadedRun, old: str, new: str) -> None:
    trial = next(t for t in loaded.trials if t.status == "ok")
    path = loaded.trial_folder(trial) / "trial.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(SchemaError, match="damaged") as refused:
        load_trial(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [2**63, -(2**70), float("nan"), float("inf")])
def test_numbers_that_no_column_holds_are_refused(loaded: LoadedRun, value: float) -> None:
    path = loaded.trial_folder(loaded.trials[0]) / "trial.json"
    values = json.loads(path.read_text())
    values["iterations"][0]["busbw_gbs" if isinstance(value, float) else "t_ns"] = value
    path.write_text(json.dumps(values))
    with pytest.raises(SchemaError, match=r"iterations\.0"):
        load_trial(path)
